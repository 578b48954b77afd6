/* SPDX-License-Identifier: Apache-2.0 */
/* docker_images.c: silica docker build, pull, tag, images, image, inspect and rmi. */
#include "cli/docker.h"

#include "base/image_alias.h"
#include "cli/build_cache.h"
#include "cli/build_command.h"
#include "cli/format.h"

#include <errno.h>
#include <string.h>

enum { KEY_IGNORED = OPTION_KEY_FIRST, KEY_PUSH };

/* What programs give to build; most of it chooses between ways that do not exist here. */
static const struct option build_options[] = {
    {KEY_BUILD_TAG, "tag", 't', "NAME", NULL, ""},
    {KEY_BUILD_FILE, "file", 'f', "FILE", NULL, ""},
    {KEY_BUILD_ARG, "build-arg", 0, "NAME=VALUE", NULL, ""},
    {KEY_BUILD_TARGET, "target", 0, "STAGE", NULL, ""},
    {KEY_BUILD_NO_CACHE, "no-cache", 0, NULL, NULL, ""},
    {KEY_BUILD_NETWORK, "network", 0, "MODE", NULL, ""},
    {KEY_BUILD_LABEL, "label", 0, "NAME=VALUE", NULL, ""},
    {KEY_BUILD_QUIET, "quiet", 'q', NULL, NULL, ""},
    {KEY_IGNORED, "load", 0, NULL, NULL, ""},
    {KEY_IGNORED, "platform", 0, "NAME", NULL, ""},
    {KEY_IGNORED, "provenance", 0, "BOOL", NULL, ""},
    {KEY_IGNORED, "sbom", 0, "BOOL", NULL, ""},
    {KEY_IGNORED, "progress", 0, "HOW", NULL, ""},
    {KEY_IGNORED, "output", 'o', "WHERE", NULL, ""},
    {KEY_IGNORED, "pull", 0, NULL, NULL, ""},
    {KEY_IGNORED, "rm", 0, NULL, NULL, ""},
    {KEY_IGNORED, "force-rm", 0, NULL, NULL, ""},
    {KEY_IGNORED, "cache-from", 0, "WHERE", NULL, ""},
    {KEY_IGNORED, "cache-to", 0, "WHERE", NULL, ""},
    {KEY_IGNORED, "builder", 0, "NAME", NULL, ""},
    {KEY_PUSH, "push", 0, NULL, NULL, ""},
    {0, NULL, 0, NULL, NULL, NULL},
};

int docker_build(struct docker *d, int argc, char **argv)
{
    struct build_command b = {.connect = d->connect, .tidy = true};
    struct options o = OPTIONS_INIT(build_options, NULL, argc, argv);
    const char *value;
    struct error e;
    int key, r = 0;
    while (r >= 0 && (key = options_next(&o, &value, &e)) > 0) {
        if (key == OPTION_OPERAND && !b.directory)
            b.directory = value;
        else if (key == OPTION_OPERAND || key == KEY_PUSH || key == OPTION_HELP)
            r = error_set(&e, EINVAL, "build: %s",
                          key == KEY_PUSH ? "there is no registry to push to" : "see 'silica help image'");
        else
            r = build_command_take(&b, options_source(&o), key, value, &e);
    }
    if (r < 0 || key < 0)
        r = docker_error("%s", e.msg);
    else if (!b.directory)
        r = docker_error("build: which directory has the files to copy?");
    else
        r = build_command_run("docker build", &b);
    build_command_done(&b);
    return r;
}

int docker_buildx(struct docker *d, int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "build") == 0)
        return docker_build(d, argc - 1, argv + 1);
    if (argc >= 2 && strcmp(argv[1], "version") == 0) {
        printf("silica %s\n", SILICA_VERSION);
        return 0;
    }
    return docker_error("of buildx only build is known here");
}

/* ------------------------------------------------------------------ names */

/* "/images/NAME<tail>" */
static int image_call(struct docker *d, const char *method, const char *name, const char *tail,
                      struct docker_answer *ret)
{
    struct buf path = BUF_INIT(8192);
    int r = buf_puts(&path, "/images/");
    if (r == 0)
        r = docker_encode(&path, name);
    if (r == 0)
        r = buf_puts(&path, tail);
    r = r < 0 || !buf_cstr(&path) ? docker_error("the name '%.100s' is too long", name)
                                  : docker_call(d, method, buf_data(&path), ret);
    buf_done(&path);
    return r;
}

/* 0 with *ret, or an exit code. */
static int exists(struct docker *d, const char *name, bool *ret)
{
    struct docker_answer a;
    int r = image_call(d, "GET", name, "/json", &a);
    if (r != 0)
        return r;
    *ret = a.response.status < 400;
    docker_answer_done(&a);
    return 0;
}

/* An image called `name` of a well-known one that stands for our base. */
static int build_from(struct docker *d, const char *reference, const char *name)
{
    struct build_command b = {.connect = d->connect};
    struct buf text = BUF_INIT(4096);
    auto_client struct silica_client *c = NULL;
    char id[BUILD_ID_SIZE];
    struct error e;
    int r = connect_open("docker", &b.connect, &c);
    if (r != 0)
        return DOCKER_ERROR;
    if (buf_printf(&text, "FROM %s\n", reference) < 0 || words_add(&b.options.tags, name, strlen(name)) < 0) {
        r = docker_error("out of memory");
    } else {
        b.options.dockerfile = buf_data(&text);
        b.options.dockerfile_bytes = buf_len(&text);
        b.options.context = "/";
        b.options.out = stderr;
        r = build_run(c, &b.options, id, &e) == 0 ? 0 : docker_error("%s", e.msg);
    }
    buf_done(&text);
    build_command_done(&b);
    return r;
}

/* The engine is this one's own: what it would pull for its helper is part of it. */
static bool is_sidecar(const char *name)
{
    static const char usual[] = "cloudflare/proxy-everything";
    const char *chosen = getenv("MINIFLARE_CONTAINER_EGRESS_IMAGE");
    return (chosen && strcmp(chosen, name) == 0) || strncmp(name, usual, sizeof usual - 1) == 0;
}

int docker_pull(struct docker *d, int argc, char **argv)
{
    struct docker_words w;
    bool there = false;
    int r = docker_read_words(&w, "pull", argc, argv);
    buf_done(&w.filters);
    if (r != 0)
        return r;
    if (w.count != 1)
        return docker_error("pull: name one image");
    const char *name = w.operands[0];
    if (is_sidecar(name)) {
        (void)fprintf(stderr, "NOTE %s: the engine does this work itself\n", name);
        printf("%s\n", name);
        return 0;
    }
    r = exists(d, name, &there);
    if (r == 0 && !there && image_alias_find(name)) {
        r = build_from(d, name, name);
        there = r == 0;
    }
    if (r == 0 && !there)
        r = docker_error(
            "there is no image '%s', and no registry to get it from; bring it with 'silica image import'",
            name);
    if (r == 0)
        printf("%s\n", name);
    return r;
}

int docker_tag(struct docker *d, int argc, char **argv)
{
    struct docker_words w;
    struct docker_answer a;
    struct buf repo = BUF_INIT(4096), tail = BUF_INIT(8192);
    const char *tag;
    bool there = false;
    int r = docker_read_words(&w, "tag", argc, argv);
    buf_done(&w.filters);
    if (r == 0 && w.count != 2)
        r = docker_error("tag: name an image and its new name");
    if (r == 0)
        r = exists(d, w.operands[0], &there);
    if (r == 0 && !there && image_alias_find(w.operands[0])) {
        r = build_from(d, w.operands[0], w.operands[1]);
    } else if (r == 0) {
        bool ok = docker_split_name(w.operands[1], &repo, &tag) == 0 && buf_puts(&tail, "/tag?repo=") == 0 &&
                  docker_encode(&tail, buf_data(&repo)) == 0 && buf_puts(&tail, "&tag=") == 0 &&
                  docker_encode(&tail, tag) == 0 && buf_cstr(&tail);
        r = ok ? image_call(d, "POST", w.operands[0], buf_data(&tail), &a)
               : docker_error("the name is too long");
        if (r == 0) {
            r = a.response.status >= 400 ? docker_failed(&a) : 0;
            docker_answer_done(&a);
        }
    }
    buf_done(&repo);
    buf_done(&tail);
    return r;
}

int docker_rmi(struct docker *d, int argc, char **argv)
{
    static char force[] = "--force";
    struct docker_words w;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-f") == 0)
            argv[i] = force; /* here it is not --format */
    int result = docker_read_words(&w, "rmi", argc, argv);
    buf_done(&w.filters);
    if (result == 0 && w.count == 0)
        return docker_error("rmi: which image?");
    for (size_t i = 0; i < w.count; i++) {
        struct docker_answer a;
        int r = image_call(d, "DELETE", w.operands[i], w.force ? "?force=true" : "", &a);
        if (r == 0) {
            r = a.response.status >= 400 ? docker_failed(&a) : 0;
            docker_answer_done(&a);
        }
        if (r == 0)
            printf("Untagged: %s\n", w.operands[i]);
        result = r ? r : result;
    }
    return result;
}

/* ------------------------------------------------------------------ looking */

int docker_inspect(struct docker *d, int argc, char **argv)
{
    struct docker_words w;
    int result = docker_read_words(&w, "inspect", argc, argv);
    buf_done(&w.filters);
    if (result == 0 && w.count == 0)
        return docker_error("inspect: which one?");
    for (size_t i = 0; i < w.count && result == 0; i++) {
        struct docker_answer a;
        int r = image_call(d, "GET", w.operands[i], "/json", &a);
        if (r == 0) {
            r = a.response.status >= 400
                    ? docker_failed(&a)
                    : docker_print(w.format ? w.format : "[{{json .}}]", json_root(a.doc));
            docker_answer_done(&a);
        }
        result = r ? r : result;
    }
    return result;
}

static const struct table_column columns[] = {
    {"NAME", false, 20},
    {"IMAGE ID", false, 0},
    {"SIZE", true, 0},
};

static int list_image(const struct docker_words *w, const struct json_value *image, struct table *t)
{
    const char *id = json_string(json_get(image, "Id"), NULL);
    char size[FORMAT_SIZE], short_id[16];
    double bytes = 0;
    if (w->format)
        return docker_print(w->format, image);
    if (!id)
        return 0;
    id += strncmp(id, "sha256:", 7) == 0 ? 7 : 0;
    (void)snprintf(short_id, sizeof short_id, "%.12s", id);
    if (w->quiet) {
        printf("%s\n", short_id);
        return 0;
    }
    (void)json_number(json_get(image, "Size"), &bytes);
    format_bytes((uint64_t)bytes, size);
    int r = 0;
    json_for_each (name, json_get(image, "RepoTags")) {
        const char *cells[] = {json_string(name, NULL), short_id, size};
        if (r == 0 && (w->all || (cells[0] && !build_cache_is_name(cells[0]))) && table_add(t, cells) < 0)
            r = docker_error("out of memory");
    }
    return r;
}

int docker_images(struct docker *d, int argc, char **argv)
{
    struct docker_words w;
    struct docker_answer a;
    int r = docker_read_words(&w, "images", argc, argv);
    buf_done(&w.filters);
    if (r != 0 || (r = docker_must(d, "GET", "/images/json", &a)) != 0)
        return r;
    struct table t = TABLE_INIT(columns);
    json_for_each (image, json_root(a.doc))
        if (r == 0)
            r = list_image(&w, image, &t);
    if (r == 0 && !w.format && !w.quiet)
        table_print(&t, stdout, terminal_width(STDOUT_FILENO));
    table_done(&t);
    docker_answer_done(&a);
    return r;
}

int docker_image(struct docker *d, int argc, char **argv)
{
    static const struct docker_verb known[] = {
        {"inspect", docker_inspect, NULL}, {"ls", docker_images, NULL},   {"list", docker_images, NULL},
        {"rm", docker_rmi, NULL},          {"remove", docker_rmi, NULL},  {"tag", docker_tag, NULL},
        {"pull", docker_pull, NULL},       {"build", docker_build, NULL},
    };
    for (size_t i = 0; argc >= 2 && i < ARRAY_SIZE(known); i++)
        if (strcmp(known[i].name, argv[1]) == 0)
            return known[i].run(d, argc - 1, argv + 1);
    return docker_error("image: inspect, ls, rm, tag, pull or build");
}
