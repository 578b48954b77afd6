/* SPDX-License-Identifier: Apache-2.0 */
/* outq.h: bytes on their way to a socket, with at most one piece of a file in between.
 *
 * Sending happens at once when nothing waits in front; what the socket does not take is copied and queued.
 * After a refusal
 * (`blocked`) nothing is tried until outq_flush is called because the descriptor became writable. */
#pragma once

#include "base/buf.h"

#include <sys/uio.h>

/* No reader is slow enough to be worth more memory than this; beyond, sending fails with -ENOBUFS. */
#define OUTQ_MAX (256 * 1024 * 1024)

struct outq {
    struct buf first; /* sent before the file */
    struct buf last;  /* sent behind the file; empty while there is none */
    uint64_t file_offset, file_left;
    int file_fd; /* -1: no file */
    bool blocked;
    bool spent; /* blocked only because one flush has a limit: the socket may be writable still */
};

void outq_init(struct outq *q);
void outq_done(struct outq *q);

static inline bool outq_empty(const struct outq *q)
{
    return buf_len(&q->first) == 0 && q->file_fd < 0;
}
uint64_t outq_len(const struct outq *q);

/* All return 0 or -errno; after an error the connection is of no use. At most OUTQ_IOV pieces. */
enum { OUTQ_IOV = 6 };
int outq_put(struct outq *q, const struct iovec *iov, int count); /* queues only */
int outq_send(struct outq *q, int fd, const struct iovec *iov,
              int count); /* sends now what the socket takes */
int outq_put_file(struct outq *q, int file_fd, uint64_t offset,
                  uint64_t n); /* takes file_fd; -EBUSY: there is one already */
/* Sends a bounded amount of what waits; -ENODATA: the file is shorter than promised. */
int outq_flush(struct outq *q, int fd);
