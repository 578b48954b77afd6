/* SPDX-License-Identifier: Apache-2.0 */
/* shell_start.c: background processes of a session's shell.
 *
 * Theory of operation
 * The shell forks twice (shell_script.c tells why) and notes that it is done; the process notes its pid and
 * blocks in opening its output, and opening the other end lets it go. It has to be the agent's child by then:
 * it is when the shell has noted that it is done, and often before, which the kernel tells.
 *
 * Forking bash is most of the time that a short command takes. So a shell that was asked for two processes in
 * a row, with no command in between, forks the next one ahead, as soon as it has nothing else to do: the
 * spare. It is what a process forked later would be for as long as the shell executes nothing. A command
 * drops the spare. What else makes a shell run are signals: one with traps gets no spare, and whatever
 * happens to others (a job that ends) shows in the number of times they went to sleep. A spare that nobody
 * needs within SPARE_MS goes, with the memory it has; one that is needed before it is there is what it would
 * have been from then on, the process that was asked for.
 *
 * When? If processes follow each other without a pause, at once. Otherwise when the one that was just started
 * has ended, or after MAKE_MS: its output would come later if both wanted the processor. */
#include "agent/shell_internal.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

enum {
    ANNOUNCE_MS = 6000,
    HURRY_US = 700, /* about what it takes to make one */
    MAKE_MS = 5,
    SPARE_MS = 1000,
    SPARES_MAX = 16, /* of all shells */
};

/* What bash catches for itself. */
#define OWN_SIGNALS (1ULL << (SIGCHLD - 1) | 1ULL << (SIGINT - 1))

static void spare_soon(struct shell *sh, bool now);
static void keep_spare(struct shell *sh);
static void forget_rest(struct shell *sh);

static void path_of(const struct shell *sh, unsigned number, char letter, char out[SHELL_PATH_MAX])
{
    shell_path(out, sh->agent->fifo_dir, SHELL_PATH_PROCESS, number, letter);
}

void shell_start_clean(struct agent *a, unsigned number)
{
    char path[SHELL_PATH_MAX];
    for (const char *letter = "oet"; *letter; letter++) {
        shell_path(path, a->fifo_dir, SHELL_PATH_PROCESS, number, *letter);
        (void)unlink(path);
    }
}

static struct shell_script script_of(const struct shell *sh, const struct shell_newborn *process,
                                     const struct shell_start *s)
{
    struct shell_script script = {
        .dir = sh->agent->fifo_dir,
        .shell = sh->number,
        .process = process->number,
        .tag = process->tag.last,
        .plain_command = sh->plain_command,
    };
    if (s) {
        script.text = s->text;
        script.len = s->len;
        script.cwd = s->cwd;
        script.env = s->env;
    }
    return script;
}

static int write_errand(const struct shell *sh, const struct shell_newborn *process,
                        const struct shell_start *s)
{
    char path[SHELL_PATH_MAX];
    struct shell_script script = script_of(sh, process, s);
    path_of(sh, process->number, 't', path);
    return shell_text_write(path, &script, shell_script_errand);
}

/* Opens the output, which lets the process go. */
static int open_output(const struct shell *sh, const struct shell_newborn *process, int fds[2])
{
    static const char letters[2] = {'o', 'e'};
    for (int i = 1; i >= 0; i--) { /* opening o is what it waits for, so e comes first */
        char path[SHELL_PATH_MAX];
        path_of(sh, process->number, letters[i], path);
        fds[i] = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
        if (fds[i] < 0) {
            int r = -errno;
            if (i == 0)
                close_fd(&fds[1]);
            return r;
        }
    }
    return 0;
}

static void tell_started(struct shell_start *s, const struct shell_newborn *process, const int fds[2])
{
    s->number = process->number;
    s->tag = process->tag;
    s->done(s, SHELL_END_STATUS, 0, process->pid, fds);
}

/* ------------------------------------------------------------------ birth */

static void on_unannounced(struct timer *t)
{
    struct shell *sh = container_of(t, struct shell, timer);
    shell_birth_failed(sh, SHELL_END_BROKEN, 0);
    shell_tell_idle(sh);
}

/* With a start its text goes along, unless it is long. */
static int begin_birth(struct shell *sh, struct shell_start *s)
{
    char path[SHELL_PATH_MAX];
    struct shell_newborn process = {.number = ++sh->agent->process_number,
                                    .tag = process_tag_member(&sh->tag, ++sh->starts)};
    int r = 0;
    for (const char *letter = "oe"; *letter && r == 0; letter++) {
        path_of(sh, process.number, *letter, path);
        r = fifo_make(path);
    }
    struct shell_script script = script_of(sh, &process, s);
    if (r == 0)
        script.text_in_file = !s || (s->len > SHELL_TEXT_INLINE && write_errand(sh, &process, s) == 0);
    if (r == 0)
        r = shell_send_script(sh, &script, shell_script_background, true);
    if (r < 0) {
        shell_start_clean(sh->agent, process.number);
        return r;
    }
    sh->birth.under_way = true;
    sh->birth.process = process;
    sh->birth.parent_gone = sh->birth.released = false;
    sh->birth.start = s;
    reaper_expect(sh->agent->reaper); /* it may be killed between its announcement and its release */
    shell_flush_input(sh);
    loop_timer_start(sh->agent->loop, &sh->timer, ANNOUNCE_MS, on_unannounced);
    return 0;
}

static void end_birth(struct shell *sh)
{
    sh->birth.under_way = false;
    sh->birth.start = NULL;
    shell_reset_job(sh);
    reaper_unexpect(sh->agent->reaper);
}

void shell_birth_failed(struct shell *sh, enum shell_end how, int status)
{
    struct shell_newborn process = sh->birth.process;
    struct shell_start *s = sh->birth.start;
    bool released = sh->birth.released;
    end_birth(sh);
    if (released)
        return; /* the process is not concerned any more */
    if (process.pid)
        (void)kill(process.pid, SIGKILL); /* it waits for a release that will not come */
    shell_start_clean(sh->agent, process.number);
    if (s)
        s->done(s, how, status, 0, NULL);
    else
        forget_rest(sh);
}

static void finish_birth(struct shell *sh)
{
    struct shell_newborn process = sh->birth.process;
    struct shell_start *s = sh->birth.start;
    int fds[2];
    if (!process.pid || !sh->birth.parent_gone)
        return; /* the other note is on its way */
    if (!sh->birth.released && !s) {
        end_birth(sh);
        sh->spare.process = process;
        keep_spare(sh);
        return;
    }
    if (s && open_output(sh, &process, fds) < 0) {
        shell_birth_failed(sh, SHELL_END_BROKEN, 0);
        return;
    }
    end_birth(sh);
    if (sh->starts_in_a_row > 1)
        spare_soon(sh, sh->birth.released && sh->agent->last_end_us >= sh->birth.released_us);
    if (s)
        tell_started(s, &process, fds);
}

static bool is_our_child(pid_t pid)
{
    return waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* Does not wait for the shell's note if the process is a child of the agent already. */
static void release_early(struct shell *sh)
{
    struct shell_newborn process = sh->birth.process;
    int fds[2];
    if (!sh->birth.start || !process.pid || !is_our_child(process.pid))
        return;
    if (open_output(sh, &process, fds) < 0) {
        shell_birth_failed(sh, SHELL_END_BROKEN, 0);
        return;
    }
    sh->birth.released = true;
    sh->birth.released_us = clock_mono_us();
    tell_started(take_ptr(sh->birth.start), &process, fds);
}

void shell_birth_announced(struct shell *sh, pid_t pid)
{
    sh->birth.process.pid = pid;
    if (sh->birth.parent_gone)
        finish_birth(sh);
    else
        release_early(sh);
}

void shell_birth_parent_gone(struct shell *sh, int status)
{
    if (status != 0) {
        shell_birth_failed(sh, SHELL_END_BROKEN, status);
        return;
    }
    sh->birth.parent_gone = true;
    finish_birth(sh);
}

/* ------------------------------------------------------------------ the spare */

static void forget_rest(struct shell *sh)
{
    sh->agent->spare_count--;
    close_fd(&sh->spare.rest_fd);
}

static void cancel_spare(struct shell *sh)
{
    if (sh->agent->spare_next == sh)
        sh->agent->spare_next = NULL;
    loop_undefer(sh->agent->loop, &sh->spare_soon);
    loop_timer_stop(sh->agent->loop, &sh->spare_timer);
}

/* Leaves the process alone. */
static struct shell_newborn take_spare(struct shell *sh)
{
    struct shell_newborn process = sh->spare.process;
    if (process.pid) {
        sh->spare.process.pid = 0;
        reaper_forget(sh->agent->reaper, &sh->spare.child);
        forget_rest(sh);
    }
    cancel_spare(sh);
    return process;
}

void shell_spare_drop(struct shell *sh)
{
    struct shell_newborn process = take_spare(sh);
    if (!process.pid)
        return;
    (void)kill(process.pid, SIGKILL);
    shell_start_clean(sh->agent, process.number);
}

static void spare_exited(struct child *child, int code)
{
    struct shell *sh = container_of(child, struct shell, spare.child);
    (void)code;
    struct shell_newborn process = take_spare(sh);
    shell_start_clean(sh->agent, process.number);
}

static void spare_unneeded(struct timer *t)
{
    shell_spare_drop(container_of(t, struct shell, spare_timer));
}

static void keep_spare(struct shell *sh)
{
    if (!process_rest_read(sh->spare.rest_fd, &sh->spare.rest))
        sh->spare.rest.naps = 0; /* never fresh */
    reaper_watch(sh->agent->reaper, &sh->spare.child, sh->spare.process.pid, spare_exited);
    loop_timer_start(sh->agent->loop, &sh->spare_timer, SPARE_MS, spare_unneeded);
}

static void make_spare(struct shell *sh)
{
    cancel_spare(sh);
    if (sh->dead || shell_busy(sh) || sh->agent->spare_count >= SPARES_MAX)
        return;
    int fd = process_rest_open(sh->child.pid);
    struct process_rest rest;
    if (fd < 0 || !process_rest_read(fd, &rest) || (rest.caught & ~OWN_SIGNALS) ||
        begin_birth(sh, NULL) < 0) {
        close_fd(&fd); /* the next start takes its time */
        return;
    }
    sh->spare.rest_fd = fd;
    sh->agent->spare_count++;
}

static void spare_due(struct timer *t)
{
    make_spare(container_of(t, struct shell, spare_timer));
}

static void make_deferred(struct deferred *d)
{
    make_spare(container_of(d, struct shell, spare_soon));
}

static void spare_soon(struct shell *sh, bool now)
{
    if (now || sh->hurried) {
        loop_defer(sh->agent->loop, &sh->spare_soon, make_deferred);
        return;
    }
    sh->agent->spare_next = sh;
    loop_timer_start(sh->agent->loop, &sh->spare_timer, MAKE_MS, spare_due);
}

void shell_spare_now(struct agent *a)
{
    struct shell *sh = take_ptr(a->spare_next);
    a->last_end_us = clock_mono_us();
    if (sh)
        loop_defer(a->loop, &sh->spare_soon, make_deferred);
}

/* Lets the spare run s; false: there is none, or it is out of date. */
static bool start_spare(struct shell *sh, struct shell_start *s)
{
    int fds[2];
    if (!sh->spare.process.pid)
        return false;
    struct process_rest rest;
    bool fresh = process_rest_read(sh->spare.rest_fd, &rest) && rest.naps == sh->spare.rest.naps;
    if (!fresh || write_errand(sh, &sh->spare.process, s) < 0 ||
        open_output(sh, &sh->spare.process, fds) < 0) {
        shell_spare_drop(sh);
        return false;
    }
    struct shell_newborn process = take_spare(sh);
    spare_soon(sh, false);
    tell_started(s, &process, fds);
    return true;
}

bool shell_makes_spare(const struct shell *sh)
{
    return sh->birth.under_way && !sh->birth.start && !sh->birth.released;
}

/* What was to be the spare will be this process. */
static int start_unborn(struct shell *sh, struct shell_start *s)
{
    int r = write_errand(sh, &sh->birth.process, s);
    if (r < 0)
        return r;
    sh->birth.start = s;
    forget_rest(sh);
    release_early(sh);
    return 0;
}

int shell_start(struct shell *sh, struct shell_start *s, struct error *reterr)
{
    sh->starts_in_a_row++;
    sh->hurried = clock_mono_us() - sh->agent->last_end_us < HURRY_US;
    if (start_spare(sh, s))
        return 0;
    int r = shell_makes_spare(sh) ? start_unborn(sh, s) : begin_birth(sh, s);
    return r < 0 ? error_sys(reterr, -r, "hand the command to the shell") : 0;
}
