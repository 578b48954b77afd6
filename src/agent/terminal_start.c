/* SPDX-License-Identifier: Apache-2.0 */
/* terminal_start.c: bringing up a terminal: the session's environment and directory, a pty, a shell on it.
 *
 * The environment is asked of the session's own shell, under its lock, so a terminal waits for a command that
 * runs. The slave is taken from the master itself (TIOCGPTPEER), never by a path that a program inside could
 * have replaced. */
#include "agent/session.h"
#include "agent/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

enum { ENV_MAX = 8 << 20, PATH_MAX_BYTES = 4096 };

/* The exported variables, then the directory as an entry without a name. */
static const char ask[] = "command env -0; printf '=%s\\0' \"$PWD\"";

/* Outlives its terminal when that goes while the session's shell is being asked. */
struct terminal_start {
    struct terminal *terminal; /* NULL: nobody waits */
    struct agent *agent;
    struct session_task task;
    struct spawn spawn;
    struct deferred later; /* for what needs no session */
    struct env_list env;
    char *cwd, *shell;
    int master;
    bool asking;
    bool cwd_given_up;
};

static void start_free(struct terminal_start *s)
{
    loop_undefer(s->agent->loop, &s->later);
    spawner_cancel(&s->spawn);
    close_fd(&s->master);
    env_done(&s->env);
    free(s->cwd);
    free(s->shell);
    free(s);
}

void terminal_start_cancel(struct terminal *t)
{
    struct terminal_start *s = take_ptr(t->start);
    if (!s)
        return;
    s->terminal = NULL;
    if (!s->asking)
        start_free(s);
}

static void fail(struct terminal_start *s, const char *why)
{
    struct terminal *t = s->terminal;
    t->start = NULL;
    start_free(s);
    terminal_fail(t, why);
}

/* ------------------------------------------------------------------ the process */

static bool is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* As execvp would find it, with the terminal's own PATH. */
static bool find_program(const struct terminal_start *s, char *out, size_t cap)
{
    const char *path = env_get(&s->env, "PATH");
    if (strchr(s->shell, '/')) /* relative to the directory it starts in */
        return (size_t)snprintf(out, cap, "%s", s->shell) < cap;
    for (const char *p = path ? path : "/usr/local/bin:/usr/bin:/bin";;) {
        size_t n = strcspn(p, ":");
        if (n && (size_t)snprintf(out, cap, "%.*s/%s", (int)n, p, s->shell) < cap && is_program(out))
            return true;
        if (!p[n])
            return false;
        p += n + 1;
    }
}

static int open_pty(int *ret_master, int *ret_slave)
{
    int unlock = 0;
    auto_close int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0 || fcntl(master, F_SETFL, O_RDWR | O_NONBLOCK) < 0 ||
        ioctl(master, TIOCSPTLCK, &unlock) < 0)
        return -errno;
    auto_close int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0)
        return -errno;
    *ret_master = take_fd(master);
    *ret_slave = take_fd(slave);
    return 0;
}

static void spawn_shell(struct terminal_start *s);

static void spawned(struct spawn *spawn, pid_t pid, int err, enum spawn_stage stage)
{
    struct terminal_start *s = container_of(spawn, struct terminal_start, spawn);
    struct terminal *t = s->terminal;
    char why[PATH_MAX_BYTES + 256];
    if (!pid && stage == SPAWN_STAGE_CWD && !s->cwd_given_up) {
        s->cwd_given_up = true;
        close_fd(&s->master);
        free(s->cwd);
        s->cwd = strdup(agent_home(s->agent));
        spawn_shell(s);
        return;
    }
    if (!pid) {
        (void)snprintf(why, sizeof why, "Failed to create PTY: %s: %s", s->shell, strerror(err));
        fail(s, why);
        return;
    }
    int master = take_fd(s->master);
    t->start = NULL;
    start_free(s);
    terminal_run(t, pid, master);
}

static void spawn_shell(struct terminal_start *s)
{
    char path[PATH_MAX_BYTES], why[PATH_MAX_BYTES + 256];
    int slave = -1;
    if (!find_program(s, path, sizeof path)) {
        (void)snprintf(why, sizeof why, "Failed to create PTY: %s: not found", s->shell);
        fail(s, why);
        return;
    }
    int r = open_pty(&s->master, &slave);
    if (r == 0) {
        int more[2] = {fcntl(slave, F_DUPFD_CLOEXEC, 0), fcntl(slave, F_DUPFD_CLOEXEC, 0)};
        struct winsize size = {.ws_col = s->terminal->cols, .ws_row = s->terminal->rows};
        (void)ioctl(s->master, TIOCSWINSZ, &size);
        struct spawn_target target = {.path = path,
                                      .argv = (const char *const[]){s->shell, NULL},
                                      .env = s->env.vars,
                                      .cwd = s->cwd,
                                      .fds = {slave, more[0], more[1]},
                                      .terminal = true,
                                      .tag = s->terminal->tag.last};
        r = spawner_spawn(s->agent->spawner, &s->spawn, &target, spawned);
    }
    if (r < 0) {
        (void)snprintf(why, sizeof why, "Failed to create PTY: %s", strerror(-r));
        fail(s, why);
    }
}

/* ------------------------------------------------------------------ the environment */

static int set_terminal_vars(struct env_list *env)
{
    int r = env_set(env, "TERM", "xterm-256color");
    return r < 0 ? r : env_set(env, "PROMPT_COMMAND", "clear; unset PROMPT_COMMAND");
}

/* Without (the answer of) a session: the agent's own environment. */
static void begin(struct terminal_start *s)
{
    int r = s->env.count ? 0 : env_merge(&s->env, s->agent->env.vars);
    if (r == 0)
        r = set_terminal_vars(&s->env);
    if (r == 0 && !s->cwd && !(s->cwd = strdup(agent_workdir(s->agent))))
        r = -ENOMEM;
    if (r < 0)
        fail(s, "Failed to create PTY: out of memory");
    else
        spawn_shell(s);
}

static void begin_later(struct deferred *d)
{
    begin(container_of(d, struct terminal_start, later));
}

/* The last entry is the directory. */
static void read_answer(struct terminal_start *s, struct spool *out)
{
    size_t n = (size_t)MIN(spool_end(out), (uint64_t)ENV_MAX), have = 0;
    auto_free char *text = malloc(n + 1);
    while (text && have < n) {
        ssize_t got = spool_read(out, have, text + have, n - have);
        if (got <= 0)
            return;
        have += (size_t)got;
    }
    if (!have || text[have - 1] != '\0')
        return;
    const char *last = text + have - 1;
    while (last > text && last[-1] != '\0')
        last--;
    if (*last != '=' || last == text || env_merge_block(&s->env, text, (size_t)(last - text)) < 0) {
        env_done(&s->env);
        return;
    }
    s->cwd = strdup(last + 1);
}

static void answered(struct session_task *task, const struct session_fault *fault, int status)
{
    struct terminal_start *s = container_of(task, struct terminal_start, task);
    s->asking = false;
    if (!s->terminal) {
        start_free(s);
        return;
    }
    if (fault && fault->kind != SESSION_FAULT_BROKEN) {
        char why[512];
        (void)snprintf(why, sizeof why, "Failed to create PTY: %s",
                       fault->why                                ? fault->why
                       : fault->kind == SESSION_FAULT_DESTROYED  ? "the session was destroyed"
                       : fault->kind == SESSION_FAULT_TERMINATED ? "the session's shell has ended"
                                                                 : "the session cannot be used");
        fail(s, why);
        return;
    }
    if (!fault && status == 0)
        read_answer(s, task->out);
    begin(s);
}

void terminal_start(struct terminal *t, const char *shell)
{
    struct terminal_start *s = calloc(1, sizeof *s);
    if (!s) {
        terminal_fail(t, "Failed to create PTY: out of memory");
        return;
    }
    s->terminal = t;
    s->agent = t->agent;
    s->master = -1;
    t->start = s;
    s->shell = strdup(shell);
    if (!s->shell) {
        fail(s, "Failed to create PTY: out of memory");
        return;
    }
    if (strcmp(t->session, AGENT_SESSIONLESS) == 0) {
        loop_defer(t->agent->loop, &s->later, begin_later);
        return;
    }
    s->task = (struct session_task){.text = ask, .len = sizeof ask - 1, .timeout_ms = -1, .done = answered};
    s->asking = true;
    if (session_task_start(t->agent, t->session, &s->task) < 0) {
        s->asking = false;
        fail(s, "Failed to create PTY: out of memory");
    }
}
