/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox.c: health, and sandboxes as things: put, get, list, destroy. */
#include "client/client_internal.h"

#include <errno.h>
#include <string.h>

enum { CONFIG_MAX = 4 << 20 };

int silica_health(struct silica_client *c, char **ret_json, struct silica_error *reterr)
{
    struct silica_request q = {.method = "GET", .path = "/health"};
    struct client_answer a;
    int r = client_call(c, &q, &a, reterr);
    if (r < 0)
        return r;
    *ret_json = take_ptr(a.json);
    client_answer_done(&a);
    return 0;
}

/* A copy of a member that is a string; NULL when it is not there. false: out of memory. */
static bool copy_labels(const struct json_value *labels, struct silica_sandbox *s)
{
    if (json_type_of(labels) != JSON_OBJECT || json_count(labels) == 0)
        return true;
    s->labels = calloc(json_count(labels), sizeof *s->labels);
    if (!s->labels)
        return false;
    json_for_each (child, labels) {
        const char *value = json_string(child, NULL);
        if (!value)
            continue;
        struct silica_label *l = &s->labels[s->label_count++];
        l->key = strdup(json_key(child));
        l->value = strdup(value);
        if (!l->key || !l->value)
            return false;
    }
    return true;
}

static bool copy_json(const struct json_value *v, char **ret)
{
    struct buf b = BUF_INIT(CLIENT_ANSWER_MAX);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_put_value(&w, v);
    if (w.err < 0 || !buf_cstr(&b)) {
        buf_done(&b);
        return false;
    }
    *ret = b.base;
    return true;
}

/* The first string of an array, if there is one. */
static bool copy_first(const struct json_value *list, char **ret)
{
    json_for_each (v, list) {
        const char *text = json_string(v, NULL);
        *ret = text ? strdup(text) : NULL;
        return !text || *ret;
    }
    return true;
}

static int sandbox_read(const struct json_value *v, struct silica_sandbox *ret, struct silica_error *reterr)
{
    struct silica_sandbox s = {.memory_bytes = -1, .tasks = -1, .sleep_after_ms = -1};
    if (!json_string(json_get(v, "id"), NULL))
        return client_fail(reterr, SILICA_ERROR_PROTOCOL, EBADMSG,
                           "the server describes a sandbox without an id");

    bool ok = client_copy_member(v, "id", &s.id) && client_copy_member(v, "state", &s.state) &&
              client_copy_member(v, "image", &s.image) &&
              copy_first(json_get(v, "imageNames"), &s.image_name) &&
              client_copy_member(v, "instanceType", &s.instance_type) &&
              client_copy_member(v, "createdAt", &s.created_at) &&
              client_copy_member(v, "lastUsedAt", &s.last_used_at) &&
              copy_labels(json_get(v, "labels"), &s) && copy_json(v, &s.json);
    (void)json_integer(json_get(v, "memoryBytes"), 0, INT64_MAX, &s.memory_bytes); /* absent: stays -1 */
    (void)json_integer(json_get(v, "tasks"), 0, INT64_MAX, &s.tasks);
    double seconds;
    if (json_number(json_get(v, "sleepAfter"), &seconds) && seconds >= 0 && seconds < 1e12)
        s.sleep_after_ms = (int64_t)(seconds * 1000);
    if (!ok) {
        silica_sandbox_done(&s);
        return client_fail_memory(reterr);
    }
    *ret = s;
    return 0;
}

static void put_limits(struct json_writer *w, const struct silica_sandbox_config *config)
{
    if (!config->memory_bytes && !config->disk_bytes && !config->tasks && !config->cpu_milli &&
        !config->network_bps && !config->connections)
        return;
    json_put_key(w, "limits");
    json_object_begin(w);
    if (config->memory_bytes)
        json_member_int(w, "memoryBytes", (int64_t)config->memory_bytes);
    if (config->disk_bytes)
        json_member_int(w, "diskBytes", (int64_t)config->disk_bytes);
    if (config->tasks)
        json_member_int(w, "tasks", config->tasks);
    if (config->network_bps)
        json_member_int(w, "networkBytesPerSecond", (int64_t)config->network_bps);
    if (config->connections)
        json_member_int(w, "connections", config->connections);
    if (config->cpu_milli) {
        json_put_key(w, "cpu");
        json_put_number(w, config->cpu_milli / 1000.0);
    }
    json_object_end(w);
}

static void put_volume(struct json_writer *w, const char *text)
{
    const char *colon = strchr(text, ':');
    size_t n = strlen(text);
    bool read_only = n > 3 && strcmp(text + n - 3, ":ro") == 0;
    json_object_begin(w);
    json_put_key(w, "name");
    json_put_bytes(w, text, (size_t)(colon - text));
    json_put_key(w, "path");
    json_put_bytes(w, colon + 1, strlen(colon + 1) - (read_only ? 3 : 0));
    json_member_bool(w, "readOnly", read_only);
    json_object_end(w);
}

static void put_inside(struct json_writer *w, const struct silica_sandbox_config *config)
{
    if (config->user)
        json_member_string(w, "user", config->user);
    if (config->workdir)
        json_member_string(w, "workdir", config->workdir);
    if (config->hostname)
        json_member_string(w, "hostname", config->hostname);
    if (!config->volumes)
        return;
    json_put_key(w, "volumes");
    json_array_begin(w);
    for (const char *const *v = config->volumes; *v; v++)
        put_volume(w, *v);
    json_array_end(w);
}

static void put_network(struct json_writer *w, const struct silica_sandbox_config *config)
{
    if (!config->network)
        return;
    json_put_key(w, "network");
    json_object_begin(w);
    json_member_string(w, "mode", config->network);
    if (config->allow) {
        json_put_key(w, "allow");
        json_array_begin(w);
        for (const char *const *a = config->allow; *a; a++)
            json_put_string(w, *a);
        json_array_end(w);
    }
    json_object_end(w);
}

/* "NAME:/path[:ro]"; what else is wrong with it the server says. */
static int check_volumes(const char *const *volumes, struct silica_error *reterr)
{
    for (; volumes && *volumes; volumes++) {
        const char *colon = strchr(*volumes, ':');
        if (!colon || colon == *volumes || colon[1] != '/')
            return client_fail(reterr, SILICA_ERROR_ARGUMENT, EINVAL,
                               "'%.60s' is not NAME:/path or NAME:/path:ro", *volumes);
    }
    return 0;
}

static int put_config(struct buf *out, const struct silica_sandbox_config *config)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object_begin(&w);
    if (config->image)
        json_member_string(&w, "image", config->image);
    if (config->instance_type)
        json_member_string(&w, "instanceType", config->instance_type);
    put_limits(&w, config);
    if (config->env) {
        json_put_key(&w, "env");
        client_put_pairs(&w, config->env);
    }
    if (config->labels) {
        json_put_key(&w, "labels");
        client_put_pairs(&w, config->labels);
    }
    if (config->sleep_after_ms) {
        json_put_key(&w, "sleepAfter");
        json_put_number(&w, (double)config->sleep_after_ms / 1000);
    }
    put_inside(&w, config);
    put_network(&w, config);
    if (config->set_keep_alive)
        json_member_bool(&w, "keepAlive", config->keep_alive);
    json_object_end(&w);
    return w.err;
}

/* One request about one sandbox; ret may be NULL when the answer does not matter. */
static int sandbox_call(struct silica_client *c, const char *method, const char *id, const char *tail,
                        const struct buf *body, struct silica_sandbox *ret, struct silica_error *reterr)
{
    struct client_answer a;
    int r = client_sandbox_call(c, method, id, tail, body, ret ? &a : NULL, reterr);
    if (r < 0 || !ret)
        return r;
    r = sandbox_read(json_root(a.doc), ret, reterr);
    client_answer_done(&a);
    return r;
}

int silica_sandbox_put(struct silica_client *c, const char *id, const struct silica_sandbox_config *config,
                       struct silica_sandbox *ret, struct silica_error *reterr)
{
    static const struct silica_sandbox_config none;
    const struct silica_sandbox_config *k = config ? config : &none;
    int r = client_check_pairs(k->env, reterr);
    if (r == 0)
        r = client_check_pairs(k->labels, reterr);
    if (r == 0)
        r = check_volumes(k->volumes, reterr);
    if (r < 0)
        return r;
    struct buf body = BUF_INIT(CONFIG_MAX);
    r = put_config(&body, k);
    if (r < 0)
        r = client_fail(reterr, SILICA_ERROR_ARGUMENT, -r, "the configuration is too large");
    else
        r = sandbox_call(c, "PUT", id, "", &body, ret, reterr);
    buf_done(&body);
    return r;
}

int silica_sandbox_get(struct silica_client *c, const char *id, struct silica_sandbox *ret,
                       struct silica_error *reterr)
{
    return sandbox_call(c, "GET", id, "", NULL, ret, reterr);
}

int silica_sandbox_destroy(struct silica_client *c, const char *id, struct silica_error *reterr)
{
    return sandbox_call(c, "DELETE", id, "", NULL, NULL, reterr);
}

int silica_sandbox_sleep(struct silica_client *c, const char *id, struct silica_sandbox *ret,
                         struct silica_error *reterr)
{
    return sandbox_call(c, "POST", id, "/sleep", NULL, ret, reterr);
}

int silica_sandbox_wake(struct silica_client *c, const char *id, struct silica_sandbox *ret,
                        struct silica_error *reterr)
{
    return sandbox_call(c, "POST", id, "/wake", NULL, ret, reterr);
}

int silica_sandbox_list(struct silica_client *c, struct silica_sandbox_list *ret, struct silica_error *reterr)
{
    struct silica_request q = {.method = "GET", .path = "/v1/sandbox"};
    struct client_answer a;
    int r = client_call(c, &q, &a, reterr);
    if (r < 0)
        return r;

    struct silica_sandbox_list l = {0};
    const struct json_value *sandboxes;
    r = client_answer_list(c, &a, "sandboxes", &sandboxes, reterr);
    if (r == 0 && !(l.items = calloc(json_count(sandboxes) + 1, sizeof *l.items)))
        r = client_fail_memory(reterr);
    for (const struct json_value *v = json_first(sandboxes); r == 0 && v; v = json_next(v))
        if ((r = sandbox_read(v, &l.items[l.count], reterr)) == 0)
            l.count++;
    if (r == 0) {
        l.json = take_ptr(a.json);
        *ret = l;
    } else {
        silica_sandbox_list_done(&l);
    }
    client_answer_done(&a);
    return r;
}

void silica_sandbox_done(struct silica_sandbox *s)
{
    char *const strings[] = {s->id,         s->state,        s->image, s->image_name, s->instance_type,
                             s->created_at, s->last_used_at, s->json};
    for (size_t i = 0; i < ARRAY_SIZE(strings); i++)
        free(strings[i]);
    for (size_t i = 0; i < s->label_count; i++) {
        free(s->labels[i].key);
        free(s->labels[i].value);
    }
    free(s->labels);
    memset(s, 0, sizeof *s);
}

void silica_sandbox_list_done(struct silica_sandbox_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        silica_sandbox_done(&l->items[i]);
    free(l->items);
    free(l->json);
    memset(l, 0, sizeof *l);
}
