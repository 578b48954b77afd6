/* SPDX-License-Identifier: Apache-2.0 */
/* images.c: see images.h. */
#include "gateway/images.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { PREFIX_MIN = 8, ID_HEX = 64, LIST_MAX = 64 << 20 };

struct images {
    struct keeper_link *link;
    void (*ready)(void *arg); /* NULL: it was called */
    void *ready_arg;
    struct image_info *infos;
    struct image_name *names;
    struct image_call *calls; /* under way: freed with the images when the link goes first */
};

/* ---- the list */

static void list_clear(struct images *im)
{
    while (im->infos) {
        struct image_info *i = im->infos;
        im->infos = i->next;
        json_free(i->doc);
        free(i->text);
        free(i);
    }
    while (im->names) {
        struct image_name *n = im->names;
        im->names = n->next;
        free(n);
    }
}

static int add_name(struct images *im, const struct keeper_image_record *rec)
{
    struct image_name *n = calloc(1, sizeof *n);
    if (!n)
        return -ENOMEM;
    memcpy(n->reference, rec->reference, sizeof n->reference);
    memcpy(n->image, rec->image, sizeof n->image);
    n->next = im->names;
    im->names = n;
    return 0;
}

/* A document that does not parse leaves the image in the list, without one: it can still be removed. */
static int add_image(struct images *im, const struct keeper_image_record *rec, const char *doc)
{
    struct image_info *i = calloc(1, sizeof *i);
    if (!i || !(i->text = malloc((size_t)rec->doc_len + 1))) {
        free(i);
        return -ENOMEM;
    }
    memcpy(i->id, rec->image, sizeof i->id);
    i->plain = rec->plain;
    i->bytes = rec->bytes;
    memcpy(i->text, doc, rec->doc_len);
    if (rec->doc_len && json_parse(i->text, rec->doc_len, 0, &i->doc, NULL) < 0)
        log_warn("the description of image %s is damaged", i->id);
    i->next = im->infos;
    im->infos = i;
    return 0;
}

static int list_read(struct images *im, int fd)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size > LIST_MAX)
        return -EBADMSG;
    size_t size = (size_t)st.st_size, at = 0;
    auto_free char *text = malloc(size + 1);
    if (!text)
        return -ENOMEM;
    if (pread(fd, text, size, 0) != (ssize_t)size)
        return -EBADMSG;
    list_clear(im);
    while (at < size) {
        struct keeper_image_record rec;
        if (size - at < sizeof rec)
            return -EBADMSG;
        memcpy(&rec, text + at, sizeof rec);
        at += sizeof rec;
        if (!memchr(rec.image, '\0', sizeof rec.image) ||
            !memchr(rec.reference, '\0', sizeof rec.reference) || rec.doc_len > size - at)
            return -EBADMSG;
        int r = rec.reference[0] ? add_name(im, &rec) : add_image(im, &rec, text + at);
        if (r < 0)
            return r;
        at += rec.doc_len;
    }
    return 0;
}

/* ---- names */

int image_reference_parse(const char *text, char ret[IMAGE_REFERENCE_MAX + 1], struct problem *p)
{
    static const char *const hubs[] = {"docker.io/", "index.docker.io/", "library/"};
    const char *name = text;
    for (size_t i = 0; i < ARRAY_SIZE(hubs); i++)
        if (strncmp(name, hubs[i], strlen(hubs[i])) == 0)
            name += strlen(hubs[i]);
    const char *digest = strchr(name, '@'); /* a name with a digest behind it: the name decides */
    size_t n = digest ? (size_t)(digest - name) : strlen(name);
    const char *slash = memrchr(name, '/', n);
    const char *colon = memrchr(name, ':', n);
    bool tagged = colon && (!slash || colon > slash);
    int len = n > IMAGE_REFERENCE_MAX
                  ? IMAGE_REFERENCE_MAX + 1
                  : snprintf(ret, IMAGE_REFERENCE_MAX + 1, "%.*s%s", (int)n, name, tagged ? "" : ":latest");
    if (len > IMAGE_REFERENCE_MAX || !keeper_image_reference_ok(ret))
        return problem_set(p, 400, "INVALID_IMAGE_NAME",
                           "an image's name is [HOST[:PORT]/]PATH[:TAG] in lower case, %d characters at most",
                           IMAGE_REFERENCE_MAX);
    return 0;
}

const struct image_info *images_find(const struct images *im, const char *id)
{
    for (const struct image_info *i = im->infos; i; i = i->next)
        if (strcmp(i->id, id) == 0)
            return i;
    return NULL;
}

const struct image_info *images_first(const struct images *im)
{
    return im->infos;
}

const struct image_name *images_first_name(const struct images *im)
{
    return im->names;
}

/* The one image whose id begins so; NULL: none, or several. */
static const struct image_info *find_prefix(const struct images *im, const char *name)
{
    const struct image_info *found = NULL;
    size_t n = strlen(name);
    if (n < PREFIX_MIN || n > ID_HEX || strspn(name, "0123456789abcdef") != n)
        return NULL;
    for (const struct image_info *i = im->infos; i; i = i->next)
        if (!i->plain && strncmp(i->id, name, n) == 0) {
            if (found)
                return NULL;
            found = i;
        }
    return found;
}

int images_resolve(const struct images *im, const char *name, char ret_id[IMAGE_NAME_MAX + 1],
                   struct problem *p)
{
    char reference[IMAGE_REFERENCE_MAX + 1];
    const char *hex = strncmp(name, "sha256:", 7) == 0 ? name + 7 : name;
    const struct image_info *i = images_find(im, hex);
    if (!i)
        i = find_prefix(im, hex);
    if (i) {
        (void)snprintf(ret_id, IMAGE_NAME_MAX + 1, "%s", i->id);
        return 0;
    }
    int r = image_reference_parse(name, reference, p);
    for (const struct image_name *n = r < 0 ? NULL : im->names; n; n = n->next)
        if (strcmp(n->reference, reference) == 0) {
            memcpy(ret_id, n->image, IMAGE_NAME_MAX + 1);
            return 0;
        }
    if (keeper_image_name_ok(name) && strlen(name) < ID_HEX) { /* a directory that is new; the keeper knows */
        (void)snprintf(ret_id, IMAGE_NAME_MAX + 1, "%s", name);
        return 0;
    }
    return r < 0 ? r : problem_set(p, 404, "IMAGE_NOT_FOUND", "there is no image '%s'", reference);
}

int images_apply(const struct images *im, const struct json_value *body, char c_image[IMAGE_NAME_MAX + 1],
                 struct problem *p)
{
    const char *name = json_string(json_get(body, "image"), NULL);
    return name ? images_resolve(im, name, c_image, p) : 0;
}

/* ---- what is told */

const struct json_value *image_config(const struct image_info *info)
{
    const struct json_value *root = info->doc ? json_root(info->doc) : NULL;
    const struct json_value *config = json_get(root, "config");
    return config ? config : info->plain ? root : NULL;
}

void image_names_write(struct json_writer *w, const struct images *im, const char *id)
{
    json_array_begin(w);
    for (const struct image_name *n = im->names; n; n = n->next)
        if (strcmp(n->image, id) == 0)
            json_put_string(w, n->reference);
    json_array_end(w);
}

void image_write(struct json_writer *w, const struct images *im, const struct image_info *info,
                 int64_t sandboxes)
{
    char digest[8 + ID_HEX];
    json_object_begin(w);
    json_member_string(w, "id", info->id);
    if (!info->plain) {
        (void)snprintf(digest, sizeof digest, "sha256:%s", info->id);
        json_member_string(w, "digest", digest);
    }
    json_put_key(w, "names");
    image_names_write(w, im, info->id);
    json_member_int(w, "size", (int64_t)info->bytes);
    if (sandboxes >= 0)
        json_member_int(w, "sandboxes", sandboxes);
    if (info->doc && !info->plain) {
        json_for_each (member, json_root(info->doc)) {
            json_put_key(w, json_key(member));
            json_put_value(w, member);
        }
    } else if (info->doc) {
        json_put_key(w, "config");
        json_put_value(w, image_config(info));
    }
    json_object_end(w);
}

/* ---- operations */

struct image_call {
    struct images *im;
    struct image_op *op; /* NULL: abandoned, or our own errand */
    struct problem problem;
    bool failed;
    struct image_call *next, **prev;
};

static void call_free(struct image_call *c)
{
    *c->prev = c->next;
    if (c->next)
        c->next->prev = c->prev;
    free(c);
}

static struct image_call *call_new(struct images *im, struct image_op *op)
{
    struct image_call *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->im = im;
    c->op = op;
    c->next = im->calls;
    c->prev = &im->calls;
    if (c->next)
        c->next->prev = &c->next;
    im->calls = c;
    return c;
}

static void explain(struct problem *p, const struct keeper_reply *r)
{
    static const struct {
        int status;
        const char *code;
    } known[IMAGE_WHY_COUNT] = {
        [IMAGE_WHY_INVALID] = {422, "INVALID_IMAGE"},
        [IMAGE_WHY_TOO_LARGE] = {413, "IMAGE_TOO_LARGE"},
        [IMAGE_WHY_CONFIG] = {400, "VALIDATION_FAILED"},
        [IMAGE_WHY_IN_USE] = {409, "IMAGE_IN_USE"},
        [IMAGE_WHY_STALE] = {409, "IMAGE_STALE"},
        [IMAGE_WHY_BUSY] = {429, "TOO_MANY_IMAGE_OPERATIONS"},
        [IMAGE_WHY_NONE] = {404, "IMAGE_NOT_FOUND"},
    };
    if (r->tell.why != IMAGE_WHY_OTHER) {
        (void)problem_set(p, known[r->tell.why].status, known[r->tell.why].code, "%s", r->message);
        p->retry_after_s = r->tell.why == IMAGE_WHY_BUSY ? 5 : 0;
        if (r->tell.why == IMAGE_WHY_CONFIG)
            (void)snprintf(p->field, sizeof p->field, "config");
    } else if (r->error == ENOENT) {
        (void)problem_set(p, 404, "SANDBOX_NOT_FOUND", "%s", r->message);
    } else if (r->error == EAGAIN || r->error == ENOSPC || r->error == ENOMEM) {
        (void)problem_set(p, 429, "HOST_FULL", "%s", r->message);
        p->retry_after_s = 5;
    } else {
        (void)problem_set(p, 500, "IMAGE_OPERATION_FAILED", "%s",
                          r->message[0] ? r->message : "it did not work");
    }
}

/* The list is renewed: the caller may hear. */
static void listed(void *arg, const struct keeper_reply *reply, int fd)
{
    struct image_call *c = arg;
    auto_close int list = fd;
    struct image_op *op = c->op;
    struct problem p = c->problem;
    bool failed = c->failed;
    if (reply->error || list_read(c->im, list) < 0)
        log_error("the list of images cannot be read: %s", reply->error ? reply->message : "it is damaged");
    struct images *im = c->im;
    if (op)
        op->call = NULL;
    call_free(c);
    if (op)
        op->done(op, failed ? &p : NULL);
    if (im->ready)
        take_ptr(im->ready)(im->ready_arg);
}

static void ask_list(struct image_call *c)
{
    struct keeper_request q = {.type = KEEPER_IMAGE_LIST};
    keeper_link_send(c->im->link, &q, -1, listed, c);
}

static void remember_gone(struct image_op *op, const char *id)
{
    void *more = realloc(op->gone, (op->gone_count + 1) * sizeof *op->gone);
    if (!more)
        return; /* one that is not told is gone all the same */
    op->gone = more;
    (void)snprintf(op->gone[op->gone_count++], sizeof op->gone[0], "%s", id);
}

static void answered(void *arg, const struct keeper_reply *reply, int fd)
{
    struct image_call *c = arg;
    auto_close int owned = fd;
    struct image_op *op = c->op;
    switch (reply->type) {
    case KEEPER_IMAGE_STREAM:
        if (op && op->stream && owned >= 0)
            op->stream(op, take_fd(owned));
        return;
    case KEEPER_IMAGE_PROGRESS:
        if (op && op->progress)
            op->progress(op, &reply->tell);
        return;
    case KEEPER_IMAGE_ITEM:
        if (op && op->made_count < ARRAY_SIZE(op->made))
            (void)snprintf(op->made[op->made_count++], sizeof op->made[0], "%s", reply->tell.image);
        return;
    case KEEPER_IMAGE_GONE:
        if (op)
            remember_gone(op, reply->tell.image);
        return;
    default:
        break;
    }
    if (op)
        op->tell = reply->tell;
    c->failed = reply->error != 0;
    if (c->failed)
        explain(&c->problem, reply);
    ask_list(c);
}

void image_op_start(struct images *im, struct image_op *op, const struct image_ask *ask)
{
    struct keeper_request q = {.type = ask->type};
    struct image_call *c = call_new(im, op);
    if (!c)
        abort(); /* nobody could be told; a restart loses nothing promised */
    op->call = c;
    (void)snprintf(q.id, sizeof q.id, "%s", ask->sandbox ? ask->sandbox : "");
    (void)snprintf(q.image, sizeof q.image, "%s", ask->image ? ask->image : "");
    (void)snprintf(q.ask.reference, sizeof q.ask.reference, "%s", ask->reference ? ask->reference : "");
    q.ask.plain = ask->plain;
    keeper_link_send(im->link, &q, ask->changes_fd, answered, c);
}

void image_op_abandon(struct image_op *op)
{
    if (op->call)
        op->call->op = NULL;
    op->call = NULL;
}

int images_new(struct keeper_link *link, void (*ready)(void *arg), void *arg, struct images **ret,
               struct error *reterr)
{
    struct images *im = calloc(1, sizeof *im);
    struct image_call *c = im ? call_new(im, NULL) : NULL;
    if (!c) {
        free(im);
        return error_sys(reterr, ENOMEM, "list the images");
    }
    im->link = link;
    im->ready = ready;
    im->ready_arg = arg;
    ask_list(c);
    *ret = im;
    return 0;
}

void images_free(struct images *im)
{
    if (!im)
        return;
    while (im->calls)
        call_free(im->calls);
    list_clear(im);
    free(im);
}
