/* SPDX-License-Identifier: Apache-2.0 */
/* legacy_ports.c: the port routes of clients up to 0.10: expose, unexpose, list, and the proxy on our own
 * port.
 *
 * Exposing is no more than a note here; who may reach a port is decided outside. The answers have the members
 * of all releases. Where releases contradict each other, 0.3 is told apart by its latch or by what only it
 * leaves out. */
#include "agent/proxy.h"
#include "agent/reply.h"
#include "agent/routes.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { EXPOSED_MAX = 1024, NAME_MAX_BYTES = 1024 };

struct exposed_port {
    int port;
    char *name; /* NULL: none */
    char at[CLOCK_ISO_SIZE];
};

struct exposed_ports {
    struct exposed_port list[EXPOSED_MAX]; /* in order of exposure */
    size_t count;
};

static struct exposed_port *find(struct agent *a, int64_t port)
{
    for (size_t i = 0; a->exposed && i < a->exposed->count; i++)
        if (a->exposed->list[i].port == port)
            return &a->exposed->list[i];
    return NULL;
}

void exposed_ports_free(struct exposed_ports *e)
{
    for (size_t i = 0; e && i < e->count; i++)
        free(e->list[i].name);
    free(e);
}

static struct exposed_port *expose(struct agent *a, int port, const char *name)
{
    if (!a->exposed && !(a->exposed = calloc(1, sizeof *a->exposed)))
        return NULL;
    if (a->exposed->count == EXPOSED_MAX)
        return NULL;
    struct exposed_port *e = &a->exposed->list[a->exposed->count];
    *e = (struct exposed_port){.port = port, .name = name ? strndup(name, NAME_MAX_BYTES) : NULL};
    clock_iso_now(e->at);
    a->exposed->count++;
    return e;
}

static void put_members(struct json_writer *w, const struct exposed_port *e)
{
    char url[64];
    (void)snprintf(url, sizeof url, "http://localhost:%d", e->port);
    json_member_int(w, "port", e->port);
    if (e->name) {
        json_put_key(w, "name");
        json_put_bytes(w, e->name, strlen(e->name));
    }
    json_member_string(w, "url", url);
    json_member_string(w, "exposedAt", e->at);
}

static void reply_bad_port(struct http_request *req, const struct json_value *port)
{
    struct reply r;
    reply_error_begin(&r, "INVALID_PORT_NUMBER",
                      "Invalid port number: it must be an integer from 1 to 65535");
    json_put_key(&r.w, "port");
    if (port)
        json_put_value(&r.w, port);
    else
        json_put_null(&r.w);
    json_member_string(&r.w, "reason", "not an integer from 1 to 65535");
    reply_error_send(&r, req);
}

void route_expose_port(struct agent *a, struct http_request *req, struct route_call *call)
{
    const struct json_value *value = json_get(call->body, "port");
    const char *name = json_string(json_get(call->body, "name"), NULL);
    int64_t port;
    struct reply r;
    if (!json_integer(value, 1, 65535, &port)) {
        reply_bad_port(req, value);
        return;
    }
    /* 0.3 exposes again and again; only later releases name a session */
    bool again_is_fine = a->legacy_03 || !json_get(call->body, "sessionId");
    struct exposed_port *e = find(a, port);
    if (e && !again_is_fine) {
        reply_error_begin(&r, "PORT_ALREADY_EXPOSED", "Port %lld is already exposed", (long long)port);
        json_member_int(&r.w, "port", port);
        if (e->name)
            json_member_string(&r.w, "portName", e->name);
        reply_error_send(&r, req);
        return;
    }
    if (!e && !(e = expose(a, (int)port, name))) {
        reply_error(req, "PORT_OPERATION_ERROR", "Too many ports are exposed (limit %d)", EXPOSED_MAX);
        return;
    }
    reply_begin(&r);
    put_members(&r.w, e);
    reply_send(&r, req);
}

static void unexpose(struct agent *a, struct http_request *req, int64_t port)
{
    struct exposed_port *e = find(a, port);
    struct reply r;
    if (!e) {
        reply_error_begin(&r, "PORT_NOT_EXPOSED", "Port is not exposed");
        json_member_int(&r.w, "port", port);
        reply_error_send(&r, req);
        return;
    }
    free(e->name);
    size_t behind = (size_t)(a->exposed->list + a->exposed->count - (e + 1));
    memmove(e, e + 1, behind * sizeof *e);
    a->exposed->count--;
    reply_begin(&r);
    json_member_int(&r.w, "port", port);
    reply_send(&r, req);
}

void route_unexpose_port(struct agent *a, struct http_request *req, struct route_call *call)
{
    const struct json_value *value = json_get(call->body, "port");
    int64_t port;
    if (json_integer(value, 1, 65535, &port))
        unexpose(a, req, port);
    else
        reply_bad_port(req, value);
}

/* The number at s, which ends at a '/', '?' or the end; 0: none. */
static int port_parse(const char *s)
{
    size_t n = strcspn(s, "/?");
    int port = 0;
    if (n == 0 || n > 5 || strspn(s, "0123456789") != n)
        return 0;
    for (size_t i = 0; i < n; i++)
        port = port * 10 + (s[i] - '0');
    return port <= 65535 ? port : 0;
}

void route_exposed_port_delete(struct agent *a, struct http_request *req, struct route_call *call)
{
    int port = port_parse(call->param);
    if (port)
        unexpose(a, req, port);
    else
        reply_bad_port(req, NULL);
}

void route_exposed_ports(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct reply r;
    (void)call;
    reply_begin(&r);
    json_put_key(&r.w, "ports");
    json_array_begin(&r.w);
    for (size_t i = 0; a->exposed && i < a->exposed->count; i++) {
        json_object_begin(&r.w);
        put_members(&r.w, &a->exposed->list[i]);
        json_member_string(&r.w, "status", "active");
        json_object_end(&r.w);
    }
    json_array_end(&r.w);
    json_member_int(&r.w, "count", a->exposed ? (int64_t)a->exposed->count : 0);
    reply_send(&r, req);
}

/* ------------------------------------------------------------------ the proxy */

static void reply_plain(struct http_request *req, int status, const char *error, const char *message,
                        int port)
{
    struct buf out = BUF_INIT(4096);
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_string(&w, "error", error);
    json_member_string(&w, "message", message);
    json_member_int(&w, "port", port);
    json_object_end(&w);
    http_respond(req, status, "application/json", buf_data(&out), buf_len(&out));
    buf_done(&out);
}

static void refuse(struct http_request *req, int port, const char *why, void *arg)
{
    struct agent *a = arg;
    char error[80];
    (void)snprintf(error, sizeof error, "Service on port %d is not responding", port);
    reply_plain(req, 502, a->legacy_03 ? error : "Proxy error", why, port);
}

void route_proxy(struct agent *a, struct http_request *req, struct route_call *call)
{
    const char *port_at = req->target + strlen("/proxy/");
    int port = port_parse(port_at);
    (void)call;
    if (!find(a, port)) {
        char message[80];
        (void)snprintf(message, sizeof message, "Port %d is not exposed", port);
        reply_plain(req, 404, a->legacy_03 ? message : "Port not found", message, port);
        return;
    }
    const char *rest = port_at + strcspn(port_at, "/?");
    if (*rest == '/') {
        proxy_request(a->loop, req, port, rest, refuse, a);
        return;
    }
    auto_free char *target = NULL;
    if (asprintf(&target, "/%s", rest) < 0) {
        target = NULL;
        reply_error(req, "INTERNAL_ERROR", "Out of memory");
        return;
    }
    proxy_request(a->loop, req, port, target, refuse, a);
}
