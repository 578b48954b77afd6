/* SPDX-License-Identifier: Apache-2.0 */
/* mount_util.h: the new mount API in the few shapes we need; all by descriptor. */
#pragma once

#include "base/error.h"

/* Maps ids of a detached mount through a user namespace and sets further MOUNT_ATTR_ flags. */
int mount_idmap(int mount_fd, int userns_fd, uint64_t attr_set, struct error *reterr);
/* A detached copy of the mount below fd (just this directory or file), with attributes set. */
int mount_clone(int fd, uint64_t attr_set, int *ret_mount_fd, struct error *reterr);
/* Opens a path beneath root without following any link; the last part must exist. flags: O_PATH and friends.
 */
int open_beneath(int root_fd, const char *path, uint64_t flags);
