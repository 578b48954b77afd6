/* SPDX-License-Identifier: Apache-2.0 */
/* context.h: code contexts: Python, JavaScript and TypeScript interpreters that keep their state between
 * runs. */
#pragma once

#include "agent/agent.h"

struct context;

struct context_config {
    const char *language; /* a name that context_language_parse knows */
    const char *cwd;      /* NULL: the workspace. Made if it does not exist */
    struct env_list env;  /* taken over */
    int64_t timeout_ms;   /* of every run; -1: none */
};

/* Creates a context and calls `created` (may be NULL) once, when its interpreter has answered (why NULL) or
 * cannot be started (then the context is gone when the call returns). -errno with a sentence: there is no
 * context; *ret_code is the error code to answer. */
int context_create(struct agent *a, struct context_config *config, struct context **ret,
                   const char **ret_code, void (*created)(struct context *c, const char *why, void *arg),
                   void *arg, struct error *reterr);
struct context *context_find(struct agent *a, const char *id);
/* The context for runs that name none; made on first use. */
int context_default(struct agent *a, const char *language, struct context **ret, const char **ret_code,
                    struct error *reterr);
void context_delete(struct context *c);
/* True when something was running. */
bool context_interrupt(struct context *c);

/* For agent_main: ends everything; the interpreters' pids for those who end them otherwise. */
void contexts_free(struct agent *a);
size_t contexts_pids(struct agent *a, pid_t *pids, size_t max);

/* "name" in the directories of PATH; false when there is none that can be executed. */
bool context_find_program(const struct agent *a, const char *name, char *out, size_t cap);
