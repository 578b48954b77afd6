/* SPDX-License-Identifier: Apache-2.0 */
/* disk.c: see disk.h.
 *
 * Theory of operation
 * Formatting is slow, copying is not: mkfs runs once per size on a template file, whose few non-zero extents
 * (about 70 KB) are then kept in memory. A new disk is a truncated file plus these extents: a handful of
 * writes. The inode tables are zeroed by being holes, and the template is made without lazy initialisation,
 * so no kernel thread writes to a disk nobody uses.
 *
 * Images are named by number in a directory only the keeper can enter. The raw bytes are never in a tenant's
 * reach, because ext4 is not hardened against crafted images. */
#include "keeper/disk.h"
#include "base/clock.h"
#include "keeper/disk_internal.h"
#include "keeper/mount_util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/loop.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>

enum { TEMPLATES_MAX = 32, EXTENTS_MAX = 256, ATTACH_TRIES = 64, LOOP_MAJOR = 7, UNMOUNT_TIMEOUT_MS = 2000 };
static const size_t template_data_max = 8 << 20;

struct extent {
    uint64_t offset;
    size_t len;
    char *data;
};

struct disk_template {
    uint64_t bytes, inodes;
    struct extent extents[EXTENTS_MAX];
    size_t extent_count;
};

struct disk_store {
    int dir_fd;
    int scratch_fd;
    struct disk_devices devices;
    pthread_mutex_t lock;
    struct disk_template *templates[TEMPLATES_MAX];
    size_t template_count;
};

void disk_image_name(char out[DISK_NAME_SIZE], uint64_t number)
{
    (void)snprintf(out, DISK_NAME_SIZE, "%" PRIu64 ".img", number);
}

int disk_store_open(int dir_fd, int scratch_fd, struct disk_store **ret, struct error *reterr)
{
    auto_close int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0)
        return error_sys(reterr, errno, "open /dev/loop-control (load the kernel module 'loop')");
    struct disk_store *s = calloc(1, sizeof *s);
    if (!s)
        return error_sys(reterr, ENOMEM, "open the disk store");
    s->dir_fd = dir_fd;
    s->scratch_fd = scratch_fd;
    s->devices.control_fd = take_fd(control);
    (void)pthread_mutex_init(&s->devices.lock, NULL);
    (void)pthread_mutex_init(&s->lock, NULL);
    *ret = s;
    return 0;
}

static void template_free(struct disk_template *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->extent_count; i++)
        free(t->extents[i].data);
    free(t);
}

void disk_store_free(struct disk_store *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->template_count; i++)
        template_free(s->templates[i]);
    (void)close(s->devices.control_fd);
    (void)pthread_mutex_destroy(&s->devices.lock);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

/* mkfs is the one helper program we need: absolute path, empty environment, only our own files as arguments.
 */
static int run_mkfs(int dir_fd, const char *name, const char *skeleton, uint64_t inodes, struct error *reterr)
{
    char inode_arg[24], path[64], root[64];
    (void)snprintf(inode_arg, sizeof inode_arg, "%" PRIu64, inodes);
    (void)snprintf(path, sizeof path, "./%s", name);
    (void)snprintf(root, sizeof root, "./%s", skeleton);
    char *argv[] = {"mkfs.ext4",
                    "-q",
                    "-F",
                    "-b",
                    "4096",
                    "-m",
                    "0",
                    "-J",
                    "size=4",
                    "-N",
                    inode_arg,
                    "-O",
                    "^resize_inode,^metadata_csum_seed",
                    "-E",
                    "lazy_itable_init=0,lazy_journal_init=0,nodiscard,root_owner=0:0",
                    "-d",
                    root,
                    path,
                    NULL};
    pid_t pid = fork();
    if (pid < 0)
        return error_sys(reterr, errno, "start mkfs.ext4");
    if (pid == 0) {
        static const char *const places[] = {"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"};
        char *envp[] = {NULL};
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (fchdir(dir_fd) < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
            _exit(126);
        for (size_t i = 0; i < ARRAY_SIZE(places); i++)
            (void)execve(places[i], argv, envp);
        _exit(127);
    }
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return error_sys(reterr, errno, "wait for mkfs.ext4");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return error_set(reterr, ENOENT, "mkfs.ext4 is missing: install the package e2fsprogs");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return error_set(reterr, EIO, "mkfs.ext4 failed (status 0x%x)", (unsigned)status);
    return 0;
}

static int template_add(struct disk_template *t, uint64_t offset, const char *data, size_t len)
{
    if (t->extent_count == EXTENTS_MAX)
        return -E2BIG;
    char *copy = malloc(len);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, data, len);
    t->extents[t->extent_count++] = (struct extent){offset, len, copy};
    return 0;
}

static bool all_zero(const char *p, size_t n)
{
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* Keeps the non-zero blocks; neighbouring ones become one extent. */
static int template_read(struct disk_template *t, int fd, struct error *reterr)
{
    enum { BLOCK = 4096, RUN = 256 };
    auto_free char *run = malloc((size_t)BLOCK * RUN);
    if (!run)
        return error_sys(reterr, ENOMEM, "read the disk template");
    size_t kept = 0;
    off_t data = 0;
    while ((data = lseek(fd, data, SEEK_DATA)) >= 0) {
        off_t hole = lseek(fd, data, SEEK_HOLE);
        data -= data % BLOCK;
        while (data < hole) {
            size_t want = (size_t)MIN(hole - data, (off_t)(BLOCK * RUN));
            ssize_t n = pread(fd, run, want, data);
            if (n <= 0)
                return error_sys(reterr, n < 0 ? errno : EIO, "read the disk template");
            for (size_t i = 0; i < (size_t)n;) {
                size_t step = MIN((size_t)BLOCK, (size_t)n - i), end = i + step;
                if (all_zero(run + i, step)) {
                    i = end;
                    continue;
                }
                while (end < (size_t)n && !all_zero(run + end, MIN((size_t)BLOCK, (size_t)n - end)))
                    end += MIN((size_t)BLOCK, (size_t)n - end);
                kept += end - i;
                int r =
                    kept > template_data_max ? -E2BIG : template_add(t, (uint64_t)data + i, run + i, end - i);
                if (r < 0)
                    return error_sys(reterr, -r, "keep the disk template");
                i = end;
            }
            data += n;
        }
    }
    return errno == ENXIO ? 0 : error_sys(reterr, errno, "read the disk template");
}

static int template_make(struct disk_store *s, uint64_t bytes, uint64_t inodes, struct disk_template **ret,
                         struct error *reterr)
{
    static const char name[] = "template.tmp", skeleton[] = "skeleton.tmp";
    static const char *const dirs[] = {"upper", "work"};
    (void)unlinkat(s->dir_fd, name, 0); /* left over by a crash */
    auto_close int fd = openat(s->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        return error_sys(reterr, errno, "make the disk template");
    if (mkdirat(s->dir_fd, skeleton, 0700) < 0 && errno != EEXIST)
        return error_sys(reterr, errno, "make the disk template");
    auto_close int skel = openat(s->dir_fd, skeleton, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        if ((mkdirat(skel, dirs[i], 0755) < 0 && errno != EEXIST) || fchmodat(skel, dirs[i], 0755, 0) < 0)
            return error_sys(reterr, errno, "make the disk template");

    struct disk_template *t = calloc(1, sizeof *t);
    int r = t ? run_mkfs(s->dir_fd, name, skeleton, inodes, reterr)
              : error_sys(reterr, ENOMEM, "make the disk template");
    if (r == 0)
        r = template_read(t, fd, reterr);
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        (void)unlinkat(skel, dirs[i], AT_REMOVEDIR);
    (void)unlinkat(s->dir_fd, skeleton, AT_REMOVEDIR);
    (void)unlinkat(s->dir_fd, name, 0);
    if (r < 0) {
        template_free(t);
        return r;
    }
    t->bytes = bytes;
    t->inodes = inodes;
    *ret = t;
    return 0;
}

/* The template stays valid while the lock is held. */
static int template_find(struct disk_store *s, uint64_t bytes, uint64_t inodes,
                         const struct disk_template **ret, struct error *reterr)
{
    for (size_t i = 0; i < s->template_count; i++)
        if (s->templates[i]->bytes == bytes && s->templates[i]->inodes == inodes) {
            *ret = s->templates[i];
            return 0;
        }
    struct disk_template *t = NULL;
    int r = template_make(s, bytes, inodes, &t, reterr);
    if (r < 0)
        return r;
    if (s->template_count == TEMPLATES_MAX) { /* many odd sizes: the oldest is made again when needed */
        template_free(s->templates[0]);
        memmove(s->templates, s->templates + 1, (TEMPLATES_MAX - 1) * sizeof *s->templates);
        s->template_count--;
    }
    s->templates[s->template_count++] = t;
    *ret = t;
    return 0;
}

static int image_write(int dir_fd, const char *name, const struct disk_template *t, struct error *reterr)
{
    auto_close int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_sys(reterr, errno, "make a disk image");
    if (ftruncate(fd, (off_t)t->bytes) < 0)
        goto fail;
    for (size_t i = 0; i < t->extent_count; i++)
        if (pwrite(fd, t->extents[i].data, t->extents[i].len, (off_t)t->extents[i].offset) !=
            (ssize_t)t->extents[i].len)
            goto fail;
    return 0;
fail:
    (void)unlinkat(dir_fd, name, 0);
    return error_sys(reterr, errno ? errno : EIO, "write a disk image");
}

int disk_file_create(struct disk_store *s, const char *name, uint64_t bytes, uint64_t inodes,
                     struct error *reterr)
{
    const struct disk_template *t;
    (void)pthread_mutex_lock(&s->lock);
    int r = template_find(s, bytes & ~UINT64_C(4095), inodes, &t, reterr);
    if (r == 0)
        r = image_write(s->dir_fd, name, t, reterr);
    (void)pthread_mutex_unlock(&s->lock);
    return r;
}

int disk_create(struct disk_store *s, uint64_t number, uint64_t bytes, uint64_t inodes, struct error *reterr)
{
    char name[DISK_NAME_SIZE];
    disk_image_name(name, number);
    return disk_file_create(s, name, bytes, inodes, reterr);
}

int disk_remove(struct disk_store *s, uint64_t number, struct error *reterr)
{
    char name[DISK_NAME_SIZE];
    disk_image_name(name, number);
    if (unlinkat(s->dir_fd, name, 0) < 0 && errno != ENOENT)
        return error_sys(reterr, errno, "remove a disk image");
    return 0;
}

int disk_used_bytes(struct disk_store *s, uint64_t number, uint64_t *ret)
{
    char name[DISK_NAME_SIZE];
    struct stat st;
    disk_image_name(name, number);
    if (fstatat(s->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    *ret = (uint64_t)st.st_blocks * 512;
    return 0;
}

int disk_store_scan(struct disk_store *s, void (*found)(uint64_t number, void *arg), void *arg)
{
    int fd = openat(s->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        return -errno;
    for (struct dirent *e; (e = readdir(d));) {
        uint64_t number;
        int end = 0;
        if (sscanf(e->d_name, "%" SCNu64 ".img%n", &number, &end) == 1 && end > 0 && e->d_name[end] == '\0')
            found(number, arg);
    }
    (void)closedir(d);
    return 0;
}

struct disk_devices *disk_store_devices(struct disk_store *s)
{
    return &s->devices;
}

int disk_store_dir(const struct disk_store *s)
{
    return s->dir_fd;
}

int disk_store_free_bytes(struct disk_store *s, uint64_t *ret)
{
    struct statvfs v;
    if (fstatvfs(s->dir_fd, &v) < 0)
        return -errno;
    *ret = (uint64_t)v.f_bavail * v.f_frsize;
    return 0;
}

dev_t disk_device_number(unsigned index)
{
    return makedev(LOOP_MAJOR, index);
}

/* Device nodes of our own: a host whose /dev is not devtmpfs has only the few that were made at boot. */
int disk_loop_open(struct disk_store *s, unsigned index, int flags)
{
    char name[24];
    (void)snprintf(name, sizeof name, "loop%u", index);
    if (mknodat(s->scratch_fd, name, S_IFBLK | 0600, disk_device_number(index)) < 0 && errno != EEXIST)
        return -errno;
    int fd = openat(s->scratch_fd, name, flags | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

/* Somebody else may take the free device first: then the next one. */
static int attach_free(struct disk_store *s, int image, const char *label, bool young,
                       struct disk_device *ret, struct error *reterr)
{
    int last = EBUSY;
    for (int i = 0; i < ATTACH_TRIES; i++) {
        int index = ioctl(s->devices.control_fd, LOOP_CTL_GET_FREE);
        if (index < 0)
            return error_sys(reterr, errno, "find a free loop device");
        auto_close int fd = disk_loop_open(s, (unsigned)index, O_RDWR);
        if (fd < 0) {
            last = -fd;
            continue;
        }
        struct loop_config config = {
            .fd = (uint32_t)image,
            .block_size = 4096,
            .info = {.lo_flags = LO_FLAGS_AUTOCLEAR | (young ? 0 : LO_FLAGS_DIRECT_IO)},
        };
        (void)snprintf((char *)config.info.lo_file_name, sizeof config.info.lo_file_name, DISK_LABEL "%s",
                       label);
        if (ioctl(fd, LOOP_CONFIGURE, &config) < 0) {
            last = errno;
            if (last == EINVAL) { /* a backing file system without direct I/O, such as tmpfs */
                config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
                if (ioctl(fd, LOOP_CONFIGURE, &config) < 0)
                    last = errno;
                else
                    last = 0;
            }
            if (last == EBUSY)
                continue;
            if (last)
                break;
        }
        *ret = (struct disk_device){
            .fd = take_fd(fd), .index = (unsigned)index, .dev = disk_device_number((unsigned)index)};
        disk_device_known(s, (unsigned)index);
        return 0;
    }
    return error_sys(reterr, last, "attach a disk image to a loop device");
}

int disk_attach(struct disk_store *s, uint64_t number, bool young, struct disk_device *ret,
                struct error *reterr)
{
    char name[DISK_NAME_SIZE], label[24];
    disk_image_name(name, number);
    (void)snprintf(label, sizeof label, "%" PRIu64, number);
    auto_close int image = openat(s->dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (image < 0)
        return error_sys(reterr, errno, "open a disk image");
    return attach_free(s, image, label, young, ret, reterr);
}

int disk_loops(struct disk_store *s, bool (*found)(const struct disk_loop *l, void *arg), void *arg)
{
    bool more = true;
    DIR *d = opendir("/sys/block");
    if (!d)
        return -errno;
    for (struct dirent *e; more && (e = readdir(d));) {
        struct disk_loop l;
        struct loop_info64 info;
        int end = 0;
        if (sscanf(e->d_name, "loop%u%n", &l.index, &end) != 1 || e->d_name[end] != '\0')
            continue;
        /* read-only: most are not ours, and a device that was open for writing is looked at by others when
         * closed */
        auto_close int fd = disk_loop_open(s, l.index, O_RDONLY);
        if (fd < 0 || ioctl(fd, LOOP_GET_STATUS64, &info) < 0) /* free, or just being let go */
            continue;
        l.fd = fd;
        l.file_dev = info.lo_device;
        l.file_ino = info.lo_inode;
        (void)snprintf(l.label, sizeof l.label, "%.*s", (int)sizeof info.lo_file_name,
                       (const char *)info.lo_file_name);
        more = found(&l, arg);
    }
    (void)closedir(d);
    return 0;
}

struct find {
    const struct stat *file;
    struct disk_device *ret;
    int result;
};

static bool loop_matches(const struct disk_loop *l, void *arg)
{
    struct find *f = arg;
    if (l->file_ino != f->file->st_ino || l->file_dev != f->file->st_dev)
        return true;
    int fd = fcntl(l->fd, F_DUPFD_CLOEXEC, 0);
    f->result = fd < 0 ? -errno : 0;
    *f->ret = (struct disk_device){.fd = fd, .index = l->index, .dev = disk_device_number(l->index)};
    return false;
}

/* The loop device that has this very file, held open so that it stays; -ENOENT when there is none. */
static int loop_find(struct disk_store *s, const struct stat *file, struct disk_device *ret)
{
    struct find f = {.file = file, .ret = ret, .result = -ENOENT};
    int r = disk_loops(s, loop_matches, &f);
    return r < 0 ? r : f.result;
}

bool disk_file_busy(struct disk_store *s, int image_fd)
{
    struct disk_device device = {.fd = -1};
    struct stat st;
    bool busy = fstat(image_fd, &st) < 0 || loop_find(s, &st, &device) != -ENOENT;
    close_fd(&device.fd);
    return busy;
}

int disk_file_attach(struct disk_store *s, int image_fd, const char *label, struct disk_device *ret,
                     struct error *reterr)
{
    struct stat st;
    if (fstat(image_fd, &st) < 0)
        return error_sys(reterr, errno, "look at a disk image");
    int r = loop_find(s, &st, ret);
    if (r == -ENOENT)
        return attach_free(s, image_fd, label, false, ret, reterr);
    return r < 0 ? error_sys(reterr, -r, "look for a loop device") : 0;
}

int disk_attach_again(struct disk_store *s, uint64_t number, struct disk_device *ret, struct error *reterr)
{
    char name[DISK_NAME_SIZE], label[24];
    disk_image_name(name, number);
    (void)snprintf(label, sizeof label, "%" PRIu64, number);
    auto_close int image = openat(s->dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (image < 0)
        return error_sys(reterr, errno, "open a disk image");
    return disk_file_attach(s, image, label, ret, reterr);
}

int disk_mount(const struct disk_device *d, int userns_fd, bool discard, bool young, int *ret_mount_fd,
               struct error *reterr)
{
    char source[64];
    auto_close int fs = fsopen("ext4", FSOPEN_CLOEXEC);
    if (fs < 0)
        return error_sys(reterr, errno, "open the file system ext4");
    (void)snprintf(source, sizeof source, "/proc/self/fd/%d", d->fd);
    if (fsconfig(fs, FSCONFIG_SET_STRING, "source", source, 0) < 0 ||
        fsconfig(fs, FSCONFIG_SET_STRING, "errors", "remount-ro", 0) < 0 ||
        (young && fsconfig(fs, FSCONFIG_SET_FLAG, "nobarrier", NULL, 0) < 0) ||
        (discard && fsconfig(fs, FSCONFIG_SET_FLAG, "discard", NULL, 0) < 0) ||
        fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return error_sys(reterr, errno, "mount a disk image");
    auto_close int mnt =
        fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
    if (mnt < 0)
        return error_sys(reterr, errno, "mount a disk image");
    int r = userns_fd >= 0 ? mount_idmap(mnt, userns_fd, 0, reterr) : 0;
    if (r < 0)
        return r;
    *ret_mount_fd = take_fd(mnt);
    return 0;
}

int disk_settle(struct disk_store *s, uint64_t number, unsigned index, int root_fd, struct error *reterr)
{
    char name[DISK_NAME_SIZE];
    disk_image_name(name, number);
    auto_close int image = openat(s->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    auto_close int loop = disk_loop_open(s, index, O_RDWR);
    if (loop < 0)
        return error_sys(reterr, -loop, "open a loop device");
    /* what has been written so far goes to the disk first; EINVAL: a backing file system without direct I/O
     */
    if (ioctl(loop, LOOP_SET_DIRECT_IO, 1UL) < 0 && errno != EINVAL)
        return error_sys(reterr, errno, "switch a loop device to direct I/O");
    if (image >= 0)
        (void)posix_fadvise(image, 0, 0, POSIX_FADV_DONTNEED); /* nobody reads it that way any more */
    auto_close int fs = fspick(root_fd, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);
    if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "barrier", "1", 0) < 0 ||
        fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0)
        return error_sys(reterr, errno, "turn on the barriers of a disk");
    return 0;
}

int disk_flush(struct disk_store *s, uint64_t number, struct error *reterr)
{
    char name[DISK_NAME_SIZE];
    disk_image_name(name, number);
    auto_close int image = openat(s->dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (image < 0 || fsync(image) < 0)
        return error_sys(reterr, errno, "write a disk image");
    return 0;
}

/* The kernel announces a shutdown on the console, which on a serial line takes 2 ms of processor time: it
 * pays only when there is much that the unmount would write. */
void disk_abandon(const struct disk_hold *h)
{
    enum { GOING_NO_LOG_FLUSH = 2, LITTLE_BYTES = 16 << 20 };
    unsigned flags = GOING_NO_LOG_FLUSH;
    struct statvfs v;
    if (fstatvfs(h->fd, &v) == 0 && (v.f_blocks - v.f_bfree) * v.f_frsize < LITTLE_BYTES)
        return;
    auto_close int fd = openat(h->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)ioctl(fd, _IOR('X', 125, unsigned),
                &flags); /* EXT4_IOC_SHUTDOWN; refused, the unmount only takes longer */
}

bool disk_unused(struct disk_store *s, unsigned index)
{
    /* a mounted device is held exclusively */
    auto_close int fd = disk_loop_open(s, index, O_RDONLY | O_EXCL);
    return fd >= 0;
}

void disk_wait_unused(struct disk_store *s, unsigned index)
{
    int64_t deadline = clock_mono_ms() + UNMOUNT_TIMEOUT_MS;
    const struct timespec a_moment = {.tv_nsec = 1000000};
    while (!disk_unused(s, index) && clock_mono_ms() < deadline)
        (void)nanosleep(&a_moment, NULL);
}
