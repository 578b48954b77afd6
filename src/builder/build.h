/* SPDX-License-Identifier: Apache-2.0 */
/* build.h: builds an image from a Dockerfile, in sandboxes of a server. */
#pragma once

#include "builder/words.h"
#include "client/silica.h"

#include <stdio.h>

struct build_options {
    const char *dockerfile; /* its text */
    size_t dockerfile_bytes;
    const char *dockerfile_path; /* for its own .dockerignore; NULL: it came from elsewhere */
    const char *context;         /* directory */
    struct words tags;
    struct words args;   /* NAME=VALUE */
    struct words labels; /* NAME=VALUE */
    const char *target;  /* NULL: the last stage */
    const char *network; /* "none", "public"; NULL: the server's default */
    bool network_if_any; /* "public" where there is one, else the default */
    bool no_cache;
    FILE *out; /* progress for people; NULL: none */
    /* Makes a second connection, for the clean-up when the build is interrupted. */
    int (*connect)(void *user, struct silica_client **ret);
    void *user;
};

enum { BUILD_ID_SIZE = 256 };

/* The exit code for main: 0, 1 when a step failed, 125 when something else did; said on `out` and stderr. */
int build_run(struct silica_client *c, const struct build_options *o, char ret_id[BUILD_ID_SIZE],
              struct error *reterr);
