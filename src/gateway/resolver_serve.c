/* SPDX-License-Identifier: Apache-2.0 */
/* resolver_serve.c: the sockets of a resolver, and its questions from their arrival to their answer. */
#include "gateway/resolver_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum {
    BATCH = 32, /* packets per event */
    CONN_IDLE_MS = 10000,
    FRAME_MAX = 2 + DNS_PACKET_MAX,
    QUESTION_BYTES = DNS_HEADER_BYTES + DNS_NAME_MAX + 2 + 4,
};

/* DNS over TCP: every message behind its length. One question at a time; the next is read when it is
 * answered. */
struct resolver_conn {
    struct resolver *resolver;
    struct resolver_conn *next, **prev;
    int fd;
    struct source source;
    struct timer idle;
    struct question *pending;
    bool serving; /* conn_serve is at work and looks at the next two */
    bool broken;
    size_t len;
    unsigned char data[FRAME_MAX];
};

struct question {
    struct resolver *resolver;
    struct question *next, **prev;
    struct sockaddr_in from;    /* over UDP */
    struct resolver_conn *conn; /* over TCP; NULL: UDP, or the connection is gone */
    bool gone;                  /* nobody wants the answer */
    struct dns_query query;
    unsigned char packet[QUESTION_BYTES]; /* as far as its question */
    struct dns_lookup *lookup;
    bool at_keeper; /* its reply comes in any case */
    struct resolver_answer answer;
};

static void conn_serve(struct resolver_conn *c);

static void conn_free(struct resolver_conn *c)
{
    struct resolver *r = c->resolver;
    if (c->pending) {
        c->pending->conn = NULL;
        c->pending->gone = true;
    }
    loop_timer_stop(r->config.loop, &c->idle);
    loop_del(r->config.loop, &c->source);
    close_fd(&c->fd);
    *c->prev = c->next;
    if (c->next)
        c->next->prev = c->prev;
    r->conn_count--;
    free(c);
}

static void question_free(struct question *q)
{
    struct resolver *r = q->resolver;
    dns_lookup_cancel(q->lookup);
    if (q->conn)
        q->conn->pending = NULL;
    if (r) {
        *q->prev = q->next;
        if (q->next)
            q->next->prev = q->prev;
        r->question_count--;
    }
    free(q);
}

/* ------------------------------------------------------------------ answers */

/* What the socket does not take is lost, as packets are. */
static void send_udp(struct resolver *r, const struct sockaddr_in *to, const void *data, size_t n)
{
    if (n)
        (void)sendto(r->fds[0], data, n, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)to,
                     sizeof *to);
}

/* An answer is small and the connection is ours alone: a peer that does not take it is not a resolver's
 * client. */
static bool send_tcp(struct resolver_conn *c, const void *data, size_t n)
{
    unsigned char frame[2 + DNS_PLAIN_MAX];
    if (n == 0 || n > DNS_PLAIN_MAX)
        return false;
    frame[0] = (unsigned char)(n >> 8);
    frame[1] = (unsigned char)n;
    memcpy(frame + 2, data, n);
    return send(c->fd, frame, n + 2, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)(n + 2);
}

static void question_answer(struct question *q)
{
    unsigned char out[DNS_PLAIN_MAX];
    struct resolver_conn *c = q->conn;
    if (!q->resolver || q->gone) {
        question_free(q);
        return;
    }
    size_t n = dns_answer_write(q->packet, &q->query, q->answer.rcode, q->answer.addresses, q->answer.count,
                                out, sizeof out);
    if (!c)
        send_udp(q->resolver, &q->from, out, n);
    if (c && !send_tcp(c, out, n))
        c->broken = true;
    question_free(q);
    if (c && !c->serving)
        conn_serve(c);
}

static void keeper_allowed(void *arg, const struct keeper_reply *reply, int fd)
{
    struct question *q = arg;
    close_fd(&fd);
    q->at_keeper = false;
    if (reply->error) { /* an address that cannot be reached is no answer */
        q->answer.rcode = DNS_SERVER_FAILED;
        q->answer.count = 0;
    }
    question_answer(q);
}

static void looked_up(void *arg, struct dns_reply *reply)
{
    struct question *q = arg;
    struct keeper_request request = {.type = KEEPER_ALLOW};
    struct resolver *r = q->resolver;
    q->lookup = NULL;
    resolver_digest(r, &q->query, reply, &q->answer, &request.policy);
    if (!request.policy.rule_count) {
        question_answer(q);
        return;
    }
    memcpy(request.id, r->id, sizeof request.id);
    q->at_keeper = true;
    keeper_link_send(r->config.link, &request, -1, keeper_allowed, q);
}

/* ------------------------------------------------------------------ questions */

static struct question *question_new(struct resolver *r, const unsigned char *packet,
                                     const struct dns_query *query)
{
    struct question *q = r->question_count < RESOLVER_QUESTIONS_MAX ? calloc(1, sizeof *q) : NULL;
    if (!q)
        return NULL; /* the client asks again */
    *q = (struct question){.resolver = r, .query = *query};
    memcpy(q->packet, packet, DNS_HEADER_BYTES + query->question_len);
    q->next = r->questions;
    if (q->next)
        q->next->prev = &q->next;
    q->prev = &r->questions;
    r->questions = q;
    r->question_count++;
    return q;
}

/* 0: it waits or is answered; -EBADMSG: not a question, with *ret_id as in dns_query_parse; -ENOBUFS. */
static int ask(struct resolver *r, const unsigned char *packet, size_t n, const struct sockaddr_in *from,
               struct resolver_conn *conn, int *ret_id)
{
    struct dns_query query;
    int err = dns_query_parse(packet, n, &query, ret_id);
    if (err < 0)
        return err;
    struct question *q = question_new(r, packet, &query);
    if (!q)
        return -ENOBUFS;
    if (from)
        q->from = *from;
    q->conn = conn;
    if (conn)
        conn->pending = q;
    if (resolver_judge(r, &query, &q->answer)) {
        question_answer(q);
        return 0;
    }
    q->lookup = dns_lookup_new(&(struct dns_lookup_config){.loop = r->config.loop,
                                                           .link = r->config.link,
                                                           .id = r->id,
                                                           .name = query.name,
                                                           .type = query.type,
                                                           .done = looked_up,
                                                           .arg = q});
    if (!q->lookup) {
        q->answer.rcode = DNS_SERVER_FAILED;
        question_answer(q);
    }
    return 0;
}

static void udp_ready(struct source *s, uint32_t events)
{
    struct resolver *r = container_of(s, struct resolver, udp);
    (void)events;
    for (int i = 0; i < BATCH; i++) {
        unsigned char data[DNS_PACKET_MAX], out[DNS_PLAIN_MAX];
        struct sockaddr_in from;
        socklen_t from_len = sizeof from;
        int id = -1;
        ssize_t n = recvfrom(r->fds[0], data, sizeof data, MSG_DONTWAIT | MSG_TRUNC, (struct sockaddr *)&from,
                             &from_len);
        if (n < 0)
            return; /* nothing more, or the complaint about an answer nobody waited for */
        if (n > (ssize_t)sizeof data || from_len != sizeof from || from.sin_family != AF_INET)
            continue;
        if (ask(r, data, (size_t)n, &from, NULL, &id) == -EBADMSG && id >= 0)
            send_udp(r, &from, out, dns_refusal_write((uint16_t)id, DNS_FORMAT_ERROR, out, sizeof out));
    }
}

/* ------------------------------------------------------------------ connections */

static void conn_idle(struct timer *t)
{
    conn_free(container_of(t, struct resolver_conn, idle));
}

/* Serves what has been read, up to a question that has to wait; the last call on a broken connection. */
static void conn_serve(struct resolver_conn *c)
{
    struct loop *loop = c->resolver->config.loop;
    loop_timer_start(loop, &c->idle, CONN_IDLE_MS, conn_idle);
    c->serving = true;
    while (!c->broken && !c->pending && c->len >= 2) {
        unsigned char packet[DNS_PACKET_MAX];
        size_t n = (size_t)c->data[0] << 8 | c->data[1];
        int id = -1;
        if (n > sizeof packet)
            c->broken = true;
        if (c->broken || c->len < n + 2)
            break;
        memcpy(packet, c->data + 2, n);
        c->len -= n + 2;
        memmove(c->data, c->data + n + 2, c->len);
        if (ask(c->resolver, packet, n, NULL, c, &id) < 0)
            c->broken = true;
    }
    c->serving = false;
    if (c->broken)
        conn_free(c);
    else
        loop_mod(loop, &c->source, c->pending ? 0 : EPOLLIN);
}

static void conn_ready(struct source *s, uint32_t events)
{
    struct resolver_conn *c = container_of(s, struct resolver_conn, source);
    (void)events;
    ssize_t n =
        c->len < sizeof c->data ? recv(c->fd, c->data + c->len, sizeof c->data - c->len, MSG_DONTWAIT) : 0;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || c->pending) {
        conn_free(c);
        return;
    }
    c->len += (size_t)n;
    conn_serve(c);
}

static void tcp_ready(struct source *s, uint32_t events)
{
    struct resolver *r = container_of(s, struct resolver, tcp);
    (void)events;
    for (int i = 0; i < BATCH; i++) {
        auto_close int fd = accept4(r->fds[1], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        struct resolver_conn *c = r->conn_count < RESOLVER_CONNS_MAX ? calloc(1, sizeof *c) : NULL;
        if (!c)
            continue;
        *c = (struct resolver_conn){.resolver = r, .fd = fd};
        if (loop_add(r->config.loop, &c->source, fd, EPOLLIN, conn_ready) < 0) {
            free(c);
            continue;
        }
        (void)take_fd(fd);
        c->next = r->conns;
        if (c->next)
            c->next->prev = &c->next;
        c->prev = &r->conns;
        r->conns = c;
        r->conn_count++;
        loop_timer_start(r->config.loop, &c->idle, CONN_IDLE_MS, conn_idle);
    }
}

/* ------------------------------------------------------------------ sockets */

static void opened(struct resolver *r, int err)
{
    void (*ready)(void *arg, int err) = r->ready;
    if (err < 0)
        resolver_serve_close(r);
    r->ready = NULL;
    if (ready)
        ready(r->ready_arg, err);
}

static void tcp_got(void *arg, int fd)
{
    struct resolver *r = arg;
    r->asks[1] = NULL;
    r->fds[1] = fd < 0 ? -1 : fd;
    int err = fd < 0 ? fd : loop_add(r->config.loop, &r->tcp, fd, EPOLLIN, tcp_ready);
    opened(r, err);
}

static void udp_got(void *arg, int fd)
{
    struct resolver *r = arg;
    r->asks[0] = NULL;
    r->fds[0] = fd < 0 ? -1 : fd;
    int err = fd < 0 ? fd : loop_add(r->config.loop, &r->udp, fd, EPOLLIN, udp_ready);
    if (err == 0) {
        r->asks[1] = keeper_socket_ask(&(struct keeper_ask_config){.link = r->config.link,
                                                                   .id = r->id,
                                                                   .kind = KEEPER_SOCKET_LISTEN,
                                                                   .address = KEEPER_ADDRESS_LOOPBACK,
                                                                   .port = KEEPER_PORT_RESOLVER,
                                                                   .got = tcp_got,
                                                                   .arg = r});
        err = r->asks[1] ? 0 : -ENOMEM;
    }
    if (err < 0)
        opened(r, err);
}

void resolver_open(struct resolver *r, void (*ready)(void *arg, int err), void *arg)
{
    resolver_serve_close(r);
    r->ready = ready;
    r->ready_arg = arg;
    r->asks[0] = keeper_socket_ask(&(struct keeper_ask_config){.link = r->config.link,
                                                               .id = r->id,
                                                               .kind = KEEPER_SOCKET_UDP,
                                                               .address = KEEPER_ADDRESS_LOOPBACK,
                                                               .port = KEEPER_PORT_RESOLVER,
                                                               .got = udp_got,
                                                               .arg = r});
    if (!r->asks[0])
        abort(); /* whoever waits could not be told; a restart loses nothing promised */
}

void resolver_serve_close(struct resolver *r)
{
    struct source *sources[] = {&r->udp, &r->tcp};
    for (size_t i = 0; i < 2; i++) {
        keeper_ask_cancel(r->asks[i]);
        r->asks[i] = NULL;
        loop_del(r->config.loop, sources[i]);
        close_fd(&r->fds[i]);
    }
    while (r->conns)
        conn_free(r->conns);
    while (r->questions) {
        struct question *q = r->questions;
        if (!q->at_keeper) {
            question_free(q);
            continue;
        }
        /* the reply frees it */
        r->questions = q->next;
        if (q->next)
            q->next->prev = &r->questions;
        r->question_count--;
        q->resolver = NULL;
    }
}
