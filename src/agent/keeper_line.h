/* SPDX-License-Identifier: Apache-2.0 */
/* keeper_line.h: listening to the keeper: boot, placement of spawners. The messages are in control.h. */
#pragma once

#include "agent/agent.h"
#include "agent/control.h"

struct keeper_line;

/* Follows the listening socket; on_boot is called once, when the environment is complete. a->spawner must be
 * set before the loop runs. */
int keeper_line_new(struct agent *a, int listen_fd, void (*on_boot)(struct agent *a),
                    struct keeper_line **ret, struct error *reterr);
/* The current connection, -1 without; for spawner_config (arg is the keeper_line). */
int keeper_line_fd(void *arg);
/* The last word: the status the agent is about to end with. k may be NULL. */
void keeper_line_say_exit(struct keeper_line *k, int code);
