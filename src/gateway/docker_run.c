/* SPDX-License-Identifier: Apache-2.0 */
/* docker_run.c: what a container's start consists of: its sandbox runs, both its records are on disk, its
 * sidecar has the sockets inside it, and the agent has started the main program. */
#include "gateway/docker_call.h"
#include "gateway/docker_internal.h"

#include <errno.h>
#include <string.h>

struct container_run {
    struct container *container;
    struct sandbox_use use;
    struct sandbox_commit commit;
    struct docker_call call;
    bool ended; /* before it was done ... */
    int code;   /* ... with this */
};

void container_run_cancel(struct container *c)
{
    struct container_run *run = take_ptr(c->run);
    if (!run)
        return;
    docker_call_cancel(&run->call);
    sandbox_commit_cancel(&run->commit);
    lifecycle_leave(&run->use);
    free(run);
}

static void run_finish(struct container_run *run, const struct problem *p)
{
    struct container *c = run->container;
    bool ended = run->ended;
    int code = run->code;
    container_run_cancel(c);
    container_run_done(c, p);
    if (ended && !p)
        container_ended(c, code);
}

bool container_run_ended(struct container *c, int code)
{
    if (!c->run)
        return false;
    c->run->ended = true;
    c->run->code = code;
    return true;
}

/* The agent's own words, when it has any. */
static void refused(struct container_run *run, int status, const char *body, size_t n)
{
    struct problem p;
    struct error e;
    auto_free char *text = n ? strndup(body, n) : NULL;
    auto_json struct json_doc *doc = NULL;
    const char *why = NULL;
    if (text && json_parse(text, n, 0, &doc, &e) == 0)
        why = json_string(json_get(json_root(doc), "message"), NULL);
    (void)problem_set(&p, status == 400 ? 400 : 500, "START_FAILED", "%s",
                      why ? why : "the container could not be started");
    run_finish(run, &p);
}

static void called(struct docker_call *k, int err, int status, const char *body, size_t n)
{
    struct container_run *run = container_of(k, struct container_run, call);
    struct problem p;
    if (err < 0) {
        (void)problem_set(&p, 500, "START_FAILED", "the container ended before its program was started");
        run_finish(run, &p);
    } else if (status != 200) {
        refused(run, status, body, n);
    } else {
        run_finish(run, NULL);
    }
}

static void attached(void *arg, int err)
{
    struct container *c = arg;
    struct container_run *run = c->run;
    struct problem p;
    struct buf body = BUF_INIT(DOCKER_BODY_MAX);
    if (err < 0 || container_start_body(c, &body) < 0) {
        buf_done(&body);
        (void)problem_set(&p, 500, "START_FAILED",
                          err < 0 ? "the container's network could not be set up: %s" : "out of memory",
                          strerror(-err));
        run_finish(run, &p);
        return;
    }
    docker_call_start(&run->call, run->use.sandbox, "/container/start", &body, called);
}

static void committed(struct sandbox_commit *commit, const struct problem *p)
{
    struct container_run *run = container_of(commit, struct container_run, commit);
    struct container *c = run->container, *sidecar = container_sidecar(c);
    if (p)
        run_finish(run, p);
    else if (sidecar)
        sidecar_attach(sidecar, c->sandbox, attached, c);
    else
        attached(c, 0);
}

static void ready(struct sandbox_use *u)
{
    struct container_run *run = container_of(u, struct container_run, use);
    sandbox_commit_wait(u->sandbox, &run->commit);
}

static void failed(struct sandbox_use *u, const struct problem *p)
{
    run_finish(container_of(u, struct container_run, use), p);
}

int container_sandbox_make(struct container *c, struct problem *p)
{
    struct lifecycle *lc = c->docker->g->lifecycle;
    struct sandbox_config config;
    struct sandbox *sb = lifecycle_find(lc, c->sandbox);
    if (sb)
        return 0;
    int r = container_sandbox_config(c, &config, p);
    if (r < 0)
        return r;
    sb = lifecycle_create(lc, c->sandbox, &config);
    sandbox_config_done(&config);
    if (!sb)
        return problem_set(p, 429, "HOST_FULL", "there are too many sandboxes");
    sb->is_container = true;
    return 0;
}

void container_run_begin(struct container *c)
{
    struct problem p;
    struct container_run *run = calloc(1, sizeof *run);
    if (!run) {
        (void)problem_set(&p, 500, "INTERNAL_ERROR", "out of memory");
        container_run_done(c, &p);
        return;
    }
    c->run = run;
    run->container = c;
    run->use.ready = ready;
    run->use.failed = failed;
    run->use.by_engine = true;
    run->commit.done = committed;
    if (container_sandbox_make(c, &p) < 0)
        run_finish(run, &p);
    else
        lifecycle_use(c->docker->g->lifecycle, c->sandbox, &run->use);
}
