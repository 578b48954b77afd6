/* SPDX-License-Identifier: Apache-2.0 */
/* routes.c: see routes.h. */
#include "agent/routes.h"
#include "agent/container.h"
#include "agent/file_routes.h"
#include "agent/reply.h"
#include "agent/tunnel.h"
#include "agent/websockets.h"

#include <errno.h>
#include <string.h>

enum body_rule {
    BODY_NONE,     /* what the client sends is not looked at */
    BODY_JSON,     /* must be JSON */
    BODY_JSON_NUL, /* the same; strings may have U+0000, which the handler refuses in its own words */
    BODY_TOLERANT, /* anything; the handler sees JSON or nothing */
    BODY_OWN,      /* the handler reads it itself */
};

struct route {
    const char *method,
        *pattern; /* {x} stands for one segment, ** for the rest; of two matches the first row wins */
    enum body_rule body;
    route_handler *handler;
};

static const struct route routes[] = {
    {"GET", "/", BODY_NONE, route_root},
    {"GET", "/api/ping", BODY_NONE, route_ping},
    {"GET", "/api/version", BODY_NONE, route_version},
    {"GET", "/api/commands", BODY_NONE, route_commands},
    {"POST", "/api/session/create", BODY_TOLERANT, route_session_create},
    {"GET", "/api/session/list", BODY_NONE, route_session_list},
    {"POST", "/api/session/delete", BODY_TOLERANT, route_session_delete},
    {"POST", "/api/execute", BODY_JSON, route_execute},
    {"POST", "/api/execute/stream", BODY_JSON, route_execute_stream},
    {"POST", "/api/process/start", BODY_JSON, route_process_start},
    {"GET", "/api/process/list", BODY_NONE, route_process_list},
    {"DELETE", "/api/process/kill-all", BODY_NONE, route_process_kill_all},
    {"GET", "/api/process/{id}", BODY_NONE, route_process_get},
    {"DELETE", "/api/process/{id}", BODY_TOLERANT, route_process_kill},
    {"GET", "/api/process/{id}/logs", BODY_NONE, route_process_logs},
    {"GET", "/api/process/{id}/stream", BODY_NONE, route_process_stream},
    {"POST", "/api/port-watch", BODY_JSON, route_port_watch},
    {"POST", "/api/port-check", BODY_JSON, route_port_check},
    {"GET", "/api/ports", BODY_NONE, route_ports},
    {"POST", "/api/git/checkout", BODY_JSON_NUL, route_git_checkout},
    {"POST", "/api/backup/create", BODY_JSON_NUL, route_backup_create},
    {"POST", "/api/backup/restore", BODY_JSON_NUL, route_backup_restore},
    {"POST", "/api/backup/upload-parts", BODY_JSON_NUL, route_backup_upload},
    {"POST", "/api/watch", BODY_TOLERANT, route_watch},
    {"POST", "/api/watch/check", BODY_TOLERANT, route_watch_check},
    {"GET", "/api/tunnels", BODY_NONE, route_tunnel_list},
    {"POST", "/api/tunnels/quick", BODY_JSON, route_tunnel_quick},
    {"POST", "/api/tunnels/named", BODY_JSON, route_tunnel_named},
    {"POST", "/api/tunnels/destroy", BODY_JSON, route_tunnel_destroy},
    {"POST", "/api/tunnels/ensure", BODY_JSON, route_tunnel_ensure},
    {"POST", "/api/tunnels/stop", BODY_JSON, route_tunnel_stop},
    {"POST", "/api/expose-port", BODY_JSON, route_expose_port},
    {"DELETE", "/api/unexpose-port", BODY_JSON, route_unexpose_port},
    {"GET", "/api/exposed-ports", BODY_NONE, route_exposed_ports},
    {"DELETE", "/api/exposed-ports/{port}", BODY_NONE, route_exposed_port_delete},
    {"POST", "/api/read", BODY_OWN, route_read},
    {"POST", "/api/read/stream", BODY_OWN, route_read_stream},
    {"POST", "/api/write", BODY_OWN, route_write},
    {"POST", "/api/delete", BODY_OWN, route_delete},
    {"POST", "/api/rename", BODY_OWN, route_rename},
    {"POST", "/api/move", BODY_OWN, route_move},
    {"POST", "/api/mkdir", BODY_OWN, route_mkdir},
    {"POST", "/api/list-files", BODY_OWN, route_list_files},
    {"POST", "/api/exists", BODY_OWN, route_exists},
    {"POST", "/api/resolve", BODY_OWN, route_resolve},
    {"GET", "/file/**", BODY_OWN, route_file_get},
    {"HEAD", "/file/**", BODY_OWN, route_file_get},
    {"PUT", "/file/**", BODY_OWN, route_file_put},
    {"DELETE", "/file/**", BODY_OWN, route_file_delete},
    {"GET", "/api/interpreter/health", BODY_NONE, route_interpreter_health},
    {"POST", "/api/contexts", BODY_JSON, route_context_create},
    {"GET", "/api/contexts", BODY_NONE, route_context_list},
    {"DELETE", "/api/contexts/{id}", BODY_NONE, route_context_delete},
    {"POST", "/api/contexts/{id}/interrupt", BODY_NONE, route_context_interrupt},
    {"POST", "/api/execute/code", BODY_JSON, route_execute_code},
};

bool query_has(const char *query, const char *name)
{
    size_t n = strlen(name);
    for (; *query; query += strcspn(query, "&"), query += *query == '&')
        if (strncmp(query, name, n) == 0 && (!query[n] || strchr("=&", query[n])))
            return true;
    return false;
}

/* Segment by segment, nothing decoded. */
static bool matches(const char *pattern, const char *path, char *param, size_t cap)
{
    for (;;) {
        if (*pattern == '{') {
            size_t n = strcspn(path, "/");
            if (!n || n >= cap)
                return false;
            memcpy(param, path, n);
            param[n] = '\0';
            path += n;
            pattern = strchr(pattern, '}') + 1;
        } else if (*pattern == '*') {
            return true;
        } else if (*pattern != *path) {
            return false;
        } else if (!*pattern) {
            return true;
        } else {
            pattern++;
            path++;
        }
    }
}

static const struct route *find(const struct http_request *req, char *param, size_t cap)
{
    param[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++)
        if (strcmp(routes[i].method, req->method) == 0 && matches(routes[i].pattern, req->path, param, cap)) {
            if (param[0]) /* an id that a segment cannot hold comes percent-encoded in the query */
                (void)http_query_get(req->query, "param", param, cap);
            return &routes[i];
        }
    return NULL;
}

/* req->user is the agent until the handler runs: from then on it is the handler's. */
static void body_done(struct http_request *req, struct buf *body, int err)
{
    struct agent *a = req->user;
    struct route_call call;
    struct error e;
    req->user = NULL;
    if (err == -EMSGSIZE) {
        http_response_close_after(req);
        http_respond(req, 413, NULL, NULL, 0);
        return;
    }
    if (err < 0)
        return; /* the server has answered */
    const struct route *route = find(req, call.param, sizeof call.param);
    auto_json struct json_doc *doc = NULL;
    int r = json_parse(buf_data(body), buf_len(body), route->body == BODY_JSON_NUL ? JSON_ALLOW_NUL : 0, &doc,
                       &e);
    if (r == -EBADMSG && (route->body == BODY_JSON || route->body == BODY_JSON_NUL)) {
        reply_error(req, "INTERNAL_ERROR", "Failed to parse request body: %s", e.msg);
        return;
    }
    if (r == -ENOMEM) {
        reply_error(req, "INTERNAL_ERROR", "%s", e.msg);
        return;
    }
    call.body = doc ? json_root(doc) : NULL;
    call.doc = take_ptr(doc);
    route->handler(a, req, &call);
    json_free(call.doc);
}

static bool method_known(const char *method)
{
    static const char *const known[] = {"GET", "POST", "PUT", "DELETE"};
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (strcmp(method, known[i]) == 0)
            return true;
    return false;
}

void routes_request(struct http_request *req, void *arg)
{
    struct agent *a = arg;
    struct route_call call = {0};
    if (a->refusal[0]) {
        reply_error(req, "USER_NOT_FOUND", "%s", a->refusal);
        return;
    }
    if (tunnel_request(a, req) || websockets_request(a, req) || container_request(a, req))
        return;
    if (strncmp(req->path, "/proxy/", 7) == 0) { /* whatever the method: it is the service's business */
        route_proxy(a, req, &call);
        return;
    }
    if (strcmp(req->method, "OPTIONS") == 0) {
        http_respond(req, 200, NULL, NULL, 0); /* the CORS headers are on every answer */
        return;
    }
    const struct route *route = find(req, call.param, sizeof call.param);
    if (!route && !method_known(req->method)) {
        reply_error_status(req, 405, "UNKNOWN_ERROR", "Method %s is not supported", req->method);
        return;
    }
    if (!route) {
        reply_error_status(req, 404, "UNKNOWN_ERROR", "Not found: %s %s", req->method, req->path);
        return;
    }
    switch (route->body) {
    case BODY_JSON:
    case BODY_JSON_NUL:
    case BODY_TOLERANT:
        req->user = a;
        http_request_collect(req, AGENT_BODY_MAX, body_done);
        break;
    case BODY_NONE:
    case BODY_OWN:
        route->handler(a, req, &call);
        break;
    }
}
