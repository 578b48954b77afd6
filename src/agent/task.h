/* SPDX-License-Identifier: Apache-2.0 */
/* task.h: a command for the agent's own purposes, in a session or without one; its outputs are collected. */
#pragma once

#include "agent/process.h"
#include "agent/session.h"

struct task {
    /* Once, from the loop or from task_start. fault NULL: it ran; out and err are valid during the call. */
    void (*done)(struct task *t, const struct session_fault *fault, int status);
    struct spool *out, *err;

    /* private */
    struct session_task in_session;
    struct process_watcher watcher;
    struct process *process;
};

/* Without a session the text becomes an argument of bash, which every process can see: secrets go into env
 * (NULL: none) only. 0, -ENOMEM or -EAGAIN; then there is no callback. */
int task_start(struct agent *a, const char *session_id, struct task *t, const char *text,
               const struct env_list *env,
               void (*done)(struct task *t, const struct session_fault *fault, int status));

/* True when a member of an object (or an element of an array in it) is a string with U+0000, which a command
 * could not be given. *ret_key is the member's name. */
bool task_body_has_nul(const struct json_value *body, const char **ret_key);

/* All of a spool (at most max bytes from its start) as a string without NUL bytes, or NULL when memory is
 * short. */
char *task_text(const struct spool *s, size_t max);
