/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor.c: see supervisor.h. */
#include "agent/supervisor.h"
#include "agent/program.h"
#include "agent/tap.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { LINE_MAX_BYTES = 4000 };

struct supervisor {
    struct agent *agent;
    struct spawn spawn;
    struct child child;
    pid_t pid;
    struct tap taps[2];
    struct buf lines[2];
    struct supervisor_config config;
};

pid_t supervisor_pid(const struct supervisor *s)
{
    return s ? s->pid : 0;
}

/* Escape sequences (ESC [ ... letter) are left out. */
static void log_line(const char *line, size_t n)
{
    char text[LINE_MAX_BYTES + 1];
    size_t len = 0;
    for (size_t i = 0; i < n && len < LINE_MAX_BYTES; i++) {
        if (line[i] == '\033' && i + 1 < n && line[i + 1] == '[') {
            i += 2;
            while (i < n && (line[i] < '@' || line[i] > '~'))
                i++;
            continue;
        }
        text[len++] = line[i];
    }
    text[len] = '\0';
    log_debug("command: %s", text);
}

static void on_data(struct supervisor *s, int stream, const char *data, size_t n)
{
    struct buf *lines = &s->lines[stream - 1];
    if (s->config.output)
        s->config.output(s->agent, stream, data, n);
    if (!log_enabled(LOG_DEBUG))
        return;
    while (n) {
        const char *nl = memchr(data, '\n', n);
        size_t take = nl ? (size_t)(nl - data) : n;
        (void)buf_append(lines, data,
                         MIN(take, lines->limit - buf_len(lines))); /* the rest of a long line is cut */
        data += take + (nl != NULL);
        n -= take + (nl != NULL);
        if (nl) {
            log_line(buf_data(lines), buf_len(lines));
            buf_clear(lines);
        }
    }
}

static void out_data(struct tap *t, const char *data, size_t n)
{
    on_data(container_of(t, struct supervisor, taps[0]), 1, data, n);
}

static void err_data(struct tap *t, const char *data, size_t n)
{
    on_data(container_of(t, struct supervisor, taps[1]), 2, data, n);
}

static void tap_end(struct tap *t)
{
    (void)t;
}

static void exited(struct child *c, int code)
{
    struct supervisor *s = container_of(c, struct supervisor, child);
    s->pid = 0;
    for (int i = 0; i < 2; i++)
        (void)tap_drain(&s->taps[i]); /* its last words */
    if (code || s->config.is_main)
        s->config.ended(s->agent, code);
    else
        log_info("the command has ended; serving on");
}

static void spawned(struct spawn *spawn, pid_t pid, int err, enum spawn_stage stage)
{
    struct supervisor *s = container_of(spawn, struct supervisor, spawn);
    (void)stage;
    if (pid) {
        s->pid = pid;
        reaper_watch(s->agent->reaper, &s->child, pid, exited);
        for (int i = 0; i < 2; i++)
            (void)tap_follow(&s->taps[i]);
    }
    if (s->config.started) {
        s->config.started(s->agent, err);
    } else if (!pid) {
        log_error("cannot start the command: %s", strerror(err));
        s->config.ended(s->agent, 1);
    }
}

int supervisor_start(struct agent *a, const struct supervisor_config *config, struct supervisor **ret,
                     struct error *reterr)
{
    char *const *argv = config->argv;
    char path[PATH_MAX], cwd[PATH_MAX];
    struct env_list env = {0};
    int fds[2][2] = {{-1, -1}, {-1, -1}};
    struct supervisor *s = calloc(1, sizeof *s);
    if (!s)
        return error_sys(reterr, ENOMEM, "start '%s'", argv[0]);
    s->agent = a;
    s->config = *config;
    s->config.argv = NULL; /* the caller's, and used only now */
    const char *raw = agent_getenv(a, "SANDBOX_RAW_CHILD_STDIO");
    bool inherit = raw && strcmp(raw, "1") == 0 && !config->output;
    int r = program_find(&a->env, argv[0], path, sizeof path);
    for (int i = 0; i < 2 && r == 0; i++)
        if (inherit ? (fds[i][1] = fcntl(i + 1, F_DUPFD_CLOEXEC, 3)) < 0
                    : pipe2(fds[i], O_CLOEXEC) < 0 || fcntl(fds[i][0], F_SETFL, O_NONBLOCK) < 0)
            r = -errno;
    tap_init(&s->taps[0], a, fds[0][0], out_data, tap_end);
    tap_init(&s->taps[1], a, fds[1][0], err_data, tap_end);
    s->lines[0] = s->lines[1] = BUF_INIT(LINE_MAX_BYTES);
    if (r == 0)
        r = env_merge(&env, a->env.vars);
    if (r == 0 && !config->is_main)
        r = env_set(&env, "SANDBOX_STARTED", "true");
    if (!config->cwd && !getcwd(cwd, sizeof cwd))
        (void)snprintf(cwd, sizeof cwd, "/");
    struct spawn_target target = {
        .path = path,
        .argv = (const char *const *)argv,
        .env = env.vars,
        .cwd = config->cwd ? config->cwd : cwd,
        .fds = {-1, fds[0][1], fds[1][1]},
    };
    if (r == 0) {
        r = spawner_spawn(a->spawner, &s->spawn, &target, spawned);
    } else {
        close_fd(&fds[0][1]);
        close_fd(&fds[1][1]);
    }
    env_done(&env);
    if (r < 0) {
        supervisor_free(s);
        return error_sys(reterr, -r, "start '%s'", argv[0]);
    }
    *ret = s;
    return 0;
}

void supervisor_free(struct supervisor *s)
{
    if (!s)
        return;
    spawner_cancel(&s->spawn);
    reaper_forget(s->agent->reaper, &s->child);
    for (int i = 0; i < 2; i++) {
        tap_close(&s->taps[i]);
        buf_done(&s->lines[i]);
    }
    free(s);
}
