/* SPDX-License-Identifier: Apache-2.0 */
/* image_store_internal.h: what the files of the image store share. */
#pragma once

#include "keeper/image.h"
#include "keeper/image_store.h"

#include <pthread.h>

struct image_store {
    int layers_fd, images_fd, names_fd, staging_fd;
    int plain_fd;         /* the caller's */
    bool plain_is_ours;   /* the plain images lie in images_fd, too */
    pthread_mutex_t lock; /* what becomes visible or invisible does so while it is held */
    pthread_mutex_t clean_lock;
    struct image_pins *pins;
};

/* Calls each(name, arg) for every name in the directory that does not begin with a dot, until it returns < 0.
 */
int image_dir_each(int dir_fd, int (*each)(const char *name, void *arg), void *arg);
/* A name in staging for what is to be removed. */
void image_gone_name(char ret[STAGING_NAME]);
/* The file's content as a number; 0 when there is none. */
uint64_t image_layer_bytes(const struct image_store *s, const char *hex);
