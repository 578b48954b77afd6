/* SPDX-License-Identifier: Apache-2.0 */
/* tls_pipe.c: see tls_pipe.h.
 *
 * Theory of operation
 * A pipe has an outer socket (TLS, to the client) and, once hands are shaken, an inner one (plain). In each
 * direction at most one piece waits: what was decrypted and the inner side does not take, what came from the
 * inner side and the outer one does not take. While a piece waits, nothing more is read for that direction.
 * Time limits of what is said are the inner side's; only the handshake has one here. */
#include "gateway/tls_pipe.h"
#include "base/buf.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

enum {
    PIECE = 16 * 1024, /* one TLS record */
    ROUNDS = 8,        /* per event */
    HANDSHAKE_MS = 10 * 1000,
    LINGER_MS = 2 * 1000,
};

struct tls_pipe {
    struct loop *loop;
    SSL *ssl;
    struct source outer, inner;
    int outer_fd, inner_fd; /* inner_fd -1: hands are not shaken yet */
    struct buf to_inner, to_outer;
    struct timer timer;
    bool outer_end, inner_end;   /* it sends no more */
    bool inner_shut, outer_shut; /* it has been told that no more comes */
    bool want_write;             /* TLS waits for room in the outer socket */
    int (*shaken)(void *arg);
    void (*done)(void *arg);
    void *arg;
};

static void outer_ready(struct source *s, uint32_t events);
static void inner_ready(struct source *s, uint32_t events);

void tls_pipe_free(struct tls_pipe *p)
{
    if (!p)
        return;
    loop_timer_stop(p->loop, &p->timer);
    loop_del(p->loop, &p->outer);
    loop_del(p->loop, &p->inner);
    SSL_free(p->ssl);
    close_fd(&p->outer_fd);
    close_fd(&p->inner_fd);
    buf_done(&p->to_inner);
    buf_done(&p->to_outer);
    free(p);
}

static void pipe_over(struct tls_pipe *p)
{
    void (*done)(void *) = p->done;
    void *arg = p->arg;
    tls_pipe_free(p);
    done(arg);
}

static void pipe_expired(struct timer *t)
{
    pipe_over(container_of(t, struct tls_pipe, timer));
}

/* ------------------------------------------------------------------ moving bytes */

/* What a TLS call that did not succeed means: 0 wait, 1 the end, -EPROTO broken. */
static int tls_outcome(struct tls_pipe *p, int result)
{
    switch (SSL_get_error(p->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return 0;
    case SSL_ERROR_WANT_WRITE:
        p->want_write = true;
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        return 1;
    default:
        ERR_clear_error(); /* the queue is shared by all connections */
        return -EPROTO;
    }
}

static ssize_t send_inner(struct tls_pipe *p, const char *data, size_t n)
{
    ssize_t sent = send(p->inner_fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent >= 0 ? sent : errno == EAGAIN || errno == EINTR ? 0 : -errno;
}

/* Decrypts while the inner side takes it. */
static int pump_in(struct tls_pipe *p)
{
    char *piece = loop_scratch(p->loop);
    size_t waiting = buf_len(&p->to_inner);
    if (waiting) {
        ssize_t sent = send_inner(p, buf_data(&p->to_inner), waiting);
        if (sent < 0)
            return (int)sent;
        buf_consume(&p->to_inner, (size_t)sent);
    }
    for (int i = 0; i < ROUNDS && !buf_len(&p->to_inner) && !p->outer_end; i++) {
        int n = SSL_read(p->ssl, piece, PIECE);
        if (n <= 0) {
            int r = tls_outcome(p, n);
            p->outer_end = r == 1;
            return r < 0 ? r : 0;
        }
        ssize_t sent = send_inner(p, piece, (size_t)n);
        if (sent < 0)
            return (int)sent;
        int r = buf_append(&p->to_inner, piece + sent, (size_t)(n - sent));
        if (r < 0)
            return r;
    }
    return 0;
}

/* Encrypts what waits; what is left waits for an event that tls_outcome asked for. */
static int flush_out(struct tls_pipe *p)
{
    while (buf_len(&p->to_outer)) {
        int n = SSL_write(p->ssl, buf_data(&p->to_outer), (int)buf_len(&p->to_outer));
        if (n <= 0) {
            int r = tls_outcome(p, n);
            return r == 1 ? -EPIPE : r;
        }
        buf_consume(&p->to_outer, (size_t)n);
    }
    return 0;
}

static int pump_out(struct tls_pipe *p)
{
    char *piece = loop_scratch(p->loop);
    int r = flush_out(p);
    for (int i = 0; i < ROUNDS && r == 0 && !buf_len(&p->to_outer) && !p->inner_end; i++) {
        ssize_t n = recv(p->inner_fd, piece, PIECE, MSG_DONTWAIT);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        if (n == 0)
            p->inner_end = true;
        r = buf_append(&p->to_outer, piece, (size_t)n);
        if (r == 0)
            r = flush_out(p);
    }
    return r;
}

/* ------------------------------------------------------------------ after an event */

static void pass_ends_on(struct tls_pipe *p)
{
    if (p->outer_end && !buf_len(&p->to_inner) && !p->inner_shut) {
        p->inner_shut = true;
        (void)shutdown(p->inner_fd, SHUT_WR);
    }
    if (p->inner_end && !buf_len(&p->to_outer) && !p->outer_shut) {
        p->outer_shut = true;
        (void)SSL_shutdown(p->ssl); /* our half; whether the client says its own does not matter */
        ERR_clear_error();
        (void)shutdown(p->outer_fd, SHUT_WR);
        loop_timer_start(p->loop, &p->timer, LINGER_MS,
                         pipe_expired); /* the client's last bytes are not reset away */
    }
}

static int watch(struct tls_pipe *p, struct source *s, int fd, uint32_t events,
                 void (*ready)(struct source *, uint32_t))
{
    struct loop *loop = p->loop;
    if (s->fd >= 0 && events)
        loop_mod(loop, s, events);
    else if (s->fd >= 0)
        loop_del(loop, s); /* a hang-up would be reported again and again */
    else if (events)
        return loop_add(loop, s, fd, events, ready);
    return 0;
}

static void settle(struct tls_pipe *p, int err)
{
    if (err == 0)
        pass_ends_on(p);
    if (err < 0 || (p->inner_shut && p->outer_shut)) {
        pipe_over(p);
        return;
    }
    uint32_t outer = p->want_write ? EPOLLOUT : 0, inner = 0;
    if (!p->outer_end && !buf_len(&p->to_inner))
        outer |= EPOLLIN;
    if (buf_len(&p->to_inner))
        inner |= EPOLLOUT;
    if (!p->inner_end && !buf_len(&p->to_outer))
        inner |= EPOLLIN;
    /* TLS may hold decrypted bytes that no event will tell of */
    if (watch(p, &p->outer, p->outer_fd, outer, outer_ready) < 0 ||
        watch(p, &p->inner, p->inner_fd, inner, inner_ready) < 0)
        pipe_over(p);
}

static void move(struct tls_pipe *p)
{
    p->want_write = false;
    int r = pump_in(p);
    if (r == 0)
        r = pump_out(p);
    while (r == 0 && SSL_pending(p->ssl) && !buf_len(&p->to_inner) && !p->outer_end)
        r = pump_in(p);
    settle(p, r);
}

static void inner_ready(struct source *s, uint32_t events)
{
    (void)events;
    move(container_of(s, struct tls_pipe, inner));
}

/* ------------------------------------------------------------------ the handshake */

static int join(struct tls_pipe *p)
{
    int fd = p->shaken(p->arg);
    if (fd < 0)
        return fd;
    p->inner_fd = fd;
    loop_timer_stop(p->loop, &p->timer);
    return 0;
}

static void outer_ready(struct source *source, uint32_t events)
{
    struct tls_pipe *p = container_of(source, struct tls_pipe, outer);
    (void)events;
    if (p->inner_fd < 0) {
        p->want_write = false;
        int n = SSL_do_handshake(p->ssl);
        int r = n == 1 ? join(p) : tls_outcome(p, n);
        if (r != 0) {
            pipe_over(p);
            return;
        }
        if (n != 1) {
            loop_mod(p->loop, &p->outer, p->want_write ? EPOLLOUT : EPOLLIN);
            return;
        }
    }
    move(p);
}

struct tls_pipe *tls_pipe_new(const struct tls_pipe_config *config)
{
    struct tls_pipe *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    *p = (struct tls_pipe){.loop = config->loop,
                           .ssl = config->ssl,
                           .outer.fd = -1,
                           .inner.fd = -1,
                           .outer_fd = config->outer_fd,
                           .inner_fd = -1,
                           .to_inner = BUF_INIT(PIECE),
                           .to_outer = BUF_INIT(PIECE),
                           .shaken = config->shaken,
                           .done = config->done,
                           .arg = config->arg};
    if (loop_add(p->loop, &p->outer, p->outer_fd, EPOLLIN, outer_ready) < 0) {
        free(p);
        return NULL;
    }
    loop_timer_start(p->loop, &p->timer, HANDSHAKE_MS, pipe_expired);
    return p;
}
