/* SPDX-License-Identifier: Apache-2.0 */
/* byte_tunnel.c: see byte_tunnel.h.
 *
 * Theory of operation
 * Bytes are read into the loop's scratch memory and sent at once. What the receiver does not take is
 * kept (at most one read per direction), and nothing more is read for it until it is gone: the slower side
 * stops the faster one. An end of one side is passed on when everything before it is, and the other direction
 * goes on. Descriptors may be shared with an enemy who makes them blocking, so every call says MSG_DONTWAIT.
 */
#include "gateway/byte_tunnel.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { ROUNDS = 8 }; /* per event */

/* An end that comes together with the last bytes must be told of: see loop_again. */
#define INPUT_EVENTS ((uint32_t)EPOLLIN | (uint32_t)EPOLLRDHUP)

struct side {
    struct byte_tunnel *tunnel;
    struct source source;
    int fd;
    struct buf out;  /* waits for this side */
    bool read_end;   /* it sends no more */
    bool write_shut; /* it has been told that no more comes */
    struct pace *pace;
    struct timer debt; /* nothing is sent to it before */
};

struct byte_tunnel {
    struct loop *loop;
    struct side sides[2];
    struct timer idle;
    int64_t used_us;
    void (*done)(void *arg);
    void *arg;
};

static void side_ready(struct source *s, uint32_t events);
static void debt_paid(struct timer *t);

static struct side *other(struct side *s)
{
    return s == &s->tunnel->sides[0] ? &s->tunnel->sides[1] : &s->tunnel->sides[0];
}

void byte_tunnel_free(struct byte_tunnel *t)
{
    if (!t)
        return;
    loop_timer_stop(t->loop, &t->idle);
    for (int i = 0; i < 2; i++) {
        struct side *s = &t->sides[i];
        loop_del(t->loop, &s->source);
        loop_timer_stop(t->loop, &s->debt);
        if (s->fd >= 0) /* whoever shared the socket with us may have asked for a close that waits */
            (void)setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &(struct linger){0}, sizeof(struct linger));
        close_fd(&s->fd);
        buf_done(&s->out);
    }
    free(t);
}

static void tunnel_over(struct byte_tunnel *t)
{
    void (*done)(void *) = t->done;
    void *arg = t->arg;
    byte_tunnel_free(t);
    done(arg);
}

static int64_t idle_limit_ms(const struct byte_tunnel *t)
{
    return t->sides[0].read_end || t->sides[1].read_end ? BYTE_TUNNEL_HALF_MS : BYTE_TUNNEL_IDLE_MS;
}

static void idle_fired(struct timer *timer)
{
    struct byte_tunnel *t = container_of(timer, struct byte_tunnel, idle);
    int64_t left_ms = idle_limit_ms(t) - (loop_now_us(t->loop) - t->used_us) / 1000;
    if (left_ms <= 0)
        tunnel_over(t);
    else
        loop_timer_start(t->loop, timer, MIN(left_ms, (int64_t)BYTE_TUNNEL_HALF_MS), idle_fired);
}

/* Sends what it takes now. The number of bytes, or -errno. */
static ssize_t send_some(int fd, const char *data, size_t n)
{
    for (;;) {
        ssize_t sent = send(fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent >= 0)
            return sent;
        if (errno == EAGAIN)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
}

/* What waits for the side; -errno when it takes nothing any more. */
static int flush(struct side *s)
{
    size_t n = buf_len(&s->out);
    if (!n)
        return 0;
    ssize_t sent = send_some(s->fd, buf_data(&s->out), n);
    if (sent < 0)
        return (int)sent;
    buf_consume(&s->out, (size_t)sent);
    if (!buf_len(&s->out))
        buf_done(&s->out);
    return 0;
}

static bool input_wanted(struct side *s)
{
    return !s->read_end && !buf_len(&other(s)->out) && !loop_timer_running(&other(s)->debt);
}

/* From one side to the other, a bounded amount. 1: there may be more to read. */
static int pump(struct side *from)
{
    char *piece = loop_scratch(from->tunnel->loop);
    struct side *to = other(from);
    for (int i = 0; i < ROUNDS && input_wanted(from); i++) {
        ssize_t n = recv(from->fd, piece, LOOP_SCRATCH, MSG_DONTWAIT);
        if (n == 0) {
            from->read_end = true;
            return 0;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : -errno;
        from->tunnel->used_us = loop_now_us(from->tunnel->loop);
        ssize_t sent = send_some(to->fd, piece, (size_t)n);
        if (sent < 0)
            return (int)sent;
        int r = buf_append(&to->out, piece + sent, (size_t)(n - sent));
        if (r < 0)
            return r;
        int64_t wait_ms = to->pace ? pace_spend(to->pace, (size_t)n, from->tunnel->used_us) : 0;
        if (wait_ms)
            loop_timer_start(from->tunnel->loop, &to->debt, wait_ms, debt_paid);
        if (n < LOOP_SCRATCH)
            return 0; /* all there is: the loop tells when more comes */
    }
    return input_wanted(from);
}

/* Passes an end on, and asks for the events that matter. */
static int settle_side(struct side *s)
{
    if (other(s)->read_end && !buf_len(&s->out) && !s->write_shut) {
        s->write_shut = true;
        (void)shutdown(s->fd, SHUT_WR); /* who is gone already need not be told */
    }
    uint32_t events = (input_wanted(s) ? INPUT_EVENTS : 0) | (buf_len(&s->out) ? (uint32_t)EPOLLOUT : 0);
    if (events)
        events |= EPOLLET;
    if (s->source.fd >= 0)
        loop_mod(s->tunnel->loop, &s->source, events);
    else if (events)
        return loop_add(s->tunnel->loop, &s->source, s->fd, events, side_ready);
    return 0;
}

static void settle(struct byte_tunnel *t, int err)
{
    struct side *a = &t->sides[0], *b = &t->sides[1];
    bool over = a->read_end && b->read_end && !buf_len(&a->out) && !buf_len(&b->out);
    if (err < 0 || over || settle_side(a) < 0 || settle_side(b) < 0)
        tunnel_over(t);
}

static void debt_paid(struct timer *t)
{
    settle(container_of(t, struct side, debt)->tunnel, 0);
}

static void side_ready(struct source *source, uint32_t events)
{
    struct side *s = container_of(source, struct side, source);
    struct byte_tunnel *t = s->tunnel;
    const uint32_t ends = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
    bool again = false;
    int r = 0;
    if (events & EPOLLOUT)
        r = flush(s);
    if (r == 0 && events & (EPOLLIN | ends)) {
        if (input_wanted(s)) {
            r = pump(s);
            again = r > 0 || (events & ends && !s->read_end);
        } else if (events & EPOLLERR || (events & EPOLLHUP && s->read_end && buf_len(&s->out))) {
            r = -ECONNRESET; /* nobody is left to take what waits */
        } else if (events & EPOLLHUP) {
            loop_del(t->loop, &s->source); /* nothing can be done about it now; settle adds it again */
        }
    }
    if (again && r >= 0)
        loop_again(t->loop, source);
    settle(t, r);
}

struct byte_tunnel *byte_tunnel_new(const struct byte_tunnel_config *config)
{
    struct byte_tunnel *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->loop = config->loop;
    t->done = config->done;
    t->arg = config->arg;
    t->used_us = loop_now_us(t->loop);
    for (int i = 0; i < 2; i++) {
        struct side *s = &t->sides[i];
        s->tunnel = t;
        s->source.fd = s->fd = -1;
        if (loop_add(t->loop, &s->source, config->fds[i], INPUT_EVENTS | EPOLLOUT | EPOLLET, side_ready) <
            0) {
            loop_del(t->loop, &t->sides[0].source);
            free(t);
            return NULL;
        }
    }
    for (int i = 0; i < 2; i++) {
        struct side *s = &t->sides[i];
        s->fd = config->fds[i];
        s->out = config->firsts[i];
        s->pace = config->pace[i];
        s->out.limit = MAX(s->out.limit, (size_t)LOOP_SCRATCH);
        (void)setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* not being TCP is fine */
    }
    if (!config->patient)
        loop_timer_start(t->loop, &t->idle, BYTE_TUNNEL_HALF_MS, idle_fired);
    return t;
}
