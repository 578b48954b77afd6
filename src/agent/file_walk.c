/* SPDX-License-Identifier: Apache-2.0 */
/* file_walk.c: see file_walk.h. */
#include "agent/file_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

enum {
    ENTRIES_BYTES = 32 * 1024,
    PATH_BYTES_MAX = 16 << 20,
    DIR_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC
};

/* As the kernel lays it out. */
struct entry {
    uint64_t ino;
    int64_t offset; /* of the entry behind this one */
    uint16_t len;
    uint8_t type;
    char name[];
};

struct place {
    dev_t dev;
    ino_t ino;
};

struct walk_level {
    int fd, twin; /* -1: closed for the time being (twin: or not wanted) */
    bool twin_wanted;
    struct place at, twin_at;
    char *entries; /* read, from pos on not yet delivered; NULL: none */
    size_t pos, len;
    int64_t offset;  /* behind the last delivered entry */
    size_t path_len; /* of this directory */
};

static int place_of(int fd, struct place *ret)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    *ret = (struct place){st.st_dev, st.st_ino};
    return 0;
}

static struct walk_level *top(struct walk *w)
{
    return &w->levels[w->depth - 1];
}

static void level_close(struct walk_level *l)
{
    close_fd(&l->fd);
    close_fd(&l->twin);
    free(l->entries);
    l->entries = NULL;
    l->pos = l->len = 0;
}

static int push(struct walk *w, int dir, int twin)
{
    auto_close int dir_fd = dir, twin_fd = twin;
    struct walk_level l = {.fd = -1, .twin = -1, .twin_wanted = twin >= 0, .path_len = buf_len(&w->path)};
    int r = place_of(dir_fd, &l.at);
    if (r == 0 && twin >= 0)
        r = place_of(twin_fd, &l.twin_at);
    if (r < 0)
        return r;
    if (w->depth == WALK_DEPTH_MAX)
        return -ENAMETOOLONG;
    if (w->depth == w->cap) {
        size_t cap = w->cap ? w->cap * 2 : 16;
        struct walk_level *levels = realloc(w->levels, cap * sizeof *levels);
        if (!levels)
            return -ENOMEM;
        w->levels = levels;
        w->cap = cap;
    }
    if (w->depth >= WALK_OPEN)
        level_close(&w->levels[w->depth - WALK_OPEN]);
    l.fd = w->dir = take_fd(dir_fd);
    l.twin = w->twin = take_fd(twin_fd);
    w->levels[w->depth++] = l;
    return 0;
}

static void forget_left(struct walk *w)
{
    close_fd(&w->left);
    close_fd(&w->left_twin);
}

/* The parent of fd, if it is still the directory we came from. */
static int reopen(int fd, const struct place *at)
{
    struct place found;
    auto_close int up = openat(fd, "..", DIR_FLAGS);
    if (up < 0)
        return -errno;
    int r = place_of(up, &found);
    if (r < 0)
        return r;
    return found.dev == at->dev && found.ino == at->ino ? take_fd(up) : -ESTALE;
}

/* The innermost directory becomes `left`; its parent is the current one again. */
static int pop(struct walk *w)
{
    struct walk_level *l = top(w);
    w->left = take_fd(l->fd);
    w->left_twin = take_fd(l->twin);
    level_close(l);
    w->depth--;
    w->dir = w->twin = -1;
    w->name = "";
    if (w->depth == 0)
        return 0;

    struct walk_level *up = top(w);
    const char *name = buf_data(&w->path) + up->path_len + (up->path_len ? 1 : 0);
    size_t n = buf_len(&w->path) - (size_t)(name - buf_data(&w->path));
    memcpy(w->left_name, name, n);
    w->left_name[n] = '\0';
    w->name = w->left_name;
    w->path.end = w->path.start + up->path_len;
    (void)buf_cstr(&w->path);
    if (up->fd < 0) {
        int fd = w->left < 0 ? -ESTALE : reopen(w->left, &up->at);
        if (fd < 0)
            return fd;
        up->fd = fd;
        if (lseek(fd, up->offset, SEEK_SET) < 0)
            return -errno;
    }
    if (up->twin_wanted && up->twin < 0) {
        int fd = w->left_twin < 0 ? -ESTALE : reopen(w->left_twin, &up->twin_at);
        if (fd < 0)
            return fd;
        up->twin = fd;
    }
    w->dir = up->fd;
    w->twin = up->twin;
    return 0;
}

int walk_open(struct walk *w, int dir, int twin)
{
    *w = (struct walk){
        .dir = -1, .twin = -1, .left = -1, .left_twin = -1, .name = "", .path = BUF_INIT(PATH_BYTES_MAX)};
    if (!buf_cstr(&w->path)) {
        close_fd(&dir);
        close_fd(&twin);
        return -ENOMEM;
    }
    return push(w, dir, twin);
}

/* The next entry of the innermost directory, NULL at its end. */
static int next_entry(struct walk_level *l, const struct entry **ret)
{
    if (l->fd < 0)
        return -ESTALE;
    for (;;) {
        if (l->pos == l->len) {
            if (!l->entries && !(l->entries = malloc(ENTRIES_BYTES)))
                return -ENOMEM;
            long n = syscall(SYS_getdents64, l->fd, l->entries, ENTRIES_BYTES);
            if (n < 0 && errno != ENOENT) /* ENOENT: removed meanwhile, and so empty */
                return -errno;
            if (n <= 0) {
                *ret = NULL;
                return 0;
            }
            l->pos = 0;
            l->len = (size_t)n;
        }
        const struct entry *e = (const struct entry *)(l->entries + l->pos);
        l->pos += e->len;
        l->offset = e->offset;
        if (strcmp(e->name, ".") != 0 && strcmp(e->name, "..") != 0) {
            *ret = e;
            return 0;
        }
    }
}

int walk_next(struct walk *w)
{
    const struct entry *e = NULL;
    forget_left(w);
    if (w->depth == 0)
        return WALK_END;
    int r = next_entry(top(w), &e);
    if (r == 0 && e) {
        w->name = e->name;
        w->type = e->type;
        return WALK_ENTRY;
    }
    int popped = pop(w);
    if (r == 0)
        r = popped;
    if (r < 0)
        return r;
    return w->depth ? WALK_LEAVE : WALK_END;
}

int walk_enter(struct walk *w, int twin)
{
    auto_close int twin_fd = twin;
    size_t before = buf_len(&w->path);
    auto_close int fd = openat(w->dir, w->name, DIR_FLAGS);
    if (fd < 0)
        return -errno;
    int r = before ? buf_putc(&w->path, '/') : 0;
    if (r == 0)
        r = buf_puts(&w->path, w->name);
    if (r == 0)
        r = buf_cstr(&w->path) ? push(w, take_fd(fd), take_fd(twin_fd)) : -ENOMEM;
    if (r < 0) {
        w->path.end = w->path.start + before;
        (void)buf_cstr(&w->path);
        return r == -ENOBUFS ? -ENAMETOOLONG : r;
    }
    return 0;
}

void walk_done(struct walk *w)
{
    if (!w->path.limit)
        return; /* zeroed */
    forget_left(w);
    while (w->depth)
        level_close(&w->levels[--w->depth]);
    free(w->levels);
    w->levels = NULL;
    buf_done(&w->path);
    w->path.limit = 0;
}
