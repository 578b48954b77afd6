/* SPDX-License-Identifier: Apache-2.0 */
/* sha1.c: see sha1.h. */
#include "base/sha1.h"

#include <string.h>

enum { BLOCK = 64 };

static uint32_t rotate(uint32_t x, int n)
{
    return x << n | x >> (32 - n);
}

static uint32_t load(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void block(uint32_t h[5], const unsigned char *p)
{
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int t = 0; t < 16; t++)
        w[t] = load(p + 4 * t);
    for (int t = 16; t < 80; t++)
        w[t] = rotate(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    for (int t = 0; t < 80; t++) {
        uint32_t f, k;
        if (t < 20) {
            f = (b & c) | (~b & d);
            k = 0x5a827999;
        } else if (t < 40) {
            f = b ^ c ^ d;
            k = 0x6ed9eba1;
        } else if (t < 60) {
            f = (b & c) | (b & d) | (c & d);
            k = 0x8f1bbcdc;
        } else {
            f = b ^ c ^ d;
            k = 0xca62c1d6;
        }
        uint32_t next = rotate(a, 5) + f + e + k + w[t];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

void sha1(const void *data, size_t n, unsigned char out[SHA1_BYTES])
{
    uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    const unsigned char *p = data;
    unsigned char tail[2 * BLOCK] = {0};
    size_t whole = n / BLOCK * BLOCK, rest = n - whole;
    for (size_t at = 0; at < whole; at += BLOCK)
        block(h, p + at);
    if (rest)
        memcpy(tail, p + whole, rest);
    tail[rest] = 0x80;
    size_t end = rest + 9 <= BLOCK ? BLOCK : 2 * BLOCK;
    for (int i = 0; i < 8; i++)
        tail[end - 1 - (size_t)i] = (unsigned char)((uint64_t)n * 8 >> (8 * i));
    for (size_t at = 0; at < end; at += BLOCK)
        block(h, tail + at);
    for (int i = 0; i < SHA1_BYTES; i++)
        out[i] = (unsigned char)(h[i / 4] >> (24 - 8 * (i % 4)));
}
