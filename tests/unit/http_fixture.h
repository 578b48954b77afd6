/* SPDX-License-Identifier: Apache-2.0 */
/* http_fixture.h: a loop and raw sockets driven in one thread, for the tests of the HTTP server and client.
 */
#pragma once

#include "test.h"
#include "base/buf.h"
#include "base/clock.h"
#include "net/http.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>

static struct loop *loop;

/* A raw peer: what it received so far, always with a NUL behind it. */
struct peer {
    int fd;
    struct buf got;
    bool eof, reset;
};

static inline void peer_init(struct peer *p, int fd)
{
    *p = (struct peer){.fd = fd, .got = BUF_INIT(64 << 20)};
}

static inline void peer_done(struct peer *p)
{
    close_fd(&p->fd);
    buf_done(&p->got);
}

static inline const char *peer_text(struct peer *p)
{
    const char *s = buf_cstr(&p->got);
    return s ? s : "";
}

/* Reads at most max bytes of what is there. */
static inline size_t peer_read(struct peer *p, size_t max)
{
    size_t total = 0;
    while (p->fd >= 0 && !p->eof && !p->reset && total < max) {
        char piece[16384];
        ssize_t n = recv(p->fd, piece, MIN(sizeof piece, max - total), MSG_DONTWAIT);
        if (n > 0) {
            (void)buf_append(&p->got, piece, (size_t)n);
            total += (size_t)n;
            continue;
        }
        if (n == 0)
            p->eof = true;
        else if (errno == ECONNRESET || errno == EPIPE)
            p->reset = true;
        break;
    }
    return total;
}

static inline bool peer_send(struct peer *p, const void *data, size_t n)
{
    return send(p->fd, data, n, MSG_NOSIGNAL) == (ssize_t)n;
}
#define PEER_SEND(p, text) CHECK(peer_send(p, text, strlen(text)))

/* Steps the loop (and lets the peer read, unless NULL) until cond holds; a failure after a minute. */
#define STEP_UNTIL(p, cond)                         \
    do {                                            \
        struct peer *p_ = (p);                      \
        int64_t end_ = clock_mono_ms() + 60000;     \
        while (!(cond) && clock_mono_ms() < end_) { \
            (void)loop_step(loop, 2);               \
            if (p_)                                 \
                (void)peer_read(p_, SIZE_MAX);      \
        }                                           \
        CHECK(cond);                                \
    } while (0)

/* Nothing more is going on: the loop has no events at hand. For "and nothing else happens" only. */
static inline void loop_settle(void)
{
    for (int i = 0; i < 5; i++)
        while (loop_step(loop, 0) > 0)
            ;
}

static inline size_t count_of(const char *s, const char *what)
{
    size_t n = 0;
    for (; (s = strstr(s, what)); s += strlen(what))
        n++;
    return n;
}
