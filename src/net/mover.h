/* SPDX-License-Identifier: Apache-2.0 */
/* mover.h: bytes from one socket to another without a copy in our memory: the kernel passes pages on (splice,
 * through a pipe that is empty between the calls). */
#pragma once

#include "base/error.h"
#include "net/outq.h"

struct mover {
    int in, out; /* the pipe */
};

int mover_init(struct mover *m, struct error *reterr);
void mover_done(struct mover *m);

/* Moves up to max bytes, a bounded amount, from `from` to `to`, whose queue is empty; what `to` does not take
 * is queued. Both sockets are non-blocking. Returns how many bytes were taken, 0 at the end of `from`, or
 * -errno of `from` (-EAGAIN: there is nothing, -EINVAL: not this kind of descriptor). *ret_sent: 0, or -errno
 * of `to`. */
ssize_t mover_move(struct mover *m, int from, struct outq *queue, int to, uint64_t max, int *ret_sent);
