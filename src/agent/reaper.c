/* SPDX-License-Identifier: Apache-2.0 */
/* reaper.c: see reaper.h. */
#include "agent/reaper.h"

#include <errno.h>
#include <sys/wait.h>

enum { EARLY_MAX = 64 };

struct early {
    pid_t pid;
    int code;
};

struct reaper {
    struct loop *loop;
    struct child *first;
    void (*wake)(void *arg);
    void *wake_arg;
    unsigned expected;
    struct early early[EARLY_MAX]; /* ends of unknown processes while some are expected; a ring */
    unsigned early_next;
    struct deferred late; /* delivers the ends in `ended` */
    struct child *ended;  /* watched after they had ended */
};

int reaper_new(struct loop *loop, struct reaper **ret, struct error *reterr)
{
    struct reaper *r = calloc(1, sizeof *r);
    if (!r)
        return error_sys(reterr, ENOMEM, "make the reaper");
    r->loop = loop;
    *ret = r;
    return 0;
}

void reaper_free(struct reaper *r)
{
    if (!r)
        return;
    loop_undefer(r->loop, &r->late);
    free(r);
}

void reaper_on_wake(struct reaper *r, void (*wake)(void *arg), void *arg)
{
    r->wake = wake;
    r->wake_arg = arg;
}

void reaper_expect(struct reaper *r)
{
    r->expected++;
}

void reaper_unexpect(struct reaper *r)
{
    if (--r->expected)
        return;
    for (unsigned i = 0; i < EARLY_MAX; i++)
        r->early[i].pid = 0; /* a number that comes again later is another process */
}

static bool unlink_child(struct child **first, struct child *c)
{
    for (struct child **p = first; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            return true;
        }
    return false;
}

static void deliver_late(struct deferred *d)
{
    struct reaper *r = container_of(d, struct reaper, late);
    while (r->ended) {
        struct child *c = r->ended;
        r->ended = c->next;
        c->pid = 0;
        c->exited(c, c->code);
    }
}

void reaper_watch(struct reaper *r, struct child *c, pid_t pid, void (*exited)(struct child *c, int code))
{
    c->pid = pid;
    c->exited = exited;
    for (unsigned i = 0; i < EARLY_MAX; i++)
        if (r->early[i].pid == pid) {
            r->early[i].pid = 0;
            c->code = r->early[i].code;
            c->next = r->ended;
            r->ended = c;
            loop_defer(r->loop, &r->late, deliver_late);
            return;
        }
    c->next = r->first;
    r->first = c;
}

void reaper_forget(struct reaper *r, struct child *c)
{
    if (c->pid && !unlink_child(&r->first, c))
        (void)unlink_child(&r->ended, c);
    c->pid = 0;
}

static void ended(struct reaper *r, pid_t pid, int code)
{
    for (struct child *c = r->first; c; c = c->next)
        if (c->pid == pid) {
            (void)unlink_child(&r->first, c);
            c->pid = 0;
            c->exited(c, code);
            return;
        }
    if (r->expected)
        r->early[r->early_next++ % EARLY_MAX] = (struct early){pid, code};
}

void reaper_run(struct reaper *r)
{
    if (r->wake)
        r->wake(r->wake_arg);
    for (;;) {
        siginfo_t si = {0};
        if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG) < 0 || si.si_pid == 0)
            return; /* ECHILD: nobody left */
        ended(r, si.si_pid, si.si_code == CLD_EXITED ? si.si_status : 128 + si.si_status);
    }
}
