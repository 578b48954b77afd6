/* SPDX-License-Identifier: Apache-2.0 */
/* fifo_dir.h: the directory of the FIFOs between the agent and its shells. */
#pragma once

#include "agent/agent.h"

/* Sets a->fifo_dir: the one the keeper has made, or a new one. What an agent that was killed has left behind
 * is removed on the way. */
int fifo_dir_choose(struct agent *a, struct error *reterr);
void fifo_dir_remove(struct agent *a); /* if it was made here */
