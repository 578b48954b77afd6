/* SPDX-License-Identifier: Apache-2.0 */
/* agent_pool.h: connections to the agent of one sandbox, kept open between requests.
 *
 * A pool belongs to one start of the sandbox, its generation. When the sandbox ends, the pool is emptied;
 * connections that were lent out under an older generation are closed when they come back. */
#pragma once

#include "gateway/keeper_link.h"
#include "net/http.h"

enum {
    AGENT_IDLE_MAX = 16,
    AGENT_IDLE_MS = 20000, /* below the agent's own 60 s, so that it never closes under a request of ours */
    AGENT_ACTIVE_MAX = 1024,
};

/* One who wants a connection; embedded in its owner. */
struct agent_want {
    /* client: yours until agent_pool_put, or NULL with a negative errno: -ECONNRESET: the sandbox ended,
     * -EMFILE: too many connections, others: the keeper's. fresh: nothing was ever sent on it. */
    void (*got)(struct agent_want *w, struct http_client *client, bool fresh, int err);
    struct agent_want *next, **prev; /* prev NULL: not waiting */
};

struct agent_pool {
    struct loop *loop;
    struct keeper_link *link;
    const char *id;
    uint64_t generation; /* 0: the sandbox does not run */
    struct http_client *idle[AGENT_IDLE_MAX];
    int64_t idle_since_us[AGENT_IDLE_MAX];
    size_t idle_count;
    int spare_fd; /* connected, never used */
    struct agent_want *first, **last;
    unsigned waiting;    /* how many that are */
    unsigned connecting; /* KEEPER_CONNECT in flight, at least as many; the pool must not be freed before they
                          * are back */
    unsigned lent;
    struct timer reap;
    void (*settled)(struct agent_pool *p); /* connecting fell to 0 */
};

void agent_pool_init(struct agent_pool *p, struct loop *loop, struct keeper_link *link, const char *id);
/* A start succeeded; fd (or -1) is a first connection. The same generation again only adds the connection. */
void agent_pool_open(struct agent_pool *p, uint64_t generation, int fd);
/* The sandbox ended: closes what is idle; those who wait get -ECONNRESET. */
void agent_pool_close(struct agent_pool *p);

/* Calls w->got, at once when a connection is at hand. */
void agent_pool_get(struct agent_pool *p, struct agent_want *w);
void agent_pool_cancel(struct agent_pool *p, struct agent_want *w); /* fine when not waiting */
/* Gives a connection back; it is kept when it can be used again and generation is the present one. */
void agent_pool_put(struct agent_pool *p, struct http_client *client, uint64_t generation);
/* A lent connection was taken away from HTTP, and is over now. */
void agent_pool_taken(struct agent_pool *p);
/* For http_client_ops.on_idle_close of whoever borrows: the agent hung up while nobody used the connection.
 */
void agent_pool_idle_closed(struct http_client *client);
