/* SPDX-License-Identifier: Apache-2.0 */
/* tree_remove.c: see tree_remove.h.
 *
 * A directory that is not empty is first moved up, beside the one that is being emptied; so no path ever gets
 * longer than two parts, and depth costs nothing. The tree is nobody's any more, so nobody sees it change
 * shape. */
#include "keeper/tree_remove.h"
#include "base/id.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { ROUNDS_MAX = 1 << 24, NAME_CHARS = 16 };

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Empties the directory; what is not empty in it goes to top under a new name. */
static int empty_dir(int top, int dir, struct error *reterr)
{
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    int r = 0;
    if (!d) {
        r = error_sys(reterr, errno, "remove a directory");
        close_fd(&copy);
        return r;
    }
    for (struct dirent *e; r == 0 && (e = readdir(d));) {
        char name[NAME_CHARS + 3] = "x-";
        if (is_dots(e->d_name) || unlinkat(dir, e->d_name, 0) == 0 || errno == ENOENT)
            continue;
        if (errno != EISDIR && errno != EPERM)
            r = error_sys(reterr, errno, "remove a file");
        else if (unlinkat(dir, e->d_name, AT_REMOVEDIR) < 0) {
            random_name(name + 2, NAME_CHARS);
            if (renameat(dir, e->d_name, top, name) < 0)
                r = error_sys(reterr, errno, "remove a directory");
        }
    }
    (void)closedir(d);
    return r;
}

/* Any directory in top, or -ENOENT. */
static int first_of(int top, char *ret, size_t cap)
{
    int copy = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    int r = -ENOENT;
    if (!d) {
        close_fd(&copy);
        return -errno;
    }
    for (struct dirent *e; r < 0 && (e = readdir(d));)
        if (!is_dots(e->d_name)) {
            (void)snprintf(ret, cap, "%s", e->d_name);
            r = 0;
        }
    (void)closedir(d);
    return r;
}

int tree_remove(int dir_fd, const char *name, struct error *reterr)
{
    char inner[256];
    if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT || unlinkat(dir_fd, name, AT_REMOVEDIR) == 0)
        return 0;
    auto_close int top = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (top < 0)
        return error_sys(reterr, errno, "remove a directory");
    for (int round = 0; round < ROUNDS_MAX && first_of(top, inner, sizeof inner) == 0; round++) {
        if (unlinkat(top, inner, 0) == 0)
            continue;
        auto_close int dir = openat(top, inner, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int r = dir < 0 ? error_sys(reterr, errno, "remove a directory") : empty_dir(top, dir, reterr);
        if (r == 0 && unlinkat(top, inner, AT_REMOVEDIR) < 0)
            r = error_sys(reterr, errno, "remove a directory");
        if (r < 0)
            return r;
    }
    return unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 ? error_sys(reterr, errno, "remove a directory") : 0;
}
