/* SPDX-License-Identifier: Apache-2.0 */
/* imager.h: the process that reads and writes images for the keeper, and how the two talk.
 *
 * Archives are a stranger's bytes and trees are a sandbox's files, so neither the keeper nor the gateway
 * looks at them: a process of its own does, one for each operation, which can reach nothing but a staging
 * directory (and the trees it was given, for reading). It is this binary executed again; the keeper hands it
 * the descriptors below. On the line between them every question is one struct imager_message, perhaps with a
 * descriptor, and is answered by one struct imager_answer, except PROGRESS, which is not. The keeper checks
 * what it hears as if an enemy had said it. */
#pragma once

#include "image/sha256.h"
#include "keeper/proto_image.h"

enum {
    IMAGER_VERSION = 1,
    IMAGER_FD_BOOT = 3, /* a memfd with the struct below */
    IMAGER_FD_CONTROL,  /* SOCK_SEQPACKET */
    IMAGER_FD_STAGING,  /* detached mount: becomes the process's root directory */
    IMAGER_FD_USERNS,   /* of the ids it writes with */
    IMAGER_FD_STREAM,   /* IMPORT: the archive comes, EXPORT: it goes; otherwise /dev/null */
    IMAGER_FD_DOC,      /* SAVE, EXPORT: config.json of the image; otherwise /dev/null */
    IMAGER_FD_CHANGES,  /* SAVE: JSON; otherwise /dev/null */
    IMAGER_FD_TREE,     /* SAVE: the upper directory, or none; EXPORT: all layers from the bottom up */
    IMAGER_DOC_MAX = 1024 * 1024,
};

enum imager_operation { IMAGER_IMPORT = 1, IMAGER_EXPORT, IMAGER_SAVE };

struct imager_boot {
    uint32_t version;
    uint32_t operation;
    uint32_t trees;
    uint32_t plain;       /* EXPORT: layers are not compressed */
    uint64_t limit_bytes; /* of an image, unpacked */
    uint64_t limit_entries;
    int64_t now_ms;
    char parent[IMAGE_NAME_MAX + 1];         /* SAVE: the image's id */
    char reference[IMAGE_REFERENCE_MAX + 1]; /* EXPORT: its name, or "" */
};

enum imager_type {
    IMAGER_HAVE = 1, /* digest: is this layer in the store? yes, bytes */
    IMAGER_LAYER,    /* digest, bytes: the directory "layer" of the staging directory is it: take it */
    IMAGER_STACK,    /* digest: the next layer of the image, from the bottom up */
    IMAGER_NAME,     /* text: a reference of the next IMAGE */
    IMAGER_IMAGE,    /* digest: its id; "config.json" and "run" are in the staging directory: take them */
    IMAGER_OPAQUE,   /* descriptor of a directory in the staging directory: mark it as hiding what is below */
    IMAGER_IS_OPAQUE, /* descriptor of a directory in a tree: is it marked? yes */
    IMAGER_PROGRESS,  /* index, count, bytes */
    IMAGER_FAILED,    /* why, err, text: the last word */
    IMAGER_DONE,      /* the last word */
    IMAGER_TYPE_COUNT,
};

struct imager_message {
    uint32_t type;
    uint32_t why; /* enum keeper_image_why */
    int32_t err;  /* a positive errno */
    uint32_t index, count;
    uint32_t reserved;
    uint64_t bytes;
    unsigned char digest[SHA256_BYTES];
    char text[IMAGE_REFERENCE_MAX + 1];
};

struct imager_answer {
    int32_t error; /* 0 or a positive errno */
    uint32_t yes;
    uint64_t bytes;
};

/* The program: `silica image-worker`. Returns the exit code. */
int imager_main(void);
