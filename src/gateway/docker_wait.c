/* SPDX-License-Identifier: Apache-2.0 */
/* docker_wait.c: POST /containers/NAME/wait.
 *
 * A container's end is told LATE_MS after it, when every connection into it has been closed for a while:
 * clients take the answer for the moment from which on nothing of the old life reaches them, and clean up by
 * it. When it is being removed, its end is told as soon as it is there, and the removal SETTLE_MS later
 * (docker_life.c): a client that hears of the removal has cleaned up by then. */
#include "gateway/docker_internal.h"

#include <stdio.h>
#include <string.h>

enum { LATE_MS = 500 };

/* Answers to those who waited for one end; may outlive its container. */
struct docker_late {
    struct docker_late *next, **prev;
    struct docker *docker;
    struct container *container; /* NULL: it is gone, or has ended once more */
    struct docker_wait *waits;
    int code;
    struct timer timer;
};

static void wait_add(struct docker_wait **list, struct docker_wait *w)
{
    w->next = *list;
    w->prev = list;
    if (w->next)
        w->next->prev = &w->next;
    *list = w;
}

static void wait_del(struct docker_wait *w)
{
    *w->prev = w->next;
    if (w->next)
        w->next->prev = w->prev;
}

static void reply_code(struct http_request *req, int code)
{
    char answer[64];
    (void)snprintf(answer, sizeof answer, "{\"StatusCode\":%d}", code);
    http_respond(req, 200, "application/json", answer, strlen(answer));
}

static void waits_answer(struct docker_wait **list, int code)
{
    while (*list) {
        struct docker_wait *w = *list;
        struct http_request *req = w->req;
        wait_del(w);
        free(w);
        reply_code(req, code);
    }
}

static void late_free(struct docker_late *l)
{
    *l->prev = l->next;
    if (l->next)
        l->next->prev = l->prev;
    if (l->container)
        l->container->late = NULL;
    loop_timer_stop(l->docker->g->loop, &l->timer);
    free(l);
}

static void late_fired(struct timer *t)
{
    struct docker_late *l = container_of(t, struct docker_late, timer);
    waits_answer(&l->waits, l->code);
    late_free(l);
}

void docker_lates_free(struct docker *d)
{
    while (d->lates)
        late_free(d->lates);
}

void docker_waits_ended(struct container *c, int code)
{
    struct docker *d = c->docker;
    struct docker_late *l = calloc(1, sizeof *l);
    if (c->late)
        c->late->container = NULL;
    c->late = NULL;
    if (l) {
        *l = (struct docker_late){
            .next = d->lates, .prev = &d->lates, .docker = d, .container = c, .code = code};
        if (l->next)
            l->next->prev = &l->next;
        d->lates = l;
        c->late = l;
        loop_timer_start(d->g->loop, &l->timer, LATE_MS, late_fired);
    }
    for (struct docker_wait *w = c->waits, *next; w; w = next) {
        next = w->next;
        if (w->removed)
            continue;
        struct http_request *req = w->req;
        wait_del(w);
        if (l) {
            wait_add(&l->waits, w);
        } else { /* without memory: early is better than never */
            free(w);
            reply_code(req, code);
        }
    }
}

bool docker_waits_hurry(struct container *c)
{
    bool any = c->late && c->late->waits;
    if (c->late)
        late_fired(&c->late->timer);
    return any;
}

void docker_waits_removed(struct container *c)
{
    (void)docker_waits_hurry(c);
    waits_answer(&c->waits, c->exit_code);
}

static void wait_gone(struct http_request *req)
{
    struct docker_wait *w = req->user;
    wait_del(w);
    free(w);
}

void docker_wait_request(struct docker_request *r, struct container *c)
{
    char condition[32] = "";
    (void)http_query_get(r->req->query, "condition", condition, sizeof condition);
    bool removed = strcmp(condition, "removed") == 0, next = strcmp(condition, "next-exit") == 0;
    if (*condition && !removed && !next && strcmp(condition, "not-running") != 0) {
        docker_reply_error(r->req, 400, "there is no condition '%s'", condition);
        return;
    }
    bool running = c->status == CONTAINER_STARTING || c->status == CONTAINER_RUNNING ||
                   c->status == CONTAINER_RESTARTING;
    if (!removed && !next && !running && !c->late) {
        reply_code(r->req, c->exit_code);
        return;
    }
    struct docker_wait *w = calloc(1, sizeof *w);
    if (!w) {
        docker_reply_error(r->req, 500, "out of memory");
        return;
    }
    w->req = r->req;
    w->removed = removed;
    r->req->user = w;
    r->req->on_gone = wait_gone;
    wait_add(!removed && !next && !running ? &c->late->waits : &c->waits, w);
}
