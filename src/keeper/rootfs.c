/* SPDX-License-Identifier: Apache-2.0 */
/* rootfs.c: see rootfs.h.
 *
 * Kernels before 6.15 accept only layers that are attached in the caller's mount namespace, so both are
 * attached to the scratch directory for the moment of the mount. The overlay keeps private copies of them and
 * comes out detached: the keeper's own namespace never grows with the number of sandboxes. Layers are named
 * relative to the scratch directory, which is the worker thread's own working directory: the overlay shows
 * their names to the sandbox. */
#include "keeper/rootfs.h"
#include "keeper/mount_util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>

struct point {
    char path[32]; /* relative: the sandbox reads it in its mountinfo */
    bool mounted;
};

static int point_attach(struct point *p, unsigned slot, const char *what, int mount_fd, struct error *reterr)
{
    (void)snprintf(p->path, sizeof p->path, "%u-%s", slot, what);
    if (mkdir(p->path, 0755) < 0 && errno != EEXIST)
        return error_sys(reterr, errno, "make a mount point");
    if (move_mount(mount_fd, "", AT_FDCWD, p->path, MOVE_MOUNT_F_EMPTY_PATH) < 0) {
        int r = error_sys(reterr, errno, "attach a layer");
        (void)rmdir(p->path);
        return r;
    }
    p->mounted = true;
    return 0;
}

static void point_detach(struct point *p)
{
    if (!p->mounted)
        return;
    (void)umount2(p->path, MNT_DETACH);
    (void)rmdir(p->path);
}

static int overlay_make(const char *lower, const char *disk, int *ret_mount_fd)
{
    char upper[48], work[48];
    static const char *const options[][2] = {{"metacopy", "off"},
                                             {"redirect_dir", "off"},
                                             {"index", "off"},
                                             {"nfs_export", "off"},
                                             {"xino", "off"}};
    auto_close int fs = fsopen("overlay", FSOPEN_CLOEXEC);
    if (fs < 0)
        return -errno;
    (void)snprintf(upper, sizeof upper, "%s/upper", disk);
    (void)snprintf(work, sizeof work, "%s/work", disk);
    if (fsconfig(fs, FSCONFIG_SET_STRING, "source", "overlay", 0) < 0 ||
        fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir", lower, 0) < 0 ||
        fsconfig(fs, FSCONFIG_SET_STRING, "upperdir", upper, 0) < 0 ||
        fsconfig(fs, FSCONFIG_SET_STRING, "workdir", work, 0) < 0)
        return -errno;
    for (size_t i = 0; i < ARRAY_SIZE(options); i++)
        if (fsconfig(fs, FSCONFIG_SET_STRING, options[i][0], options[i][1], 0) < 0)
            return -errno;
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -errno;
    int mnt = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (mnt < 0)
        return -errno;
    *ret_mount_fd = mnt;
    return 0;
}

int rootfs_make(unsigned slot, int lower_root_fd, int disk_mount_fd, int userns_fd, uint32_t owner,
                int *ret_mount_fd, struct error *reterr)
{
    struct point lower = {0}, disk = {0};
    auto_close int image = open_tree(lower_root_fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (image < 0)
        return error_sys(reterr, errno, "copy the image's mount");
    int r = mount_idmap(image, userns_fd, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, reterr);
    if (r == 0)
        r = point_attach(&lower, slot, "lower", image, reterr);
    if (r == 0)
        r = point_attach(&disk, slot, "disk", disk_mount_fd, reterr);
    if (r == 0) {
        /* the overlay remembers who mounted it and acts as that id: as uid 0 an id-mapped upper would be
         * read-only */
        r = host_become(owner);
        if (r == 0)
            r = overlay_make(lower.path, disk.path, ret_mount_fd);
        host_become_root();
        if (r < 0)
            (void)error_sys(reterr, -r, "mount the overlay");
    }
    point_detach(&disk);
    point_detach(&lower);
    return r;
}
