/* SPDX-License-Identifier: Apache-2.0 */
/* remote.c: see remote.h. */
#include "builder/remote.h"

#include "base/json.h"
#include "builder/spill.h"
#include "cli/format.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { BODY_MAX = 1 << 20, COMMAND_MAX = 4 << 20, BUSY_TRIES = 600, BUSY_PAUSE_US = 100 * 1000 };
#define BUILD_LABEL  "silica.build"
#define DOWNLOAD_MAX (UINT64_C(16) << 30)

static int told(const struct silica_error *e, struct error *reterr)
{
    if (e->kind == SILICA_ERROR_CONNECT)
        return error_set(reterr, ENOTCONN, "%s; is 'silica serve' running?", e->message);
    int code = strcmp(e->code, "NETWORK_UNAVAILABLE") == 0 ? ENONET : EIO;
    return error_set(reterr, code, "%s%s%s", e->message, e->suggestion[0] ? ". " : "", e->suggestion);
}

/* One request with a JSON answer, whose status may be an error: *ret_error tells. */
static int call(struct silica_client *c, const char *method, const char *path, const struct buf *body,
                struct silica_response *ret, struct silica_error *ret_error, struct error *reterr)
{
    struct silica_request q = {.method = method,
                               .path = path,
                               .body = body ? buf_data(body) : NULL,
                               .body_bytes = body ? buf_len(body) : 0};
    *ret_error = (struct silica_error){0};
    if (silica_request(c, &q, ret, ret_error) < 0)
        return told(ret_error, reterr);
    (void)silica_response_error(ret, ret_error);
    return 0;
}

/* The same where an error status is an error. While others keep the server's image workers busy, it waits its
 * turn. */
static int must(struct silica_client *c, const char *method, const char *path, const struct buf *body,
                struct silica_response *ret, struct error *reterr)
{
    struct silica_error e;
    int r = 0;
    for (int tries = 0; tries < BUSY_TRIES; tries++) {
        r = call(c, method, path, body, ret, &e, reterr);
        if (r < 0 || ret->status < 400)
            return r;
        silica_response_done(ret);
        if (strcmp(e.code, "TOO_MANY_IMAGE_OPERATIONS") != 0)
            break;
        (void)usleep(BUSY_PAUSE_US);
    }
    return told(&e, reterr);
}

/* ------------------------------------------------------------------ images */

static int image_path(struct buf *out, const char *name)
{
    int r = buf_puts(out, "/v1/images/");
    for (const char *p = name; r == 0 && *p; p++)
        r = strchr("%?# ", *p) || (unsigned char)*p < 0x21 || (unsigned char)*p > 0x7e
                ? buf_printf(out, "%%%02X", (unsigned char)*p)
                : buf_putc(out, *p);
    return r == 0 && !buf_cstr(out) ? -ENOMEM : r;
}

int remote_image(struct silica_client *c, const char *name, char **ret_json, struct error *reterr)
{
    struct buf path = BUF_INIT(4096);
    struct silica_response a;
    struct silica_error e;
    int r = image_path(&path, name);
    r = r < 0 ? error_set(reterr, EINVAL, "the name of an image is too long")
              : call(c, "GET", buf_data(&path), NULL, &a, &e, reterr);
    buf_done(&path);
    if (r < 0)
        return r;
    if (a.status == 404 || strcmp(e.code, "INVALID_IMAGE_NAME") == 0) {
        silica_response_done(&a);
        return 0;
    }
    if (a.status >= 400) {
        silica_response_done(&a);
        return told(&e, reterr);
    }
    if (ret_json)
        *ret_json = take_ptr(a.body);
    silica_response_done(&a);
    return 1;
}

static void put_words(struct json_writer *w, const char *key, const struct words *list)
{
    json_put_key(w, key);
    if (list->count == 0) {
        json_put_null(w); /* takes the parent's away */
        return;
    }
    json_array_begin(w);
    for (size_t i = 0; i < list->count; i++)
        json_put_string(w, list->items[i]);
    json_array_end(w);
}

static void put_config(struct json_writer *w, const struct image_config *c)
{
    json_object_begin(w);
    put_words(w, "env", &c->env);
    put_words(w, "entrypoint", &c->entrypoint);
    put_words(w, "cmd", &c->cmd);
    put_words(w, "exposedPorts", &c->ports);
    json_member_string(w, "workdir", c->workdir);
    json_member_string(w, "user", c->user);
    json_put_key(w, "labels");
    json_object_begin(w);
    for (size_t i = 0; i < c->labels.count; i++) {
        size_t n = strcspn(c->labels.items[i], "=");
        auto_free char *key = strndup(c->labels.items[i], n);
        if (key)
            json_member_string(w, key, c->labels.items[i] + n + 1);
        else
            w->err = -ENOMEM;
    }
    json_object_end(w);
    json_object_end(w);
}

/* The member "id" of an answer. */
static int take_id(struct silica_response *a, char ret[IMAGE_TEXT_MAX], struct error *reterr)
{
    auto_json struct json_doc *doc = NULL;
    const char *id = json_parse(a->body, a->body_bytes, 0, &doc, NULL) < 0
                         ? NULL
                         : json_string(json_get(json_root(doc), "id"), NULL);
    bool ok = id && strlen(id) < IMAGE_TEXT_MAX;
    if (ok)
        memcpy(ret, id, strlen(id) + 1);
    silica_response_done(a);
    return ok ? 0 : error_set(reterr, EBADMSG, "the server did not tell the image's id");
}

int remote_save(struct silica_client *c, const char *sandbox, const char *image, const char *name,
                const struct image_config *config, char ret_id[IMAGE_TEXT_MAX], struct error *reterr)
{
    struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer w;
    struct silica_response a;
    json_writer_init(&w, &body);
    json_object_begin(&w);
    json_member_string(&w, sandbox ? "sandbox" : "image", sandbox ? sandbox : image);
    if (name)
        json_member_string(&w, "name", name);
    if (config) {
        json_put_key(&w, "config");
        put_config(&w, config);
    }
    json_object_end(&w);
    int r = w.err < 0 ? error_set(reterr, -w.err, "the configuration of the image is too large")
                      : must(c, "POST", "/v1/images/save", &body, &a, reterr);
    buf_done(&body);
    return r < 0 ? r : take_id(&a, ret_id, reterr);
}

int remote_tag(struct silica_client *c, const char *image, const char *name, struct error *reterr)
{
    struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer w;
    struct silica_response a;
    json_writer_init(&w, &body);
    json_object_begin(&w);
    json_member_string(&w, "image", image);
    json_member_string(&w, "name", name);
    json_object_end(&w);
    int r = w.err < 0 ? error_set(reterr, -w.err, "the name '%.100s' is too long", name)
                      : must(c, "POST", "/v1/images/tag", &body, &a, reterr);
    buf_done(&body);
    if (r == 0)
        silica_response_done(&a);
    return r;
}

static int by_age(const void *a, const void *b)
{
    const struct json_value *const *x = a, *const *y = b;
    const char *older = json_string(json_get(*x, "createdAt"), NULL);
    const char *newer = json_string(json_get(*y, "createdAt"), NULL);
    return strcmp(older ? older : "", newer ? newer : "");
}

static bool begins(const struct json_value *name, const char *prefix)
{
    const char *s = json_string(name, NULL);
    return s && strncmp(s, prefix, strlen(prefix)) == 0;
}

/* Whether an image has a name that begins so, and is not the one to spare. */
static bool is_candidate(const struct json_value *image, const char *prefix, const char *spare)
{
    bool found = false;
    json_for_each (name, json_get(image, "names")) {
        if (spare && json_string(name, NULL) && strcmp(json_string(name, NULL), spare) == 0)
            return false;
        found = found || begins(name, prefix);
    }
    return found;
}

/* The names of an image that begin so. One that a sandbox stands on is refused: next time. */
static void remove_names(struct silica_client *c, const struct json_value *image, const char *prefix)
{
    json_for_each (name, json_get(image, "names")) {
        struct buf path = BUF_INIT(4096);
        struct silica_response gone;
        if (begins(name, prefix) && image_path(&path, json_string(name, NULL)) == 0 &&
            must(c, "DELETE", buf_data(&path), NULL, &gone, NULL) == 0)
            silica_response_done(&gone);
        buf_done(&path);
    }
}

void remote_forget(struct silica_client *c, const char *prefix, const char *spare, size_t keep)
{
    struct silica_response a;
    auto_json struct json_doc *doc = NULL;
    if (must(c, "GET", "/v1/images", NULL, &a, NULL) < 0)
        return;
    const struct json_value *images =
        json_parse(a.body, a.body_bytes, 0, &doc, NULL) == 0 ? json_get(json_root(doc), "images") : NULL;
    auto_free const struct json_value **list = calloc(json_count(images) + 1, sizeof *list);
    size_t count = 0;
    json_for_each (image, images)
        if (list && is_candidate(image, prefix, spare))
            list[count++] = image;
    if (count > keep)
        qsort(list, count, sizeof *list, by_age);
    for (size_t i = 0; i + keep < count; i++)
        remove_names(c, list[i], prefix);
    silica_response_done(&a);
}

/* ------------------------------------------------------------------ sandboxes */

int remote_box(struct silica_client *c, const char *id, const char *image, const char *network,
               struct error *reterr)
{
    struct buf body = BUF_INIT(BODY_MAX);
    struct json_writer w;
    struct silica_response a;
    char path[64];
    (void)snprintf(path, sizeof path, "/v1/sandbox/%s", id);
    json_writer_init(&w, &body);
    json_object_begin(&w);
    json_member_string(&w, "image", image);
    json_member_string(&w, "instanceType", "standard-3"); /* compilers and package managers are hungry */
    json_member_string(&w, "user", "0:0"); /* whatever the image says: steps choose theirs themselves */
    json_member_string(&w, "workdir", "/");
    if (network)
        json_member_string(&w, "network", network);
    json_put_key(&w, "labels");
    json_object_begin(&w);
    json_member_string(&w, BUILD_LABEL, "true");
    json_object_end(&w);
    json_object_end(&w);
    int r = w.err < 0 ? error_set(reterr, -w.err, "out of memory") : must(c, "PUT", path, &body, &a, reterr);
    buf_done(&body);
    if (r == 0)
        silica_response_done(&a);
    return r;
}

void remote_box_end(struct silica_client *c, const char *id)
{
    (void)silica_sandbox_destroy(c, id, NULL);
}

/* A build that lives uses its sandbox; one that sleeps has been left. */
void remote_sweep(struct silica_client *c)
{
    struct silica_sandbox_list list;
    if (silica_sandbox_list(c, &list, NULL) < 0)
        return;
    for (size_t i = 0; i < list.count; i++)
        for (size_t k = 0; k < list.items[i].label_count; k++)
            if (strcmp(list.items[i].labels[k].key, BUILD_LABEL) == 0 && list.items[i].state &&
                strcmp(list.items[i].state, "asleep") == 0) {
                remote_box_end(c, list.items[i].id);
                break;
            }
    silica_sandbox_list_done(&list);
}

static bool is_shell_name(const char *pair)
{
    size_t n = strcspn(pair, "=");
    for (size_t i = 0; i < n; i++)
        if (!(pair[i] == '_' || (pair[i] >= 'a' && pair[i] <= 'z') || (pair[i] >= 'A' && pair[i] <= 'Z') ||
              (i > 0 && pair[i] >= '0' && pair[i] <= '9')))
            return false;
    return n > 0;
}

/* The words for a shell. Variables whose names a shell does not know go through env(1). */
static int command_text(struct buf *out, const struct words *argv, const struct words *env)
{
    bool odd = false;
    int r = 0;
    for (size_t i = 0; r == 0 && env && i < env->count; i++) {
        if (is_shell_name(env->items[i]))
            continue;
        r = buf_puts(out, odd ? " " : "env ");
        if (r == 0)
            r = shell_quote(out, env->items[i]);
        odd = true;
    }
    for (size_t i = 0; r == 0 && i < argv->count; i++) {
        if (i > 0 || odd)
            r = buf_putc(out, ' ');
        if (r == 0)
            r = shell_quote(out, argv->items[i]);
    }
    return r == 0 && !buf_cstr(out) ? -ENOMEM : r;
}

int remote_run(struct silica_client *c, const char *id, const struct words *argv, const struct words *env,
               const char *directory, silica_output output, void *user, int *ret_exit_code,
               struct error *reterr)
{
    struct buf command = BUF_INIT(COMMAND_MAX);
    auto_free const char **pairs = calloc((env ? env->count : 0) + 1, sizeof *pairs);
    size_t count = 0;
    for (size_t i = 0; pairs && env && i < env->count; i++)
        if (is_shell_name(env->items[i]))
            pairs[count++] = env->items[i];
    struct silica_exec_options o = {.cwd = directory, .env = pairs};
    struct silica_error e;
    int r = pairs ? command_text(&command, argv, env) : -ENOMEM;
    if (r < 0)
        r = error_set(reterr, -r, "the command is too long");
    else if (silica_exec_stream(c, id, buf_data(&command), &o, output, user, ret_exit_code, &e) < 0)
        r = told(&e, reterr);
    buf_done(&command);
    return r;
}

/* ------------------------------------------------------------------ files */

int remote_upload(struct silica_client *c, const char *id, const char *path, int fd, struct error *reterr)
{
    static const char *const headers[] = {"Content-Type: application/octet-stream", NULL};
    struct stat st;
    char url[256];
    if (fstat(fd, &st) < 0)
        return error_sys(reterr, errno, "cannot look at a temporary file");
    size_t n = (size_t)st.st_size;
    void *map = n ? mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    if (map == MAP_FAILED)
        return error_sys(reterr, errno, "cannot read a temporary file");
    (void)snprintf(url, sizeof url, "/v1/sandbox/%s/file%s", id, path);
    struct silica_request q = {
        .method = "PUT", .path = url, .headers = headers, .body = map ? map : (void *)"", .body_bytes = n};
    struct silica_response a;
    struct silica_error e;
    int r = silica_request(c, &q, &a, &e);
    if (map)
        (void)munmap(map, n);
    if (r < 0)
        return told(&e, reterr);
    r = silica_response_error(&a, &e) < 0 ? told(&e, reterr) : 0;
    silica_response_done(&a);
    return r;
}

struct download {
    int fd;
    int status;
    uint64_t bytes;
    int err;
    struct error *reterr;
};

static int download_head(int status, const char *content_type, void *user)
{
    (void)content_type;
    struct download *d = user;
    d->status = status;
    return 0;
}

static int download_data(const void *data, size_t n, void *user)
{
    struct download *d = user;
    d->bytes += n;
    if (d->bytes > DOWNLOAD_MAX) /* a sandbox may say anything about the size of its files */
        d->err = error_set(d->reterr, EFBIG, "what is copied is larger than %llu GiB",
                           (unsigned long long)(DOWNLOAD_MAX >> 30));
    else if (d->status == 200)
        d->err = spill_write(&d->fd, data, n, d->reterr);
    return d->err;
}

int remote_download(struct silica_client *c, const char *id, const char *path, int fd, struct error *reterr)
{
    char url[256];
    struct download d = {.fd = fd, .reterr = reterr};
    struct silica_receiver receiver = {download_head, download_data, &d};
    struct silica_error e;
    (void)snprintf(url, sizeof url, "/v1/sandbox/%s/file%s", id, path);
    struct silica_request q = {.method = "GET", .path = url};
    int r = silica_request_stream(c, &q, &receiver, &e);
    if (d.err < 0)
        return d.err;
    if (r < 0)
        return told(&e, reterr);
    return d.status == 200
               ? 0
               : error_set(reterr, EIO, "the server did not give the file %s (status %d)", path, d.status);
}
