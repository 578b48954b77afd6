/* SPDX-License-Identifier: Apache-2.0 */
/* docker_control.c: requests that change a container: start, stop, kill, restart, rename, remove. */
#include "gateway/docker_call.h"
#include "gateway/docker_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { STOP_MAX_S = 24 * 3600 };

/* One request that waits for a container. */
struct control {
    struct docker *docker;
    struct http_request *req; /* NULL: the caller is gone */
    char id[CONTAINER_ID_CHARS + 1];
    int status; /* of the answer, when all went well */
    bool start_again;
    struct container_want want;
    struct sandbox_use use;
    struct docker_call call;
    char target[64];
};

static struct control *control_new(struct docker_request *r, const struct container *c, int status);

static void control_free(struct control *x)
{
    container_want_cancel(&x->want);
    docker_call_cancel(&x->call);
    lifecycle_leave(&x->use);
    free(x);
}

static void control_gone(struct http_request *req)
{
    control_free(req->user); /* what was asked for happens all the same */
}

static void control_done(struct container_want *w, const struct problem *p)
{
    struct control *x = container_of(w, struct control, want);
    struct http_request *req = x->req;
    int status = x->status;
    struct container *c = x->start_again && !p ? docker_find(x->docker, x->id) : NULL;
    if (c) {
        x->start_again = false;
        container_start(c, &x->want);
        return;
    }
    control_free(x);
    if (p)
        docker_reply_problem(req, p);
    else
        docker_reply_empty(req, status);
}

static struct control *control_new(struct docker_request *r, const struct container *c, int status)
{
    struct control *x = calloc(1, sizeof *x);
    if (!x) {
        docker_reply_error(r->req, 500, "out of memory");
        return NULL;
    }
    x->docker = r->docker;
    x->req = r->req;
    x->status = status;
    memcpy(x->id, c->id, sizeof x->id);
    x->want.done = control_done;
    r->req->user = x;
    r->req->on_gone = control_gone;
    return x;
}

/* ------------------------------------------------------------------ start */

static void start(struct docker_request *r, struct container *c)
{
    if (c->status == CONTAINER_RUNNING && !c->starts) {
        docker_reply_empty(r->req, 304);
        return;
    }
    struct control *x = control_new(r, c, 204);
    if (x)
        container_start(c, &x->want);
}

/* ------------------------------------------------------------------ signals */

static void signalled(struct docker_call *k, int err, int status, const char *body, size_t n)
{
    struct control *x = container_of(k, struct control, call);
    struct http_request *req = x->req;
    (void)body;
    (void)n;
    control_free(x);
    if (!err && status == 204)
        docker_reply_empty(req, 204);
    else
        docker_reply_error(req, 409, "the container is not running"); /* it ended meanwhile */
}

static void signal_ready(struct sandbox_use *u)
{
    struct control *x = container_of(u, struct control, use);
    struct buf none = BUF_INIT(0);
    docker_call_start(&x->call, u->sandbox, x->target, &none, signalled);
}

static void signal_failed(struct sandbox_use *u, const struct problem *p)
{
    struct control *x = container_of(u, struct control, use);
    (void)p;
    signalled(&x->call, -ECONNRESET, 0, NULL, 0);
}

static void signal_send(struct control *x, const struct container *c, int number)
{
    (void)snprintf(x->target, sizeof x->target, "/container/signal?n=%d", number);
    x->use.ready = signal_ready;
    x->use.failed = signal_failed; /* without by_engine: one that has ended is not started for this */
    lifecycle_use(c->docker->g->lifecycle, c->sandbox, &x->use);
}

static void kill_request(struct docker_request *r, struct container *c)
{
    char text[32] = "SIGKILL";
    (void)http_query_get(r->req->query, "signal", text, sizeof text);
    int number = docker_signal(text);
    if (!number) {
        docker_reply_error(r->req, 400, "there is no signal '%s'", text);
        return;
    }
    if (c->status == CONTAINER_RESTARTING) { /* nothing there to hit; but nothing comes again, either */
        container_kill(c, NULL);
        docker_reply_empty(r->req, 204);
        return;
    }
    if (c->status != CONTAINER_RUNNING) {
        docker_reply_error(r->req, 409, "container %s is not running", c->name);
        return;
    }
    struct control *x = control_new(r, c, 204);
    if (!x)
        return;
    c->stop_wanted = true;
    if (number == SIGKILL || c->is_sidecar)
        container_kill(c, &x->want);
    else
        signal_send(x, c, number);
}

/* ------------------------------------------------------------------ stop */

/* Nobody waits for the answer to a stop's signal. */
struct farewell {
    struct container *container;
    struct sandbox_use use;
    struct docker_call call;
};

void container_farewell_free(struct container *c)
{
    struct farewell *f = take_ptr(c->farewell);
    if (!f)
        return;
    docker_call_cancel(&f->call);
    lifecycle_leave(&f->use);
    free(f);
}

static void farewell_said(struct docker_call *k, int err, int status, const char *body, size_t n)
{
    (void)err;
    (void)status;
    (void)body;
    (void)n;
    container_farewell_free(container_of(k, struct farewell, call)->container);
}

static void farewell_ready(struct sandbox_use *u)
{
    struct farewell *f = container_of(u, struct farewell, use);
    struct buf none = BUF_INIT(0);
    docker_call_start(&f->call, u->sandbox, "/container/signal?n=15", &none, farewell_said);
}

static void farewell_failed(struct sandbox_use *u, const struct problem *p)
{
    (void)p;
    container_farewell_free(container_of(u, struct farewell, use)->container);
}

/* False: out of memory. */
static bool farewell_say(struct container *c)
{
    if (c->farewell)
        return true;
    struct farewell *f = c->farewell = calloc(1, sizeof *f);
    if (!f)
        return false;
    f->container = c;
    f->use.ready = farewell_ready;
    f->use.failed = farewell_failed;
    lifecycle_use(c->docker->g->lifecycle, c->sandbox, &f->use);
    return true;
}

static void too_late(struct timer *t)
{
    container_kill(container_of(t, struct container, deadline), NULL);
}

static int64_t stop_seconds(struct docker_request *r, const struct container *c)
{
    int64_t seconds = DOCKER_STOP_S;
    char text[16], *end;
    (void)json_integer(json_get(json_root(c->doc), "StopTimeout"), 0, STOP_MAX_S, &seconds);
    if (http_query_get(r->req->query, "t", text, sizeof text)) {
        long n = strtol(text, &end, 10);
        if (*text && !*end && n >= 0)
            seconds = MIN((int64_t)n, (int64_t)STOP_MAX_S);
    }
    return seconds;
}

static void stop(struct docker_request *r, struct container *c, struct control *x)
{
    if (c->status != CONTAINER_RUNNING || c->is_sidecar || !farewell_say(c)) {
        container_kill(c, &x->want);
        return;
    }
    c->stop_wanted = true;
    container_stop_wait(c, &x->want);
    if (!loop_timer_running(&c->deadline))
        loop_timer_start(c->docker->g->loop, &c->deadline, stop_seconds(r, c) * 1000, too_late);
}

static void stop_request(struct docker_request *r, struct container *c)
{
    if (c->status != CONTAINER_RUNNING && c->status != CONTAINER_RESTARTING) {
        docker_reply_empty(r->req, 304);
        return;
    }
    struct control *x = control_new(r, c, 204);
    if (x)
        stop(r, c, x);
}

static void restart_request(struct docker_request *r, struct container *c)
{
    struct control *x = control_new(r, c, 204);
    if (!x)
        return;
    x->start_again = c->status == CONTAINER_RUNNING || c->status == CONTAINER_RESTARTING;
    if (x->start_again)
        stop(r, c, x);
    else
        container_start(c, &x->want);
}

/* ------------------------------------------------------------------ the rest */

static bool query_true(const struct http_request *req, const char *name)
{
    char text[8];
    return http_query_get(req->query, name, text, sizeof text) &&
           (strcmp(text, "1") == 0 || strcmp(text, "true") == 0);
}

static void remove_request(struct docker_request *r, struct container *c)
{
    bool runs = c->status == CONTAINER_RUNNING || c->status == CONTAINER_STARTING ||
                c->status == CONTAINER_RESTARTING;
    if (runs && !query_true(r->req, "force")) {
        docker_reply_error(r->req, 409,
                           "container %s is running: stop it before the removal, or force the removal",
                           c->name);
        return;
    }
    struct control *x = control_new(r, c, 204);
    if (x)
        container_remove(c, &x->want);
}

static void rename_request(struct docker_request *r, struct container *c)
{
    char name[DOCKER_NAME_MAX + 1] = "";
    (void)http_query_get(r->req->query, "name", name, sizeof name);
    if (!docker_name_ok(name)) {
        docker_reply_error(r->req, 400, "a container's name is 1 to %d letters, digits, '_', '.' and '-'",
                           DOCKER_NAME_MAX);
    } else if (docker_find(r->docker, name)) {
        docker_reply_error(r->req, 409, "the name \"/%s\" is already in use", name);
    } else {
        char *copy = strdup(name);
        if (!copy) {
            docker_reply_error(r->req, 500, "out of memory");
            return;
        }
        free(c->name);
        c->name = copy;
        container_save(c, NULL, NULL);
        docker_reply_empty(r->req, 204);
    }
}

void docker_control_request(struct docker_request *r, struct container *c)
{
    static const struct {
        const char *method, *action;
        void (*handle)(struct docker_request *r, struct container *c);
    } actions[] = {
        {"POST", "/start", start},           {"POST", "/kill", kill_request},
        {"POST", "/stop", stop_request},     {"POST", "/restart", restart_request},
        {"POST", "/rename", rename_request}, {"DELETE", "", remove_request},
    };
    for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
        if (strcmp(r->method, actions[i].method) == 0 && strcmp(r->action, actions[i].action) == 0) {
            actions[i].handle(r, c);
            return;
        }
    docker_reply_error(r->req, 404, "page not found");
}
