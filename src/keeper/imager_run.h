/* SPDX-License-Identifier: Apache-2.0 */
/* imager_run.h: running one image worker: starting it in its cage, answering its questions, taking what it
 * made. */
#pragma once

#include "image/imager.h"
#include "keeper/image_store.h"
#include "keeper/sandbox.h"

#include <stdatomic.h>

enum { IMAGER_MADE_MAX = 16, IMAGER_NAMES_MAX = 16, IMAGER_TREES_MAX = IMAGE_LAYERS_MAX + 1 };

struct imager_run {
    /* what to do */
    struct keeper_env *env;
    unsigned slot; /* whose ids it gets */
    struct imager_boot boot;
    int stream_fd, doc_fd, changes_fd; /* -1: none; stay the caller's */
    /* SAVE, EXPORT: the image; and for SAVE the disk of the sandbox, 0: none */
    char image[IMAGE_NAME_MAX + 1];
    uint64_t disk;
    bool disk_shared;                        /* a running sandbox has it mounted */
    char reference[IMAGE_REFERENCE_MAX + 1]; /* of the first image that is made; "": the archive's own */

    /* how it goes; may be read by another thread */
    _Atomic uint64_t bytes;
    _Atomic uint32_t layer, layers;

    /* what came of it */
    char made[IMAGER_MADE_MAX][IMAGE_NAME_MAX + 1];
    size_t made_count;
    enum keeper_image_why why;

    int pidfd; /* while it runs; guarded by the lock of whoever wants to end it */
    void *lock;
};

/* On a thread that has called host_worker_start; blocks until the worker has ended. */
int imager_run(struct imager_run *run, struct error *reterr);
