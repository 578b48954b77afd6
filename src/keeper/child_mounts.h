/* SPDX-License-Identifier: Apache-2.0 */
/* child_mounts.h: the mount tree of a sandbox, assembled by its first process. Async-signal-safe; 0 or
 * -errno. */
#pragma once

#include "keeper/child.h"

int child_mounts_make(const struct child_plan *p,
                      int root); /* puts the root in place and everything of section 6 into it */
int child_mounts_mask(int root); /* section 7: what must not be read */
int child_mounts_seal(int root); /* writes the namespaces' settings, then makes kernel files read-only */
/* mounts: as many as the plan has volumes, detached. */
int child_mounts_volumes(const struct child_plan *p, int root, const int *mounts);
int child_mounts_pivot(int root);
