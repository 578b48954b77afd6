/* SPDX-License-Identifier: Apache-2.0 */
/* rpc.h: remote procedure calls over a WebSocket at /rpc. */
#pragma once

#include "agent/agent.h"

/* Serves calls on a WebSocket. The request has a proper handshake. */
void rpc_accept(struct agent *a, struct http_request *req);
void rpcs_free(struct agent *a);
void rpc_budget_init(struct agent *a);

/* Tells the client of the newest connection that a tunnel has ended by itself; run_id may be NULL. */
void rpc_tunnel_exited(struct agent *a, const char *tunnel_id, int port, int exit_code, const char *run_id);
