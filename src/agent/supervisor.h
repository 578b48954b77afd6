/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor.h: the program that was given to the agent on its command line, started beside the server. */
#pragma once

#include "agent/agent.h"

struct supervisor;

struct supervisor_config {
    char *const *argv; /* looked up in PATH; needed during the call only */
    const char *cwd;   /* NULL: the agent's own */
    bool is_main;      /* the program the container is for: without SANDBOX_STARTED=true, and every end of it
                          counts */
    /* Once, from the loop: 0, or the errno that kept it from running. NULL: that is an end with code 1. */
    void (*started)(struct agent *a, int err);
    /* What it writes to its output (1) and error output (2); may be NULL. */
    void (*output)(struct agent *a, int stream, const char *data, size_t n);
    /* It has failed: its exit code, or 128 + signal. An end with 0 is told of the main program only. */
    void (*ended)(struct agent *a, int code);
};

int supervisor_start(struct agent *a, const struct supervisor_config *config, struct supervisor **ret,
                     struct error *reterr);
pid_t supervisor_pid(const struct supervisor *s); /* 0: not running; s may be NULL */
void supervisor_free(struct supervisor *s);       /* NULL is fine; forgets the program, which may go on */
