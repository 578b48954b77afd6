/* SPDX-License-Identifier: Apache-2.0 */
/* child_mounts.c: see child_mounts.h.
 *
 * /proc, /sys and /dev are built on a stage, a small file system over the old root, and moved when the root
 * is there: most of the work is done while nobody waits for it. Everything here calls the directory that
 * these three are in `root`, whichever it is.
 *
 * The image is not trusted: every target is opened beneath the new root without following links, and mounts
 * are attached to that descriptor, so a link at /proc or /dev is refused instead of followed. */
#include "keeper/child_mounts.h"
#include "agent/control.h"
#include "keeper/mount_util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define NSD (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define NSE (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)
#define ALL (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

/* Opens the directory, making it if the image lacks it. */
static int target_dir(int root, const char *path)
{
    int fd = open_beneath(root, path, O_PATH | O_DIRECTORY);
    if (fd != -ENOENT)
        return fd;
    const char *slash = strrchr(path, '/');
    if (slash)
        return fd; /* only top-level directories are made */
    if (mkdirat(root, path, 0755) < 0)
        return -errno;
    return open_beneath(root, path, O_PATH | O_DIRECTORY);
}

static int attach(int mount_fd, int target_fd)
{
    return move_mount(mount_fd, "", target_fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0
               ? -errno
               : 0;
}

/* options: "key=value,flag,key=value". Returns the detached mount or -errno. */
static int make_fs(const char *type, const char *options, unsigned attr)
{
    char buffer[160];
    auto_close int fs = fsopen(type, FSOPEN_CLOEXEC);
    if (fs < 0)
        return -errno;
    if (strlen(options) >= sizeof buffer)
        return -E2BIG;
    memcpy(buffer, options, strlen(options) + 1);
    char *save = NULL;
    for (char *item = strtok_r(buffer, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
        char *value = strchr(item, '=');
        if (value)
            *value++ = '\0';
        if (fsconfig(fs, value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, item, value, 0) < 0)
            return -errno;
    }
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -errno;
    int mnt = fsmount(fs, FSMOUNT_CLOEXEC, attr);
    return mnt < 0 ? -errno : mnt;
}

static int mount_fs(int root, const char *path, const char *type, const char *options, unsigned attr)
{
    auto_close int mnt = make_fs(type, options, attr);
    if (mnt < 0)
        return mnt;
    auto_close int target = target_dir(root, path);
    if (target < 0)
        return target;
    return attach(mnt, target);
}

static int set_attr(int fd, unsigned attr)
{
    struct mount_attr a = {.attr_set = attr};
    return mount_setattr(fd, "", AT_EMPTY_PATH, &a, sizeof a) < 0 ? -errno : 0;
}

static int make_dev(const struct child_plan *p, int root)
{
    static const char *const links[][2] = {{"pts/ptmx", "ptmx"},
                                           {"/proc/self/fd", "fd"},
                                           {"/proc/self/fd/0", "stdin"},
                                           {"/proc/self/fd/1", "stdout"},
                                           {"/proc/self/fd/2", "stderr"}};
    static const char *const dirs[] = {"pts", "shm", "mqueue", ".s"};
    auto_close int dev = make_fs("tmpfs", "size=64k,nr_inodes=64,mode=0755", NSE);
    if (dev < 0)
        return dev;
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        if (mkdirat(dev, dirs[i], 0755) < 0)
            return -errno;
    for (size_t i = 0; i < ARRAY_SIZE(links); i++)
        if (symlinkat(links[i][0], dev, links[i][1]) < 0)
            return -errno;
    for (size_t i = 0; i < HOST_DEVICE_COUNT; i++) {
        auto_close int file =
            openat(dev, host_devices[i].name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0444);
        if (file < 0)
            return -errno;
    }
    auto_close int target = target_dir(root, "dev");
    if (target < 0)
        return target;
    int r = attach(dev, target);
    if (r < 0)
        return r;
    for (size_t i = 0; i < HOST_DEVICE_COUNT;
         i++) { /* a detached tree takes no mounts on older kernels: attach first */
        auto_close int file = openat(dev, host_devices[i].name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (file < 0)
            return -errno;
        r = attach(p->device_mounts[i], file);
        if (r < 0)
            return r;
    }
    if ((r = mount_fs(root, "dev/pts", "devpts", "newinstance,ptmxmode=0666,mode=0620,gid=5,max=64", NSE)) <
            0 ||
        (r = mount_fs(root, "dev/shm", "tmpfs", "size=64m,nr_inodes=16k,mode=1777", ALL)) < 0 ||
        (r = mount_fs(root, "dev/mqueue", "mqueue", "", ALL)) < 0 ||
        (r = mount_fs(root, AGENT_FIFO_DIR + 1, "tmpfs", "size=64k,nr_inodes=65536,mode=0711", ALL)) < 0)
        return r;
    return set_attr(dev, MOUNT_ATTR_RDONLY);
}

/* /sys/fs shows the control groups (language runtimes size their heaps from them) and nothing else. */
static int make_sys_fs(const struct child_plan *p, int root)
{
    auto_close int fs = make_fs("tmpfs", "size=16k,nr_inodes=16,mode=0755", ALL);
    if (fs < 0)
        return fs;
    if (mkdirat(fs, "cgroup", 0755) < 0)
        return -errno;
    for (size_t i = 0; i < ARRAY_SIZE(p->cgroup_v1) && p->cgroup_v1[i]; i++) {
        char path[40];
        (void)snprintf(path, sizeof path, "cgroup/%s", p->cgroup_v1[i]);
        if (mkdirat(fs, path, 0755) < 0)
            return -errno;
    }
    auto_close int target = target_dir(root, "sys/fs");
    if (target < 0)
        return target;
    int r = attach(fs, target);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(p->cgroup_v1) && p->cgroup_v1[i]; i++) {
        char path[48];
        (void)snprintf(path, sizeof path, "sys/fs/cgroup/%s", p->cgroup_v1[i]);
        r = mount_fs(root, path, "cgroup", p->cgroup_v1[i], ALL | MOUNT_ATTR_RDONLY);
        if (r < 0)
            return r;
    }
    if (p->cgroup_v2 && (r = mount_fs(root, "sys/fs/cgroup", "cgroup2", "", ALL | MOUNT_ATTR_RDONLY)) < 0)
        return r;
    return set_attr(fs, MOUNT_ATTR_RDONLY);
}

static int make_tmp(const struct child_plan *p, int root)
{
    char tmp[64], run[64];
    if (p->tmp_bytes == 0) {
        bool made = mkdirat(root, "tmp", 01777) == 0;
        if (made && fchmodat(root, "tmp", 01777, 0) < 0) /* whatever the mask is */
            return -errno;
        auto_close int target = target_dir(root, "run");
        return target < 0 ? target : 0;
    }
    (void)snprintf(tmp, sizeof tmp, "size=%llu,nr_inodes=65536,mode=1777", (unsigned long long)p->tmp_bytes);
    (void)snprintf(run, sizeof run, "size=%llu,nr_inodes=16384,mode=0755", (unsigned long long)p->tmp_bytes);
    int r = mount_fs(root, "tmp", "tmpfs", tmp, NSD);
    return r < 0 ? r : mount_fs(root, "run", "tmpfs", run, NSD);
}

/* On top of the old root, the one place of the host's tree a mapped id can always reach, and of what is there
 * already. */
static int cover_old_root(int mount_fd)
{
    return move_mount(mount_fd, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

/* What a root has mounted. The first STAGED of them need no root to be made. */
static const char *const mounted[] = {"proc", "sys", "dev", "tmp", "run"};
enum { STAGED = 3 };

int child_mounts_stage(const struct child_plan *p, int *ret_stage)
{
    auto_close int stage = make_fs("tmpfs", "size=4k,nr_inodes=8,mode=0755", ALL);
    int r = stage < 0 ? stage : cover_old_root(stage);
    if (r < 0)
        return r;
    for (size_t i = 0; i < STAGED; i++)
        if (mkdirat(stage, mounted[i], 0755) < 0)
            return -errno;
    if ((r = mount_fs(stage, "proc", "proc", "hidepid=invisible", ALL)) < 0 ||
        (r = mount_fs(stage, "sys", "sysfs", "", ALL | MOUNT_ATTR_RDONLY)) < 0 ||
        (r = make_dev(p, stage)) < 0 || (r = make_sys_fs(p, stage)) < 0)
        return r;
    *ret_stage = take_fd(stage);
    return 0;
}

static int move_mounts(size_t count, int from_dir, int root)
{
    int r = cover_old_root(root);
    for (size_t i = 0; i < count && r == 0; i++) {
        auto_close int from = open_beneath(from_dir, mounted[i], O_PATH | O_DIRECTORY);
        auto_close int target = target_dir(root, mounted[i]);
        r = from < 0 ? from : target < 0 ? target : attach(from, target);
    }
    return r;
}

int child_mounts_place(const struct child_plan *p, int stage, int root)
{
    int r = move_mounts(STAGED, stage, root);
    return r < 0 ? r : make_tmp(p, root);
}

int child_mounts_move(int old, int root)
{
    return move_mounts(ARRAY_SIZE(mounted), old, root);
}

/* A path is masked with /dev/null or an empty directory, whichever it is; missing ones need no mask. */
static int mask(int root, const char *path, int null, int empty)
{
    struct stat st;
    auto_close int target = open_beneath(root, path, O_PATH);
    if (target == -ENOENT || target == -EACCES)
        return 0;
    if (target < 0 || fstat(target, &st) < 0)
        return target < 0 ? target : -errno;
    int source = S_ISDIR(st.st_mode) ? empty : null;
    auto_close int mnt = open_tree(source, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    return mnt < 0 ? -errno : attach(mnt, target);
}

int child_mounts_mask(int root)
{
    static const char *const paths[] = {"proc/acpi",
                                        "proc/asound",
                                        "proc/bus/pci",
                                        "proc/cgroups",
                                        "proc/cmdline",
                                        "proc/config.gz",
                                        "proc/diskstats",
                                        "proc/interrupts",
                                        "proc/iomem",
                                        "proc/ioports",
                                        "proc/kallsyms",
                                        "proc/kcore",
                                        "proc/key-users",
                                        "proc/keys",
                                        "proc/kmsg",
                                        "proc/kpagecgroup",
                                        "proc/kpagecount",
                                        "proc/kpageflags",
                                        "proc/latency_stats",
                                        "proc/pagetypeinfo",
                                        "proc/partitions",
                                        "proc/sched_debug",
                                        "proc/scsi",
                                        "proc/slabinfo",
                                        "proc/timer_list",
                                        "proc/timer_stats",
                                        "proc/vmallocinfo",
                                        "sys/firmware",
                                        "sys/kernel",
                                        "sys/module",
                                        "sys/block",
                                        "sys/class",
                                        "sys/bus",
                                        "sys/dev",
                                        "sys/power",
                                        "sys/hypervisor",
                                        "sys/devices/virtual/powercap",
                                        "sys/devices/virtual/dmi"};
    enum { CPUS_MAX = 4096 };
    /* the node attached to our own read-only /dev is the host's, checked by the keeper: never the image's */
    auto_close int null = open_beneath(root, "dev/null", O_PATH);
    auto_close int empty = make_fs("tmpfs", "size=4k,nr_inodes=2,mode=0555", ALL | MOUNT_ATTR_RDONLY);
    if (null < 0 || empty < 0)
        return null < 0 ? null : empty;
    /* copies can only be made of attached mounts, so the first directory mask is the original */
    auto_close int first = open_beneath(root, "sys/kernel", O_PATH);
    int r = first < 0 ? first : attach(empty, first);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
        if (strcmp(paths[i], "sys/kernel") != 0 && (r = mask(root, paths[i], null, empty)) < 0)
            return r;
    for (unsigned cpu = 0; cpu < CPUS_MAX; cpu++) {
        char path[72];
        (void)snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%u", cpu);
        auto_close int dir = open_beneath(root, path, O_PATH);
        if (dir < 0)
            break;
        (void)snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%u/thermal_throttle", cpu);
        if ((r = mask(root, path, null, empty)) < 0)
            return r;
    }
    return 0;
}

static int write_setting(int settings, const char *path, const char *value)
{
    auto_close int fd = open_beneath(settings, path, O_WRONLY);
    if (fd < 0)
        return fd;
    return write(fd, value, strlen(value)) < 0 ? -errno : 0;
}

int child_mounts_limit(int settings)
{
    static const char *const no_more[] = {"user", "pid", "net", "mnt", "ipc", "uts", "cgroup", "time"};
    for (size_t i = 0; i < ARRAY_SIZE(no_more); i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "user/max_%s_namespaces", no_more[i]);
        int r = write_setting(settings, path, "0");
        if (r < 0 && r != -ENOENT)
            return r;
    }
    /* instead of the capability for raw sockets */
    int r = write_setting(settings, "net/ipv4/ping_group_range", "0 65535");
    if (r < 0 && r != -ENOENT)
        return r;
    /* per namespace only on newer kernels; elsewhere the tasks limit of the control group has to do */
    (void)write_setting(settings, "kernel/pid_max", "4096");
    return 0;
}

int child_mounts_seal(int root, int *ret_settings)
{
    static const char *const paths[] = {
        "proc/bus",           "proc/fs",     "proc/irq",           "proc/sys",
        "proc/sysrq-trigger", "proc/driver", "proc/dynamic_debug", "proc/pressure"};
    int settings = open_beneath(root, "proc/sys", O_PATH | O_DIRECTORY);
    if (settings < 0)
        return settings;
    *ret_settings = settings;
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        auto_close int target = open_beneath(root, paths[i], O_PATH);
        if (target == -ENOENT)
            continue;
        if (target < 0)
            return target;
        auto_close int copy =
            open_tree(target, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | AT_RECURSIVE | OPEN_TREE_CLOEXEC);
        int r = copy < 0 ? -errno : set_attr(copy, ALL | MOUNT_ATTR_RDONLY);
        if (r < 0 || (r = attach(copy, target)) < 0)
            return r;
    }
    return 0;
}

/* Opens the directory at an absolute path, making what is missing of it, without following a link. */
static int target_path(int root, const char *path)
{
    int fd = fcntl(root, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    while (fd >= 0 && *path) {
        char part[VOLUME_PATH_MAX + 1];
        size_t n = strcspn(++path, "/");
        auto_close int parent = fd;
        memcpy(part, path, n);
        part[n] = '\0';
        path += n;
        fd = open_beneath(parent, part, O_PATH | O_DIRECTORY);
        if (fd == -ENOENT && mkdirat(parent, part, 0755) < 0)
            return -errno;
        if (fd == -ENOENT)
            fd = open_beneath(parent, part, O_PATH | O_DIRECTORY);
    }
    return fd;
}

int child_mounts_volumes(const struct child_plan *p, int root, const int *mounts)
{
    for (size_t i = 0; i < p->volume_count; i++) {
        auto_close int target = target_path(root, p->volumes[i].path);
        int r = target < 0 ? target : attach(mounts[i], target);
        if (r < 0)
            return r;
    }
    return 0;
}

int child_mounts_pivot(int root, int covered)
{
    if (fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
        return -errno;
    while (covered-- > 0) /* they are stacked on the new root now */
        if (umount2(".", MNT_DETACH) < 0)
            return -errno;
    return chdir("/") < 0 ? -errno : 0;
}
