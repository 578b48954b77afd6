/* SPDX-License-Identifier: Apache-2.0 */
/* mount_util.c: see mount_util.h. */
#include "keeper/mount_util.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/syscall.h>

int mount_idmap(int mount_fd, int userns_fd, uint64_t attr_set, struct error *reterr)
{
    struct mount_attr attr = {
        .attr_set = MOUNT_ATTR_IDMAP | attr_set, .propagation = MS_PRIVATE, .userns_fd = (uint64_t)userns_fd};
    if (mount_setattr(mount_fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
        return error_sys(reterr, errno, "make an id-mapped mount");
    return 0;
}

int mount_clone(int fd, uint64_t attr_set, int *ret_mount_fd, struct error *reterr)
{
    auto_close int mnt = open_tree(fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (mnt < 0)
        return error_sys(reterr, errno, "copy a mount");
    struct mount_attr attr = {.attr_set = attr_set, .propagation = MS_PRIVATE};
    if (mount_setattr(mnt, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
        return error_sys(reterr, errno, "set mount attributes");
    *ret_mount_fd = take_fd(mnt);
    return 0;
}

int open_beneath(int root_fd, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    int fd = (int)syscall(SYS_openat2, root_fd, path, &how, sizeof how);
    return fd < 0 ? -errno : fd;
}
