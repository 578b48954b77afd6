/* SPDX-License-Identifier: Apache-2.0 */
/* disk_hold.c: disks that stay mounted while no sandbox has them (see disk.h).
 *
 * A mount reads the journal and writes the superblock, with barriers: it takes longer than all the rest of a
 * sandbox's start. One more mount of a file system that is mounted already costs nothing of this. So the
 * keeper has a mount of its own, outside of any directory and namespace: a descriptor, nothing else. It goes
 * from the sandbox to whoever keeps its disk, and to its next life. It ends with the keeper, however that
 * ends, and without a sandbox the loop device ends with it. */
#include "base/log.h"
#include "keeper/disk_internal.h"
#include "keeper/mount_util.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* Kernels before 6.15 copy no mount that is attached nowhere: there the device is mounted once more. */
static int mount_again(struct disk_store *s, const struct disk_hold *h, int userns_fd, bool young,
                       int *ret_mount_fd, struct error *reterr)
{
    auto_close int fd = disk_loop_open(s, h->index, O_RDONLY);
    struct disk_device device = {.fd = fd, .index = h->index};
    return fd < 0 ? error_sys(reterr, -fd, "open a loop device")
                  : disk_mount(&device, userns_fd, false, young, ret_mount_fd, reterr);
}

int disk_view(struct disk_store *s, const struct disk_hold *h, int userns_fd, bool young, int *ret_mount_fd,
              struct error *reterr)
{
    auto_close int mnt = open_tree(h->fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (mnt < 0)
        return mount_again(s, h, userns_fd, young, ret_mount_fd, reterr);
    int r = mount_idmap(mnt, userns_fd, 0, reterr);
    if (r == 0)
        *ret_mount_fd = take_fd(mnt);
    return r;
}

int disk_sync(struct disk_store *s, uint64_t number, const struct disk_hold *h, bool young,
              struct error *reterr)
{
    auto_close int root = openat(h->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0 || syncfs(root) < 0)
        return error_sys(reterr, errno, "write a disk");
    int r = young ? disk_settle(s, number, h->index, root, reterr) : 0;
    /* without direct I/O, or while it is being settled by another, neither does that */
    return r < 0 ? r : disk_flush(s, number, reterr);
}

void disk_let_go(struct disk_store *s, struct disk_hold *h)
{
    if (h->fd < 0)
        return;
    close_fd(&h->fd);
    disk_wait_unused(s, h->index);
}

struct leftovers {
    struct disk_store *store;
    bool (*in_use)(uint64_t number, void *arg);
    void *arg;
};

static bool wait_for_leftover(const struct disk_loop *l, void *arg)
{
    struct leftovers *o = arg;
    char name[DISK_NAME_SIZE];
    uint64_t number;
    struct stat st;
    int end = 0;
    if (sscanf(l->label, DISK_LABEL "%" SCNu64 "%n", &number, &end) != 1 || l->label[end] != '\0')
        return true;
    disk_image_name(name, number); /* the label may be another daemon's */
    if (fstatat(disk_store_dir(o->store), name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_ino != l->file_ino ||
        st.st_dev != l->file_dev || o->in_use(number, o->arg))
        return true;
    disk_wait_unused(o->store, l->index);
    if (!disk_unused(o->store, l->index))
        log_warn("disk %" PRIu64 " is still mounted by somebody", number);
    return true;
}

void disk_wait_let_go(struct disk_store *s, bool (*in_use)(uint64_t number, void *arg), void *arg)
{
    struct leftovers o = {.store = s, .in_use = in_use, .arg = arg};
    (void)disk_loops(s, wait_for_leftover, &o); /* without /sys there is nothing to be seen */
}
