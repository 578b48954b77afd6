/* SPDX-License-Identifier: Apache-2.0 */
/* file_source.h: a regular file opened for reading, and what kind of file it is. */
#pragma once

#include "base/util.h"

#include <sys/stat.h>

enum { FILE_READ_MAX = 32 << 20 }; /* of a buffered read, and of a file that does not tell its size */

struct file_source {
    bool is_open;
    int fd;
    struct stat st;
    bool sized; /* false: a pseudo file, which says 0 and has content all the same */
    const char *mime;
};

/* Symlinks are followed; anything but a regular file is -ENOENT, without being opened. name (the path as the
 * client knows it) decides on the type before the content does. */
int file_source_open(struct file_source *s, const char *path, const char *name);
void file_source_close(struct file_source *s); /* fine when zeroed or closed */

/* At most n bytes at the offset, as many as there are; 0 at the end. */
ssize_t file_source_read(const struct file_source *s, void *data, size_t n, uint64_t offset);
