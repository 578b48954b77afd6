/* SPDX-License-Identifier: Apache-2.0 */
/* base64.c: see base64.h. Three bytes and four characters at a time, by table. */
#include "base/base64.h"

#include <errno.h>

static const char alphabet[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

enum { GOOD = 0x40 }; /* marks the characters of the alphabet, whose other bits are their value */

static const unsigned char value_of[256] = {
    /* clang-format off */
    ['A'] = GOOD + 0, ['B'] = GOOD + 1, ['C'] = GOOD + 2, ['D'] = GOOD + 3, ['E'] = GOOD + 4, ['F'] = GOOD + 5, ['G'] = GOOD + 6, ['H'] = GOOD + 7,
    ['I'] = GOOD + 8, ['J'] = GOOD + 9, ['K'] = GOOD + 10, ['L'] = GOOD + 11, ['M'] = GOOD + 12, ['N'] = GOOD + 13, ['O'] = GOOD + 14, ['P'] = GOOD + 15,
    ['Q'] = GOOD + 16, ['R'] = GOOD + 17, ['S'] = GOOD + 18, ['T'] = GOOD + 19, ['U'] = GOOD + 20, ['V'] = GOOD + 21, ['W'] = GOOD + 22, ['X'] = GOOD + 23,
    ['Y'] = GOOD + 24, ['Z'] = GOOD + 25, ['a'] = GOOD + 26, ['b'] = GOOD + 27, ['c'] = GOOD + 28, ['d'] = GOOD + 29, ['e'] = GOOD + 30, ['f'] = GOOD + 31,
    ['g'] = GOOD + 32, ['h'] = GOOD + 33, ['i'] = GOOD + 34, ['j'] = GOOD + 35, ['k'] = GOOD + 36, ['l'] = GOOD + 37, ['m'] = GOOD + 38, ['n'] = GOOD + 39,
    ['o'] = GOOD + 40, ['p'] = GOOD + 41, ['q'] = GOOD + 42, ['r'] = GOOD + 43, ['s'] = GOOD + 44, ['t'] = GOOD + 45, ['u'] = GOOD + 46, ['v'] = GOOD + 47,
    ['w'] = GOOD + 48, ['x'] = GOOD + 49, ['y'] = GOOD + 50, ['z'] = GOOD + 51, ['0'] = GOOD + 52, ['1'] = GOOD + 53, ['2'] = GOOD + 54, ['3'] = GOOD + 55,
    ['4'] = GOOD + 56, ['5'] = GOOD + 57, ['6'] = GOOD + 58, ['7'] = GOOD + 59, ['8'] = GOOD + 60, ['9'] = GOOD + 61, ['+'] = GOOD + 62, ['/'] = GOOD + 63,
    /* clang-format on */
};

size_t base64_encode(char *out, const void *data, size_t n)
{
    const unsigned char *p = data;
    char *o = out;
    for (; n >= 3; n -= 3, p += 3, o += 4) {
        uint32_t v = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
        o[0] = alphabet[v >> 18];
        o[1] = alphabet[v >> 12 & 63];
        o[2] = alphabet[v >> 6 & 63];
        o[3] = alphabet[v & 63];
    }
    if (n) {
        uint32_t v = (uint32_t)p[0] << 16 | (n == 2 ? (uint32_t)p[1] << 8 : 0);
        o[0] = alphabet[v >> 18];
        o[1] = alphabet[v >> 12 & 63];
        o[2] = n == 2 ? alphabet[v >> 6 & 63] : '=';
        o[3] = '=';
        o += 4;
    }
    return (size_t)(o - out);
}

/* The length of text without its padding; -1 when the padding is wrong. */
static ssize_t unpadded_len(const char *text, size_t n)
{
    size_t len = n;
    while (len && n - len < 2 && text[len - 1] == '=')
        len--;
    size_t pad = n - len;
    switch (len % 4) {
    case 0:
        return pad ? -1 : (ssize_t)len;
    case 1:
        return -1; /* six bits make no byte */
    case 2:
        return (ssize_t)len;
    default:
        return pad < 2 ? (ssize_t)len : -1;
    }
}

ssize_t base64_decode(void *out, const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    unsigned char *o = out;
    ssize_t unpadded = unpadded_len(text, n);
    if (unpadded < 0)
        return -EBADMSG;

    size_t left = (size_t)unpadded;
    for (; left >= 4; left -= 4, p += 4, o += 3) {
        unsigned a = value_of[p[0]], b = value_of[p[1]], c = value_of[p[2]], d = value_of[p[3]];
        if (!(a & b & c & d & GOOD))
            return -EBADMSG;
        uint32_t v = (a & 63) << 18 | (b & 63) << 12 | (c & 63) << 6 | (d & 63);
        o[0] = (unsigned char)(v >> 16);
        o[1] = (unsigned char)(v >> 8);
        o[2] = (unsigned char)v;
    }
    if (left) { /* two or three characters */
        unsigned a = value_of[p[0]], b = value_of[p[1]], c = left == 3 ? value_of[p[2]] : GOOD;
        if (!(a & b & c & GOOD))
            return -EBADMSG;
        uint32_t v = (a & 63) << 18 | (b & 63) << 12 | (c & 63) << 6;
        *o++ = (unsigned char)(v >> 16);
        if (left == 3)
            *o++ = (unsigned char)(v >> 8);
    }
    return o - (unsigned char *)out;
}
