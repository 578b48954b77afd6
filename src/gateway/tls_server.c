/* SPDX-License-Identifier: Apache-2.0 */
/* tls_server.c: TLS connections: accepted, shaken hands with, and joined with the HTTP server; see tls.h. How
 * bytes move in between is in tls_pipe.c. */
#include "base/log.h"
#include "gateway/tls.h"
#include "gateway/tls_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

enum {
    ACCEPT_BATCH = 16,
    ACCEPT_PAUSE_MS = 100,
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
    struct tls_pipe *pipe;
    struct sockaddr_storage peer;
    bool shaken;
};

static void conn_free(struct tls_conn *c)
{
    struct tls_server *s = c->server;
    tls_pipe_free(c->pipe);
    if (!c->shaken)
        s->handshake_count--;
    *c->prev = c->next;
    if (c->next)
        c->next->prev = c->prev;
    s->conn_count--;
    free(c);
}

static void pipe_done(void *arg)
{
    struct tls_conn *c = arg;
    c->pipe = NULL;
    conn_free(c);
}

/* Hands are shaken: the HTTP server gets its end. */
static int pipe_shaken(void *arg)
{
    struct tls_conn *c = arg;
    struct tls_server *s = c->server;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -errno;
    c->shaken = true;
    s->handshake_count--;
    (void)http_server_adopt_secure(s->http, pair[1], &c->peer); /* refused: the end comes through the pair */
    return pair[0];
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
    *c = (struct tls_conn){.server = s, .peer = *peer};
    c->pipe = tls_pipe_new(&(struct tls_pipe_config){
        .loop = s->loop, .ssl = ssl, .outer_fd = fd, .shaken = pipe_shaken, .done = pipe_done, .arg = c});
    if (!c->pipe) {
        SSL_free(ssl);
        free(c);
        return;
    }
    (void)take_fd(owned);
    c->next = s->conns;
    if (c->next)
        c->next->prev = &c->next;
    c->prev = &s->conns;
    s->conns = c;
    s->conn_count++;
    s->handshake_count++;
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
