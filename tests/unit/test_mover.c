/* SPDX-License-Identifier: Apache-2.0 */
/* test_mover.c: bytes that pass from socket to socket: all of them, in order, whatever the other end takes.
 */
#include "test.h"
#include "net/mover.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { TOTAL = 3 << 20 };

static struct mover m;
static struct outq q;
static int source[2], target[2]; /* ours are [0] */

static bool begin(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    outq_init(&q);
    return mover_init(&m, NULL) == 0 &&
           socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, source) == 0 &&
           socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, target) == 0;
}

static void finish(void)
{
    outq_done(&q);
    mover_done(&m);
    for (int i = 0; i < 2; i++) {
        close_fd(&source[i]);
        close_fd(&target[i]);
    }
}

static unsigned char byte_at(size_t i)
{
    return (unsigned char)(i * 31 + i / 251);
}

/* As much of the stream as the socket takes; the position behind it. */
static size_t feed(size_t at)
{
    unsigned char piece[5000];
    while (at < TOTAL) {
        size_t n = MIN(sizeof piece, (size_t)TOTAL - at);
        for (size_t i = 0; i < n; i++)
            piece[i] = byte_at(at + i);
        ssize_t sent = send(source[1], piece, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent <= 0)
            break;
        at += (size_t)sent;
    }
    return at;
}

/* Up to `max` bytes; the position behind them, or 0 when one is wrong. */
static size_t check(size_t at, size_t max)
{
    unsigned char piece[7000];
    while (max) {
        ssize_t n = recv(target[1], piece, MIN(sizeof piece, max), MSG_DONTWAIT);
        if (n <= 0)
            break;
        for (ssize_t i = 0; i < n; i++)
            if (piece[i] != byte_at(at++))
                return 0;
        max -= (size_t)n;
    }
    return at;
}

static int in_pipe(void)
{
    int n = -1;
    return ioctl(m.out, FIONREAD, &n) < 0 ? -1 : n;
}

TEST(mover_moves_everything_in_order)
{
    REQUIRE(begin());
    (void)setsockopt(target[0], SOL_SOCKET, SO_SNDBUF, &(int){20000}, sizeof(int));
    size_t fed = 0, moved = 0, checked = 0, queued = 0;
    for (int round = 0; checked < TOTAL; round++) {
        REQUIRE(round < 100000);
        fed = feed(fed);
        if (outq_empty(&q) && moved < TOTAL) {
            int err;
            ssize_t n = mover_move(&m, source[0], &q, target[0], TOTAL - moved, &err);
            CHECK_INT(err, 0);
            CHECK(n > 0 || n == -EAGAIN);
            moved += (size_t)MAX(n, (ssize_t)0);
            queued += !outq_empty(&q);
            CHECK_INT(in_pipe(), 0);
        } else if (!outq_empty(&q)) {
            CHECK_INT(outq_flush(&q, target[0]), 0);
        }
        size_t next = check(checked, round % 3 ? 9000 : 100000);
        REQUIRE(next >= checked && (next || !checked));
        checked = next;
    }
    CHECK_INT(moved, TOTAL);
    CHECK(queued > 0); /* the target was full now and then */
    finish();
}

TEST(mover_takes_no_more_than_it_may)
{
    REQUIRE(begin());
    CHECK_INT(send(source[1], "head and more", 13, 0), 13);
    int err;
    CHECK_INT(mover_move(&m, source[0], &q, target[0], 4, &err), 4);
    char rest[16];
    CHECK_INT(recv(source[0], rest, sizeof rest, 0), 9);
    CHECK_INT(recv(target[1], rest, sizeof rest, 0), 4);
    finish();
}

TEST(mover_tells_of_nothing_and_of_the_end)
{
    REQUIRE(begin());
    int err;
    CHECK_INT(mover_move(&m, source[0], &q, target[0], 100, &err), -EAGAIN);
    close_fd(&source[1]);
    CHECK_INT(mover_move(&m, source[0], &q, target[0], 100, &err), 0);
    auto_close int event = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK_INT(mover_move(&m, event, &q, target[0], 100, &err), -EINVAL);
    finish();
}

TEST(mover_is_empty_after_a_dead_target)
{
    REQUIRE(begin());
    close_fd(&target[1]);
    size_t fed = feed(0);
    int err;
    ssize_t n = mover_move(&m, source[0], &q, target[0], TOTAL, &err);
    CHECK(n > 0 && (size_t)n <= fed);
    CHECK_INT(err, -EPIPE);
    CHECK_INT(in_pipe(), 0);
    CHECK(outq_empty(&q));
    finish();
}
