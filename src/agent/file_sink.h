/* SPDX-License-Identifier: Apache-2.0 */
/* file_sink.h: writing a file so that it is never left half-written.
 *
 * Two ways lead to that. What can be written in one go (FILE_PUT_MAX) is written into the file itself, as the
 * protocol says, once the space it needs is reserved: inode, links, owner, mode and attributes stay, and no
 * other request runs in between. Everything longer goes to a file aside, in the same directory, which takes
 * over owner, mode and extended attributes of the old one and then its name, by rename.
 *
 * Where aside is not possible (the file has several names, the directory cannot be written or is no real one)
 * the file is truncated and written in place; then, and only then, a failure half-way shows. A file that is a
 * mount point can be written up to FILE_PUT_MAX, beyond that it is busy. */
#pragma once

#include "base/util.h"

#include <limits.h>
#include <sys/stat.h>

enum {
    FILE_PUT_MAX = 1 << 20,
    FILE_MODE_NEW = 0644, /* under the umask */
    FILE_MODE_NEW_DIR = 0755,
};

#define FILE_SINK_TEMP_PREFIX ".silica-"
/* True for the name of a file aside (for whoever watches directories). */
bool file_sink_is_temp(const char *name);
/* A fresh name of that kind. */
#define FILE_SINK_TEMP_SIZE (sizeof FILE_SINK_TEMP_PREFIX + 12)
void file_sink_temp_name(char out[FILE_SINK_TEMP_SIZE]);

/* Makes the missing directories above path. 0 or -errno. */
int file_make_parents(const char *path);

/* Writes n <= FILE_PUT_MAX bytes at once; missing parents are made. 0 or -errno and the file is as it was. */
int file_put(const char *path, const void *data, size_t n);

struct file_sink {
    bool is_open;
    int fd;
    int dir;                        /* of the target; -1: written in place */
    char name[NAME_MAX + 1];        /* of the target in dir */
    char temp[FILE_SINK_TEMP_SIZE]; /* of the file aside */
    uint64_t written;
    bool existed;
};

/* For content in pieces. total: how long it will be, -1: unknown. mode: of the new file, -1: the old one's or
 * the default. Missing parents are made. */
int file_sink_open(struct file_sink *s, const char *path, int64_t total, int mode);
int file_sink_write(struct file_sink *s, const void *data, size_t n); /* blocks for as long as n takes */
int file_sink_commit(struct file_sink *s);                            /* closes; on failure as abort */
void file_sink_abort(struct file_sink *s);                            /* fine when zeroed or closed */
