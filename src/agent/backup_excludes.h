/* SPDX-License-Identifier: Apache-2.0 */
/* backup_excludes.h: the list file that tells mksquashfs (-wildcards -ef) what to leave out. */
#pragma once

#include "base/buf.h"

/* Lines as they go into the file; the buffer's limit bounds the list. */
struct backup_excludes {
    struct buf lines;
    char **seen; /* normalised patterns, each once */
    size_t seen_count;
};

enum { BACKUP_EXCLUDES_MAX = 4096, BACKUP_EXCLUDES_BYTES = 64 << 20 };

void backup_excludes_init(struct backup_excludes *x);
void backup_excludes_done(struct backup_excludes *x);

/* A user's glob, normalised and written for the top of the directory and for any depth below it. Patterns of
 * which nothing remains, and repeated ones, are skipped. 0, -EINVAL (a newline), -E2BIG (too many), -ENOBUFS
 * or -ENOMEM. */
int backup_excludes_pattern(struct backup_excludes *x, const char *pattern);
/* A path that git ignores, relative to the directory; special characters in it are meant literally. */
int backup_excludes_path(struct backup_excludes *x, const char *path, size_t n);
