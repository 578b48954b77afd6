/* SPDX-License-Identifier: Apache-2.0 */
/* child_mounts.h: the mount tree of a sandbox, assembled by its first process. Async-signal-safe; 0 or
 * -errno. */
#pragma once

#include "keeper/child.h"

/* Everything of section 6 but the root itself, on a stage, which is the working directory then; mask and
 * seal want that. */
int child_mounts_stage(const struct child_plan *p, int *ret_stage);
int child_mounts_mask(void); /* section 7: what must not be read */
/* Makes kernel files read-only. *ret_settings: a way to /proc/sys that still writes. */
int child_mounts_seal(int *ret_settings);
/* Puts the root in place, and what is on the stage into it. */
int child_mounts_place(const struct child_plan *p, int stage, int root);
/* The same for a root that takes the place of another one, `old`: what is mounted there moves. */
int child_mounts_move(int old, int root);
/* Section 14: limits of the namespaces themselves. From then on no mount can be made, only moved. */
int child_mounts_limit(int settings);
/* mounts: as many as the plan has volumes, detached. */
int child_mounts_volumes(const struct child_plan *p, int root, const int *mounts);
/* covered: how many roots lie below it, each on top of the other. */
int child_mounts_pivot(int root, int covered);
