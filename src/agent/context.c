/* SPDX-License-Identifier: Apache-2.0 */
/* context.c: contexts by id: their interpreters, the order of their runs, their end.
 *
 * Theory of operation
 * A context outlives its interpreter. When the process dies during a run, that run says so; when it dies
 * between two runs, the next run is answered with it. Either way somebody is told once, and the run after
 * that finds a fresh interpreter in the same directory with the same variables of the environment. Runs of
 * one context wait for one another; contexts do not. */
#include "agent/context_internal.h"
#include "base/clock.h"
#include "base/id.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { SPAWN_TIMEOUT_MS = 60000, REQUEST_MAX = 8 << 20, LATE_MAX = 64 * 1024 };

static const char *const language_names[] = {
    [CONTEXT_PYTHON] = "python",
    [CONTEXT_JAVASCRIPT] = "javascript",
    [CONTEXT_TYPESCRIPT] = "typescript",
};
static_assert(ARRAY_SIZE(language_names) == CONTEXT_LANGUAGES, "name every language");

const char *context_language_name(enum context_language language)
{
    return language_names[language];
}

bool context_language_parse(const char *name, enum context_language *ret)
{
    static const struct {
        const char *name;
        enum context_language language;
    } known[] = {
        {"python", CONTEXT_PYTHON}, {"python3", CONTEXT_PYTHON},  {"javascript", CONTEXT_JAVASCRIPT},
        {"js", CONTEXT_JAVASCRIPT}, {"node", CONTEXT_JAVASCRIPT}, {"typescript", CONTEXT_TYPESCRIPT},
        {"ts", CONTEXT_TYPESCRIPT},
    };
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (strcasecmp(name, known[i].name) == 0) {
            *ret = known[i].language;
            return true;
        }
    return false;
}

/* ------------------------------------------------------------------ where things are */

bool context_find_program(const struct agent *a, const char *name, char *out, size_t cap)
{
    const char *path = agent_getenv(a, "PATH");
    for (const char *p = path ? path : "/usr/local/bin:/usr/bin:/bin"; *p;) {
        size_t n = strcspn(p, ":");
        if (n && p[0] == '/' && snprintf(out, cap, "%.*s/%s", (int)n, p, name) < (int)cap &&
            access(out, X_OK) == 0)
            return true;
        p += n + (p[n] == ':');
    }
    return false;
}

bool context_find_runtime(const struct agent *a, const char *file, char *out, size_t cap)
{
    const char *base = agent_getenv(a, "SILICA_RUNTIME");
    return snprintf(out, cap, "%s/%s", base ? base : "/opt/silica/runtime", file) < (int)cap &&
           access(out, R_OK) == 0;
}

int64_t context_setting_ms(const struct agent *a, const char *name, int64_t fallback)
{
    const char *text = agent_getenv(a, name);
    long long ms = text ? strtoll(text, NULL, 10) : 0;
    return ms > 0 ? ms : fallback;
}

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Like mkdir -p. A program written for a server that ignored the directory must not fail because it is not
 * there yet. */
static int make_directory(const char *path, struct error *reterr)
{
    auto_free char *copy = strdup(path);
    if (!copy)
        return error_sys(reterr, ENOMEM, "make the directory");
    for (char *p = copy + 1;; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char end = *p;
        *p = '\0';
        if (mkdir(copy, 0755) < 0 && errno != EEXIST)
            return error_sys(reterr, errno, "make the directory '%s'", copy);
        *p = end;
        if (!end)
            break;
    }
    return is_directory(path) ? 0 : error_sys(reterr, ENOTDIR, "'%s'", path);
}

/* ------------------------------------------------------------------ the table */

static struct contexts *contexts_get(struct agent *a)
{
    struct contexts *cs = a->contexts;
    if (cs)
        return cs;
    cs = calloc(1, sizeof *cs);
    if (!cs)
        return NULL;
    cs->agent = a;
    list_init(&cs->all);
    for (int i = 0; i < CONTEXT_LANGUAGES; i++)
        list_init(&cs->pools[i].spares);
    list_init(&cs->zygote.waiting);
    list_init(&cs->zygote.processes);
    cs->zygote.fd = cs->zygote.source.fd = cs->zygote.err.fd = cs->zygote.err.source.fd = -1;
    cs->zygote.err.agent = a;
    a->contexts = cs;
    return cs;
}

struct context *context_find(struct agent *a, const char *id)
{
    if (!a->contexts)
        return NULL;
    list_for_each(i, &a->contexts->all)
    {
        struct context *c = list_entry(i, struct context, link);
        if (strcmp(c->id, id) == 0)
            return c;
    }
    return NULL;
}

static void make_id(char out[CONTEXT_ID_SIZE])
{
    unsigned char b[16];
    char hex[33];
    random_bytes(b, sizeof b);
    b[6] = (b[6] & 0x0f) | 0x40; /* version 4, variant 1 */
    b[8] = (b[8] & 0x3f) | 0x80;
    hex_encode(hex, b, sizeof b);
    (void)snprintf(out, CONTEXT_ID_SIZE, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
                   hex + 20);
}

/* Interpreters kept ready serve nobody for a while: they end. */
static void idle(struct timer *t)
{
    struct contexts *cs = container_of(t, struct contexts, idle_timer);
    if (!cs->count[CONTEXT_PYTHON])
        context_python_stop(cs);
    for (int i = CONTEXT_JAVASCRIPT; i < CONTEXT_LANGUAGES; i++)
        if (!cs->count[i])
            context_node_shrink(cs, (enum context_language)i, 0);
}

/* ------------------------------------------------------------------ the interpreter */

static void process_message(struct context_process *p, struct frame *f);
static void process_output(struct context_process *p, int stream, const char *data, size_t n);
static void process_died(struct context_process *p);
static const struct context_process_ops process_ops = {process_message, process_output, process_died};

static void put_init(struct context *c, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object_begin(&w);
    json_member_string(&w, "op", "init");
    json_member_string(&w, "nonce", context_process_nonce(c->process));
    json_member_string(&w, "language", language_names[c->language]);
    json_member_string(&w, "cwd", c->cwd);
    json_put_key(&w, "env");
    json_object_begin(&w);
    for (size_t i = 0; i < c->env.count; i++) {
        const char *var = c->env.vars[i], *eq = strchr(var, '=');
        char name[256];
        if (!eq || (size_t)(eq - var) >= sizeof name)
            continue;
        (void)snprintf(name, sizeof name, "%.*s", (int)(eq - var), var);
        json_member_string(&w, name, eq + 1);
    }
    json_object_end(&w);
    json_object_end(&w);
    if (w.err)
        buf_clear(out);
    else
        (void)buf_putc(out, '\n');
}

static void start_late(struct timer *t)
{
    struct context *c = container_of(t, struct context, start_timer);
    if (c->language == CONTEXT_PYTHON && c->process->state == PROCESS_STARTING)
        context_python_wedged(c->contexts);
    context_process_failed(c->process, "%s did not answer in time", language_names[c->language]);
}

static int start_process(struct context *c, struct error *reterr)
{
    int r = c->language == CONTEXT_PYTHON ? context_python_get(c->contexts, &c->process, reterr)
                                          : context_node_get(c->contexts, c->language, &c->process, reterr);
    if (r < 0)
        return r;
    struct buf init = BUF_INIT(REQUEST_MAX);
    c->process->ops = &process_ops;
    c->process->owner = c;
    c->ready = false;
    put_init(c, &init);
    r = context_process_send(c->process, buf_data(&init), buf_len(&init));
    buf_done(&init);
    if (r < 0) {
        context_process_free(take_ptr(c->process));
        return error_sys(reterr, -r, "start the interpreter");
    }
    loop_timer_start(c->agent->loop, &c->start_timer,
                     context_setting_ms(c->agent, "INTERPRETER_SPAWN_TIMEOUT_MS", SPAWN_TIMEOUT_MS),
                     start_late);
    return 0;
}

static void tell_created(struct context *c, const char *why)
{
    void (*created)(struct context *, const char *, void *) = take_ptr(c->created);
    if (created)
        created(c, why, c->created_arg);
}

/* Starts what can be started. */
static void pump(struct context *c)
{
    struct error e;
    while (!c->gone && !c->run && c->waiting) {
        if (c->lost) {
            c->lost = false;
            code_run_fail(code_run_first(c), "INTERNAL_ERROR", "ExecutionError", c->epitaph);
            continue;
        }
        if (!c->process && start_process(c, &e) < 0) {
            code_run_fail(code_run_first(c), "INTERNAL_ERROR", "ExecutionError", e.msg);
            continue;
        }
        if (!c->ready)
            return;
        c->run = code_run_first(c);
        c->used_ms = clock_wall_ms();
        code_run_start(c->run);
    }
}

void context_run_over(struct context *c)
{
    c->run = NULL;
    c->used_ms = clock_wall_ms();
    pump(c);
}

void context_pump(struct context *c)
{
    pump(c);
}

void context_restart(struct context *c)
{
    loop_timer_stop(c->agent->loop, &c->start_timer);
    context_process_free(take_ptr(c->process));
    c->ready = false;
}

/* The answer to init. */
static void process_hello(struct context *c, struct frame *f)
{
    auto_json struct json_doc *doc = NULL;
    int r = json_parse(f->json, f->len, 0, &doc, NULL);
    const char *why = json_string(json_get(r < 0 ? NULL : json_root(doc), "error"), NULL);
    if (r < 0 || why) {
        context_process_failed(c->process, "%s", why ? why : "the interpreter made no sense");
        return;
    }
    c->ready = c->born = true;
    if (c->language != CONTEXT_PYTHON)
        context_node_loaded(c->process);
    loop_timer_stop(c->agent->loop, &c->start_timer);
    tell_created(c, NULL);
    pump(c);
}

static void process_message(struct context_process *p, struct frame *f)
{
    struct context *c = p->owner;
    if (f->kind == 'h' && !c->ready)
        process_hello(c, f);
    else if (c->run && f->run == c->run_number)
        code_run_message(c->run, f);
}

static void process_output(struct context_process *p, int stream, const char *data, size_t n)
{
    struct context *c = p->owner;
    if (c->run) {
        code_run_output(c->run, stream, data, n);
        return;
    }
    size_t room = LATE_MAX - buf_len(&c->late[stream]);
    (void)buf_append(&c->late[stream], data,
                     MIN(n, room)); /* kept for the next run, as far as there is room */
}

static void process_died(struct context_process *p)
{
    struct context *c = p->owner;
    struct error e;
    char how[220];
    bool was_ready = c->ready;
    context_process_epitaph(p, how, sizeof how);
    context_restart(c);
    /* Killed while it waited, which says nothing about the next. */
    if (!was_ready && p->spare && !p->failure[0] && start_process(c, &e) == 0)
        return;
    if (!was_ready) { /* it has never run: whoever waits for it hears why */
        (void)snprintf(c->epitaph, sizeof c->epitaph, "%s%s", p->failure[0] ? "" : "the interpreter ", how);
        tell_created(c, c->epitaph);
        for (struct code_run *run; (run = code_run_first(c));)
            code_run_fail(run, "INTERNAL_ERROR", "ExecutionError", c->epitaph);
        if (!c->born)
            context_delete(c);
        return;
    }
    (void)snprintf(c->epitaph, sizeof c->epitaph,
                   "Context executor has terminated: the %s interpreter %s. Its state is lost; the next run "
                   "starts a new one.",
                   language_names[c->language], how);
    if (c->run)
        code_run_fail(c->run, "INTERNAL_ERROR", "ExecutionError", c->epitaph);
    else {
        c->lost = true;
        pump(c);
    }
}

/* ------------------------------------------------------------------ life */

static void context_free(struct context *c)
{
    loop_timer_stop(c->agent->loop, &c->start_timer);
    context_process_free(take_ptr(c->process));
    for (int i = 0; i < 2; i++)
        buf_done(&c->late[i]);
    env_done(&c->env);
    free(c->cwd);
    free(c);
}

static void reclaim(struct deferred *d)
{
    context_free(container_of(d, struct context, reclaim));
}

static int choose_cwd(struct context *c, const char *cwd, struct error *reterr)
{
    int r = cwd ? make_directory(cwd, reterr) : 0;
    if (r < 0)
        return r;
    if (!cwd)
        cwd = is_directory(agent_workdir(c->agent)) ? agent_workdir(c->agent) : agent_home(c->agent);
    c->cwd = strdup(cwd);
    return c->cwd ? 0 : error_sys(reterr, ENOMEM, "make the context");
}

static int check_limit(struct contexts *cs, enum context_language language, struct error *reterr)
{
    static const char *const names[] = {"PYTHON_POOL_MAX_SIZE", "JAVASCRIPT_POOL_MAX_SIZE",
                                        "TYPESCRIPT_POOL_MAX_SIZE"};
    int64_t max = context_setting_ms(cs->agent, names[language], CONTEXTS_MAX);
    size_t all = cs->count[0] + cs->count[1] + cs->count[2];
    if (cs->count[language] < (size_t)max && all < CONTEXTS_MAX)
        return 0;
    return error_set(reterr, EAGAIN, "Maximum %s executor limit reached (%lld)", language_names[language],
                     (long long)MIN(max, (int64_t)CONTEXTS_MAX));
}

/* Which error code the want of an interpreter has. */
static const char *missing_code(enum context_language language, int err, struct error *e)
{
    if (err != -ENOENT)
        return "INTERNAL_ERROR";
    char why[200];
    (void)snprintf(why, sizeof why, "%.*s", (int)sizeof why - 1, e->msg);
    if (language == CONTEXT_PYTHON) {
        (void)error_set(
            e, ENOENT,
            "Python interpreter not available (%s). Use an image with Python, such as the -python variant",
            why);
        return "PYTHON_NOT_AVAILABLE";
    }
    (void)error_set(e, ENOENT, "JavaScript runtime not available (%s)", why);
    return "JAVASCRIPT_NOT_AVAILABLE";
}

int context_create(struct agent *a, struct context_config *config, struct context **ret,
                   const char **ret_code, void (*created)(struct context *c, const char *why, void *arg),
                   void *arg, struct error *reterr)
{
    enum context_language language = CONTEXT_PYTHON;
    struct contexts *cs = contexts_get(a);
    struct context *c = cs ? calloc(1, sizeof *c) : NULL;
    *ret_code = "INTERNAL_ERROR";
    if (!c)
        return error_sys(reterr, ENOMEM, "make the context");
    (void)context_language_parse(config->language, &language);
    c->contexts = cs;
    c->agent = a;
    c->language = language;
    c->env = config->env;
    config->env = (struct env_list){0};
    c->timeout_ms = config->timeout_ms > 0 ? config->timeout_ms
                                           : context_setting_ms(a, "INTERPRETER_EXECUTION_TIMEOUT_MS", -1);
    c->created_ms = c->used_ms = clock_wall_ms();
    list_init(&c->link);
    list_init(&c->queue);
    for (int i = 0; i < 2; i++)
        c->late[i] = BUF_INIT(LATE_MAX);
    make_id(c->id);
    int r = check_limit(cs, language, reterr);
    if (r == 0)
        r = choose_cwd(c, config->cwd, reterr);
    if (r == 0) {
        r = start_process(c, reterr);
        *ret_code = missing_code(language, r, reterr);
    }
    if (r < 0) {
        context_free(c);
        return r;
    }
    c->created = created;
    c->created_arg = arg;
    list_append(&cs->all, &c->link);
    cs->count[language]++;
    loop_timer_stop(a->loop, &cs->idle_timer);
    *ret = c;
    return 0;
}

int context_default(struct agent *a, const char *language, struct context **ret, const char **ret_code,
                    struct error *reterr)
{
    enum context_language l = CONTEXT_PYTHON;
    struct context_config config = {.language = language, .timeout_ms = -1};
    (void)context_language_parse(language, &l);
    if (a->contexts && a->contexts->defaults[l]) {
        *ret = a->contexts->defaults[l];
        return 0;
    }
    int r = context_create(a, &config, ret, ret_code, NULL, NULL, reterr);
    if (r == 0)
        a->contexts->defaults[l] = *ret;
    return r;
}

bool context_interrupt(struct context *c)
{
    if (!c->run)
        return false;
    code_run_interrupt(c->run);
    return true;
}

void context_delete(struct context *c)
{
    struct contexts *cs = c->contexts;
    if (c->gone)
        return;
    c->gone = true;
    list_remove(&c->link);
    if (cs->defaults[c->language] == c)
        cs->defaults[c->language] = NULL;
    if (--cs->count[c->language] == 0)
        loop_timer_start(c->agent->loop, &cs->idle_timer, CONTEXT_IDLE_MS, idle);
    tell_created(c, "The context was deleted");
    context_restart(c);
    if (c->run)
        code_run_fail(c->run, "CONTEXT_NOT_FOUND", "ExecutionError", "The context was deleted");
    for (struct code_run *run; (run = code_run_first(c));)
        code_run_fail(run, "CONTEXT_NOT_FOUND", "ExecutionError", "The context was deleted");
    loop_defer(c->agent->loop, &c->reclaim, reclaim);
}

void contexts_free(struct agent *a)
{
    struct contexts *cs = a->contexts;
    if (!cs)
        return;
    list_for_each(i, &cs->all) context_delete(list_entry(i, struct context, link));
    loop_timer_stop(a->loop, &cs->idle_timer);
    context_node_stop(cs);
    context_python_stop(cs);
    (void)loop_step(a->loop, 0); /* reclaims */
    free(cs);
    a->contexts = NULL;
}

size_t contexts_pids(struct agent *a, pid_t *pids, size_t max)
{
    struct contexts *cs = a->contexts;
    size_t n = 0;
    if (!cs)
        return 0;
    if (cs->zygote.child.pid && n < max)
        pids[n++] = cs->zygote.child.pid;
    for (int i = 0; i < CONTEXT_LANGUAGES; i++)
        list_for_each(j, &cs->pools[i].spares)
        {
            const struct context_process *p = list_entry(j, struct context_process, link);
            if (p->pid && n < max)
                pids[n++] = p->pid;
        }
    list_for_each(i, &cs->all)
    {
        const struct context *c = list_entry(i, struct context, link);
        if (c->process && c->process->pid && n < max)
            pids[n++] = c->process->pid;
    }
    return n;
}
