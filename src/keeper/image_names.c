/* SPDX-License-Identifier: Apache-2.0 */
/* image_names.c: the names of images, and the list of all there is. A name is a symbolic link: reading and
 * replacing one are single system calls, so nobody ever sees half a name. */
#include "base/id.h"
#include "keeper/image_store_internal.h"
#include "keeper/mount_util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { NAME_FILE = IMAGE_REFERENCE_MAX + 1, DOC_MAX = 1024 * 1024, LIST_MAX = 64 << 20 };

/* '/' cannot be in a file's name and ':' reads badly there; references have neither '+' nor '='. */
static void file_of(const char *reference, char out[NAME_FILE])
{
    size_t i = 0;
    for (; reference[i]; i++)
        out[i] = reference[i] == '/' ? '+' : reference[i] == ':' ? '=' : reference[i];
    out[i] = '\0';
}

static bool reference_of(const char *file, char out[NAME_FILE])
{
    size_t i = 0;
    if (strlen(file) >= NAME_FILE)
        return false;
    for (; file[i]; i++)
        out[i] = file[i] == '+' ? '/' : file[i] == '=' ? ':' : file[i];
    out[i] = '\0';
    return keeper_image_reference_ok(out);
}

static bool image_of(const struct image_store *s, const char *file, char out[IMAGE_NAME_MAX + 1])
{
    ssize_t n = readlinkat(s->names_fd, file, out, IMAGE_NAME_MAX + 1);
    if (n <= 0 || n > IMAGE_NAME_MAX)
        return false;
    out[n] = '\0';
    return keeper_image_name_ok(out);
}

int image_name_set(struct image_store *s, const char *reference, const char *id, struct error *reterr)
{
    char file[NAME_FILE], temporary[STAGING_NAME];
    file_of(reference, file);
    random_name(temporary, STAGING_NAME - 1);
    (void)pthread_mutex_lock(&s->lock);
    int r = symlinkat(id, s->staging_fd, temporary) < 0 ||
                    renameat(s->staging_fd, temporary, s->names_fd, file) < 0 || fsync(s->names_fd) < 0
                ? error_sys(reterr, errno, "name an image")
                : 0;
    (void)pthread_mutex_unlock(&s->lock);
    if (r < 0)
        (void)unlinkat(s->staging_fd, temporary, 0); /* gone, unless the rename failed */
    return r;
}

int image_name_remove(struct image_store *s, const char *reference, struct error *reterr)
{
    char file[NAME_FILE];
    file_of(reference, file);
    if (unlinkat(s->names_fd, file, 0) < 0)
        return errno == ENOENT ? error_set(reterr, ENOENT, "no image has the name '%s'", reference)
                               : error_sys(reterr, errno, "take away a name");
    return fsync(s->names_fd) < 0 ? error_sys(reterr, errno, "take away a name") : 0;
}

struct forget {
    struct image_store *store;
    const char *id;
};

static int forget_name(const char *file, void *arg)
{
    const struct forget *f = arg;
    char id[IMAGE_NAME_MAX + 1];
    if (image_of(f->store, file, id) && strcmp(id, f->id) == 0)
        (void)unlinkat(f->store->names_fd, file,
                       0); /* a name that stays leads to nothing, and is shown to nobody */
    return 0;
}

int image_take_out(struct image_store *s, const char *id, struct error *reterr)
{
    char gone[STAGING_NAME];
    struct forget f = {s, id};
    if (!image_exists(s, id))
        return error_set(reterr, EPERM, "'%s' is a directory that the image store did not make", id);
    image_gone_name(gone);
    (void)pthread_mutex_lock(&s->lock);
    int r =
        renameat(s->images_fd, id, s->staging_fd, gone) < 0 ? error_sys(reterr, errno, "remove an image") : 0;
    if (r == 0)
        (void)image_dir_each(s->names_fd, forget_name, &f);
    (void)pthread_mutex_unlock(&s->lock);
    return r;
}

/* ---- the list */

struct list {
    struct image_store *store;
    int dir_fd; /* of the images being listed */
    int fd;
    uint64_t bytes;
    bool plain_only;
};

static int put(struct list *l, const void *data, size_t n)
{
    l->bytes += n;
    if (l->bytes > LIST_MAX)
        return -E2BIG;
    return write(l->fd, data, n) == (ssize_t)n ? 0 : -EIO;
}

static int list_name(const char *file, void *arg)
{
    struct list *l = arg;
    struct keeper_image_record rec;
    struct stat st;
    memset(&rec, 0, sizeof rec);
    if (!reference_of(file, rec.reference) || !image_of(l->store, file, rec.image))
        return 0;
    if (!image_exists(l->store, rec.image) && fstatat(l->store->plain_fd, rec.image, &st, 0) < 0)
        return 0; /* it is just being removed */
    return put(l, &rec, sizeof rec);
}

static uint64_t layers_bytes(struct image_store *s, int dir)
{
    uint64_t sum = 0;
    char line[160];
    auto_close int fd = open_beneath(dir, "layers", O_RDONLY);
    FILE *f = fd < 0 ? NULL : fdopen(take_fd(fd), "r");
    if (!f)
        return 0;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "sha256:", 7) == 0) {
            line[7 + IMAGE_LAYER_HEX] = '\0';
            sum += image_layer_bytes(s, line + 7);
        }
    (void)fclose(f);
    return sum;
}

static int list_image(const char *name, void *arg)
{
    struct list *l = arg;
    struct keeper_image_record rec;
    struct stat st;
    char buffer[16384];
    memset(&rec, 0, sizeof rec);
    auto_close int dir = open_beneath(l->dir_fd, name, O_PATH | O_DIRECTORY);
    if (!keeper_image_name_ok(name) || dir < 0)
        return 0;
    bool layered = fstatat(dir, "layers", &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (layered ? l->plain_only : fstatat(dir, "rootfs", &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    (void)snprintf(rec.image, sizeof rec.image, "%s", name);
    rec.plain = !layered;
    rec.bytes = layered ? layers_bytes(l->store, dir) : 0;
    auto_close int doc = open_beneath(dir, "config.json", O_RDONLY);
    if (doc >= 0 && fstat(doc, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= DOC_MAX)
        rec.doc_len = (uint32_t)st.st_size;
    int r = put(l, &rec, sizeof rec);
    for (uint32_t left = rec.doc_len; r == 0 && left > 0;) {
        ssize_t n = read(doc, buffer, MIN((size_t)left, sizeof buffer));
        r = n <= 0 ? -EIO : put(l, buffer, (size_t)n);
        left -= n > 0 ? (uint32_t)n : 0;
    }
    return r;
}

int image_store_list(struct image_store *s, int *ret_fd, struct error *reterr)
{
    auto_close int fd = memfd_create("images", MFD_CLOEXEC);
    struct list l = {.store = s, .fd = fd, .dir_fd = s->images_fd};
    if (fd < 0)
        return error_sys(reterr, errno, "list the images");
    (void)pthread_mutex_lock(&s->lock);
    int r = image_dir_each(s->names_fd, list_name, &l);
    if (r == 0)
        r = image_dir_each(s->images_fd, list_image, &l);
    if (r == 0 && !s->plain_is_ours) {
        l.dir_fd = s->plain_fd;
        l.plain_only = true;
        r = image_dir_each(s->plain_fd, list_image, &l);
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (r < 0)
        return error_sys(reterr, -r, "list the images");
    *ret_fd = take_fd(fd);
    return 0;
}

struct nameless {
    struct image_store *store;
    char (*ret)[IMAGE_NAME_MAX + 1];
    size_t count, max;
    const char *id; /* being looked for */
    bool named;
};

static int is_named(const char *file, void *arg)
{
    struct nameless *n = arg;
    char id[IMAGE_NAME_MAX + 1];
    n->named = n->named || (image_of(n->store, file, id) && strcmp(id, n->id) == 0);
    return n->named ? -EEXIST : 0;
}

static int look_for_name(const char *name, void *arg)
{
    struct nameless *n = arg;
    if (n->count == n->max || !keeper_image_name_ok(name) || !image_exists(n->store, name))
        return 0;
    n->id = name;
    n->named = false;
    (void)image_dir_each(n->store->names_fd, is_named, n);
    if (!n->named)
        (void)snprintf(n->ret[n->count++], sizeof n->ret[0], "%s", name);
    return 0;
}

size_t image_store_nameless(struct image_store *s, char (*ret)[IMAGE_NAME_MAX + 1], size_t max)
{
    struct nameless n = {.store = s, .ret = ret, .max = max};
    (void)image_dir_each(s->images_fd, look_for_name, &n);
    return n.count;
}
