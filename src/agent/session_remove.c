/* SPDX-License-Identifier: Apache-2.0 */
/* session_remove.c: deleting a session: everything that descends from its shell dies, then the caller hears
 * of it. Daemons that have left it in every way (setsid, a dead parent) are found by their tag. */
#include "agent/process.h"
#include "agent/process_kill.h"
#include "agent/session_internal.h"
#include "agent/websockets.h"

#include <signal.h>

enum { ROOTS_MAX = 1024 };

static void all_dead(void *arg, bool gone)
{
    struct session_removal *r = arg;
    (void)gone; /* what a SIGKILL does not end cannot be helped; the session is gone in any case */
    r->removed(r);
}

void session_fail_waiting(struct session *s, const struct session_fault *fault)
{
    while (!list_empty(&s->queue)) {
        struct session_op *waiting = list_first(&s->queue, struct session_op, link);
        list_remove(&waiting->link);
        waiting->session = NULL;
        s->waiting--;
        if (waiting->removal) { /* a second delete: its wish is being fulfilled */
            struct session_removal *other = container_of(waiting, struct session_removal, op);
            other->removed(other);
        } else {
            waiting->fail(waiting, fault);
        }
    }
}

/* The holder's call. The session leaves the table at once: a new operation with its id gets a new session
 * while the old one is dying. */
void session_removal_run(struct session_op *op, struct session *s)
{
    struct session_removal *r = container_of(op, struct session_removal, op);
    struct agent *a = s->agent;
    pid_t roots[ROOTS_MAX];
    struct process_tag tags[2] = {{0}, terminal_tag(a, s->id)};
    size_t count = 0;
    if (s->shell)
        tags[0] = shell_tag(s->shell);
    if (s->shell && shell_pid(s->shell))
        roots[count++] = shell_pid(s->shell);
    if (terminal_pid(a, s->id))
        roots[count++] = terminal_pid(a, s->id);
    count += process_pids_of(a, s->id, roots + count, ROOTS_MAX - count);
    struct killing_config config = {.roots = roots,
                                    .count = count,
                                    .tags = tags,
                                    .tag_count = ARRAY_SIZE(tags),
                                    .sessions = true,
                                    .signal = SIGKILL,
                                    .done = all_dead,
                                    .arg = r};
    /* first the signals: a shell that loses its input ends by itself, and its children would be nobody's */
    bool killing = (count || tags[0].last || tags[1].last) && killing_start(a, &config);
    session_drop(s); /* before the queue hears of it: a waiting creation comes back at once */
    session_fail_waiting(s, &(struct session_fault){.kind = SESSION_FAULT_DESTROYED});
    if (!killing)
        r->removed(r);
}
