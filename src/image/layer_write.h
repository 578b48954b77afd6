/* SPDX-License-Identifier: Apache-2.0 */
/* layer_write.h: the entries of a layer's archive become a directory tree that can be an overlay's lower
 * layer.
 */
#pragma once

#include "image/tar_read.h"

/* The content of an entry, piece by piece: as tar_data, whose arg is the reader. */
typedef ssize_t layer_data(void *arg, void *data, size_t n, uint64_t *ret_offset, struct error *reterr);

/* What the whole operation may still use, and whom to tell. */
struct layer_env {
    uint64_t entries_left;
    uint64_t sparse_left; /* bytes that sparse files claim to have */
    /* dir_fd hides everything below it in the layers underneath; marking it takes a right we do not have */
    int (*opaque)(void *arg, int dir_fd, struct error *reterr);
    void (*progress)(void *arg, uint64_t bytes); /* now and then; may be NULL */
    void *arg;
    uint64_t devices; /* nodes that were left out */
};

struct layer_writer;

/* tree_fd: an empty directory, open for reading; stays the caller's. */
int layer_writer_new(int tree_fd, struct layer_env *env, struct layer_writer **ret, struct error *reterr);
/* -EBADMSG: the archive is hostile or contradicts itself, -E2BIG: a limit; others: the host. */
int layer_writer_put(struct layer_writer *w, const struct tar_entry *e, layer_data *data, void *arg,
                     struct error *reterr);
/* *ret_bytes: of the files' contents. */
int layer_writer_finish(struct layer_writer *w, uint64_t *ret_bytes, struct error *reterr);
void layer_writer_free(struct layer_writer *w); /* NULL is fine */

/* All entries of an archive. */
int layer_unpack(struct tar_reader *tar, int tree_fd, struct layer_env *env, uint64_t *ret_bytes,
                 struct error *reterr);
