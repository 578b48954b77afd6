/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor.h: the program that was given to the agent on its command line, started beside the server. */
#pragma once

#include "agent/agent.h"

struct supervisor;

/* Starts argv (looked up in PATH) with SANDBOX_STARTED=true. ended(code) is called when it has failed: its
 * exit code, 128 + signal, or 1 when it could not be started; a program that ends with 0 is not reported. */
int supervisor_start(struct agent *a, char *const *argv, void (*ended)(struct agent *a, int code),
                     struct supervisor **ret, struct error *reterr);
pid_t supervisor_pid(const struct supervisor *s); /* 0: not running; s may be NULL */
