/* SPDX-License-Identifier: Apache-2.0 */
/* http_line.c: see http_line.h. Every byte that passes a proxy goes through these checks twice, on its way in
 * and on its way out: they look at eight bytes at a time. */
#include "net/http_line.h"

#include <errno.h>
#include <string.h>

const bool http_token_table[256] = {
    ['!'] = 1, ['#'] = 1, ['$'] = 1, ['%'] = 1,         ['&'] = 1,         ['\''] = 1,
    ['*'] = 1, ['+'] = 1, ['-'] = 1, ['.'] = 1,         ['^'] = 1,         ['_'] = 1,
    ['`'] = 1, ['|'] = 1, ['~'] = 1, ['0' ... '9'] = 1, ['A' ... 'Z'] = 1, ['a' ... 'z'] = 1,
};

#define EACH_BYTE(x) (UINT64_C(0x0101010101010101) * (x))

/* Of eight bytes, whether one is below 0x20 or is 0x7f: exact, and the only bytes that may be no text. The
 * known trick: taking n from each byte sets the top bit of those below n that had none. */
static bool has_control(uint64_t w)
{
    uint64_t del = w ^ EACH_BYTE(0x7f);
    return (((w - EACH_BYTE(0x20)) & ~w) | ((del - EACH_BYTE(1)) & ~del)) & EACH_BYTE(0x80);
}

size_t http_text_span(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t word;
        if (n - i >= sizeof word) {
            memcpy(&word, s + i, sizeof word);
            if (!has_control(word)) {
                i += sizeof word;
                continue;
            }
        }
        for (size_t end = MIN(n, i + sizeof word); i < end; i++)
            if (!http_is_text((unsigned char)s[i]))
                return i;
    }
    return n;
}

static size_t token_span(const char *s)
{
    size_t n = 0;
    while (http_is_token((unsigned char)s[n]))
        n++;
    return n;
}

bool http_token_valid(const char *s)
{
    size_t n = token_span(s);
    return n && !s[n];
}

bool http_text_valid(const char *s)
{
    size_t n = strlen(s);
    return http_text_span(s, n) == n;
}

int http_put_header(struct buf *b, const char *name, const char *value)
{
    size_t name_len = token_span(name), value_len = strlen(value);
    if (!name_len || name[name_len] || http_text_span(value, value_len) != value_len)
        return -EINVAL;
    char *p = buf_reserve(b, name_len + value_len + 4);
    if (!p)
        return -ENOBUFS;
    memcpy(p, name, name_len);
    memcpy(p + name_len, ": ", 2);
    memcpy(p + name_len + 2, value, value_len);
    memcpy(p + name_len + 2 + value_len, "\r\n", 2);
    buf_commit(b, name_len + value_len + 4);
    return 0;
}

char *http_format_number(char *end, uint64_t v, unsigned base)
{
    do
        *--end = "0123456789abcdef"[v % base];
    while (v /= base);
    return end;
}

int http_put_length(struct buf *b, uint64_t n)
{
    char digits[24], *end = digits + sizeof digits - 1;
    *end = '\0';
    return http_put_header(b, "Content-Length", http_format_number(end, n, 10));
}
