/* SPDX-License-Identifier: Apache-2.0 */
/* process.h: naming a process for good, and checking what it became. */
#pragma once

#include "base/error.h"

/* Field 22 of /proc/<pid>/stat. */
int process_start_time(pid_t pid, uint64_t *ret);
bool process_alive(int pidfd); /* a zombie is not */
/* The inode number of /proc/<pid>/ns/<name>. */
int process_namespace(pid_t pid, const char *name, ino_t *ret);
/* Reads the posture of the sandbox's first process from outside and compares it with what the recipe
 * promises; the sentence names the first difference. */
int posture_check(pid_t pid, uint32_t uid, struct error *reterr);
