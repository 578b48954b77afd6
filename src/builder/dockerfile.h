/* SPDX-License-Identifier: Apache-2.0 */
/* dockerfile.h: a Dockerfile as a list of instructions. Pure: no files, no variables, no network.
 *
 * Known are comments, the directives "escape" and "syntax", continuation lines, flags (--from=...), the shell
 * form and the JSON form, and heredocs of RUN, COPY and ADD. Variables stay as they are written: their values
 * depend on the stage, see expand.h. */
#pragma once

#include "builder/words.h"

enum { DOCKERFILE_MAX = 1 << 20, DOCKERFILE_INSTRUCTIONS_MAX = 4096, DOCKERFILE_HEREDOCS_MAX = 16 };

enum instruction_kind {
    DOCKERFILE_ADD,
    DOCKERFILE_ARG,
    DOCKERFILE_CMD,
    DOCKERFILE_COPY,
    DOCKERFILE_ENTRYPOINT,
    DOCKERFILE_ENV,
    DOCKERFILE_EXPOSE,
    DOCKERFILE_FROM,
    DOCKERFILE_HEALTHCHECK,
    DOCKERFILE_LABEL,
    DOCKERFILE_MAINTAINER,
    DOCKERFILE_ONBUILD,
    DOCKERFILE_RUN,
    DOCKERFILE_SHELL,
    DOCKERFILE_STOPSIGNAL,
    DOCKERFILE_USER,
    DOCKERFILE_VOLUME,
    DOCKERFILE_WORKDIR,
};

struct heredoc {
    char *word;  /* as it stands in the line: "<<EOF" */
    char *name;  /* "EOF" */
    char *text;  /* the lines before the end, each with its newline */
    bool expand; /* the name was not quoted: variables count */
};

struct instruction {
    enum instruction_kind kind;
    unsigned line;      /* where it begins, from 1 */
    char *text;         /* all of it in one line, for people */
    struct words flags; /* "from=build": without the dashes; "link" when there is no value */
    char *rest;         /* behind the keyword and the flags */
    bool json;          /* words are the elements of a JSON array */
    struct words words; /* otherwise rest cut at blanks; ENV, LABEL and ARG: not inside quotes, which stay */
    struct heredoc *heredocs;
    size_t heredoc_count;
};

struct dockerfile {
    struct instruction *items;
    size_t count;
    char escape; /* '\\' or '`' */
};

/* 0, or -EINVAL, -E2BIG, -ENOMEM with a sentence that names the line. */
int dockerfile_parse(const char *text, size_t n, struct dockerfile *ret, struct error *reterr);
void dockerfile_done(struct dockerfile *d);

const char *instruction_name(enum instruction_kind kind);
/* Value of a flag ("" when it has none), NULL when it is not there. */
const char *instruction_flag(const struct instruction *i, const char *name);
