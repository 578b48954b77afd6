/* SPDX-License-Identifier: Apache-2.0 */
/* session_internal.h: what session.c and session_remove.c share. */
#pragma once

#include "agent/session.h"

struct session {
    struct list link;
    struct agent *agent;
    char *id;
    struct session_config config;
    struct shell *shell; /* NULL: none yet */

    struct list queue; /* struct session_op */
    size_t waiting;
    struct session_op *holder;
    bool dispatching;

    bool ours;                    /* the shell runs a command of the holder */
    struct shell_command *parked; /* the holder's, waiting for an occupied shell */
    struct shell_start *parked_start;

    bool dead; /* the shell */
    bool told; /* ... and an operation has heard of it */
    int exit_code;
    char *failure;                     /* why the shell could not be started */
    struct session_creation *creation; /* waits for the shell */

    bool gone; /* no longer in the table */
    struct deferred reclaim;
};

/* What a session's shell starts with; extra is the session's own, NULL: none. 0 or -errno. */
int session_shell_env(const struct agent *a, const struct env_list *extra, struct env_list *out);
const char *session_default_cwd(const struct agent *a);

/* Takes the session out of the table; its memory lives until the end of the batch. */
void session_drop(struct session *s);
/* For a session that was dropped: nobody waits for it any more. */
void session_fail_waiting(struct session *s, const struct session_fault *fault);
/* Runs as the holder: ends everything. */
void session_removal_run(struct session_op *op, struct session *s);
