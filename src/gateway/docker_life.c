/* SPDX-License-Identifier: Apache-2.0 */
/* docker_life.c: the life of a container.
 *
 *   CREATED     a row; perhaps files           STARTING (start), REMOVING
 *   STARTING    docker_run.c works             RUNNING, EXITED (it could not be started), REMOVING
 *   RUNNING     its main program runs          EXITED, RESTARTING (it failed, and its policy says so),
 * REMOVING RESTARTING  waits for the next attempt     STARTING, EXITED (killed or stopped meanwhile),
 * REMOVING EXITED      files and exit code are kept   STARTING, REMOVING REMOVING    its sandbox is being
 * destroyed
 *
 * A start is answered when the row says that it runs, a removal when sandbox and row are gone: whoever hears
 * of one of them finds it so after any crash. */
#include "gateway/docker_internal.h"
#include "base/clock.h"
#include "base/log.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { RESTART_MS = 100, RESTART_MAX_MS = 60000, STEADY_MS = 10000, SETTLE_MS = 250, NOT_STARTED = 127 };

static struct loop *loop_of(const struct container *c)
{
    return c->docker->g->loop;
}

/* ------------------------------------------------------------------ who waits */

static void want_add(struct container_want **list, struct container_want *w)
{
    w->next = *list;
    w->prev = list;
    if (w->next)
        w->next->prev = &w->next;
    *list = w;
}

void container_want_cancel(struct container_want *w)
{
    if (!w->prev)
        return;
    *w->prev = w->next;
    if (w->next)
        w->next->prev = w->prev;
    w->prev = NULL;
}

static void wants_finish(struct container_want **list, const struct problem *p)
{
    while (*list) {
        struct container_want *w = *list;
        container_want_cancel(w);
        w->done(w, p);
    }
}

void container_life_stop(struct container *c)
{
    container_run_cancel(c);
    container_farewell_free(c);
    loop_timer_stop(loop_of(c), &c->restart);
    loop_timer_stop(loop_of(c), &c->deadline);
}

/* ------------------------------------------------------------------ start */

static void start_saved(void *arg, uint64_t ticket, int err)
{
    struct container *c = arg;
    struct problem p;
    (void)ticket;
    if (err < 0)
        (void)problem_set(&p, 500, "STATE_NOT_SAVED", "the container's state could not be written to disk");
    wants_finish(&c->starts, err < 0 ? &p : NULL);
}

void container_run_done(struct container *c, const struct problem *p)
{
    if (p) {
        log_warn("container %s: %s", c->name, p->message);
        c->status = CONTAINER_EXITED;
        c->exit_code = NOT_STARTED;
        c->finished_ms = clock_wall_ms();
        docker_waits_ended(c, c->exit_code);
        container_save(c, NULL, NULL);
        wants_finish(&c->starts, p);
        wants_finish(&c->stops, NULL);
        return;
    }
    c->status = CONTAINER_RUNNING;
    c->started_ms = clock_wall_ms();
    container_save(c, start_saved, c);
}

static void begin(struct container *c)
{
    loop_timer_stop(loop_of(c), &c->restart);
    c->status = CONTAINER_STARTING;
    c->stop_wanted = false;
    container_run_begin(c);
}

static void sidecar_started(struct container *c, const struct problem *p)
{
    container_run_done(c, p);
}

void container_start(struct container *c, struct container_want *w)
{
    struct problem p;
    if (c->status == CONTAINER_REMOVING) {
        (void)problem_set(&p, 409, "REMOVING", "container %s is being removed", c->name);
        w->done(w, &p);
        return;
    }
    if (c->status == CONTAINER_RUNNING && !c->starts) {
        w->done(w, NULL);
        return;
    }
    want_add(&c->starts, w);
    if (c->status == CONTAINER_STARTING || c->status == CONTAINER_RUNNING)
        return;
    c->restarts = 0;
    if (c->is_sidecar) {
        c->status = CONTAINER_STARTING;
        sidecar_start(c, sidecar_started);
    } else {
        begin(c);
    }
}

/* ------------------------------------------------------------------ its end */

static const struct json_value *restart_policy(const struct container *c)
{
    return json_get(json_get(json_root(c->doc), "HostConfig"), "RestartPolicy");
}

static bool restarts_always(const struct container *c)
{
    const char *name = json_string(json_get(restart_policy(c), "Name"), NULL);
    return name && (strcmp(name, "always") == 0 || strcmp(name, "unless-stopped") == 0);
}

static bool restarts_again(const struct container *c, int code)
{
    const char *name = json_string(json_get(restart_policy(c), "Name"), NULL);
    int64_t limit = 0;
    (void)json_integer(json_get(restart_policy(c), "MaximumRetryCount"), 0, INT32_MAX, &limit);
    if (c->stop_wanted || !name)
        return false;
    if (strcmp(name, "on-failure") == 0)
        return code != 0 && (limit == 0 || c->restarts < limit);
    return restarts_always(c);
}

static void restart_fired(struct timer *t)
{
    begin(container_of(t, struct container, restart));
}

static void restart_later(struct container *c)
{
    if (c->finished_ms - c->started_ms >= STEADY_MS)
        c->restarts = 0;
    unsigned doublings = MIN(c->restarts, 10u);
    int64_t delay = MIN((int64_t)RESTART_MS << doublings, (int64_t)RESTART_MAX_MS);
    c->restarts++;
    c->status = CONTAINER_RESTARTING;
    loop_timer_start(loop_of(c), &c->restart, delay, restart_fired);
}

void container_ended(struct container *c, int code)
{
    struct container *sidecar = container_sidecar(c);
    if (container_run_ended(c, code) || c->status != CONTAINER_RUNNING)
        return; /* without a main program, or not a word about this life */
    log_info("container %s ended with %d", c->name, code);
    c->exit_code = code;
    c->finished_ms = clock_wall_ms();
    loop_timer_stop(loop_of(c), &c->deadline);
    docker_exec_sandbox_ended(c->docker, c->sandbox);
    if (sidecar)
        sidecar_detach(sidecar);
    if (restarts_again(c, code))
        restart_later(c);
    else
        c->status = CONTAINER_EXITED;
    docker_waits_ended(c, code);
    container_save(c, NULL, NULL);
    wants_finish(&c->stops, NULL);
}

static void killed(struct sandbox_wait *w, const struct problem *p)
{
    struct container *c = container_of(w, struct container, killing);
    (void)p; /* there is none: so it does not run */
    container_ended(c, 128 + SIGKILL);
    c->killing_pending = false;
    if (c->status != CONTAINER_REMOVING)
        wants_finish(&c->stops, NULL);
    else
        container_destroy(c);
}

void container_kill(struct container *c, struct container_want *w)
{
    struct lifecycle *lc = c->docker->g->lifecycle;
    c->stop_wanted = true;
    if (w)
        want_add(&c->stops, w);
    if (c->status == CONTAINER_RESTARTING) { /* nothing runs: it only stays so */
        loop_timer_stop(loop_of(c), &c->restart);
        c->status = CONTAINER_EXITED;
        container_save(c, NULL, NULL);
    }
    if (c->is_sidecar && c->status == CONTAINER_RUNNING) {
        sidecar_stop(c);
        container_ended(c, 128 + SIGKILL);
    }
    if (c->status !=
        CONTAINER_RUNNING) { /* a start goes on; whoever asked for it can end it when it is done */
        wants_finish(&c->stops, NULL);
        return;
    }
    if (c->killing_pending)
        return;
    c->killing.done = killed;
    c->killing_pending = true;
    if (!lifecycle_kill(lc, c->sandbox, &c->killing))
        killed(&c->killing, NULL);
}

void container_stop_wait(struct container *c, struct container_want *w)
{
    want_add(&c->stops, w);
}

/* ------------------------------------------------------------------ removal */

static void row_deleted(void *arg, uint64_t ticket, int err)
{
    struct container *c = arg;
    struct container_want *removals;
    struct problem p;
    (void)ticket;
    if (err < 0) {
        c->status = CONTAINER_EXITED;
        (void)problem_set(&p, 500, "STATE_NOT_SAVED", "the container's record stays on disk");
        wants_finish(&c->removals, &p);
        return;
    }
    docker_waits_removed(c);
    removals = take_ptr(c->removals);
    if (removals)
        removals->prev = &removals; /* the name is free before anybody hears of it */
    container_free(c);
    wants_finish(&removals, NULL);
}

static void settled(struct timer *t)
{
    struct container *c = container_of(t, struct container, deadline);
    (void)store_delete_container(c->docker->g->store, c->id, row_deleted, c);
}

static void destroyed(struct sandbox_wait *w, const struct problem *p)
{
    struct container *c = container_of(w, struct container, destroying);
    if (p) {
        c->status = CONTAINER_EXITED;
        wants_finish(&c->removals, p);
        return;
    }
    /* those who wait for its end hear of it first, and have a moment to clean up after it */
    if (docker_waits_hurry(c))
        loop_timer_start(loop_of(c), &c->deadline, SETTLE_MS, settled);
    else
        settled(&c->deadline);
}

void container_destroy(struct container *c)
{
    if (c->killing_pending)
        return; /* its end comes back here */
    c->destroying.done = destroyed;
    if (c->is_sidecar || !lifecycle_destroy(c->docker->g->lifecycle, c->sandbox, &c->destroying))
        destroyed(&c->destroying, NULL);
}

void container_remove(struct container *c, struct container_want *w)
{
    struct problem p;
    if (w)
        want_add(&c->removals, w);
    if (c->status == CONTAINER_REMOVING)
        return;
    c->stop_wanted = true;
    container_life_stop(c);
    if (c->is_sidecar)
        sidecar_stop(c);
    if (c->status == CONTAINER_STARTING) {
        c->exit_code = 128 + SIGKILL;
        docker_waits_ended(c, c->exit_code);
    }
    container_ended(c, 128 + SIGKILL);
    c->status = CONTAINER_REMOVING;
    (void)problem_set(&p, 409, "REMOVING", "container %s is being removed", c->name);
    wants_finish(&c->starts, &p);
    wants_finish(&c->stops, NULL);
    container_destroy(c);
}

/* ------------------------------------------------------------------ after a restart of the gateway */

void container_take_up(struct container *c)
{
    struct sandbox *sb = lifecycle_find(c->docker->g->lifecycle, c->sandbox);
    bool alive = sb && (sb->state == SANDBOX_RUNNING || sb->state == SANDBOX_FROZEN);
    if (sb)
        sb->is_container = true;
    switch (c->status) {
    case CONTAINER_RUNNING:
        if (!sb) { /* its removal was half done */
            container_remove(c, NULL);
        } else if (!alive) {
            c->stop_wanted = !restarts_always(c); /* a failure that nobody saw is not made good */
            container_ended(c, (int)sb->exit_code);
        }
        break;
    case CONTAINER_RESTARTING:
        begin(c);
        break;
    case CONTAINER_REMOVING:
        c->status = CONTAINER_EXITED;
        container_remove(c, NULL);
        break;
    default:
        break;
    }
}
