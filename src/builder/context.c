/* SPDX-License-Identifier: Apache-2.0 */
/* context.c: see context.h.
 *
 * The directory is listed once, on the first COPY that needs it, and sorted by name, so that everything below
 * a directory is one run of entries right behind it ('/' sorts before every other byte). */
#include "builder/context.h"

#include "builder/spill.h"
#include "image/tar_put.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { LINKS_MAX = 8, PIECE = 256 * 1024 };

struct context {
    int fd;
    char *directory;
    struct ignore *ignore;
    struct context_entry *entries;
    size_t count, cap;
    bool loaded;
    char *piece; /* for reading files */
};

/* ------------------------------------------------------------------ opening */

/* The text of a small file; *ret is NULL when there is none. */
static int read_small(int dir, const char *path, size_t limit, char **ret, size_t *ret_len,
                      struct error *reterr)
{
    *ret = NULL;
    auto_close int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : error_sys(reterr, errno, "cannot open %s", path);
    char *text = malloc(limit + 1);
    size_t n = 0;
    if (!text)
        return error_set(reterr, ENOMEM, "out of memory");
    for (ssize_t got; n <= limit; n += (size_t)got) {
        got = read(fd, text + n, limit + 1 - n);
        if (got < 0) {
            int e = errno;
            free(text);
            return error_sys(reterr, e, "cannot read %s", path);
        }
        if (got == 0)
            break;
    }
    if (n > limit) {
        free(text);
        return error_set(reterr, E2BIG, "%s is larger than %zu KiB", path, limit >> 10);
    }
    *ret = text;
    *ret_len = n;
    return 0;
}

static int read_ignore(struct context *c, const char *dockerfile_path, struct error *reterr)
{
    auto_free char *text = NULL;
    size_t n = 0;
    int r = 0;
    if (dockerfile_path) {
        char path[PATH_MAX];
        int len = snprintf(path, sizeof path, "%s.dockerignore", dockerfile_path);
        if (len > 0 && (size_t)len < sizeof path)
            r = read_small(AT_FDCWD, path, IGNORE_FILE_MAX, &text, &n, reterr);
    }
    if (r == 0 && !text)
        r = read_small(c->fd, ".dockerignore", IGNORE_FILE_MAX, &text, &n, reterr);
    return r < 0 || !text ? r : ignore_parse(text, n, &c->ignore, reterr);
}

int context_open(const char *directory, const char *dockerfile_path, struct context **ret,
                 struct error *reterr)
{
    struct context *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(reterr, ENOMEM, "out of memory");
    c->fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = c->fd < 0 ? error_sys(reterr, errno, "cannot open the build context '%s'", directory) : 0;
    c->directory = strdup(directory);
    c->piece = malloc(PIECE);
    if (r == 0 && (!c->directory || !c->piece))
        r = error_set(reterr, ENOMEM, "out of memory");
    if (r == 0)
        r = read_ignore(c, dockerfile_path, reterr);
    if (r < 0) {
        context_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

void context_free(struct context *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->count; i++) {
        free(c->entries[i].path);
        free(c->entries[i].link);
    }
    free(c->entries);
    ignore_free(c->ignore);
    free(c->directory);
    free(c->piece);
    close_fd(&c->fd);
    free(c);
}

const char *context_directory(const struct context *c)
{
    return c->directory;
}

/* ------------------------------------------------------------------ listing */

static int add_entry(struct context *c, struct context_entry e, struct error *reterr)
{
    if (c->count == c->cap && c->cap < CONTEXT_ENTRIES_MAX) {
        size_t cap = c->cap ? c->cap * 2 : 256;
        struct context_entry *entries = realloc(c->entries, cap * sizeof *entries);
        if (entries) {
            c->entries = entries;
            c->cap = cap;
        }
    }
    if (c->count == c->cap) {
        free(e.path);
        free(e.link);
        return error_set(reterr, E2BIG,
                         "the build context '%s' has more than %d files; exclude some in .dockerignore",
                         c->directory, CONTEXT_ENTRIES_MAX);
    }
    c->entries[c->count++] = e;
    return 0;
}

static int read_link(int dir, const char *name, char **ret)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(dir, name, target, sizeof target - 1);
    if (n < 0)
        return -errno;
    target[n] = '\0';
    *ret = strdup(target);
    return *ret ? 0 : -ENOMEM;
}

static int list_name(struct context *c, int dir, const char *above, const char *name, struct error *reterr)
{
    struct stat st;
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s%s%s", above, *above ? "/" : "", name);
    if (n < 0 || (size_t)n >= sizeof path)
        return error_set(reterr, ENAMETOOLONG, "a path below '%.200s' is too long", above);
    bool excluded = ignore_excludes(c->ignore, path);
    if (excluded && !ignore_has_exceptions(c->ignore))
        return 0;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : error_sys(reterr, errno, "cannot look at '%s'", path);
    if ((excluded && !S_ISDIR(st.st_mode)) ||
        (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode)))
        return 0; /* a socket or a device is nothing one could copy */
    struct context_entry e = {.path = strdup(path),
                              .mode = st.st_mode,
                              .size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0,
                              .mtime_s = st.st_mtim.tv_sec};
    int r = e.path ? 0 : -ENOMEM;
    if (r == 0 && S_ISLNK(st.st_mode))
        r = read_link(dir, name, &e.link);
    if (r < 0) {
        free(e.path);
        return error_sys(reterr, -r, "cannot read '%s'", path);
    }
    return add_entry(c, e, reterr);
}

static int list_directory(struct context *c, const char *path, struct error *reterr)
{
    int fd = openat(c->fd, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int e = errno;
        close_fd(&fd);
        return error_sys(reterr, e, "cannot list '%s' of the build context", *path ? path : ".");
    }
    int r = 0;
    struct dirent *d;
    while (r == 0 && (errno = 0, d = readdir(dir)))
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
            r = list_name(c, dirfd(dir), path, d->d_name, reterr);
    (void)closedir(dir);
    return r;
}

/* '/' first, so that a directory is followed by all that is in it. */
static int compare_paths(const char *a, const char *b)
{
    for (; *a && *a == *b; a++, b++)
        ;
    unsigned char x = (unsigned char)*a, y = (unsigned char)*b;
    int kx = x == '/' ? 1 : x ? x + 1 : 0, ky = y == '/' ? 1 : y ? y + 1 : 0;
    return kx - ky;
}

static int compare_entries(const void *a, const void *b)
{
    return compare_paths(((const struct context_entry *)a)->path, ((const struct context_entry *)b)->path);
}

static int load(struct context *c, struct error *reterr)
{
    struct stat st;
    if (c->loaded)
        return 0;
    if (fstat(c->fd, &st) < 0)
        return error_sys(reterr, errno, "cannot look at '%s'", c->directory);
    struct context_entry top = {.path = strdup(""), .mode = S_IFDIR | 0755, .mtime_s = st.st_mtim.tv_sec};
    int r = top.path ? add_entry(c, top, reterr) : error_set(reterr, ENOMEM, "out of memory");
    for (size_t i = 0; r == 0 && i < c->count; i++) { /* the list grows behind i */
        if (!S_ISDIR(c->entries[i].mode))
            continue;
        auto_free char *path = strdup(c->entries[i].path); /* the list may move */
        r = path ? list_directory(c, path, reterr) : error_set(reterr, ENOMEM, "out of memory");
    }
    if (r < 0)
        return r;
    qsort(c->entries, c->count, sizeof *c->entries, compare_entries);
    c->loaded = true;
    return 0;
}

static const struct context_entry *find(const struct context *c, const char *path)
{
    struct context_entry key = {.path = (char *)path};
    return bsearch(&key, c->entries, c->count, sizeof key, compare_entries);
}

/* ------------------------------------------------------------------ choosing */

static int add_item(struct copy_set *s, const struct context_entry *e, const char *name, bool direct,
                    struct error *reterr)
{
    if (s->count == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 16;
        struct copy_item *items = realloc(s->items, cap * sizeof *items);
        if (!items)
            return error_set(reterr, ENOMEM, "out of memory");
        s->items = items;
        s->cap = cap;
    }
    char *copy = strdup(name);
    if (!copy)
        return error_set(reterr, ENOMEM, "out of memory");
    s->items[s->count++] = (struct copy_item){e, copy, direct};
    return 0;
}

/* A directory that is only there for its exceptions is empty of everything else. */
static bool wanted(const struct context *c, const struct context_entry *e)
{
    return !ignore_has_exceptions(c->ignore) || !S_ISDIR(e->mode) || !ignore_excludes(c->ignore, e->path);
}

static int add_tree(struct context *c, const struct context_entry *top, struct copy_set *s,
                    struct error *reterr)
{
    size_t n = strlen(top->path);
    int r = 0;
    for (const struct context_entry *e = top + 1; r == 0 && e < c->entries + c->count; e++) {
        if (n > 0 && (strncmp(e->path, top->path, n) != 0 || e->path[n] != '/'))
            break;
        if (wanted(c, e))
            r = add_item(s, e, e->path + (n ? n + 1 : 0), false, reterr);
    }
    return r;
}

/* Follows links that stay inside the context. */
static int follow(const struct context *c, const struct context_entry *e, const struct context_entry **ret,
                  struct error *reterr)
{
    const char *asked = e->path;
    for (int i = 0; S_ISLNK(e->mode); i++) {
        char joined[2 * PATH_MAX];
        const char *slash = strrchr(e->path, '/');
        (void)snprintf(joined, sizeof joined, "%.*s/%s", slash ? (int)(slash - e->path) : 0, e->path,
                       e->link);
        auto_free char *clean = path_clean(joined);
        const struct context_entry *next =
            clean && e->link[0] != '/' && i < LINKS_MAX ? find(c, clean) : NULL;
        if (!next)
            return error_set(reterr, ENOENT,
                             "the link '%.200s' points to '%.200s', which is not in the build context", asked,
                             e->link);
        e = next;
    }
    *ret = e;
    return 0;
}

static int add_source(struct context *c, const struct context_entry *e, struct copy_set *s,
                      struct error *reterr)
{
    const char *slash = strrchr(e->path, '/'), *name = slash ? slash + 1 : e->path;
    const struct context_entry *target;
    int r = follow(c, e, &target, reterr);
    if (r < 0)
        return r;
    s->sources++;
    s->single_file = s->sources == 1 && S_ISREG(target->mode);
    return S_ISDIR(target->mode) ? add_tree(c, target, s, reterr) : add_item(s, target, name, true, reterr);
}

static int select_pattern(struct context *c, const char *text, struct copy_set *s, struct error *reterr)
{
    struct pattern *p;
    int r = pattern_compile(text, false, &p, reterr);
    if (r < 0)
        return r;
    size_t before = s->sources;
    for (size_t i = 0; r == 0 && i < c->count; i++)
        if (c->entries[i].path[0] && wanted(c, &c->entries[i]) && pattern_match(p, c->entries[i].path))
            r = add_source(c, &c->entries[i], s, reterr);
    pattern_free(p);
    if (r == 0 && s->sources == before)
        r = error_set(reterr, ENOENT, "nothing in the build context '%s' matches '%s'", c->directory, text);
    return r;
}

static int select_one(struct context *c, const char *source, struct copy_set *s, struct error *reterr)
{
    auto_free char *clean = path_clean(source);
    if (!clean)
        return error_set(reterr, ENOMEM, "out of memory");
    const struct context_entry *e = find(c, clean);
    if (e && wanted(c, e))
        return add_source(c, e, s, reterr);
    if (!pattern_is_plain(clean))
        return select_pattern(c, clean, s, reterr);
    if (ignore_excludes(c->ignore, clean))
        return error_set(reterr, ENOENT, "'%s' is excluded by .dockerignore", clean);
    return error_set(reterr, ENOENT, "there is no '%s' in the build context '%s'", clean, c->directory);
}

int context_select(struct context *c, const struct words *sources, struct copy_set *ret, struct error *reterr)
{
    struct copy_set s = {0};
    int r = load(c, reterr);
    for (size_t i = 0; r == 0 && i < sources->count; i++)
        r = select_one(c, sources->items[i], &s, reterr);
    if (r < 0) {
        copy_set_done(&s);
        return r;
    }
    *ret = s;
    return 0;
}

void copy_set_done(struct copy_set *s)
{
    for (size_t i = 0; i < s->count; i++)
        free(s->items[i].name);
    free(s->items);
    *s = (struct copy_set){0};
}

/* ------------------------------------------------------------------ contents */

int context_open_file(struct context *c, const struct context_entry *e, struct error *reterr)
{
    int fd = openat(c->fd, e->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? error_sys(reterr, errno, "cannot open '%s'", e->path) : fd;
}

/* Hands exactly the size seen when the directory was listed to `take`. */
static int each_piece(struct context *c, const struct context_entry *e, tar_sink *take, void *user,
                      struct error *reterr)
{
    auto_close int fd = context_open_file(c, e, reterr);
    if (fd < 0)
        return fd;
    for (uint64_t left = e->size; left > 0;) {
        ssize_t n = read(fd, c->piece, (size_t)MIN(left, (uint64_t)PIECE));
        if (n < 0)
            return error_sys(reterr, errno, "cannot read '%s'", e->path);
        if (n == 0)
            return error_set(reterr, EBUSY, "'%s' became shorter while it was read", e->path);
        int r = take(user, c->piece, (size_t)n, reterr);
        if (r < 0)
            return r;
        left -= (uint64_t)n;
    }
    return 0;
}

static int take_digest(void *user, const void *data, size_t n, struct error *reterr)
{
    (void)reterr;
    sha256_add(user, data, n);
    return 0;
}

int context_digest(struct context *c, const struct copy_set *s, struct sha256 *d, struct error *reterr)
{
    int r = 0;
    digest_number(d, s->count);
    for (size_t i = 0; r == 0 && i < s->count; i++) {
        const struct context_entry *e = s->items[i].entry;
        digest_field(d, s->items[i].name);
        digest_number(d, e->mode);
        digest_field(d, e->link);
        digest_number(d, e->size);
        if (S_ISREG(e->mode))
            r = each_piece(c, e, take_digest, d, reterr);
    }
    return r;
}

int context_pack(struct context *c, const struct copy_set *s, const char *rename,
                 bool (*skip)(struct context *c, const struct copy_item *item),
                 const struct copy_owner *owner, int fd, struct error *reterr)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < s->count; i++) {
        const struct context_entry *e = s->items[i].entry;
        if (skip && skip(c, &s->items[i]))
            continue;
        struct tar_entry t = {.type = S_ISDIR(e->mode)   ? TAR_DIR
                                      : S_ISLNK(e->mode) ? TAR_SYMLINK
                                                         : TAR_FILE,
                              .path = rename ? rename : s->items[i].name,
                              .link = e->link,
                              .mode = e->mode & 07777,
                              .uid = owner->uid,
                              .gid = owner->gid,
                              .size = e->size,
                              .mtime_s = e->mtime_s};
        if (owner->mode >= 0 && !S_ISLNK(e->mode))
            t.mode = (uint32_t)owner->mode;
        r = tar_put_header(&t, spill_write, &fd, reterr);
        if (r == 0 && S_ISREG(e->mode))
            r = each_piece(c, e, spill_write, &fd, reterr);
        if (r == 0 && S_ISREG(e->mode))
            r = tar_put_pad(e->size, spill_write, &fd, reterr);
    }
    return r;
}
