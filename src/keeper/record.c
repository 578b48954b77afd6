/* SPDX-License-Identifier: Apache-2.0 */
/* record.c: see record.h. */
#include "keeper/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { RECORD_MAGIC = 0x53494c52, RECORD_VERSION = 1, NAME_SIZE = 16 };

static void slot_name(char out[NAME_SIZE], unsigned slot)
{
    (void)snprintf(out, NAME_SIZE, "%u", slot);
}

int slot_dir_open(int slots_fd, unsigned slot, int *ret_fd, struct error *reterr)
{
    char name[NAME_SIZE];
    slot_name(name, slot);
    int fd = openat(slots_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return error_sys(reterr, errno, "open the directory of slot %u", slot);
    *ret_fd = fd;
    return 0;
}

int slot_dir_make(int slots_fd, unsigned slot, int *ret_fd, struct error *reterr)
{
    char name[NAME_SIZE];
    slot_name(name, slot);
    if (mkdirat(slots_fd, name, 0700) < 0)
        return error_sys(reterr, errno, "make the directory of slot %u", slot);
    return slot_dir_open(slots_fd, slot, ret_fd, reterr);
}

void slot_dir_remove(int slots_fd, unsigned slot)
{
    static const char *const files[] = {"agent.sock", "control.sock", "record",
                                        "record.new", "network",      "network.new"};
    char name[NAME_SIZE];
    slot_name(name, slot);
    auto_close int dir = openat(slots_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        (void)unlinkat(dir, files[i], 0); /* not every slot got so far */
    (void)unlinkat(slots_fd, name, AT_REMOVEDIR);
}

int slot_dir_scan(int slots_fd, void (*found)(unsigned slot, void *arg), void *arg)
{
    int fd = openat(slots_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        return -errno;
    for (struct dirent *e; (e = readdir(d));) {
        unsigned slot;
        int end = 0;
        if (sscanf(e->d_name, "%u%n", &slot, &end) == 1 && e->d_name[end] == '\0')
            found(slot, arg);
    }
    (void)closedir(d);
    return 0;
}

int record_write(int slot_dir_fd, const struct record *r, struct error *reterr)
{
    struct record copy = *r;
    copy.magic = RECORD_MAGIC;
    copy.version = RECORD_VERSION;
    auto_close int fd = openat(slot_dir_fd, "record.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, &copy, sizeof copy) != (ssize_t)sizeof copy ||
        renameat(slot_dir_fd, "record.new", slot_dir_fd, "record") < 0)
        return error_sys(reterr, errno, "write a slot's record");
    return 0;
}

int record_read(int slot_dir_fd, struct record *ret, struct error *reterr)
{
    struct record r;
    auto_close int fd = openat(slot_dir_fd, "record", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return error_sys(reterr, errno, "read a slot's record");
    if (read(fd, &r, sizeof r) != (ssize_t)sizeof r || r.magic != RECORD_MAGIC ||
        r.version != RECORD_VERSION || !memchr(r.id, '\0', sizeof r.id) ||
        !memchr(r.image, '\0', sizeof r.image) || r.pid <= 1)
        return error_set(reterr, EBADMSG, "a slot's record is damaged");
    *ret = r;
    return 0;
}
