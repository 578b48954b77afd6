/* SPDX-License-Identifier: Apache-2.0 */
/* api_volumes.c: /v1/volumes: named disks for sandboxes; see docs/volumes.md.
 *
 *   POST   /v1/volumes {"name": NAME, "size"?: "10GiB" | BYTES}
 *   GET    /v1/volumes
 *   GET    /v1/volumes/NAME
 *   DELETE /v1/volumes/NAME     refused while a sandbox has it, whether it runs or sleeps */
#include "gateway/body_json.h"
#include "gateway/gateway_internal.h"
#include "gateway/reply.h"
#include "base/clock.h"
#include "base/quantity.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { VOLUME_BODY_MAX = 16 * 1024, ITEMS_MAX = 4096 };
#define VOLUME_BYTES_DEFAULT (UINT64_C(1) << 30)

struct volume_op {
    struct gateway *g;
    struct http_request *req;       /* NULL: the caller is gone */
    char name[VOLUME_NAME_MAX + 1]; /* "": all */
    struct keeper_volume_tell *items;
    size_t count, cap;
    bool no_memory;
};

static void op_free(struct volume_op *op)
{
    free(op->items);
    free(op);
}

static void op_gone(struct http_request *req)
{
    struct volume_op *op = req->user;
    op->req = NULL; /* the keeper still works for it */
}

static struct volume_op *op_new(struct gateway *g, struct http_request *req)
{
    struct volume_op *op = calloc(1, sizeof *op);
    if (!op) {
        reply_error(req, 500, "INTERNAL_ERROR", "out of memory");
        return NULL;
    }
    op->g = g;
    op->req = req;
    req->user = op;
    req->on_gone = op_gone;
    return op;
}

/* ------------------------------------------------------------------ who has it */

struct users {
    const char *volume;
    struct json_writer *w; /* NULL: only count */
    size_t count;
    char first[SANDBOX_ID_MAX + 1];
};

static bool has_volume(const struct sandbox_settings *s, const char *name)
{
    struct keeper_volume_mount v[KEEPER_VOLUMES_MAX];
    size_t count = s->volumes && strstr(s->volumes, name) ? sandbox_settings_volumes(s, v) : 0;
    for (size_t i = 0; i < count; i++)
        if (strcmp(v[i].name, name) == 0)
            return true;
    return false;
}

static void look_at(struct sandbox *sb, void *arg)
{
    struct users *u = arg;
    if (!has_volume(&sb->config.settings, u->volume) &&
        !(sb->has_next_config && has_volume(&sb->next_config.settings, u->volume)))
        return;
    if (u->w)
        json_put_string(u->w, sb->id);
    if (!u->count++)
        memcpy(u->first, sb->id, sizeof u->first);
}

static void put_volume(struct json_writer *w, struct gateway *g, const struct keeper_volume_tell *v)
{
    char time[CLOCK_ISO_SIZE];
    struct users users = {.volume = v->name, .w = w};
    json_object_begin(w);
    json_member_string(w, "name", v->name);
    json_member_int(w, "sizeBytes", (int64_t)v->bytes);
    json_member_int(w, "usedBytes", (int64_t)v->used_bytes);
    clock_iso(v->created_ms, time);
    json_member_string(w, "createdAt", time);
    json_put_key(w, "sandboxes");
    json_array_begin(w);
    lifecycle_for_each(g->lifecycle, look_at, &users);
    json_array_end(w);
    json_object_end(w);
}

static void reply_volume(struct http_request *req, int status, struct gateway *g,
                         const struct keeper_volume_tell *v)
{
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    json_writer_init(&w, &out);
    put_volume(&w, g, v);
    reply_json(req, status, &w);
}

static void reply_unknown(struct http_request *req, const char *name)
{
    reply_error(req, 404, "VOLUME_NOT_FOUND", "there is no volume '%.63s'", name);
}

/* The name at the end of the path; NULL: answered, it is none. */
static const char *name_of(struct http_request *req)
{
    const char *name = req->path + strlen("/v1/volumes/");
    if (volume_name_ok(name))
        return name;
    reply_unknown(req, name);
    return NULL;
}

/* ------------------------------------------------------------------ GET */

static void reply_list(struct volume_op *op)
{
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_put_key(&w, "volumes");
    json_array_begin(&w);
    for (size_t i = 0; i < op->count; i++)
        put_volume(&w, op->g, &op->items[i]);
    json_array_end(&w);
    json_member_int(&w, "count", (int64_t)op->count);
    json_object_end(&w);
    reply_json(op->req, 200, &w);
}

static int compare_names(const void *a, const void *b)
{
    const struct keeper_volume_tell *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static void take_item(struct volume_op *op, const struct keeper_volume_tell *v)
{
    if (op->count == op->cap) {
        size_t cap = op->cap ? op->cap * 2 : 16;
        struct keeper_volume_tell *items = cap <= ITEMS_MAX ? realloc(op->items, cap * sizeof *items) : NULL;
        op->no_memory |= !items;
        if (!items)
            return;
        op->items = items;
        op->cap = cap;
    }
    op->items[op->count++] = *v;
}

static void looked(void *arg, const struct keeper_reply *reply, int fd)
{
    struct volume_op *op = arg;
    close_fd(&fd);
    if (reply->type == KEEPER_ITEM) {
        take_item(op, &reply->volume);
        return;
    }
    if (!op->req) {
        op_free(op);
        return;
    }
    if (op->no_memory)
        reply_error(op->req, 500, "INTERNAL_ERROR", "out of memory");
    else if (op->name[0] && (reply->error == ENODEV || !op->count))
        reply_unknown(op->req, op->name);
    else if (reply->error)
        reply_error(op->req, 500, "VOLUME_FAILED", "the volumes cannot be read: %s", reply->message);
    else if (op->name[0])
        reply_volume(op->req, 200, op->g, &op->items[0]);
    else {
        if (op->count)
            qsort(op->items, op->count, sizeof op->items[0], compare_names);
        reply_list(op);
    }
    op_free(op);
}

static void look(struct gateway *g, struct http_request *req, const char *name)
{
    struct keeper_request q = {.type = KEEPER_VOLUME_LIST};
    struct volume_op *op = op_new(g, req);
    if (!op)
        return;
    (void)snprintf(op->name, sizeof op->name, "%s", name);
    memcpy(q.volumes[0].name, op->name, sizeof op->name);
    keeper_link_send(g->link, &q, -1, looked, op);
}

void api_volume_list(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    (void)m;
    look(g, req, "");
}

void api_volume_get(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    const char *name = name_of(req);
    (void)m;
    if (name)
        look(g, req, name);
}

/* ------------------------------------------------------------------ POST */

static void created(void *arg, const struct keeper_volume_tell *v, const struct problem *p)
{
    struct volume_op *op = arg;
    if (op->req && p)
        reply_problem(op->req, NULL, p);
    else if (op->req)
        reply_volume(op->req, 201, op->g, v);
    op_free(op);
}

static int read_size(const struct json_value *v, uint64_t *ret, struct problem *p)
{
    int64_t n;
    const char *s = json_string(v, NULL);
    *ret = VOLUME_BYTES_DEFAULT;
    if (json_type_of(v) == JSON_NULL)
        return 0;
    bool ok = s ? quantity_bytes(s, ret) == 0 : json_integer(v, 0, INT64_C(1) << 53, &n);
    if (ok && !s)
        *ret = (uint64_t)n;
    if (!ok)
        return problem_field(p, "size", "size must be a number of bytes or a text such as \"10GiB\"");
    if (*ret < VOLUME_BYTES_MIN || *ret > VOLUME_BYTES_MAX)
        return problem_field(p, "size", "size must be between 16 MiB and 1 TiB");
    return 0;
}

static int read_request(const struct json_value *body, char name[VOLUME_NAME_MAX + 1], uint64_t *ret_bytes,
                        struct problem *p)
{
    if (json_type_of(body) != JSON_OBJECT)
        return problem_field(p, "body", "the body must be a JSON object");
    const char *s = json_string(json_get(body, "name"), NULL);
    if (!s || !volume_name_ok(s))
        return problem_field(
            p, "name", "name must be 1 to %d letters, digits, '.', '_' or '-', and not begin with '.' or '-'",
            VOLUME_NAME_MAX);
    (void)snprintf(name, VOLUME_NAME_MAX + 1, "%s", s);
    return read_size(json_get(body, "size"), ret_bytes, p);
}

static void create_body(struct http_request *req, struct buf *body, int err)
{
    struct volume_op *op = req->user;
    auto_json struct json_doc *doc = NULL;
    struct problem p;
    uint64_t bytes;
    int r = body_json(body, err, VOLUME_BODY_MAX, &doc, &p);
    if (r < 0 && r != -EINVAL)
        return; /* the server has answered; the request goes */
    if (r == 0 && read_request(json_root(doc), op->name, &bytes, &p) == 0) {
        req->on_gone = op_gone; /* from here on the keeper holds op */
        volumes_create(op->g->volumes, op->name, bytes, created, op);
        return;
    }
    op_free(op);
    reply_problem(req, NULL, &p);
}

static void create_gone(struct http_request *req)
{
    op_free(req->user);
}

void api_volume_create(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    struct volume_op *op = op_new(g, req);
    (void)m;
    if (!op)
        return;
    req->on_gone = create_gone;
    http_request_collect(req, VOLUME_BODY_MAX, create_body);
}

/* ------------------------------------------------------------------ DELETE */

static void removed(void *arg, const struct keeper_volume_tell *v, const struct problem *p)
{
    struct volume_op *op = arg;
    (void)v;
    if (op->req && p) {
        reply_problem(op->req, NULL, p);
    } else if (op->req) {
        struct buf out = BUF_INIT(1024);
        struct json_writer w;
        json_writer_init(&w, &out);
        json_object_begin(&w);
        json_member_bool(&w, "success", true);
        json_member_string(&w, "name", op->name);
        json_object_end(&w);
        reply_json(op->req, 200, &w);
    }
    op_free(op);
}

void api_volume_delete(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    const char *name = name_of(req);
    struct users users = {.volume = name};
    (void)m;
    if (!name)
        return;
    lifecycle_for_each(g->lifecycle, look_at, &users);
    if (users.count) {
        reply_error(req, 409, "VOLUME_IN_USE", "the volume '%s' belongs to the sandbox '%s'%s", name,
                    users.first, users.count > 1 ? " and others" : "");
        return;
    }
    struct volume_op *op = op_new(g, req);
    if (!op)
        return;
    (void)snprintf(op->name, sizeof op->name, "%s", name);
    volumes_remove(g->volumes, op->name, removed, op);
}
