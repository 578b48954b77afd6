/* SPDX-License-Identifier: Apache-2.0 */
/* doc.c: see doc.h. Reading; doc_write.c writes. */
#include "image/doc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
const char doc_architecture[] = "amd64";
#elif defined(__aarch64__)
const char doc_architecture[] = "arm64";
#else
#error "what do images call this machine?"
#endif

/* ---- lists */

static void list_done(struct doc_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->items[i]);
    free(l->items);
    *l = (struct doc_list){0};
}

static int list_add(struct doc_list *l, const char *text, struct error *reterr)
{
    size_t n = strlen(text) + 1;
    if (l->count == DOC_STRINGS_MAX || l->bytes + n > DOC_BYTES_MAX)
        return error_set(reterr, EBADMSG, "a list of the image's configuration is too long");
    char **items = realloc(l->items, (l->count + 1) * sizeof *items);
    if (!items)
        return error_sys(reterr, ENOMEM, "read an image's configuration");
    l->items = items;
    l->items[l->count] = strdup(text);
    if (!l->items[l->count])
        return error_sys(reterr, ENOMEM, "read an image's configuration");
    l->count++;
    l->bytes += n;
    l->set = true;
    return 0;
}

static void list_remove(struct doc_list *l, size_t i)
{
    l->bytes -= strlen(l->items[i]) + 1;
    free(l->items[i]);
    memmove(l->items + i, l->items + i + 1, (--l->count - i) * sizeof *l->items);
}

void doc_done(struct doc *d)
{
    struct doc_list *lists[] = {&d->env,    &d->entrypoint, &d->cmd,  &d->ports,
                                &d->labels, &d->shell,      &d->notes};
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        list_done(lists[i]);
    free(d->workdir);
    free(d->user);
    free(d->stop_signal);
    *d = (struct doc){0};
}

int doc_note(struct doc *d, const char *note, struct error *reterr)
{
    for (size_t i = 0; i < d->notes.count; i++)
        if (strcmp(d->notes.items[i], note) == 0)
            return 0;
    return list_add(&d->notes, note, reterr);
}

/* ---- values; `what` is the member's name, for sentences */

static int read_text(const struct json_value *v, const char *what, size_t max, char **ret,
                     struct error *reterr)
{
    size_t n = 0;
    const char *s = json_string(v, &n);
    if (json_type_of(v) == JSON_NULL || (s && n == 0)) {
        free(take_ptr(*ret));
        return 0;
    }
    if (!s || n > max || strchr(s, '\n'))
        return error_set(reterr, EBADMSG, "the image's %s must be a text of at most %zu bytes", what, max);
    char *copy = strdup(s);
    if (!copy)
        return error_sys(reterr, ENOMEM, "read an image's configuration");
    free(*ret);
    *ret = copy;
    return 0;
}

static int read_list(const struct json_value *v, const char *what, struct doc_list *l, struct error *reterr)
{
    list_done(l);
    if (json_type_of(v) == JSON_NULL)
        return 0;
    if (json_type_of(v) != JSON_ARRAY)
        return error_set(reterr, EBADMSG, "the image's %s must be a list of texts", what);
    l->set = true;
    json_for_each (item, v) {
        const char *s = json_string(item, NULL);
        if (!s)
            return error_set(reterr, EBADMSG, "the image's %s must be a list of texts", what);
        int r = list_add(l, s, reterr);
        if (r < 0)
            return r;
    }
    return 0;
}

static int env_set(struct doc_list *l, const char *name, size_t name_len, const char *whole,
                   struct error *reterr)
{
    for (size_t i = 0; i < l->count; i++)
        if (strncmp(l->items[i], name, name_len) == 0 && l->items[i][name_len] == '=') {
            list_remove(l, i);
            break;
        }
    return list_add(l, whole, reterr);
}

/* Laid over what is there: ["K=V"] or {"K": "V"}; {"K": null} takes K away. */
static int read_env(const struct json_value *v, struct doc_list *l, struct error *reterr)
{
    static const char wrong[] = "the image's env must be a list of K=V, or an object of texts";
    if (json_type_of(v) == JSON_NULL)
        return 0;
    if (json_type_of(v) != JSON_ARRAY && json_type_of(v) != JSON_OBJECT)
        return error_set(reterr, EBADMSG, "%s", wrong);
    json_for_each (item, v) {
        const char *key = json_key(item), *s = json_string(item, NULL);
        const char *equals = s ? strchr(s, '=') : NULL;
        int r;
        if (!key) { /* some tools write names without a value: they mean nothing here */
            if (!s)
                return error_set(reterr, EBADMSG, "%s", wrong);
            r = equals && equals > s ? env_set(l, s, (size_t)(equals - s), s, reterr) : 0;
        } else {
            if (!*key || strchr(key, '=') || (!s && json_type_of(item) != JSON_NULL))
                return error_set(reterr, EBADMSG, "%s", wrong);
            auto_free char *whole = NULL;
            if (asprintf(&whole, "%s=%s", key, s ? s : "") < 0)
                return error_sys(reterr, ENOMEM, "read an image's configuration");
            r = env_set(l, key, strlen(key), whole, reterr);
            if (r == 0 && !s)
                list_remove(l, l->count - 1);
        }
        if (r < 0)
            return r;
    }
    return 0;
}

static int read_labels(const struct json_value *v, struct doc_list *l, struct error *reterr)
{
    list_done(l);
    if (json_type_of(v) == JSON_NULL)
        return 0;
    if (json_type_of(v) != JSON_OBJECT)
        return error_set(reterr, EBADMSG, "the image's labels must be an object of texts");
    json_for_each (item, v) {
        const char *s = json_string(item, NULL);
        int r = s ? list_add(l, json_key(item), reterr)
                  : error_set(reterr, EBADMSG, "the image's labels must be an object of texts");
        if (r == 0)
            r = list_add(l, s, reterr);
        if (r < 0)
            return r;
    }
    return 0;
}

/* "3000", "3000/tcp" or the names of an object, as OCI has them. */
static int read_ports(const struct json_value *v, struct doc_list *l, struct error *reterr)
{
    list_done(l);
    if (json_type_of(v) == JSON_NULL)
        return 0;
    bool object = json_type_of(v) == JSON_OBJECT;
    if (!object && json_type_of(v) != JSON_ARRAY)
        return error_set(reterr, EBADMSG, "the image's exposedPorts must be a list such as [\"3000/tcp\"]");
    l->set = true;
    json_for_each (item, v) {
        const char *s = object ? json_key(item) : json_string(item, NULL);
        char text[16];
        unsigned port;
        int end = 0;
        if (!s || s[0] < '0' || s[0] > '9' || sscanf(s, "%5u%n", &port, &end) != 1 || port < 1 ||
            port > 65535 ||
            (strcmp(s + end, "") != 0 && strcmp(s + end, "/tcp") != 0 && strcmp(s + end, "/udp") != 0))
            return error_set(reterr, EBADMSG,
                             "the image's exposedPorts must be a list such as [\"3000/tcp\"]");
        (void)snprintf(text, sizeof text, "%u%s", port, s[end] ? s + end : "/tcp");
        int r = list_add(l, text, reterr);
        if (r < 0)
            return r;
    }
    return 0;
}

static void read_word(const struct json_value *v, char *ret, size_t cap)
{
    const char *s = json_string(v, NULL);
    if (!s || strlen(s) >= cap ||
        strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-.:_") != strlen(s))
        return; /* display only: what is odd is left out */
    (void)snprintf(ret, cap, "%s", s);
}

static int read_workdir(const struct json_value *v, char **ret, struct error *reterr)
{
    int r = read_text(v, "workdir", DOC_PATH_MAX - 1, ret, reterr);
    if (r == 0 && *ret && (*ret)[0] != '/')
        return error_set(reterr, EBADMSG, "the image's workdir must be an absolute path");
    return r;
}

/* ---- documents */

static int read_config(struct doc *d, const struct json_value *v, struct error *reterr)
{
    int r;
    if ((r = read_env(json_get(v, "env"), &d->env, reterr)) < 0 ||
        (r = read_workdir(json_get(v, "workdir"), &d->workdir, reterr)) < 0 ||
        (r = read_text(json_get(v, "user"), "user", 255, &d->user, reterr)) < 0 ||
        (r = read_list(json_get(v, "entrypoint"), "entrypoint", &d->entrypoint, reterr)) < 0 ||
        (r = read_list(json_get(v, "cmd"), "cmd", &d->cmd, reterr)) < 0 ||
        (r = read_list(json_get(v, "shell"), "shell", &d->shell, reterr)) < 0 ||
        (r = read_ports(json_get(v, "exposedPorts"), &d->ports, reterr)) < 0 ||
        (r = read_text(json_get(v, "stopSignal"), "stopSignal", 31, &d->stop_signal, reterr)) < 0)
        return r;
    return read_labels(json_get(v, "labels"), &d->labels, reterr);
}

static int read_layers(struct doc *d, const struct json_value *v, struct error *reterr)
{
    unsigned char sum[SHA256_BYTES];
    json_for_each (item, v) {
        struct doc_layer *l = &d->layers[d->layer_count];
        const char *digest = json_string(json_get(item, "digest"), NULL),
                   *image = json_string(json_get(item, "image"), NULL);
        int64_t bytes = 0;
        (void)json_integer(json_get(item, "size"), 0, INT64_MAX, &bytes);
        bool ok = d->layer_count < IMAGE_LAYERS_MAX &&
                  (image ? keeper_image_name_ok(image) : digest && sha256_parse(digest, sum));
        if (!ok)
            return error_set(reterr, EBADMSG, "the image's list of layers is damaged");
        l->plain = image != NULL;
        l->bytes = (uint64_t)bytes;
        (void)snprintf(l->name, sizeof l->name, "%s", image ? image : digest + 7);
        d->layer_count++;
    }
    return 0;
}

int doc_read(struct doc *d, const struct json_value *v, struct error *reterr)
{
    const struct json_value *config = json_get(v, "config");
    if (json_type_of(v) != JSON_OBJECT)
        return error_set(reterr, EBADMSG, "the image's config.json is not an object");
    read_word(json_get(v, "createdAt"), d->created, sizeof d->created);
    read_word(json_get(v, "parent"), d->parent, sizeof d->parent);
    read_word(json_get(v, "architecture"), d->architecture, sizeof d->architecture);
    read_word(json_get(v, "os"), d->os, sizeof d->os);
    int r = read_config(d, config ? config : v, reterr);
    if (r == 0)
        r = read_list(json_get(v, "notes"), "notes", &d->notes, reterr);
    return r < 0 ? r : read_layers(d, json_get(v, "layers"), reterr);
}

int doc_read_oci(struct doc *d, const struct json_value *v, struct error *reterr)
{
    const struct json_value *c = json_get(v, "config");
    int r;
    if (json_type_of(v) != JSON_OBJECT)
        return error_set(reterr, EBADMSG, "the image's configuration is not an object");
    read_word(json_get(v, "created"), d->created, sizeof d->created);
    read_word(json_get(v, "architecture"), d->architecture, sizeof d->architecture);
    read_word(json_get(v, "os"), d->os, sizeof d->os);
    if ((r = read_env(json_get(c, "Env"), &d->env, reterr)) < 0 ||
        (r = read_workdir(json_get(c, "WorkingDir"), &d->workdir, reterr)) < 0 ||
        (r = read_text(json_get(c, "User"), "User", 255, &d->user, reterr)) < 0 ||
        (r = read_list(json_get(c, "Entrypoint"), "Entrypoint", &d->entrypoint, reterr)) < 0 ||
        (r = read_list(json_get(c, "Cmd"), "Cmd", &d->cmd, reterr)) < 0 ||
        (r = read_list(json_get(c, "Shell"), "Shell", &d->shell, reterr)) < 0 ||
        (r = read_ports(json_get(c, "ExposedPorts"), &d->ports, reterr)) < 0 ||
        (r = read_text(json_get(c, "StopSignal"), "StopSignal", 31, &d->stop_signal, reterr)) < 0 ||
        (r = read_labels(json_get(c, "Labels"), &d->labels, reterr)) < 0)
        return r;
    if (json_type_of(json_get(c, "Healthcheck")) == JSON_OBJECT)
        r = doc_note(d, "HEALTHCHECK is not acted on", reterr);
    if (r == 0 && json_count(json_get(c, "Volumes")) > 0)
        r = doc_note(d, "VOLUME is not acted on: these directories are part of the sandbox's own files",
                     reterr);
    if (r == 0 && json_count(json_get(c, "OnBuild")) > 0)
        r = doc_note(d, "ONBUILD is not acted on", reterr);
    return r;
}

int doc_override(struct doc *d, const struct json_value *v, struct error *reterr)
{
    if (json_type_of(v) == JSON_NULL)
        return 0;
    if (json_type_of(v) != JSON_OBJECT)
        return error_set(reterr, EBADMSG, "config must be an object");
    json_for_each (item, v) {
        const char *key = json_key(item);
        int r;
        if (strcmp(key, "env") == 0) {
            if (json_type_of(item) == JSON_NULL)
                list_done(&d->env);
            r = read_env(item, &d->env, reterr);
        } else if (strcmp(key, "workdir") == 0) {
            r = read_workdir(item, &d->workdir, reterr);
        } else if (strcmp(key, "user") == 0) {
            r = read_text(item, "user", 255, &d->user, reterr);
        } else if (strcmp(key, "entrypoint") == 0) {
            r = read_list(item, "entrypoint", &d->entrypoint, reterr);
        } else if (strcmp(key, "cmd") == 0) {
            r = read_list(item, "cmd", &d->cmd, reterr);
        } else if (strcmp(key, "shell") == 0) {
            r = read_list(item, "shell", &d->shell, reterr);
        } else if (strcmp(key, "exposedPorts") == 0) {
            r = read_ports(item, &d->ports, reterr);
        } else if (strcmp(key, "labels") == 0) {
            r = read_labels(item, &d->labels, reterr);
        } else if (strcmp(key, "stopSignal") == 0) {
            r = read_text(item, "stopSignal", 31, &d->stop_signal, reterr);
        } else if (strcmp(key, "notes") == 0) {
            r = read_list(item, "notes", &d->notes, reterr);
        } else {
            r = error_set(reterr, EBADMSG, "config has the unknown member '%.40s'", key);
        }
        if (r < 0)
            return r;
    }
    return 0;
}
