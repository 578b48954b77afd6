/* SPDX-License-Identifier: Apache-2.0 */
/* session_routes.c: session/create, session/list, session/delete. */
#include "agent/command_request.h"
#include "agent/reply.h"
#include "agent/routes.h"
#include "base/clock.h"
#include "base/id.h"

#include <stdio.h>
#include <string.h>

static void put_placement(struct agent *a, struct json_writer *w)
{
    json_member_string(w, "containerPlacementId", agent_getenv(a, "CLOUDFLARE_PLACEMENT_ID"));
}

/* ------------------------------------------------------------------ create */

struct create {
    struct session_creation creation;
    struct session_removal removal; /* release 0.3 replaces a session by creating it again */
    struct http_request *req;       /* NULL: the client is gone */
};

static void create_gone(struct http_request *req)
{
    struct create *c = req->user;
    c->req = NULL;
}

static void create_free(struct create *c)
{
    env_done(&c->creation.config.env);
    free(c->creation.config.cwd);
    free(c->creation.id);
    free(c);
}

static void created(struct session_creation *creation, const char *why)
{
    struct create *c = container_of(creation, struct create, creation);
    struct reply r;
    if (!c->req) {
        create_free(c);
        return;
    }
    if (why) {
        reply_error_begin(&r, creation->code ? creation->code : "INTERNAL_ERROR",
                          "Failed to create session '%s': %s", creation->id, why);
        json_member_string(&r.w, "sessionId", creation->id);
        json_member_string(&r.w, "originalError", why);
        reply_error_send(&r, c->req);
    } else {
        reply_begin(&r);
        json_member_string(&r.w, "id", creation->id);
        json_member_string(&r.w, "message", "Session created");
        json_put_key(&r.w, "data");
        json_object_begin(&r.w);
        json_member_string(&r.w, "id", creation->id);
        json_object_end(&r.w);
        put_placement(creation->agent, &r.w);
        reply_send(&r, c->req);
    }
    create_free(c);
}

static void replaced(struct session_removal *removal)
{
    struct create *c = container_of(removal, struct create, removal);
    session_create(c->creation.agent, c->creation.id, &c->creation);
}

static void generate_id(char out[64])
{
    char random[13];
    unsigned char bytes[6];
    random_bytes(bytes, sizeof bytes);
    hex_encode(random, bytes, sizeof bytes);
    (void)snprintf(out, 64, "session_%lld_%s", (long long)clock_wall_ms(), random);
}

void route_session_create(struct agent *a, struct http_request *req, struct route_call *call)
{
    char generated[64];
    struct reply r;
    const char *id = json_string(json_get(call->body, "id"), NULL);
    if (json_bool(json_get(call->body, "isolation"), false))
        a->legacy_03 = true;
    if (!id || !*id) {
        generate_id(generated);
        id = generated;
    }
    bool exists = session_state(a, id) == SESSION_ALIVE;
    if (exists && !a->legacy_03) {
        reply_error_begin(&r, "SESSION_ALREADY_EXISTS", "Session '%s' already exists", id);
        json_member_string(&r.w, "sessionId", id);
        put_placement(a, &r.w);
        reply_error_send(&r, req);
        return;
    }
    struct create *c = calloc(1, sizeof *c);
    if (c) {
        c->creation.agent = a;
        c->creation.created = created;
        c->creation.config.timeout_ms = -1;
        c->creation.id = strdup(id);
    }
    const char *cwd = json_string(json_get(call->body, "cwd"), NULL);
    if (!c || !c->creation.id || (cwd && !(c->creation.config.cwd = strdup(cwd))) ||
        env_from_json(&c->creation.config.env, json_get(call->body, "env"), NULL) < 0) {
        if (c)
            create_free(c);
        reply_error(req, "INTERNAL_ERROR", "Failed to create session: out of memory, or too many variables");
        return;
    }
    double ms;
    if (json_number(json_get(call->body, "commandTimeoutMs"), &ms) && ms >= 0 && ms < 1e12)
        c->creation.config.timeout_ms = (int64_t)ms;
    c->req = req;
    req->user = c;
    req->on_gone = create_gone;
    c->removal.removed = replaced;
    if (!exists || !session_remove(a, id, &c->removal))
        session_create(a, c->creation.id, &c->creation);
}

/* ------------------------------------------------------------------ list */

struct list_state {
    struct json_writer *w;
    size_t count;
};

static void put_id(const char *id, void *arg)
{
    struct list_state *l = arg;
    json_put_string(l->w, id);
    l->count++;
}

void route_session_list(struct agent *a, struct http_request *req, struct route_call *call)
{
    static const char *const keys[] = {"data", "sessions"};
    struct reply r;
    struct list_state l = {.w = &r.w};
    (void)call;
    reply_begin(&r);
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        l.count = 0;
        json_put_key(&r.w, keys[i]);
        json_array_begin(&r.w);
        session_list(a, put_id, &l);
        json_array_end(&r.w);
    }
    json_member_int(&r.w, "count", (int64_t)l.count);
    reply_send(&r, req);
}

/* ------------------------------------------------------------------ delete */

struct delete
{
    struct session_removal removal;
    struct http_request *req;
    char *id;
};

static void delete_gone(struct http_request *req)
{
    struct delete *d = req->user;
    d->req = NULL;
}

static void removed(struct session_removal *removal)
{
    struct delete *d = container_of(removal, struct delete, removal);
    struct reply r;
    if (d->req) {
        reply_begin(&r);
        json_member_string(&r.w, "sessionId", d->id);
        reply_send(&r, d->req);
    }
    free(d->id);
    free(d);
}

void route_session_delete(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct reply r;
    const char *id = json_string(json_get(call->body, "sessionId"), NULL);
    if (!id || !*id) {
        reply_error(req, "VALIDATION_FAILED", "sessionId is required");
        return;
    }
    struct delete *d = calloc(1, sizeof *d);
    if (!d || !(d->id = strdup(id))) {
        free(d);
        reply_error(req, "INTERNAL_ERROR", "out of memory");
        return;
    }
    d->req = req;
    req->user = d;
    req->on_gone = delete_gone;
    d->removal.removed = removed;
    if (session_remove(a, id, &d->removal))
        return;
    req->on_gone = NULL;
    reply_error_begin(&r, "INTERNAL_ERROR", "Failed to delete session '%s': Session not found", id);
    json_member_string(&r.w, "sessionId", id);
    json_member_string(&r.w, "originalError", "Session not found");
    reply_error_send(&r, req);
    free(d->id);
    free(d);
}
