/* SPDX-License-Identifier: Apache-2.0 */
/* context_node.c: JavaScript and TypeScript processes: one Node each, and a spare one once the language has
 * been used.
 *
 * A Node process takes a tenth of a second to start and cannot be forked. The spare one hides that: it has
 * loaded the runtime (and, for TypeScript, the transpiler) and waits for its init. The next spare is started
 * a moment after the last was taken, so that it does not compete with the context that was just made; the
 * first together with the first context.
 *
 * Node cannot move descriptors, so a shell puts the channel from 0 to 9. Node itself closes inherited
 * descriptors below 16 on exec, which is why it is not a higher one. */
#include "agent/context_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { REFILL_DELAY_MS = 20 };

static const char start_script[] = "exec \"$0\" --no-warnings \"$1\" 9 9<&0 </dev/null";
static const char load_request[] = "{\"op\":\"load\"}\n";

static void spawned(struct spawn *s, pid_t pid, int err, enum spawn_stage stage)
{
    struct context_process *p = container_of(s, struct context_process, spawn);
    (void)stage;
    if (pid)
        context_process_started(p, pid, -1);
    else
        context_process_failed(p, "start node: %s", strerror(err));
}

static int start(struct contexts *cs, enum context_language language, struct context_process **ret,
                 struct error *reterr)
{
    struct agent *a = cs->agent;
    char node[256], script[256];
    struct context_process *p;
    if (!context_find_program(a, "node", node, sizeof node))
        return error_set(reterr, ENOENT, "node is not in PATH");
    if (!context_find_runtime(a, "node/main.js", script, sizeof script))
        return error_set(reterr, ENOENT, "node/main.js is not installed");
    const char *argv[] = {"sh", "-c", start_script, node, script, NULL};
    struct spawn_target target = {.path = "/bin/sh", .argv = argv, .env = a->env.vars, .cwd = "/"};
    int r = context_process_new(a, language, SOCK_STREAM, target.fds, &p, reterr);
    if (r < 0)
        return r;
    r = spawner_spawn(a->spawner, &p->spawn, &target, spawned);
    if (r < 0) {
        context_process_free(p);
        return error_sys(reterr, -r, "start node");
    }
    if (language == CONTEXT_TYPESCRIPT)
        (void)context_process_send(p, load_request,
                                   sizeof load_request - 1); /* else the first run loads it */
    *ret = p;
    return 0;
}

/* ------------------------------------------------------------------ spares */

static void spare_message(struct context_process *p, struct frame *f)
{
    (void)p;
    (void)f; /* a process that has not been asked anything has nothing to say */
}

static void spare_output(struct context_process *p, int stream, const char *data, size_t n)
{
    (void)p;
    (void)stream;
    (void)data;
    (void)n;
}

static void spare_died(struct context_process *p)
{
    p->agent->contexts->spares[p->language] = NULL;
    context_process_free(p);
}

static const struct context_process_ops spare_ops = {spare_message, spare_output, spare_died};

static void refill(struct timer *t)
{
    struct contexts *cs = container_of(t, struct contexts, refill_timer);
    for (int i = CONTEXT_JAVASCRIPT; i < CONTEXT_LANGUAGES; i++) {
        struct error e;
        if (!cs->refill[i] || cs->spares[i] || !cs->count[i])
            continue;
        cs->refill[i] = false;
        if (start(cs, (enum context_language)i, &cs->spares[i], &e) == 0)
            cs->spares[i]->ops = &spare_ops;
    }
}

int context_node_get(struct contexts *cs, enum context_language language, struct context_process **ret,
                     struct error *reterr)
{
    struct context_process *spare = take_ptr(cs->spares[language]);
    static const char *const sizes[CONTEXT_LANGUAGES] = {
        [CONTEXT_JAVASCRIPT] = "JAVASCRIPT_POOL_MIN_SIZE", [CONTEXT_TYPESCRIPT] = "TYPESCRIPT_POOL_MIN_SIZE"};
    const char *size = agent_getenv(cs->agent, sizes[language]);
    cs->refill[language] = !size || strcmp(size, "0") != 0;
    loop_timer_start(cs->agent->loop, &cs->refill_timer, spare ? REFILL_DELAY_MS : 0, refill);
    if (spare && spare->state != PROCESS_DEAD && !spare->ending) {
        *ret = spare;
        return 0;
    }
    context_process_free(spare);
    return start(cs, language, ret, reterr);
}

void context_node_stop(struct contexts *cs)
{
    loop_timer_stop(cs->agent->loop, &cs->refill_timer);
    for (int i = 0; i < CONTEXT_LANGUAGES; i++)
        context_process_free(take_ptr(cs->spares[i]));
}
