/* SPDX-License-Identifier: Apache-2.0 */
/* http_server.c: the server: listening, admitting, counting. */
#include "net/http_internal.h"
#include "base/id.h"
#include "base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

enum {
    ACCEPT_BATCH =
        32, /* per event, so that a flood of connections does not keep the loop from serving them */
    ACCEPT_PAUSE_MS = 100, /* without descriptors: asking again at once would only burn time */
    KEEPALIVE_IDLE_S = 60, /* a peer that vanished without a word is noticed after 2 minutes */
    KEEPALIVE_STEP_S = 15,
    KEEPALIVE_COUNT = 4,
    ROOM_LOOKS = 64, /* at connections that may make room for another one */
};

struct listener {
    struct source source;
    struct http_server *server;
    struct listener *next;
};

const struct http_limits http_limits_default = {
    .line_bytes = 8 * 1024,
    .head_bytes = 64 * 1024,
    .header_count = 100,
    .head_timeout_ms = 10 * 1000,
    .idle_timeout_ms = 60 * 1000,
    .body_grace_ms = 10 * 1000,
    .body_min_bps = 1024,
    .connections_max = 4096,
    .per_peer_max = 0,
    .send_high = 256 * 1024,
    .send_low = 64 * 1024,
};

/* ------------------------------------------------------------------ peers */

static struct peer **peer_slot(struct http_server *s, const unsigned char address[16])
{
    uint64_t h = s->peer_seed[0], part[2];
    memcpy(part, address, sizeof part);
    for (size_t i = 0; i < 2; i++) { /* seeded: nobody can aim at one bucket */
        h = (h ^ part[i]) * (s->peer_seed[1] | 1);
        h ^= h >> 32;
    }
    struct peer **p = &s->peers[h % HTTP_PEER_BUCKETS];
    while (*p && memcmp((*p)->address, address, sizeof(*p)->address) != 0)
        p = &(*p)->next;
    return p;
}

/* Counts one more connection; NULL when the address has its share already (or memory is short). */
static struct peer *peer_enter(struct http_server *s, const unsigned char address[16])
{
    struct peer **slot = peer_slot(s, address), *p = *slot;
    if (p) {
        if (p->count >= s->config.limits.per_peer_max)
            return NULL;
        p->count++;
        return p;
    }
    p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    memcpy(p->address, address, sizeof p->address);
    p->count = 1;
    *slot = p;
    return p;
}

static void peer_leave(struct http_server *s, struct peer *p)
{
    if (!p || --p->count)
        return;
    *peer_slot(s, p->address) = p->next;
    free(p);
}

/* Writes the name; true with the address in IPv6 form when it is one that counts. */
static bool peer_name(const struct sockaddr_storage *ss, char *name, size_t cap, unsigned char address[16])
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    char text[INET6_ADDRSTRLEN];

    if (ss->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)ss;
        memcpy(address, mapped, 12);
        memcpy(address + 12, &in->sin_addr, 4);
        if (!inet_ntop(AF_INET, &in->sin_addr, text, sizeof text))
            return false;
        (void)snprintf(name, cap, "%s:%u", text, ntohs(in->sin_port));
        return true;
    }
    if (ss->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)ss;
        bool v4 = IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr);
        memcpy(address, &in6->sin6_addr, 16);
        if (!inet_ntop(v4 ? AF_INET : AF_INET6, address + (v4 ? 12 : 0), text, sizeof text))
            return false;
        (void)snprintf(name, cap, v4 ? "%s:%u" : "[%s]:%u", text, ntohs(in6->sin6_port));
        return true;
    }
    (void)snprintf(name, cap, "unix");
    return false;
}

/* ------------------------------------------------------------------ admitting */

/* Answers 503 without making a connection of it: best effort, it must not cost memory. */
static void turn_away(struct http_server *s, int fd)
{
    const struct buf *b = http_refusal(s, 503, "the server has no room for another connection", true);
    if (b)
        (void)send(fd, buf_data(b), buf_len(b), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(fd, SHUT_WR);
    (void)recv(fd, loop_scratch(s->loop), LOOP_SCRATCH,
               MSG_DONTWAIT); /* unread bytes would turn the close into a reset */
    (void)close(fd);
}

void http_server_remember(struct http_server *s, struct conn *c)
{
    c->next = s->conns;
    c->prev = &s->conns;
    if (c->next)
        c->next->prev = &c->next;
    else
        s->oldest = c;
    s->conns = c;
}

static void list_remove(struct http_server *s, struct conn *c)
{
    *c->prev = c->next;
    if (c->next)
        c->next->prev = c->prev;
    else
        s->oldest = c->prev == &s->conns ? NULL : container_of(c->prev, struct conn, next);
}

void http_server_renew(struct http_server *s, struct conn *c)
{
    if (s->conns == c)
        return;
    list_remove(s, c);
    http_server_remember(s, c);
}

/* A full house: who has been here longest without asking for anything makes room for the newcomer, so that
 * nobody can keep the others out with connections alone. Those found busy go to the other end, where the next
 * look does not meet them. */
static bool make_room(struct http_server *s)
{
    for (int i = 0; i < ROOM_LOOKS && s->oldest; i++) {
        struct conn *c = s->oldest;
        if (!c->busy && (c->timing == TIMING_IDLE || c->timing == TIMING_HEAD)) {
            conn_close(c);
            return true;
        }
        http_server_renew(s, c);
    }
    return false;
}

/* Takes fd. */
static bool admit(struct http_server *s, int fd, const struct sockaddr_storage *ss, bool secure)
{
    char name[64];
    unsigned char address[16];
    struct peer *peer = NULL;
    bool counts = peer_name(ss, name, sizeof name, address) && s->config.limits.per_peer_max > 0;

    if ((s->conn_count >= s->config.limits.connections_max && !make_room(s)) ||
        (counts && !(peer = peer_enter(s, address)))) {
        turn_away(s, fd);
        return false;
    }
    if (conn_new(s, fd, peer, name) < 0) {
        peer_leave(s, peer);
        turn_away(s, fd);
        return false;
    }
    s->conns->req.secure = secure; /* the newest comes first */
    return true;
}

void http_server_forget(struct http_server *s, struct conn *c)
{
    list_remove(s, c);
    s->conn_count--;
    peer_leave(s, take_ptr(c->peer));
}

/* ------------------------------------------------------------------ listening */

static void poll_listeners(struct http_server *s, uint32_t events)
{
    for (struct listener *l = s->listeners; l; l = l->next)
        loop_mod(s->loop, &l->source, events);
}

static void accept_again(struct timer *t)
{
    poll_listeners(container_of(t, struct http_server, accept_pause), EPOLLIN);
}

static int spare_open(void)
{
    return eventfd(0, EFD_CLOEXEC); /* anything that is nobody's way into a file system */
}

/* Out of descriptors: the spare one serves to tell one client so, then everybody waits. */
static void no_descriptors(struct http_server *s, int listen_fd)
{
    log_warn("out of descriptors or memory: accepting pauses for %d ms", ACCEPT_PAUSE_MS);
    if (s->spare_fd >= 0) {
        close_fd(&s->spare_fd);
        int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            turn_away(s, fd);
    }
    s->spare_fd = spare_open();
    poll_listeners(s, 0);
    loop_timer_start(s->loop, &s->accept_pause, ACCEPT_PAUSE_MS, accept_again);
}

static void listener_ready(struct source *source, uint32_t events)
{
    struct listener *l = container_of(source, struct listener, source);
    struct http_server *s = l->server;
    (void)events;
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        struct sockaddr_storage ss = {.ss_family = AF_UNSPEC};
        socklen_t len = sizeof ss;
        int fd = accept4(source->fd, (struct sockaddr *)&ss, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            (void)admit(s, fd, &ss, false);
            continue;
        }
        if (errno == EAGAIN)
            return;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            no_descriptors(s, source->fd);
            return;
        }
        /* the rest (ECONNABORTED, EPROTO, network errors) belongs to one connection that is gone */
    }
}

/* Accepted sockets inherit these from their listener. Not being TCP is fine. */
static void tcp_options(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_STEP_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT},
    };
    for (size_t i = 0; i < ARRAY_SIZE(options); i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof options[i].value);
}

int http_server_listen(struct http_server *s, int listen_fd, struct error *reterr)
{
    struct listener *l = calloc(1, sizeof *l);
    if (!l)
        return error_sys(reterr, ENOMEM, "listen");
    l->server = s;
    tcp_options(listen_fd);
    int r = loop_add(s->loop, &l->source, listen_fd, EPOLLIN, listener_ready);
    if (r < 0) {
        free(l);
        return error_sys(reterr, -r, "listen");
    }
    l->next = s->listeners;
    s->listeners = l;
    return 0;
}

int http_server_adopt(struct http_server *s, int fd, struct error *reterr)
{
    struct sockaddr_storage ss = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof ss;
    if (getpeername(fd, (struct sockaddr *)&ss, &len) < 0)
        return error_sys(reterr, errno, "adopt a connection");
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return error_sys(reterr, errno, "adopt a connection");
    tcp_options(fd);
    (void)admit(s, fd, &ss, false);
    return 0;
}

bool http_server_adopt_secure(struct http_server *s, int fd, const struct sockaddr_storage *peer)
{
    return admit(s, fd, peer, true);
}

/* ------------------------------------------------------------------ life */

int http_server_new(const struct http_server_config *config, struct http_server **ret, struct error *reterr)
{
    for (size_t i = 0; i < config->common_count; i++)
        if (!http_token_valid(config->common_headers[i].name) ||
            !http_text_valid(config->common_headers[i].value))
            return error_set(reterr, EINVAL, "a common header of the HTTP server is malformed");

    struct http_server *s = calloc(1, sizeof *s);
    if (!s)
        return error_sys(reterr, ENOMEM, "make the HTTP server");
    s->config = *config;
    s->loop = config->loop;
    s->refs = 1;
    s->head = BUF_INIT(HTTP_HEAD_OUT_MAX);
    s->date_second = -1;
    s->spare_fd = spare_open();
    random_bytes(s->peer_seed, sizeof s->peer_seed);
    *ret = s;
    return 0;
}

size_t http_server_connections(const struct http_server *s)
{
    return s->conn_count;
}

void http_server_unref(struct http_server *s)
{
    if (--s->refs)
        return;
    buf_done(&s->head);
    free(s);
}

void http_server_stop_listening(struct http_server *s)
{
    s->stopping = true;
    loop_timer_stop(s->loop, &s->accept_pause);
    while (s->listeners) {
        struct listener *l = s->listeners;
        int fd = l->source.fd;
        s->listeners = l->next;
        loop_del(s->loop, &l->source);
        (void)close(fd);
        free(l);
    }
    for (struct conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        conn_stop(c);
    }
}

void http_server_free(struct http_server *s)
{
    if (!s)
        return;
    http_server_stop_listening(s);
    while (s->conns)
        conn_gone(s->conns);
    close_fd(&s->spare_fd);
    http_server_unref(s);
}
