/* SPDX-License-Identifier: Apache-2.0 */
/* egress_conn.c: one TCP connection out of a sandbox, and how it reaches the owner.
 *
 * Theory of operation
 *   PEEK    the first bytes are looked at and stay in the socket: what becomes of them is decided later. A
 *           server may be the one to speak first, so the wait is short where nothing tells that the client
 * does ASK     the keeper is asked for a connection to the owner's port DIAL    it is being connected ANSWER
 * CONNECT was sent; the owner's head is read, and not a byte more than it JOINED  a byte tunnel, or a TLS
 * pipe in which we are the server the client asked for In both sockets bytes are peeked at with
 * edge-triggered events: each new byte tells once, none is consumed. Whatever fails resets the client, as a
 * refused connection does. */
#include "base/log.h"
#include "gateway/byte_tunnel.h"
#include "gateway/egress_internal.h"
#include "gateway/egress_peek.h"
#include "gateway/tls_pipe.h"
#include "net/http_parse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter_ipv4.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <sys/socket.h>

enum {
    PEEK_SHORT_MS = 300,     /* for the first byte: perhaps the server speaks first */
    PEEK_LONG_MS = 5 * 1000, /* ... not on these ports, and not when a hello has begun */
    OWNER_MS = 60 * 1000,    /* the owner may have to connect itself */
    ANSWER_MAX = 8 * 1024,
    PORT_HTTP = 80,
    PORT_HTTPS = 443,
};

struct egress_conn {
    struct egress *egress;
    struct egress_conn *next, **prev;
    struct sockaddr_in to; /* what the sandbox meant */
    int client_fd, owner_fd;
    struct source client, owner;
    struct timer timer;
    enum peek kind;
    char name[DNS_NAME_MAX + 1];
    struct keeper_ask *ask;
    struct byte_tunnel *tunnel;
    struct tls_pipe *pipe;
};

static void peek_ready(struct source *s, uint32_t events);

void egress_conn_free(struct egress_conn *c)
{
    struct egress *e = c->egress;
    loop_timer_stop(e->loop, &c->timer);
    loop_del(e->loop, &c->client);
    loop_del(e->loop, &c->owner);
    keeper_ask_cancel(c->ask);
    byte_tunnel_free(c->tunnel);
    tls_pipe_free(c->pipe);
    if (c->client_fd >= 0) /* a reset, not an end: nothing was said */
        (void)setsockopt(c->client_fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    close_fd(&c->client_fd);
    close_fd(&c->owner_fd);
    *c->prev = c->next;
    if (c->next)
        c->next->prev = c->prev;
    e->conn_count--;
    free(c);
}

static void conn_expired(struct timer *t)
{
    egress_conn_free(container_of(t, struct egress_conn, timer));
}

/* ------------------------------------------------------------------ joined */

static void tunnel_done(void *arg)
{
    struct egress_conn *c = arg;
    c->tunnel = NULL;
    egress_conn_free(c);
}

static void pipe_done(void *arg)
{
    struct egress_conn *c = arg;
    c->pipe = NULL;
    egress_conn_free(c);
}

static int pipe_shaken(void *arg)
{
    struct egress_conn *c = arg;
    return take_fd(c->owner_fd);
}

static int join_tls(struct egress_conn *c)
{
    struct egress *e = c->egress;
    SSL *ssl = authority_session(e->authority, c->name, c->client_fd);
    if (!ssl)
        return -ENOMEM;
    c->pipe = tls_pipe_new(&(struct tls_pipe_config){.loop = e->loop,
                                                     .ssl = ssl,
                                                     .outer_fd = c->client_fd,
                                                     .shaken = pipe_shaken,
                                                     .done = pipe_done,
                                                     .arg = c});
    if (!c->pipe) {
        SSL_free(ssl);
        return -ENOMEM;
    }
    (void)take_fd(c->client_fd);
    return 0;
}

static int join_plain(struct egress_conn *c)
{
    struct buf none[2] = {BUF_INIT(0), BUF_INIT(0)};
    c->tunnel = byte_tunnel_new(&(struct byte_tunnel_config){.loop = c->egress->loop,
                                                             .fds = {c->client_fd, c->owner_fd},
                                                             .patient = true,
                                                             .firsts = none,
                                                             .done = tunnel_done,
                                                             .arg = c});
    if (!c->tunnel)
        return -ENOMEM;
    (void)take_fd(c->client_fd);
    (void)take_fd(c->owner_fd);
    return 0;
}

/* What the owner decided: 200 it speaks for the name itself, 202 the bytes are to reach the real one. */
static void conn_join(struct egress_conn *c, int status)
{
    struct loop *loop = c->egress->loop;
    loop_timer_stop(loop, &c->timer);
    loop_del(loop, &c->client);
    loop_del(loop, &c->owner);
    bool intercept = status == 200 && c->kind == PEEK_TLS && c->name[0];
    if ((status != 200 && status != 202) || (intercept ? join_tls(c) : join_plain(c)) < 0)
        egress_conn_free(c);
}

/* ------------------------------------------------------------------ the owner's answer */

/* The status of the head that is there whole, which is consumed; 0: more must come; -errno. */
static int answer_read(int fd)
{
    char data[ANSWER_MAX];
    struct http_parser p;
    size_t used = 0;
    ssize_t n = recv(fd, data, sizeof data, MSG_PEEK | MSG_DONTWAIT);
    if (n <= 0)
        return n == 0 ? -ECONNRESET : errno == EAGAIN ? 0 : -errno;
    http_parser_init(&p, HTTP_KIND_RESPONSE, &http_limits_default);
    http_parser_expect(&p, "CONNECT");
    enum http_event event = http_parser_next(&p, data, (size_t)n, &used);
    int status = event == HTTP_EVENT_HEAD ? p.head->status : 0;
    http_parser_reset(&p);
    if (event == HTTP_EVENT_MORE)
        return n < (ssize_t)sizeof data ? 0 : -EMSGSIZE;
    if (event != HTTP_EVENT_HEAD)
        return -EBADMSG;
    return recv(fd, data, used, MSG_DONTWAIT) == (ssize_t)used ? status : -EBADMSG;
}

static void answer_ready(struct source *s, uint32_t events)
{
    struct egress_conn *c = container_of(s, struct egress_conn, owner);
    (void)events;
    int status = answer_read(c->owner_fd);
    if (status < 0)
        egress_conn_free(c);
    else if (status > 0)
        conn_join(c, status);
}

static int answer_wait(struct egress_conn *c)
{
    char address[INET_ADDRSTRLEN], head[1024];
    unsigned port = ntohs(c->to.sin_port);
    const char *header = c->kind == PEEK_TLS ? "X-Tls-Sni: " : "X-Hostname: ";
    int err = 0;
    socklen_t len = sizeof err;
    if (getsockopt(c->owner_fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0 || err)
        return -ECONNREFUSED;
    (void)inet_ntop(AF_INET, &c->to.sin_addr, address, sizeof address);
    int n = snprintf(head, sizeof head, "CONNECT %s:%u HTTP/1.1\r\nHost: %s:%u\r\n%s%s%s\r\n", address, port,
                     address, port, c->name[0] ? header : "", c->name, c->name[0] ? "\r\n" : "");
    /* an empty socket takes it whole */
    if (n < 0 || (size_t)n >= sizeof head ||
        send(c->owner_fd, head, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) != n)
        return -ECONNRESET;
    loop_del(c->egress->loop, &c->owner);
    return loop_add(c->egress->loop, &c->owner, c->owner_fd, EPOLLIN | EPOLLET, answer_ready);
}

static void dial_ready(struct source *s, uint32_t events)
{
    struct egress_conn *c = container_of(s, struct egress_conn, owner);
    (void)events;
    if (answer_wait(c) < 0)
        egress_conn_free(c);
}

static void dialed(void *arg, int fd)
{
    struct egress_conn *c = arg;
    c->ask = NULL;
    c->owner_fd = fd < 0 ? -1 : fd;
    if (fd < 0 || loop_add(c->egress->loop, &c->owner, fd, EPOLLOUT, dial_ready) < 0)
        egress_conn_free(c);
}

/* ------------------------------------------------------------------ the client's first bytes */

static void client_gone(struct source *s, uint32_t events)
{
    (void)events;
    egress_conn_free(container_of(s, struct egress_conn, client));
}

static void conn_dial(struct egress_conn *c, enum peek kind)
{
    struct egress *e = c->egress;
    c->kind = kind;
    loop_timer_start(e->loop, &c->timer, OWNER_MS, conn_expired);
    loop_del(e->loop, &c->client);
    if (e->port && loop_add(e->loop, &c->client, c->client_fd, 0, client_gone) == 0)
        c->ask = keeper_socket_ask(&(struct keeper_ask_config){.link = e->link,
                                                               .id = e->id,
                                                               .kind = KEEPER_SOCKET_DIAL,
                                                               .port = e->port,
                                                               .got = dialed,
                                                               .arg = c});
    if (!c->ask)
        egress_conn_free(c);
}

static void peek_expired(struct timer *t)
{
    conn_dial(container_of(t, struct egress_conn, timer), PEEK_OTHER);
}

static void peek_ready(struct source *s, uint32_t events)
{
    struct egress_conn *c = container_of(s, struct egress_conn, client);
    char data[PEEK_MAX];
    ssize_t n = recv(c->client_fd, data, sizeof data, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) {
        egress_conn_free(c);
        return;
    }
    enum peek kind = n < 0    ? PEEK_MORE
                     : n == 0 ? PEEK_OTHER
                              : egress_peek(data, (size_t)n, ntohs(c->to.sin_port) == PORT_HTTP, c->name);
    if (kind == PEEK_MORE && events & EPOLLRDHUP)
        kind = PEEK_OTHER; /* that was all */
    if (kind != PEEK_MORE)
        conn_dial(c, kind);
    else if (n > 0 && c->kind == PEEK_MORE) {
        c->kind = PEEK_OTHER; /* it has begun: the rest of it may take longer, once */
        loop_timer_start(c->egress->loop, &c->timer, PEEK_LONG_MS, peek_expired);
    }
}

/* ------------------------------------------------------------------ birth */

/* What the sandbox connected to before the rule in its namespace changed it. Whoever connects to the catcher
 * itself meant nothing. */
static int original(int fd, struct sockaddr_in *ret)
{
    socklen_t len = sizeof *ret;
    if (getsockopt(fd, IPPROTO_IP, SO_ORIGINAL_DST, ret, &len) < 0)
        return -errno;
    return len != sizeof *ret || ret->sin_family != AF_INET || ntohl(ret->sin_addr.s_addr) >> 24 == 127
               ? -EINVAL
               : 0;
}

void egress_conn_new(struct egress *e, int fd)
{
    auto_close int owned = fd;
    struct sockaddr_in to;
    struct egress_conn *c = NULL;
    if (e->conn_count < EGRESS_CONNECTIONS_MAX && original(fd, &to) == 0)
        c = calloc(1, sizeof *c);
    if (!c) {
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        return;
    }
    *c = (struct egress_conn){
        .egress = e, .to = to, .client_fd = take_fd(owned), .owner_fd = -1, .client.fd = -1, .owner.fd = -1};
    c->next = e->conns;
    if (c->next)
        c->next->prev = &c->next;
    c->prev = &e->conns;
    e->conns = c;
    e->conn_count++;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* only slower without */
    unsigned port = ntohs(to.sin_port);
    loop_timer_start(e->loop, &c->timer,
                     port == PORT_HTTP || port == PORT_HTTPS ? PEEK_LONG_MS : PEEK_SHORT_MS, peek_expired);
    if (loop_add(e->loop, &c->client, fd, EPOLLIN | EPOLLRDHUP | EPOLLET, peek_ready) < 0)
        egress_conn_free(c);
}
