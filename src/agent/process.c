/* SPDX-License-Identifier: Apache-2.0 */
/* process.c: see process.h.
 *
 * Theory of operation
 * The exit code comes from the reaper. In a session the process is over with its exit: what is in its pipes
 * at that moment is all it has written, and pipes that descendants hold are left to themselves. Sessionless
 * it is over when it has exited and both pipes have ended.
 *
 * References: the table holds one (unless hidden or replaced by a newer record with the same id), the running
 * process one, every reader one. */
#include "agent/process.h"
#include "agent/process_kill.h"
#include "agent/shell_files.h"
#include "base/clock.h"
#include "base/id.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char *const status_names[] = {
    [PROCESS_RUNNING] = "running",
    [PROCESS_COMPLETED] = "completed",
    [PROCESS_FAILED] = "failed",
    [PROCESS_KILLED] = "killed",
};
_Static_assert(ARRAY_SIZE(status_names) == PROCESS_STATUS_COUNT, "name every status");

const char *process_status_name(const struct process *p)
{
    return status_names[p->status];
}

struct process *process_ref(struct process *p)
{
    p->refs++;
    return p;
}

static void not_starting(struct process *p)
{
    p->agent->processes_starting -= p->starting;
    p->starting = false;
}

void process_unref(struct process *p)
{
    if (--p->refs)
        return;
    for (int i = 0; i < 2; i++) {
        tap_close(&p->taps[i]);
        spool_unref(p->spools[i]);
    }
    reaper_forget(p->agent->reaper, &p->child);
    loop_timer_stop(p->agent->loop, &p->timer);
    not_starting(p);
    command_request_done(&p->request);
    free(p);
}

struct process *process_find(struct agent *a, const char *id)
{
    list_for_each(i, &a->processes)
    {
        struct process *p = list_entry(i, struct process, link);
        if (strcmp(p->id, id) == 0)
            return p;
    }
    return NULL;
}

struct process *process_find_run(struct agent *a, uint64_t run)
{
    list_for_each(i, &a->processes)
    {
        struct process *p = list_entry(i, struct process, link);
        if (p->run == run)
            return p;
    }
    return NULL;
}

static void unlist(struct process *p)
{
    if (list_empty(&p->link))
        return;
    list_remove(&p->link);
    p->agent->process_count--;
    process_unref(p);
}

bool process_forget_oldest(struct agent *a)
{
    list_for_each(i, &a->processes)
    {
        struct process *p = list_entry(i, struct process, link);
        if (p->ended) {
            unlist(p);
            return true;
        }
    }
    return false;
}

static void list_record(struct process *p)
{
    struct process *old = process_find(p->agent, p->id);
    if (old)
        unlist(old);
    list_append(&p->agent->processes, &p->link);
    p->agent->process_count++;
    process_ref(p);
}

/* ------------------------------------------------------------------ watchers and output */

static void notify(struct process *p)
{
    process_ref(p); /* a watcher may leave */
    list_for_each(i, &p->watchers)
    {
        struct process_watcher *w = list_entry(i, struct process_watcher, link);
        w->changed(w);
    }
    process_unref(p);
}

static bool too_far_ahead(const struct process *p, int i)
{
    if (!p->live)
        return false;
    uint64_t ahead_max = MIN((uint64_t)PROCESS_AHEAD_MAX, spool_capacity(p->spools[i]) / 2);
    for (const struct list *l = p->watchers.next; l != &p->watchers; l = l->next) {
        const struct process_watcher *w = list_entry(l, struct process_watcher, link);
        if (spool_end(p->spools[i]) - w->offset[i] > ahead_max)
            return true;
    }
    return false;
}

void process_advanced(struct process *p)
{
    for (int i = 0; i < 2; i++)
        if (p->pid && !p->ended && !too_far_ahead(p, i))
            (void)tap_follow(&p->taps[i]); /* fine when followed */
}

void process_watch(struct process *p, struct process_watcher *w)
{
    list_append(&p->watchers, &w->link);
    process_ref(p);
}

void process_unwatch(struct process *p, struct process_watcher *w)
{
    list_remove(&w->link);
    process_advanced(p);
    process_unref(p);
}

uint64_t process_visible_end(const struct process *p, int stream)
{
    const struct spool *s = p->spools[stream - 1];
    return p->sessionless || p->ended ? spool_end(s) : MAX(spool_line_end(s), spool_begin(s));
}

static void on_output(struct process *p, int i, const char *data, size_t n)
{
    spool_append(p->spools[i], data, n);
    if (too_far_ahead(p, i))
        tap_pause(&p->taps[i]);
    notify(p);
}

static void out_data(struct tap *t, const char *data, size_t n)
{
    on_output(container_of(t, struct process, taps[0]), 0, data, n);
}

static void err_data(struct tap *t, const char *data, size_t n)
{
    on_output(container_of(t, struct process, taps[1]), 1, data, n);
}

/* ------------------------------------------------------------------ the end */

static void finish_line(struct spool *s)
{
    if (spool_end(s) > spool_line_end(s))
        spool_append(s, "\n", 1);
}

static void finish(struct process *p)
{
    if (p->ended)
        return;
    if (p->timed_out) {
        char text[80], last = '\n';
        uint64_t end = spool_end(p->spools[1]);
        if (end)
            (void)spool_read(p->spools[1], end - 1, &last, 1);
        int n = snprintf(text, sizeof text, "%sCommand timed out after %lldms%s", last == '\n' ? "" : "\n",
                         (long long)p->request.timeout_ms, p->hidden ? "" : "\n");
        spool_append(p->spools[1], text, (size_t)n);
        p->code = 124;
    }
    if (!p->sessionless)
        for (int i = 0; i < 2; i++)
            finish_line(p->spools[i]);
    for (int i = 0; i < 2; i++)
        tap_leave(&p->taps[i], 0);
    loop_timer_stop(p->agent->loop, &p->timer);
    p->ended = true;
    p->exit_code = p->code;
    p->ended_ms = clock_wall_ms();
    p->status = p->killed || p->code == 137 || p->code == 143 ? PROCESS_KILLED
                : p->code == 0                                ? PROCESS_COMPLETED
                                                              : PROCESS_FAILED;
    notify(p);
    if (p->number)
        shell_start_clean(p->agent, p->number); /* after the news: nobody waits for it */
    shell_spare_now(p->agent);
    list_remove(&p->running);
    process_unref(p);
}

static void tap_end(struct process *p)
{
    if (p->sessionless && p->exited && p->taps[0].fd < 0 && p->taps[1].fd < 0)
        finish(p);
}

static void out_end(struct tap *t)
{
    tap_end(container_of(t, struct process, taps[0]));
}

static void err_end(struct tap *t)
{
    tap_end(container_of(t, struct process, taps[1]));
}

static void exited(struct child *c, int code)
{
    struct process *p = container_of(c, struct process, child);
    process_ref(p);
    p->exited = true;
    p->code = code;
    if (!p->sessionless) {
        for (int i = 0; i < 2; i++)
            (void)tap_drain(&p->taps[i]);
        finish(p);
    } else {
        tap_end(p);
    }
    process_unref(p);
}

/* Sessionless, and the processes are dead or beyond reach: whoever holds the pipes does not matter any more.
 */
static void finish_killed(struct process *p)
{
    process_ref(p);
    reaper_run(p->agent->reaper); /* the end of the main process may not have been noticed yet */
    if (!p->ended && p->exited) {
        for (int i = 0; i < 2; i++)
            (void)tap_drain(&p->taps[i]);
        finish(p);
    }
    process_unref(p);
}

static void timeout_killed(void *arg, bool gone)
{
    struct process *p = arg;
    (void)gone;
    finish_killed(p);
    process_unref(p);
}

static void on_timeout(struct timer *t)
{
    struct process *p = container_of(t, struct process, timer);
    struct killing_config config = {.roots = &p->pid,
                                    .count = 1,
                                    .tags = &p->tag,
                                    .tag_count = 1,
                                    .sessions = true,
                                    .signal = SIGTERM,
                                    .grace_ms = KILL_GRACE_MS,
                                    .done = timeout_killed,
                                    .arg = p};
    if (killing_start(p->agent, &config)) {
        p->timed_out = true;
        process_ref(p);
    }
}

/* ------------------------------------------------------------------ the start */

static void running(struct process *p, pid_t pid, int out, int err)
{
    p->pid = pid;
    tap_init(&p->taps[0], p->agent, out, out_data, out_end);
    tap_init(&p->taps[1], p->agent, err, err_data, err_end);
    list_append(&p->agent->processes_running, &p->running);
    process_ref(p);
    reaper_watch(p->agent->reaper, &p->child, pid, exited);
    command_request_started(&p->request);
    not_starting(p);
    if (!p->hidden)
        list_record(p);
    p->started(p, NULL, p->arg);
    for (int i = 0; i < 2; i++)
        (void)tap_follow(&p->taps[i]);
}

static void fail_start(struct process *p, const struct process_failure *failure)
{
    p->started(p, failure, p->arg);
    process_unref(p);
}

static void shell_done(struct shell_start *start, enum shell_end how, int status, pid_t pid, const int fds[2])
{
    struct process *p = container_of(start, struct process, start);
    if (!pid) {
        struct session_fault fault = session_fault_of(p->op.session, how, status);
        session_op_done(&p->op);
        fail_start(p, &(struct process_failure){.fault = &fault});
        return;
    }
    p->number = start->number;
    p->tag = start->tag;
    running(p, pid, fds[0], fds[1]);
    session_op_done(&p->op);
    process_unref(p);
}

static void op_run(struct session_op *op, struct session *s)
{
    struct process *p = container_of(op, struct process, op);
    p->start = (struct shell_start){
        .text = p->request.command,
        .len = p->request.len,
        .cwd = p->request.cwd,
        .env = &p->request.env,
        .done = shell_done,
    };
    session_start(s, &p->start);
}

static void op_fail(struct session_op *op, const struct session_fault *fault)
{
    fail_start(container_of(op, struct process, op), &(struct process_failure){.fault = fault});
}

static void spawned(struct spawn *spawn, pid_t pid, int err, enum spawn_stage stage)
{
    struct process *p = container_of(spawn, struct process, spawn);
    if (!pid) {
        char why[256];
        if (stage == SPAWN_STAGE_CWD)
            (void)snprintf(why, sizeof why, BAD_CWD_FORMAT ": %s",
                           p->request.cwd ? p->request.cwd : agent_workdir(p->agent), strerror(err));
        else
            (void)snprintf(why, sizeof why, "cannot start " AGENT_BASH ": %s", strerror(err));
        fail_start(p, &(struct process_failure){.why = why});
        return;
    }
    running(p, pid, p->taps[0].fd, p->taps[1].fd);
    if (p->timer.fired)
        loop_timer_start(p->agent->loop, &p->timer, p->request.timeout_ms, on_timeout);
    process_unref(p);
}

static int start_sessionless(struct process *p)
{
    struct agent *a = p->agent;
    const char *argv[] = {AGENT_BASH, "-c", p->request.command, NULL};
    struct env_list env = {0};
    int r = env_merge(&env, a->env.vars);
    if (r == 0)
        r = env_merge(&env, p->request.env.vars);
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    if (r == 0 && (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0 ||
                   fcntl(out[0], F_SETFL, O_NONBLOCK) < 0 || fcntl(err[0], F_SETFL, O_NONBLOCK) < 0))
        r = -errno;
    tap_init(&p->taps[0], a, out[0], NULL, NULL);
    tap_init(&p->taps[1], a, err[0], NULL, NULL);
    const char *cwd = p->request.cwd;
    if (!cwd)
        cwd = access(agent_workdir(a), X_OK) == 0 ? agent_workdir(a) : agent_home(a);
    p->tag = process_tag_new(a);
    struct spawn_target target = {.path = bash_program(),
                                  .argv = argv,
                                  .env = env.vars,
                                  .cwd = cwd,
                                  .fds = {-1, out[1], err[1]},
                                  .tag = p->tag.last};
    if (r == 0) {
        r = spawner_spawn(a->spawner, &p->spawn, &target, spawned);
    } else {
        close_fd(&out[1]);
        close_fd(&err[1]);
    }
    env_done(&env);
    return r;
}

static char *new_id(void)
{
    char name[7], id[64];
    random_name(name, 6);
    (void)snprintf(id, sizeof id, "proc_%lld_%s", (long long)clock_wall_ms(), name);
    return strdup(id);
}

int process_start(struct agent *a, struct command_request *request, const struct process_options *options)
{
    if (!options->hidden && a->process_count + a->processes_starting >= PROCESS_RECORDS_MAX &&
        !process_forget_oldest(a))
        return -EAGAIN;
    struct process *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->agent = a;
    p->refs = 1;
    list_init(&p->link);
    list_init(&p->running);
    list_init(&p->watchers);
    p->taps[0].fd = p->taps[1].fd = p->taps[0].source.fd = p->taps[1].source.fd = -1;
    p->request = *request;
    *request = (struct command_request){.timeout_ms = -1};
    p->sessionless = p->request.sessionless;
    p->hidden = options->hidden;
    p->live = options->live;
    p->started = options->started;
    p->arg = options->arg;
    p->started_ms = clock_wall_ms();
    do
        random_bytes(&p->run, sizeof p->run);
    while (!p->run);
    p->starting = !p->hidden;
    a->processes_starting += p->starting;
    if (!p->request.process_id)
        p->request.process_id = new_id();
    p->id = p->request.process_id;
    p->command = p->request.command;
    p->session_id = p->request.session_id;
    for (int i = 0; i < 2; i++)
        p->spools[i] = spool_new(&a->spools);
    if (!p->id || !p->spools[0] || !p->spools[1]) {
        process_unref(p);
        return -ENOMEM;
    }
    if (p->sessionless) {
        if (options->timeout && p->request.timeout_ms >= 0)
            p->timer.fired = on_timeout; /* armed once it runs */
        int r = start_sessionless(p);
        if (r < 0)
            process_unref(p);
        return r;
    }
    p->op = (struct session_op){.run = op_run, .fail = op_fail};
    session_submit(a, p->session_id, &p->op);
    return 0;
}

/* ------------------------------------------------------------------ kill */

struct kill_call {
    void (*done)(void *arg, size_t killed);
    void *arg;
    size_t count;
    struct process *processes[]; /* with a reference each */
};

static void killed(void *arg, bool gone)
{
    struct kill_call *k = arg;
    size_t count = 0;
    (void)gone; /* of several trees one may be gone and another not: the records tell */
    for (size_t i = 0; i < k->count; i++) {
        struct process *p = k->processes[i];
        finish_killed(p);
        if (!p->ended)
            p->killed = false;
        count += p->ended;
    }
    k->done(k->arg, count);
    for (size_t i = 0; i < k->count; i++)
        process_unref(k->processes[i]);
    free(k);
}

int processes_kill(struct agent *a, struct process *const *processes, size_t count, int signal,
                   void (*done)(void *arg, size_t killed), void *arg)
{
    struct kill_call *k = malloc(sizeof *k + count * sizeof *processes);
    auto_free pid_t *roots = calloc(count + 1, sizeof *roots);
    auto_free struct process_tag *tags = calloc(count + 1, sizeof *tags);
    if (!k || !roots || !tags) {
        free(k);
        return -ENOMEM;
    }
    *k = (struct kill_call){.done = done, .arg = arg, .count = count};
    for (size_t i = 0; i < count; i++) {
        k->processes[i] = processes[i];
        roots[i] = processes[i]->pid;
        tags[i] = processes[i]->tag;
    }
    struct killing_config config = {.roots = roots,
                                    .count = count,
                                    .tags = tags,
                                    .tag_count = count,
                                    .sessions = true,
                                    .signal = signal,
                                    .grace_ms = KILL_GRACE_MS,
                                    .done = killed,
                                    .arg = k};
    if (!killing_start(a, &config)) {
        free(k);
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        processes[i]->killed = true;
        process_ref(processes[i]);
    }
    return 0;
}

size_t process_pids_of(struct agent *a, const char *session_id, pid_t *out, size_t max)
{
    size_t n = 0;
    list_for_each(i, &a->processes)
    {
        const struct process *p = list_entry(i, struct process, link);
        if (!p->ended && !p->sessionless && n < max && strcmp(p->session_id, session_id) == 0)
            out[n++] = p->pid;
    }
    return n;
}

void processes_free(struct agent *a)
{
    list_for_each(i, &a->processes) unlist(list_entry(i, struct process, link));
    list_for_each(i, &a->processes_running)
    {
        struct process *p = list_entry(i, struct process, running);
        list_remove(i);
        p->ended = true; /* that will not be seen any more */
        process_unref(p);
    }
}
