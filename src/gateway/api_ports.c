/* SPDX-License-Identifier: Apache-2.0 */
/* api_ports.c: /v1/sandbox/{id}/ports: exposing a port, closing it, and which there are.
 *
 * Exposing makes the sandbox run, as every use does: it exists on disk before its port does. */
#include "base/clock.h"
#include "gateway/body_json.h"
#include "gateway/gateway_internal.h"
#include "gateway/reply.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { EXPOSE_BODY_MAX = 16 * 1024, ROUTE_PORT_DIGITS = 5 };

static void put_port(struct json_writer *w, const struct gateway *g, const struct exposed_port *e)
{
    struct buf url = BUF_INIT(1024);
    char at[CLOCK_ISO_SIZE];
    clock_iso(e->exposed_ms, at);
    json_object_begin(w);
    json_member_int(w, "port", e->port);
    json_member_string(w, "url", preview_site_url(&g->site, e, &url) == 0 ? buf_cstr(&url) : NULL);
    json_member_string(w, "name", e->name[0] ? e->name : NULL);
    json_member_string(w, "exposedAt", at);
    json_object_end(w);
    buf_done(&url);
}

/* ------------------------------------------------------------------ POST */

struct expose {
    struct gateway *g;
    struct http_request *req; /* NULL: the caller is gone */
    char id[SANDBOX_ID_MAX + 1];
    struct sandbox_use use;
    struct sandbox_commit commit;
    struct port_change change;
    bool writing; /* op must stay until change.done */
    bool existed;
    int port;
    char token[PREVIEW_TOKEN_MAX + 1]; /* "": none was given */
    char name[PORT_NAME_MAX + 1];
    bool has_name;
};

static void expose_free(struct expose *op)
{
    sandbox_commit_cancel(&op->commit);
    lifecycle_leave(&op->use);
    free(op);
}

static void expose_gone(struct http_request *req)
{
    struct expose *op = req->user;
    op->req = NULL;
    if (!op->writing)
        expose_free(op);
}

static void expose_refuse(struct expose *op, const struct problem *p)
{
    struct http_request *req = op->req;
    char id[SANDBOX_ID_MAX + 1];
    memcpy(id, op->id, sizeof id);
    expose_free(op);
    if (req)
        reply_problem(req, id, p);
}

static void expose_written(struct port_change *c, const struct exposed_port *e, int err)
{
    struct expose *op = container_of(c, struct expose, change);
    struct problem p;
    op->writing = false;
    if (err < 0 || !e) {
        (void)problem_set(&p, 500, "STATE_NOT_SAVED", "the exposed port could not be recorded on disk");
        expose_refuse(op, &p);
        return;
    }
    struct http_request *req = op->req;
    if (req) {
        struct buf out = BUF_INIT(4096);
        struct json_writer w;
        json_writer_init(&w, &out);
        put_port(&w, op->g, e);
        reply_json(req, op->existed ? 200 : 201, &w);
    }
    expose_free(op);
}

static int check_free(const struct expose *op, const struct exposed_port *e, struct problem *p)
{
    struct ports *ports = op->g->ports;
    const struct exposed_port *holder = op->token[0] ? ports_find_token(ports, op->id, op->token) : NULL;
    if (e && e->closing)
        return problem_set(p, 409, "PORT_IN_USE", "port %d is just being closed; try again", op->port);
    if (e && op->token[0] && strcmp(e->token, op->token) != 0)
        return problem_set(p, 409, "PORT_ALREADY_EXPOSED",
                           "port %d is exposed with another token; close it first to change its address",
                           op->port);
    if (holder && holder != e)
        return problem_set(p, 409, "PORT_ALREADY_EXPOSED", "the token is in use for port %d", holder->port);
    if (!e && ports_count(ports, op->id) >= PORTS_PER_SANDBOX_MAX)
        return problem_set(p, 429, "TOO_MANY_PORTS", "a sandbox has %d exposed ports at most",
                           PORTS_PER_SANDBOX_MAX);
    return 0;
}

static void expose_write(struct expose *op)
{
    struct exposed_port *e = ports_find(op->g->ports, op->id, op->port);
    struct problem p;
    if (check_free(op, e, &p) < 0) {
        expose_refuse(op, &p);
        return;
    }
    op->existed = e != NULL;
    if (e) {
        memcpy(op->token, e->token, sizeof op->token);
        if (!op->has_name)
            memcpy(op->name, e->name, sizeof op->name);
    } else if (!op->token[0]) {
        random_name(op->token, PREVIEW_TOKEN_MAX);
    }
    op->writing = true;
    ports_expose(op->g->ports, op->id, op->port, op->token, op->name, &op->change);
}

static void expose_committed(struct sandbox_commit *c, const struct problem *p)
{
    struct expose *op = container_of(c, struct expose, commit);
    struct problem going;
    if (!p && sandbox_is_going(op->use.sandbox)) {
        (void)problem_set(&going, 409, "SANDBOX_EXISTS", "the sandbox is just being removed; try again");
        p = &going;
    }
    if (p)
        expose_refuse(op, p);
    else
        expose_write(op);
}

static void expose_ready(struct sandbox_use *u)
{
    struct expose *op = container_of(u, struct expose, use);
    sandbox_commit_wait(u->sandbox, &op->commit);
}

static void expose_failed(struct sandbox_use *u, const struct problem *p)
{
    expose_refuse(container_of(u, struct expose, use), p);
}

static int invalid_port(struct problem *p, const char *why)
{
    return problem_set(p, 400, "INVALID_PORT_NUMBER", "port %s", why);
}

static int parse_expose(struct expose *op, const struct json_value *v, struct problem *p)
{
    const struct json_value *token = json_get(v, "token"), *name = json_get(v, "name");
    struct error e;
    int64_t port;
    size_t n;
    if (json_type_of(v) != JSON_OBJECT)
        return problem_set(p, 400, "BAD_REQUEST", "the body must be a JSON object");
    if (!json_integer(json_get(v, "port"), PREVIEW_PORT_MIN, PREVIEW_PORT_MAX, &port))
        return invalid_port(p, "must be an integer from 1024 to 65535");
    if (port == PREVIEW_PORT_REFUSED)
        return invalid_port(p, "3000 is reserved");
    op->port = (int)port;
    if (token && json_type_of(token) != JSON_NULL) {
        const char *text = json_string(token, NULL);
        if (!text || !preview_token_ok(text))
            return problem_field(p, "token", "a token is 1 to 16 of a-z, 0-9 and _");
        (void)snprintf(op->token, sizeof op->token, "%s", text);
    }
    if (name && json_type_of(name) != JSON_NULL) {
        const char *text = json_string(name, &n);
        if (!text || n > PORT_NAME_MAX)
            return problem_field(p, "name", "a name is a string of %d bytes at most", PORT_NAME_MAX);
        memcpy(op->name, text, n);
        op->has_name = true;
    }
    if (preview_name_check(op->id, op->token[0] ? op->token : "0123456789abcdef", op->port, &e) < 0)
        return problem_set(p, 400, "INVALID_SANDBOX_ID", "%s", e.msg);
    return 0;
}

static void expose_body(struct http_request *req, struct buf *body, int err)
{
    struct expose *op = req->user;
    auto_json struct json_doc *doc = NULL;
    struct problem p;
    int r = body_json(body, err, EXPOSE_BODY_MAX, &doc, &p);
    if (r < 0 && r != -EINVAL)
        return; /* the server has answered, expose_gone follows */
    if (r < 0 || parse_expose(op, json_root(doc), &p) < 0)
        expose_refuse(op, &p);
    else
        lifecycle_use(op->g->lifecycle, op->id, &op->use);
}

void api_port_expose(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    struct expose *op = calloc(1, sizeof *op);
    if (!op) {
        reply_error(req, 500, "INTERNAL_ERROR", "out of memory");
        return;
    }
    op->g = g;
    op->req = req;
    op->use.ready = expose_ready;
    op->use.failed = expose_failed;
    op->commit.done = expose_committed;
    op->change.done = expose_written;
    (void)snprintf(op->id, sizeof op->id, "%s", m->id);
    (void)snprintf(op->use.owner, sizeof op->use.owner, "%s", auth_owner(&m->who));
    req->user = op;
    req->on_gone = expose_gone;
    http_request_collect(req, EXPOSE_BODY_MAX, expose_body);
}

/* ------------------------------------------------------------------ GET */

void api_port_list(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    const struct exposed_port *list[PORTS_PER_SANDBOX_MAX];
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    if (!lifecycle_find(g->lifecycle, m->id)) {
        struct problem p;
        (void)problem_set(&p, 404, "SANDBOX_NOT_FOUND", "there is no sandbox '%s'", m->id);
        reply_problem(req, m->id, &p);
        return;
    }
    size_t count = ports_list(g->ports, m->id, list);
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_put_key(&w, "ports");
    json_array_begin(&w);
    for (size_t i = 0; i < count; i++)
        put_port(&w, g, list[i]);
    json_array_end(&w);
    json_member_int(&w, "count", (int64_t)count);
    json_object_end(&w);
    reply_json(req, 200, &w);
}

void api_port_listening(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    struct route_match inside = *m;
    inside.target = "/api/ports";
    proxy_request(g, req, &inside);
}

/* ------------------------------------------------------------------ DELETE */

struct unexpose {
    struct http_request *req; /* NULL: the caller is gone */
    struct port_change change;
};

static void unexpose_gone(struct http_request *req)
{
    struct unexpose *op = req->user;
    op->req = NULL;
}

static void unexpose_done(struct port_change *c, const struct exposed_port *e, int err)
{
    struct unexpose *op = container_of(c, struct unexpose, change);
    struct buf out = BUF_INIT(1024);
    struct json_writer w;
    (void)e;
    if (op->req && err < 0) {
        reply_error(op->req, 500, "STATE_NOT_SAVED", "the port could not be closed on disk");
    } else if (op->req) {
        json_writer_init(&w, &out);
        json_object_begin(&w);
        json_member_bool(&w, "success", true);
        json_member_int(&w, "port", c->port);
        json_object_end(&w);
        reply_json(op->req, 200, &w);
    }
    free(op);
}

/* The digits at the end of the path; 0 when they are no port. */
static int port_of_path(const char *path)
{
    const char *p = strrchr(path, '/') + 1;
    size_t n = strspn(p, "0123456789");
    int port = 0;
    if (n == 0 || n > ROUTE_PORT_DIGITS || p[n])
        return 0;
    for (size_t i = 0; i < n; i++)
        port = port * 10 + (p[i] - '0');
    return port;
}

void api_port_unexpose(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    int port = port_of_path(req->path);
    struct exposed_port *e = ports_find(g->ports, m->id, port);
    struct problem p;
    if (!e || e->closing) {
        (void)problem_set(&p, 404, "PORT_NOT_EXPOSED", "port %d is not exposed", port);
        reply_problem(req, m->id, &p);
        return;
    }
    struct unexpose *op = calloc(1, sizeof *op);
    if (!op) {
        reply_error(req, 500, "INTERNAL_ERROR", "out of memory");
        return;
    }
    op->req = req;
    op->change.done = unexpose_done;
    req->user = op;
    req->on_gone = unexpose_gone;
    ports_unexpose(e, &op->change);
}
