/* SPDX-License-Identifier: Apache-2.0 */
/* image.c: see image.h.
 *
 * A plain image is a directory with a tree (rootfs) and its variables (env, one K=V a line). An image of the
 * store has a list of layers instead, written by the keeper, and a file "run" with the strings that a sandbox
 * gets, written by the image worker: working directory, user, K=V, ..., each with a NUL behind it. They are
 * taken as they are. A list may begin with a plain image, which is named with what identified its tree when
 * the list was made: a layer is what changed against one tree and makes no sense on another. */
#include "keeper/image.h"
#include "keeper/image_store.h"
#include "keeper/mount_util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { ENV_FILE_MAX = 64 << 10, RUN_FILE_MAX = 512 << 10, LIST_FILE_MAX = 16 << 10 };

/* A whole file with a NUL behind it; -ENOENT: there is none. */
static int read_small(int dir, const char *name, size_t max, char **ret, size_t *ret_len)
{
    auto_close int fd = open_beneath(dir, name, O_RDONLY);
    struct stat st;
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size > max)
        return -EIO;
    auto_free char *text = calloc(1, (size_t)st.st_size + 1);
    if (!text)
        return -ENOMEM;
    if (read(fd, text, (size_t)st.st_size) != (ssize_t)st.st_size)
        return -EIO;
    *ret_len = (size_t)st.st_size;
    *ret = take_ptr(text);
    return 0;
}

static int add_variable(struct image *i, size_t *n, char *text, struct error *reterr)
{
    if (!strchr(text, '='))
        return 0;
    if (*n == IMAGE_ENV_MAX)
        return error_set(reterr, E2BIG, "the image sets more than %d variables", IMAGE_ENV_MAX);
    i->env[(*n)++] = text;
    return 0;
}

static int read_env(int dir, struct image *i, struct error *reterr)
{
    size_t len, n = 0;
    int r = read_small(dir, "env", ENV_FILE_MAX, &i->run_text, &len);
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return error_set(reterr, EIO, "the image's environment file cannot be read");
    char *save = NULL;
    for (char *line = strtok_r(i->run_text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if ((r = add_variable(i, &n, line, reterr)) < 0)
            return r;
    return 0;
}

static int read_run(int dir, struct image *i, struct error *reterr)
{
    size_t len, n = 0, which = 0;
    if (read_small(dir, "run", RUN_FILE_MAX, &i->run_text, &len) < 0)
        return error_set(reterr, EIO, "the image's settings cannot be read");
    for (char *p = i->run_text; p < i->run_text + len; p += strlen(p) + 1, which++) {
        int r = 0;
        if (which == 0)
            i->workdir = p;
        else if (which == 1)
            i->user = p;
        else
            r = add_variable(i, &n, p, reterr);
        if (r < 0)
            return r;
    }
    return 0;
}

int image_identity(int root_fd, char ret[IMAGE_IDENTITY + 1], struct error *reterr)
{
    struct statx sx;
    if (statx(root_fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &sx) < 0)
        return error_sys(reterr, errno, "identify a tree");
    uint64_t born =
        sx.stx_mask & STATX_BTIME ? (uint64_t)sx.stx_btime.tv_sec << 20 ^ sx.stx_btime.tv_nsec : 0;
    (void)snprintf(ret, IMAGE_IDENTITY + 1, "%016llx%016llx", (unsigned long long)sx.stx_ino,
                   (unsigned long long)born);
    return 0;
}

static int open_plain(int plain_fd, const char *name, struct image *i, int *ret_dir, struct error *reterr)
{
    auto_close int dir = open_beneath(plain_fd, name, O_PATH | O_DIRECTORY);
    if (dir < 0)
        return error_set(reterr, ENOENT, "there is no image '%s'", name);
    i->root_fd = open_beneath(dir, "rootfs", O_PATH | O_DIRECTORY);
    if (i->root_fd < 0)
        return error_set(reterr, ENOENT, "the image '%s' is not complete", name);
    (void)snprintf(i->bottom, sizeof i->bottom, "%s", name);
    *ret_dir = take_fd(dir);
    return 0;
}

/* "image:NAME@IDENTITY" */
static int open_bottom(int plain_fd, const char *line, struct image *i, struct error *reterr)
{
    char name[IMAGE_NAME_MAX + 1], identity[IMAGE_IDENTITY + 1];
    auto_close int dir = -1;
    const char *at = strchr(line, '@');
    size_t n = at ? (size_t)(at - line) : 0;
    if (n == 0 || n > IMAGE_NAME_MAX)
        return error_set(reterr, EIO, "the image's list of layers is damaged");
    memcpy(name, line, n);
    name[n] = '\0';
    if (!keeper_image_name_ok(name))
        return error_set(reterr, EIO, "the image's list of layers is damaged");
    int r = open_plain(plain_fd, name, i, &dir, reterr);
    if (r == 0)
        r = image_identity(i->root_fd, identity, reterr);
    if (r == 0 && strcmp(identity, at + 1) != 0)
        return error_set(reterr, ESTALE, "the image stands on '%s', which was rebuilt since: make it anew",
                         name);
    return r;
}

static int read_list(const struct image_store *store, int plain_fd, char *text, struct image *i,
                     struct error *reterr)
{
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, "image:", 6) == 0 && i->layer_count == 0 && i->root_fd < 0) {
            int r = open_bottom(plain_fd, line + 6, i, reterr);
            if (r < 0)
                return r;
            continue;
        }
        if (strncmp(line, "sha256:", 7) != 0 || strlen(line + 7) != IMAGE_LAYER_HEX ||
            strspn(line + 7, "0123456789abcdef") != IMAGE_LAYER_HEX || i->layer_count == IMAGE_LAYERS_MAX)
            return error_set(reterr, EIO, "the image's list of layers is damaged");
        memcpy(i->layers[i->layer_count++], line + 7, IMAGE_LAYER_HEX + 1);
    }
    if (i->layer_count)
        i->layers_fd = fcntl(image_store_layers_fd(store), F_DUPFD_CLOEXEC, 3);
    if (i->layer_count && i->layers_fd < 0)
        return error_sys(reterr, errno, "open the image's layers");
    return i->layer_count || i->root_fd >= 0 ? 0 : error_set(reterr, EIO, "the image has no layers");
}

static int open_any(const struct image_store *store, int plain_fd, const char *name, struct image *i,
                    struct error *reterr)
{
    auto_close int dir = store ? open_beneath(image_store_images_fd(store), name, O_PATH | O_DIRECTORY) : -1;
    auto_free char *list = NULL;
    size_t len;
    int r = dir < 0 ? -ENOENT : read_small(dir, "layers", LIST_FILE_MAX, &list, &len);
    if (r == 0) {
        r = read_list(store, plain_fd, list, i, reterr);
        return r < 0 ? r : read_run(dir, i, reterr);
    }
    if (r != -ENOENT)
        return error_set(reterr, EIO, "the image's list of layers cannot be read");
    close_fd(&dir);
    r = open_plain(plain_fd, name, i, &dir, reterr);
    return r < 0 ? r : read_env(dir, i, reterr);
}

int image_open(const struct image_store *store, int plain_fd, const char *name, struct image *ret,
               struct error *reterr)
{
    *ret = (struct image){.root_fd = -1, .layers_fd = -1, .workdir = "", .user = ""};
    if (!keeper_image_name_ok(name))
        return error_set(reterr, ENOENT, "'%s' is not the name of an image", name);
    int r = open_any(store, plain_fd, name, ret, reterr);
    if (r < 0)
        image_done(ret);
    return r;
}

void image_done(struct image *i)
{
    close_fd(&i->root_fd);
    close_fd(&i->layers_fd);
    free(i->run_text);
    i->run_text = NULL;
    i->env[0] = NULL;
}
