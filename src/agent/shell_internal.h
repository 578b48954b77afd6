/* SPDX-License-Identifier: Apache-2.0 */
/* shell_internal.h: what shell.c (commands) and shell_start.c (background processes) share. */
#pragma once

#include "agent/shell.h"
#include "agent/shell_files.h"

/* A background process that does not know yet what it is for: it blocks in opening its output. */
struct shell_newborn {
    pid_t pid; /* 0: none */
    unsigned number;
    struct process_tag tag;
};

struct shell {
    struct agent *agent;
    const struct shell_ops *ops;
    void *arg;
    unsigned number;
    struct process_tag tag;

    struct spawn spawn;
    struct child child;
    bool dead;
    bool freed; /* memory goes at the end of the batch: callbacks may free the shell that calls them */
    struct deferred reclaim;

    int in_fd; /* bash's standard input */
    struct source in_source;
    struct buf in;
    int notes_fd;
    struct source notes_source;
    struct buf notes;

    /* the job: a command, or the birth of a process */
    struct shell_command *command;
    struct {
        bool under_way;
        struct shell_newborn process; /* its pid is known when it has announced itself */
        bool parent_gone;             /* it is a child of the agent now, and the shell has nothing to do */
        bool released;                /* it is told to go; only the shell's note is missing */
        int64_t released_us;
        struct shell_start *start; /* NULL: it will be the spare, or is released */
    } birth;
    struct timer timer; /* command: lazy, then stuck; birth: announcement */
    int64_t look_ms;    /* how long after the last look at a shell that may be stuck */
    bool plain_command; /* `builtin` has been redefined */
    bool end_asked;     /* bash is going to tell the end of the job */
    bool line_owed;     /* it was not asked to the last time */
    bool has_status, has_eval, bad_cwd;
    int status, eval_status, end_status;

    unsigned starts;          /* so far */
    unsigned starts_in_a_row; /* since the last command */
    struct {
        struct shell_newborn process;
        struct child child;
        int rest_fd;              /* of the shell, also while the spare is being made */
        struct process_rest rest; /* when it was made; more naps now: it may be out of date */
    } spare;
    bool hurried; /* its last process was asked for right behind the end of another */
    struct deferred spare_soon;
    struct timer spare_timer; /* until it is given up */
};

/* shell.c */

void shell_flush_input(struct shell *sh);
/* Puts a script into the input: through a file when it is long, because bash reads a pipe byte by byte.
 * end_now: with the line that makes it tell its end. */
int shell_send_script(struct shell *sh, const struct shell_script *script,
                      int (*build)(struct buf *out, const struct shell_script *s), bool end_now);
void shell_reset_job(struct shell *sh);
void shell_tell_idle(struct shell *sh);

/* shell_start.c */

void shell_birth_announced(struct shell *sh, pid_t pid);
void shell_birth_parent_gone(struct shell *sh, int status);
void shell_birth_failed(struct shell *sh, enum shell_end how, int status);
void shell_spare_drop(struct shell *sh);
