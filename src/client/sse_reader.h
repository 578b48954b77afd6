/* SPDX-License-Identifier: Apache-2.0 */
/* sse_reader.h: server-sent events out of a byte stream cut anywhere. */
#pragma once

#include "base/buf.h"

struct sse_reader {
    struct buf line; /* the line under way */
    struct buf data; /* the data lines of the event under way, joined with newlines */
    bool has_data;
    bool after_cr; /* the last byte was a CR: an LF now belongs to it */
    /* One complete event; data may be changed in place and is only valid here. A negative result ends the
     * feeding. */
    int (*event)(char *data, size_t n, void *user);
    void *user;
};

/* limit_bytes: the longest event. */
void sse_reader_init(struct sse_reader *s, size_t limit_bytes, int (*event)(char *data, size_t n, void *user),
                     void *user);
/* 0, the first negative result of a callback, -ENOBUFS (event too long) or -ENOMEM. */
int sse_reader_feed(struct sse_reader *s, const char *data, size_t n);
void sse_reader_done(struct sse_reader *s);
