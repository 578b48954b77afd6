/* SPDX-License-Identifier: Apache-2.0 */
/* image_alias.h: well-known names of images that stand for our base image while nobody has imported the real
 * one. */
#pragma once

#include "base/util.h"

/* Where Dockerfiles expect the program that serves the container protocol. Here it is the sandbox's first
 * process; a file of ours stands in these places. */
#define IMAGE_SERVER_PATH "/container-server/sandbox"

struct image_alias {
    const char *image;    /* what is taken: "base" */
    const char *provides; /* what of the original is there, for people */
    bool server;          /* the original starts the container protocol's server and exposes port 3000 */
};

/* reference: "[docker.io/][library/]NAME[:TAG][@DIGEST]". NULL: none is known. */
const struct image_alias *image_alias_find(const char *reference);
