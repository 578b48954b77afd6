/* SPDX-License-Identifier: Apache-2.0 */
/* image.h: the read-only trees that sandboxes stand on. */
#pragma once

#include "base/error.h"

enum { IMAGE_ENV_MAX = 64 };

struct image {
    int root_fd;                  /* O_PATH of the tree */
    char *env_text;               /* the file "env": one K=V a line, cut into strings */
    char *env[IMAGE_ENV_MAX + 1]; /* NULL-terminated */
};

/* name: [a-z0-9._-], checked. -ENOENT with a sentence that says how to make it. */
int image_open(int images_dir_fd, const char *name, struct image *ret, struct error *reterr);
void image_done(struct image *i);
