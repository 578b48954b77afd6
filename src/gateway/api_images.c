/* SPDX-License-Identifier: Apache-2.0 */
/* api_images.c: /v1/images: what there is, names, removal, saving; docs/images.md has the contract. Archives
 * in and out are in api_image_stream.c. */
#include "gateway/api_images.h"
#include "gateway/body_json.h"
#include "gateway/reply.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { IMAGE_BODY_MAX = 1024 * 1024 };

static const char prefix[] = "/v1/images/";

/* One request that the keeper works for. */
struct image_ask_op {
    struct gateway *g;
    struct http_request *req;
    struct image_op op;
    uint32_t type;
    char image[IMAGE_NAME_MAX + 1], reference[IMAGE_REFERENCE_MAX + 1];
    char sandbox[SANDBOX_ID_MAX + 1]; /* SAVE */
    bool gone;                        /* DELETE: the image goes, not just a name */
};

/* ------------------------------------------------------------------ what there is */

struct users {
    const char *id;
    int64_t count;
};

static void count_user(struct sandbox *sb, void *arg)
{
    struct users *u = arg;
    u->count += strcmp(sb->config.image, u->id) == 0;
}

static int64_t users_of(struct gateway *g, const char *id)
{
    struct users u = {.id = id};
    lifecycle_for_each(g->lifecycle, count_user, &u);
    return u.count;
}

static size_t names_of(const struct gateway *g, const char *id)
{
    size_t count = 0;
    for (const struct image_name *n = images_first_name(g->images); n; n = n->next)
        count += strcmp(n->image, id) == 0;
    return count;
}

void api_image_put(struct json_writer *w, struct gateway *g, const char *id)
{
    const struct image_info *info = images_find(g->images, id);
    if (info)
        image_write(w, g->images, info, users_of(g, id));
    else
        json_put_null(w); /* removed in the very moment it was made */
}

void api_image_list(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    int64_t count = 0;
    (void)m;
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_put_key(&w, "images");
    json_array_begin(&w);
    for (const struct image_info *i = images_first(g->images); i; i = i->next, count++)
        image_write(&w, g->images, i, users_of(g, i->id));
    json_array_end(&w);
    json_member_int(&w, "count", count);
    json_object_end(&w);
    reply_json(req, 200, &w);
}

static void reply_image(struct gateway *g, struct http_request *req, int status, const char *id)
{
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    json_writer_init(&w, &out);
    api_image_put(&w, g, id);
    reply_json(req, status, &w);
}

/* The image that the path names; answers itself when there is none. */
static bool image_of_path(struct gateway *g, struct http_request *req, char ret_name[IMAGE_REFERENCE_MAX + 1],
                          char ret_id[IMAGE_NAME_MAX + 1])
{
    char query[4 * IMAGE_REFERENCE_MAX];
    struct problem p;
    /* decoded as a query's value is, except that '+' stands for itself, and no name has one */
    int n = snprintf(query, sizeof query, "name=%s", req->path + sizeof prefix - 1);
    if (n >= (int)sizeof query || strpbrk(query, "+&") ||
        !http_query_get(query, "name", ret_name, IMAGE_REFERENCE_MAX + 1))
        (void)problem_set(&p, 400, "INVALID_IMAGE_NAME", "the path does not end in the name of an image");
    else if (images_resolve(g->images, ret_name, ret_id, &p) == 0) {
        if (images_find(g->images, ret_id))
            return true;
        (void)problem_set(&p, 404, "IMAGE_NOT_FOUND", "there is no image '%s'", ret_name);
    }
    reply_problem(req, NULL, &p);
    return false;
}

void api_image_get(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    char name[IMAGE_REFERENCE_MAX + 1], id[IMAGE_NAME_MAX + 1];
    (void)m;
    if (image_of_path(g, req, name, id))
        reply_image(g, req, 200, id);
}

/* ------------------------------------------------------------------ asking the keeper */

static void save_over(struct image_ask_op *a)
{
    struct sandbox *sb = a->sandbox[0] ? lifecycle_find(a->g->lifecycle, a->sandbox) : NULL;
    if (sb && sb->saving)
        sb->saving--;
}

static void ask_free(struct image_ask_op *a)
{
    save_over(a);
    free(a->op.gone);
    free(a);
}

static void ask_gone(struct http_request *req)
{
    struct image_ask_op *a = req->user;
    a->req = NULL; /* goes on; nobody is told */
}

static void put_list(struct json_writer *w, const char *key, const char *item)
{
    json_put_key(w, key);
    json_array_begin(w);
    if (item && item[0])
        json_put_string(w, item);
    json_array_end(w);
}

static void reply_deleted(struct image_ask_op *a)
{
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_bool(&w, "success", true);
    put_list(&w, "untagged", a->reference);
    put_list(&w, "deleted", a->gone ? a->image : NULL);
    json_object_end(&w);
    reply_json(a->req, 200, &w);
}

static void reply_pruned(struct image_ask_op *a)
{
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_put_key(&w, "deleted");
    json_array_begin(&w);
    for (size_t i = 0; i < a->op.gone_count; i++)
        json_put_string(&w, a->op.gone[i]);
    json_array_end(&w);
    json_member_int(&w, "layers", a->op.tell.layers);
    json_member_int(&w, "bytes", (int64_t)a->op.tell.bytes);
    json_object_end(&w);
    reply_json(a->req, 200, &w);
}

static void ask_done(struct image_op *op, const struct problem *p)
{
    struct image_ask_op *a = container_of(op, struct image_ask_op, op);
    if (a->req && p)
        reply_problem(a->req, a->sandbox[0] ? a->sandbox : NULL, p);
    else if (a->req && a->type == KEEPER_IMAGE_SAVE)
        reply_image(a->g, a->req, 201, op->made_count ? op->made[0] : "");
    else if (a->req && a->type == KEEPER_IMAGE_TAG)
        reply_image(a->g, a->req, 200, a->image);
    else if (a->req && a->type == KEEPER_IMAGE_PRUNE)
        reply_pruned(a);
    else if (a->req)
        reply_deleted(a);
    ask_free(a);
}

static struct image_ask_op *ask_new(struct gateway *g, struct http_request *req, uint32_t type)
{
    struct image_ask_op *a = calloc(1, sizeof *a);
    if (!a) {
        reply_error(req, 500, "INTERNAL_ERROR", "out of memory");
        return NULL;
    }
    a->g = g;
    a->req = req;
    a->type = type;
    a->op.done = ask_done;
    req->user = a;
    req->on_gone = ask_gone;
    return a;
}

static void ask_start(struct image_ask_op *a, int changes_fd)
{
    struct image_ask ask = {.type = a->type,
                            .sandbox = a->sandbox,
                            .image = a->type == KEEPER_IMAGE_UNTAG ? NULL : a->image,
                            .reference = a->type == KEEPER_IMAGE_REMOVE ? NULL : a->reference,
                            .changes_fd = changes_fd};
    image_op_start(a->g->images, &a->op, &ask);
}

void api_image_delete(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    char name[IMAGE_REFERENCE_MAX + 1], force[8] = "";
    struct problem p;
    struct image_ask_op *a = ask_new(g, req, KEEPER_IMAGE_REMOVE);
    (void)m;
    if (!a)
        return;
    req->on_gone = NULL;
    if (!image_of_path(g, req, name, a->image)) {
        free(a);
        return;
    }
    (void)http_query_get(req->query, "force", force, sizeof force);
    bool forced = strcmp(force, "true") == 0 || strcmp(force, "1") == 0;
    size_t names = names_of(g, a->image);
    /* by name it was asked for if that is one of its names */
    if (image_reference_parse(name, a->reference, &p) == 0) {
        bool its = false;
        for (const struct image_name *n = images_first_name(g->images); n; n = n->next)
            its = its || (strcmp(n->image, a->image) == 0 && strcmp(n->reference, a->reference) == 0);
        if (!its)
            a->reference[0] = '\0';
    } else {
        a->reference[0] = '\0';
    }
    const struct image_info *info = images_find(g->images, a->image);
    bool used = users_of(g, a->image) > 0;
    if (a->reference[0] && (names > 1 || (info && info->plain) || (used && forced)))
        a->type = KEEPER_IMAGE_UNTAG;
    if (a->type == KEEPER_IMAGE_REMOVE && used)
        (void)problem_set(&p, 409, "IMAGE_IN_USE", "a sandbox stands on the image");
    else if (a->type == KEEPER_IMAGE_REMOVE && info && info->plain)
        (void)problem_set(&p, 409, "IMAGE_IN_USE",
                          "'%s' is a directory that scripts/image made: remove it by hand", name);
    else if (a->type == KEEPER_IMAGE_REMOVE && !a->reference[0] && names > 1 && !forced)
        (void)problem_set(&p, 409, "IMAGE_IN_USE", "the image has %zu names; remove these, or use force",
                          names);
    else {
        a->gone = a->type == KEEPER_IMAGE_REMOVE;
        req->on_gone = ask_gone;
        ask_start(a, -1);
        return;
    }
    free(a);
    reply_problem(req, NULL, &p);
}

void api_image_prune(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    struct image_ask_op *a = ask_new(g, req, KEEPER_IMAGE_PRUNE);
    (void)m;
    if (a)
        ask_start(a, -1);
}

/* ------------------------------------------------------------------ with a body */

static void refuse(struct image_ask_op *a, const struct problem *p)
{
    struct http_request *req = a->req;
    free(a);
    reply_problem(req, NULL, p);
}

static int read_tag(struct image_ask_op *a, const struct json_value *body, struct problem *p)
{
    const char *image = json_string(json_get(body, "image"), NULL),
               *name = json_string(json_get(body, "name"), NULL);
    if (!image)
        return problem_field(p, "image", "image must be the name of an image");
    if (!name)
        return problem_field(p, "name", "name must be a name for the image");
    int r = images_resolve(a->g->images, image, a->image, p);
    if (r == 0 && !images_find(a->g->images, a->image))
        r = problem_set(p, 404, "IMAGE_NOT_FOUND", "there is no image '%s'", image);
    return r < 0 ? r : image_reference_parse(name, a->reference, p);
}

static int read_save(struct image_ask_op *a, const struct json_value *body, struct problem *p)
{
    const char *sandbox = json_string(json_get(body, "sandbox"), NULL),
               *image = json_string(json_get(body, "image"), NULL),
               *name = json_string(json_get(body, "name"), NULL);
    struct error e;
    if (!sandbox == !image)
        return problem_field(p, "sandbox", "either sandbox or image must be given");
    if (sandbox && sandbox_id_check(sandbox, &e) < 0)
        return problem_field(p, "sandbox", "%s", e.msg);
    if (sandbox && !lifecycle_find(a->g->lifecycle, sandbox))
        return problem_set(p, 404, "SANDBOX_NOT_FOUND", "there is no sandbox '%s'", sandbox);
    if (json_type_of(json_get(body, "name")) != JSON_NULL && !name)
        return problem_field(p, "name", "name must be a name for the image");
    int r = image ? images_resolve(a->g->images, image, a->image, p) : 0;
    if (r == 0 && image && !images_find(a->g->images, a->image))
        r = problem_set(p, 404, "IMAGE_NOT_FOUND", "there is no image '%s'", image);
    if (r == 0 && name)
        r = image_reference_parse(name, a->reference, p);
    if (r == 0 && sandbox)
        (void)snprintf(a->sandbox, sizeof a->sandbox, "%s", sandbox);
    return r;
}

int api_image_changes(const struct json_value *config, int *ret_fd, struct problem *p)
{
    struct buf text = BUF_INIT(IMAGE_BODY_MAX);
    struct json_writer w;
    *ret_fd = -1;
    if (json_type_of(config) == JSON_NULL)
        return 0;
    json_writer_init(&w, &text);
    json_put_value(&w, config);
    auto_close int fd = memfd_create("config", MFD_CLOEXEC);
    bool ok = !w.err && fd >= 0 && write(fd, buf_data(&text), buf_len(&text)) == (ssize_t)buf_len(&text);
    buf_done(&text);
    if (!ok)
        return problem_set(p, 500, "INTERNAL_ERROR", "the configuration could not be passed on");
    *ret_fd = take_fd(fd);
    return 0;
}

static void ask_body(struct http_request *req, struct buf *body, int err)
{
    struct image_ask_op *a = req->user;
    auto_json struct json_doc *doc = NULL;
    auto_close int changes = -1;
    struct problem p;
    int parsed = body_json(body, err, IMAGE_BODY_MAX, &doc, &p);
    if (parsed == -EINVAL)
        refuse(a, &p);
    if (parsed < 0)
        return; /* refused, or the server has answered: the request goes */
    const struct json_value *root = json_root(doc);
    int r = json_type_of(root) != JSON_OBJECT ? problem_field(&p, "body", "the body must be a JSON object")
            : a->type == KEEPER_IMAGE_TAG     ? read_tag(a, root, &p)
                                              : read_save(a, root, &p);
    if (r == 0 && a->type == KEEPER_IMAGE_SAVE)
        r = api_image_changes(json_get(root, "config"), &changes, &p);
    if (r < 0) {
        a->sandbox[0] = '\0';
        refuse(a, &p);
        return;
    }
    struct sandbox *sb = a->sandbox[0] ? lifecycle_find(a->g->lifecycle, a->sandbox) : NULL;
    if (sb)
        sb->saving++; /* it stands still: its silence means nothing */
    req->on_gone = ask_gone;
    ask_start(a, changes);
}

static void body_gone(struct http_request *req)
{
    free(req->user);
}

static void with_body(struct gateway *g, struct http_request *req, uint32_t type)
{
    struct image_ask_op *a = ask_new(g, req, type);
    if (!a)
        return;
    req->on_gone = body_gone;
    http_request_collect(req, IMAGE_BODY_MAX, ask_body);
}

void api_image_tag(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    (void)m;
    with_body(g, req, KEEPER_IMAGE_TAG);
}

void api_image_save(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    (void)m;
    with_body(g, req, KEEPER_IMAGE_SAVE);
}
