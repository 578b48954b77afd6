/* SPDX-License-Identifier: Apache-2.0 */
/* upstream.c: see upstream.h. */
#include "gateway/upstream.h"
#include "base/log.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* KEEPER  a connection to the agent is asked for; want may be NULL: nobody waits any more
 * AGENT   the agent is asked for a connection to the port */
struct upstream_dial {
    struct upstream_pool *pool; /* NULL: it is gone */
    struct upstream_want *want;
    struct loop *loop;
    uint64_t epoch; /* of the pool */
    struct source source;
    struct timer deadline;
    int fd; /* to the agent; -1: KEEPER */
    struct upstream_dial *next, **prev;
};

/* ------------------------------------------------------------------ idle connections */

void upstream_pool_init(struct upstream_pool *p, struct loop *loop, struct keeper_link *link, const char *id,
                        int port)
{
    *p = (struct upstream_pool){.loop = loop, .link = link, .id = id, .port = port};
}

static void idle_drop(struct upstream_pool *p, size_t i)
{
    http_client_free(p->idle[i]);
    p->idle_count--;
    memmove(&p->idle[i], &p->idle[i + 1], (p->idle_count - i) * sizeof p->idle[0]);
    memmove(&p->idle_since_us[i], &p->idle_since_us[i + 1], (p->idle_count - i) * sizeof p->idle_since_us[0]);
}

static void idle_drop_all(struct upstream_pool *p)
{
    while (p->idle_count)
        idle_drop(p, p->idle_count - 1);
    loop_timer_stop(p->loop, &p->reap);
}

/* The oldest come first in the array. */
static void reap_fired(struct timer *t)
{
    struct upstream_pool *p = container_of(t, struct upstream_pool, reap);
    int64_t limit_us = loop_now_us(p->loop) - (int64_t)UPSTREAM_IDLE_MS * 1000;
    while (p->idle_count && p->idle_since_us[0] <= limit_us)
        idle_drop(p, 0);
    if (p->idle_count)
        loop_timer_start(p->loop, &p->reap, 1 + (p->idle_since_us[0] - limit_us) / 1000, reap_fired);
}

void upstream_idle_closed(struct http_client *client)
{
    struct upstream_pool *p = http_client_user(client);
    for (size_t i = 0; i < p->idle_count; i++)
        if (p->idle[i] == client) {
            idle_drop(p, i);
            return;
        }
}

void upstream_put(struct upstream_pool *p, struct http_client *client, uint64_t epoch)
{
    if (epoch != p->epoch || !http_client_reusable(client)) {
        http_client_free(client);
        return;
    }
    if (p->idle_count == UPSTREAM_IDLE_MAX)
        idle_drop(p, 0);
    http_client_set_user(client, p);
    p->idle[p->idle_count] = client;
    p->idle_since_us[p->idle_count++] = loop_now_us(p->loop);
    if (!loop_timer_running(&p->reap))
        loop_timer_start(p->loop, &p->reap, UPSTREAM_IDLE_MS, reap_fired);
}

void upstream_pool_ended(struct upstream_pool *p)
{
    p->epoch++;
    idle_drop_all(p);
}

/* ------------------------------------------------------------------ asking the agent */

static void dial_free(struct upstream_dial *d)
{
    loop_timer_stop(d->loop, &d->deadline);
    loop_del(d->loop, &d->source);
    close_fd(&d->fd);
    if (d->prev) {
        *d->prev = d->next;
        if (d->next)
            d->next->prev = d->prev;
    }
    free(d);
}

static void want_fail(struct upstream_want *w, int err)
{
    if (w->got_fd)
        w->got_fd(w, err);
    else
        w->got(w, NULL, false, err);
}

static void dial_fail(struct upstream_dial *d, int err)
{
    struct upstream_want *w = d->want;
    dial_free(d);
    if (w) {
        w->dial = NULL;
        want_fail(w, err);
    }
}

int upstream_check_fd(int fd)
{
    int domain = 0, type = 0, protocol = 0, listening = 1;
    socklen_t n = sizeof(int);
    struct sockaddr_storage peer;
    socklen_t peer_len = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) < 0 || (domain != AF_INET && domain != AF_INET6) ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) < 0 || type != SOCK_STREAM ||
        getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &n) < 0 || protocol != IPPROTO_TCP ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) < 0 || listening ||
        getpeername(fd, (struct sockaddr *)&peer, &peer_len) < 0)
        return -EBADMSG;
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0
               ? -EBADMSG
               : 0;
}

/* The agent's answer: 'k' with a descriptor, or a status line. */
static int dial_answer(const char *text, size_t n, int fd)
{
    if (n == 1 && text[0] == 'k')
        return fd >= 0 ? upstream_check_fd(fd) : -EBADMSG;
    if (n < 12 || memcmp(text, "HTTP/1.1 ", 9) != 0)
        return -EBADMSG;
    if (memcmp(text + 9, "502", 3) == 0)
        return -ECONNREFUSED;
    return memcmp(text + 9, "504", 3) == 0 ? -ETIMEDOUT : -EBADMSG;
}

static void dial_ready(struct source *s, uint32_t events)
{
    struct upstream_dial *d = container_of(s, struct upstream_dial, source);
    struct upstream_want *w = d->want;
    char text[4096];
    struct http_client *client;
    struct error e;
    auto_close int fd = -1;
    (void)events;
    ssize_t n = socket_recv_fd(d->fd, text, sizeof text, &fd);
    if (n == -EAGAIN)
        return;
    int r = n > 0 ? dial_answer(text, (size_t)n, fd) : n == -EBADMSG ? -EBADMSG : -ECONNRESET;
    if (r == -EBADMSG)
        log_warn("sandbox %s: the agent answered strangely to a connect", d->pool->id);
    if (r == 0 && w->got_fd) {
        dial_free(d);
        w->dial = NULL;
        w->got_fd(w, take_fd(fd));
        return;
    }
    if (r == 0) {
        r = http_client_new(d->loop, fd, &client, &e);
        if (r == 0)
            fd = -1; /* the client's now */
    }
    if (r < 0) {
        dial_fail(d, r);
        return;
    }
    dial_free(d);
    w->dial = NULL;
    w->got(w, client, true, 0);
}

static void dial_expired(struct timer *t)
{
    dial_fail(container_of(t, struct upstream_dial, deadline), -ETIMEDOUT);
}

static void dial_connected(void *arg, const struct keeper_reply *reply, int fd)
{
    struct upstream_dial *d = arg;
    auto_close int owned = fd;
    char head[128];
    if (!d->want) {
        dial_free(d);
        return;
    }
    if (reply->error || fd < 0 || d->epoch != d->pool->epoch) {
        dial_fail(d, reply->error ? -reply->error : -ECONNRESET);
        return;
    }
    int flags = fcntl(fd, F_GETFL);
    int n = snprintf(head, sizeof head, "CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n", d->pool->port);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
        send(fd, head, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) != n) { /* an empty socket takes it whole */
        dial_fail(d, -ECONNRESET);
        return;
    }
    int r = loop_add(d->loop, &d->source, fd, EPOLLIN, dial_ready);
    if (r < 0) {
        dial_fail(d, r);
        return;
    }
    d->fd = take_fd(owned);
    loop_timer_start(d->loop, &d->deadline, UPSTREAM_DIAL_MS, dial_expired);
}

/* ------------------------------------------------------------------ the caller's side */

void upstream_get(struct upstream_pool *p, struct upstream_want *w)
{
    w->dial = NULL;
    if (p->idle_count)
        w->got(w, p->idle[--p->idle_count], false, 0); /* the warmest */
    else
        upstream_get_fresh(p, w);
}

void upstream_get_fresh(struct upstream_pool *p, struct upstream_want *w)
{
    struct upstream_dial *d = calloc(1, sizeof *d);
    if (!d) {
        want_fail(w, -ENOMEM);
        return;
    }
    *d = (struct upstream_dial){.pool = p,
                                .want = w,
                                .loop = p->loop,
                                .epoch = p->epoch,
                                .source.fd = -1,
                                .fd = -1,
                                .next = p->dials};
    if (d->next)
        d->next->prev = &d->next;
    d->prev = &p->dials;
    p->dials = d;
    w->dial = d;
    struct keeper_request request = {.type = KEEPER_CONNECT};
    (void)snprintf(request.id, sizeof request.id, "%s", p->id);
    keeper_link_send(p->link, &request, -1, dial_connected, d);
}

static void dial_abandon(struct upstream_dial *d)
{
    if (d->fd >= 0) {
        dial_free(d);
        return;
    }
    d->want = NULL; /* the keeper's reply will come, and frees it */
    if (d->next)
        d->next->prev = d->prev;
    *d->prev = d->next;
    d->prev = NULL;
    d->pool = NULL;
}

void upstream_cancel(struct upstream_want *w)
{
    struct upstream_dial *d = take_ptr(w->dial);
    if (d)
        dial_abandon(d);
}

void upstream_pool_done(struct upstream_pool *p)
{
    idle_drop_all(p);
    while (p->dials)
        dial_abandon(p->dials);
}
