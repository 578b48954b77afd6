/* SPDX-License-Identifier: Apache-2.0 */
/* lifecycle_use.c: who uses a sandbox, and who waits for being able to (see lifecycle.h). */
#include "gateway/lifecycle_internal.h"

#include <string.h>

static void use_queue(struct sandbox *sb, struct sandbox_use *u)
{
    u->sandbox = sb;
    u->next = NULL;
    u->prev = sb->waiting_last;
    *sb->waiting_last = u;
    sb->waiting_last = &u->next;
    sb->waiting_count++;
}

static void not_running(struct problem *p)
{
    (void)problem_set(p, 409, "CONTAINER_NOT_RUNNING", "the container does not run; its engine starts it");
}

void lifecycle_use(struct lifecycle *lc, const char *id, struct sandbox_use *u)
{
    struct problem p;
    struct sandbox *sb = lifecycle_table_find(lc, id);
    u->sandbox = NULL;
    u->prev = NULL;
    if (!sb)
        sb = lifecycle_table_add(lc, id, &lc->config.defaults);
    if (!sb || sb->waiting_count >= WAITING_MAX) {
        if (!sb)
            (void)problem_set(&p, 429, "HOST_FULL", "there are too many sandboxes");
        else
            (void)problem_set(&p, 429, "TOO_MANY_REQUESTS", "too many requests wait for this sandbox");
        p.retry_after_s = 5;
        u->failed(u, &p);
        return;
    }
    /* one that is going makes room for a new one, which take_owner gives away */
    if (u->owner[0] && sb->state != SANDBOX_ABSENT && !sandbox_is_going(sb) &&
        strcmp(u->owner, sb->owner) != 0) {
        (void)problem_set(&p, 404, "SANDBOX_NOT_FOUND", "there is no sandbox '%s'", id);
        u->failed(u, &p);
        return;
    }
    if (sb->is_container && !u->by_engine && !sandbox_alive(sb)) {
        not_running(&p);
        u->failed(u, &p);
        return;
    }
    sandbox_touch(sb);
    use_queue(sb, u);
    sandbox_advance(sb);
}

void lifecycle_leave(struct sandbox_use *u)
{
    struct sandbox *sb = u->sandbox;
    if (!sb)
        return;
    u->sandbox = NULL;
    if (!u->prev) {
        sb->holding--;
        sandbox_touch(sb);
        sandbox_reap_later(sb);
        return;
    }
    *u->prev = u->next;
    if (u->next)
        u->next->prev = u->prev;
    else
        sb->waiting_last = u->prev;
    u->prev = NULL;
    sb->waiting_count--;
}

void lifecycle_use_again(struct sandbox_use *u)
{
    struct sandbox *sb = u->sandbox;
    if (sb->is_container) { /* a new life without its main program would be none */
        struct problem p;
        lifecycle_leave(u);
        not_running(&p);
        u->failed(u, &p);
        return;
    }
    sb->holding--;
    use_queue(sb, u);
    if (sb->state == SANDBOX_RUNNING && !sandbox_is_going(sb) && !sb->sleeps.first)
        sandbox_begin_start(sb);
    else
        sandbox_advance(sb);
}
