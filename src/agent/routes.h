/* SPDX-License-Identifier: Apache-2.0 */
/* routes.h: which function answers which request. A new route is a new row in routes.c. */
#pragma once

#include "agent/agent.h"
#include "base/json.h"

/* What the router found out about a request; valid during the handler's call. */
struct route_call {
    char param[1024];              /* what {x} matched, not decoded, or ?param=, decoded; "" without */
    const struct json_value *body; /* NULL: no (valid) body */
    struct json_doc
        *doc; /* owner of body; a handler may take_ptr it, the text lives as long as the request */
};

typedef void route_handler(struct agent *a, struct http_request *req, struct route_call *call);

/* True when the query has a parameter of this name, however its value looks. */
bool query_has(const char *query, const char *name);

/* http_server_config.request; arg is the struct agent. */
void routes_request(struct http_request *req, void *arg);

/* The handlers. */
route_handler route_root, route_ping, route_version, route_commands;
route_handler route_session_create, route_session_list, route_session_delete;
route_handler route_execute, route_execute_stream;
route_handler route_process_start, route_process_list, route_process_get, route_process_logs,
    route_process_stream, route_process_kill, route_process_kill_all;
route_handler route_port_watch, route_port_check, route_ports;
route_handler route_git_checkout;
route_handler route_backup_create, route_backup_restore, route_backup_upload;
route_handler route_watch, route_watch_check;
route_handler route_tunnel_quick, route_tunnel_named, route_tunnel_destroy, route_tunnel_list,
    route_tunnel_ensure, route_tunnel_stop;
route_handler route_expose_port, route_unexpose_port, route_exposed_ports, route_exposed_port_delete,
    route_proxy;

void exposed_ports_free(struct exposed_ports *e); /* legacy_ports.c; NULL is fine */
route_handler route_interpreter_health, route_context_create, route_context_list, route_context_delete,
    route_context_interrupt, route_execute_code;
