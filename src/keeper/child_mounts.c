/* SPDX-License-Identifier: Apache-2.0 */
/* child_mounts.c: see child_mounts.h.
 *
 * /proc, /sys and /dev are built on a stage, a small file system over the old root, and moved when the root
 * is there: most of the work is done while nobody waits for it.
 *
 * On the stage, the working directory meanwhile, is nothing that the kernel and we have not put there. So
 * names can be trusted, and mount(2) does in one call what takes ten with descriptors. The image is not
 * trusted: every target in the root is opened beneath it without following links, and mounts are attached to
 * that descriptor, so a link at /proc or /dev is refused instead of followed.
 *
 * The small directories among them are the stage's own, bound to their places, and /tmp and /run are one
 * file system: for each file system the kernel keeps room in every memory group there is, so with a thousand
 * sandboxes one more in each costs thirty megabytes. */
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

#define NSE (MS_NOSUID | MS_NOEXEC)
#define ALL (MS_NOSUID | MS_NODEV | MS_NOEXEC)

/* options: "key=value,key=value". Returns the detached mount or -errno. */
static int make_tmpfs(const char *options, unsigned attr)
{
    char buffer[160];
    auto_close int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
    if (fs < 0)
        return -errno;
    if (strlen(options) >= sizeof buffer)
        return -E2BIG;
    memcpy(buffer, options, strlen(options) + 1);
    char *save = NULL;
    for (char *item = strtok_r(buffer, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
        char *value = strchr(item, '=');
        if (!value)
            return -EINVAL;
        *value++ = '\0';
        if (fsconfig(fs, FSCONFIG_SET_STRING, item, value, 0) < 0)
            return -errno;
    }
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -errno;
    int mnt = fsmount(fs, FSMOUNT_CLOEXEC, attr);
    return mnt < 0 ? -errno : mnt;
}

/* On top of the old root, the one place of the host's tree a mapped id can always reach, and of what is there
 * already. */
static int cover_old_root(int mount_fd)
{
    return move_mount(mount_fd, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

/* Directories of the stage beside those that are mounted on. FIFOs: two for each process, three for each
 * session. */
#define STAGE_OPTIONS "size=64k,nr_inodes=65664,mode=0755"
#define FIFOS         "fifos"
#define SYS_FS        "fs"
#define EMPTY         "empty"
#define SCRATCH       "scratch"

/* What a root has mounted. The first STAGED of them need no root to be made. */
static const char *const mounted[] = {"proc", "sys", "dev", "tmp", "run"};
enum { STAGED = 3 };

/* ---- the stage */

static int put(const char *path, const char *type, const char *options, unsigned long flags)
{
    return mount("none", path, type, flags, options) < 0 ? -errno : 0;
}

static int bind(const char *source, const char *path, unsigned long flags)
{
    return mount(source, path, NULL, MS_BIND | flags, NULL) < 0 ? -errno : 0;
}

/* And whatever is mounted below it, if recursive. */
static int make_read_only(const char *path, bool recursive)
{
    struct mount_attr a = {.attr_set = MOUNT_ATTR_RDONLY};
    return mount_setattr(AT_FDCWD, path, recursive ? AT_RECURSIVE : 0, &a, sizeof a) < 0 ? -errno : 0;
}

static int make_dev(const struct child_plan *p)
{
    static const char *const links[][2] = {{"pts/ptmx", "dev/ptmx"},
                                           {"/proc/self/fd", "dev/fd"},
                                           {"/proc/self/fd/0", "dev/stdin"},
                                           {"/proc/self/fd/1", "dev/stdout"},
                                           {"/proc/self/fd/2", "dev/stderr"}};
    static const struct {
        const char *path, *type, *options;
        unsigned long flags;
    } inside[] = {
        {"dev/pts", "devpts", "newinstance,ptmxmode=0666,mode=0620,gid=5,max=64", NSE},
        {"dev/shm", "tmpfs", "size=64m,nr_inodes=16k,mode=1777", ALL},
        {"dev/mqueue", "mqueue", NULL, ALL},
    };
    struct mount_attr flags = {.attr_clr = MOUNT_ATTR_NODEV, .attr_set = MOUNT_ATTR_RDONLY};
    int r = bind("dev", "dev", 0);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(links); i++)
        if (symlink(links[i][0], links[i][1]) < 0)
            return -errno;
    for (size_t i = 0; i < HOST_DEVICE_COUNT; i++) {
        char path[32];
        (void)snprintf(path, sizeof path, "dev/%s", host_devices[i].name);
        if (mknod(path, S_IFREG | 0444, 0) < 0 ||
            move_mount(p->device_mounts[i], "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
            return -errno;
    }
    for (size_t i = 0; i < ARRAY_SIZE(inside); i++) {
        if (mkdir(inside[i].path, 0755) < 0)
            return -errno;
        if ((r = put(inside[i].path, inside[i].type, inside[i].options, inside[i].flags)) < 0)
            return r;
    }
    if (mkdir(AGENT_FIFO_DIR + 1, 0755) < 0 || mkdir(FIFOS, 0711) < 0)
        return -errno;
    r = bind(FIFOS, AGENT_FIFO_DIR + 1, 0);
    if (r == 0 && mount_setattr(AT_FDCWD, "dev", 0, &flags, sizeof flags) < 0)
        r = -errno;
    return r;
}

/* /sys/fs shows the control groups (language runtimes size their heaps from them) and nothing else. */
static int make_sys_fs(const struct child_plan *p)
{
    if (mkdir(SYS_FS, 0755) < 0 || mkdir(SYS_FS "/cgroup", 0755) < 0)
        return -errno;
    int r = bind(SYS_FS, "sys/fs", 0);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(p->cgroup_v1) && p->cgroup_v1[i]; i++) {
        char path[48];
        (void)snprintf(path, sizeof path, "sys/fs/cgroup/%s", p->cgroup_v1[i]);
        if (mkdir(path, 0755) < 0)
            return -errno;
        if ((r = put(path, "cgroup", p->cgroup_v1[i], ALL | MS_RDONLY)) < 0)
            return r;
    }
    if (p->cgroup_v2 && (r = put("sys/fs/cgroup", "cgroup2", NULL, ALL | MS_RDONLY)) < 0)
        return r;
    return make_read_only("sys/fs", false);
}

int child_mounts_stage(const struct child_plan *p, int *ret_stage)
{
    auto_close int stage =
        make_tmpfs(STAGE_OPTIONS, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    int r = stage < 0 ? stage : cover_old_root(stage);
    if (r < 0)
        return r;
    if (fchdir(stage) < 0)
        return -errno;
    for (size_t i = 0; i < STAGED; i++)
        if (mkdir(mounted[i], 0755) < 0)
            return -errno;
    if ((r = put("proc", "proc", "hidepid=invisible", ALL)) < 0 ||
        (r = put("sys", "sysfs", NULL, ALL | MS_RDONLY)) < 0 || (r = make_dev(p)) < 0 ||
        (r = make_sys_fs(p)) < 0)
        return r;
    *ret_stage = take_fd(stage);
    return 0;
}

/* A file is masked with /dev/null, which is the host's, checked by the keeper, a directory with an empty one.
 * Missing ones need no mask. A first try with the wrong one costs as much as ten masks: the kernel waits for
 * all processors before it forgets a mount. */
#define NULL_FILE "dev/null"
#define EMPTY_DIR "sys/kernel"

static int mask(const char *path, bool is_dir)
{
    int r = bind(is_dir ? EMPTY_DIR : NULL_FILE, path, 0);
    if (r == -ENOTDIR) /* on another kernel */
        r = bind(is_dir ? NULL_FILE : EMPTY_DIR, path, 0);
    return r == -ENOENT || r == -EACCES ? 0 : r;
}

int child_mounts_mask(void)
{
    static const char *const files[] = {
        "proc/cgroups",       "proc/cmdline",      "proc/config.gz",   "proc/diskstats",   "proc/interrupts",
        "proc/iomem",         "proc/ioports",      "proc/kallsyms",    "proc/kcore",       "proc/key-users",
        "proc/keys",          "proc/kmsg",         "proc/kpagecgroup", "proc/kpagecount",  "proc/kpageflags",
        "proc/latency_stats", "proc/pagetypeinfo", "proc/partitions",  "proc/sched_debug", "proc/slabinfo",
        "proc/timer_list",    "proc/timer_stats",  "proc/vmallocinfo"};
    static const char *const dirs[] = {"proc/acpi",
                                       "proc/asound",
                                       "proc/bus/pci",
                                       "proc/scsi",
                                       "sys/firmware",
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
    if (mkdir(EMPTY, 0555) < 0)
        return -errno;
    int r = bind(EMPTY, EMPTY_DIR, 0);
    if (r == 0)
        r = make_read_only(EMPTY_DIR, false);
    for (size_t i = 0; i < ARRAY_SIZE(files) && r == 0; i++)
        r = mask(files[i], false);
    for (size_t i = 0; i < ARRAY_SIZE(dirs) && r == 0; i++)
        r = mask(dirs[i], true);
    for (unsigned cpu = 0; cpu < CPUS_MAX && r == 0; cpu++) {
        char path[72];
        (void)snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%u", cpu);
        if (access(path, F_OK) < 0)
            break;
        (void)snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%u/thermal_throttle", cpu);
        r = mask(path, true);
    }
    return r;
}

int child_mounts_seal(int *ret_settings)
{
    static const char *const paths[] = {
        "proc/bus",           "proc/fs",     "proc/irq",           "proc/sys",
        "proc/sysrq-trigger", "proc/driver", "proc/dynamic_debug", "proc/pressure"};
    int settings = open("proc/sys", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (settings < 0)
        return -errno;
    *ret_settings = settings;
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        int r = bind(paths[i], paths[i], MS_REC);
        if (r == -ENOENT)
            continue;
        if (r < 0 || (r = make_read_only(paths[i], true)) < 0)
            return r;
    }
    return 0;
}

/* ---- the root */

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

/* A directory of the scratch file system, as a mount of its own. */
static int put_scratch(int root, const char *name, mode_t mode)
{
    char path[32];
    (void)snprintf(path, sizeof path, SCRATCH "/%s", name);
    if (mkdir(path, mode) < 0 || chmod(path, mode) < 0) /* whatever the mask is */
        return -errno;
    auto_close int mnt = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    auto_close int target = mnt < 0 ? -errno : target_dir(root, name);
    return target < 0 ? target : attach(mnt, target);
}

/* On the stage, which goes with the old root. */
static int make_tmp(const struct child_plan *p, int root)
{
    char options[64];
    if (p->tmp_bytes == 0) {
        bool made = mkdirat(root, "tmp", 01777) == 0;
        if (made && fchmodat(root, "tmp", 01777, 0) < 0) /* whatever the mask is */
            return -errno;
        auto_close int target = target_dir(root, "run");
        return target < 0 ? target : 0;
    }
    (void)snprintf(options, sizeof options, "size=%llu,nr_inodes=81920,mode=0755",
                   (unsigned long long)p->tmp_bytes);
    if (mkdir(SCRATCH, 0755) < 0)
        return -errno;
    int r = put(SCRATCH, "tmpfs", options, MS_NOSUID | MS_NODEV);
    if (r == 0)
        r = put_scratch(root, "tmp", 01777);
    return r < 0 ? r : put_scratch(root, "run", 0755);
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
