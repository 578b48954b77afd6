/* SPDX-License-Identifier: Apache-2.0 */
/* docker_image_ops.c: requests that change images: tag, delete, commit. The keeper does it; callers may go
 * meanwhile. */
#include "gateway/api_images.h"
#include "gateway/docker_internal.h"

#include <stdio.h>
#include <string.h>

enum { CHANGES_MAX = 4 << 20 };

struct image_change {
    struct docker *docker;
    struct http_request *req; /* NULL: the caller is gone */
    struct image_op op;
    uint32_t type;
    char image[IMAGE_NAME_MAX + 1], reference[IMAGE_REFERENCE_MAX + 1];
    char sandbox[SANDBOX_ID_MAX + 1]; /* COMMIT */
};

static void change_gone(struct http_request *req)
{
    struct image_change *x = req->user;
    x->req = NULL;
}

static struct image_change *change_new(struct docker_request *r, uint32_t type)
{
    struct image_change *x = calloc(1, sizeof *x);
    if (!x) {
        docker_reply_error(r->req, 500, "out of memory");
        return NULL;
    }
    x->docker = r->docker;
    x->req = r->req;
    x->type = type;
    return x;
}

static void change_free(struct image_change *x)
{
    struct sandbox *sb = x->sandbox[0] ? lifecycle_find(x->docker->g->lifecycle, x->sandbox) : NULL;
    if (sb && sb->saving)
        sb->saving--;
    free(x->op.gone);
    free(x);
}

static void refuse(struct image_change *x, const struct problem *p)
{
    struct http_request *req = x->req;
    free(x);
    docker_reply_problem(req, p);
}

static void reply_deleted(struct image_change *x)
{
    struct buf out = BUF_INIT(4096);
    (void)buf_puts(&out, "[");
    if (x->reference[0])
        (void)buf_printf(&out, "{\"Untagged\":\"%s\"}", x->reference);
    if (x->type == KEEPER_IMAGE_REMOVE)
        (void)buf_printf(&out, "%s{\"Deleted\":\"sha256:%s\"}", x->reference[0] ? "," : "", x->image);
    (void)buf_puts(&out, "]");
    http_respond(x->req, 200, "application/json", buf_data(&out), buf_len(&out));
    buf_done(&out);
}

static void reply_committed(struct image_change *x)
{
    char answer[IMAGE_NAME_MAX + 32];
    (void)snprintf(answer, sizeof answer, "{\"Id\":\"sha256:%s\"}", x->op.made_count ? x->op.made[0] : "");
    http_respond(x->req, 201, "application/json", answer, strlen(answer));
}

static void change_done(struct image_op *op, const struct problem *p)
{
    struct image_change *x = container_of(op, struct image_change, op);
    if (x->req && p)
        docker_reply_problem(x->req, p);
    else if (x->req && x->type == KEEPER_IMAGE_SAVE)
        reply_committed(x);
    else if (x->req && x->type == KEEPER_IMAGE_TAG)
        docker_reply_empty(x->req, 201);
    else if (x->req)
        reply_deleted(x);
    change_free(x);
}

static void change_start(struct image_change *x, int changes_fd)
{
    struct image_ask ask = {.type = x->type,
                            .sandbox = x->sandbox[0] ? x->sandbox : NULL,
                            .image = x->type == KEEPER_IMAGE_UNTAG || x->sandbox[0] ? NULL : x->image,
                            .reference =
                                x->type == KEEPER_IMAGE_REMOVE || !x->reference[0] ? NULL : x->reference,
                            .changes_fd = changes_fd};
    x->op.done = change_done;
    x->req->user = x;
    x->req->on_gone = change_gone;
    image_op_start(x->docker->g->images, &x->op, &ask);
}

/* repo and tag of the query as one reference; "" when there is no repo. 0, or -EINVAL with *p. */
static int query_reference(const struct http_request *req, char ret[IMAGE_REFERENCE_MAX + 1],
                           struct problem *p)
{
    char repo[IMAGE_REFERENCE_MAX + 1] = "", tag[128] = "", whole[IMAGE_REFERENCE_MAX + 130];
    (void)http_query_get(req->query, "repo", repo, sizeof repo);
    (void)http_query_get(req->query, "tag", tag, sizeof tag);
    ret[0] = '\0';
    if (!*repo)
        return 0;
    (void)snprintf(whole, sizeof whole, "%s%s%s", repo, *tag ? ":" : "", tag);
    return image_reference_parse(whole, ret, p);
}

void docker_image_tag(struct docker_request *r)
{
    struct docker_image image;
    struct problem p;
    struct image_change *x = change_new(r, KEEPER_IMAGE_TAG);
    if (!x)
        return;
    int e = docker_image_find(r->docker, r->name, &image, &p);
    if (e == 0)
        e = query_reference(r->req, x->reference, &p);
    if (e == 0 && !x->reference[0])
        e = problem_set(&p, 400, "INVALID", "repo is missing");
    if (e < 0) {
        refuse(x, &p);
        return;
    }
    memcpy(x->image, image.id, sizeof x->image);
    change_start(x, -1);
}

/* ------------------------------------------------------------------ delete */

struct image_users {
    const char *id;
    size_t count;
};

static void count_sandbox(struct sandbox *sb, void *arg)
{
    struct image_users *u = arg;
    u->count += strcmp(sb->config.image, u->id) == 0;
}

static bool in_use(const struct docker *d, const char *id)
{
    struct image_users u = {.id = id};
    lifecycle_for_each(d->g->lifecycle, count_sandbox, &u);
    for (const struct container *c = d->containers; c; c = c->next) { /* also those that were never started */
        const char *image = json_string(json_get(json_root(c->doc), "ImageId"), NULL);
        u.count += image && strcmp(image, id) == 0;
    }
    return u.count > 0;
}

void docker_image_delete(struct docker_request *r)
{
    struct docker_image image;
    struct problem p;
    size_t names = 0;
    bool named = false;
    struct image_change *x = change_new(r, KEEPER_IMAGE_REMOVE);
    if (!x)
        return;
    if (docker_image_find(r->docker, r->name, &image, &p) < 0) {
        refuse(x, &p);
        return;
    }
    memcpy(x->image, image.id, sizeof x->image);
    if (image_reference_parse(r->name, x->reference, &p) < 0)
        x->reference[0] = '\0';
    for (const struct image_name *n = images_first_name(r->docker->g->images); n; n = n->next)
        if (strcmp(n->image, image.id) == 0) {
            names++;
            named |= strcmp(n->reference, x->reference) == 0;
        }
    if (!named)
        x->reference[0] = '\0';
    bool used = in_use(r->docker, image.id);
    if (named && (names > 1 || used || image.info->plain))
        x->type = KEEPER_IMAGE_UNTAG; /* the image stays, for its other names or users */
    else if (used || image.info->plain) {
        (void)problem_set(&p, 409, "IMAGE_IN_USE", "the image %s is used", r->name);
        refuse(x, &p);
        return;
    }
    change_start(x, -1);
}

/* ------------------------------------------------------------------ commit */

/* What the container runs with becomes the image's own. */
static int commit_changes(const struct container *c, int *ret_fd, struct problem *p)
{
    static const struct {
        const char *ours, *theirs;
    } members[] = {{"Env", "env"}, {"Entrypoint", "entrypoint"}, {"Cmd", "cmd"}};
    struct buf text = BUF_INIT(CHANGES_MAX);
    struct json_writer w;
    auto_json struct json_doc *doc = NULL;
    struct error e;
    json_writer_init(&w, &text);
    json_object_begin(&w);
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        const struct json_value *v = json_get(json_root(c->doc), members[i].ours);
        if (!json_count(v))
            continue;
        json_put_key(&w, members[i].theirs);
        json_put_value(&w, v);
    }
    json_object_end(&w);
    int r = w.err;
    if (r == 0)
        r = json_parse(buf_data(&text), buf_len(&text), 0, &doc, &e);
    r = r < 0 ? problem_set(p, 500, "INTERNAL_ERROR", "out of memory")
              : api_image_changes(json_root(doc), ret_fd, p);
    buf_done(&text);
    return r;
}

void docker_commit(struct docker_request *r)
{
    char name[DOCKER_NAME_MAX + 1] = "";
    struct problem p;
    auto_close int changes = -1;
    (void)http_query_get(r->req->query, "container", name, sizeof name);
    const struct container *c = docker_find(r->docker, name);
    if (!c || c->is_sidecar) {
        docker_reply_error(r->req, 404, "No such container: %s", name);
        return;
    }
    struct image_change *x = change_new(r, KEEPER_IMAGE_SAVE);
    if (!x)
        return;
    if (query_reference(r->req, x->reference, &p) < 0 || commit_changes(c, &changes, &p) < 0) {
        refuse(x, &p);
        return;
    }
    struct sandbox *sb = lifecycle_find(r->docker->g->lifecycle, c->sandbox);
    if (sb) {
        memcpy(x->sandbox, c->sandbox, sizeof x->sandbox);
        sb->saving++; /* it stands still: its silence means nothing */
    } else {          /* never started: its image with other settings */
        const char *image = json_string(json_get(json_root(c->doc), "ImageId"), NULL);
        (void)snprintf(x->image, sizeof x->image, "%s", image ? image : "");
    }
    change_start(x, changes);
}
