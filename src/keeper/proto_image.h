/* SPDX-License-Identifier: Apache-2.0 */
/* proto_image.h: the part of the messages between gateway and keeper that is about images; see proto.h.
 *
 * Images are named by id (64 hexadecimal digits, or the name of a plain directory such as "base") or by
 * reference: "app:1.0", "cloudflare-dev/sandbox:1a2b3c4d". The keeper sees only whole references: every
 * reference has a tag. */
#pragma once

#include "base/util.h"

enum {
    IMAGE_NAME_MAX = 64,
    IMAGE_REFERENCE_MAX = 255,
    IMAGE_LAYERS_MAX = 128, /* the kernel takes 500 lower layers, container engines make 127 */
    IMAGE_OPERATIONS_MAX = 4,
};

/* What goes with a request of type KEEPER_IMAGE_*; all zero in others. */
struct keeper_image_ask {
    char reference[IMAGE_REFERENCE_MAX + 1]; /* IMPORT, SAVE: the new image's, may be ""; TAG, UNTAG */
    uint32_t plain;                          /* EXPORT: 1: layers are not compressed */
    uint32_t reserved;                       /* 0 */
};

/* What goes with a reply to one; all zero in others. */
struct keeper_image_tell {
    char image[IMAGE_NAME_MAX + 1];
    char unused[7];
    uint64_t bytes; /* PROGRESS: done so far; PRUNE, REMOVE: given back */
    uint32_t layers,
        layer;    /* PROGRESS: how many there are, which one is at work; PRUNE, REMOVE: layers removed */
    uint32_t why; /* enum keeper_image_why, when error != 0 */
    uint32_t reserved;
};

/* The list of images, one behind the other: names first. */
struct keeper_image_record {
    char image[IMAGE_NAME_MAX + 1];
    char reference[IMAGE_REFERENCE_MAX + 1]; /* a name of that image; "": the image itself */
    char unused[7];
    uint64_t bytes;   /* of its layers; a plain directory's are not counted */
    uint32_t plain;   /* 1: a directory such as "base" */
    uint32_t doc_len; /* bytes of its config.json, which follows; for names 0 */
};

/* Why an operation on images failed, in more detail than an errno. */
enum keeper_image_why {
    IMAGE_WHY_OTHER,
    IMAGE_WHY_INVALID,   /* the archive is damaged, hostile or not an image */
    IMAGE_WHY_TOO_LARGE, /* bytes, entries, layers */
    IMAGE_WHY_CONFIG,    /* the configuration that came with SAVE makes no sense */
    IMAGE_WHY_IN_USE,
    IMAGE_WHY_STALE, /* what it stands on was rebuilt */
    IMAGE_WHY_BUSY,  /* IMAGE_OPERATIONS_MAX run already */
    IMAGE_WHY_NONE,  /* there is no such image */
    IMAGE_WHY_COUNT,
};

/* 1-64 of [A-Za-z0-9._-], not starting with '.' or '-': safe as the name of a directory. */
bool keeper_image_name_ok(const char *name);
/* A whole reference: [HOST[:PORT]/]PATH:TAG. */
bool keeper_image_reference_ok(const char *reference);

bool keeper_image_ask_ok(const struct keeper_image_ask *a, bool about_images);
bool keeper_image_tell_ok(const struct keeper_image_tell *t);
