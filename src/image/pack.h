/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h: a directory tree (an overlay's upper or lower layer) as the entries of a layer's archive, in an
 * order that depends on the names alone. */
#pragma once

#include "image/layer_write.h"

struct pack_ops {
    /* One entry; data gives the content of a file, e->size bytes. */
    int (*entry)(void *arg, const struct tar_entry *e, layer_data *data, void *data_arg,
                 struct error *reterr);
    /* Whether dir_fd hides what the layers below have: 1, 0, or -errno. */
    int (*is_opaque)(void *arg, int dir_fd, struct error *reterr);
    void *arg;
    uint64_t entries_left;
};

/* tree_fd: open for reading. The root comes first, as "./". Sockets are left out. */
int pack_tree(int tree_fd, struct pack_ops *ops, struct error *reterr);
