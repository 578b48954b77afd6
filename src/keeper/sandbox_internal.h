/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_internal.h: shared by sandbox.c (the start) and sandbox_end.c (the rest of the life). */
#pragma once

#include "keeper/sandbox.h"

int sandbox_control_connect(int slot_dir_fd, struct sandbox *sb, struct error *reterr);
int sandbox_record(int slot_dir_fd, const struct sandbox *sb, struct error *reterr);
void sandbox_kill(const struct sandbox *sb); /* for tests: its first process is dead on return */
/* Kills what is left in the groups and removes them, waiting a bounded time; NULL is fine. */
void cgroup_end(struct cgroup *g);
