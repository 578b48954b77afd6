/* SPDX-License-Identifier: Apache-2.0 */
/* shell.h: one long-lived bash that runs one command after the other.
 *
 * Which command comes when is the session's business (session.h); the text is shell_script.h's. */
#pragma once

#include "agent/agent.h"
#include "agent/tap.h"

struct shell;

enum shell_end {
    SHELL_END_STATUS,    /* the command is over; the status is its own */
    SHELL_END_BAD_CWD,   /* nothing was run */
    SHELL_END_BROKEN,    /* the shell did not run it: its words have been redefined, its FIFOs removed, ... */
    SHELL_END_DIED,      /* the shell is dead; the status is its exit code */
    SHELL_END_DESTROYED, /* shell_free was called meanwhile */
    SHELL_END_NO_SHELL,  /* bash could not be started */
};

/* A foreground command; embedded in its owner. */
struct shell_command {
    const char *text; /* these four are borrowed until done */
    size_t len;
    const char *cwd;            /* NULL: the shell's */
    const struct env_list *env; /* NULL: none */
    bool live;                  /* output matters at once; otherwise the first millisecond is left alone */
    void (*output)(struct shell_command *c, int stream, const char *data, size_t n); /* stream 1 or 2 */
    void (*done)(struct shell_command *c, enum shell_end how, int status);           /* once, last */

    /* private */
    struct shell *shell;
    struct tap taps[2];
    bool retried, text_in_file;
};

/* The start of a background process; embedded in its owner. */
struct shell_start {
    const char *text;
    size_t len;
    const char *cwd;
    const struct env_list *env;
    /* how is SHELL_END_STATUS: it runs, pid is a child of the agent and fds are the reading ends of its
     * output, the callee's now. Otherwise there is no process. May be called before shell_start returns. */
    void (*done)(struct shell_start *s, enum shell_end how, int status, pid_t pid, const int fds[2]);

    /* when it runs */
    unsigned number;        /* of its FIFOs; shell_start_clean removes them once the process is over */
    struct process_tag tag; /* of the process and its descendants */
};

struct shell_ops {
    void (*idle)(struct shell *sh, void *arg); /* ready for the next command */
    void (*dead)(struct shell *sh, int code,
                 void *arg);                      /* the process has ended; before the command's done */
    void (*started)(struct shell *sh, void *arg); /* bash runs */
    void (*failed)(struct shell *sh, const char *why,
                   void *arg); /* bash could not be started; before the command's done */
};

/* Starts bash; commands may be given at once. cwd must exist. */
int shell_new(struct agent *a, char *const *env, const char *cwd, const struct shell_ops *ops, void *arg,
              struct shell **ret, struct error *reterr);
/* For a shell that has not run anything yet: a new owner, to whom it looks new. cwd: where it should be;
 * NULL: it is there. */
void shell_hand_over(struct shell *sh, const char *cwd, const struct shell_ops *ops, void *arg);
bool shell_waits(const struct shell *sh); /* bash has started, and reads what it is to do */
/* Ends the running command with SHELL_END_DESTROYED. Does not kill: that is the session's. NULL is fine. */
void shell_free(struct shell *sh);

pid_t shell_pid(const struct shell *sh); /* 0 until started and after its end */
unsigned shell_number(const struct shell *sh);
struct process_tag shell_tag(const struct shell *sh); /* of everything that descends from it */
bool shell_busy(const struct shell *sh);

bool shell_makes_spare(const struct shell *sh); /* busy, but shell_start is welcome */

/* The shell must be idle and alive. 0, or -errno and no callback. */
int shell_run(struct shell *sh, struct shell_command *c, struct error *reterr);
int shell_start(struct shell *sh, struct shell_start *s, struct error *reterr);
/* The peer is slow, the command shall wait; and go on. */
void shell_command_pause(struct shell_command *c);
void shell_command_resume(struct shell_command *c);
void shell_start_clean(struct agent *a, unsigned number);
/* A process has ended: now is the time for what was put off until then. */
void shell_spare_now(struct agent *a);
