/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h: what a Dockerfile comes to: stages with their steps and configuration, every variable replaced,
 * every step with the key under which its result is cached.
 *
 * Theory of operation
 * The plan is made before anything runs. A step's key is a digest of the key before it and of everything that
 * the step's result depends on: the command with its environment, user and directory; the copied names and
 * contents. Settings that no step looks at (EXPOSE, CMD, LABEL) are in no key, so changing them costs
 * nothing. A stage's image is its last step's files with its configuration. */
#pragma once

#include "builder/context.h"
#include "builder/dockerfile.h"

enum { PLAN_STAGES_MAX = 64 };

struct image_config {
    struct words env; /* NAME=VALUE */
    char *workdir;    /* absolute; NULL: / */
    char *user;       /* NULL: root */
    struct words entrypoint, cmd;
    struct words shell; /* what runs the shell form; empty: /bin/sh -c */
    struct words ports; /* "8080/tcp" */
    struct words labels;
};

int image_config_copy(struct image_config *to, const struct image_config *from); /* to is empty */
void image_config_done(struct image_config *c);

/* An image that somebody else made. */
struct base_image {
    char *name;     /* for the server */
    char *identity; /* changes with its content */
    char *note;     /* what people should know about it, NULL: nothing */
    bool plain;     /* a directory of the server; sandboxes on it have /tmp and /run in memory */
    bool server;    /* an alias whose original has the container protocol's server, see image_alias.h */
    struct image_config config;
};
void base_image_done(struct base_image *b);

enum step_kind { STEP_RUN, STEP_COPY, STEP_DIRECTORY };

/* A file whose content stands in the Dockerfile. */
struct inline_file {
    char *name, *text;
};

struct step;

/* RUN --mount: something that is there while the command runs, and not in the image. */
struct step_mount {
    char *target;      /* absolute */
    struct step *copy; /* what is there: a STEP_COPY; NULL: an empty directory */
};

struct step {
    enum step_kind kind;
    unsigned line;    /* of the Dockerfile */
    const char *text; /* the instruction as people wrote it; the Dockerfile's */
    char key[DIGEST_HEX + 1];

    /* RUN */
    struct words argv;
    char *script;         /* a program with a line "#!..." on top, instead of argv */
    struct words env;     /* whole */
    char *workdir, *user; /* also of DIRECTORY; user NULL: root */
    struct step_mount *mounts;
    size_t mount_count;

    /* COPY and ADD */
    struct words sources;
    char *destination;             /* absolute; ends with '/' when it must be a directory */
    char *owner;                   /* --chown, NULL: none */
    int mode;                      /* --chmod, -1: none */
    bool unpack;                   /* ADD: archives are unpacked */
    int from_stage;                /* -1: none */
    struct base_image *from_image; /* NULL: none */
    struct copy_set set;           /* from the context */
    struct inline_file *files;
    size_t file_count;
};

struct stage {
    char *name;       /* NULL: none */
    unsigned line;    /* of its FROM */
    const char *text; /* its FROM */
    int parent;       /* the stage it goes on from; -1: base */
    struct base_image base;
    struct image_config config;
    struct step *steps;
    size_t count;
    char files_key[DIGEST_HEX + 1]; /* of the last step, or of the base */
};

struct plan {
    struct stage *stages;
    size_t count;
    size_t target;
    struct words notes; /* "line 3: ..." for people */
};

struct plan_input {
    const struct dockerfile *dockerfile;
    struct context *context;    /* NULL: COPY from it is refused */
    const struct words *args;   /* --build-arg: NAME=VALUE, or NAME for the caller's own variable */
    const struct words *labels; /* --label: NAME=VALUE */
    const char *target;         /* NULL: the last stage */
    const char *architecture;   /* "amd64" */
    /* Finds the image of a FROM or COPY --from. */
    int (*find_image)(const char *reference, struct base_image *ret, void *user, struct error *reterr);
    void *user;
};

/* 0 or negative with a sentence that names the line. */
int plan_make(const struct plan_input *in, struct plan *ret, struct error *reterr);
void plan_done(struct plan *p);
