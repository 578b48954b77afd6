/* SPDX-License-Identifier: Apache-2.0 */
/* websockets.h: the agent's WebSockets: requests over /ws and /api/ws (ws_mux.c), calls over /rpc (rpc.c),
 * terminals at /ws/pty (terminal.c). */
#pragma once

#include "agent/agent.h"

/* True when the request asks for one of them; then it is answered. */
bool websockets_request(struct agent *a, struct http_request *req);
void websockets_free(struct agent *a); /* terminals, too */

/* ws_mux.c: serves requests on a WebSocket. The request has a proper handshake. */
void mux_accept(struct agent *a, struct http_request *req);
/* A proper goodbye to all of them: calls over a connection that just breaks hang in the official client. */
void muxes_leave(struct agent *a);
void muxes_free(struct agent *a);

/* Ends the terminal of a session, if there is one: its shell is hung up, its clients hear of its exit. */
void terminal_hang_up(struct agent *a, const char *session_id);
/* The shell of the session's terminal, 0: none. */
pid_t terminal_pid(struct agent *a, const char *session_id);
struct process_tag terminal_tag(struct agent *a, const char *session_id);
/* The pids of all terminals' shells. */
size_t terminal_pids(struct agent *a, pid_t *out, size_t max);
