/* SPDX-License-Identifier: Apache-2.0 */
/* image_files.c: see image_files.h. A directory is sent as the tar archive that it would be: header, file,
 * padding, one after the other, made while it is sent. */
#include "cli/image_files.h"
#include "base/buf.h"
#include "image/tar_put.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME_SIZE = 128, FILES_MAX = 16384, HEAD_MAX = 8192 };

struct layout_file {
    char name[NAME_SIZE];
    uint64_t size;
};

struct image_files {
    int fd;     /* the archive, or the file that is being sent; -1: none */
    int dir_fd; /* of a layout; -1: it is a file */
    int64_t bytes, sent;
    struct layout_file *files;
    size_t count, next;
    uint64_t left;   /* of the file that is being sent */
    struct buf head; /* headers and padding to be sent before anything else */
    bool ended;
    char problem[320];
};

static int head_sink(void *arg, const void *data, size_t n, struct error *reterr)
{
    return buf_append(arg, data, n) < 0 ? error_sys(reterr, ENOMEM, "read the layout") : 0;
}

static uint64_t in_blocks(uint64_t n)
{
    return (n + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
}

static int add_file(struct image_files *f, const char *dir, const char *name, struct error *reterr)
{
    char path[NAME_SIZE];
    struct stat st;
    if (snprintf(path, sizeof path, "%s%s", dir, name) >= (int)sizeof path ||
        fstatat(f->dir_fd, path, &st, 0) < 0 || !S_ISREG(st.st_mode))
        return 0; /* whatever it is, an image does not need it */
    if (f->count == FILES_MAX)
        return error_set(reterr, E2BIG, "the layout has more than %d files", FILES_MAX);
    void *more = realloc(f->files, (f->count + 1) * sizeof *f->files);
    if (!more)
        return error_sys(reterr, ENOMEM, "read the layout");
    f->files = more;
    struct layout_file *file = &f->files[f->count++];
    (void)snprintf(file->name, sizeof file->name, "%s", path);
    file->size = (uint64_t)st.st_size;
    f->bytes += (int64_t)(TAR_BLOCK + in_blocks(file->size)); /* the names are short: one header each */
    return 0;
}

static int list_layout(struct image_files *f, struct error *reterr)
{
    static const char *const lists[] = {"oci-layout", "index.json", "manifest.json"};
    static const char blobs[] = "blobs/sha256/";
    int r = 0;
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(lists); i++)
        r = add_file(f, "", lists[i], reterr);
    int fd = openat(f->dir_fd, blobs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d || f->count == 0) {
        if (d)
            (void)closedir(d);
        else
            close_fd(&fd);
        return error_set(reterr, EINVAL,
                         "the directory is no OCI layout: it has no index.json or no blobs/sha256");
    }
    for (struct dirent *e; r == 0 && (e = readdir(d));)
        if (strlen(e->d_name) == 64)
            r = add_file(f, blobs, e->d_name, reterr);
    (void)closedir(d);
    f->bytes += 2 * TAR_BLOCK;
    return r;
}

int image_files_open(const char *path, struct image_files **ret, struct error *reterr)
{
    struct stat st;
    struct image_files *f = calloc(1, sizeof *f);
    if (!f)
        return error_sys(reterr, ENOMEM, "read the archive");
    f->head.limit = HEAD_MAX;
    f->dir_fd = -1;
    f->fd =
        strcmp(path, "-") == 0 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC);
    int r = f->fd < 0 || fstat(f->fd, &st) < 0 ? error_sys(reterr, errno, "open %s", path) : 0;
    if (r == 0 && S_ISDIR(st.st_mode)) {
        f->dir_fd = take_fd(f->fd);
        r = list_layout(f, reterr);
    } else if (r == 0) {
        f->bytes = S_ISREG(st.st_mode) ? st.st_size : -1;
    }
    if (r < 0) {
        image_files_free(f);
        return r;
    }
    *ret = f;
    return 0;
}

void image_files_free(struct image_files *f)
{
    if (!f)
        return;
    close_fd(&f->fd);
    close_fd(&f->dir_fd);
    free(f->files);
    buf_done(&f->head);
    free(f);
}

int64_t image_files_bytes(const struct image_files *f)
{
    return f->bytes;
}

int64_t image_files_sent(const struct image_files *f)
{
    return f->sent;
}

const char *image_files_problem(const struct image_files *f)
{
    return f->problem[0] ? f->problem : NULL;
}

/* The next file's header, or the end of the archive. */
static int next_file(struct image_files *f, struct error *reterr)
{
    if (f->next == f->count) {
        f->ended = true;
        return tar_put_end(head_sink, &f->head, reterr);
    }
    const struct layout_file *file = &f->files[f->next++];
    struct tar_entry e = {.type = TAR_FILE, .path = file->name, .link = "", .mode = 0644, .size = file->size};
    f->fd = openat(f->dir_fd, file->name, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0)
        return error_sys(reterr, errno, "open %s", file->name);
    f->left = file->size;
    return tar_put_header(&e, head_sink, &f->head, reterr);
}

static long read_layout(struct image_files *f, void *data, size_t n, struct error *reterr)
{
    while (buf_len(&f->head) == 0 && f->left == 0 && !f->ended) {
        int r = next_file(f, reterr);
        if (r < 0)
            return r;
    }
    if (buf_len(&f->head)) {
        size_t k = MIN(n, buf_len(&f->head));
        memcpy(data, buf_data(&f->head), k);
        buf_consume(&f->head, k);
        return (long)k;
    }
    if (f->left == 0)
        return 0;
    ssize_t k = read(f->fd, data, MIN((uint64_t)n, f->left));
    if (k <= 0)
        return error_sys(reterr, k < 0 ? errno : EIO, "read %s", f->files[f->next - 1].name);
    f->left -= (uint64_t)k;
    if (f->left == 0) {
        close_fd(&f->fd);
        int r = tar_put_pad(f->files[f->next - 1].size, head_sink, &f->head, reterr);
        if (r < 0)
            return r;
    }
    return (long)k;
}

long image_files_read(void *data, size_t n, void *user)
{
    struct image_files *f = user;
    struct error e = {0};
    long k;
    if (f->dir_fd >= 0) {
        k = read_layout(f, data, n, &e);
    } else {
        do
            k = read(f->fd, data, n);
        while (k < 0 && errno == EINTR);
        if (k < 0)
            (void)error_sys(&e, errno, "read the archive");
    }
    if (k < 0)
        (void)snprintf(f->problem, sizeof f->problem, "%s", e.msg);
    else
        f->sent += k;
    return k;
}
