/* SPDX-License-Identifier: Apache-2.0 */
/* file_tree.h: copying and removing whatever is at a name, a tree or not, in small steps.
 *
 * A copy keeps types, modes, owners (where permitted), times, extended attributes of users and the holes of
 * sparse files. Hard links become separate files. Symlinks are copied and removed as such, never followed. */
#pragma once

#include "agent/file_walk.h"

struct tree_remove {
    struct walk walk;
    int dir; /* borrowed */
    const char *name;
    bool walking;
    unsigned again; /* directories that were not empty after all */
};

/* dir and name must live until done. 1: call step; 0: all is done already (a file); or -errno. */
int tree_remove_begin(struct tree_remove *t, int dir, const char *name);
int tree_remove_step(struct tree_remove *t); /* one entry; 1: go on, 0: done, or -errno */
void tree_remove_done(struct tree_remove *t);

struct tree_copy {
    struct walk walk;
    int from_dir, to_dir; /* borrowed */
    const char *from_name, *to_name;
    bool walking;
    int in, out; /* the file being copied; -1: none */
    uint64_t offset, end;
    struct stat st;
    bool plain; /* copy_file_range does not work here */
};

/* to_name must not exist. Return values as above; after a failure what has been made so far is still there.
 */
int tree_copy_begin(struct tree_copy *t, int from_dir, const char *from_name, int to_dir,
                    const char *to_name);
int tree_copy_step(struct tree_copy *t); /* one entry, or a piece of a file */
void tree_copy_done(struct tree_copy *t);
