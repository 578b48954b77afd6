/* SPDX-License-Identifier: Apache-2.0 */
/* api_sandbox.c: GET, PUT and DELETE /v1/sandbox/{id}. */
#include "gateway/body_json.h"
#include "gateway/gateway_internal.h"
#include "gateway/reply.h"
#include "gateway/sandbox_json.h"
#include "gateway/user_check.h"

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
        reply_sandbox(op->req, 200, sb, op->g->images);
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
        reply_sandbox(req, 200, sb, g->images);
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
    struct network_wait network;
    struct sandbox_wait destroy;
    bool in_destroy; /* op must stay until destroy.done */
    bool existed;
    bool running; /* what was asked for runs; only its row is waited for */
    bool admin;
    struct user_check *check; /* the agent is being asked about the user */
    bool checked, refused;    /* refused: it is being removed again, because of p */
    struct problem p;
};

static void put_free(struct put *op)
{
    json_free(op->doc);
    user_check_forget(op->check);
    sandbox_commit_cancel(&op->commit);
    network_wait_cancel(&op->network);
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
    struct problem copy = *p; /* it may be op's own */
    char id[SANDBOX_ID_MAX + 1];
    memcpy(id, op->id, sizeof id);
    put_free(op);
    reply_problem(req, id, &copy);
}

static void put_committed(struct sandbox_commit *c, const struct problem *p);

/* A new sandbox in which nothing can be run is not left behind. */
static void put_user_checked(void *arg, bool ok)
{
    struct put *op = arg;
    struct sandbox *sb = op->use.sandbox;
    op->check = NULL;
    if (ok) {
        put_committed(&op->commit, NULL);
        return;
    }
    (void)problem_set(&op->p, 400, "USER_NOT_FOUND", "the image has no user or group '%s'",
                      sb->config.settings.user);
    if (op->existed) {
        put_refuse(op, &op->p);
        return;
    }
    lifecycle_leave(&op->use);
    op->refused = op->in_destroy = lifecycle_destroy(op->g->lifecycle, op->id, &op->destroy);
    if (!op->refused)
        put_refuse(op, &op->p);
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
    if (sb->config.settings.user && !op->checked) {
        op->checked = true;
        op->check = user_check_start(op->g->loop, op->g->link, op->id, put_user_checked, op);
        if (op->check)
            return;
    }
    network_follow(op->g->networks, sb, &op->network);
}

/* What runs has the network that was asked for. */
static void put_connected(struct network_wait *w, const struct problem *p)
{
    struct put *op = container_of(w, struct put, network);
    struct sandbox *sb = op->use.sandbox;
    if (p) {
        put_refuse(op, p);
        return;
    }
    lifecycle_leave(&op->use); /* this request does not count as one that runs inside */
    reply_sandbox(op->req, op->existed ? 200 : 201, sb, op->g->images);
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
    else if (op->refused)
        put_refuse(op, &op->p);
    else if (p)
        put_refuse(op, p);
    else
        put_try(op);
}

/* Volumes are the operator's: who may only make sandboxes does not reach what others keep there. */
static int put_volumes(const struct put *op, const struct sandbox_config *config,
                       const struct sandbox_config *base, struct problem *p)
{
    const char *now = config->settings.volumes, *before = base->settings.volumes;
    if (!now || (before && strcmp(now, before) == 0))
        return 0;
    if (!op->admin)
        return problem_set(p, 403, "FORBIDDEN", "only an admin token may give a sandbox volumes");
    return volumes_check(op->g->volumes, &config->settings, p);
}

/* What mode `public` keeps closed is the operator's to open. */
static int put_network(const struct put *op, const struct sandbox *sb, const struct sandbox_config *config,
                       const struct sandbox_config *base, struct problem *p)
{
    bool wants =
        config->reach.network == KEEPER_NETWORK_PUBLIC || config->reach.network == KEEPER_NETWORK_ALLOWLIST;
    if (sandbox_reach_equal(&config->reach, &base->reach))
        return 0;
    if (!op->admin && sandbox_reach_opens_private(&config->reach, &base->reach))
        return problem_set(p, 403, "FORBIDDEN", "only an admin token may allow private networks");
    if (sb && base->reach.network == KEEPER_NETWORK_SIDECAR)
        return problem_set(p, 409, "SANDBOX_EXISTS", "the network of a container is its engine's to decide");
    if (sb && wants && !lifecycle_has_network(op->g->lifecycle))
        return problem_set(p, 422, "NETWORK_UNAVAILABLE", "this daemon gives sandboxes no network");
    return 0;
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
    if (r == 0 && op->doc)
        r = images_apply(op->g->images, json_root(op->doc), config.image, p);
    if (r == 0)
        r = put_volumes(op, &config, base, p);
    if (r == 0)
        r = put_network(op, sb, &config, base, p);
    if (r == 0 && sb && !sandbox_config_same_machine(&config, base))
        r = problem_set(
            p, 409, "SANDBOX_EXISTS",
            "the image and the limits of an existing sandbox cannot change, except for those of its "
            "network; delete it first");
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
    bool empty = err == 0 && buf_len(body) == 0;
    int r = empty ? 0 : body_json(body, err, PUT_BODY_MAX, &op->doc, &p);
    if (r == -EINVAL)
        put_refuse(op, &p);
    else if (r == 0)
        put_try(op);
    /* otherwise the server has answered, put_gone follows */
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
    op->admin = m->who.scope == AUTH_SCOPE_ADMIN;
    op->commit.done = put_committed;
    op->network.done = put_connected;
    op->destroy.done = put_destroyed;
    (void)snprintf(op->id, sizeof op->id, "%s", m->id);
    req->user = op;
    req->on_gone = put_gone;
    http_request_collect(req, PUT_BODY_MAX, put_body);
}
