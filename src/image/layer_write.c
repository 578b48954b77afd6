/* SPDX-License-Identifier: Apache-2.0 */
/* layer_write.c: see layer_write.h.
 *
 * Theory of operation
 * The archive is an enemy's. Every name is cleaned as text first; then its directory is opened beneath the
 * tree without following any link, and the last part is made in it with calls that neither follow nor reuse
 * what is there. So a link made by the archive leads nowhere we go. Deletions become what the overlay file
 * system reads: a character device 0:0 in place of the name, a mark on a directory that hides what is below.
 *
 * Directories get their times last, because whatever is put into them changes these. */
#include "image/layer_write.h"
#include "image/layer_path.h"
#include "base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

enum { PIECE = 256 * 1024, NOBODY = 65534, IDS = 65536, DIR_TIMES_MAX = 64 << 20, PROGRESS_BYTES = 4 << 20 };

struct layer_writer {
    struct layer_env *env;
    int tree;
    char parent[TAR_PATH_MAX]; /* of parent_fd, which is kept: entries come in the order of a walk */
    int parent_fd;
    struct buf times; /* of directories: a struct dir_time and the path, each */
    uint64_t bytes, told;
    char *piece;
    layer_data *data; /* of the entry at hand */
    void *data_arg;
};

struct dir_time {
    int64_t s;
    uint32_t ns;
    uint32_t path_len; /* with its NUL */
};

static int open_inside(int dir, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS |
                                      RESOLVE_NO_XDEV};
    int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
    return fd < 0 ? -errno : fd;
}

static bool is_whiteout(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == 0;
}

static int mark_opaque(struct layer_writer *u, int dir, const char *name, struct error *reterr)
{
    auto_close int fd = open_inside(dir, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return error_sys(reterr, -fd, "open a directory of the layer");
    return u->env->opaque(u->env->arg, fd, reterr);
}

/* A directory, whatever was there. replace: a file in its place may go (the archive names the directory
 * itself). */
static int make_dir(struct layer_writer *u, int dir, const char *name, bool replace, struct error *reterr)
{
    char shown[LAYER_SHOWN + 1];
    struct stat st;
    if (mkdirat(dir, name, 0755) == 0)
        return 0;
    if (errno != EEXIST || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return error_sys(reterr, errno, "make a directory of the layer");
    if (S_ISDIR(st.st_mode))
        return 0;
    if (!is_whiteout(&st) && !replace)
        return error_set(reterr, EBADMSG, "the archive has a path through '%s', which is not a directory",
                         layer_path_show(name, shown));
    if (unlinkat(dir, name, 0) < 0 || mkdirat(dir, name, 0755) < 0)
        return error_sys(reterr, errno, "make a directory of the layer");
    return is_whiteout(&st) ? mark_opaque(u, dir, name, reterr) : 0;
}

/* The directory that path lies in, made if it is missing; belongs to u. */
static int parent_of(struct layer_writer *u, const char *path, int *ret, struct error *reterr)
{
    size_t len = (size_t)(layer_path_base(path) - path);
    len -= len > 0; /* the slash */
    if (u->parent_fd >= 0 && strlen(u->parent) == len && memcmp(u->parent, path, len) == 0) {
        *ret = u->parent_fd;
        return 0;
    }
    close_fd(&u->parent_fd);
    memcpy(u->parent, path, len);
    u->parent[len] = '\0';
    int fd = open_inside(u->tree, len ? u->parent : ".", O_PATH | O_DIRECTORY);
    if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP) {
        /* part by part, so that what is missing is made */
        auto_close int at = open_inside(u->tree, ".", O_PATH | O_DIRECTORY);
        for (char *p = u->parent; at >= 0 && *p;) {
            size_t n = strcspn(p, "/");
            char saved = p[n];
            p[n] = '\0';
            int r = make_dir(u, at, p, false, reterr);
            int next = r < 0 ? -1 : open_inside(at, p, O_PATH | O_DIRECTORY);
            p[n] = saved;
            if (r < 0)
                return r;
            (void)close(at);
            at = next;
            p += n + (saved == '/');
        }
        fd = take_fd(at);
    }
    if (fd < 0)
        return error_sys(reterr, -fd, "open a directory of the layer");
    *ret = u->parent_fd = fd;
    return 0;
}

static uid_t id_of(uint64_t id)
{
    return id < IDS ? (uid_t)id : NOBODY; /* sandboxes have 65536 ids */
}

/* Owner, mode, attributes. By descriptor: fd cannot be a link. */
static int set_attributes(int fd, const struct tar_entry *e, struct error *reterr)
{
    if (fchown(fd, id_of(e->uid), id_of(e->gid)) < 0 || fchmod(fd, e->mode) < 0)
        return error_sys(reterr, errno, "set the owner and mode of a file");
    for (size_t i = 0; i < e->xattr_count; i++) {
        const struct tar_xattr *x = &e->xattrs[i];
        /* "user." only: capabilities have no effect inside, and "trusted." steers the overlay */
        if (strncmp(x->name, "user.", 5) == 0 && x->name[5] &&
            fsetxattr(fd, x->name, x->value, x->len, 0) < 0 && errno != EOPNOTSUPP)
            return error_sys(reterr, errno, "set an attribute of a file");
    }
    return 0;
}

static int set_times(int dir, const char *name, const struct tar_entry *e)
{
    struct timespec t[2] = {{.tv_sec = e->mtime_s, .tv_nsec = e->mtime_ns},
                            {.tv_sec = e->mtime_s, .tv_nsec = e->mtime_ns}};
    return utimensat(dir, name, t, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

/* Nothing is there, or it goes. A directory stays: the archive contradicts itself. */
static int make_room(int dir, const char *name, struct error *reterr)
{
    char shown[LAYER_SHOWN + 1];
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno == EISDIR)
        return error_set(reterr, EBADMSG, "the archive has both a directory and something else at '%s'",
                         layer_path_show(name, shown));
    return error_sys(reterr, errno, "replace a file of the layer");
}

static int write_piece(int fd, const char *data, size_t n, uint64_t offset, struct error *reterr)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = pwrite(fd, data + done, n - done, (off_t)(offset + done));
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return error_sys(reterr, errno, "write a file of the layer");
        done += (size_t)k;
    }
    return 0;
}

static int copy_content(struct layer_writer *u, int fd, const struct tar_entry *e, struct error *reterr)
{
    uint64_t offset = 0, written = 0;
    ssize_t n;
    while ((n = u->data(u->data_arg, u->piece, PIECE, &offset, reterr)) > 0) {
        bool zeros = u->piece[0] == 0 && memcmp(u->piece, u->piece + 1, (size_t)n - 1) == 0;
        int r = zeros ? 0 : write_piece(fd, u->piece, (size_t)n, offset, reterr); /* zeros become a hole */
        if (r < 0)
            return r;
        if (!zeros)
            written = offset + (uint64_t)n;
        u->bytes += (uint64_t)n;
        if (u->env->progress && u->bytes - u->told >= PROGRESS_BYTES) {
            u->told = u->bytes;
            u->env->progress(u->env->arg, u->bytes);
        }
    }
    if (n == 0 && e->size > written && ftruncate(fd, (off_t)e->size) < 0)
        return error_sys(reterr, errno, "write a file of the layer");
    return (int)n;
}

static int put_file(struct layer_writer *u, int dir, const char *name, const struct tar_entry *e,
                    struct error *reterr)
{
    if (e->sparse) {
        if (e->size > u->env->sparse_left)
            return error_set(reterr, E2BIG, "the archive's sparse files are larger than an image may be");
        u->env->sparse_left -= e->size;
    }
    int r = make_room(dir, name, reterr);
    if (r < 0)
        return r;
    auto_close int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_sys(reterr, errno, "make a file of the layer");
    r = copy_content(u, fd, e, reterr);
    return r < 0 ? r : set_attributes(fd, e, reterr);
}

static int remember_time(struct layer_writer *u, const char *path, const struct tar_entry *e,
                         struct error *reterr)
{
    struct dir_time t = {.s = e->mtime_s, .ns = e->mtime_ns, .path_len = (uint32_t)strlen(path) + 1};
    if (buf_append(&u->times, &t, sizeof t) < 0 || buf_append(&u->times, path, t.path_len) < 0)
        return error_set(reterr, E2BIG, "the archive has too many directories");
    return 0;
}

static int put_dir(struct layer_writer *u, int dir, const char *name, const char *path,
                   const struct tar_entry *e, struct error *reterr)
{
    int r = *name ? make_dir(u, dir, name, true, reterr) : 0;
    if (r < 0)
        return r;
    auto_close int fd =
        *name ? open_inside(dir, name, O_RDONLY | O_DIRECTORY) : fcntl(u->tree, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return error_sys(reterr, errno, "open a directory of the layer");
    r = set_attributes(fd, e, reterr);
    return r < 0 ? r : remember_time(u, path, e, reterr);
}

static int put_hardlink(struct layer_writer *u, int dir, const char *name, const struct tar_entry *e,
                        struct error *reterr)
{
    char target[TAR_PATH_MAX], shown[LAYER_SHOWN + 1];
    struct stat st;
    int r = layer_path_clean(e->link, target, reterr);
    if (r < 0)
        return r;
    const char *base = layer_path_base(target);
    char at[TAR_PATH_MAX];
    (void)snprintf(at, sizeof at, "%.*s", (int)(base - target), target);
    auto_close int from = open_inside(u->tree, *at ? at : ".", O_PATH | O_DIRECTORY);
    if (!*base || from < 0 || fstatat(from, base, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode) ||
        is_whiteout(&st))
        return error_set(reterr, EBADMSG,
                         "the archive has a hard link to '%s', which is no file of this layer",
                         layer_path_show(e->link, shown));
    struct stat old;
    if (fstatat(dir, name, &old, AT_SYMLINK_NOFOLLOW) == 0 && old.st_ino == st.st_ino &&
        old.st_dev == st.st_dev)
        return 0; /* it is the same file already, perhaps the same name */
    r = make_room(dir, name, reterr);
    if (r == 0 && linkat(from, base, dir, name, 0) < 0)
        r = error_sys(reterr, errno, "make a hard link");
    return r;
}

static int put_symlink(int dir, const char *name, const struct tar_entry *e, struct error *reterr)
{
    if (!e->link[0])
        return error_set(reterr, EBADMSG, "the archive has a symbolic link to nothing");
    int r = make_room(dir, name, reterr);
    if (r < 0)
        return r;
    if (symlinkat(e->link, dir, name) < 0 ||
        fchownat(dir, name, id_of(e->uid), id_of(e->gid), AT_SYMLINK_NOFOLLOW) < 0)
        return error_sys(reterr, errno, "make a symbolic link");
    return 0;
}

static int put_fifo(int dir, const char *name, const struct tar_entry *e, struct error *reterr)
{
    int r = make_room(dir, name, reterr);
    if (r < 0)
        return r;
    if (mknodat(dir, name, S_IFIFO | 0600, 0) < 0 ||
        fchownat(dir, name, id_of(e->uid), id_of(e->gid), AT_SYMLINK_NOFOLLOW) < 0 ||
        fchmodat(dir, name, e->mode, 0) < 0) /* just made by us in a directory that only we change */
        return error_sys(reterr, errno, "make a FIFO");
    return 0;
}

/* What the layer itself has at this name stays: a deletion is about the layers below. */
static int put_whiteout(struct layer_writer *u, int dir, const char *name, struct error *reterr)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return S_ISDIR(st.st_mode) ? mark_opaque(u, dir, name, reterr) : 0;
    if (mknodat(dir, name, S_IFCHR, 0) < 0)
        return error_sys(reterr, errno, "mark a file as deleted");
    return 0;
}

static int put_entry(struct layer_writer *u, const struct tar_entry *e, struct error *reterr)
{
    char path[TAR_PATH_MAX], shown[LAYER_SHOWN + 1];
    const char *deleted = NULL;
    int dir, r = layer_path_clean(e->path, path, reterr);
    if (r < 0)
        return r;
    if (!path[0] && e->type != TAR_DIR)
        return error_set(reterr, EBADMSG, "the archive has an entry without a name");
    if ((r = parent_of(u, path, &dir, reterr)) < 0)
        return r;
    const char *name = layer_path_base(path);
    switch (layer_mark_of(name, &deleted)) {
    case LAYER_MARK_OPAQUE:
        return mark_opaque(u, dir, ".", reterr);
    case LAYER_MARK_WHITEOUT:
        return put_whiteout(u, dir, deleted, reterr);
    case LAYER_MARK_IGNORED:
        return 0;
    case LAYER_MARK_NONE:
        break;
    }
    struct stat st;
    if (path[0] && e->type != TAR_DIR && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISDIR(st.st_mode))
        return error_set(reterr, EBADMSG, "the archive has both a directory and something else at '%s'",
                         layer_path_show(path, shown));
    switch (e->type) {
    case TAR_DIR:
        return put_dir(u, dir, name, path, e, reterr);
    case TAR_FILE:
        r = put_file(u, dir, name, e, reterr);
        break;
    case TAR_HARDLINK:
        return put_hardlink(u, dir, name, e, reterr);
    case TAR_SYMLINK:
        r = put_symlink(dir, name, e, reterr);
        break;
    case TAR_FIFO:
        r = put_fifo(dir, name, e, reterr);
        break;
    case TAR_CHAR:
    case TAR_BLOCK_DEVICE: /* sandboxes have devices of their own, and could not open these */
        u->env->devices++;
        return 0;
    }
    if (r == 0 && (r = set_times(dir, name, e)) < 0)
        (void)error_sys(reterr, -r, "set a file's time");
    return r;
}

static int set_dir_times(struct layer_writer *u, struct error *reterr)
{
    const char *p = buf_data(&u->times);
    const char *end = p + buf_len(&u->times);
    while (p && p < end) {
        struct dir_time t;
        memcpy(&t, p, sizeof t);
        const char *path = p + sizeof t;
        const struct timespec at = {.tv_sec = t.s, .tv_nsec = t.ns}, times[2] = {at, at};
        auto_close int fd = open_inside(u->tree, *path ? path : ".", O_RDONLY | O_DIRECTORY);
        if (fd < 0 || futimens(fd, times) < 0)
            return error_sys(reterr, fd < 0 ? -fd : errno, "set a directory's time");
        p = path + t.path_len;
    }
    return 0;
}

int layer_writer_new(int tree_fd, struct layer_env *env, struct layer_writer **ret, struct error *reterr)
{
    struct layer_writer *u = calloc(1, sizeof *u);
    if (u)
        u->piece = malloc(PIECE);
    if (!u || !u->piece) {
        free(u);
        return error_sys(reterr, ENOMEM, "unpack a layer");
    }
    u->env = env;
    u->tree = tree_fd;
    u->parent_fd = -1;
    u->times.limit = DIR_TIMES_MAX;
    if (fchmod(tree_fd, 0755) < 0) { /* for archives that do not mention their root */
        int r = error_sys(reterr, errno, "unpack a layer");
        layer_writer_free(u);
        return r;
    }
    *ret = u;
    return 0;
}

int layer_writer_put(struct layer_writer *u, const struct tar_entry *e, layer_data *data, void *arg,
                     struct error *reterr)
{
    if (u->env->entries_left == 0)
        return error_set(reterr, E2BIG, "the image has too many files");
    u->env->entries_left--;
    u->data = data;
    u->data_arg = arg;
    return put_entry(u, e, reterr);
}

int layer_writer_finish(struct layer_writer *u, uint64_t *ret_bytes, struct error *reterr)
{
    *ret_bytes = u->bytes;
    return set_dir_times(u, reterr);
}

void layer_writer_free(struct layer_writer *u)
{
    if (!u)
        return;
    close_fd(&u->parent_fd);
    buf_done(&u->times);
    free(u->piece);
    free(u);
}

static ssize_t archive_data(void *arg, void *data, size_t n, uint64_t *ret_offset, struct error *reterr)
{
    return tar_data(arg, data, n, ret_offset, reterr);
}

int layer_unpack(struct tar_reader *tar, int tree_fd, struct layer_env *env, uint64_t *ret_bytes,
                 struct error *reterr)
{
    struct layer_writer *u = NULL;
    struct tar_entry e;
    int r = layer_writer_new(tree_fd, env, &u, reterr);
    while (r == 0 && (r = tar_next(tar, &e, reterr)) > 0)
        r = layer_writer_put(u, &e, archive_data, tar, reterr);
    if (r == 0)
        r = layer_writer_finish(u, ret_bytes, reterr);
    layer_writer_free(u);
    return r;
}
