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
static bool copy_member(const struct json_value *v, const char *name, char **ret)
{
    const char *s = json_string(json_get(v, name), NULL);
    if (!s)
        return true;
    *ret = strdup(s);
    return *ret != NULL;
}

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

static int sandbox_read(const struct json_value *v, struct silica_sandbox *ret, struct silica_error *reterr)
{
    struct silica_sandbox s = {.memory_bytes = -1, .tasks = -1, .sleep_after_ms = -1};
    if (!json_string(json_get(v, "id"), NULL))
        return client_fail(reterr, SILICA_ERROR_PROTOCOL, EBADMSG,
                           "the server describes a sandbox without an id");

    bool ok = copy_member(v, "id", &s.id) && copy_member(v, "state", &s.state) &&
              copy_member(v, "image", &s.image) && copy_member(v, "instanceType", &s.instance_type) &&
              copy_member(v, "createdAt", &s.created_at) && copy_member(v, "lastUsedAt", &s.last_used_at) &&
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
    if (!config->memory_bytes && !config->disk_bytes && !config->tasks && !config->cpu_milli)
        return;
    json_put_key(w, "limits");
    json_object_begin(w);
    if (config->memory_bytes)
        json_member_int(w, "memoryBytes", (int64_t)config->memory_bytes);
    if (config->disk_bytes)
        json_member_int(w, "diskBytes", (int64_t)config->disk_bytes);
    if (config->tasks)
        json_member_int(w, "tasks", config->tasks);
    if (config->cpu_milli) {
        json_put_key(w, "cpu");
        json_put_number(w, config->cpu_milli / 1000.0);
    }
    json_object_end(w);
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
    if (config->set_keep_alive)
        json_member_bool(&w, "keepAlive", config->keep_alive);
    json_object_end(&w);
    return w.err;
}

/* One request about one sandbox; ret may be NULL when the answer does not matter. */
static int sandbox_call(struct silica_client *c, const char *method, const char *id, const char *tail,
                        const struct buf *body, struct silica_sandbox *ret, struct silica_error *reterr)
{
    if (!*id)
        return client_fail(reterr, SILICA_ERROR_ARGUMENT, EINVAL, "the id of the sandbox is empty");
    struct buf path = BUF_INIT(4096);
    int r = client_sandbox_path(&path, id, tail);
    if (r < 0) {
        buf_done(&path);
        return client_fail(reterr, SILICA_ERROR_ARGUMENT, -r, "the id of the sandbox is too long");
    }
    struct silica_request q = {.method = method, .path = buf_cstr(&path)};
    if (body) {
        q.body = buf_data(body);
        q.body_bytes = buf_len(body);
    }
    if (ret) {
        struct client_answer a;
        r = client_call(c, &q, &a, reterr);
        if (r == 0) {
            r = sandbox_read(json_root(a.doc), ret, reterr);
            client_answer_done(&a);
        }
    } else {
        struct silica_response response;
        r = silica_request(c, &q, &response, reterr);
        if (r == 0) {
            r = silica_response_error(&response, reterr);
            silica_response_done(&response);
        }
    }
    buf_done(&path);
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
    const struct json_value *items = json_get(json_root(a.doc), "sandboxes");
    if (json_type_of(items) != JSON_ARRAY)
        r = client_fail(reterr, SILICA_ERROR_PROTOCOL, EBADMSG,
                        "the answer from %s has no list of sandboxes: is this a Silica server?", c->url.text);
    else if (json_count(items) > 0 && !(l.items = calloc(json_count(items), sizeof *l.items)))
        r = client_fail_memory(reterr);
    if (r == 0)
        json_for_each (child, items) {
            r = sandbox_read(child, &l.items[l.count], reterr);
            if (r < 0)
                break;
            l.count++;
        }
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
    char *const strings[] = {s->id,         s->state,        s->image, s->instance_type,
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
