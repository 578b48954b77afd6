/* SPDX-License-Identifier: Apache-2.0 */
/* buf.c: see buf.h. Growth doubles; the front gap is closed when that avoids growing. */
#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int grow(struct buf *b, size_t n)
{
    size_t len = buf_len(b);
    if (n > b->limit || len > b->limit - n)
        return -ENOBUFS;
    if (b->cap - b->end >= n)
        return 0;
    if (b->start && b->cap - len >= n && b->start >= len) { /* moving is cheaper than copying twice */
        memmove(b->base, b->base + b->start, len);
        b->start = 0;
        b->end = len;
        return 0;
    }
    size_t cap = b->cap ? b->cap : 256;
    while (cap < len + n)
        cap = cap > SIZE_MAX / 2 ? len + n : cap * 2;
    char *p = malloc(cap);
    if (!p)
        return -ENOMEM;
    if (len)
        memcpy(p, b->base + b->start, len);
    free(b->base);
    b->base = p;
    b->start = 0;
    b->end = len;
    b->cap = cap;
    return 0;
}

char *buf_reserve(struct buf *b, size_t n)
{
    return grow(b, n) < 0 ? NULL : b->base + b->end;
}

void buf_commit(struct buf *b, size_t n)
{
    if (n > b->cap - b->end)
        abort(); /* the caller wrote past what it reserved */
    b->end += n;
}

int buf_append(struct buf *b, const void *data, size_t n)
{
    if (n == 0)
        return 0;
    int r = grow(b, n);
    if (r < 0)
        return r;
    memcpy(b->base + b->end, data, n);
    b->end += n;
    return 0;
}

int buf_puts(struct buf *b, const char *s)
{
    return buf_append(b, s, strlen(s));
}

int buf_putc(struct buf *b, char c)
{
    return buf_append(b, &c, 1);
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    char tmp[512];
    va_start(ap, fmt);
    int n = vsnprintf(tmp, sizeof tmp, fmt, ap);
    va_end(ap);
    if (n < 0)
        return -EINVAL;
    if ((size_t)n < sizeof tmp)
        return buf_append(b, tmp, (size_t)n);

    int r = grow(b, (size_t)n);
    if (r < 0)
        return r;
    auto_free char *big = malloc((size_t)n + 1);
    if (!big)
        return -ENOMEM;
    va_start(ap, fmt);
    (void)vsnprintf(big, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return buf_append(b, big, (size_t)n);
}

void buf_consume(struct buf *b, size_t n)
{
    if (n > buf_len(b))
        abort();
    b->start += n;
    if (b->start == b->end)
        b->start = b->end = 0;
}

void buf_clear(struct buf *b)
{
    b->start = b->end = 0;
}

void buf_done(struct buf *b)
{
    free(b->base);
    b->base = NULL;
    b->start = b->end = b->cap = 0;
}

const char *buf_cstr(struct buf *b)
{
    if (b->end == b->cap) {
        size_t limit = b->limit;
        b->limit = SIZE_MAX; /* the NUL is not content */
        int r = grow(b, 1);
        b->limit = limit;
        if (r < 0)
            return NULL;
    }
    b->base[b->end] = '\0';
    return buf_data(b);
}
