/* SPDX-License-Identifier: Apache-2.0 */
/* move_in.h: a bare sandbox (sandbox.h) gets its root. */
#pragma once

#include "keeper/child.h"

/* As child_move_in, in a process made for it, which has done its work on return, and then ends: the caller
 * waits for that some time (*ret_guest, a pidfd). -ESRCH: the sandbox is dead. Worker threads only. */
int move_in(const struct child_plan *plan, int pidfd, int root, const int *volumes, int *ret_guest,
            int *ret_step);
