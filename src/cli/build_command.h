/* SPDX-License-Identifier: Apache-2.0 */
/* build_command.h: what 'silica image build' and 'silica docker build' have in common. */
#pragma once

#include "builder/build.h"
#include "cli/connect.h"

struct build_command {
    struct connect_settings connect;
    struct build_options options;
    const char *file;      /* the Dockerfile; "-": standard input; NULL: DIRECTORY/Dockerfile */
    const char *directory; /* the build context */
    bool quiet;            /* only the image's id */
    bool tidy;             /* wrangler takes a new tag for every start and leaves the old ones */
};

/* Keys of the options both have. */
enum {
    KEY_BUILD_TAG = 0x2000,
    KEY_BUILD_FILE,
    KEY_BUILD_ARG,
    KEY_BUILD_TARGET,
    KEY_BUILD_NO_CACHE,
    KEY_BUILD_NETWORK,
    KEY_BUILD_LABEL,
    KEY_BUILD_QUIET,
};

/* One setting. 1: taken; 0: not one of ours; -EINVAL with a sentence. */
int build_command_take(struct build_command *b, const char *source, int key, const char *value,
                       struct error *reterr);
/* Reads the Dockerfile and builds; the exit code. Progress goes to stderr, the image's id to stdout. */
int build_command_run(const char *verb, struct build_command *b);
void build_command_done(struct build_command *b);
