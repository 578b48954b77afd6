/* SPDX-License-Identifier: Apache-2.0 */
/* git_text.h: the texts of a git checkout: where to, which command, what its failure means, what must not be
 * told. */
#pragma once

#include "base/buf.h"

/* A repository URL whose credentials have been taken out of it. */
struct git_url {
    char *plain;    /* without "user:password@"; what git gets as an argument */
    char *scope;    /* "https://host:port", where the credentials belong; NULL when there are none */
    char *user;     /* percent-decoded */
    char *password; /* percent-decoded; NULL when the URL has none */
    char *raw;      /* "user:password" as it stood in the URL */
};

/* 0, -EINVAL (credentials that git cannot be told: control characters) or -ENOMEM. */
int git_url_parse(const char *url, struct git_url *ret);
void git_url_done(struct git_url *u);

/* Appends the default target directory. */
int git_target_dir(const char *url, struct buf *out);

struct git_checkout {
    const char *url;
    const char *branch; /* NULL: the default branch */
    const char *dir;
    const char *depth; /* NULL: all; not checked here */
    int64_t timeout_ms;
};

/* Variables that the command's environment must have when the URL has credentials (git_url.scope is set). */
#define GIT_ENV_USER     "SILICA_GIT_USER"
#define GIT_ENV_PASSWORD "SILICA_GIT_PASSWORD"
#define GIT_ENV_URL      "SILICA_GIT_URL" /* as given */

/* The text for the session's shell. Its exit status is that of the clone; on success its output is git's own
 * output, a NUL byte, and the name of the current branch. */
int git_command(const struct git_checkout *c, const struct git_url *u, struct buf *out);

/* The protocol's error code for a failed clone. */
const char *git_error_code(int status, const char *errors);

/* Appends text with the credentials of any http URL in it, the values of well-known secret query parameters
 * and u's own secrets (u may be NULL) made unreadable. */
int git_redact(const char *text, const struct git_url *u, struct buf *out);
