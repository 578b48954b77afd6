/* SPDX-License-Identifier: Apache-2.0 */
/* spare_shell.c: see spare_shell.h. */
#include "agent/spare_shell.h"
#include "agent/origin.h"
#include "agent/session_internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A new sandbox that somebody waits for is owned at once: its first command finds the processor free. */
enum { PREPARE_MS = 20, LOOK_MS = 10, KEEP_MS = 1000 };

struct spare_shell {
    struct agent *agent;
    struct timer timer;
    struct shell *shell; /* NULL: not yet */
    struct env_list env; /* it was started with */
    char *cwd;
    struct origin *origin; /* if it will have to move */
};

static void spare_end(struct spare_shell *s)
{
    loop_timer_stop(s->agent->loop, &s->timer);
    env_done(&s->env);
    origin_free(s->origin);
    free(s->cwd);
    free(s);
}

void spare_shell_free(struct agent *a)
{
    struct spare_shell *s = take_ptr(a->spare_shell);
    if (!s)
        return;
    if (s->shell && shell_pid(s->shell))
        (void)kill(shell_pid(s->shell), SIGKILL);
    shell_free(s->shell); /* one that is still on its way reads the end of its input, and ends */
    spare_end(s);
}

static void timer_free(struct timer *t)
{
    spare_shell_free(container_of(t, struct spare_shell, timer)->agent);
}

/* What happens to a shell that nobody uses: it goes. */
static void on_idle(struct shell *sh, void *arg)
{
    (void)sh;
    (void)arg;
}

static void on_dead(struct shell *sh, int code, void *arg)
{
    struct spare_shell *s = arg;
    (void)sh;
    (void)code;
    spare_shell_free(s->agent);
}

static void on_failed(struct shell *sh, const char *why, void *arg)
{
    (void)why; /* whoever needs a shell will be told */
    on_dead(sh, 0, arg);
}

static void look(struct timer *t)
{
    struct spare_shell *s = container_of(t, struct spare_shell, timer);
    if (!shell_waits(s->shell))
        loop_timer_start(s->agent->loop, t, LOOK_MS, look);
    else
        s->origin = origin_of(shell_pid(s->shell));
}

static void start(struct timer *t)
{
    static const struct shell_ops ops = {.idle = on_idle, .dead = on_dead, .failed = on_failed};
    struct spare_shell *s = container_of(t, struct spare_shell, timer);
    struct agent *a = s->agent;
    const char *cwd = session_default_cwd(a);
    s->cwd = strdup(cwd);
    if (!s->cwd || session_shell_env(a, NULL, &s->env) < 0 ||
        shell_new(a, s->env.vars, a->bare ? "/" : cwd, &ops, s, &s->shell, NULL) < 0)
        spare_shell_free(a);
    else if (a->bare)
        loop_timer_start(a->loop, t, LOOK_MS, look);
}

void spare_shell_prepare(struct agent *a)
{
    /* who the commands belong to is found out when there is an owner */
    if (a->spare_shell || a->settings.user)
        return;
    a->spare_shell = calloc(1, sizeof *a->spare_shell);
    if (!a->spare_shell)
        return;
    a->spare_shell->agent = a;
    if (a->soon)
        start(&a->spare_shell->timer);
    else
        loop_timer_start(a->loop, &a->spare_shell->timer, PREPARE_MS, start);
}

void spare_shell_owned(struct agent *a)
{
    struct spare_shell *s = a->spare_shell;
    if (!s)
        return;
    if (s->shell && !a->settings.user && !a->settings.hostname)
        loop_timer_start(a->loop, &s->timer, KEEP_MS, timer_free);
    else
        spare_shell_free(a);
}

static bool same_env(char *const *a, char *const *b)
{
    size_t i = 0;
    while (a[i] && b[i] && strcmp(a[i], b[i]) == 0)
        i++;
    return !a[i] && !b[i];
}

/* The kernel gives the new root to everybody who had the old one, except to who is being forked at that
 * moment: he starts in a tree that nobody else has. */
static bool has_our_root(pid_t pid)
{
    char path[32];
    struct stat ours, its;
    (void)snprintf(path, sizeof path, "/proc/%d/root", (int)pid);
    return stat("/", &ours) == 0 && stat(path, &its) == 0 && ours.st_dev == its.st_dev &&
           ours.st_ino == its.st_ino;
}

struct shell *spare_shell_take(struct agent *a, char *const *env, const char *cwd,
                               const struct shell_ops *ops, void *arg)
{
    struct spare_shell *s = a->spare_shell;
    if (!s)
        return NULL;
    if (!s->shell || !same_env(s->env.vars, env) || strcmp(s->cwd, cwd) != 0 ||
        (a->bare && !(origin_unchanged(s->origin, a->pristine) && has_our_root(shell_pid(s->shell))))) {
        spare_shell_free(a);
        return NULL;
    }
    struct shell *sh = take_ptr(s->shell);
    a->spare_shell = NULL;
    spare_end(s);
    shell_hand_over(sh, a->bare ? cwd : NULL, ops, arg);
    return sh;
}
