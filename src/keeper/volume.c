/* SPDX-License-Identifier: Apache-2.0 */
/* volume.c: see volume.h.
 *
 * Theory of operation
 * A volume is one file, NAME.vol: a sparse ext4 image like a sandbox's disk. Its name, its size and its time
 * are the file's, so there is no second record that could disagree. It is mounted by whoever needs it first,
 * always through the same loop device and therefore as one file system of the kernel, and every sandbox gets
 * a mount of its own with its own mapping of ids: what root writes in one belongs to root in the other.
 *
 * Nothing here remembers what is in use: the kernel knows. A keeper that was killed leaves devices that
 * sandboxes go on using, and the next one finds them by the file they have. The device goes with its last
 * mount. */
#include "keeper/volume.h"
#include "base/clock.h"
#include "keeper/mount_util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>

enum {
    VOLUMES_MAX = 1024,
    FILE_NAME_SIZE = VOLUME_NAME_MAX + 8,
    BYTES_PER_FILE = 16384, /* as mkfs would choose */
    FILES_MIN = 1024,
    LET_GO_MS = 2000, /* the kernel unmounts some time after a sandbox's last process */
};

static const char unfinished[] = "volume.new";

struct volume_store {
    int dir_fd;
    struct disk_store *disks;
    pthread_mutex_t lock; /* one attaches, creates or removes at a time: an image is on one device only */
};

static void file_name(char out[FILE_NAME_SIZE], const char *name)
{
    (void)snprintf(out, FILE_NAME_SIZE, "%s.vol", name);
}

int volume_store_open(int dir_fd, int scratch_fd, struct volume_store **ret, struct error *reterr)
{
    struct volume_store *s = calloc(1, sizeof *s);
    if (!s)
        return error_sys(reterr, ENOMEM, "open the volumes");
    s->dir_fd = dir_fd;
    int r = disk_store_open(dir_fd, scratch_fd, &s->disks, reterr);
    if (r < 0) {
        free(s);
        return r;
    }
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)unlinkat(dir_fd, unfinished, 0); /* usually there is none */
    *ret = s;
    return 0;
}

void volume_store_free(struct volume_store *s)
{
    if (!s)
        return;
    disk_store_free(s->disks);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

static int unknown(const char *name, struct error *reterr)
{
    return error_set(reterr, ENODEV, "there is no volume '%s'", name);
}

int volume_stat(struct volume_store *s, const char *name, struct volume *ret, struct error *reterr)
{
    char file[FILE_NAME_SIZE];
    struct statx x;
    if (!volume_name_ok(name))
        return unknown(name, reterr);
    file_name(file, name);
    if (statx(s->dir_fd, file, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &x) < 0)
        return errno == ENOENT ? unknown(name, reterr) : error_sys(reterr, errno, "look at a volume");
    /* file systems without a time of birth have at least that of the last change of the inode */
    const struct statx_timestamp *t = x.stx_mask & STATX_BTIME ? &x.stx_btime : &x.stx_ctime;
    *ret = (struct volume){.bytes = x.stx_size,
                           .used_bytes = x.stx_blocks * 512,
                           .created_ms = (int64_t)t->tv_sec * 1000 + t->tv_nsec / 1000000};
    (void)snprintf(ret->name, sizeof ret->name, "%s", name);
    return 0;
}

int volume_list(struct volume_store *s, void (*found)(const struct volume *v, void *arg), void *arg)
{
    int fd = openat(s->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        return -errno;
    for (struct dirent *e; (e = readdir(d));) {
        struct volume v;
        size_t n = strlen(e->d_name);
        if (n <= 4 || strcmp(e->d_name + n - 4, ".vol") != 0)
            continue;
        e->d_name[n - 4] = '\0';
        if (volume_stat(s, e->d_name, &v, NULL) == 0)
            found(&v, arg);
    }
    (void)closedir(d);
    return 0;
}

static void count_one(const struct volume *v, void *arg)
{
    (void)v;
    ++*(size_t *)arg;
}

/* mkfs makes a directory for lost files, and the templates those of a sandbox's disk: a volume begins empty.
 */
static int make_empty(struct volume_store *s, int image, const char *name, struct error *reterr)
{
    static const char *const dirs[] = {"lost+found", "upper", "work"};
    struct disk_device device = {.fd = -1};
    auto_close int mnt = -1;
    int r = disk_file_attach(s->disks, image, name, &device, reterr);
    if (r == 0)
        r = disk_mount(&device, -1, false, false, &mnt, reterr);
    for (size_t i = 0; i < ARRAY_SIZE(dirs) && r == 0; i++)
        if (unlinkat(mnt, dirs[i], AT_REMOVEDIR) < 0 && errno != ENOENT)
            r = error_sys(reterr, errno, "empty a new volume");
    close_fd(&mnt);
    close_fd(&device.fd);
    return r;
}

static int create_locked(struct volume_store *s, const char *name, uint64_t bytes, struct error *reterr)
{
    char file[FILE_NAME_SIZE];
    struct stat st;
    size_t count = 0;
    file_name(file, name);
    if (fstatat(s->dir_fd, file, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return error_set(reterr, EEXIST, "there is a volume '%s' already", name);
    (void)volume_list(s, count_one, &count);
    if (count >= VOLUMES_MAX)
        return error_set(reterr, ENOSPC, "there can be %d volumes at most", VOLUMES_MAX);
    uint64_t files = bytes / BYTES_PER_FILE;
    (void)unlinkat(s->dir_fd, unfinished, 0); /* of a try that failed */
    int r = disk_file_create(s->disks, unfinished, bytes, MAX(files, (uint64_t)FILES_MIN), reterr);
    if (r < 0)
        return r;
    auto_close int image = openat(s->dir_fd, unfinished, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (image < 0)
        r = error_sys(reterr, errno, "open a new volume");
    if (r == 0)
        r = make_empty(s, image, name, reterr);
    /* under its name only when all of it is on disk */
    if (r == 0 &&
        (fsync(image) < 0 || renameat(s->dir_fd, unfinished, s->dir_fd, file) < 0 || fsync(s->dir_fd) < 0))
        r = error_sys(reterr, errno, "write a new volume");
    if (r < 0)
        (void)unlinkat(s->dir_fd, unfinished, 0);
    return r;
}

int volume_create(struct volume_store *s, const char *name, uint64_t bytes, struct volume *ret,
                  struct error *reterr)
{
    (void)pthread_mutex_lock(&s->lock);
    int r = create_locked(s, name, bytes, reterr);
    (void)pthread_mutex_unlock(&s->lock);
    return r < 0 ? r : volume_stat(s, name, ret, reterr);
}

static int open_image(struct volume_store *s, const char *name, struct error *reterr)
{
    char file[FILE_NAME_SIZE];
    file_name(file, name);
    int fd = openat(s->dir_fd, file, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? unknown(name, reterr) : error_sys(reterr, errno, "open a volume");
    return fd;
}

/* -EBUSY: a device has it. */
static int remove_locked(struct volume_store *s, const char *name, struct error *reterr)
{
    char file[FILE_NAME_SIZE];
    file_name(file, name);
    auto_close int image = open_image(s, name, reterr);
    if (image < 0)
        return image;
    if (disk_file_busy(s->disks, image))
        return error_set(reterr, EBUSY, "the volume '%s' is in use", name);
    if (unlinkat(s->dir_fd, file, 0) < 0 || fsync(s->dir_fd) < 0)
        return error_sys(reterr, errno, "remove a volume");
    return 0;
}

int volume_remove(struct volume_store *s, const char *name, struct error *reterr)
{
    int64_t deadline = clock_mono_ms() + LET_GO_MS;
    for (;;) {
        (void)pthread_mutex_lock(&s->lock);
        int r = remove_locked(s, name, reterr);
        (void)pthread_mutex_unlock(&s->lock);
        if (r != -EBUSY || clock_mono_ms() >= deadline)
            return r;
        (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

static int mount_locked(struct volume_store *s, const char *name, int *ret_mount_fd, dev_t *ret_dev,
                        struct error *reterr)
{
    struct disk_device device = {.fd = -1};
    auto_close int image = open_image(s, name, reterr);
    if (image < 0)
        return image;
    int r = disk_file_attach(s->disks, image, name, &device, reterr);
    if (r == 0)
        r = disk_mount(&device, -1, true, false, ret_mount_fd, reterr);
    *ret_dev = device.dev;
    close_fd(&device.fd); /* the mount holds it */
    return r;
}

int volume_mount(struct volume_store *s, const char *name, bool read_only, int userns_fd, int *ret_mount_fd,
                 dev_t *ret_dev, struct error *reterr)
{
    auto_close int mnt = -1;
    (void)pthread_mutex_lock(&s->lock);
    int r = mount_locked(s, name, &mnt, ret_dev, reterr);
    (void)pthread_mutex_unlock(&s->lock);
    if (r == 0)
        r = mount_idmap(mnt, userns_fd, read_only ? MOUNT_ATTR_RDONLY : 0, reterr);
    if (r < 0)
        return r;
    *ret_mount_fd = take_fd(mnt);
    return 0;
}
