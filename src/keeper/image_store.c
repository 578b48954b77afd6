/* SPDX-License-Identifier: Apache-2.0 */
/* image_store.c: layers and images in and out of the store; see image_store.h. Names and lists:
 * image_names.c. */
#include "base/id.h"
#include "base/log.h"
#include "keeper/image_store_internal.h"
#include "keeper/mount_util.h"
#include "keeper/tree_remove.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define GONE_PREFIX "gone-"

enum { PINS_MAX = 1024 }; /* of one operation: 16 images of an archive rarely share nothing */

struct image_pins {
    struct image_store *store;
    char (*list)[IMAGE_LAYER_HEX + 1];
    size_t count;
    struct image_pins *next, **prev;
};

static int give_up(const char *name, void *arg);

static int open_in(int data_fd, const char *name, mode_t mode, int *ret, struct error *reterr)
{
    if (mkdirat(data_fd, name, mode) < 0 && errno != EEXIST)
        return error_sys(reterr, errno, "make the directory %s", name);
    *ret = openat(data_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *ret < 0 ? error_sys(reterr, errno, "open the directory %s", name) : 0;
}

static bool same_dir(int a, int b)
{
    struct stat sa, sb;
    return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

int image_store_open(const char *data_dir, int plain_fd, struct image_store **ret, struct error *reterr)
{
    auto_close int data = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct image_store *s = calloc(1, sizeof *s);
    int r;
    if (data < 0 || !s) {
        free(s);
        return error_sys(reterr, data < 0 ? errno : ENOMEM, "open the image store");
    }
    s->layers_fd = s->images_fd = s->names_fd = s->staging_fd = -1;
    s->plain_fd = plain_fd;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_mutex_init(&s->clean_lock, NULL);
    /* layers hold files of user 0 that may be set-user-id: nobody on this host gets to them */
    if ((r = open_in(data, "layers", 0700, &s->layers_fd, reterr)) < 0 ||
        (r = open_in(data, "images", 0755, &s->images_fd, reterr)) < 0 ||
        (r = open_in(data, "names", 0755, &s->names_fd, reterr)) < 0 ||
        (r = open_in(data, "staging", 0700, &s->staging_fd, reterr)) < 0) {
        image_store_free(s);
        return r;
    }
    (void)image_dir_each(s->staging_fd, give_up, s);
    s->plain_is_ours = same_dir(s->images_fd, plain_fd);
    *ret = s;
    return 0;
}

void image_store_free(struct image_store *s)
{
    if (!s)
        return;
    close_fd(&s->layers_fd);
    close_fd(&s->images_fd);
    close_fd(&s->names_fd);
    close_fd(&s->staging_fd);
    (void)pthread_mutex_destroy(&s->lock);
    (void)pthread_mutex_destroy(&s->clean_lock);
    free(s);
}

int image_store_layers_fd(const struct image_store *s)
{
    return s->layers_fd;
}

int image_store_images_fd(const struct image_store *s)
{
    return s->images_fd;
}

int image_dir_each(int dir_fd, int (*each)(const char *name, void *arg), void *arg)
{
    int copy = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    int r = 0;
    if (!d) {
        close_fd(&copy);
        return -EIO;
    }
    for (struct dirent *e; r >= 0 && (e = readdir(d));)
        if (e->d_name[0] != '.')
            r = each(e->d_name, arg);
    (void)closedir(d);
    return r < 0 ? r : 0;
}

/* ---- staging */

int image_staging_make(struct image_store *s, char ret_name[STAGING_NAME], int *ret_fd, struct error *reterr)
{
    random_name(ret_name, STAGING_NAME - 1);
    if (mkdirat(s->staging_fd, ret_name, 0700) < 0)
        return error_sys(reterr, errno, "make a staging directory");
    *ret_fd = openat(s->staging_fd, ret_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *ret_fd < 0 ? error_sys(reterr, errno, "open a staging directory") : 0;
}

void image_staging_remove(struct image_store *s, const char *name)
{
    struct error e;
    if (tree_remove(s->staging_fd, name, &e) < 0)
        log_warn("%s; the next start tries again", e.msg);
}

void image_gone_name(char ret[STAGING_NAME])
{
    memcpy(ret, GONE_PREFIX, sizeof GONE_PREFIX);
    random_name(ret + sizeof GONE_PREFIX - 1, STAGING_NAME - sizeof GONE_PREFIX);
}

/* Left by an earlier keeper: nobody works in it. */
static int give_up(const char *name, void *arg)
{
    struct image_store *s = arg;
    char gone[STAGING_NAME];
    image_gone_name(gone);
    if (strncmp(name, GONE_PREFIX, sizeof GONE_PREFIX - 1) != 0)
        (void)renameat(s->staging_fd, name, s->staging_fd, gone);
    return 0;
}

static int remove_gone(const char *name, void *arg)
{
    if (strncmp(name, GONE_PREFIX, sizeof GONE_PREFIX - 1) == 0)
        image_staging_remove(arg, name);
    return 0;
}

void image_store_clean(struct image_store *s)
{
    (void)pthread_mutex_lock(&s->clean_lock);
    (void)image_dir_each(s->staging_fd, remove_gone, s);
    (void)pthread_mutex_unlock(&s->clean_lock);
}

/* ---- pins */

int image_pins_new(struct image_store *s, struct image_pins **ret, struct error *reterr)
{
    struct image_pins *p = calloc(1, sizeof *p);
    if (p)
        p->list = calloc(PINS_MAX, sizeof *p->list);
    if (!p || !p->list) {
        free(p);
        return error_sys(reterr, ENOMEM, "begin an image operation");
    }
    p->store = s;
    (void)pthread_mutex_lock(&s->lock);
    p->next = s->pins;
    p->prev = &s->pins;
    if (s->pins)
        s->pins->prev = &p->next;
    s->pins = p;
    (void)pthread_mutex_unlock(&s->lock);
    *ret = p;
    return 0;
}

void image_pins_free(struct image_pins *p)
{
    if (!p)
        return;
    (void)pthread_mutex_lock(&p->store->lock);
    *p->prev = p->next;
    if (p->next)
        p->next->prev = p->prev;
    (void)pthread_mutex_unlock(&p->store->lock);
    free(p->list);
    free(p);
}

/* With the lock held. */
static bool pin(struct image_pins *p, const char *hex)
{
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->list[i], hex) == 0)
            return true;
    if (p->count == PINS_MAX)
        return false;
    (void)snprintf(p->list[p->count++], sizeof p->list[0], "%s", hex);
    return true;
}

static bool pinned(const struct image_store *s, const char *hex)
{
    for (const struct image_pins *p = s->pins; p; p = p->next)
        for (size_t i = 0; i < p->count; i++)
            if (strcmp(p->list[i], hex) == 0)
                return true;
    return false;
}

/* ---- layers */

/* The worker may have made anything: a link in this place would lead the keeper away. */
static bool is_a(int dir, const char *name, mode_t kind)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && (st.st_mode & S_IFMT) == kind;
}

static int write_text(int dir, const char *name, const char *text, struct error *reterr)
{
    auto_close int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    size_t n = strlen(text);
    if (fd < 0 || write(fd, text, n) != (ssize_t)n || fsync(fd) < 0)
        return error_sys(reterr, errno ? errno : EIO, "write to the image store");
    return 0;
}

uint64_t image_layer_bytes(const struct image_store *s, const char *hex)
{
    char path[IMAGE_LAYER_HEX + 8], text[24] = "";
    unsigned long long v = 0;
    (void)snprintf(path, sizeof path, "%s/size", hex);
    auto_close int fd = open_beneath(s->layers_fd, path, O_RDONLY);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0 || sscanf(text, "%llu", &v) != 1)
        return 0;
    return v;
}

bool image_layer_have(struct image_pins *p, const char *hex, uint64_t *ret_bytes)
{
    struct image_store *s = p->store;
    struct stat st;
    (void)pthread_mutex_lock(&s->lock);
    bool have =
        fstatat(s->layers_fd, hex, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) && pin(p, hex);
    (void)pthread_mutex_unlock(&s->lock);
    *ret_bytes = have ? image_layer_bytes(s, hex) : 0;
    return have;
}

int image_layer_take(struct image_pins *p, int staging_fd, const char *hex, uint64_t bytes,
                     struct error *reterr)
{
    struct image_store *s = p->store;
    char name[STAGING_NAME], text[24];
    auto_close int dir = -1;
    int r = image_staging_make(s, name, &dir, reterr);
    if (r < 0)
        return r;
    (void)snprintf(text, sizeof text, "%llu\n", (unsigned long long)bytes);
    r = write_text(dir, "size", text, reterr);
    if (r == 0 && renameat(staging_fd, "layer", dir, "tree") < 0)
        r = error_sys(reterr, errno, "take a layer");
    if (r == 0 && !is_a(dir, "tree", S_IFDIR))
        r = error_set(reterr, EBADMSG, "the worker gave a layer that is no directory");
    /* a layer counts as complete from the rename on, also after a loss of power */
    if (r == 0 && (fchmod(dir, 0755) < 0 || syncfs(dir) < 0))
        r = error_sys(reterr, errno, "write a layer to the disk");
    if (r == 0) {
        (void)pthread_mutex_lock(&s->lock);
        if (!pin(p, hex))
            r = error_set(reterr, E2BIG, "one operation can have %d layers", PINS_MAX);
        else if (renameat(s->staging_fd, name, s->layers_fd, hex) < 0 && errno != EEXIST &&
                 errno != ENOTEMPTY)
            r = error_sys(reterr, errno, "take a layer");
        (void)pthread_mutex_unlock(&s->lock);
    }
    if (r == 0 && fsync(s->layers_fd) < 0)
        r = error_sys(reterr, errno, "write a layer to the disk");
    image_staging_remove(s, name); /* nothing, unless it failed or somebody else was faster */
    return r;
}

/* ---- images */

bool image_exists(const struct image_store *s, const char *id)
{
    char path[IMAGE_NAME_MAX + 16];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/layers", id);
    return fstatat(s->images_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

int image_put(struct image_store *s, int staging_fd, const char *id, const char *list, struct error *reterr)
{
    static const char *const files[] = {"config.json", "run"};
    char name[STAGING_NAME];
    auto_close int dir = -1;
    if (image_exists(s, id))
        return 0;
    int r = image_staging_make(s, name, &dir, reterr);
    if (r < 0)
        return r;
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(files); i++) {
        if (renameat(staging_fd, files[i], dir, files[i]) < 0)
            r = error_sys(reterr, errno, "take an image");
        if (r == 0 && !is_a(dir, files[i], S_IFREG))
            r = error_set(reterr, EBADMSG, "the worker gave something that is no file");
        auto_close int fd = r < 0 ? -1 : open_beneath(dir, files[i], O_RDONLY);
        if (r == 0 && (fd < 0 || fsync(fd) < 0))
            r = error_sys(reterr, EIO, "take an image");
    }
    if (r == 0)
        r = write_text(dir, "layers", list, reterr);
    if (r == 0 && (fchmod(dir, 0755) < 0 || fsync(dir) < 0))
        r = error_sys(reterr, errno, "take an image");
    (void)pthread_mutex_lock(&s->lock);
    if (r == 0 && renameat(s->staging_fd, name, s->images_fd, id) < 0 && errno != EEXIST &&
        errno != ENOTEMPTY)
        r = error_sys(reterr, errno, "take an image");
    (void)pthread_mutex_unlock(&s->lock);
    if (r == 0 && fsync(s->images_fd) < 0)
        r = error_sys(reterr, errno, "take an image");
    image_staging_remove(s, name);
    return r;
}

/* ---- layers that nobody has any more */

struct marks {
    struct image_store *store;
    char (*layers)[IMAGE_LAYER_HEX + 1]; /* of all images, sorted */
    size_t count, cap;
    uint32_t removed;
    uint64_t bytes;
    int err;
};

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* An image whose list cannot be read keeps everything: better too much than a hole. */
static int mark_image(const char *name, void *arg)
{
    struct marks *m = arg;
    char path[IMAGE_NAME_MAX + 16];
    if (strlen(name) > IMAGE_NAME_MAX)
        return 0;
    (void)snprintf(path, sizeof path, "%s/layers", name);
    auto_close int fd = open_beneath(m->store->images_fd, path, O_RDONLY);
    if (fd == -ENOENT)
        return 0;
    FILE *f = fd < 0 ? NULL : fdopen(take_fd(fd), "r");
    if (!f)
        return -EIO;
    char line[160];
    int r = 0;
    while (r == 0 && fgets(line, sizeof line, f)) {
        if (strncmp(line, "sha256:", 7) != 0 || strlen(line) != 8 + IMAGE_LAYER_HEX)
            continue;
        if (m->count == m->cap) {
            size_t cap = m->cap ? m->cap * 2 : 256;
            void *more = realloc(m->layers, cap * sizeof *m->layers);
            if (!more)
                r = -ENOMEM;
            else
                m->layers = more, m->cap = cap;
        }
        if (r == 0) {
            memcpy(m->layers[m->count], line + 7, IMAGE_LAYER_HEX);
            m->layers[m->count++][IMAGE_LAYER_HEX] = '\0';
        }
    }
    (void)fclose(f);
    return r;
}

static int sweep_layer(const char *name, void *arg)
{
    struct marks *m = arg;
    struct image_store *s = m->store;
    char key[IMAGE_LAYER_HEX + 1] = "", gone[STAGING_NAME];
    (void)snprintf(key, sizeof key, "%s", name);
    if (strlen(name) != IMAGE_LAYER_HEX || pinned(s, key) ||
        (m->count && bsearch(key, m->layers, m->count, sizeof *m->layers, by_text)))
        return 0;
    uint64_t bytes = image_layer_bytes(s, name);
    image_gone_name(gone);
    if (renameat(s->layers_fd, name, s->staging_fd, gone) < 0) {
        m->err = errno;
        return 0;
    }
    m->removed++;
    m->bytes += bytes;
    return 0;
}

int image_store_collect(struct image_store *s, uint32_t *ret_layers, uint64_t *ret_bytes,
                        struct error *reterr)
{
    struct marks m = {.store = s};
    (void)pthread_mutex_lock(&s->lock);
    int r = image_dir_each(s->images_fd, mark_image, &m);
    if (r == 0) {
        if (m.count)
            qsort(m.layers, m.count, sizeof *m.layers, by_text);
        r = image_dir_each(s->layers_fd, sweep_layer, &m);
    }
    (void)pthread_mutex_unlock(&s->lock);
    free(m.layers);
    *ret_layers = m.removed;
    *ret_bytes = m.bytes;
    if (r < 0 || m.err)
        return error_sys(reterr, r < 0 ? -r : m.err, "remove layers that no image has");
    return 0;
}
