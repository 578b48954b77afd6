/* SPDX-License-Identifier: Apache-2.0 */
/* archive.c: see archive.h. Names of the archive never become names of files: what a stranger calls
 * "../../etc/passwd" is file 7 to us. */
#include "image/archive.h"
#include "image/imager_internal.h"
#include "image/layer_path.h"
#include "image/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { PIECE = 256 * 1024, ALIAS_DEPTH = 4 };

struct file {
    char *name;
    char *alias; /* it is a link to this name; NULL: file `number` */
    unsigned number;
    uint64_t size;
};

struct archive {
    struct file *files;
    size_t count, cap;
};

static void file_name(char out[24], unsigned number)
{
    (void)snprintf(out, 24, "part-%u", number);
}

void archive_free(struct archive *a)
{
    char name[24];
    if (!a)
        return;
    for (size_t i = 0; i < a->count; i++) {
        if (!a->files[i].alias) {
            file_name(name, a->files[i].number);
            (void)unlink(name); /* the keeper removes the whole directory later */
        }
        free(a->files[i].name);
        free(a->files[i].alias);
    }
    free(a->files);
    free(a);
}

/* The last entry of a name wins, as it does for tar. */
static const struct file *find(const struct archive *a, const char *name)
{
    for (int depth = 0; depth < ALIAS_DEPTH; depth++) {
        const struct file *f = NULL;
        for (size_t i = a->count; i-- > 0 && !f;)
            if (strcmp(a->files[i].name, name) == 0)
                f = &a->files[i];
        if (!f || !f->alias)
            return f;
        name = f->alias;
    }
    return NULL;
}

static struct file *add(struct archive *a, const char *name, struct error *reterr)
{
    if (a->count == ARCHIVE_FILES_MAX) {
        (void)error_set(reterr, E2BIG, "the archive has more than %d files", ARCHIVE_FILES_MAX);
        return NULL;
    }
    if (a->count == a->cap) {
        size_t cap = a->cap ? a->cap * 2 : 64;
        struct file *more = realloc(a->files, cap * sizeof *more);
        if (!more) {
            (void)error_sys(reterr, ENOMEM, "read the archive");
            return NULL;
        }
        a->files = more;
        a->cap = cap;
    }
    struct file *f = &a->files[a->count];
    *f = (struct file){.name = strdup(name), .number = (unsigned)a->count};
    if (!f->name) {
        (void)error_sys(reterr, ENOMEM, "read the archive");
        return NULL;
    }
    a->count++;
    return f;
}

/* docker writes a layer that it has already written as a link to the first one: "../<id>/layer.tar". */
static int add_alias(struct archive *a, const char *name, const struct tar_entry *e, struct error *reterr)
{
    char joined[2 * TAR_PATH_MAX], target[TAR_PATH_MAX];
    const char *link = e->link;
    int dir_len = e->type == TAR_SYMLINK ? (int)(layer_path_base(name) - name) : 0;
    while (strncmp(link, "../", 3) == 0 && dir_len > 0) {
        link += 3;
        for (dir_len--; dir_len > 0 && name[dir_len - 1] != '/';)
            dir_len--;
    }
    (void)snprintf(joined, sizeof joined, "%.*s%s", dir_len, name, link);
    int r = layer_path_clean(joined, target, reterr);
    if (r < 0)
        return r;
    struct file *f = add(a, name, reterr);
    if (!f)
        return -reterr->code;
    f->alias = strdup(target);
    return f->alias ? 0 : error_sys(reterr, ENOMEM, "read the archive");
}

static int store(struct archive *a, const char *name, struct tar_reader *tar, const struct tar_entry *e,
                 char *piece, struct error *reterr)
{
    char at[24];
    uint64_t offset;
    ssize_t n;
    struct file *f = add(a, name, reterr);
    if (!f)
        return -reterr->code;
    f->size = e->size;
    file_name(at, f->number);
    auto_close int fd = open(at, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_sys(reterr, errno, "store a part of the archive");
    while ((n = tar_data(tar, piece, PIECE, &offset, reterr)) > 0)
        for (ssize_t done = 0, k; done < n; done += k)
            if ((k = pwrite(fd, piece + done, (size_t)(n - done), (off_t)offset + done)) < 0)
                return error_sys(reterr, errno, "store a part of the archive");
    return (int)n;
}

static int take(struct archive *a, struct tar_reader *tar, const struct tar_entry *e, char *piece,
                struct error *reterr)
{
    char name[TAR_PATH_MAX], shown[LAYER_SHOWN + 1];
    int r = layer_path_clean(e->path, name, reterr);
    if (r < 0 || e->type == TAR_DIR)
        return r;
    if (e->sparse || !name[0])
        return error_set(reterr, EBADMSG, "this is not an image archive");
    if (e->type == TAR_SYMLINK || e->type == TAR_HARDLINK)
        return add_alias(a, name, e, reterr);
    if (e->type != TAR_FILE)
        return error_set(reterr, EBADMSG, "'%s' has no place in an image archive",
                         layer_path_show(name, shown));
    return store(a, name, tar, e, piece, reterr);
}

int archive_read(int fd, uint64_t limit, void (*progress)(void *arg, uint64_t bytes), void *arg,
                 struct archive **ret, struct error *reterr)
{
    unsigned char raw[SHA256_BYTES], plain[SHA256_BYTES];
    struct source *source = NULL;
    struct tar_reader *tar = NULL;
    struct tar_entry e;
    struct archive *a = calloc(1, sizeof *a);
    auto_free char *piece = malloc(PIECE);
    int r = a && piece ? source_new(fd, limit, false, &source, reterr)
                       : error_sys(reterr, ENOMEM, "read the archive");
    if (r == 0)
        r = tar_reader_new(source_read, source, false, &tar, reterr);
    while (r == 0 && (r = tar_next(tar, &e, reterr)) > 0) {
        r = take(a, tar, &e, piece, reterr);
        if (progress)
            progress(arg, source_raw_bytes(source));
    }
    if (r == 0) /* the sender wants to be read to its end */
        r = source_finish(source, raw, plain, reterr);
    tar_reader_free(tar);
    source_free(source);
    if (r < 0) {
        archive_free(a);
        return r;
    }
    *ret = a;
    return 0;
}

bool archive_has(const struct archive *a, const char *name)
{
    return find(a, name) != NULL;
}

int archive_open(const struct archive *a, const char *name, int *ret_fd, uint64_t *ret_size,
                 struct error *reterr)
{
    char at[24], clean[TAR_PATH_MAX], shown[LAYER_SHOWN + 1];
    int r = layer_path_clean(name, clean, reterr);
    if (r < 0)
        return r;
    const struct file *f = find(a, clean);
    if (!f)
        return error_set(reterr, EBADMSG, "the archive lacks '%s'", layer_path_show(name, shown));
    file_name(at, f->number);
    *ret_fd = open(at, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (ret_size)
        *ret_size = f->size;
    return *ret_fd < 0 ? error_sys(reterr, errno, "read a part of the archive") : 0;
}

int archive_text(const struct archive *a, const char *name, struct buf *ret, struct error *reterr)
{
    auto_close int fd = -1;
    *ret = BUF_INIT(0);
    int r = archive_open(a, name, &fd, NULL, reterr);
    return r < 0 ? r : imager_read_file(fd, ARCHIVE_JSON_MAX, ret, reterr);
}

void archive_blob_name(const unsigned char digest[SHA256_BYTES], char ret[16 + SHA256_HEX])
{
    char hex[SHA256_HEX + 1];
    sha256_hex(digest, hex);
    (void)snprintf(ret, 16 + SHA256_HEX, "blobs/sha256/%s", hex);
}

int archive_blob(const struct archive *a, const unsigned char digest[SHA256_BYTES], struct buf *ret,
                 struct error *reterr)
{
    char name[16 + SHA256_HEX];
    unsigned char sum[SHA256_BYTES];
    struct sha256 *d = NULL;
    archive_blob_name(digest, name);
    int r = archive_text(a, name, ret, reterr);
    if (r == 0)
        r = sha256_new(&d, reterr);
    if (r < 0)
        return r;
    sha256_add(d, buf_data(ret), buf_len(ret));
    sha256_take(d, sum);
    sha256_free(d);
    if (memcmp(sum, digest, sizeof sum) != 0)
        return error_set(reterr, EBADMSG, "the content of %s is not what its name promises", name);
    return 0;
}
