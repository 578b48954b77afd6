/* SPDX-License-Identifier: Apache-2.0 */
/* cloudflared.h: tunnels to a port of this sandbox, each a process of the program cloudflared.
 *
 * STARTING  the process runs; the port of its metrics, its URL and its connections are waited for
 * READY     it has a connection; its end is told to the client
 * STOPPING  it has been asked to end
 * A tunnel that has ended is gone. */
#pragma once

#include "agent/process.h"

enum cloudflared_state { CLOUDFLARED_STARTING, CLOUDFLARED_READY, CLOUDFLARED_STOPPING };

enum { CLOUDFLARED_MAX = 64, CLOUDFLARED_NAME_MAX = 256, CLOUDFLARED_TOKEN_MAX = 8192 };

struct cloudflared;

struct cloudflared_config {
    const char *id;
    const char *run_id; /* NULL: not a run */
    const char *token;  /* of a named tunnel; NULL: a quick one */
    int port;
};

/* Somebody who waits; embedded. */
struct cloudflared_waiter {
    struct list link;
    /* Once. code NULL: the tunnel is ready (or has ended, for waiters of cloudflared_stop); else it could not
     * be started, and is gone when the call returns. */
    void (*done)(struct cloudflared_waiter *w, struct cloudflared *t, const char *code, const char *why);
};

struct cloudflared {
    struct list link; /* of the agent, in order of creation */
    struct agent *agent;
    char *id, *run_id, *token;
    int port;
    int64_t created_ms;
    enum cloudflared_state state;
    char url[CLOUDFLARED_NAME_MAX]; /* of a quick tunnel, when it is ready */

    /* private */
    struct process *process;
    struct process_watcher watcher;
    struct buf line; /* of its output, not complete yet */
    uint64_t seen[2];
    char said[400];                   /* its last line */
    int metrics_port;                 /* 0: not known yet */
    struct cloudflared_ready *asking; /* whether there are connections */
    struct timer poll, limit;
    struct list starting, ending; /* struct cloudflared_waiter */
};

/* Where cloudflared is; false: nowhere. */
bool cloudflared_find(const struct agent *a, char *out, size_t cap);
/* 0, or -errno; then there is no tunnel. */
int cloudflared_start(struct agent *a, const char *program, const struct cloudflared_config *config,
                      struct cloudflared **ret);
/* Calls back when it is ready; at once when it is. */
void cloudflared_wait(struct cloudflared *t, struct cloudflared_waiter *w);
/* SIGTERM, some seconds, SIGKILL. */
void cloudflared_stop(struct cloudflared *t, struct cloudflared_waiter *w);
void cloudflared_waiter_gone(struct cloudflared_waiter *w); /* fine when done */
void cloudflareds_free(struct agent *a);                    /* the processes end with the agent's others */

/* cloudflared_ready.c: one question to the metrics of cloudflared, `GET /ready`. */
struct cloudflared_ready;
struct cloudflared_ready *cloudflared_ready_ask(struct loop *loop, int port,
                                                void (*done)(void *arg, bool ready), void *arg);
void cloudflared_ready_free(struct cloudflared_ready *q); /* NULL is fine; also from inside done */

/* What a line of its log tells; pure. The port of its metrics, 0: none. */
int cloudflared_metrics_port(const char *line);
/* The URL of a quick tunnel; false: none. */
bool cloudflared_url(const char *line, char *out, size_t cap);
