/* SPDX-License-Identifier: Apache-2.0 */
/* images.c: archives of images in and out, and images made of sandboxes. */
#include "client/client_internal.h"

#include <errno.h>
#include <string.h>

static int put_name(struct buf *path, const char *head, const char *name)
{
    int r = buf_puts(path, head);
    return r < 0 ? r : client_put_encoded(path, name);
}

/* ---- import */

struct import {
    silica_event event;
    void *user;
    char *json; /* of the event "complete" */
    struct silica_error failure;
    int err;
};

static int import_event(char *data, size_t n, void *user)
{
    struct import *in = user;
    auto_json struct json_doc *doc = NULL;
    auto_free char *copy = strndup(data, n);
    struct error e;
    if (!copy)
        return in->err = client_fail_memory(&in->failure);
    if (json_parse(data, n, 0, &doc, &e) < 0)
        return in->err = client_fail(&in->failure, SILICA_ERROR_PROTOCOL, EBADMSG, "an event is not JSON: %s",
                                     e.msg);
    const char *type = json_string(json_get(json_root(doc), "type"), NULL);
    int64_t status = 500;
    (void)json_integer(json_get(json_root(doc), "httpStatus"), 400, 599, &status);
    if (type && strcmp(type, "error") == 0)
        return in->err = client_fail_envelope(&in->failure, (int)status, json_root(doc));
    if (type && strcmp(type, "complete") == 0) {
        free(in->json);
        in->json = take_ptr(copy);
        return 0;
    }
    return in->event ? in->event(copy, n, in->user) : 0;
}

int silica_image_import(struct silica_client *c, const char *name, const struct silica_upload *archive,
                        silica_event event, void *user, char **ret_json, struct silica_error *reterr)
{
    static const char *const headers[] = {"Accept: text/event-stream", NULL};
    struct import in = {.event = event, .user = user};
    struct buf path = BUF_INIT(8192);
    int r = name ? put_name(&path, "/v1/images/import?name=", name) : buf_puts(&path, "/v1/images/import");
    if (r < 0 || !buf_cstr(&path)) {
        buf_done(&path);
        return client_fail(reterr, SILICA_ERROR_ARGUMENT, EINVAL, "the name is too long");
    }
    struct silica_request q = {
        .method = "POST", .path = buf_cstr(&path), .headers = headers, .upload = archive};
    r = silica_request_events(c, &q, import_event, &in, reterr);
    buf_done(&path);
    if (in.err < 0) {
        if (reterr)
            *reterr = in.failure;
        r = in.err;
    }
    if (r == 0 && !in.json)
        r = client_fail(reterr, SILICA_ERROR_BROKEN, EIO, "the server ended its answer without a result");
    if (r == 0)
        *ret_json = take_ptr(in.json);
    free(in.json);
    return r;
}

/* ---- export */

struct export
{
    int (*data)(const void *data, size_t n, void *user);
    void *user;
    int status;
    struct buf body; /* of an error */
};

static int export_head(int status, const char *content_type, void *user)
{
    (void)content_type;
    ((struct export *)user)->status = status;
    return 0;
}

static int export_data(const void *data, size_t n, void *user)
{
    struct export *ex = user;
    return ex->status == 200 ? ex->data(data, n, ex->user) : buf_append(&ex->body, data, n);
}

int silica_image_export(struct silica_client *c, const char *name, bool compress,
                        int (*data)(const void *data, size_t n, void *user), void *user,
                        struct silica_error *reterr)
{
    struct export ex = {.data = data, .user = user, .body = BUF_INIT(CLIENT_ANSWER_MAX)};
    struct silica_receiver receiver = {export_head, export_data, &ex};
    struct buf path = BUF_INIT(8192);
    int r = put_name(&path,
                     compress ? "/v1/images/export?compression=gzip&name="
                              : "/v1/images/export?compression=none&name=",
                     name);
    if (r < 0 || !buf_cstr(&path)) {
        buf_done(&path);
        return client_fail(reterr, SILICA_ERROR_ARGUMENT, EINVAL, "the name is too long");
    }
    struct silica_request q = {.method = "GET", .path = buf_cstr(&path)};
    r = silica_request_stream(c, &q, &receiver, reterr);
    if (r == 0 && ex.status >= 400)
        r = buf_cstr(&ex.body) ? client_fail_answer(reterr, ex.status, buf_data(&ex.body), buf_len(&ex.body))
                               : client_fail_memory(reterr);
    buf_done(&path);
    buf_done(&ex.body);
    return r;
}

/* ---- save */

int silica_image_save(struct silica_client *c, const char *sandbox, const char *name, const char *config,
                      char **ret_json, struct silica_error *reterr)
{
    struct buf body = BUF_INIT(CLIENT_ANSWER_MAX);
    struct json_writer w;
    struct client_answer a;
    json_writer_init(&w, &body);
    json_object_begin(&w);
    json_member_string(&w, "sandbox", sandbox);
    if (name)
        json_member_string(&w, "name", name);
    if (config) {
        json_put_key(&w, "config");
        json_put_raw(&w, config, strlen(config));
    }
    json_object_end(&w);
    struct silica_request q = {
        .method = "POST", .path = "/v1/images/save", .body = buf_data(&body), .body_bytes = buf_len(&body)};
    int r = w.err ? client_fail_memory(reterr) : client_call(c, &q, &a, reterr);
    buf_done(&body);
    if (r < 0)
        return r;
    *ret_json = take_ptr(a.json);
    client_answer_done(&a);
    return 0;
}
