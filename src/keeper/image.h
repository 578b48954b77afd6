/* SPDX-License-Identifier: Apache-2.0 */
/* image.h: the read-only trees that sandboxes stand on. */
#pragma once

#include "base/error.h"
#include "keeper/proto_image.h"

enum { IMAGE_ENV_MAX = 512, IMAGE_IDENTITY = 32, IMAGE_LAYER_HEX = 64 };

struct image_store;

struct image {
    int root_fd;                     /* O_PATH of a plain tree, below everything else; -1: there is none */
    char bottom[IMAGE_NAME_MAX + 1]; /* whose tree that is */
    int layers_fd;                   /* O_PATH of the directory of layers: "<hex>/tree"; -1: there are none */
    char layers[IMAGE_LAYERS_MAX][IMAGE_LAYER_HEX + 1]; /* from the bottom up */
    size_t layer_count;
    char *run_text;               /* what the strings below point into */
    const char *workdir, *user;   /* "": not set */
    char *env[IMAGE_ENV_MAX + 1]; /* K=V, NULL-terminated */
};

/* name: of an image in the store (which may be NULL), or of a directory with a tree in plain_fd. -ENOENT with
 * a sentence; -ESTALE: the directory it stands on was rebuilt. */
int image_open(const struct image_store *store, int plain_fd, const char *name, struct image *ret,
               struct error *reterr);
void image_done(struct image *i);

/* What tells a tree from one that is built in its place later. */
int image_identity(int root_fd, char ret[IMAGE_IDENTITY + 1], struct error *reterr);
