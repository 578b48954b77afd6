/* SPDX-License-Identifier: Apache-2.0 */
/* session.h: sessions by id, the lock of each, and commands under that lock.
 *
 * Everything that must not overlap with other work of a session is a session_op: it waits in the session's
 * queue, runs when it is at the head, and holds the lock until session_op_done. */
#pragma once

#include "agent/agent.h"
#include "agent/shell.h"
#include "agent/spool.h"

struct session;
struct session_op;

enum { SESSION_QUEUE_MAX = 10000, SESSIONS_MAX = 4096 };

enum session_fault_kind {
    SESSION_FAULT_DESTROYED,  /* deleted meanwhile */
    SESSION_FAULT_TERMINATED, /* the shell is dead; exit_code tells how */
    SESSION_FAULT_NO_SHELL,   /* it could not be started; `why` is a sentence */
    SESSION_FAULT_BROKEN,     /* the shell lives but did not run the command */
    SESSION_FAULT_BUSY,       /* too many operations wait, or too many sessions exist */
};

struct session_fault {
    enum session_fault_kind kind;
    int exit_code;
    const char *why;
    const char *code; /* BUSY: the limit that was met, as an error code */
};

struct session_op {
    /* Under the lock, once. Must lead to session_op_done, sooner or later. */
    void (*run)(struct session_op *op, struct session *s);
    /* Instead of run. */
    void (*fail)(struct session_op *op, const struct session_fault *fault);

    /* private */
    struct list link;
    struct session *session;
    bool removal;
};

/* Queues op for the session, which is created if it does not exist. run or fail may be called before this
 * returns. */
void session_submit(struct agent *a, const char *id, struct session_op *op);
void session_op_done(struct session_op *op);

/* For ops that hold the lock: */

const char *session_id(const struct session *s);
int64_t session_timeout_ms(const struct session *s); /* commandTimeoutMs, -1: none */
/* The shell's current directory, NUL-terminated; 0 or -errno. */
int session_cwd(const struct session *s, char *out, size_t cap);
/* Runs a command in the session's shell, as soon as the shell is free (a command that timed out may still
 * occupy it). The lock may be released while the command runs: then `done` comes later all the same. */
void session_run(struct session *s, struct shell_command *c);
void session_start(struct session *s, struct shell_start *start);
/* What an end other than STATUS and BAD_CWD means (s may be NULL when the lock is not held any more). */
struct session_fault session_fault_of(const struct session *s, enum shell_end how, int status);
/* Takes back a command that has not been started yet; false when it has. */
bool session_unrun(struct session *s, struct shell_command *c);

/* A command with its outputs collected, for whoever needs no more than that: git, backups, the terminal. */
struct session_task {
    const char *text; /* borrowed until done */
    size_t len;
    const char *cwd;
    const struct env_list *env;
    int64_t timeout_ms; /* -1: none, whatever the session says */
    /* Once. fault NULL: status and the spools are valid (they are dropped after the call; spool_ref keeps
     * them). how is SHELL_END_STATUS or SHELL_END_BAD_CWD. -ETIMEDOUT in status: the time is over, the
     * command goes on. */
    void (*done)(struct session_task *t, const struct session_fault *fault, int status);
    struct spool *out, *err;

    /* private */
    struct session_task_state *state;
};
int session_task_start(struct agent *a, const char *id, struct session_task *t); /* 0 or -ENOMEM */

/* ------------------------------------------------------------------ for the session routes */

struct session_config {
    struct env_list env; /* taken over */
    char *cwd;           /* taken over; NULL: the default */
    int64_t timeout_ms;  /* -1: none */
};

enum session_state { SESSION_ABSENT, SESSION_ALIVE, SESSION_DEAD };
enum session_state session_state(struct agent *a, const char *id);

/* Creates the session (a dead one is replaced) and calls `created` once its shell runs (why NULL) or cannot
 * be started. */
struct session_creation {
    void (*created)(struct session_creation *c, const char *why);
    const char *code;     /* of the failure; NULL: INTERNAL_ERROR */
    struct session_op op; /* private */
    struct session_config config;
    char *id;
    struct agent *agent;
};
void session_create(struct agent *a, const char *id, struct session_creation *c);

/* Ends the session and everything that descends from it, when the operations queued before are over. false:
 * no such session. */
struct session_removal {
    void (*removed)(struct session_removal *r);
    struct session_op op; /* private */
};
bool session_remove(struct agent *a, const char *id, struct session_removal *r);

void session_list(struct agent *a, void (*each)(const char *id, void *arg), void *arg);

/* The pids of all shells. */
size_t session_pids(struct agent *a, pid_t *out, size_t max);
void sessions_free(struct agent *a);
