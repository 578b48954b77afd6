/* SPDX-License-Identifier: Apache-2.0 */
/* docker.h: what the files of 'silica docker' share.
 *
 * The engine is asked over its Docker socket, so that people and programs see here what other clients of that
 * socket see; only builds use the HTTP API. */
#pragma once

#include "cli/cli.h"
#include "cli/connect.h"

#include "base/buf.h"
#include "base/json.h"

enum { DOCKER_ERROR = 1, DOCKER_OPERANDS_MAX = 256 };

struct docker {
    struct connect_settings connect; /* the HTTP API */
    const char *host;                /* --host: "unix:///path", NULL: see docker_host */
    struct silica_client *engine;    /* made on first use */
};

struct docker_answer {
    struct silica_response response;
    struct json_doc *doc;
};

/* "unix:///run/silica/docker.sock": --host, WRANGLER_DOCKER_HOST, DOCKER_HOST, or in the run directory. */
const char *docker_host(const struct docker *d);
/* One request to the engine. 0 with the answer (any status; doc is NULL when it is no JSON), or an exit code
 * after having said why. */
int docker_call(struct docker *d, const char *method, const char *path, struct docker_answer *ret);
/* The same where a status of 400 and above is an error, too. */
int docker_must(struct docker *d, const char *method, const char *path, struct docker_answer *ret);
void docker_answer_done(struct docker_answer *a);
/* Says what the engine said; returns DOCKER_ERROR. */
int docker_failed(const struct docker_answer *a);
int docker_error(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Appends text with everything but plain characters and '/' percent-encoded. */
int docker_encode(struct buf *out, const char *text);
/* The part of an image's name in front of its tag, and the tag ("latest" when there is none). */
int docker_split_name(const char *name, struct buf *repo, const char **ret_tag);
/* Prints what a template makes of a value, and a newline; an exit code. "json" is {{json .}}. */
int docker_print(const char *template, const struct json_value *v);

struct docker_verb {
    const char *name;
    int (*run)(struct docker *d, int argc, char **argv); /* argv[0] is the verb */
    const char *usage;
};
extern const struct docker_verb docker_verbs[]; /* ends with a NULL name */

/* docker_system.c */
int docker_info(struct docker *d, int argc, char **argv);
int docker_version(struct docker *d, int argc, char **argv);
int docker_login(struct docker *d, int argc, char **argv);
int docker_context(struct docker *d, int argc, char **argv);
/* docker_images.c */
int docker_build(struct docker *d, int argc, char **argv);
int docker_buildx(struct docker *d, int argc, char **argv);
int docker_pull(struct docker *d, int argc, char **argv);
int docker_tag(struct docker *d, int argc, char **argv);
int docker_image(struct docker *d, int argc, char **argv);
int docker_images(struct docker *d, int argc, char **argv);
int docker_inspect(struct docker *d, int argc, char **argv);
int docker_rmi(struct docker *d, int argc, char **argv);
/* docker_containers.c */
int docker_ps(struct docker *d, int argc, char **argv);
int docker_rm(struct docker *d, int argc, char **argv);

/* Operands and options of a verb that has only switches and a --format, read in one go. */
struct docker_words {
    const char *operands[DOCKER_OPERANDS_MAX];
    size_t count;
    const char *format;
    bool force, quiet, all, no_trunc;
    struct buf filters; /* JSON object: {"ancestor":["x"]} */
};
extern const struct option docker_word_options[];
/* 0, or an exit code. filters must be done by the caller in any case. */
int docker_read_words(struct docker_words *w, const char *verb, int argc, char **argv);
