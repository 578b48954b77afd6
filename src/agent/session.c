/* SPDX-License-Identifier: Apache-2.0 */
/* session.c: see session.h.
 *
 * Theory of operation
 * A session is an id with a queue; the shell in it comes and goes. The op at the head of the queue is the
 * holder of the lock. A command whose time is over stays in the shell while its op gives the lock back: the
 * shell is then occupied by nobody's command, and the next holder's command is parked until the shell is
 * idle.
 *
 * The death of the shell is told to exactly one operation: to the holder if it was its command that ran or
 * waits, otherwise to the next one. With that the session is as new: what follows in the queue gets a fresh
 * shell with default settings, and without anything in the queue the session is gone. */
#include "agent/session_internal.h"
#include "agent/spare_shell.h"
#include "agent/websockets.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void dispatch(struct session *s);

static struct session *find(struct agent *a, const char *id)
{
    list_for_each(i, &a->sessions)
    {
        struct session *s = list_entry(i, struct session, link);
        if (strcmp(s->id, id) == 0)
            return s;
    }
    return NULL;
}

static void reclaim(struct deferred *d)
{
    struct session *s = container_of(d, struct session, reclaim);
    env_done(&s->config.env);
    free(s->config.cwd);
    free(s->failure);
    free(s->id);
    free(s);
}

void session_drop(struct session *s)
{
    if (s->gone)
        return;
    s->gone = true;
    list_remove(&s->link);
    s->agent->session_count--;
    shell_free(take_ptr(s->shell));
    if (s->creation) {
        struct session_creation *c = take_ptr(s->creation);
        c->created(c, "the session was destroyed");
    }
    loop_defer(s->agent->loop, &s->reclaim, reclaim);
}

static struct session *make(struct agent *a, const char *id)
{
    struct session *s = a->session_count < SESSIONS_MAX ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return NULL;
    s->id = strdup(id);
    if (!s->id) {
        free(s);
        return NULL;
    }
    s->agent = a;
    s->config.timeout_ms = -1;
    list_init(&s->queue);
    list_append(&a->sessions, &s->link);
    a->session_count++;
    return s;
}

/* ------------------------------------------------------------------ the shell */

static bool is_directory(const char *path)
{
    struct stat st;
    return path && *path && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static void shell_idle(struct shell *sh, void *arg)
{
    struct session *s = arg;
    (void)sh;
    s->ours = false;
    if (s->parked) {
        struct shell_command *c = take_ptr(s->parked);
        session_run(s, c);
    } else if (s->parked_start) {
        struct shell_start *start = take_ptr(s->parked_start);
        session_start(s, start);
    }
}

/* A fresh shell, if there will be one, starts with default settings. */
static void forget_shell(struct session *s)
{
    shell_free(take_ptr(s->shell));
    env_done(&s->config.env);
    free(take_ptr(s->config.cwd));
    free(take_ptr(s->failure));
    s->config.timeout_ms = -1;
    s->dead = s->told = s->ours = false;
}

static void fail_parked(struct session *s, enum shell_end how, int status)
{
    struct shell_command *c = take_ptr(s->parked);
    struct shell_start *start = take_ptr(s->parked_start);
    if (c)
        c->done(c, how, status);
    if (start)
        start->done(start, how, status, 0, NULL);
}

static void shell_dead(struct shell *sh, int code, void *arg)
{
    struct session *s = arg;
    (void)sh;
    s->dead = true;
    s->exit_code = code;
    terminal_hang_up(s->agent, s->id);
    s->told = s->holder && (s->ours || s->parked || s->parked_start);
    fail_parked(s, SHELL_END_DIED, code);
}

static void shell_started(struct shell *sh, void *arg)
{
    struct session *s = arg;
    (void)sh;
    if (s->creation) {
        struct session_creation *c = take_ptr(s->creation);
        c->created(c, NULL);
    }
}

static void shell_failed(struct shell *sh, const char *why, void *arg)
{
    struct session *s = arg;
    (void)sh;
    log_error("session '%s': %s", s->id, why);
    s->dead = s->told = true;
    free(s->failure);
    s->failure = strdup(why);
    fail_parked(s, SHELL_END_NO_SHELL, 0);
    if (s->creation) {
        struct session_creation *c = take_ptr(s->creation);
        c->created(c, why);
    }
    if (!s->holder)
        dispatch(s);
}

static const struct shell_ops shell_ops = {
    .idle = shell_idle,
    .dead = shell_dead,
    .started = shell_started,
    .failed = shell_failed,
};

int session_shell_env(const struct agent *a, const struct env_list *extra, struct env_list *out)
{
    int r = env_merge(out, a->env.vars);
    if (r == 0 && extra)
        r = env_merge(out, extra->vars);
    if (r == 0)
        r = env_set(out, "LANG", "C.UTF-8");
    return r < 0 ? r : env_set(out, "LC_ALL", "C.UTF-8");
}

const char *session_default_cwd(const struct agent *a)
{
    const char *cwd = agent_workdir(a);
    return is_directory(cwd) ? cwd : agent_home(a);
}

static const char *start_cwd(const struct session *s)
{
    return !s->config.cwd                ? session_default_cwd(s->agent)
           : is_directory(s->config.cwd) ? s->config.cwd
                                         : agent_home(s->agent);
}

static int open_shell(struct session *s, struct error *reterr)
{
    struct agent *a = s->agent;
    struct env_list env = {0};
    const char *cwd = start_cwd(s);
    int r = session_shell_env(a, &s->config.env, &env);
    if (r < 0)
        r = error_sys(reterr, -r, "make the environment of the session");
    else if (!(s->shell = spare_shell_take(a, env.vars, cwd, &shell_ops, s)))
        r = shell_new(a, env.vars, cwd, &shell_ops, s, &s->shell, reterr);
    env_done(&env);
    return r;
}

/* ------------------------------------------------------------------ the queue */

static void fail_op(struct session_op *op, const struct session_fault *fault)
{
    op->session = NULL;
    op->fail(op, fault);
}

static bool make_ready(struct session *s, struct session_fault *fault, struct error *e)
{
    if (s->dead) {
        *fault = (struct session_fault){.kind = SESSION_FAULT_TERMINATED, .exit_code = s->exit_code};
        forget_shell(s);
        return false;
    }
    if (!s->shell && open_shell(s, e) < 0) {
        *fault = (struct session_fault){.kind = SESSION_FAULT_NO_SHELL, .why = e->msg};
        return false;
    }
    return true;
}

static void dispatch(struct session *s)
{
    if (s->dispatching)
        return;
    s->dispatching = true;
    while (!s->gone && !s->holder) {
        if (s->dead && s->told)
            forget_shell(s); /* somebody knows: as new */
        if (list_empty(&s->queue)) {
            if (!s->shell)
                session_drop(s);
            break;
        }
        struct session_op *op = list_first(&s->queue, struct session_op, link);
        list_remove(&op->link);
        s->waiting--;
        struct session_fault fault;
        struct error e;
        if (op->removal || make_ready(s, &fault, &e)) {
            s->holder = op;
            op->run(op, s);
        } else {
            fail_op(op, &fault);
        }
    }
    s->dispatching = false;
}

static void enqueue(struct session *s, struct session_op *op, bool first)
{
    op->session = s;
    if (first)
        list_append(s->queue.next, &op->link);
    else
        list_append(&s->queue, &op->link);
    s->waiting++;
    dispatch(s);
}

void session_submit(struct agent *a, const char *id, struct session_op *op)
{
    struct session *s = find(a, id);
    op->removal = false;
    list_init(&op->link);
    if (!s)
        s = make(a, id);
    if (!s || s->waiting >= SESSION_QUEUE_MAX) {
        fail_op(op, &(struct session_fault){.kind = SESSION_FAULT_BUSY,
                                            .code = s ? "TOO_MANY_REQUESTS" : "TOO_MANY_SESSIONS",
                                            .why = s ? "too many operations wait for this session"
                                                     : "there are too many sessions"});
        return;
    }
    enqueue(s, op, false);
}

void session_op_done(struct session_op *op)
{
    struct session *s = op->session;
    op->session = NULL;
    if (!s || s->holder != op)
        return;
    s->holder = NULL;
    s->ours = false;
    dispatch(s);
}

/* ------------------------------------------------------------------ under the lock */

const char *session_id(const struct session *s)
{
    return s->id;
}

int64_t session_timeout_ms(const struct session *s)
{
    return s->config.timeout_ms;
}

int session_cwd(const struct session *s, char *out, size_t cap)
{
    char path[32];
    pid_t pid = s->shell ? shell_pid(s->shell) : 0;
    if (!pid) /* on its way */
        return (size_t)snprintf(out, cap, "%s", start_cwd(s)) < cap ? 0 : -ENAMETOOLONG;
    (void)snprintf(path, sizeof path, "/proc/%d/cwd", (int)pid);
    ssize_t n = readlink(path, out, cap);
    if (n < 0)
        return -errno;
    if ((size_t)n == cap)
        return -ENAMETOOLONG;
    out[n] = '\0';
    return 0;
}

void session_run(struct session *s, struct shell_command *c)
{
    struct error e;
    if (s->dead) {
        s->told = true;
        c->done(c, s->failure ? SHELL_END_NO_SHELL : SHELL_END_DIED, s->exit_code);
    } else if (shell_busy(s->shell)) {
        s->parked = c;
    } else {
        s->ours = true;
        if (shell_run(s->shell, c, &e) < 0) {
            s->ours = false;
            log_error("session '%s': %s", s->id, e.msg);
            c->done(c, SHELL_END_BROKEN, 0);
        }
    }
}

void session_start(struct session *s, struct shell_start *start)
{
    struct error e;
    if (s->dead) {
        s->told = true;
        start->done(start, s->failure ? SHELL_END_NO_SHELL : SHELL_END_DIED, s->exit_code, 0, NULL);
    } else if (shell_busy(s->shell) && !shell_makes_spare(s->shell)) {
        s->parked_start = start;
    } else {
        s->ours = true;
        if (shell_start(s->shell, start, &e) < 0) {
            s->ours = false;
            log_error("session '%s': %s", s->id, e.msg);
            start->done(start, SHELL_END_BROKEN, 0, 0, NULL);
        }
    }
}

struct session_fault session_fault_of(const struct session *s, enum shell_end how, int status)
{
    if (how == SHELL_END_DIED)
        return (struct session_fault){.kind = SESSION_FAULT_TERMINATED, .exit_code = status};
    if (how == SHELL_END_DESTROYED)
        return (struct session_fault){.kind = SESSION_FAULT_DESTROYED};
    if (how == SHELL_END_NO_SHELL)
        return (struct session_fault){.kind = SESSION_FAULT_NO_SHELL,
                                      .why = s && s->failure ? s->failure : "the shell could not be started"};
    return (struct session_fault){.kind = SESSION_FAULT_BROKEN, .why = "the shell could not run the command"};
}

bool session_unrun(struct session *s, struct shell_command *c)
{
    if (s->parked != c)
        return false;
    s->parked = NULL;
    return true;
}

/* ------------------------------------------------------------------ routes */

enum session_state session_state(struct agent *a, const char *id)
{
    struct session *s = find(a, id);
    return !s ? SESSION_ABSENT : s->dead ? SESSION_DEAD : SESSION_ALIVE;
}

static void creation_run(struct session_op *op, struct session *s)
{
    struct session_creation *c = container_of(op, struct session_creation, op);
    if (s->shell && shell_pid(s->shell)) {
        session_op_done(op);
        c->created(c, NULL);
        return;
    }
    s->creation = c;
    session_op_done(op); /* commands may be queued behind a shell that is about to start */
}

static void creation_fail(struct session_op *op, const struct session_fault *fault)
{
    struct session_creation *c = container_of(op, struct session_creation, op);
    if (fault->kind == SESSION_FAULT_DESTROYED || fault->kind == SESSION_FAULT_TERMINATED)
        session_create(c->agent, c->id, c); /* an older session with this id */
    else
        c->created(c, fault->why);
}

void session_create(struct agent *a, const char *id, struct session_creation *c)
{
    c->op.run = creation_run;
    c->op.fail = creation_fail;
    struct session *s = find(a, id);
    if (s && s->dead && !s->holder && list_empty(&s->queue)) {
        session_drop(s);
        s = NULL;
    }
    if (!s) {
        s = make(a, id);
        if (!s) {
            c->code = "TOO_MANY_SESSIONS";
            c->created(c, "there are too many sessions");
            return;
        }
        s->config = c->config;
        c->config = (struct session_config){.timeout_ms = -1};
    }
    enqueue(s, &c->op, false);
}

bool session_remove(struct agent *a, const char *id, struct session_removal *r)
{
    struct session *s = find(a, id);
    if (!s)
        return false;
    r->op = (struct session_op){.run = session_removal_run, .removal = true};
    list_init(&r->op.link);
    bool occupied = s->shell && shell_busy(s->shell) && !s->ours;
    enqueue(s, &r->op, occupied); /* nothing else could run before the occupant is gone */
    if (occupied && s->holder && s->holder != &r->op)
        fail_parked(s, SHELL_END_DESTROYED, 0);
    return true;
}

void session_list(struct agent *a, void (*each)(const char *id, void *arg), void *arg)
{
    list_for_each(i, &a->sessions) each(list_entry(i, struct session, link)->id, arg);
}

size_t session_pids(struct agent *a, pid_t *out, size_t max)
{
    size_t n = 0;
    list_for_each(i, &a->sessions)
    {
        const struct session *s = list_entry(i, struct session, link);
        if (s->shell && shell_pid(s->shell) && n < max)
            out[n++] = shell_pid(s->shell);
    }
    return n;
}

void sessions_free(struct agent *a)
{
    static const struct session_fault ends = {.kind = SESSION_FAULT_NO_SHELL, .why = "the server ends"};
    list_for_each(i, &a->sessions)
    {
        struct session *s = list_entry(i, struct session, link);
        session_drop(s);
        session_fail_waiting(s, &ends);
    }
}
