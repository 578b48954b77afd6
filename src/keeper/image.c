/* SPDX-License-Identifier: Apache-2.0 */
/* image.c: see image.h. */
#include "keeper/image.h"
#include "keeper/mount_util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { ENV_FILE_MAX = 64 << 10 };

static bool name_is_plain(const char *name)
{
    if (!name[0] || name[0] == '.')
        return false;
    for (const char *p = name; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || *p == '.' || *p == '_' || *p == '-'))
            return false;
    return true;
}

static int read_env(int dir, struct image *i, struct error *reterr)
{
    auto_close int fd = open_beneath(dir, "env", O_RDONLY);
    struct stat st;
    if (fd == -ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > ENV_FILE_MAX)
        return error_set(reterr, EIO, "the image's environment file cannot be read");
    i->env_text = calloc(1, (size_t)st.st_size + 1);
    if (!i->env_text)
        return error_sys(reterr, ENOMEM, "read the image's environment");
    if (read(fd, i->env_text, (size_t)st.st_size) != (ssize_t)st.st_size)
        return error_set(reterr, EIO, "the image's environment file cannot be read");
    size_t n = 0;
    char *save = NULL;
    for (char *line = strtok_r(i->env_text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (!strchr(line, '='))
            continue;
        if (n == IMAGE_ENV_MAX)
            return error_set(reterr, E2BIG, "the image sets more than %d variables", IMAGE_ENV_MAX);
        i->env[n++] = line;
    }
    return 0;
}

int image_open(int images_dir_fd, const char *name, struct image *ret, struct error *reterr)
{
    *ret = (struct image){.root_fd = -1};
    if (!name_is_plain(name))
        return error_set(reterr, ENOENT, "'%s' is not the name of an image", name);
    auto_close int dir = open_beneath(images_dir_fd, name, O_PATH | O_DIRECTORY);
    if (dir < 0)
        return error_set(reterr, ENOENT, "there is no image '%s'", name);
    auto_close int root = open_beneath(dir, "rootfs", O_PATH | O_DIRECTORY);
    if (root < 0)
        return error_set(reterr, ENOENT, "the image '%s' is not complete", name);
    int r = read_env(dir, ret, reterr);
    if (r < 0) {
        image_done(ret);
        return r;
    }
    ret->root_fd = take_fd(root);
    return 0;
}

void image_done(struct image *i)
{
    close_fd(&i->root_fd);
    free(i->env_text);
    i->env_text = NULL;
    i->env[0] = NULL;
}
