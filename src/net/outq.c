/* SPDX-License-Identifier: Apache-2.0 */
/* outq.c: see outq.h. */
#include "net/outq.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>

/* one flush hands at most this much to the kernel, so that one fast reader does not keep the loop from the
 * others */
enum { FLUSH_MAX = 1024 * 1024, FILE_PIECE = 256 * 1024, COPY_PIECE = 16 * 1024 };

void outq_init(struct outq *q)
{
    *q = (struct outq){.first = BUF_INIT(OUTQ_MAX), .last = BUF_INIT(OUTQ_MAX), .file_fd = -1};
}

void outq_done(struct outq *q)
{
    buf_done(&q->first);
    buf_done(&q->last);
    close_fd(&q->file_fd);
    q->file_left = 0;
}

uint64_t outq_len(const struct outq *q)
{
    return buf_len(&q->first) + q->file_left + buf_len(&q->last);
}

int outq_put(struct outq *q, const struct iovec *iov, int count)
{
    struct buf *b = q->file_fd >= 0 ? &q->last : &q->first;
    for (int i = 0; i < count; i++) {
        int r = buf_append(b, iov[i].iov_base, iov[i].iov_len);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Bytes taken, 0 when the socket is full, or -errno. */
static ssize_t send_some(struct outq *q, int fd, struct iovec *iov, int count)
{
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = (__typeof__(msg.msg_iovlen))count};
    for (;;) {
        /* a single piece is the usual case, and the kernel has less to copy and check for it */
        ssize_t n = count == 1 ? send(fd, iov[0].iov_base, iov[0].iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
                               : sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0)
            return n;
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            q->blocked = true;
            return 0;
        }
        if (errno != EINTR)
            return -errno;
    }
}

int outq_send(struct outq *q, int fd, const struct iovec *iov, int count)
{
    if (q->blocked || q->file_fd >= 0)
        return outq_put(q, iov, count);

    struct iovec all[OUTQ_IOV + 1];
    int n = 0;
    size_t waiting = buf_len(&q->first), total = waiting;
    if (waiting)
        all[n++] = (struct iovec){buf_data(&q->first), waiting};
    for (int i = 0; i < count && n <= OUTQ_IOV; i++)
        if (iov[i].iov_len) {
            all[n++] = iov[i];
            total += iov[i].iov_len;
        }
    if (!total)
        return 0;
    ssize_t sent = send_some(q, fd, all, n);
    if (sent < 0)
        return (int)sent;
    if ((size_t)sent < total)
        q->blocked = true;

    size_t left = (size_t)sent;
    size_t old = MIN(left, waiting);
    buf_consume(&q->first, old);
    left -= old;
    for (int i = 0; i < count; i++) {
        size_t skip = MIN(left, iov[i].iov_len);
        left -= skip;
        int r = buf_append(&q->first, (const char *)iov[i].iov_base + skip, iov[i].iov_len - skip);
        if (r < 0)
            return r;
    }
    if (!buf_len(&q->first))
        buf_done(&q->first);
    return 0;
}

int outq_put_file(struct outq *q, int file_fd, uint64_t offset, uint64_t n)
{
    auto_close int fd = file_fd;
    if (q->file_fd >= 0)
        return -EBUSY;
    if (!n)
        return 0;
    q->file_fd = take_fd(fd);
    q->file_offset = offset;
    q->file_left = n;
    return 0;
}

/* sendfile cannot read every kind of file (procfs, FUSE with direct I/O) */
static ssize_t copy_some(struct outq *q, int fd)
{
    char piece[COPY_PIECE];
    size_t want = q->file_left < sizeof piece ? (size_t)q->file_left : sizeof piece;
    ssize_t n;
    do
        n = pread(q->file_fd, piece, want, (off_t)q->file_offset);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n == 0 ? -ENODATA : -errno;
    struct iovec iov = {piece, (size_t)n};
    ssize_t sent = send_some(q, fd, &iov, 1);
    if (sent > 0)
        q->file_offset += (uint64_t)sent;
    return sent;
}

static ssize_t send_file(struct outq *q, int fd)
{
    off_t offset = (off_t)q->file_offset;
    ssize_t n;
    do
        n = sendfile(fd, q->file_fd, &offset, q->file_left < FILE_PIECE ? (size_t)q->file_left : FILE_PIECE);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        q->file_offset = (uint64_t)offset;
    if (n >= 0)
        return n ? n : -ENODATA;
    if (errno == EAGAIN) {
        q->blocked = true;
        return 0;
    }
    return errno == EINVAL || errno == ENOSYS ? copy_some(q, fd) : -errno;
}

/* sendfile knows no MSG_NOSIGNAL, and ignoring SIGPIPE in the whole process would be inherited by every
 * program it starts: so the signal is blocked for the moment, and taken back if it came. */
static int send_file_quietly(struct outq *q, int fd, size_t *budget)
{
    sigset_t pipe_set, old, pending;
    ssize_t n = 0;
    (void)sigemptyset(&pipe_set);
    (void)sigaddset(&pipe_set, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
    while (q->file_left && *budget && !q->blocked && n >= 0) {
        n = send_file(q, fd);
        if (n > 0) {
            q->file_left -= (uint64_t)n;
            *budget -= MIN((size_t)n, *budget);
        }
    }
    if (n == -EPIPE && !sigismember(&old, SIGPIPE) && sigpending(&pending) == 0 &&
        sigismember(&pending, SIGPIPE))
        (void)sigtimedwait(&pipe_set, NULL, &(struct timespec){0});
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return n < 0 ? (int)n : 0;
}

static int flush_file(struct outq *q, int fd, size_t *budget)
{
    int r = send_file_quietly(q, fd, budget);
    if (r < 0)
        return r;
    if (!q->file_left) {
        close_fd(&q->file_fd);
        buf_done(&q->first);
        q->first = q->last;
        q->last = BUF_INIT(OUTQ_MAX);
    }
    return 0;
}

int outq_flush(struct outq *q, int fd)
{
    size_t budget = FLUSH_MAX;
    q->blocked = q->spent = false;
    while (!q->blocked && !outq_empty(q) && budget) {
        size_t n = MIN(buf_len(&q->first), budget);
        if (n) {
            struct iovec iov = {buf_data(&q->first), n};
            ssize_t sent = send_some(q, fd, &iov, 1);
            if (sent < 0)
                return (int)sent;
            buf_consume(&q->first, (size_t)sent);
            budget -= (size_t)sent;
            if ((size_t)sent < n)
                q->blocked = true;
        } else {
            int r = flush_file(q, fd, &budget);
            if (r < 0)
                return r;
        }
    }
    q->spent = !q->blocked && !outq_empty(q);
    q->blocked |= q->spent;
    if (outq_empty(q))
        buf_done(&q->first);
    return 0;
}
