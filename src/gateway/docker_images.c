/* SPDX-License-Identifier: Apache-2.0 */
/* docker_images.c: images as the engine's API shows them: one, all, and what a container takes from its own.
 */
#include "gateway/docker_internal.h"
#include "gateway/reply.h"

#include <stdio.h>
#include <string.h>

int docker_image_find(struct docker *d, const char *name, struct docker_image *ret, struct problem *p)
{
    *ret = (struct docker_image){0};
    struct problem ignored;
    if (images_resolve(d->g->images, name, ret->id, &ignored) < 0)
        return problem_set(p, 404, "IMAGE_NOT_FOUND", "No such image: %s", name);
    const struct image_info *info = images_find(d->g->images, ret->id);
    const struct json_value *config = info ? image_config(info) : NULL;
    if (!info)
        return problem_set(p, 404, "IMAGE_NOT_FOUND", "No such image: %s", name);
    ret->info = info;
    ret->entrypoint = json_get(config, "entrypoint");
    ret->cmd = json_get(config, "cmd");
    ret->workdir = json_string(json_get(config, "workdir"), NULL);
    return 0;
}

/* ------------------------------------------------------------------ as JSON */

static void put_id(struct json_writer *w, const char *key, const char *id)
{
    char text[IMAGE_NAME_MAX + 8];
    (void)snprintf(text, sizeof text, "sha256:%s", id);
    json_member_string(w, key, *id ? text : "");
}

static void put_names(struct json_writer *w, const struct docker *d, const char *id)
{
    json_put_key(w, "RepoTags");
    json_array_begin(w);
    for (const struct image_name *n = images_first_name(d->g->images); n; n = n->next)
        if (strcmp(n->image, id) == 0)
            json_put_string(w, n->reference);
    json_array_end(w);
}

static void put_or(struct json_writer *w, const char *key, const struct json_value *v, const char *otherwise)
{
    json_put_key(w, key);
    if (v)
        json_put_value(w, v);
    else
        json_put_raw(w, otherwise, strlen(otherwise));
}

static void put_config(struct json_writer *w, const struct json_value *config)
{
    json_put_key(w, "Config");
    json_object_begin(w);
    put_or(w, "Env", json_get(config, "env"), "[]");
    put_or(w, "Entrypoint", json_get(config, "entrypoint"), "null");
    put_or(w, "Cmd", json_get(config, "cmd"), "null");
    put_or(w, "WorkingDir", json_get(config, "workdir"), "\"\"");
    put_or(w, "User", json_get(config, "user"), "\"\"");
    put_or(w, "Labels", json_get(config, "labels"), "{}");
    json_put_key(w, "ExposedPorts");
    json_object_begin(w);
    json_for_each (port, json_get(config, "exposedPorts")) {
        json_put_key(w, json_string(port, NULL));
        json_object_begin(w);
        json_object_end(w);
    }
    json_object_end(w);
    json_object_end(w);
}

static void put_image(struct json_writer *w, const struct docker *d, const struct image_info *info,
                      bool whole)
{
    const struct json_value *doc = json_root(info->doc);
    const char *parent = json_string(json_get(doc, "parent"), NULL);
    json_object_begin(w);
    put_id(w, "Id", info->id);
    put_id(w, whole ? "Parent" : "ParentId", parent ? parent : "");
    put_names(w, d, info->id);
    json_member_int(w, "Size", (int64_t)info->bytes);
    if (whole) {
        put_or(w, "Created", json_get(doc, "createdAt"), "\"0001-01-01T00:00:00Z\"");
        json_member_string(w, "Os", "linux");
        put_or(w, "Architecture", json_get(doc, "architecture"), "\"amd64\"");
        put_config(w, image_config(info));
    } else {
        json_member_int(w, "Created", 0);
        json_member_int(w, "Containers", -1);
        put_or(w, "Labels", json_get(image_config(info), "labels"), "{}");
    }
    json_object_end(w);
}

static bool has_name(const char *value, void *arg)
{
    struct {
        const struct docker *docker;
        const char *id;
    } *look = arg;
    for (const struct image_name *n = images_first_name(look->docker->g->images); n; n = n->next)
        if (strcmp(n->image, look->id) == 0 && docker_same_image(n->reference, value))
            return true;
    return false;
}

static void list(struct docker_request *r)
{
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    struct error e;
    char text[4096];
    auto_json struct json_doc *filters = NULL;
    if (http_query_get(r->req->query, "filters", text, sizeof text) &&
        json_parse(text, strlen(text), 0, &filters, &e) < 0) {
        docker_reply_error(r->req, 400, "filters must be a JSON object");
        return;
    }
    json_writer_init(&w, &out);
    json_array_begin(&w);
    for (const struct image_info *i = images_first(r->docker->g->images); i; i = i->next) {
        struct {
            const struct docker *docker;
            const char *id;
        } look = {r->docker, i->id};
        if (docker_filter(filters ? json_root(filters) : NULL, "reference", has_name, &look))
            put_image(&w, r->docker, i, false);
    }
    json_array_end(&w);
    docker_reply_json(r->req, 200, &w);
}

static void inspect(struct docker_request *r)
{
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    struct docker_image image;
    struct problem p;
    if (docker_image_find(r->docker, r->name, &image, &p) < 0) {
        docker_reply_problem(r->req, &p);
        return;
    }
    json_writer_init(&w, &out);
    put_image(&w, r->docker, image.info, true);
    docker_reply_json(r->req, 200, &w);
}

/* Nothing is fetched from anywhere: an image that is here is up to date, and a sidecar needs none. */
static void pull(struct docker_request *r)
{
    static const char done[] = "{\"status\":\"Image is up to date\"}\n";
    char name[IMAGE_REFERENCE_MAX + 1] = "", tag[128] = "", whole[IMAGE_REFERENCE_MAX + 130];
    struct docker_image image;
    struct problem p;
    (void)http_query_get(r->req->query, "fromImage", name, sizeof name);
    (void)http_query_get(r->req->query, "tag", tag, sizeof tag);
    (void)snprintf(whole, sizeof whole, "%s%s%s", name, *tag ? strchr(tag, ':') ? "@" : ":" : "", tag);
    if (docker_is_sidecar_image(name) || docker_image_find(r->docker, whole, &image, &p) == 0)
        http_respond(r->req, 200, "application/json", done, sizeof done - 1);
    else
        docker_reply_error(r->req, 404, "%s is not here, and nothing is fetched: see `silica image import`",
                           whole);
}

/* ------------------------------------------------------------------ requests */

/* "/images/a/b:c/json" -> "a/b:c" and "/json": names have slashes that are not escaped. */
static bool split(struct docker_request *r)
{
    static const char *const actions[] = {"/json", "/tag"};
    const char *name = r->path + strlen("/images/");
    size_t n = strlen(name);
    r->action = "";
    for (size_t i = 0; i < ARRAY_SIZE(actions); i++) {
        size_t m = strlen(actions[i]);
        if (n > m && strcmp(name + n - m, actions[i]) == 0) {
            r->action = name + n - m;
            n -= m;
            break;
        }
    }
    free(r->name);
    r->name = docker_decode(name, n);
    return r->name != NULL;
}

void docker_images_request(struct docker_request *r)
{
    bool get = strcmp(r->method, "GET") == 0, post = strcmp(r->method, "POST") == 0;
    if (get && strcmp(r->path, "/images/json") == 0)
        list(r);
    else if (post && strcmp(r->path, "/images/create") == 0)
        pull(r);
    else if (!split(r))
        docker_reply_error(r->req, 400, "not the name of an image");
    else if (get && strcmp(r->action, "/json") == 0)
        inspect(r);
    else if (post && strcmp(r->action, "/tag") == 0)
        docker_image_tag(r);
    else if (strcmp(r->method, "DELETE") == 0 && !*r->action)
        docker_image_delete(r);
    else
        docker_reply_error(r->req, 404, "page not found");
}
