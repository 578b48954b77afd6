/* SPDX-License-Identifier: Apache-2.0 */
/* dns_lookup.c: see dns_lookup.h. The resolvers are asked one after the other, every question from a port and
 * with an id of its own: who cannot see it cannot answer it. */
#include "gateway/dns_lookup.h"
#include "base/id.h"
#include "gateway/keeper_socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { RESOLVER_MS = 2000, QUESTION_MAX = DNS_HEADER_BYTES + DNS_NAME_MAX + 2 + 4 + 16 };

struct dns_lookup {
    struct loop *loop;
    struct keeper_link *link;
    char id[SANDBOX_ID_MAX + 1];
    char name[DNS_NAME_MAX + 1]; /* "": the question below is passed on */
    uint16_t type;
    struct dns_query query;
    unsigned char packet[QUESTION_MAX];
    void (*done)(void *arg, struct dns_reply *reply);
    void *arg;
    unsigned resolver;
    struct keeper_ask *ask;
    int fd;
    struct source source;
    struct timer timer;
    unsigned char sent[QUESTION_MAX];
    size_t sent_len;
};

static void try_next(struct dns_lookup *l);

static void let_go(struct dns_lookup *l)
{
    loop_timer_stop(l->loop, &l->timer);
    loop_del(l->loop, &l->source);
    close_fd(&l->fd);
    keeper_ask_cancel(l->ask);
    l->ask = NULL;
}

void dns_lookup_cancel(struct dns_lookup *l)
{
    if (!l)
        return;
    let_go(l);
    free(l);
}

static void finish(struct dns_lookup *l, struct dns_reply *reply)
{
    void (*done)(void *arg, struct dns_reply *reply) = l->done;
    void *arg = l->arg;
    let_go(l);
    free(l);
    done(arg, reply);
}

static void failed(struct dns_lookup *l)
{
    let_go(l);
    l->resolver++;
    try_next(l);
}

static void expired(struct timer *t)
{
    failed(container_of(t, struct dns_lookup, timer));
}

static void answer_ready(struct source *s, uint32_t events)
{
    struct dns_lookup *l = container_of(s, struct dns_lookup, source);
    unsigned char data[DNS_PACKET_MAX];
    struct dns_reply reply;
    (void)events;
    ssize_t n = recv(l->fd, data, sizeof data, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) { /* nobody is there */
        failed(l);
        return;
    }
    if (dns_reply_open(data, (size_t)n, l->sent, l->sent_len, &reply) < 0)
        return; /* not the answer; that may still come */
    if (reply.rcode != DNS_OK && reply.rcode != DNS_NO_NAME)
        failed(l); /* another one may know */
    else
        finish(l, &reply);
}

static void socket_got(void *arg, int fd)
{
    struct dns_lookup *l = arg;
    uint16_t id;
    l->ask = NULL;
    if (fd == -ENOENT) { /* there are no more */
        finish(l, NULL);
        return;
    }
    l->fd = fd < 0 ? -1 : fd;
    random_bytes(&id, sizeof id);
    l->sent_len = l->name[0] ? dns_query_write(id, l->name, l->type, l->sent, sizeof l->sent)
                             : dns_query_forward(l->packet, &l->query, id, l->sent, sizeof l->sent);
    if (fd < 0 || !l->sent_len ||
        send(fd, l->sent, l->sent_len, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)l->sent_len ||
        loop_add(l->loop, &l->source, fd, EPOLLIN, answer_ready) < 0) {
        failed(l);
        return;
    }
    loop_timer_start(l->loop, &l->timer, RESOLVER_MS, expired);
}

static void try_next(struct dns_lookup *l)
{
    if (l->resolver < KEEPER_RESOLVERS_MAX)
        l->ask = keeper_socket_ask(&(struct keeper_ask_config){.link = l->link,
                                                               .id = l->id,
                                                               .kind = KEEPER_SOCKET_RESOLVE_UDP,
                                                               .port = l->resolver,
                                                               .got = socket_got,
                                                               .arg = l});
    if (!l->ask)
        finish(l, NULL);
}

static void begin(struct timer *t)
{
    try_next(container_of(t, struct dns_lookup, timer));
}

struct dns_lookup *dns_lookup_new(const struct dns_lookup_config *config)
{
    struct dns_lookup *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    *l = (struct dns_lookup){.loop = config->loop,
                             .link = config->link,
                             .done = config->done,
                             .arg = config->arg,
                             .fd = -1,
                             .source.fd = -1};
    (void)snprintf(l->id, sizeof l->id, "%s", config->id);
    if (config->name) {
        (void)snprintf(l->name, sizeof l->name, "%s", config->name);
        l->type = config->type;
    } else {
        l->query = *config->query;
        memcpy(l->packet, config->packet, DNS_HEADER_BYTES + config->query->question_len);
    }
    loop_timer_start(l->loop, &l->timer, 0, begin); /* done never comes from inside this call */
    return l;
}
