/* SPDX-License-Identifier: Apache-2.0 */
/* file_walk.h: walking a directory tree of any depth and size with bounded memory and descriptors.
 *
 * Nothing is looked up by path: each directory is opened relative to its parent, without following symlinks.
 * So the depth is not limited by PATH_MAX, and whoever exchanges directories while we walk cannot lead us
 * elsewhere. Only the innermost WALK_OPEN directories are kept open; the others are found again through "..",
 * and given up when that is another directory by now.
 *
 * A walk may carry a second tree along (the twin), which is left and found again in step: the target of a
 * copy. */
#pragma once

#include "base/buf.h"

#include <sys/stat.h>

enum { WALK_OPEN = 16, WALK_DEPTH_MAX = 65536 };

enum walk_event {
    WALK_END,   /* of the root directory */
    WALK_ENTRY, /* name in dir; walk_enter descends into it */
    WALK_LEAVE, /* the directory `name` in dir is over; left and left_twin are its descriptors until the next
                   call */
};

struct walk_level;

struct walk {
    int dir, twin;      /* of the directory that is read; -1: none (twin: not wanted) */
    const char *name;   /* of the entry or the directory just left; until the next call */
    unsigned char type; /* DT_*, of an entry */
    struct buf path;    /* of dir relative to the root, NUL behind it; empty for the root itself */
    int left, left_twin;

    /* private */
    struct walk_level *levels;
    size_t depth, cap;
    char left_name[256];
};

/* Takes both descriptors, also on failure (twin -1: none). 0 or -errno. */
int walk_open(struct walk *w, int dir, int twin);
/* An event, or -errno: the directory cannot be read on. The next call goes on behind it, as after WALK_LEAVE;
 * name is the lost directory's. */
int walk_next(struct walk *w);
/* After WALK_ENTRY (or WALK_LEAVE, to begin that directory again). Takes twin. 0 or -errno, and the walk goes
 * on. */
int walk_enter(struct walk *w, int twin);
void walk_done(struct walk *w); /* fine when zeroed */
