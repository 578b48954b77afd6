/* SPDX-License-Identifier: Apache-2.0 */
/* file_tree.c: see file_tree.h. */
#include "agent/file_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/xattr.h>

enum {
    COPY_PIECE = 1 << 20,
    PLAIN_PIECE = 64 * 1024,
    AGAIN_MAX = 1000, /* directories somebody fills while we empty them */
    NODE_FLAGS = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
};

static int open_dir(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | NODE_FLAGS | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* ------------------------------------------------------------------ removing */

static int remove_at(int dir, const char *name, int flags)
{
    return unlinkat(dir, name, flags) < 0 && errno != ENOENT ? -errno : 0;
}

int tree_remove_begin(struct tree_remove *t, int dir, const char *name)
{
    struct stat st;
    *t = (struct tree_remove){.dir = dir, .name = name};
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return remove_at(dir, name, 0);
    int fd = open_dir(dir, name);
    int r = fd < 0 ? fd : walk_open(&t->walk, fd, -1);
    t->walking = r == 0;
    return r < 0 ? r : 1;
}

static int remove_entry(struct tree_remove *t)
{
    struct walk *w = &t->walk;
    if (w->type != DT_DIR) {
        int r = remove_at(w->dir, w->name, 0);
        if (r != -EISDIR) /* the type was not known, or changed */
            return r < 0 ? r : 1;
    }
    int r = walk_enter(w, -1);
    if (r == -ENOTDIR || r == -ELOOP)
        r = remove_at(w->dir, w->name, 0);
    return r < 0 && r != -ENOENT ? r : 1;
}

int tree_remove_step(struct tree_remove *t)
{
    struct walk *w = &t->walk;
    int e = walk_next(w), r;
    switch (e) {
    case WALK_ENTRY:
        return remove_entry(t);
    case WALK_LEAVE:
        r = remove_at(w->dir, w->name, AT_REMOVEDIR);
        /* entries may have been passed over because others were removed while reading */
        if ((r == -ENOTEMPTY || r == -EEXIST) && t->again++ < AGAIN_MAX)
            r = walk_enter(w, -1);
        return r < 0 ? r : 1;
    case WALK_END:
        r = remove_at(t->dir, t->name, AT_REMOVEDIR);
        if ((r == -ENOTEMPTY || r == -EEXIST) && t->again++ < AGAIN_MAX) {
            walk_done(w);
            int fd = open_dir(t->dir, t->name);
            r = fd < 0 ? fd : walk_open(w, fd, -1);
            return r < 0 ? r : 1;
        }
        return r;
    default:
        return e;
    }
}

void tree_remove_done(struct tree_remove *t)
{
    if (t->walking)
        walk_done(&t->walk);
    t->walking = false;
}

/* ------------------------------------------------------------------ copying */

static void copy_user_attributes(int from, int to)
{
    char names[4096], value[4096];
    ssize_t len = flistxattr(from, names, sizeof names);
    for (ssize_t at = 0; at < len; at += (ssize_t)strlen(names + at) + 1) {
        ssize_t n =
            strncmp(names + at, "user.", 5) == 0 ? fgetxattr(from, names + at, value, sizeof value) : -1;
        if (n >= 0)
            (void)fsetxattr(to, names + at, value, (size_t)n, 0); /* the file system may not know them */
    }
}

/* Owner, mode, times of an open file or directory; the owner only where we may. */
static int finish(int from, int to, const struct stat *st)
{
    (void)!fchown(to, st->st_uid, st->st_gid);
    if (fchmod(to, st->st_mode & 07777) < 0)
        return -errno;
    copy_user_attributes(from, to);
    struct timespec times[2] = {st->st_atim, st->st_mtim};
    return futimens(to, times) < 0 ? -errno : 0;
}

static void finish_name(int dir, const char *name, const struct stat *st)
{
    struct timespec times[2] = {st->st_atim, st->st_mtim};
    (void)!fchownat(dir, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW);
    (void)utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW);
}

static int copy_link(int from_dir, const char *from, int to_dir, const char *to, const struct stat *st)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(from_dir, from, target, sizeof target);
    if (n < 0)
        return -errno;
    if ((size_t)n == sizeof target)
        return -ENAMETOOLONG;
    target[n] = '\0';
    if (symlinkat(target, to_dir, to) < 0)
        return -errno;
    finish_name(to_dir, to, st);
    return 0;
}

static int copy_special(int to_dir, const char *to, const struct stat *st)
{
    if (mknodat(to_dir, to, st->st_mode, st->st_rdev) < 0)
        return -errno;
    (void)!fchmodat(to_dir, to, st->st_mode & 07777, 0);
    finish_name(to_dir, to, st);
    return 0;
}

static int file_begin(struct tree_copy *t, int from_dir, const char *from, int to_dir, const char *to)
{
    t->in = openat(from_dir, from, O_RDONLY | NODE_FLAGS | O_CLOEXEC);
    if (t->in < 0 || fstat(t->in, &t->st) < 0)
        return -errno;
    t->out = openat(to_dir, to, O_WRONLY | O_CREAT | O_EXCL | NODE_FLAGS | O_CLOEXEC, 0600);
    if (t->out < 0)
        return -errno;
    t->offset = 0;
    t->end = (uint64_t)t->st.st_size;
    return 1;
}

/* Read and written by hand, where the kernel does not copy between the two files. */
static ssize_t copy_plain(struct tree_copy *t, size_t n)
{
    char piece[PLAIN_PIECE];
    ssize_t got = pread(t->in, piece, MIN(n, sizeof piece), (off_t)t->offset);
    if (got <= 0)
        return got < 0 ? -errno : 0;
    ssize_t put = pwrite(t->out, piece, (size_t)got, (off_t)t->offset);
    return put < 0 ? -errno : put;
}

static ssize_t copy_some(struct tree_copy *t, size_t n)
{
    off_t from = (off_t)t->offset, to = from;
    if (!t->plain) {
        ssize_t done = copy_file_range(t->in, &from, t->out, &to, n, 0);
        if (done > 0 || (done < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == EFBIG)))
            return done < 0 ? -errno : done;
        t->plain = true; /* 0: some pseudo file systems answer so, though there is data */
    }
    return copy_plain(t, n);
}

static int file_end(struct tree_copy *t)
{
    int r = ftruncate(t->out, (off_t)t->offset) < 0 ? -errno
                                                    : finish(t->in, t->out, &t->st); /* a hole at the end */
    close_fd(&t->in);
    close_fd(&t->out);
    return r;
}

/* A piece; 1: the file goes on, 0: it is over. */
static int file_step(struct tree_copy *t)
{
    if (t->offset < t->end) {
        off_t data = lseek(t->in, (off_t)t->offset, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            t->offset = t->end; /* nothing but a hole */
        else if (data > (off_t)t->offset)
            t->offset = MIN((uint64_t)data, t->end);
    }
    if (t->offset < t->end) {
        off_t hole = lseek(t->in, (off_t)t->offset, SEEK_HOLE);
        uint64_t stop = hole > (off_t)t->offset ? MIN((uint64_t)hole, t->end) : t->end;
        ssize_t n = copy_some(t, (size_t)MIN(stop - t->offset, (uint64_t)COPY_PIECE));
        if (n < 0)
            return (int)n;
        if (n > 0) {
            t->offset += (uint64_t)n;
            return 1;
        }
        /* shorter than it was */
    }
    return file_end(t);
}

/* What is no directory. 1: file_step has to follow. */
static int node_begin(struct tree_copy *t, int from_dir, const char *from, int to_dir, const char *to,
                      const struct stat *st)
{
    if (S_ISREG(st->st_mode))
        return file_begin(t, from_dir, from, to_dir, to);
    if (S_ISLNK(st->st_mode))
        return copy_link(from_dir, from, to_dir, to, st);
    return copy_special(to_dir, to, st);
}

static int make_dir(int dir, const char *name)
{
    return mkdirat(dir, name, 0700) < 0 ? -errno : open_dir(dir, name);
}

int tree_copy_begin(struct tree_copy *t, int from_dir, const char *from_name, int to_dir, const char *to_name)
{
    struct stat st;
    *t = (struct tree_copy){.from_dir = from_dir,
                            .from_name = from_name,
                            .to_dir = to_dir,
                            .to_name = to_name,
                            .in = -1,
                            .out = -1};
    if (fstatat(from_dir, from_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return node_begin(t, from_dir, from_name, to_dir, to_name, &st);
    int from = open_dir(from_dir, from_name);
    if (from < 0)
        return from;
    int to = make_dir(to_dir, to_name);
    if (to < 0) {
        close_fd(&from);
        return to;
    }
    int r = walk_open(&t->walk, from, to);
    t->walking = r == 0;
    return r < 0 ? r : 1;
}

static int copy_entry(struct tree_copy *t)
{
    struct walk *w = &t->walk;
    struct stat st;
    if (fstatat(w->dir, w->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 1 : -errno; /* removed meanwhile */
    if (!S_ISDIR(st.st_mode)) {
        int r = node_begin(t, w->dir, w->name, w->twin, w->name, &st);
        return r < 0 ? r : 1;
    }
    int to = make_dir(w->twin, w->name);
    int r = to < 0 ? to : walk_enter(w, to);
    return r < 0 ? r : 1;
}

static int finish_dir(const struct walk *w)
{
    struct stat st;
    if (fstat(w->left, &st) < 0)
        return -errno;
    return finish(w->left, w->left_twin, &st);
}

int tree_copy_step(struct tree_copy *t)
{
    if (t->in >= 0) {
        int r = file_step(t);
        return r == 0 ? t->walking : r;
    }
    int r, e = walk_next(&t->walk);
    switch (e) {
    case WALK_ENTRY:
        return copy_entry(t);
    case WALK_LEAVE:
        r = finish_dir(&t->walk);
        return r < 0 ? r : 1;
    case WALK_END:
        return finish_dir(&t->walk);
    default:
        return e;
    }
}

void tree_copy_done(struct tree_copy *t)
{
    if (t->walking)
        walk_done(&t->walk);
    t->walking = false;
    if (t->in > 0)
        close_fd(&t->in);
    if (t->out > 0)
        close_fd(&t->out);
}
