/* SPDX-License-Identifier: Apache-2.0 */
/* upstream.h: connections to one port inside one sandbox, made by its agent and kept open between requests.
 *
 * The agent is asked for a connection (src/agent/tunnel.c describes the exchange) and hands over a connected
 * TCP socket. What it hands over is checked as coming from an enemy. Connections are never shared between
 * ports or sandboxes, nor between two runs of a sandbox. */
#pragma once

#include "gateway/keeper_link.h"
#include "net/http.h"

enum {
    UPSTREAM_IDLE_MAX = 64,
    UPSTREAM_IDLE_MS =
        1500, /* below the shortest limit of common servers (2 s), so that they do not close under us */
    UPSTREAM_DIAL_MS = 10000,
};

/* One who wants a connection; embedded in its owner. */
struct upstream_want {
    /* client: yours until upstream_put, or NULL with -ECONNREFUSED: nobody listens, -ETIMEDOUT: no answer,
     * -ECONNRESET: the sandbox ended, -EBADMSG: the agent misbehaves, others: the keeper's. fresh: nothing
     * was ever sent on it. */
    void (*got)(struct upstream_want *w, struct http_client *client, bool fresh, int err);
    /* Instead, when it is set: the connection itself (of upstream_get_fresh only), yours, or the same errors.
     */
    void (*got_fd)(struct upstream_want *w, int fd);
    struct upstream_dial *dial; /* NULL: not waiting */
};

struct upstream_pool {
    struct loop *loop;
    struct keeper_link *link;
    const char *id;
    int port;
    struct http_client *idle[UPSTREAM_IDLE_MAX];
    int64_t idle_since_us[UPSTREAM_IDLE_MAX];
    size_t idle_count;
    uint64_t epoch; /* counts the ends of the sandbox: connections of an earlier one are of no use */
    struct timer reap;
    struct upstream_dial *dials;
};

void upstream_pool_init(struct upstream_pool *p, struct loop *loop, struct keeper_link *link, const char *id,
                        int port);
void upstream_pool_done(struct upstream_pool *p); /* nobody must wait any more */
/* The sandbox ended: its idle connections are closed. */
void upstream_pool_ended(struct upstream_pool *p);

/* For a sandbox that runs. Calls w->got, at once when a connection is at hand. */
void upstream_get(struct upstream_pool *p, struct upstream_want *w);
/* A new one, also when others are at hand. */
void upstream_get_fresh(struct upstream_pool *p, struct upstream_want *w);
void upstream_cancel(struct upstream_want *w); /* fine when not waiting */
/* Gives a connection back; it is kept when it can be used again. epoch: the pool's when it was got. */
void upstream_put(struct upstream_pool *p, struct http_client *client, uint64_t epoch);
/* For http_client_ops.on_idle_close: the service hung up while nobody used the connection. */
void upstream_idle_closed(struct http_client *client);

/* Whether a descriptor that an agent sent is a connected TCP socket; made non-blocking. 0 or -EBADMSG. */
int upstream_check_fd(int fd);
