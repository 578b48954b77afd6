/* SPDX-License-Identifier: Apache-2.0 */
/* context_node.c: JavaScript and TypeScript processes: one Node each, and spare ones once the language has
 * been used.
 *
 * Theory of operation
 * A Node process takes a tenth of a second to start, nearly all of it processor time, and cannot be forked:
 * its helper threads would not be there in the copy, and V8 without them is slower in everything that
 * allocates or compiles. Spare processes hide that: they have loaded the runtime (and, for TypeScript, the
 * transpiler) and wait for their init.
 *
 * There is one spare of a language, and one more with each context that is asked for soon after another. They
 * are started a moment after the last was taken, so that they do not compete with the context that was just
 * made, and as many at a time as there are processors, counting those that contexts wait for. Without new
 * contexts for a while those beyond the first end.
 *
 * Node cannot move descriptors, so a shell puts the channel from 0 to 9. Node itself closes inherited
 * descriptors below 16 on exec, which is why it is not a higher one. */
#include "agent/context_internal.h"
#include "agent/room.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum {
    REFILL_DELAY_MS = 20,
    SPARES_MAX = 4,          /* of one language */
    SURPLUS_IDLE_MS = 60000, /* how long those beyond the first are kept after the last context was made */
    SPARE_ROOM_MIB = 8 * 32, /* that must be free for one beyond the first: none takes an eighth of it */
};

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

static void loading_over(struct context_process *p)
{
    if (p->loading)
        p->agent->contexts->loading--;
    p->loading = false;
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
    p->loading = true;
    p->abandoned = loading_over;
    cs->loading++;
    if (language == CONTEXT_TYPESCRIPT)
        (void)context_process_send(p, load_request,
                                   sizeof load_request - 1); /* else the first run loads it */
    *ret = p;
    return 0;
}

/* ------------------------------------------------------------------ spares */

static void refill(struct timer *t);

static void refill_later(struct contexts *cs, int64_t delay_ms)
{
    loop_timer_start(cs->agent->loop, &cs->refill_timer, delay_ms, refill);
}

void context_node_loaded(struct context_process *p)
{
    if (!p->loading)
        return;
    loading_over(p);
    refill_later(p->agent->contexts, REFILL_DELAY_MS);
}

static void spare_message(struct context_process *p, struct frame *f)
{
    if (f->kind == 'w')
        context_node_loaded(p);
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
    context_process_free(p); /* not replaced before the next context: the next might fare no better */
}

static const struct context_process_ops spare_ops = {spare_message, spare_output, spare_died};

static size_t spares_count(const struct node_pool *pool)
{
    size_t n = 0;
    list_for_each(i, &pool->spares) n++;
    return n;
}

/* How many spares of a language there are at least, once it is used. */
static size_t spares_min(const struct contexts *cs, enum context_language language)
{
    static const char *const names[CONTEXT_LANGUAGES] = {
        [CONTEXT_JAVASCRIPT] = "JAVASCRIPT_POOL_MIN_SIZE", [CONTEXT_TYPESCRIPT] = "TYPESCRIPT_POOL_MIN_SIZE"};
    const char *text = agent_getenv(cs->agent, names[language]);
    char *end = NULL;
    unsigned long n = text && *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 1;
    return end && *end ? 1 : MIN(n, (unsigned long)SPARES_MAX);
}

static int start_spare(struct contexts *cs, enum context_language language)
{
    struct context_process *p;
    struct error e;
    char request[80];
    int r = start(cs, language, &p, &e);
    if (r < 0)
        return r; /* a context that is asked for tells why */
    p->ops = &spare_ops;
    p->spare = true;
    list_append(&cs->pools[language].spares, &p->link);
    int n =
        snprintf(request, sizeof request, "{\"op\":\"wait\",\"nonce\":\"%s\"}\n", context_process_nonce(p));
    (void)context_process_send(p, request, (size_t)n); /* without it, it counts as loading until it is used */
    return 0;
}

static void refill(struct timer *t)
{
    struct contexts *cs = container_of(t, struct contexts, refill_timer);
    struct room room;
    room_read(ROOM_CGROUPS, &room);
    for (int i = CONTEXT_JAVASCRIPT; i < CONTEXT_LANGUAGES; i++) {
        const struct node_pool *pool = &cs->pools[i];
        size_t wanted = cs->count[i] ? pool->wanted : 0;
        if ((room.memory_bytes >> 20) < SPARE_ROOM_MIB)
            wanted = MIN(wanted, (size_t)1);
        for (size_t n = spares_count(pool); n < wanted && cs->loading < room.cpus; n++)
            if (start_spare(cs, (enum context_language)i) < 0)
                break;
    }
}

/* Not the oldest: these are the ones that are ready. */
void context_node_shrink(struct contexts *cs, enum context_language language, size_t wanted)
{
    struct node_pool *pool = &cs->pools[language];
    pool->wanted = wanted;
    for (size_t n = spares_count(pool); n > wanted; n--)
        context_process_free(list_entry(pool->spares.prev, struct context_process, link));
}

static void surplus_ends(struct timer *t)
{
    struct contexts *cs = container_of(t, struct contexts, surplus_timer);
    for (int i = CONTEXT_JAVASCRIPT; i < CONTEXT_LANGUAGES; i++)
        if (cs->pools[i].wanted)
            context_node_shrink(cs, (enum context_language)i, spares_min(cs, (enum context_language)i));
}

/* The oldest one; NULL: there is none. */
static struct context_process *take_spare(struct node_pool *pool)
{
    list_for_each(i, &pool->spares)
    {
        struct context_process *p = list_entry(i, struct context_process, link);
        list_remove(&p->link);
        if (p->state != PROCESS_DEAD && !p->ending)
            return p;
        context_process_free(p);
    }
    return NULL;
}

int context_node_get(struct contexts *cs, enum context_language language, struct context_process **ret,
                     struct error *reterr)
{
    struct node_pool *pool = &cs->pools[language];
    struct context_process *spare = take_spare(pool);
    size_t min = spares_min(cs, language);
    bool ready = spare && !spare->loading;
    if (pool->wanted && min && loop_timer_running(&cs->surplus_timer))
        pool->wanted = MIN(pool->wanted + 1, (size_t)SPARES_MAX);
    else
        pool->wanted = min;
    int r = 0;
    if (spare)
        *ret = spare;
    else
        r = start(cs, language, ret, reterr);
    refill_later(cs, ready ? REFILL_DELAY_MS : 0);
    loop_timer_start(cs->agent->loop, &cs->surplus_timer,
                     context_setting_ms(cs->agent, "INTERPRETER_SURPLUS_IDLE_MS", SURPLUS_IDLE_MS),
                     surplus_ends);
    return r;
}

void context_node_stop(struct contexts *cs)
{
    loop_timer_stop(cs->agent->loop, &cs->refill_timer);
    loop_timer_stop(cs->agent->loop, &cs->surplus_timer);
    for (int i = CONTEXT_JAVASCRIPT; i < CONTEXT_LANGUAGES; i++)
        context_node_shrink(cs, (enum context_language)i, 0);
}
