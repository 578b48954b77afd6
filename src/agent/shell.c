/* SPDX-License-Identifier: Apache-2.0 */
/* shell.c: see shell.h.
 *
 * Theory of operation
 * bash reads its commands from a pipe. For each command the agent opens the reading ends of the FIFOs o and e
 * anew (a fresh open knows nothing of earlier writers), writes the script and waits for the END note. By then
 * bash has closed its own ends: what is in the FIFOs is all the command has written. If somebody still holds
 * one, it is left to be drained into nowhere, and the next command gets a new FIFO under the same name.
 *
 * A command that needs less than a millisecond is over before anybody has looked at its output, so o and e
 * are followed only after that time (unless the output is live): most commands cost two wake-ups instead of
 * six.
 *
 * Nor is END asked for before that time: bash reads the line for it byte by byte. When the command's status
 * is noted and nobody has o or e open any more, not even bash, then nothing is missing, and the line is left
 * out. Only its newline comes before the next script, so that $LINENO does not depend on how long a command
 * took.
 *
 * A shell that waits for more input, has read all there was and yet has sent no END does not execute any
 * more, or not where we hear of it (`set -n`, no descriptor left, FIFOs out of its sight): it is killed, and
 * its death is reported. Who closes both FIFOs is looked at soon, others now and then. */
#include "agent/shell_internal.h"
#include "agent/shell_quote.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

enum {
    LAZY_MS = 1,
    LAZY_MAX_MS = 16,
    COMMANDS_PER_LAZY_MS = 2, /* many at once wait for a processor, and not for us */
    STUCK_MS = 200,
    STUCK_MAX_MS = 5000,
    NOTES_MAX = 64 * 1024,
};

pid_t shell_pid(const struct shell *sh)
{
    return sh->child.pid;
}

unsigned shell_number(const struct shell *sh)
{
    return sh->number;
}

struct process_tag shell_tag(const struct shell *sh)
{
    return sh->tag;
}

bool shell_busy(const struct shell *sh)
{
    return sh->command || sh->birth.under_way;
}

/* ------------------------------------------------------------------ files */

static void path_of(const struct shell *sh, char letter, char out[SHELL_PATH_MAX])
{
    shell_path(out, sh->agent->fifo_dir, SHELL_PATH_SESSION, sh->number, letter);
}

/* ------------------------------------------------------------------ input */

static void in_ready(struct source *s, uint32_t events)
{
    (void)events;
    shell_flush_input(container_of(s, struct shell, in_source));
}

void shell_flush_input(struct shell *sh)
{
    while (buf_len(&sh->in)) {
        ssize_t n = write(sh->in_fd, buf_data(&sh->in), buf_len(&sh->in));
        if (n > 0) {
            buf_consume(&sh->in, (size_t)n);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN && sh->in_source.fd < 0)
            (void)loop_add(sh->agent->loop, &sh->in_source, sh->in_fd, EPOLLOUT, in_ready);
        if (n < 0 && errno == EAGAIN)
            return;
        break; /* bash is gone; its end is reported by the reaper */
    }
    loop_del(sh->agent->loop, &sh->in_source);
    buf_done(&sh->in);
}

int shell_send_script(struct shell *sh, const struct shell_script *script,
                      int (*build)(struct buf *out, const struct shell_script *s), bool end_now)
{
    char path[SHELL_PATH_MAX];
    const char *owed = sh->line_owed ? "\n" : "";
    int r = buf_puts(&sh->in, owed);
    if (r == 0)
        r = build(&sh->in, script);
    path_of(sh, 'w', path);
    if (r == 0 && buf_len(&sh->in) > SHELL_TEXT_INLINE) {
        end_now = true; /* reading the file takes a fork */
        buf_consume(&sh->in, strlen(owed));
        size_t whole = buf_len(&sh->in);
        int written = shell_file_write(path, &sh->in);
        if (written < 0 && buf_len(&sh->in) < whole)
            r = written; /* half of it is gone: bash must not see the rest */
        else if (written == 0)
            r = buf_puts(&sh->in, owed);
        if (r == 0 && written == 0)
            r = shell_script_from_file(&sh->in, script);
    }
    if (r == 0 && end_now)
        r = shell_script_end(&sh->in, script);
    if (r < 0) {
        buf_done(&sh->in);
        return r;
    }
    sh->line_owed = false;
    sh->end_asked = end_now;
    return 0;
}

static void on_lazy_over(struct timer *t);

static void ask_for_end(struct shell *sh)
{
    struct shell_script script = {.dir = sh->agent->fifo_dir, .shell = sh->number};
    if (sh->end_asked)
        return;
    bool unread = buf_len(&sh->in) > 0; /* it has not even got its script */
    if (!unread && shell_script_end(&sh->in, &script) == 0) {
        sh->end_asked = true;
        shell_flush_input(sh);
        return;
    }
    if (!unread)
        buf_done(&sh->in); /* there was no memory for a line */
    loop_timer_start(sh->agent->loop, &sh->timer, LAZY_MS, on_lazy_over);
}

/* ------------------------------------------------------------------ ends */

void shell_tell_idle(struct shell *sh)
{
    if (!sh->dead && !sh->freed && !shell_busy(sh))
        sh->ops->idle(sh, sh->arg);
}

void shell_reset_job(struct shell *sh)
{
    sh->has_status = sh->has_eval = sh->bad_cwd = false;
    loop_timer_stop(sh->agent->loop, &sh->timer);
}

/* Takes what is in the FIFOs; what others still hold is left to itself. */
static void collect_output(struct shell *sh, struct shell_command *c)
{
    static const char letters[2] = {'o', 'e'};
    for (int i = 0; i < 2; i++) {
        char path[SHELL_PATH_MAX];
        if (tap_drain(&c->taps[i]))
            continue;
        path_of(sh, letters[i], path);
        (void)fifo_make(path); /* a failure shows when the next command opens it */
        tap_leave(&c->taps[i], sh->number);
    }
}

static void end_command(struct shell *sh, enum shell_end how, int status)
{
    struct shell_command *c = take_ptr(sh->command);
    char path[SHELL_PATH_MAX];
    sh->agent->commands_under_way--;
    collect_output(sh, c);
    if (c->text_in_file) {
        path_of(sh, 't', path);
        (void)unlink(path);
    }
    shell_reset_job(sh);
    c->shell = NULL;
    c->done(c, how, status);
}

static void end_job(struct shell *sh, enum shell_end how, int status)
{
    if (sh->command)
        end_command(sh, how, status);
    else if (sh->birth.under_way)
        shell_birth_failed(sh, how, status);
}

static int send_command(struct shell *sh, struct shell_command *c);

static void on_end(struct shell *sh)
{
    if (sh->birth.under_way) {
        shell_birth_parent_gone(sh, sh->end_status);
    } else if (sh->command) {
        struct shell_command *c = sh->command;
        int status = sh->has_status ? sh->status : sh->has_eval ? sh->eval_status : sh->end_status;
        if (!sh->has_status && !sh->bad_cwd && status != 2 && !c->retried) {
            /* neither run nor refused as a syntax error: the guard word is not bash's own any more */
            c->retried = true;
            sh->plain_command = !sh->plain_command;
            for (int i = 0; i < 2; i++)
                tap_close(&c->taps[i]);
            shell_reset_job(sh);
            if (send_command(sh, c) == 0)
                return;
        }
        enum shell_end how = sh->bad_cwd                     ? SHELL_END_BAD_CWD
                             : sh->has_status || status == 2 ? SHELL_END_STATUS
                                                             : SHELL_END_BROKEN;
        end_command(sh, how, how == SHELL_END_BAD_CWD ? 1 : status);
    }
    shell_tell_idle(sh);
}

/* The command is over. Most of the time bash has closed its outputs by now, and then so is everything else.
 */
static void on_status(struct shell *sh)
{
    struct shell_command *c = sh->command;
    if (!c || sh->end_asked)
        return;
    bool over = true;
    for (int i = 0; i < 2 && over; i++)
        over = tap_drain(&c->taps[i]);
    if (sh->command != c)
        return; /* whoever got the output has ended it */
    if (!over) {
        ask_for_end(sh);
        return;
    }
    sh->line_owed = true;
    end_command(sh, SHELL_END_STATUS, sh->status);
    shell_tell_idle(sh);
}

static void on_note(struct shell *sh, struct shell_note note)
{
    switch (note.kind) {
    case SHELL_NOTE_NONE:
        break;
    case SHELL_NOTE_STATUS:
        sh->has_status = true;
        sh->status = note.value & 255;
        on_status(sh);
        break;
    case SHELL_NOTE_EVAL:
        sh->has_eval = true;
        sh->eval_status = note.value & 255;
        break;
    case SHELL_NOTE_BAD_VAR:
        if (sh->command && sh->command->env && (size_t)note.value < sh->command->env->count) {
            const char *var = sh->command->env->vars[note.value];
            char text[160];
            int len = snprintf(text, sizeof text, "bash: %.*s: cannot be set\n",
                               (int)MIN(strcspn(var, "="), (size_t)100), var);
            sh->command->output(sh->command, 2, text, (size_t)len);
        }
        break;
    case SHELL_NOTE_BAD_CWD:
        sh->bad_cwd = true;
        break;
    case SHELL_NOTE_PID:
        if (sh->birth.under_way && note.value > 1) {
            shell_birth_announced(sh, note.value);
            shell_tell_idle(sh);
        }
        break;
    case SHELL_NOTE_END:
        sh->end_status = note.value & 255;
        on_end(sh);
        break;
    }
}

static void read_notes(struct shell *sh)
{
    char chunk[512];
    while (!sh->freed) {
        ssize_t n = read(sh->notes_fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        if (buf_append(&sh->notes, chunk, (size_t)n) < 0)
            buf_clear(&sh->notes); /* notes are short lines: this is something else */
        const char *nl;
        while (!sh->freed && buf_len(&sh->notes) &&
               (nl = memchr(buf_data(&sh->notes), '\n', buf_len(&sh->notes)))) {
            size_t len = (size_t)(nl - buf_data(&sh->notes));
            struct shell_note note = shell_note_parse(buf_data(&sh->notes), len);
            buf_consume(&sh->notes, len + 1);
            on_note(sh, note);
        }
        if ((size_t)n < sizeof chunk)
            return; /* that was all; the loop tells when there is more */
    }
}

static void notes_ready(struct source *s, uint32_t events)
{
    (void)events;
    read_notes(container_of(s, struct shell, notes_source));
}

static void child_exited(struct child *child, int code)
{
    struct shell *sh = container_of(child, struct shell, child);
    read_notes(sh); /* what it said before */
    if (sh->freed)
        return;
    sh->dead = true;
    shell_spare_drop(sh);
    sh->ops->dead(sh, code, sh->arg);
    end_job(sh, SHELL_END_DIED, code);
}

/* ------------------------------------------------------------------ commands */

static bool has_nothing_to_do(const struct shell *sh)
{
    int unread = 0;
    return sh->child.pid && sh->end_asked && !buf_len(&sh->in) && ioctl(sh->in_fd, FIONREAD, &unread) == 0 &&
           !unread && process_reads_pipe(sh->child.pid, sh->in_fd);
}

static void on_stuck(struct timer *t);

static void look_later(struct shell *sh, int64_t delay_ms)
{
    sh->look_ms = MIN(delay_ms, (int64_t)STUCK_MAX_MS);
    loop_timer_start(sh->agent->loop, &sh->timer, sh->look_ms, on_stuck);
}

static void on_stuck(struct timer *t)
{
    struct shell *sh = container_of(t, struct shell, timer);
    const struct shell_command *c = sh->command;
    if (has_nothing_to_do(sh)) {
        read_notes(sh); /* what it said a moment ago */
        if (sh->freed || sh->command != c || loop_timer_running(t))
            return;
        log_warn("shell %u does not execute any more: killed", sh->number);
        (void)kill(sh->child.pid, SIGKILL);
        return;
    }
    look_later(sh, sh->look_ms * 2);
}

static void tap_data(struct tap *t, const char *data, size_t n, int stream)
{
    struct shell_command *c = container_of(t, struct shell_command, taps[stream - 1]);
    c->output(c, stream, data, n);
}

static void out_data(struct tap *t, const char *data, size_t n)
{
    tap_data(t, data, n, 1);
}

static void err_data(struct tap *t, const char *data, size_t n)
{
    tap_data(t, data, n, 2);
}

static void check_stuck(struct shell_command *c)
{
    if (c->shell && c->taps[0].fd < 0 && c->taps[1].fd < 0)
        look_later(c->shell, STUCK_MS);
}

static void out_end(struct tap *t)
{
    check_stuck(container_of(t, struct shell_command, taps[0]));
}

static void err_end(struct tap *t)
{
    check_stuck(container_of(t, struct shell_command, taps[1]));
}

static void follow_output(struct shell *sh)
{
    for (int i = 0; i < 2; i++)
        (void)tap_follow(&sh->command->taps[i]); /* on failure the output waits for the end */
}

static void on_lazy_over(struct timer *t)
{
    struct shell *sh = container_of(t, struct shell, timer);
    ask_for_end(sh);
    follow_output(sh);
    if (sh->end_asked)
        look_later(sh, STUCK_MS);
}

static int64_t lazy_ms(const struct agent *a)
{
    return MIN(LAZY_MS + (int64_t)a->commands_under_way / COMMANDS_PER_LAZY_MS, (int64_t)LAZY_MAX_MS);
}

static int send_command(struct shell *sh, struct shell_command *c)
{
    char path[2][SHELL_PATH_MAX], text_path[SHELL_PATH_MAX];
    path_of(sh, 'o', path[0]);
    path_of(sh, 'e', path[1]);
    path_of(sh, 't', text_path);
    auto_close int out = fifo_open(path[0], O_RDONLY);
    if (out < 0)
        return out;
    auto_close int err = fifo_open(path[1], O_RDONLY);
    if (err < 0)
        return err;

    struct shell_script script = {
        .dir = sh->agent->fifo_dir,
        .shell = sh->number,
        .text = c->text,
        .len = c->len,
        .cwd = c->cwd,
        .env = c->env,
        .plain_command = sh->plain_command,
    };
    script.text_in_file = c->text_in_file =
        shell_script_needs_file(&script) && shell_text_write(text_path, &script, shell_script_body) == 0;
    bool plain = !c->cwd && !(c->env && c->env->count) && !c->text_in_file;
    int r = shell_send_script(sh, &script, shell_script_foreground, c->live || !plain);
    if (r < 0)
        return r;
    tap_init(&c->taps[0], sh->agent, take_fd(out), out_data, out_end);
    tap_init(&c->taps[1], sh->agent, take_fd(err), err_data, err_end);
    shell_flush_input(sh);
    if (c->live) {
        follow_output(sh);
        look_later(sh, STUCK_MS);
        return 0;
    }
    loop_timer_start(sh->agent->loop, &sh->timer, lazy_ms(sh->agent), on_lazy_over);
    return 0;
}

int shell_run(struct shell *sh, struct shell_command *c, struct error *reterr)
{
    shell_spare_drop(sh); /* it would not know what this command changes */
    sh->starts_in_a_row = 0;
    c->retried = false;
    c->shell = sh;
    sh->command = c;
    int r = send_command(sh, c);
    if (r == 0) {
        sh->agent->commands_under_way++;
        return 0;
    }
    sh->command = NULL;
    c->shell = NULL;
    return error_sys(reterr, -r, "hand the command to the shell");
}

void shell_command_pause(struct shell_command *c)
{
    for (int i = 0; i < 2; i++)
        tap_pause(&c->taps[i]);
}

void shell_command_resume(struct shell_command *c)
{
    for (int i = 0; i < 2; i++)
        (void)tap_follow(&c->taps[i]); /* on failure the output waits for the end */
}

/* ------------------------------------------------------------------ life */

static void spawned(struct spawn *spawn, pid_t pid, int err, enum spawn_stage stage)
{
    struct shell *sh = container_of(spawn, struct shell, spawn);
    if (pid) {
        reaper_watch(sh->agent->reaper, &sh->child, pid, child_exited);
        if (sh->ops->started)
            sh->ops->started(sh, sh->arg);
        return;
    }
    char why[160];
    (void)snprintf(why, sizeof why, "cannot start " AGENT_BASH "%s: %s",
                   stage == SPAWN_STAGE_EXEC && err == ENOENT ? " (is bash installed?)" : "", strerror(err));
    sh->dead = true;
    sh->ops->failed(sh, why, sh->arg);
    end_job(sh, SHELL_END_NO_SHELL, 0);
}

/* What is put into the input begins the first script: a line of its own would be counted. */
void shell_hand_over(struct shell *sh, const char *cwd, const struct shell_ops *ops, void *arg)
{
    sh->ops = ops;
    sh->arg = arg;
    if (cwd) {
        (void)buf_puts(&sh->in, "cd ");
        (void)shell_quote(&sh->in, cwd);
        (void)buf_puts(&sh->in, ";unset OLDPWD;export OLDPWD;"); /* as in a shell that never was elsewhere */
    }
    (void)buf_puts(&sh->in, "SECONDS=0;");
}

bool shell_waits(const struct shell *sh)
{
    return sh->child.pid && process_reads_pipe(sh->child.pid, sh->in_fd);
}

static void reclaim(struct deferred *d)
{
    free(container_of(d, struct shell, reclaim));
}

void shell_free(struct shell *sh)
{
    if (!sh || sh->freed)
        return;
    struct agent *a = sh->agent;
    sh->freed = sh->dead = true;
    end_job(sh, SHELL_END_DESTROYED, 0);
    shell_spare_drop(sh);
    spawner_cancel(&sh->spawn);
    reaper_forget(a->reaper, &sh->child);
    loop_timer_stop(a->loop, &sh->timer);
    loop_del(a->loop, &sh->in_source);
    loop_del(a->loop, &sh->notes_source);
    close_fd(&sh->in_fd);
    close_fd(&sh->notes_fd);
    buf_done(&sh->in);
    buf_done(&sh->notes);
    for (const char *letter = "oectw"; *letter; letter++) {
        char path[SHELL_PATH_MAX];
        path_of(sh, *letter, path);
        (void)unlink(path);
    }
    loop_defer(a->loop, &sh->reclaim, reclaim);
}

int shell_new(struct agent *a, char *const *env, const char *cwd, const struct shell_ops *ops, void *arg,
              struct shell **ret, struct error *reterr)
{
    static const char *const argv[] = {"bash", "--norc", NULL};
    char path[SHELL_PATH_MAX];
    struct shell *sh = calloc(1, sizeof *sh);
    if (!sh)
        return error_sys(reterr, ENOMEM, "make a shell");
    sh->agent = a;
    sh->ops = ops;
    sh->arg = arg;
    sh->number = ++a->shell_number;
    sh->spare.rest_fd = -1;
    sh->in_fd = sh->notes_fd = sh->in_source.fd = sh->notes_source.fd = -1;
    sh->in = BUF_INIT(SHELL_SCRIPT_MAX);
    sh->notes = BUF_INIT(NOTES_MAX);

    int pipe_fds[2] = {-1, -1};
    int r = 0;
    for (const char *letter = "oec"; *letter && r == 0; letter++) {
        path_of(sh, *letter, path);
        r = fifo_make(path);
    }
    if (r == 0) {
        /* the last one, c: held for writing too, so that it never reports an end */
        sh->notes_fd = fifo_open(path, O_RDWR);
        r = sh->notes_fd < 0 ? sh->notes_fd
                             : loop_add(a->loop, &sh->notes_source, sh->notes_fd, EPOLLIN, notes_ready);
    }
    if (r == 0 && pipe2(pipe_fds, O_CLOEXEC) < 0)
        r = -errno;
    sh->in_fd = pipe_fds[1];
    if (r == 0 && fcntl(sh->in_fd, F_SETFL, O_NONBLOCK) < 0)
        r = -errno;
    sh->tag = process_tag_new(a);
    struct spawn_target target = {.path = bash_program(),
                                  .argv = argv,
                                  .env = env,
                                  .cwd = cwd,
                                  .fds = {pipe_fds[0], -1, -1},
                                  .tag = sh->tag.last};
    if (r == 0)
        r = spawner_spawn(a->spawner, &sh->spawn, &target, spawned);
    else
        close_fd(&pipe_fds[0]);
    if (r < 0) {
        shell_free(sh);
        return error_sys(reterr, -r, "start a shell");
    }
    *ret = sh;
    return 0;
}
