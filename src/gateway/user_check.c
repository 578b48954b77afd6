/* SPDX-License-Identifier: Apache-2.0 */
/* user_check.c: see user_check.h. */
#include "gateway/user_check.h"
#include "gateway/agent_probe.h"

#include <errno.h>
#include <stdio.h>

enum { DEADLINE_MS = 5000 };

struct user_check {
    struct agent_probe probe;
    char id[SANDBOX_ID_MAX + 1];
    void (*done)(void *arg, bool ok); /* NULL: nobody waits any more */
    void *arg;
};

static void settled(struct agent_probe *p)
{
    free(container_of(p, struct user_check, probe));
}

static void answered(struct agent_probe *p, int err, char *body, size_t n)
{
    struct user_check *c = container_of(p, struct user_check, probe);
    (void)body;
    (void)n;
    if (c->done)
        c->done(c->arg, err != -EBADMSG);
    c->done = NULL;
    if (!p->connecting)
        free(c);
}

struct user_check *user_check_start(struct loop *loop, struct keeper_link *link, const char *id,
                                    void (*done)(void *arg, bool ok), void *arg)
{
    struct user_check *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    (void)snprintf(c->id, sizeof c->id, "%s", id);
    c->done = done;
    c->arg = arg;
    agent_probe_init(&c->probe, loop, link, c->id);
    c->probe.settled = settled;
    (void)agent_probe_start(&c->probe, "/api/ping", DEADLINE_MS, answered);
    return c;
}

void user_check_forget(struct user_check *c)
{
    if (c)
        c->done = NULL;
}
