/* SPDX-License-Identifier: Apache-2.0 */
/* base_images.c: see base_images.h. */
#include "builder/base_images.h"

#include "base/image_alias.h"
#include "base/json.h"
#include "builder/remote.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int read_list(const struct json_value *list, struct words *to)
{
    int r = 0;
    json_for_each (v, list) {
        const char *s = json_string(v, NULL);
        if (r == 0 && s)
            r = words_add(to, s, strlen(s));
    }
    return r;
}

static char *copy_string(const struct json_value *v)
{
    const char *s = json_string(v, NULL);
    return s && *s ? strdup(s) : NULL;
}

/* Members that nobody has set are absent. */
static int read_config(const struct json_value *config, struct image_config *c)
{
    int r = read_list(json_get(config, "env"), &c->env);
    if (r == 0)
        r = read_list(json_get(config, "entrypoint"), &c->entrypoint);
    if (r == 0)
        r = read_list(json_get(config, "cmd"), &c->cmd);
    if (r == 0)
        r = read_list(json_get(config, "exposedPorts"), &c->ports);
    json_for_each (v, json_get(config, "labels")) {
        const char *s = json_string(v, NULL);
        if (r == 0 && s)
            r = pairs_set(&c->labels, json_key(v), strlen(json_key(v)), s);
    }
    c->workdir = copy_string(json_get(config, "workdir"));
    c->user = copy_string(json_get(config, "user"));
    if (c->user && strcmp(c->user, "root") == 0) {
        free(c->user);
        c->user = NULL;
    }
    return r;
}

/* What differs when the image differs: a plain directory has no id but its name. */
static int read_identity(const struct json_value *image, char **ret)
{
    const char *id = json_string(json_get(image, "id"), NULL);
    const char *digest = json_string(json_get(image, "digest"), NULL);
    const char *at = json_string(json_get(image, "createdAt"), NULL);
    return asprintf(ret, "%s %s %s", id ? id : "", digest ? digest : "", at ? at : "") < 0 ? -ENOMEM : 0;
}

static int read_image(char *json, const char *name, struct base_image *b, struct error *reterr)
{
    auto_json struct json_doc *doc = NULL;
    struct error e;
    if (json_parse(json, strlen(json), 0, &doc, &e) < 0)
        return error_set(reterr, EBADMSG, "what the server says about image '%s' is not JSON", name);
    const char *id = json_string(json_get(json_root(doc), "id"), NULL);
    b->plain = !id || strlen(id) != DIGEST_HEX;
    b->name = strdup(name);
    if (!b->name || read_identity(json_root(doc), &b->identity) < 0 ||
        read_config(json_get(json_root(doc), "config"), &b->config) < 0)
        return error_set(reterr, ENOMEM, "out of memory");
    return 0;
}

/* What the original of an alias has set and our base has not. Images of an alias keep its entry point, so
 * that they are known again when they are called by their own names. */
static int imitate(struct base_image *b, const struct image_alias *alias)
{
    struct image_config *c = &b->config;
    b->server = alias->server;
    if (!alias->server) { /* plain distributions begin in / */
        free(c->workdir);
        c->workdir = NULL;
        return 0;
    }
    words_done(&c->entrypoint);
    if (words_add(&c->entrypoint, IMAGE_SERVER_PATH, strlen(IMAGE_SERVER_PATH)) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < c->ports.count; i++)
        if (strcmp(c->ports.items[i], "3000/tcp") == 0)
            return 0;
    return words_add(&c->ports, "3000/tcp", 8);
}

static int not_found(struct silica_client *client, const char *reference, struct error *reterr)
{
    struct silica_request q = {.method = "GET", .path = "/v1/images"};
    struct silica_response a;
    auto_json struct json_doc *doc = NULL;
    char names[160] = "";
    size_t n = 0;
    if (silica_request(client, &q, &a, NULL) == 0) {
        if (json_parse(a.body, a.body_bytes, 0, &doc, NULL) == 0)
            json_for_each (image, json_get(json_root(doc), "images")) {
                const struct json_value *all = json_get(image, "names");
                const char *name = json_count(all) ? NULL : json_string(json_get(image, "id"), NULL);
                json_for_each (v, all) /* results of single steps are nobody's base */
                    if (!name && json_string(v, NULL) &&
                        strncmp(json_string(v, NULL), BUILD_CACHE_NAME ":", sizeof BUILD_CACHE_NAME) != 0)
                        name = json_string(v, NULL);
                if (!name || n + strlen(name) + 3 > sizeof names)
                    continue;
                n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", name);
            }
        json_free(take_ptr(doc));
        silica_response_done(&a);
    }
    return error_set(reterr, ENOENT,
                     "there is no image '%.80s'. Images here: %s. Bring yours with 'silica image import'",
                     reference, n ? names : "base");
}

int base_images_find(const char *reference, struct base_image *ret, void *client, struct error *reterr)
{
    auto_free char *json = NULL;
    struct base_image b = {0};
    const struct image_alias *alias = NULL;
    const char *name = reference;
    int r = remote_image(client, reference, &json, reterr);
    if (r == 0 && (alias = image_alias_find(reference))) {
        name = alias->image;
        r = remote_image(client, name, &json, reterr);
    }
    if (r < 0)
        return r;
    if (r == 0)
        return not_found(client, reference, reterr);
    r = read_image(json, name, &b, reterr);
    if (r == 0 && b.config.entrypoint.count && strcmp(b.config.entrypoint.items[0], IMAGE_SERVER_PATH) == 0)
        b.server = true;
    if (r == 0 && alias &&
        (imitate(&b, alias) < 0 ||
         asprintf(&b.note, "%s is not here; taken instead: %s (%s)", reference, name, alias->provides) < 0))
        r = error_set(reterr, ENOMEM, "out of memory");
    if (r < 0) {
        base_image_done(&b);
        return r;
    }
    *ret = b;
    return 0;
}
