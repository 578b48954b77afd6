/* SPDX-License-Identifier: Apache-2.0 */
/* disk_hold.c: disks that stay mounted while no sandbox has them (see disk.h).
 *
 * A mount reads the journal and writes the superblock, with barriers: it takes longer than all the rest of a
 * sandbox's start. One more mount of a file system that is mounted already costs nothing of this. So the
 * keeper holds a mount of its own, outside of any directory and namespace: a descriptor, nothing else. It
 * goes with the keeper, however that ends, and the loop device goes with it. */
#include "base/log.h"
#include "keeper/disk_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static int device_open(struct disk_store *s, unsigned index, struct disk_device *ret, struct error *reterr)
{
    struct stat st;
    auto_close int fd = disk_loop_open(s, index, O_RDONLY);
    if (fd < 0)
        return error_sys(reterr, -fd, "open a loop device");
    if (fstat(fd, &st) < 0)
        return error_sys(reterr, errno, "look at a loop device");
    *ret = (struct disk_device){.fd = take_fd(fd), .index = index, .dev = st.st_rdev};
    return 0;
}

int disk_hold(struct disk_store *s, uint64_t number, unsigned index, int root_fd, bool young,
              struct disk_hold *ret, struct error *reterr)
{
    struct disk_device device = {.fd = -1};
    int r = 0, mnt = -1;
    if (syncfs(root_fd) < 0)
        return error_sys(reterr, errno, "write a disk");
    if (young)
        r = disk_settle(s, number, index, root_fd, reterr);
    if (r == 0) /* without direct I/O, or while it is being settled by another, neither does that */
        r = disk_flush(s, number, reterr);
    if (r == 0)
        r = device_open(s, index, &device, reterr);
    if (r == 0)
        r = disk_mount(&device, -1, false, false, &mnt, reterr);
    close_fd(&device.fd);
    if (r == 0)
        *ret = (struct disk_hold){.fd = mnt, .index = index};
    return r;
}

int disk_attach_held(struct disk_store *s, const struct disk_hold *h, struct disk_device *ret,
                     struct error *reterr)
{
    return device_open(s, h->index, ret, reterr);
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
