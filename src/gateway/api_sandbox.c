/* SPDX-License-Identifier: Apache-2.0 */
/* api_sandbox.c: GET, PUT and DELETE /v1/sandbox/{id}. */
#include "gateway/gateway_internal.h"
#include "gateway/reply.h"
#include "gateway/sandbox_json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { PUT_BODY_MAX = 1024 * 1024 };

static void reply_not_found(struct http_request *req, const char *id)
{
    struct problem p;
    (void)problem_set(&p, 404, "SANDBOX_NOT_FOUND", "there is no sandbox '%s'", id);
    reply_problem(req, id, &p);
}

/* ------------------------------------------------------------------ GET */

struct get {
    struct gateway *g;
    struct http_request *req; /* NULL: the caller is gone */
    char id[SANDBOX_ID_MAX + 1];
};

static void get_gone(struct http_request *req)
{
    struct get *op = req->user;
    op->req = NULL;
}

static void get_stats(void *arg, const struct keeper_reply *reply, int fd)
{
    struct get *op = arg;
    close_fd(&fd);
    struct sandbox *sb = lifecycle_find(op->g->lifecycle, op->id);
    if (sb && reply->error == 0)
        sb->usage = reply->usage;
    if (op->req && sb)
        reply_sandbox(op->req, 200, sb);
    else if (op->req)
        reply_not_found(op->req, op->id);
    free(op);
}

void api_sandbox_get(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    const struct sandbox *sb = lifecycle_find(g->lifecycle, m->id);
    if (!sb) {
        reply_not_found(req, m->id);
        return;
    }
    if (sb->state != SANDBOX_RUNNING && sb->state != SANDBOX_FROZEN) {
        reply_sandbox(req, 200, sb);
        return;
    }
    struct get *op = calloc(1, sizeof *op);
    if (!op) {
        reply_error(req, 500, "INTERNAL_ERROR", "out of memory");
        return;
    }
    op->g = g;
    op->req = req;
    (void)snprintf(op->id, sizeof op->id, "%s", m->id);
    req->user = op;
    req->on_gone = get_gone;
    struct keeper_request request = {.type = KEEPER_STATS};
    memcpy(request.id, op->id, sizeof request.id);
    keeper_link_send(g->link, &request, -1, get_stats, op);
}

/* ------------------------------------------------------------------ DELETE */

struct delete
{
    struct http_request *req; /* NULL: the caller is gone */
    struct sandbox_wait destroy;
    char id[SANDBOX_ID_MAX + 1];
};

static void delete_gone(struct http_request *req)
{
    struct delete *op = req->user;
    op->req = NULL;
}

static void reply_deleted(struct http_request *req, const char *id, bool existed)
{
    struct buf out = BUF_INIT(1024);
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_bool(&w, "success", true);
    json_member_string(&w, "id", id);
    json_member_bool(&w, "existed", existed);
    json_object_end(&w);
    reply_json(req, 200, &w);
}

static void delete_done(struct sandbox_wait *d, const struct problem *p)
{
    struct delete *op = container_of(d, struct delete, destroy);
    if (op->req && p)
        reply_problem(op->req, op->id, p);
    else if (op->req)
        reply_deleted(op->req, op->id, true);
    free(op);
}

void api_sandbox_delete(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    struct delete *op = calloc(1, sizeof *op);
    if (!op) {
        reply_error(req, 500, "INTERNAL_ERROR", "out of memory");
        return;
    }
    op->req = req;
    op->destroy.done = delete_done;
    (void)snprintf(op->id, sizeof op->id, "%s", m->id);
    req->user = op;
    req->on_gone = delete_gone;
    if (!lifecycle_destroy(g->lifecycle, op->id, &op->destroy)) {
        free(op);
        reply_deleted(req, m->id, false);
    }
}

/* ------------------------------------------------------------------ PUT */

struct put {
    struct gateway *g;
    struct http_request *req; /* NULL: the caller is gone */
    char id[SANDBOX_ID_MAX + 1];
    struct json_doc *doc; /* points into the request's body */
    struct sandbox_use use;
    struct sandbox_commit commit;
    struct sandbox_wait destroy;
    bool in_destroy; /* op must stay until destroy.done */
    bool existed;
    bool running; /* what was asked for runs; only its row is waited for */
};

static void put_free(struct put *op)
{
    json_free(op->doc);
    sandbox_commit_cancel(&op->commit);
    lifecycle_leave(&op->use);
    free(op);
}

static void put_gone(struct http_request *req)
{
    struct put *op = req->user;
    op->req = NULL;
    json_free(op->doc);
    op->doc = NULL;
    if (!op->in_destroy)
        put_free(op);
}

static void put_refuse(struct put *op, const struct problem *p)
{
    struct http_request *req = op->req;
    char id[SANDBOX_ID_MAX + 1];
    memcpy(id, op->id, sizeof id);
    put_free(op);
    reply_problem(req, id, p);
}

static void put_committed(struct sandbox_commit *c, const struct problem *p)
{
    struct put *op = container_of(c, struct put, commit);
    if (p) {
        put_refuse(op, p);
        return;
    }
    if (!op->running) { /* the change of an existing one is on disk */
        lifecycle_use(op->g->lifecycle, op->id, &op->use);
        return;
    }
    struct sandbox *sb = op->use.sandbox;
    lifecycle_leave(&op->use); /* this request does not count as one that runs inside */
    reply_sandbox(op->req, op->existed ? 200 : 201, sb);
    put_free(op);
}

static void put_ready(struct sandbox_use *u)
{
    struct put *op = container_of(u, struct put, use);
    op->running = true;
    sandbox_commit_wait(u->sandbox, &op->commit);
}

static void put_failed(struct sandbox_use *u, const struct problem *p)
{
    put_refuse(container_of(u, struct put, use), p);
}

static void put_try(struct put *op);

static void put_destroyed(struct sandbox_wait *d, const struct problem *p)
{
    struct put *op = container_of(d, struct put, destroy);
    op->in_destroy = false;
    if (!op->req)
        put_free(op);
    else if (p)
        put_refuse(op, p);
    else
        put_try(op);
}

/* Creates the sandbox or changes its configuration. 0, or -EINVAL and *p. */
static int put_apply(struct put *op, struct sandbox *sb, struct problem *p)
{
    struct lifecycle *lc = op->g->lifecycle;
    const struct sandbox_config *base = lifecycle_defaults(lc);
    struct sandbox_config config;
    if (sb)
        base = sb->has_next_config ? &sb->next_config : &sb->config;
    if (sandbox_config_copy(&config, base) < 0)
        return problem_set(p, 500, "INTERNAL_ERROR", "out of memory");

    int r = op->doc ? sandbox_config_apply(&config, json_root(op->doc), p) : 0;
    if (r == 0 && sb && !sandbox_config_same_machine(&config, base))
        r = problem_set(p, 409, "SANDBOX_EXISTS",
                        "the image, the limits and the network of an existing sandbox cannot change; "
                        "delete it first");
    else if (r == 0 && sb && !sandbox_config_equal(&config, base) && lifecycle_configure(sb, &config) < 0)
        r = problem_set(p, 500, "INTERNAL_ERROR", "out of memory");
    else if (r == 0 && !sb && !lifecycle_create(lc, op->id, &config))
        r = problem_set(p, 429, "HOST_FULL", "there are too many sandboxes");
    sandbox_config_done(&config);
    op->existed = sb != NULL;
    return r;
}

static void put_try(struct put *op)
{
    struct problem p;
    struct sandbox *sb = lifecycle_find(op->g->lifecycle, op->id);
    if (sb && sandbox_is_going(sb)) { /* what is asked for is the one after it */
        op->in_destroy = true;
        sandbox_destroy_wait(sb, &op->destroy);
        return;
    }
    if (sb && op->use.owner[0] && strcmp(op->use.owner, sb->owner) != 0) { /* somebody was quicker */
        (void)problem_set(&p, 404, "SANDBOX_NOT_FOUND", "there is no sandbox '%s'", op->id);
        put_refuse(op, &p);
        return;
    }
    if (put_apply(op, sb, &p) < 0)
        put_refuse(op, &p);
    else if (sb)
        sandbox_commit_wait(sb, &op->commit);
    else
        lifecycle_use(op->g->lifecycle, op->id, &op->use);
}

static void put_body(struct http_request *req, struct buf *body, int err)
{
    struct put *op = req->user;
    struct problem p;
    struct error e;
    if (err == -EMSGSIZE) {
        (void)problem_set(&p, 413, "PAYLOAD_TOO_LARGE", "the body is limited to %d bytes", PUT_BODY_MAX);
        put_refuse(op, &p);
        return;
    }
    if (err < 0)
        return; /* the server has answered, put_gone follows */
    if (buf_len(body) && json_parse(buf_data(body), buf_len(body), 0, &op->doc, &e) < 0) {
        (void)problem_set(&p, 400, "BAD_REQUEST", "the body is not JSON: %s", e.msg);
        put_refuse(op, &p);
        return;
    }
    put_try(op);
}

void api_sandbox_put(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    struct put *op = calloc(1, sizeof *op);
    if (!op) {
        reply_error(req, 500, "INTERNAL_ERROR", "out of memory");
        return;
    }
    op->g = g;
    op->req = req;
    op->use.ready = put_ready;
    op->use.failed = put_failed;
    (void)snprintf(op->use.owner, sizeof op->use.owner, "%s", auth_owner(&m->who));
    op->commit.done = put_committed;
    op->destroy.done = put_destroyed;
    (void)snprintf(op->id, sizeof op->id, "%s", m->id);
    req->user = op;
    req->on_gone = put_gone;
    http_request_collect(req, PUT_BODY_MAX, put_body);
}
