/* SPDX-License-Identifier: Apache-2.0 */
/* docker_agent.c: requests that the agent of a container answers: they are passed on whole, and its answer
 * back.
 *
 * A container that does not run is woken without its main program: files can be put into one that was only
 * created, and taken from one that has ended. */
#include "gateway/docker_internal.h"

#include <string.h>

struct passing {
    struct docker_request *r;
    struct container *container;
    struct sandbox_use use;
};

static void passing_free(struct passing *x)
{
    lifecycle_leave(&x->use);
    free(x);
}

static void caller_gone(struct http_request *req)
{
    passing_free(req->user);
}

static void ready(struct sandbox_use *u)
{
    struct passing *x = container_of(u, struct passing, use);
    struct docker_request *r = x->r;
    char id[SANDBOX_ID_MAX + 1];
    memcpy(id, u->sandbox->id, sizeof id);
    struct route_match m = {.id = id, .target = r->target};
    r->req->on_gone = NULL;
    proxy_request(r->docker->g, r->req, &m); /* holds the sandbox itself */
    passing_free(x);
}

static void failed(struct sandbox_use *u, const struct problem *p)
{
    struct passing *x = container_of(u, struct passing, use);
    struct http_request *req = x->r->req;
    passing_free(x);
    http_response_close_after(req);
    docker_reply_problem(req, p);
}

void docker_pass_on(struct docker_request *r, struct container *c, const char *target, bool must_run)
{
    struct problem p;
    if (c->is_sidecar || c->status == CONTAINER_REMOVING || (must_run && c->status != CONTAINER_RUNNING)) {
        http_response_close_after(r->req);
        docker_reply_error(r->req, 409, "container %s is not running", c->name);
        return;
    }
    struct passing *x = calloc(1, sizeof *x);
    r->target = strdup(target);
    if (!x || !r->target || container_sandbox_make(c, &p) < 0) {
        http_response_close_after(r->req);
        if (!x || !r->target)
            docker_reply_error(r->req, 500, "out of memory");
        else
            docker_reply_problem(r->req, &p);
        free(x);
        return;
    }
    x->r = r;
    x->use.ready = ready;
    x->use.failed = failed;
    x->use.by_engine = !must_run;
    r->req->user = x;
    r->req->on_gone = caller_gone;
    lifecycle_use(r->docker->g->lifecycle, c->sandbox, &x->use);
}
