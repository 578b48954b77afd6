/* SPDX-License-Identifier: Apache-2.0 */
/* tls_server.c: TLS connections: accepted, shaken hands with, and joined with the HTTP server; see tls.h.
 *
 * Theory of operation
 * A connection has an outer socket (TLS, to the client) and, once hands are shaken, an inner one (plain, to
 * the HTTP server). In each direction at most one piece waits: what was decrypted and the inner side does not
 * take, what came from the inner side and the outer one does not take. While a piece waits, nothing more is
 * read for that direction. The HTTP server's own time limits hold for the inner side; only the handshake has
 * one here. */
#include "base/log.h"
#include "gateway/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

enum {
    PIECE = 16 * 1024, /* one TLS record */
    ROUNDS = 8,        /* per event */
    ACCEPT_BATCH = 16,
    ACCEPT_PAUSE_MS = 100,
    HANDSHAKE_MS = 10 * 1000,
    LINGER_MS = 2 * 1000,
    CONNECTIONS_MAX = 8192,
    HANDSHAKES_MAX = 512,
};

struct tls_listener {
    struct source source;
    struct tls_server *server;
    struct tls_listener *next;
};

struct tls_server {
    struct loop *loop;
    struct http_server *http;
    struct tls_contexts *contexts;
    struct tls_listener *listeners;
    struct tls_conn *conns;
    size_t conn_count, handshake_count;
    struct timer accept_pause;
};

struct tls_conn {
    struct tls_server *server;
    struct tls_conn *next, **prev;
    SSL *ssl;
    struct source outer, inner;
    int outer_fd, inner_fd; /* inner_fd -1: hands are not shaken yet */
    struct buf to_inner, to_outer;
    struct sockaddr_storage peer;
    struct timer timer;
    bool outer_end, inner_end;   /* it sends no more */
    bool inner_shut, outer_shut; /* it has been told that no more comes */
    bool want_write;             /* TLS waits for room in the outer socket */
};

static void outer_ready(struct source *s, uint32_t events);
static void inner_ready(struct source *s, uint32_t events);

static void conn_free(struct tls_conn *c)
{
    struct tls_server *s = c->server;
    loop_timer_stop(s->loop, &c->timer);
    loop_del(s->loop, &c->outer);
    loop_del(s->loop, &c->inner);
    SSL_free(c->ssl);
    if (c->inner_fd < 0)
        s->handshake_count--;
    close_fd(&c->outer_fd);
    close_fd(&c->inner_fd);
    buf_done(&c->to_inner);
    buf_done(&c->to_outer);
    *c->prev = c->next;
    if (c->next)
        c->next->prev = c->prev;
    s->conn_count--;
    free(c);
}

static void timer_fired(struct timer *t)
{
    conn_free(container_of(t, struct tls_conn, timer));
}

/* ------------------------------------------------------------------ moving bytes */

/* What a TLS call that did not succeed means: 0 wait, 1 the end, -EPROTO broken. */
static int tls_outcome(struct tls_conn *c, int result)
{
    switch (SSL_get_error(c->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return 0;
    case SSL_ERROR_WANT_WRITE:
        c->want_write = true;
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        return 1;
    default:
        ERR_clear_error(); /* the queue is shared by all connections */
        return -EPROTO;
    }
}

static ssize_t send_inner(struct tls_conn *c, const char *data, size_t n)
{
    ssize_t sent = send(c->inner_fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent >= 0 ? sent : errno == EAGAIN || errno == EINTR ? 0 : -errno;
}

/* Decrypts while the inner side takes it. */
static int pump_in(struct tls_conn *c)
{
    char piece[PIECE];
    size_t waiting = buf_len(&c->to_inner);
    if (waiting) {
        ssize_t sent = send_inner(c, buf_data(&c->to_inner), waiting);
        if (sent < 0)
            return (int)sent;
        buf_consume(&c->to_inner, (size_t)sent);
    }
    for (int i = 0; i < ROUNDS && !buf_len(&c->to_inner) && !c->outer_end; i++) {
        int n = SSL_read(c->ssl, piece, sizeof piece);
        if (n <= 0) {
            int r = tls_outcome(c, n);
            c->outer_end = r == 1;
            return r < 0 ? r : 0;
        }
        ssize_t sent = send_inner(c, piece, (size_t)n);
        if (sent < 0)
            return (int)sent;
        int r = buf_append(&c->to_inner, piece + sent, (size_t)(n - sent));
        if (r < 0)
            return r;
    }
    return 0;
}

/* Encrypts what waits; what is left waits for an event that tls_outcome asked for. */
static int flush_out(struct tls_conn *c)
{
    while (buf_len(&c->to_outer)) {
        int n = SSL_write(c->ssl, buf_data(&c->to_outer), (int)buf_len(&c->to_outer));
        if (n <= 0) {
            int r = tls_outcome(c, n);
            return r == 1 ? -EPIPE : r;
        }
        buf_consume(&c->to_outer, (size_t)n);
    }
    return 0;
}

static int pump_out(struct tls_conn *c)
{
    char piece[PIECE];
    int r = flush_out(c);
    for (int i = 0; i < ROUNDS && r == 0 && !buf_len(&c->to_outer) && !c->inner_end; i++) {
        ssize_t n = recv(c->inner_fd, piece, sizeof piece, MSG_DONTWAIT);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        if (n == 0)
            c->inner_end = true;
        r = buf_append(&c->to_outer, piece, (size_t)n);
        if (r == 0)
            r = flush_out(c);
    }
    return r;
}

/* ------------------------------------------------------------------ after an event */

static void pass_ends_on(struct tls_conn *c)
{
    if (c->outer_end && !buf_len(&c->to_inner) && !c->inner_shut) {
        c->inner_shut = true;
        (void)shutdown(c->inner_fd, SHUT_WR);
    }
    if (c->inner_end && !buf_len(&c->to_outer) && !c->outer_shut) {
        c->outer_shut = true;
        (void)SSL_shutdown(c->ssl); /* our half; whether the client says its own does not matter */
        ERR_clear_error();
        (void)shutdown(c->outer_fd, SHUT_WR);
        loop_timer_start(c->server->loop, &c->timer, LINGER_MS,
                         timer_fired); /* the client's last bytes are not reset away */
    }
}

static int watch(struct tls_conn *c, struct source *s, int fd, uint32_t events,
                 void (*ready)(struct source *, uint32_t))
{
    struct loop *loop = c->server->loop;
    if (s->fd >= 0 && events)
        loop_mod(loop, s, events);
    else if (s->fd >= 0)
        loop_del(loop, s); /* a hang-up would be reported again and again */
    else if (events)
        return loop_add(loop, s, fd, events, ready);
    return 0;
}

static void settle(struct tls_conn *c, int err)
{
    if (err == 0)
        pass_ends_on(c);
    if (err < 0 || (c->inner_shut && c->outer_shut)) {
        conn_free(c);
        return;
    }
    uint32_t outer = c->want_write ? EPOLLOUT : 0, inner = 0;
    if (!c->outer_end && !buf_len(&c->to_inner))
        outer |= EPOLLIN;
    if (buf_len(&c->to_inner))
        inner |= EPOLLOUT;
    if (!c->inner_end && !buf_len(&c->to_outer))
        inner |= EPOLLIN;
    /* TLS may hold decrypted bytes that no event will tell of */
    if (watch(c, &c->outer, c->outer_fd, outer, outer_ready) < 0 ||
        watch(c, &c->inner, c->inner_fd, inner, inner_ready) < 0)
        conn_free(c);
}

static void move(struct tls_conn *c)
{
    c->want_write = false;
    int r = pump_in(c);
    if (r == 0)
        r = pump_out(c);
    while (r == 0 && SSL_pending(c->ssl) && !buf_len(&c->to_inner) && !c->outer_end)
        r = pump_in(c);
    settle(c, r);
}

static void inner_ready(struct source *s, uint32_t events)
{
    (void)events;
    move(container_of(s, struct tls_conn, inner));
}

/* ------------------------------------------------------------------ the handshake */

/* Hands are shaken: the HTTP server gets its end. */
static int join(struct tls_conn *c)
{
    int pair[2];
    struct tls_server *s = c->server;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -errno;
    c->inner_fd = pair[0];
    s->handshake_count--;
    loop_timer_stop(s->loop, &c->timer);
    (void)http_server_adopt_secure(s->http, pair[1], &c->peer); /* refused: the end comes through the pair */
    return 0;
}

static void outer_ready(struct source *source, uint32_t events)
{
    struct tls_conn *c = container_of(source, struct tls_conn, outer);
    (void)events;
    if (c->inner_fd < 0) {
        c->want_write = false;
        int n = SSL_do_handshake(c->ssl);
        int r = n == 1 ? join(c) : tls_outcome(c, n);
        if (r != 0) {
            conn_free(c);
            return;
        }
        if (n != 1) {
            loop_mod(c->server->loop, &c->outer, c->want_write ? EPOLLOUT : EPOLLIN);
            return;
        }
    }
    move(c);
}

/* Takes fd. */
static void admit(struct tls_server *s, int fd, const struct sockaddr_storage *peer)
{
    auto_close int owned = fd;
    if (s->conn_count >= CONNECTIONS_MAX || s->handshake_count >= HANDSHAKES_MAX)
        return;
    struct tls_conn *c = calloc(1, sizeof *c);
    SSL *ssl = c ? tls_contexts_session(s->contexts, fd) : NULL;
    if (!ssl) {
        free(c);
        return;
    }
    *c = (struct tls_conn){
        .server = s, .ssl = ssl, .outer.fd = -1, .inner.fd = -1, .inner_fd = -1, .peer = *peer};
    c->to_inner = c->to_outer = BUF_INIT(PIECE);
    if (loop_add(s->loop, &c->outer, fd, EPOLLIN, outer_ready) < 0) {
        SSL_free(ssl);
        free(c);
        return;
    }
    c->outer_fd = take_fd(owned);
    c->next = s->conns;
    if (c->next)
        c->next->prev = &c->next;
    c->prev = &s->conns;
    s->conns = c;
    s->conn_count++;
    s->handshake_count++;
    loop_timer_start(s->loop, &c->timer, HANDSHAKE_MS, timer_fired);
}

/* ------------------------------------------------------------------ listening */

static void poll_listeners(struct tls_server *s, uint32_t events)
{
    for (struct tls_listener *l = s->listeners; l; l = l->next)
        loop_mod(s->loop, &l->source, events);
}

static void accept_again(struct timer *t)
{
    poll_listeners(container_of(t, struct tls_server, accept_pause), EPOLLIN);
}

static void listener_ready(struct source *source, uint32_t events)
{
    struct tls_server *s = container_of(source, struct tls_listener, source)->server;
    (void)events;
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        struct sockaddr_storage peer = {.ss_family = AF_UNSPEC};
        socklen_t len = sizeof peer;
        int fd = accept4(source->fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
            (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
            admit(s, fd, &peer);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            poll_listeners(s, 0);
            loop_timer_start(s->loop, &s->accept_pause, ACCEPT_PAUSE_MS, accept_again);
            return;
        }
    }
}

int tls_server_listen(struct tls_server *s, int listen_fd, struct error *reterr)
{
    struct tls_listener *l = calloc(1, sizeof *l);
    if (!l)
        return error_sys(reterr, ENOMEM, "listen");
    l->server = s;
    int r = loop_add(s->loop, &l->source, listen_fd, EPOLLIN, listener_ready);
    if (r < 0) {
        free(l);
        return error_sys(reterr, -r, "listen");
    }
    l->next = s->listeners;
    s->listeners = l;
    return 0;
}

/* ------------------------------------------------------------------ life */

int tls_server_new(struct loop *loop, struct http_server *http, struct tls_contexts *contexts,
                   struct tls_server **ret, struct error *reterr)
{
    struct tls_server *s = calloc(1, sizeof *s);
    if (!s)
        return error_sys(reterr, ENOMEM, "set up TLS");
    s->loop = loop;
    s->http = http;
    s->contexts = contexts;
    *ret = s;
    return 0;
}

void tls_server_use(struct tls_server *s, struct tls_contexts *contexts)
{
    tls_contexts_free(s->contexts);
    s->contexts = contexts;
}

void tls_server_stop_listening(struct tls_server *s)
{
    if (!s)
        return;
    loop_timer_stop(s->loop, &s->accept_pause);
    while (s->listeners) {
        struct tls_listener *l = s->listeners;
        int fd = l->source.fd;
        s->listeners = l->next;
        loop_del(s->loop, &l->source);
        (void)close(fd);
        free(l);
    }
}

void tls_server_free(struct tls_server *s)
{
    if (!s)
        return;
    tls_server_stop_listening(s);
    while (s->conns)
        conn_free(s->conns);
    tls_contexts_free(s->contexts);
    free(s);
}
