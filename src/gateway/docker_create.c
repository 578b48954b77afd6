/* SPDX-License-Identifier: Apache-2.0 */
/* docker_create.c: POST /containers/create: what the caller decides, laid over what the image says, and what
 * becomes of it when the container starts.
 *
 * Nothing is started yet: a container that was only created has a row and no sandbox (unless files are put
 * into it before its start). What would weaken the isolation is ignored, and logged; mounts are refused,
 * because whoever asks for one relies on it. */
#include "gateway/docker_internal.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { CONFIG_MAX = 4 << 20 };

/* ------------------------------------------------------------------ reading */

struct creation {
    struct docker_request *r;
    struct docker_image image;
    const struct json_value *body, *host;
    const char *image_name;
    bool is_sidecar;
    int egress_port;
};

static bool is_set(const struct json_value *v)
{
    enum json_type t = json_type_of(v);
    if (t == JSON_ARRAY || t == JSON_OBJECT)
        return json_count(v) > 0;
    return t == JSON_STRING ? *json_string(v, NULL) != '\0' : t != JSON_NULL;
}

static int check_strings(const struct json_value *body, const char *key, bool may_be_one, struct problem *p)
{
    const struct json_value *v = json_get(body, key);
    bool fine = !is_set(v) || json_type_of(v) == JSON_ARRAY || (may_be_one && json_type_of(v) == JSON_STRING);
    if (json_type_of(v) == JSON_ARRAY)
        json_for_each (item, v)
            fine &= json_type_of(item) == JSON_STRING;
    return fine ? 0 : problem_set(p, 400, "INVALID", "%s must be a list of strings", key);
}

static int check_type(const struct json_value *object, const char *key, enum json_type type, const char *what,
                      struct problem *p)
{
    const struct json_value *v = json_get(object, key);
    return json_type_of(v) == JSON_NULL || json_type_of(v) == type
               ? 0
               : problem_set(p, 400, "INVALID", "%s must be %s", key, what);
}

static int check_labels(const struct json_value *body, struct problem *p)
{
    int r = check_type(body, "Labels", JSON_OBJECT, "an object", p);
    json_for_each (label, json_get(body, "Labels"))
        if (r == 0 && json_type_of(label) != JSON_STRING)
            r = problem_set(p, 400, "INVALID", "Labels must be strings");
    return r;
}

static int check(const struct creation *x, struct problem *p)
{
    static const char *const texts[] = {"Image", "WorkingDir", "User", "Hostname"};
    int r = json_type_of(x->body) == JSON_OBJECT
                ? 0
                : problem_set(p, 400, "INVALID", "the body must be an object");
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(texts); i++)
        r = check_type(x->body, texts[i], JSON_STRING, "a string", p);
    if (r == 0)
        r = check_strings(x->body, "Cmd", true, p);
    if (r == 0)
        r = check_strings(x->body, "Entrypoint", true, p);
    if (r == 0)
        r = check_strings(x->body, "Env", false, p);
    if (r == 0)
        r = check_labels(x->body, p);
    if (r == 0)
        r = check_type(x->body, "HostConfig", JSON_OBJECT, "an object", p);
    if (r == 0 && (is_set(json_get(x->host, "Binds")) || is_set(json_get(x->host, "Mounts"))))
        r = problem_set(p, 400, "INVALID", "containers cannot have mounts here");
    if (r == 0 && !x->image_name)
        r = problem_set(p, 400, "INVALID", "Image is missing");
    return r;
}

static void note_ignored(const struct creation *x, const char *name)
{
    static const char *const ignored[] = {"CapAdd",     "Devices", "SecurityOpt",
                                          "Privileged", "PidMode", "IpcMode"};
    for (size_t i = 0; i < ARRAY_SIZE(ignored); i++) {
        const struct json_value *v = json_get(x->host, ignored[i]);
        if (is_set(v) && (json_type_of(v) != JSON_BOOL || json_bool(v, false)))
            log_info("container %s: %s is ignored: it is isolated like every sandbox", name, ignored[i]);
    }
}

/* A sidecar is known by its image's name, or, when that was changed, by its arguments. */
static void look_for_sidecar(struct creation *x)
{
    static const char option[] = "--http-egress-port";
    const char *before = "";
    x->is_sidecar =
        x->image_name && docker_is_sidecar_image(x->image_name) && !is_set(json_get(x->body, "Entrypoint"));
    json_for_each (item, json_get(x->body, "Cmd")) {
        const char *text = json_string(item, NULL);
        if (text && strcmp(before, option) == 0) {
            x->egress_port = (int)strtol(text, NULL, 10);
            x->is_sidecar = true;
        }
        before = text ? text : "";
    }
}

/* ------------------------------------------------------------------ what is kept */

static void put_strings(struct json_writer *w, const char *key, const struct json_value *v)
{
    json_put_key(w, key);
    if (json_type_of(v) == JSON_ARRAY) {
        json_put_value(w, v);
        return;
    }
    json_array_begin(w);
    if (json_string(v, NULL))
        json_put_value(w, v);
    json_array_end(w);
}

static void put_as_is(struct json_writer *w, const struct json_value *object, const char *key)
{
    const struct json_value *v = json_get(object, key);
    if (!is_set(v))
        return;
    json_put_key(w, key);
    json_put_value(w, v);
}

static void put_config(struct json_writer *w, const struct creation *x)
{
    const struct json_value *entrypoint = json_get(x->body, "Entrypoint"), *cmd = json_get(x->body, "Cmd");
    bool own_entrypoint = is_set(entrypoint);
    const char *cwd = json_string(json_get(x->body, "WorkingDir"), NULL);
    json_object_begin(w);
    json_member_string(w, "Image", x->image_name);
    json_member_string(w, "ImageId", x->image.id);
    put_strings(w, "Entrypoint", own_entrypoint ? entrypoint : x->image.entrypoint);
    put_strings(w, "Cmd", is_set(cmd) ? cmd : own_entrypoint ? NULL : x->image.cmd);
    put_strings(w, "Env", json_get(x->body, "Env"));
    json_member_string(w, "WorkingDir", cwd && *cwd ? cwd : x->image.workdir ? x->image.workdir : "");
    put_as_is(w, x->body, "User");
    put_as_is(w, x->body, "Hostname");
    put_as_is(w, x->body, "Labels");
    put_as_is(w, x->body, "ExposedPorts");
    put_as_is(w, x->body, "StopTimeout");
    if (x->egress_port)
        json_member_int(w, "EgressPort", x->egress_port);
    json_put_key(w, "HostConfig");
    json_object_begin(w);
    put_as_is(w, x->host, "NetworkMode");
    put_as_is(w, x->host, "RestartPolicy");
    json_object_end(w);
    json_object_end(w);
}

/* ------------------------------------------------------------------ the answer */

static void created(struct container_want *w, const struct problem *p);

struct create_op {
    struct http_request *req;
    struct docker *docker;
    char id[CONTAINER_ID_CHARS + 1];
    struct container_want failed; /* the removal of what could not be written */
};

static void create_gone(struct http_request *req)
{
    struct create_op *op = req->user;
    op->req = NULL;
}

static void saved(void *arg, uint64_t ticket, int err)
{
    struct create_op *op = arg;
    struct container *c = docker_find(op->docker, op->id);
    char answer[CONTAINER_ID_CHARS + 64];
    (void)ticket;
    if (err < 0 && c) {
        op->failed.done = created;
        container_remove(c, &op->failed);
        return;
    }
    (void)snprintf(answer, sizeof answer, "{\"Id\":\"%s\",\"Warnings\":[]}", op->id);
    if (op->req)
        http_respond(op->req, 201, "application/json", answer, strlen(answer));
    free(op);
}

static void created(struct container_want *w, const struct problem *p)
{
    struct create_op *op = container_of(w, struct create_op, failed);
    (void)p;
    if (op->req)
        docker_reply_error(op->req, 500, "the container could not be recorded on disk");
    free(op);
}

static int make(struct creation *x, const char *name, const char *id, struct container **ret)
{
    struct buf config = BUF_INIT(CONFIG_MAX);
    struct json_writer w;
    struct container *c = container_new(x->r->docker, id);
    if (!c)
        return -ENOMEM;
    json_writer_init(&w, &config);
    put_config(&w, x);
    const char *text = buf_cstr(&config);
    int r = w.err < 0 || !text ? -ENOMEM : container_set_config(c, text);
    buf_done(&config);
    c->name = strdup(name);
    c->image = strdup(x->image_name);
    c->is_sidecar = x->is_sidecar;
    c->created_ms = clock_wall_ms();
    if (r < 0 || !c->name || !c->image) {
        container_free(c);
        return -ENOMEM;
    }
    *ret = c;
    return 0;
}

/* The name that was asked for, or one of our own; false: answered. */
static bool read_name(struct docker_request *r, const char *id, char name[DOCKER_NAME_MAX + 1])
{
    const struct container *other;
    (void)snprintf(name, DOCKER_NAME_MAX + 1, "%.12s", id);
    if (strstr(r->req->query, "name=") && !http_query_get(r->req->query, "name", name, DOCKER_NAME_MAX + 1))
        name[0] = '\0';
    if (!docker_name_ok(name)) {
        docker_reply_error(r->req, 400, "a container's name is 1 to %d letters, digits, '_', '.' and '-'",
                           DOCKER_NAME_MAX);
        return false;
    }
    if ((other = docker_find(r->docker, name)) && strcmp(other->name, name) == 0) {
        docker_reply_error(r->req, 409,
                           "Conflict. The container name \"/%s\" is already in use by container \"%s\"", name,
                           other->id);
        return false;
    }
    return true;
}

void docker_create(struct docker_request *r)
{
    struct creation x = {.r = r, .body = r->body, .host = json_get(r->body, "HostConfig")};
    char name[DOCKER_NAME_MAX + 1], id[CONTAINER_ID_CHARS + 1];
    unsigned char random[CONTAINER_ID_CHARS / 2];
    struct problem p;
    struct container *c;
    random_bytes(random, sizeof random);
    hex_encode(id, random, sizeof random);
    x.image_name = json_string(json_get(x.body, "Image"), NULL);
    look_for_sidecar(&x);
    if (check(&x, &p) < 0 ||
        (!x.is_sidecar && docker_image_find(r->docker, x.image_name, &x.image, &p) < 0)) {
        docker_reply_problem(r->req, &p);
        return;
    }
    if (!read_name(r, id, name))
        return;
    if (x.is_sidecar)
        sidecars_trim(r->docker);
    if (r->docker->container_count >= DOCKER_CONTAINERS_MAX) {
        docker_reply_error(r->req, 429, "there are %d containers already", DOCKER_CONTAINERS_MAX);
        return;
    }
    struct create_op *op = calloc(1, sizeof *op);
    if (!op || make(&x, name, id, &c) < 0) {
        free(op);
        docker_reply_error(r->req, 500, "out of memory");
        return;
    }
    note_ignored(&x, name);
    op->req = r->req;
    op->docker = r->docker;
    memcpy(op->id, id, sizeof id);
    r->req->user = op;
    r->req->on_gone = create_gone;
    container_save(c, saved, op);
}

/* ------------------------------------------------------------------ what becomes of it */

static void put_env(struct json_writer *w, const struct json_value *list)
{
    json_object_begin(w);
    json_for_each (item, list) {
        const char *text = json_string(item, NULL), *eq = text ? strchr(text, '=') : NULL;
        char name[256];
        if (!eq || (size_t)(eq - text) >= sizeof name)
            continue; /* a name alone takes a variable away in other engines: there is nothing to take away */
        memcpy(name, text, (size_t)(eq - text));
        name[eq - text] = '\0';
        json_member_string(w, name, eq + 1);
    }
    json_object_end(w);
}

static void put_setting(struct json_writer *w, const char *key, const char *value)
{
    if (value && *value)
        json_member_string(w, key, value);
}

int container_sandbox_config(const struct container *c, struct sandbox_config *ret, struct problem *p)
{
    const struct json_value *config = json_root(c->doc);
    struct buf text = BUF_INIT(CONFIG_MAX);
    struct json_writer w;
    struct error e;
    auto_json struct json_doc *doc = NULL;
    json_writer_init(&w, &text);
    json_object_begin(&w);
    json_put_key(&w, "env");
    put_env(&w, json_get(config, "Env"));
    json_put_key(&w, "labels");
    json_object_begin(&w);
    json_member_string(&w, "silica.container", c->name);
    json_object_end(&w);
    json_member_bool(&w, "keepAlive", true);
    put_setting(&w, "user", json_string(json_get(config, "User"), NULL));
    const char *host = json_string(json_get(config, "Hostname"), NULL);
    char short_id[16];
    (void)snprintf(short_id, sizeof short_id, "%.12s", c->id);
    put_setting(&w, "hostname", host ? host : short_id);
    json_object_end(&w);
    int r = w.err;
    if (r == 0)
        r = sandbox_config_copy(ret, lifecycle_defaults(c->docker->g->lifecycle));
    if (r == 0) {
        r = json_parse(buf_data(&text), buf_len(&text), 0, &doc, &e);
        if (r == 0)
            r = sandbox_config_apply(ret, json_root(doc), p);
        const char *image = json_string(json_get(config, "ImageId"), NULL);
        (void)snprintf(ret->image, sizeof ret->image, "%s", image ? image : "");
        if (container_sidecar(c))
            ret->reach.network = KEEPER_NETWORK_SIDECAR;
        if (r < 0)
            sandbox_config_done(ret);
    }
    buf_done(&text);
    return r == -EINVAL ? r : r < 0 ? problem_set(p, 500, "INTERNAL_ERROR", "out of memory") : 0;
}

int container_start_body(const struct container *c, struct buf *out)
{
    static const char *const lists[] = {"Entrypoint", "Cmd"};
    const struct json_value *config = json_root(c->doc);
    struct json_writer w;
    json_writer_init(&w, out);
    json_object_begin(&w);
    json_put_key(&w, "argv");
    json_array_begin(&w);
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        json_for_each (item, json_get(config, lists[i]))
            json_put_value(&w, item);
    json_array_end(&w);
    json_member_string(&w, "cwd", json_string(json_get(config, "WorkingDir"), NULL));
    json_object_end(&w);
    return w.err;
}
