/* SPDX-License-Identifier: Apache-2.0 */
/* http_line.h: the lines of a head: which bytes may stand in them, and writing them. */
#pragma once

#include "base/buf.h"

/* RFC 9110's tchar: names and methods. */
extern const bool http_token_table[256];
static inline bool http_is_token(unsigned char c)
{
    return http_token_table[c];
}
/* Values and reasons: printable, space, tab, 8-bit. */
static inline bool http_is_text(unsigned char c)
{
    return (c >= 0x20 && c != 0x7f) || c == '\t';
}
bool http_token_valid(const char *s); /* not empty */
bool http_text_valid(const char *s);
size_t http_text_span(const char *s, size_t n); /* how many bytes at the beginning of s are text */

/* "name: value" and the line's end; -EINVAL: it would break the head, otherwise as buf_append. */
int http_put_header(struct buf *b, const char *name, const char *value);
int http_put_length(struct buf *b, uint64_t n); /* Content-Length */
/* The digits of v, written so that they end in front of `end`; where they begin. */
char *http_format_number(char *end, uint64_t v, unsigned base);
