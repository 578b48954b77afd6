/* SPDX-License-Identifier: Apache-2.0 */
/* agent_pool.c: see agent_pool.h. */
#include "gateway/agent_pool.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

void agent_pool_init(struct agent_pool *p, struct loop *loop, struct keeper_link *link, const char *id)
{
    *p = (struct agent_pool){.loop = loop, .link = link, .id = id, .spare_fd = -1};
    p->last = &p->first;
}

static void want_add(struct agent_pool *p, struct agent_want *w)
{
    w->next = NULL;
    w->prev = p->last;
    *p->last = w;
    p->last = &w->next;
    p->waiting++;
}

static void want_del(struct agent_pool *p, struct agent_want *w)
{
    *w->prev = w->next;
    if (w->next)
        w->next->prev = w->prev;
    else
        p->last = w->prev;
    w->prev = NULL;
    p->waiting--;
}

void agent_pool_cancel(struct agent_pool *p, struct agent_want *w)
{
    if (w->prev)
        want_del(p, w);
}

static void fail_wants(struct agent_pool *p, int err)
{
    while (p->first) {
        struct agent_want *w = p->first;
        want_del(p, w);
        w->got(w, NULL, false, err);
    }
}

static void idle_drop(struct agent_pool *p, size_t i)
{
    http_client_free(p->idle[i]);
    p->idle_count--;
    for (; i < p->idle_count; i++) {
        p->idle[i] = p->idle[i + 1];
        p->idle_since_us[i] = p->idle_since_us[i + 1];
    }
}

/* The oldest come first in the array. */
static void reap_fired(struct timer *t)
{
    struct agent_pool *p = container_of(t, struct agent_pool, reap);
    int64_t limit_us = loop_now_us(p->loop) - (int64_t)AGENT_IDLE_MS * 1000;
    while (p->idle_count && p->idle_since_us[0] <= limit_us)
        idle_drop(p, 0);
    if (p->idle_count)
        loop_timer_start(p->loop, &p->reap, 1 + (p->idle_since_us[0] - limit_us) / 1000, reap_fired);
}

void agent_pool_idle_closed(struct http_client *client)
{
    struct agent_pool *p = http_client_user(client);
    for (size_t i = 0; i < p->idle_count; i++)
        if (p->idle[i] == client) {
            idle_drop(p, i);
            return;
        }
}

void agent_pool_open(struct agent_pool *p, uint64_t generation, int fd)
{
    if (p->generation != generation)
        agent_pool_close(p);
    p->generation = generation;
    if (p->spare_fd < 0)
        p->spare_fd = fd;
    else if (fd >= 0)
        (void)close(fd);
}

void agent_pool_close(struct agent_pool *p)
{
    p->generation = 0;
    while (p->idle_count)
        idle_drop(p, p->idle_count - 1);
    loop_timer_stop(p->loop, &p->reap);
    close_fd(&p->spare_fd);
    fail_wants(p, -ECONNRESET);
}

/* Makes a client of a connected socket and lends it out. */
static int lend_fd(struct agent_pool *p, struct agent_want *w, int fd)
{
    struct http_client *client;
    struct error e;
    auto_close int owned = fd;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    int r = http_client_new(p->loop, take_fd(owned), &client, &e);
    if (r < 0) {
        log_warn("sandbox %s: %s", p->id, e.msg);
        return r;
    }
    p->lent++;
    w->got(w, client, true, 0);
    return 0;
}

static void connected(void *arg, const struct keeper_reply *reply, int fd)
{
    struct agent_pool *p = arg;
    auto_close int owned = fd;

    p->connecting--;
    struct agent_want *w = p->first;
    bool current = reply->error == 0 && fd >= 0 && p->generation && reply->generation == p->generation;
    if (current && w) {
        want_del(p, w);
        int r = lend_fd(p, w, take_fd(owned));
        if (r < 0)
            w->got(w, NULL, false, r);
    } else if (current && p->spare_fd < 0) {
        p->spare_fd = take_fd(owned); /* a returned connection was quicker */
    } else if (!current && w && p->generation) {
        want_del(p, w);
        w->got(w, NULL, false, reply->error ? -reply->error : -ECONNRESET);
    }
    if (p->connecting == 0 && p->settled)
        p->settled(p);
}

void agent_pool_get(struct agent_pool *p, struct agent_want *w)
{
    w->prev = NULL;
    if (!p->generation) {
        w->got(w, NULL, false, -ECONNRESET);
        return;
    }
    if (p->idle_count) {
        struct http_client *client = p->idle[--p->idle_count]; /* the warmest */
        p->lent++;
        w->got(w, client, false, 0);
        return;
    }
    if (p->spare_fd >= 0) {
        int r = lend_fd(p, w, take_fd(p->spare_fd));
        if (r < 0)
            w->got(w, NULL, false, r);
        return;
    }
    if (p->lent + p->connecting >= AGENT_ACTIVE_MAX) {
        w->got(w, NULL, false, -EMFILE);
        return;
    }
    want_add(p, w);
    if (p->connecting >= p->waiting)
        return; /* somebody else's, who was served by one that came back */
    struct keeper_request request = {.type = KEEPER_CONNECT};
    (void)snprintf(request.id, sizeof request.id, "%s", p->id);
    p->connecting++;
    keeper_link_send(p->link, &request, -1, connected, p);
}

void agent_pool_taken(struct agent_pool *p)
{
    p->lent--;
}

void agent_pool_put(struct agent_pool *p, struct http_client *client, uint64_t generation)
{
    p->lent--;
    if (generation != p->generation || !http_client_reusable(client)) {
        http_client_free(client);
        return;
    }
    struct agent_want *w = p->first;
    if (w) {
        want_del(p, w);
        p->lent++;
        w->got(w, client, false, 0);
        return;
    }
    if (p->idle_count == AGENT_IDLE_MAX)
        idle_drop(p, 0);
    http_client_set_user(client, p);
    p->idle[p->idle_count] = client;
    p->idle_since_us[p->idle_count++] = loop_now_us(p->loop);
    if (!loop_timer_running(&p->reap))
        loop_timer_start(p->loop, &p->reap, AGENT_IDLE_MS, reap_fired);
}
