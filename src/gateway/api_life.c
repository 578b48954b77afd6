/* SPDX-License-Identifier: Apache-2.0 */
/* api_life.c: POST /v1/sandbox/{id}/sleep and /wake: what idleness and requests do by themselves, on demand.
 *
 * sleep ends every process politely, also those of requests in flight, and keeps the files; of an ephemeral
 * sandbox only the settings stay. wake starts or thaws. Both answer with the sandbox when it is so, both are
 * fine when it was so before. */
#include "gateway/gateway_internal.h"
#include "gateway/reply.h"
#include "gateway/sandbox_json.h"

#include <stdio.h>
#include <string.h>

struct life {
    struct gateway *g;
    struct http_request *req; /* NULL: the caller is gone */
    char id[SANDBOX_ID_MAX + 1];
    struct sandbox_wait sleep;
    struct sandbox_use use;
    struct sandbox_commit commit;
};

static void reply_not_found(struct http_request *req, const char *id)
{
    struct problem p;
    (void)problem_set(&p, 404, "SANDBOX_NOT_FOUND", "there is no sandbox '%s'", id);
    reply_problem(req, id, &p);
}

static struct life *life_new(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    struct life *op = calloc(1, sizeof *op);
    if (!op) {
        reply_error(req, 500, "INTERNAL_ERROR", "out of memory");
        return NULL;
    }
    op->g = g;
    op->req = req;
    (void)snprintf(op->id, sizeof op->id, "%s", m->id);
    req->user = op;
    return op;
}

/* ------------------------------------------------------------------ sleep */

static void sleep_done(struct sandbox_wait *w, const struct problem *p)
{
    struct life *op = container_of(w, struct life, sleep);
    const struct sandbox *sb = lifecycle_find(op->g->lifecycle, op->id);
    if (op->req && p)
        reply_problem(op->req, op->id, p);
    else if (op->req && !sb)
        reply_not_found(op->req, op->id);
    else if (op->req)
        reply_sandbox(op->req, 200, sb, op->g->images);
    free(op);
}

static void sleep_gone(struct http_request *req)
{
    struct life *op = req->user;
    op->req = NULL;
}

void api_sandbox_sleep(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    struct life *op = life_new(g, req, m);
    if (!op)
        return;
    op->sleep.done = sleep_done;
    req->on_gone = sleep_gone;
    if (!lifecycle_sleep(g->lifecycle, op->id, &op->sleep)) {
        free(op);
        reply_not_found(req, m->id);
    }
}

/* ------------------------------------------------------------------ wake */

static void wake_free(struct life *op)
{
    sandbox_commit_cancel(&op->commit);
    lifecycle_leave(&op->use);
    free(op);
}

static void wake_gone(struct http_request *req)
{
    wake_free(req->user);
}

static void wake_failed(struct sandbox_use *u, const struct problem *p)
{
    struct life *op = container_of(u, struct life, use);
    struct http_request *req = op->req;
    char id[SANDBOX_ID_MAX + 1];
    memcpy(id, op->id, sizeof id);
    wake_free(op);
    reply_problem(req, id, p);
}

static void wake_committed(struct sandbox_commit *c, const struct problem *p)
{
    struct life *op = container_of(c, struct life, commit);
    if (p) {
        wake_failed(&op->use, p);
        return;
    }
    struct sandbox *sb = op->use.sandbox;
    lifecycle_leave(&op->use); /* this request does not count as one that runs inside */
    reply_sandbox(op->req, 200, sb, op->g->images);
    wake_free(op);
}

static void wake_ready(struct sandbox_use *u)
{
    struct life *op = container_of(u, struct life, use);
    sandbox_commit_wait(u->sandbox, &op->commit);
}

void api_sandbox_wake(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    const struct sandbox *sb = lifecycle_find(g->lifecycle, m->id);
    if (!sb || sandbox_is_going(sb)) { /* waking makes nothing new */
        reply_not_found(req, m->id);
        return;
    }
    struct life *op = life_new(g, req, m);
    if (!op)
        return;
    op->use.ready = wake_ready;
    op->use.failed = wake_failed;
    (void)snprintf(op->use.owner, sizeof op->use.owner, "%s", auth_owner(&m->who));
    op->commit.done = wake_committed;
    req->on_gone = wake_gone;
    lifecycle_use(g->lifecycle, op->id, &op->use);
}
