/* SPDX-License-Identifier: Apache-2.0 */
/* rootfs.c: see rootfs.h.
 *
 * Kernels before 6.15 accept only layers that are attached in the caller's mount namespace, so they are
 * attached to the scratch directory for the moment of the mount: the image's plain tree, the directory of all
 * layers (one mount, however many of them the image has), the disk. The overlay keeps private copies of them
 * and comes out detached: the keeper's own namespace never grows with the number of sandboxes. Layers are
 * named relative to the scratch directory, which is the worker thread's own working directory: the overlay
 * shows their names to the sandbox. */
#include "keeper/rootfs.h"
#include "keeper/mount_util.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>

enum { POINT_PATH = 32 };

struct point {
    char path[POINT_PATH]; /* relative: the sandbox reads it in its mountinfo */
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

/* Where the image is attached. */
struct lowers {
    const struct image *image;
    struct point plain, layers;
};

/* From the top down, as the kernel wants them. One layer is told the way that every kernel understands. */
static int set_lowers(int fs, const struct lowers *l)
{
    char path[POINT_PATH + IMAGE_LAYER_HEX + 8];
    static_assert(sizeof path < 256, "fsconfig takes strings of 255 bytes");
    const struct image *image = l->image;
    const char *key = image->layer_count + (image->root_fd >= 0) > 1 ? "lowerdir+" : "lowerdir";
    for (size_t i = image->layer_count; i-- > 0;) {
        (void)snprintf(path, sizeof path, "%s/%s/tree", l->layers.path, image->layers[i]);
        if (fsconfig(fs, FSCONFIG_SET_STRING, key, path, 0) < 0)
            return errno == EINVAL && i + 1 == image->layer_count ? -EOPNOTSUPP : -errno;
    }
    if (image->root_fd >= 0 && fsconfig(fs, FSCONFIG_SET_STRING, key, l->plain.path, 0) < 0)
        return -errno;
    return 0;
}

static int overlay_make(const struct lowers *lowers, const char *disk, int *ret_mount_fd)
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
    if (fsconfig(fs, FSCONFIG_SET_STRING, "source", "overlay", 0) < 0)
        return -errno;
    int r = set_lowers(fs, lowers);
    if (r < 0)
        return r;
    if (fsconfig(fs, FSCONFIG_SET_STRING, "upperdir", upper, 0) < 0 ||
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

static int attach_image(struct point *p, unsigned slot, const char *what, int dir_fd, int userns_fd,
                        struct error *reterr)
{
    auto_close int mnt = open_tree(dir_fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (mnt < 0)
        return error_sys(reterr, errno, "copy the image's mount");
    int r = mount_idmap(mnt, userns_fd, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, reterr);
    return r < 0 ? r : point_attach(p, slot, what, mnt, reterr);
}

int rootfs_make(unsigned slot, const struct image *image, int disk_mount_fd, int userns_fd, uint32_t owner,
                int *ret_mount_fd, struct error *reterr)
{
    struct lowers lowers = {.image = image};
    struct point disk = {0};
    int r = 0;
    if (image->root_fd >= 0)
        r = attach_image(&lowers.plain, slot, "lower", image->root_fd, userns_fd, reterr);
    if (r == 0 && image->layer_count)
        r = attach_image(&lowers.layers, slot, "layers", image->layers_fd, userns_fd, reterr);
    if (r == 0)
        r = point_attach(&disk, slot, "disk", disk_mount_fd, reterr);
    if (r == 0) {
        /* the overlay remembers who mounted it and acts as that id: as uid 0 an id-mapped upper would be
         * read-only */
        r = host_become(owner);
        if (r == 0)
            r = overlay_make(&lowers, disk.path, ret_mount_fd);
        host_become_root();
        if (r == -EOPNOTSUPP)
            (void)error_set(reterr, EOPNOTSUPP,
                            "this kernel mounts images of one layer only (6.8 mounts any)");
        else if (r < 0)
            (void)error_sys(reterr, -r, "mount the overlay");
    }
    point_detach(&disk);
    point_detach(&lowers.layers);
    point_detach(&lowers.plain);
    return r;
}
