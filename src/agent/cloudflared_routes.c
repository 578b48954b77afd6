/* SPDX-License-Identifier: Apache-2.0 */
/* cloudflared_routes.c: /api/tunnels: starting, stopping and listing tunnels. Clients reach them by /rpc.
 *
 * A tunnel is known by its id; a run of the newer methods by its id and a run id, and starting the same run
 * twice is one start. Only one of all of them may have an id or a port at a time. */
#include "agent/cloudflared.h"
#include "agent/reply.h"
#include "agent/routes.h"

#include <errno.h>
#include <string.h>

enum { PROGRAM_MAX = 512 };

struct wanted {
    const char *id, *run_id, *token;
    int64_t port;
};

/* ------------------------------------------------------------------ answers */

static const char *hostname_of(const struct cloudflared *t)
{
    return t->url[0] ? t->url + sizeof "https://" - 1 : "";
}

static void put_tunnel(struct json_writer *w, const struct cloudflared *t)
{
    json_member_string(w, "id", t->id);
    json_member_int(w, "port", t->port);
    json_member_string(w, "url", t->url);
    json_member_string(w, "hostname", hostname_of(t));
    reply_time(w, "createdAt", t->created_ms);
}

static void put_run(struct json_writer *w, const struct cloudflared *t)
{
    json_put_key(w, "run");
    json_object_begin(w);
    json_member_string(w, "tunnelId", t->id);
    json_member_string(w, "runId", t->run_id);
    json_member_string(w, "mode", t->token ? "named" : "quick");
    json_member_int(w, "port", t->port);
    reply_time(w, "startedAt", t->created_ms);
    if (!t->token) {
        json_member_string(w, "url", t->url);
        json_member_string(w, "hostname", hostname_of(t));
    }
    json_object_end(w);
}

static void put_ids(struct json_writer *w, const struct wanted *q)
{
    json_member_string(w, q->run_id ? "tunnelId" : "id", q->id);
    if (q->run_id)
        json_member_string(w, "runId", q->run_id);
    json_member_int(w, "port", q->port);
}

static void reply_start_error(struct http_request *req, const char *code, const struct wanted *q,
                              const char *why)
{
    struct reply r;
    reply_error_begin(&r, code, "%s", why);
    put_ids(&r.w, q);
    if (strcmp(code, "CLOUDFLARED_NOT_FOUND") == 0)
        json_member_string(&r.w, "binary", "cloudflared");
    reply_error_send(&r, req);
}

/* ------------------------------------------------------------------ requests */

/* A string of a reasonable length; false: it has answered. */
static bool parse_text(struct http_request *req, const struct json_value *body, const char *key, size_t max,
                       const char **ret)
{
    size_t n = 0;
    *ret = json_string(json_get(body, key), &n);
    if (*ret && n && n <= max)
        return true;
    reply_error(req, "VALIDATION_FAILED", "%s must be a string of 1 to %zu bytes", key, max);
    return false;
}

static bool parse_port(struct http_request *req, const struct json_value *body, int64_t *ret)
{
    if (json_integer(json_get(body, "port"), 1, 65535, ret))
        return true;
    reply_error(req, "VALIDATION_FAILED", "port must be an integer from 1 to 65535");
    return false;
}

static struct cloudflared *find_id(struct agent *a, const char *id)
{
    list_for_each(i, &a->cloudflareds)
    {
        struct cloudflared *t = list_entry(i, struct cloudflared, link);
        if (strcmp(t->id, id) == 0)
            return t;
    }
    return NULL;
}

/* ------------------------------------------------------------------ waiting */

struct tunnel_call {
    struct cloudflared_waiter waiter;
    struct http_request *req;
    bool run;     /* the answer is about a run */
    bool started; /* ... which this call has started */
    bool destroy;
};

static void call_gone(struct http_request *req)
{
    struct tunnel_call *c = req->user;
    cloudflared_waiter_gone(&c->waiter); /* the tunnel stays: it is in the list */
    free(c);
}

static void is_ready(struct cloudflared_waiter *w, struct cloudflared *t, const char *code, const char *why)
{
    struct tunnel_call *c = container_of(w, struct tunnel_call, waiter);
    struct http_request *req = c->req;
    struct reply r;
    req->on_gone = NULL;
    if (code) {
        struct wanted q = {.id = t->id, .run_id = t->run_id, .port = t->port};
        reply_start_error(req, code, &q, why);
    } else {
        reply_begin(&r);
        if (c->run) {
            put_run(&r.w, t);
            json_member_bool(&r.w, "started", c->started);
        } else {
            put_tunnel(&r.w, t);
        }
        reply_send(&r, req);
    }
    free(c);
}

static void is_stopped(struct cloudflared_waiter *w, struct cloudflared *t, const char *code, const char *why)
{
    struct tunnel_call *c = container_of(w, struct tunnel_call, waiter);
    struct http_request *req = c->req;
    struct reply r;
    (void)code;
    (void)why;
    req->on_gone = NULL;
    reply_begin(&r);
    if (c->destroy)
        json_member_string(&r.w, "id", t->id);
    else
        json_member_bool(&r.w, "stopped", true);
    reply_send(&r, req);
    free(c);
}

static struct tunnel_call *call_new(struct http_request *req,
                                    void (*done)(struct cloudflared_waiter *w, struct cloudflared *t,
                                                 const char *code, const char *why))
{
    struct tunnel_call *c = calloc(1, sizeof *c);
    if (!c) {
        reply_error(req, "INTERNAL_ERROR", "out of memory");
        return NULL;
    }
    c->req = req;
    c->waiter.done = done;
    list_init(&c->waiter.link);
    req->user = c;
    req->on_gone = call_gone;
    return c;
}

/* ------------------------------------------------------------------ starting */

static void start(struct agent *a, struct http_request *req, const struct wanted *q)
{
    char program[PROGRAM_MAX];
    struct cloudflared *t;
    size_t count = 0;
    list_for_each(i, &a->cloudflareds) count++;
    if (count >= CLOUDFLARED_MAX) {
        reply_start_error(req, "TUNNEL_START_ERROR", q, "too many tunnels exist");
        return;
    }
    if (!cloudflared_find(a, program, sizeof program)) {
        reply_start_error(req, "CLOUDFLARED_NOT_FOUND", q, "cloudflared is not in PATH");
        return;
    }
    struct tunnel_call *c = call_new(req, is_ready);
    if (!c)
        return;
    c->run = q->run_id != NULL;
    c->started = true;
    struct cloudflared_config config = {
        .id = q->id, .run_id = q->run_id, .token = q->token, .port = (int)q->port};
    int r = cloudflared_start(a, program, &config, &t);
    if (r == 0) {
        cloudflared_wait(t, &c->waiter);
        return;
    }
    req->on_gone = NULL;
    free(c);
    reply_start_error(req, "TUNNEL_START_ERROR", q, strerror(-r));
}

static void start_tunnel(struct agent *a, struct http_request *req, struct wanted *q)
{
    if (find_id(a, q->id))
        reply_start_error(req, "TUNNEL_ALREADY_RUNNING", q, "A tunnel with this id is running");
    else
        start(a, req, q);
}

void route_tunnel_quick(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct wanted q = {0};
    if (parse_text(req, call->body, "id", CLOUDFLARED_NAME_MAX, &q.id) &&
        parse_port(req, call->body, &q.port))
        start_tunnel(a, req, &q);
}

void route_tunnel_named(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct wanted q = {0};
    if (parse_text(req, call->body, "id", CLOUDFLARED_NAME_MAX, &q.id) &&
        parse_text(req, call->body, "token", CLOUDFLARED_TOKEN_MAX, &q.token) &&
        parse_port(req, call->body, &q.port))
        start_tunnel(a, req, &q);
}

static bool same_run(const struct cloudflared *t, const struct wanted *q)
{
    return strcmp(t->id, q->id) == 0 && t->port == q->port && !t->token == !q->token &&
           (!t->token || strcmp(t->token, q->token) == 0) && t->state != CLOUDFLARED_STOPPING;
}

static void reply_conflict(struct http_request *req, const struct wanted *q, const struct cloudflared *t)
{
    struct reply r;
    reply_error_begin(&r, "TUNNEL_RUN_CONFLICT", "Another tunnel is active with this run id, id or port");
    put_ids(&r.w, q);
    if (t->run_id)
        json_member_string(&r.w, "activeRunId", t->run_id);
    json_member_string(&r.w, "activeTunnelId", t->id);
    reply_error_send(&r, req);
}

static void ensure_run(struct agent *a, struct http_request *req, const struct wanted *q)
{
    list_for_each(i, &a->cloudflareds)
    {
        struct cloudflared *t = list_entry(i, struct cloudflared, link);
        bool known = t->run_id && strcmp(t->run_id, q->run_id) == 0;
        if (known && same_run(t, q)) {
            struct tunnel_call *c = call_new(req, is_ready);
            if (c) {
                c->run = true;
                cloudflared_wait(t, &c->waiter);
            }
            return;
        }
        if (known || t->port == q->port || strcmp(t->id, q->id) == 0) {
            reply_conflict(req, q, t);
            return;
        }
    }
    start(a, req, q);
}

void route_tunnel_ensure(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct wanted q = {0};
    const char *mode;
    if (!parse_text(req, call->body, "tunnelId", CLOUDFLARED_NAME_MAX, &q.id) ||
        !parse_text(req, call->body, "runId", CLOUDFLARED_NAME_MAX, &q.run_id) ||
        !parse_text(req, call->body, "mode", CLOUDFLARED_NAME_MAX, &mode) ||
        !parse_port(req, call->body, &q.port))
        return;
    bool named = strcmp(mode, "named") == 0;
    if (!named && strcmp(mode, "quick") != 0)
        reply_error(req, "VALIDATION_FAILED", "mode must be quick or named");
    else if (!named || parse_text(req, call->body, "token", CLOUDFLARED_TOKEN_MAX, &q.token))
        ensure_run(a, req, &q);
}

/* ------------------------------------------------------------------ stopping, listing */

void route_tunnel_destroy(struct agent *a, struct http_request *req, struct route_call *call)
{
    const char *id;
    struct reply r;
    if (!parse_text(req, call->body, "id", CLOUDFLARED_NAME_MAX, &id))
        return;
    struct cloudflared *t = find_id(a, id);
    if (!t || t->run_id) {
        reply_error_begin(&r, "TUNNEL_NOT_FOUND", "No tunnel has the id '%s'", id);
        json_member_string(&r.w, "id", id);
        reply_error_send(&r, req);
        return;
    }
    struct tunnel_call *c = call_new(req, is_stopped);
    if (!c)
        return;
    c->destroy = true;
    cloudflared_stop(t, &c->waiter);
}

void route_tunnel_stop(struct agent *a, struct http_request *req, struct route_call *call)
{
    const char *id, *run_id;
    struct reply r;
    if (!parse_text(req, call->body, "tunnelId", CLOUDFLARED_NAME_MAX, &id) ||
        !parse_text(req, call->body, "runId", CLOUDFLARED_NAME_MAX, &run_id))
        return;
    struct cloudflared *t = find_id(a, id);
    if (t && t->run_id && strcmp(t->run_id, run_id) == 0) {
        struct tunnel_call *c = call_new(req, is_stopped);
        if (c)
            cloudflared_stop(t, &c->waiter);
        return;
    }
    reply_begin(&r);
    json_member_bool(&r.w, "stopped", false);
    reply_send(&r, req);
}

void route_tunnel_list(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct reply r;
    (void)call;
    reply_begin(&r);
    json_put_key(&r.w, "tunnels");
    json_array_begin(&r.w);
    list_for_each(i, &a->cloudflareds)
    {
        const struct cloudflared *t = list_entry(i, struct cloudflared, link);
        if (t->run_id || t->state != CLOUDFLARED_READY)
            continue;
        json_object_begin(&r.w);
        put_tunnel(&r.w, t);
        json_object_end(&r.w);
    }
    json_array_end(&r.w);
    reply_send(&r, req);
}
