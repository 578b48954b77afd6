/* SPDX-License-Identifier: Apache-2.0 */
/* imager_internal.h: what the files of the image worker share. */
#pragma once

#include "image/doc.h"
#include "image/imager.h"
#include "image/layer_write.h"

struct imager {
    struct imager_boot boot;
    struct layer_env env; /* arg is the imager */
    uint64_t bytes_left;
    uint32_t layer, layers;    /* which one is at work, for PROGRESS */
    uint64_t bytes_done;       /* in layers before it */
    enum keeper_image_why why; /* of a failure that the errno does not tell */
};

/* imager.c. 0 or -errno; ret may be NULL. */
int imager_ask(const struct imager_message *m, int fd, struct imager_answer *ret, struct error *reterr);
void imager_progress(struct imager *im, uint64_t bytes);
/* Reads a whole small file. */
int imager_read_file(int fd, size_t max, struct buf *ret, struct error *reterr);
/* Writes config.json and run, and hands the image over. */
int imager_finish_image(const struct doc *d, struct error *reterr);
int imager_stack(const struct doc_layer *l, struct error *reterr);
/* The staging directory's "layer", empty. */
int imager_layer_dir(int *ret_fd, struct error *reterr);

/* imager_confine.c: gives up everything but the descriptors. */
int imager_confine(const struct imager_boot *boot, struct error *reterr);

/* One file each: import.c, save.c, export.c. */
int imager_import(struct imager *im, struct error *reterr);
int imager_save(struct imager *im, struct error *reterr);
int imager_export(struct imager *im, struct error *reterr);
