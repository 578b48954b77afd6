/* SPDX-License-Identifier: Apache-2.0 */
/* utf8_internal.h: what utf8.c and json_read.c share: one character, and eight bytes at a time. */
#pragma once

#include "base/util.h"

#include <endian.h>
#include <string.h>

/* Looks at the n > 0 bytes at p. Returns the length of the well-formed character that starts there (and sets
 * *ret_code), 0 when all n bytes are the beginning of one, or minus the length of the maximal ill-formed
 * subpart: the bytes that WHATWG and Unicode replace by one U+FFFD. */
static inline int utf8_step(const unsigned char *p, size_t n, uint32_t *ret_code)
{
    unsigned char c = p[0];
    unsigned char low = 0x80, high = 0xbf; /* of the second byte: keeps out overlong forms and surrogates */
    int len;
    uint32_t code;

    if (c < 0x80) {
        *ret_code = c;
        return 1;
    }
    if (c >= 0xc2 && c <= 0xdf) {
        len = 2;
        code = c & 0x1f;
    } else if (c >= 0xe0 && c <= 0xef) {
        len = 3;
        code = c & 0x0f;
        low = c == 0xe0 ? 0xa0 : 0x80;
        high = c == 0xed ? 0x9f : 0xbf;
    } else if (c >= 0xf0 && c <= 0xf4) {
        len = 4;
        code = c & 0x07;
        low = c == 0xf0 ? 0x90 : 0x80;
        high = c == 0xf4 ? 0x8f : 0xbf;
    } else {
        return -1;
    }
    for (int i = 1; i < len; i++) {
        if ((size_t)i == n)
            return 0;
        if (p[i] < low || p[i] > high)
            return -i;
        code = code << 6 | (p[i] & 0x3f);
        low = 0x80;
        high = 0xbf;
    }
    *ret_code = code;
    return len;
}

#define SWAR_ONES     0x0101010101010101ULL
#define SWAR_HIGHS    0x8080808080808080ULL
#define SWAR_EVERY(c) (SWAR_ONES * (unsigned char)(c))
#define SWAR_INDEX(m) ((size_t)__builtin_ctzll(m) / 8) /* of the first marked byte; m is not 0 */

/* Eight bytes, the first one lowest. */
static inline uint64_t swar_load(const void *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof w);
    return le64toh(w);
}

static inline void swar_store(void *p, uint64_t w)
{
    w = htole64(w);
    memcpy(p, &w, sizeof w);
}

/* The high bits say which bytes are >= 0x80, below `below` (at most 0x80), or equal to a byte of the masks
 * (SWAR_EVERY of an ASCII byte). A borrow can mark a wrong byte, but only above a right one: the first mark
 * is always true. Other bits are noise: the caller masks with SWAR_HIGHS. */
static inline uint64_t swar_below(uint64_t w, unsigned char below)
{
    return w | (w - SWAR_EVERY(below));
}

static inline uint64_t swar_equal(uint64_t w, uint64_t every)
{
    return (w ^ every) - SWAR_ONES;
}
