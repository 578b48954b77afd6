/* SPDX-License-Identifier: Apache-2.0 */
/* origin.c: see origin.h. */
#include "agent/origin.h"
#include "agent/shell_files.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MAX = 16, MAPS_MAX = 16 * 1024 }; /* bash has five or six, in 3 KiB */

struct file {
    const char *path;
    struct stat st;
};

struct origin {
    bool elsewhere; /* not all of it is in /usr, /bin or /lib* */
    size_t count;
    struct file files[FILES_MAX];
    char maps[]; /* where the paths are */
};

/* What the dynamic linker adds to every program; the image has none of it. */
static const char preload[] = "/etc/ld.so.preload";

static ssize_t read_maps(pid_t pid, char *text, size_t size)
{
    char path[32];
    size_t len = 0;
    ssize_t n = -1;
    (void)snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && len < size && (n = read(fd, text + len, size - len)) > 0)
        len += (size_t)n;
    return n == 0 ? (ssize_t)len : -1; /* a longer one is not read to its end */
}

static bool known(const struct origin *o, const char *path)
{
    for (size_t i = 0; i < o->count; i++)
        if (strcmp(o->files[i].path, path) == 0)
            return true;
    return false;
}

static bool add_file(struct origin *o, const char *path)
{
    if (known(o, path))
        return true;
    if (o->count == FILES_MAX)
        return false;
    struct file *f = &o->files[o->count++];
    f->path = path;
    if (strncmp(path, "/usr/", 5) != 0 && strncmp(path, "/bin/", 5) != 0 && strncmp(path, "/lib", 4) != 0)
        o->elsewhere = true;
    return stat(path, &f->st) == 0;
}

/* A line is six columns, the last of which is a path, or [what is no file], or nothing. */
static bool add_line(struct origin *o, const char *line)
{
    const char *path = strchr(line, '/');
    return !path || add_file(o, path);
}

struct origin *origin_of(pid_t pid)
{
    struct origin *o = calloc(1, sizeof *o + MAPS_MAX + 1);
    ssize_t len = o ? read_maps(pid, o->maps, MAPS_MAX) : -1;
    char *save = NULL;
    bool good = len > 0;
    if (good)
        o->maps[len] = '\0';
    for (char *line = good ? strtok_r(o->maps, "\n", &save) : NULL; line && good;
         line = strtok_r(NULL, "\n", &save))
        good = add_line(o, line);
    /* which of the two it is depends on the usual one */
    if (good && o->count && add_file(o, AGENT_BASH))
        return o;
    free(o);
    return NULL;
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* Whatever was written or put in its place has another time of change. The device is another one, always. */
static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size && same_time(a->st_mtim, b->st_mtim) &&
           same_time(a->st_ctim, b->st_ctim);
}

bool origin_unchanged(const struct origin *o, bool pristine)
{
    struct stat st;
    if (!o)
        return false;
    if (pristine && !o->elsewhere)
        return true; /* a look at each name takes long in a root that nobody has used yet */
    if (access(preload, F_OK) == 0 || errno != ENOENT)
        return false;
    for (size_t i = 0; i < o->count; i++)
        if (stat(o->files[i].path, &st) < 0 || !same_file(&st, &o->files[i].st))
            return false;
    return true;
}

void origin_free(struct origin *o)
{
    free(o);
}
