/* SPDX-License-Identifier: Apache-2.0 */
/* rootfs.c: see rootfs.h.
 *
 * The overlay keeps private copies of its layers' mounts and comes out detached: the keeper's own namespace
 * never grows with the number of sandboxes. The layers are told by descriptor and need not be attached
 * anywhere. Kernels before 6.15 accept only such that are, in the caller's mount namespace, so there they are
 * attached to the scratch directory for the moment of the mount, and named relative to it, which is the
 * worker thread's own working directory: the overlay shows their names to the sandbox. */
#include "keeper/rootfs.h"
#include "keeper/mount_util.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

enum { POINT_PATH = 32 };

/* A mount with layers in it: the image's plain tree, the directory of all layers (one mount, however many of
 * them the image has), the disk. */
struct tree {
    int mnt;               /* detached, or -1: there is none */
    char path[POINT_PATH]; /* where it is attached; "": nowhere */
};

static bool must_attach; /* as this kernel has shown; whoever reads it too early learns it himself */

static int tree_attach(struct tree *t, unsigned slot, const char *what, struct error *reterr)
{
    char path[POINT_PATH];
    if (t->mnt < 0)
        return 0;
    (void)snprintf(path, sizeof path, "%u-%s", slot, what);
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return error_sys(reterr, errno, "make a mount point");
    if (move_mount(t->mnt, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0) {
        int r = error_sys(reterr, errno, "attach a layer");
        (void)rmdir(path);
        return r;
    }
    memcpy(t->path, path, sizeof path);
    return 0;
}

static void tree_detach(struct tree *t)
{
    if (!t->path[0])
        return;
    (void)umount2(t->path, MNT_DETACH);
    (void)rmdir(t->path);
}

/* dir: in the tree, "." the tree itself. */
static int set_layer(int fs, const char *key, const struct tree *t, const char *dir)
{
    char path[POINT_PATH + IMAGE_LAYER_HEX + 8];
    static_assert(sizeof path < 256, "fsconfig takes strings of 255 bytes");
    if (t->path[0]) {
        (void)snprintf(path, sizeof path, "%s/%s", t->path, dir);
        return fsconfig(fs, FSCONFIG_SET_STRING, key, path, 0) < 0 ? -errno : 0;
    }
    auto_close int fd = openat(t->mnt, dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 || fsconfig(fs, FSCONFIG_SET_FD, key, NULL, fd) < 0 ? -errno : 0;
}

struct trees {
    const struct image *image; /* NULL: just the plain tree */
    struct tree plain, layers, disk;
};

/* From the top down, as the kernel wants them. One layer is told by its name the way that every kernel
 * understands. */
static int set_lowers(int fs, const struct trees *t)
{
    char dir[IMAGE_LAYER_HEX + 8];
    size_t layers = t->image ? t->image->layer_count : 0;
    bool many = layers + (t->plain.mnt >= 0) > 1;
    const char *key = many || !t->disk.path[0] ? "lowerdir+" : "lowerdir";
    for (size_t i = layers; i-- > 0;) {
        (void)snprintf(dir, sizeof dir, "%s/tree", t->image->layers[i]);
        int r = set_layer(fs, key, &t->layers, dir);
        if (r < 0)
            return r == -EINVAL && i + 1 == layers ? -EOPNOTSUPP : r;
    }
    return t->plain.mnt >= 0 ? set_layer(fs, key, &t->plain, ".") : 0;
}

static int overlay_make(const struct trees *t, int *ret_mount_fd)
{
    static const char *const options[][2] = {{"metacopy", "off"},
                                             {"redirect_dir", "off"},
                                             {"index", "off"},
                                             {"nfs_export", "off"},
                                             {"xino", "off"}};
    auto_close int fs = fsopen("overlay", FSOPEN_CLOEXEC);
    if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "source", "overlay", 0) < 0)
        return -errno;
    int r = set_lowers(fs, t);
    if (r < 0 || (r = set_layer(fs, "upperdir", &t->disk, "upper")) < 0 ||
        (r = set_layer(fs, "workdir", &t->disk, "work")) < 0)
        return r;
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

/* The overlay remembers who mounted it and acts as that id: as uid 0 an id-mapped upper would be read-only.
 */
static int overlay_make_as(uint32_t owner, const struct trees *t, int *ret_mount_fd)
{
    int r = host_become(owner);
    if (r == 0)
        r = overlay_make(t, ret_mount_fd);
    host_become_root();
    return r;
}

static int image_mount(int dir_fd, int userns_fd, int *ret_mount_fd, struct error *reterr)
{
    int mnt = open_tree(dir_fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (mnt < 0)
        return error_sys(reterr, errno, "copy the image's mount");
    *ret_mount_fd = mnt;
    return mount_idmap(mnt, userns_fd, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, reterr);
}

int rootfs_bare(const struct image *image, int userns_fd, int *ret_mount_fd, struct error *reterr)
{
    return image_mount(image->root_fd, userns_fd, ret_mount_fd, reterr);
}

static int make_attached(unsigned slot, uint32_t owner, struct trees *t, int *ret_mount_fd,
                         struct error *reterr)
{
    int r = tree_attach(&t->plain, slot, "lower", reterr);
    if (r == 0)
        r = tree_attach(&t->layers, slot, "layers", reterr);
    if (r == 0)
        r = tree_attach(&t->disk, slot, "disk", reterr);
    if (r < 0)
        return r;
    r = overlay_make_as(owner, t, ret_mount_fd);
    if (r == -EOPNOTSUPP)
        return error_set(reterr, EOPNOTSUPP, "this kernel mounts images of one layer only (6.8 mounts any)");
    return r < 0 ? error_sys(reterr, -r, "mount the overlay") : 0;
}

static int make(unsigned slot, uint32_t owner, struct trees *t, int *ret_mount_fd, struct error *reterr)
{
    int r = 0;
    bool attach = __atomic_load_n(&must_attach, __ATOMIC_RELAXED);
    if (!attach && overlay_make_as(owner, t, ret_mount_fd) < 0)
        attach = true;
    if (attach && (r = make_attached(slot, owner, t, ret_mount_fd, reterr)) == 0)
        __atomic_store_n(&must_attach, true, __ATOMIC_RELAXED);
    tree_detach(&t->disk);
    tree_detach(&t->layers);
    tree_detach(&t->plain);
    return r;
}

int rootfs_furnish(unsigned slot, int bare_mount_fd, int disk_mount_fd, uint32_t owner, int *ret_mount_fd,
                   struct error *reterr)
{
    struct trees t = {.plain = {.mnt = bare_mount_fd}, .layers = {.mnt = -1}, .disk = {.mnt = disk_mount_fd}};
    return make(slot, owner, &t, ret_mount_fd, reterr);
}

int rootfs_make(unsigned slot, const struct image *image, int disk_mount_fd, int userns_fd, uint32_t owner,
                int *ret_mount_fd, struct error *reterr)
{
    struct trees t = {
        .image = image, .plain = {.mnt = -1}, .layers = {.mnt = -1}, .disk = {.mnt = disk_mount_fd}};
    int r = 0;
    if (image->root_fd >= 0)
        r = image_mount(image->root_fd, userns_fd, &t.plain.mnt, reterr);
    if (r == 0 && image->layer_count)
        r = image_mount(image->layers_fd, userns_fd, &t.layers.mnt, reterr);
    if (r == 0)
        r = make(slot, owner, &t, ret_mount_fd, reterr);
    close_fd(&t.layers.mnt);
    close_fd(&t.plain.mnt);
    return r;
}
