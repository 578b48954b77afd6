/* SPDX-License-Identifier: Apache-2.0 */
/* mover.c: see mover.h. */
#include "net/mover.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* As much as an upload has under way. A pipe counts pages, and pieces smaller than a page like pages. */
enum { MOVE_BYTES = 256 * 1024 };

int mover_init(struct mover *m, struct error *reterr)
{
    int fds[2];
    *m = (struct mover){-1, -1};
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return error_sys(reterr, errno, "make a pipe");
    *m = (struct mover){.in = fds[1], .out = fds[0]};
    (void)fcntl(m->in, F_SETPIPE_SZ, MOVE_BYTES); /* a smaller one serves, too */
    return 0;
}

void mover_done(struct mover *m)
{
    close_fd(&m->in);
    close_fd(&m->out);
}

/* Empties the pipe into the queue, or into nothing. */
static int keep(struct mover *m, size_t n, struct outq *queue, int to)
{
    char piece[16 * 1024];
    int err = 0;
    while (n) {
        ssize_t r = read(m->out, piece, MIN(n, sizeof piece));
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return -EIO; /* it has them, or the kernel has lost them */
        n -= (size_t)r;
        struct iovec iov = {piece, (size_t)r};
        if (queue && !err)
            err = outq_send(queue, to, &iov, 1);
    }
    return err;
}

ssize_t mover_move(struct mover *m, int from, struct outq *queue, int to, uint64_t max, int *ret_sent)
{
    const unsigned flags = SPLICE_F_MOVE | SPLICE_F_NONBLOCK;
    ssize_t taken;
    *ret_sent = 0;
    do
        taken = splice(from, NULL, m->in, NULL, MIN(max, (uint64_t)MOVE_BYTES), flags);
    while (taken < 0 && errno == EINTR);
    if (taken <= 0)
        return taken < 0 ? -errno : 0;
    for (size_t left = (size_t)taken; left;) {
        ssize_t n = splice(m->out, NULL, to, NULL, left, flags);
        if (n > 0) {
            left -= (size_t)n;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else {
            bool full = n < 0 && errno == EAGAIN;
            int err = n < 0 && !full ? -errno : 0;
            int kept = keep(m, left, err ? NULL : queue, to);
            *ret_sent = err ? err : kept;
            break;
        }
    }
    return taken;
}
