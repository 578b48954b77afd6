/* SPDX-License-Identifier: Apache-2.0 */
/* buf.h: the one byte buffer: grows up to a limit, is consumed from the front, never overruns. */
#pragma once

#include "base/util.h"

struct buf {
    char *base;
    size_t start; /* first unread byte */
    size_t end;   /* one past the last byte */
    size_t cap;
    size_t limit; /* buf_len never exceeds this */
};

#define BUF_INIT(limit_bytes)  \
    (struct buf)               \
    {                          \
        .limit = (limit_bytes) \
    }

static inline size_t buf_len(const struct buf *b)
{
    return b->end - b->start;
}
static inline char *buf_data(const struct buf *b)
{
    return b->base ? b->base + b->start : NULL; /* NULL + 0 is undefined in C */
}

/* All return 0, -ENOBUFS (limit reached) or -ENOMEM; on failure the content is unchanged. */
int buf_append(struct buf *b, const void *data, size_t n);
int buf_puts(struct buf *b, const char *s);
int buf_putc(struct buf *b, char c);
int buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Makes room for n more bytes and returns where to write them; buf_commit says how many were written.
 * NULL when the limit or memory forbids. */
char *buf_reserve(struct buf *b, size_t n);
void buf_commit(struct buf *b, size_t n);

/* Drops n bytes from the front. */
void buf_consume(struct buf *b, size_t n);
void buf_clear(struct buf *b); /* keeps the memory */
void buf_done(struct buf *b);  /* frees the memory; the limit stays */

/* A terminating NUL behind the content (not counted); NULL when memory is short. */
const char *buf_cstr(struct buf *b);
