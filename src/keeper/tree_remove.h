/* SPDX-License-Identifier: Apache-2.0 */
/* tree_remove.h: removing a directory with everything in it, however deep a stranger made it. */
#pragma once

#include "base/error.h"

/* Removes dir_fd/name, file or directory. Needs no more than three descriptors at a time, and no memory. Fine
 * when there is nothing. -EIO: something resists. */
int tree_remove(int dir_fd, const char *name, struct error *reterr);
