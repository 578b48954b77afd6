/* SPDX-License-Identifier: Apache-2.0 */
/* inner_http.h: connections of the agent to its own HTTP server, for protocols that carry its requests in
 * other frames (ws_mux.c, rpc.c). What holds for a request over HTTP holds for theirs. */
#pragma once

#include "agent/agent.h"

enum { INNER_IDLE_MAX = 8 };

/* Of one owner; zero-initialised but for the agent. */
struct inner_http {
    struct agent *agent;
    struct http_client *idle[INNER_IDLE_MAX];
    size_t idle_count;
};

/* A connection that can be used for one exchange; NULL: there is no descriptor or memory left. */
struct http_client *inner_http_get(struct inner_http *in);
/* Takes it back: kept when it can be used again, else closed, which ends what is under way. */
void inner_http_put(struct inner_http *in, struct http_client *client);
void inner_http_done(struct inner_http *in);

/* The on_idle_close of everybody who uses these connections. */
void inner_http_idle_closed(struct http_client *client);
