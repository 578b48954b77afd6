/* SPDX-License-Identifier: Apache-2.0 */
/* file_sink.c: see file_sink.h. */
#include "agent/file_sink.h"
#include "base/id.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

enum { LINKS_MAX = 40 }; /* as many symlinks as the kernel follows */

void file_sink_temp_name(char out[FILE_SINK_TEMP_SIZE])
{
    memcpy(out, FILE_SINK_TEMP_PREFIX, sizeof FILE_SINK_TEMP_PREFIX);
    random_name(out + sizeof FILE_SINK_TEMP_PREFIX - 1, 12);
}

bool file_sink_is_temp(const char *name)
{
    size_t prefix = sizeof FILE_SINK_TEMP_PREFIX - 1;
    if (strlen(name) != FILE_SINK_TEMP_SIZE - 1 || strncmp(name, FILE_SINK_TEMP_PREFIX, prefix) != 0)
        return false;
    return strspn(name + prefix, "abcdefghijklmnopqrstuvwxyz0123456789") == 12;
}

int file_make_parents(const char *path)
{
    char dir[PATH_MAX];
    if ((size_t)snprintf(dir, sizeof dir, "%s", path) >= sizeof dir)
        return -ENAMETOOLONG;
    char *last = strrchr(dir, '/');
    if (!last || last == dir)
        return 0;
    *last = '\0';
    for (char *p = dir + 1;; p++) {
        if (*p && *p != '/')
            continue;
        char end = *p;
        *p = '\0';
        if (mkdir(dir, FILE_MODE_NEW_DIR) < 0 && errno != EEXIST)
            return -errno;
        *p = end;
        if (!end)
            return 0;
    }
}

static int write_all(int fd, const char *data, size_t n)
{
    while (n) {
        ssize_t done = write(fd, data, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? -errno : -EIO;
        data += done;
        n -= (size_t)done;
    }
    return 0;
}

/* What the path means once its last part is no symlink any more. */
static int resolve_links(char path[PATH_MAX])
{
    for (int i = 0; i < LINKS_MAX; i++) {
        char to[PATH_MAX], joined[PATH_MAX];
        ssize_t n = readlink(path, to, sizeof to);
        if (n < 0)
            return errno == EINVAL || errno == ENOENT ? 0 : -errno;
        if ((size_t)n == sizeof to)
            return -ENAMETOOLONG;
        to[n] = '\0';
        char *slash = strrchr(path, '/');
        int keep = *to == '/' || !slash ? 0 : (int)(slash - path) + 1;
        if (snprintf(joined, sizeof joined, "%.*s%s", keep, path, to) >= (int)sizeof joined)
            return -ENAMETOOLONG;
        memcpy(path, joined, strlen(joined) + 1);
    }
    return -ELOOP;
}

/* ------------------------------------------------------------------ at once */

/* Makes sure that writing n bytes from the start cannot run out of space; -EOPNOTSUPP: nobody can. */
static int reserve(int fd, const struct stat *st, size_t n)
{
    bool sparse = (uint64_t)st->st_blocks * 512 < (uint64_t)st->st_size;
    off_t from = sparse ? 0 : st->st_size;
    if ((off_t)n <= from)
        return 0;
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, from, (off_t)n - from) == 0)
        return 0;
    int r = -errno;
    (void)!ftruncate(fd, st->st_size); /* what was allocated behind the end is given back */
    return r == -ENOSYS || r == -ENODEV || r == -ESPIPE || r == -EINVAL ? -EOPNOTSUPP : r;
}

static int put_existing(const char *path, const void *data, size_t n)
{
    struct stat st;
    auto_close int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    int r = reserve(fd, &st, n);
    if (r == 0)
        r = write_all(fd, data, n);
    if (r == 0 && (off_t)n != st.st_size && ftruncate(fd, (off_t)n) < 0)
        r = -errno;
    return r;
}

static int put_new(const char *path, const void *data, size_t n)
{
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, FILE_MODE_NEW);
    if (fd < 0)
        return -errno;
    int r = write_all(fd, data, n);
    if (r < 0) {
        char target[PATH_MAX];
        (void)snprintf(target, sizeof target, "%s", path);
        if (resolve_links(target) == 0)
            (void)unlink(target); /* it was not there before */
    }
    return r;
}

static int put_aside(const char *path, const void *data, size_t n)
{
    struct file_sink s;
    int r = file_sink_open(&s, path, (int64_t)n, -1);
    if (r == 0)
        r = file_sink_write(&s, data, n);
    if (r == 0)
        return file_sink_commit(&s);
    file_sink_abort(&s);
    return r;
}

/* 1: a regular file is there, 0: nothing, or -errno. */
static int look(const char *path, struct stat *st)
{
    if (stat(path, st) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (S_ISDIR(st->st_mode))
        return -EISDIR;
    return S_ISREG(st->st_mode) ? 1 : -EINVAL;
}

int file_put(const char *path, const void *data, size_t n)
{
    struct stat st;
    int r = look(path, &st);
    if (r < 0)
        return r;
    if (r == 0) {
        r = put_new(path, data, n);
        if (r == -ENOENT && (r = file_make_parents(path)) == 0)
            r = put_new(path, data, n);
        return r;
    }
    r = put_existing(path, data, n);
    return r == -EOPNOTSUPP ? put_aside(path, data, n) : r;
}

/* ------------------------------------------------------------------ in pieces */

static int open_in_place(struct file_sink *s, const char *path)
{
    struct stat st;
    auto_close int fd = open(path, O_WRONLY | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    s->fd = take_fd(fd);
    return 0;
}

/* Attributes that programs set, and access lists. Others (labels, capabilities) do not survive a write
 * anyway. */
static void copy_attributes(int from, int to)
{
    char names[4096], value[4096];
    ssize_t len = flistxattr(from, names, sizeof names);
    for (ssize_t at = 0; at < len; at += (ssize_t)strlen(names + at) + 1) {
        const char *name = names + at;
        if (strncmp(name, "user.", 5) != 0 && strcmp(name, "system.posix_acl_access") != 0)
            continue;
        ssize_t n = fgetxattr(from, name, value, sizeof value);
        if (n >= 0)
            (void)fsetxattr(to, name, value, (size_t)n, 0); /* the file system may not know them */
    }
}

/* The file aside looks like the one it replaces; -EPERM when it cannot. */
static int inherit(struct file_sink *s, const struct stat *st)
{
    struct stat own;
    if (fstat(s->fd, &own) < 0)
        return -errno;
    if ((own.st_uid != st->st_uid || own.st_gid != st->st_gid) && fchown(s->fd, st->st_uid, st->st_gid) < 0)
        return -EPERM;
    if (fchmod(s->fd, st->st_mode & 07777) < 0)
        return -errno;
    auto_close int old = openat(s->dir, s->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (old >= 0)
        copy_attributes(old, s->fd);
    return 0;
}

static int space_for(int fd, int64_t total)
{
    struct statvfs vfs;
    if (total <= 0 || fstatvfs(fd, &vfs) < 0 || vfs.f_blocks == 0)
        return 0;
    return (uint64_t)total / vfs.f_frsize > vfs.f_bavail ? -ENOSPC : 0;
}

/* The directory and the name of the target; -EOPNOTSUPP: writing aside would not replace what st describes.
 */
static int find_place(struct file_sink *s, const char *path, const struct stat *st)
{
    char target[PATH_MAX];
    struct stat found;
    if (snprintf(target, sizeof target, "%s", path) >= (int)sizeof target)
        return -ENAMETOOLONG;
    int r = resolve_links(target);
    if (r < 0)
        return r;
    char *slash = strrchr(target, '/');
    if (!slash || strlen(slash + 1) > NAME_MAX)
        return -ENAMETOOLONG;
    if (!slash[1])
        return -EISDIR;
    memcpy(s->name, slash + 1, strlen(slash + 1) + 1);
    slash[1] = '\0';
    s->dir = open(target, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (s->dir < 0)
        return -errno;
    if (!s->existed)
        return 0;
    if (fstatat(s->dir, s->name, &found, AT_SYMLINK_NOFOLLOW) < 0 || found.st_dev != st->st_dev ||
        found.st_ino != st->st_ino || st->st_nlink > 1)
        return -EOPNOTSUPP;
    /* who may not write the file may not replace it either */
    return faccessat(s->dir, s->name, W_OK, AT_EACCESS) < 0 ? -errno : 0;
}

static int open_aside(struct file_sink *s, const char *path, const struct stat *st, int mode)
{
    int r = find_place(s, path, st);
    if (r < 0)
        return r;
    file_sink_temp_name(s->temp);
    s->fd = openat(s->dir, s->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_MODE_NEW);
    if (s->fd < 0)
        return s->existed && (errno == EACCES || errno == EPERM || errno == EROFS || errno == ENOENT)
                   ? -EOPNOTSUPP
                   : -errno;
    r = s->existed ? inherit(s, st) : 0;
    if (r == 0 && mode >= 0 && fchmod(s->fd, (mode_t)mode) < 0)
        r = -errno;
    if (r < 0)
        (void)unlinkat(s->dir, s->temp, 0);
    return s->existed && r == -EPERM ? -EOPNOTSUPP : r;
}

int file_sink_open(struct file_sink *s, const char *path, int64_t total, int mode)
{
    struct stat st;
    *s = (struct file_sink){.fd = -1, .dir = -1};
    int r = look(path, &st);
    if (r < 0)
        return r;
    s->existed = r;
    r = open_aside(s, path, &st, mode);
    if (r == -ENOENT && !s->existed && (r = file_make_parents(path)) == 0)
        r = open_aside(s, path, &st, mode);
    if (r == -EOPNOTSUPP) {
        close_fd(&s->fd);
        close_fd(&s->dir);
        r = open_in_place(s, path);
        if (r == 0 && mode >= 0 && fchmod(s->fd, (mode_t)mode) < 0)
            r = -errno;
    }
    if (r < 0) {
        close_fd(&s->fd);
        close_fd(&s->dir);
        return r;
    }
    s->is_open = true;
    r = space_for(s->fd, total);
    if (r < 0)
        file_sink_abort(s);
    return r;
}

int file_sink_write(struct file_sink *s, const void *data, size_t n)
{
    int r = write_all(s->fd, data, n);
    if (r == 0)
        s->written += n;
    return r;
}

int file_sink_commit(struct file_sink *s)
{
    if (s->dir >= 0 && renameat(s->dir, s->temp, s->dir, s->name) < 0) {
        int r = -errno;
        file_sink_abort(s);
        return r;
    }
    close_fd(&s->fd);
    close_fd(&s->dir);
    s->is_open = false;
    return 0;
}

void file_sink_abort(struct file_sink *s)
{
    if (!s->is_open)
        return;
    if (s->dir >= 0)
        (void)unlinkat(s->dir, s->temp, 0); /* nobody else knows the name */
    close_fd(&s->fd);
    close_fd(&s->dir);
    s->is_open = false;
}
