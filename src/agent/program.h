/* SPDX-License-Identifier: Apache-2.0 */
/* program.h: where a program is. */
#pragma once

#include "agent/environ.h"

/* As execvp would find it, with this environment's PATH: 0, -ENOENT or -ENAMETOOLONG. A name with a '/' is
 * taken as it is. */
int program_find(const struct env_list *env, const char *name, char *out, size_t cap);
