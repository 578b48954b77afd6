/* SPDX-License-Identifier: Apache-2.0 */
/* image_store.h: where images are kept: <data>/layers, images, names, staging.
 *
 *   layers/<sha256 of the unpacked archive>/tree, size   shared by images
 *   images/<id>/layers, config.json, run                 plain directories such as base may lie beside them
 *   names/<reference>                                    a symbolic link with the image's id in it
 *   staging/<n>                                          what is half made or half removed; emptied at start
 *
 * Everything is made in staging and renamed into place, so that it is there whole or not at all. All calls
 * may block on the disk: worker threads, except where said. */
#pragma once

#include "base/error.h"
#include "keeper/proto_image.h"

struct image_store;
struct image_pins; /* layers that an operation counts on: they are not collected while it runs */

enum { STAGING_NAME = 24 };

int image_store_open(const char *data_dir, int plain_fd, struct image_store **ret, struct error *reterr);
void image_store_free(struct image_store *s); /* NULL is fine */
int image_store_layers_fd(const struct image_store *s);
int image_store_images_fd(const struct image_store *s);
/* Removes what was taken out, and what an earlier keeper left half done. */
void image_store_clean(struct image_store *s);

/* An empty directory, mode 0700. */
int image_staging_make(struct image_store *s, char ret_name[STAGING_NAME], int *ret_fd, struct error *reterr);
void image_staging_remove(struct image_store *s, const char *name);

int image_pins_new(struct image_store *s, struct image_pins **ret, struct error *reterr);
void image_pins_free(struct image_pins *p); /* NULL is fine */

/* True: the layer is there, and will be as long as the pins are. */
bool image_layer_have(struct image_pins *p, const char *hex, uint64_t *ret_bytes);
/* Moves "layer" of the staging directory into the store. */
int image_layer_take(struct image_pins *p, int staging_fd, const char *hex, uint64_t bytes,
                     struct error *reterr);

/* Moves config.json and run of the staging directory into the store; list: the text of the file "layers". An
 * image that is there already stays as it is. */
int image_put(struct image_store *s, int staging_fd, const char *id, const char *list, struct error *reterr);
bool image_exists(const struct image_store *s, const char *id); /* in the store; quick */
/* Out of everybody's sight at once, with its names; quick: for the loop, where nobody can begin to use it
 * meanwhile. -EPERM: a plain directory is not ours to remove. */
int image_take_out(struct image_store *s, const char *id, struct error *reterr);

int image_name_set(struct image_store *s, const char *reference, const char *id, struct error *reterr);
int image_name_remove(struct image_store *s, const char *reference, struct error *reterr);

/* The struct keeper_image_record of everything, in a memfd. */
int image_store_list(struct image_store *s, int *ret_fd, struct error *reterr);
/* Calls found(id) for every image of the store without a name; up to max of them. */
size_t image_store_nameless(struct image_store *s, char (*ret)[IMAGE_NAME_MAX + 1], size_t max);
/* Takes out layers that no image has; image_store_clean removes them. */
int image_store_collect(struct image_store *s, uint32_t *ret_layers, uint64_t *ret_bytes,
                        struct error *reterr);
