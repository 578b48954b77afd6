/* SPDX-License-Identifier: Apache-2.0 */
/* pack.c: see pack.h.
 *
 * The tree was written by a sandbox: names are bytes, links lead anywhere, files may be FIFOs. It is walked
 * by descriptor without following anything, with a stack instead of recursion, and nothing is opened before
 * it is known to be a plain file. Nobody changes it meanwhile: the sandbox sleeps or is frozen, other layers
 * are for reading only. */
#include "image/pack.h"
#include "image/layer_path.h"
#include "base/buf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

enum { NAMES_MAX = 128 << 20, LINKS_MAX = 1 << 20, LINK_BUCKETS = 1 << 16, XATTR_BYTES = 64 * 1024 };

struct link { /* a file with several names: the first one */
    ino_t ino;
    struct link *next;
    char path[];
};

struct level {
    int fd;
    char **names; /* sorted; they point into text */
    size_t count, next;
    char *text;
    size_t text_bytes;
    size_t path_len; /* of the directory itself, in pack.path */
};

struct pack {
    struct pack_ops *ops;
    struct level stack[LAYER_DEPTH_MAX + 1];
    size_t depth;
    size_t names_bytes;
    char path[TAR_PATH_MAX];
    struct link *links[LINK_BUCKETS];
    size_t link_count;
    struct tar_xattr xattrs[TAR_XATTRS_MAX];
    char xattr_names[XATTR_BYTES], xattr_values[XATTR_BYTES];
    char target[TAR_PATH_MAX];
};

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void level_done(struct level *l)
{
    close_fd(&l->fd);
    free(l->names);
    free(l->text);
}

/* All names of the directory, sorted. */
static int level_read(struct pack *p, struct level *l, struct error *reterr)
{
    struct buf text = BUF_INIT(NAMES_MAX);
    int copy = openat(l->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    int r = 0;
    if (!d) {
        r = error_sys(reterr, errno, "read a directory");
        if (copy >= 0)
            (void)close(copy);
        return r;
    }
    errno = 0;
    for (struct dirent *e; r == 0 && (e = readdir(d)); errno = 0) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        r = buf_append(&text, e->d_name, strlen(e->d_name) + 1);
        l->count++;
    }
    if (r == 0 && errno)
        r = error_sys(reterr, errno, "read a directory");
    else if (r < 0 || p->names_bytes + buf_len(&text) > NAMES_MAX)
        r = error_set(reterr, E2BIG, "a directory has too many files");
    (void)closedir(d);
    l->text_bytes = buf_len(&text);
    l->text = text.base; /* begins at its start: nothing was consumed */
    if (r < 0)
        return r;
    p->names_bytes += l->text_bytes;
    l->names = calloc(l->count + 1, sizeof *l->names);
    if (!l->names)
        return error_sys(reterr, ENOMEM, "read a directory");
    char *at = l->text;
    for (size_t i = 0; i < l->count; i++, at += strlen(at) + 1)
        l->names[i] = at;
    qsort(l->names, l->count, sizeof *l->names, by_name);
    return 0;
}

/* The attributes that belong to the file's owner; others are ours or the kernel's. */
static int read_xattrs(struct pack *p, int fd, struct tar_entry *e, struct error *reterr)
{
    ssize_t n = flistxattr(fd, p->xattr_names, sizeof p->xattr_names);
    size_t used = 0, count = 0;
    if (n < 0)
        return errno == EOPNOTSUPP ? 0 : error_sys(reterr, errno, "read a file's attributes");
    for (const char *name = p->xattr_names; name < p->xattr_names + n; name += strlen(name) + 1) {
        if (strncmp(name, "user.", 5) != 0 || strchr(name, '='))
            continue;
        ssize_t len = fgetxattr(fd, name, p->xattr_values + used, sizeof p->xattr_values - used);
        if (len < 0 || count == TAR_XATTRS_MAX)
            return error_set(reterr, E2BIG, "a file has too many attributes");
        p->xattrs[count++] = (struct tar_xattr){name, p->xattr_values + used, (size_t)len};
        used += (size_t)len;
    }
    e->xattrs = p->xattrs;
    e->xattr_count = count;
    return 0;
}

/* ---- content */

struct content {
    int fd;
    uint64_t offset, left;
};

static ssize_t content_read(void *arg, void *data, size_t n, uint64_t *ret_offset, struct error *reterr)
{
    struct content *c = arg;
    if (c->left == 0)
        return 0;
    ssize_t k;
    do
        k = read(c->fd, data, (size_t)MIN(c->left, (uint64_t)n));
    while (k < 0 && errno == EINTR);
    if (k <= 0)
        return error_sys(reterr, k < 0 ? errno : EIO, "read a file");
    *ret_offset = c->offset;
    c->offset += (uint64_t)k;
    c->left -= (uint64_t)k;
    return k;
}

static ssize_t no_content(void *arg, void *data, size_t n, uint64_t *ret_offset, struct error *reterr)
{
    (void)arg;
    (void)data;
    (void)n;
    (void)ret_offset;
    (void)reterr;
    return 0;
}

static int emit(struct pack *p, const struct tar_entry *e, layer_data *data, void *arg, struct error *reterr)
{
    if (p->ops->entries_left == 0)
        return error_set(reterr, E2BIG, "there are too many files");
    p->ops->entries_left--;
    return p->ops->entry(p->ops->arg, e, data, arg, reterr);
}

static void entry_init(struct tar_entry *e, enum tar_type type, const char *path, const struct stat *st)
{
    *e = (struct tar_entry){.type = type,
                            .path = path,
                            .link = "",
                            .mode = st->st_mode & 07777,
                            .uid = st->st_uid,
                            .gid = st->st_gid,
                            .mtime_s = st->st_mtim.tv_sec};
}

/* ---- one name */

static struct link **link_find(struct pack *p, ino_t ino)
{
    struct link **l = &p->links[(ino * UINT64_C(0x9e3779b97f4a7c15)) >> 48 & (LINK_BUCKETS - 1)];
    while (*l && (*l)->ino != ino)
        l = &(*l)->next;
    return l;
}

static int pack_file(struct pack *p, int dir, const char *name, struct stat *st, struct error *reterr)
{
    struct tar_entry e;
    if (st->st_nlink > 1) {
        struct link **l = link_find(p, st->st_ino);
        if (*l) {
            entry_init(&e, TAR_HARDLINK, p->path, st);
            e.link = (*l)->path;
            return emit(p, &e, no_content, NULL, reterr);
        }
        size_t n = strlen(p->path) + 1;
        if (p->link_count++ == LINKS_MAX || !(*l = malloc(sizeof **l + n)))
            return error_set(reterr, E2BIG, "there are too many files with several names");
        (*l)->ino = st->st_ino;
        (*l)->next = NULL;
        memcpy((*l)->path, p->path, n);
    }
    auto_close int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, st) < 0)
        return error_sys(reterr, errno, "open a file");
    if (!S_ISREG(st->st_mode))
        return error_set(reterr, EIO, "a file changed while it was read");
    entry_init(&e, TAR_FILE, p->path, st);
    e.size = (uint64_t)st->st_size;
    struct content c = {.fd = fd, .left = e.size};
    int r = read_xattrs(p, fd, &e, reterr);
    return r < 0 ? r : emit(p, &e, content_read, &c, reterr);
}

static int pack_link(struct pack *p, int dir, const char *name, const struct stat *st, struct error *reterr)
{
    struct tar_entry e;
    ssize_t n = readlinkat(dir, name, p->target, sizeof p->target - 1);
    if (n < 0)
        return error_sys(reterr, errno, "read a symbolic link");
    p->target[n] = '\0';
    entry_init(&e, TAR_SYMLINK, p->path, st);
    e.link = p->target;
    return emit(p, &e, no_content, NULL, reterr);
}

/* p->path ends in the deleted name. */
static int pack_whiteout(struct pack *p, const char *name, struct error *reterr)
{
    char path[TAR_PATH_MAX];
    struct tar_entry e;
    size_t at = strlen(p->path) - strlen(name);
    if (snprintf(path, sizeof path, "%.*s%s%s", (int)at, p->path, LAYER_WHITEOUT_PREFIX, name) >=
        (int)sizeof path)
        return error_set(reterr, E2BIG, "directories are nested too deep");
    entry_init(&e, TAR_FILE, path, &(struct stat){0});
    return emit(p, &e, no_content, NULL, reterr);
}

/* Takes fd. p->path is its path with a slash at the end, or "./". */
static int push_dir(struct pack *p, int fd, struct error *reterr)
{
    auto_close int owned = fd;
    struct tar_entry e;
    struct stat st;
    if (p->depth > LAYER_DEPTH_MAX)
        return error_set(reterr, E2BIG, "directories are nested too deep");
    if (fstat(fd, &st) < 0)
        return error_sys(reterr, errno, "read a directory");
    entry_init(&e, TAR_DIR, p->path, &st);
    int r = read_xattrs(p, fd, &e, reterr);
    if (r == 0)
        r = emit(p, &e, no_content, NULL, reterr);
    int opaque = r < 0 || p->depth == 0 ? 0 : p->ops->is_opaque(p->ops->arg, fd, reterr);
    if (r < 0 || opaque < 0)
        return r < 0 ? r : opaque;
    struct level *l = &p->stack[p->depth];
    *l = (struct level){.fd = take_fd(owned), .path_len = p->depth ? strlen(p->path) : 0};
    p->depth++;
    if (opaque) {
        char path[TAR_PATH_MAX];
        if (snprintf(path, sizeof path, "%s%s", p->path, LAYER_OPAQUE_NAME) >= (int)sizeof path)
            return error_set(reterr, E2BIG, "directories are nested too deep");
        entry_init(&e, TAR_FILE, path, &(struct stat){0});
        if ((r = emit(p, &e, no_content, NULL, reterr)) < 0)
            return r;
    }
    return level_read(p, l, reterr);
}

static int pack_name(struct pack *p, int dir, const char *name, struct error *reterr)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return error_sys(reterr, errno, "read a directory");
    switch (st.st_mode & S_IFMT) {
    case S_IFREG:
        return pack_file(p, dir, name, &st, reterr);
    case S_IFLNK:
        return pack_link(p, dir, name, &st, reterr);
    case S_IFIFO: {
        struct tar_entry e;
        entry_init(&e, TAR_FIFO, p->path, &st);
        return emit(p, &e, no_content, NULL, reterr);
    }
    case S_IFCHR:
        return st.st_rdev == 0 ? pack_whiteout(p, name, reterr) : 0;
    case S_IFDIR: {
        int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            return error_sys(reterr, errno, "open a directory");
        size_t n = strlen(p->path);
        if (n + 2 > sizeof p->path) {
            (void)close(fd);
            return error_set(reterr, E2BIG, "directories are nested too deep");
        }
        memcpy(p->path + n, "/", 2);
        return push_dir(p, fd, reterr);
    }
    default: /* a socket is nothing without its process */
        return 0;
    }
}

static int walk(struct pack *p, struct error *reterr)
{
    while (p->depth > 0) {
        struct level *l = &p->stack[p->depth - 1];
        if (l->next == l->count) {
            p->names_bytes -= l->text_bytes;
            level_done(l);
            p->depth--;
            continue;
        }
        const char *name = l->names[l->next++];
        size_t room = sizeof p->path - l->path_len;
        if (snprintf(p->path + l->path_len, room, "%s", name) >= (int)room)
            return error_set(reterr, E2BIG, "directories are nested too deep");
        int r = pack_name(p, l->fd, name, reterr);
        if (r < 0)
            return r;
    }
    return 0;
}

int pack_tree(int tree_fd, struct pack_ops *ops, struct error *reterr)
{
    struct pack *p = calloc(1, sizeof *p);
    if (!p)
        return error_sys(reterr, ENOMEM, "read a layer");
    p->ops = ops;
    memcpy(p->path, "./", 3);
    int fd = openat(tree_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 ? error_sys(reterr, errno, "read a layer") : push_dir(p, fd, reterr);
    if (r == 0)
        r = walk(p, reterr);
    while (p->depth > 0)
        level_done(&p->stack[--p->depth]);
    for (size_t i = 0; i < LINK_BUCKETS; i++)
        while (p->links[i]) {
            struct link *l = p->links[i];
            p->links[i] = l->next;
            free(l);
        }
    free(p);
    return r;
}
