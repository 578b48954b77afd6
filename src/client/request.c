/* SPDX-License-Identifier: Apache-2.0 */
/* request.c: complete answers: any request, and requests that expect JSON. */
#include "client/client_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct collector {
    struct buf body;
    char *content_type;
    int status;
    int err; /* why collecting ended early */
};

static int collect_head(int status, const char *content_type, void *user)
{
    struct collector *k = user;
    buf_clear(&k->body); /* a repeated request starts over */
    free(k->content_type);
    k->status = status;
    k->content_type = strdup(content_type);
    if (!k->content_type)
        k->err = -ENOMEM;
    return k->err;
}

static int collect_data(const void *data, size_t n, void *user)
{
    struct collector *k = user;
    k->err = buf_append(&k->body, data, n);
    return k->err;
}

int silica_request(struct silica_client *c, const struct silica_request *request, struct silica_response *ret,
                   struct silica_error *reterr)
{
    struct collector k = {.body = BUF_INIT(CLIENT_ANSWER_MAX)};
    struct silica_receiver receiver = {collect_head, collect_data, &k};
    int r = transport_run(c, request, &receiver, reterr);
    if (k.err == -ENOBUFS)
        r = client_fail(reterr, SILICA_ERROR_PROTOCOL, EFBIG, "the answer is larger than %zu MiB",
                        CLIENT_ANSWER_MAX >> 20);
    else if (k.err < 0 || (r == 0 && !buf_cstr(&k.body)))
        r = client_fail_memory(reterr);
    if (r < 0) {
        buf_done(&k.body);
        free(k.content_type);
        return r;
    }
    /* nothing was consumed, so the content starts where the memory does */
    *ret = (struct silica_response){.status = k.status,
                                    .content_type = k.content_type,
                                    .body = k.body.base,
                                    .body_bytes = buf_len(&k.body)};
    return 0;
}

int silica_request_stream(struct silica_client *c, const struct silica_request *request,
                          const struct silica_receiver *receiver, struct silica_error *reterr)
{
    return transport_run(c, request, receiver, reterr);
}

int silica_response_error(const struct silica_response *r, struct silica_error *reterr)
{
    return r->status < 400 ? 0 : client_fail_answer(reterr, r->status, r->body, r->body_bytes);
}

void silica_response_done(struct silica_response *r)
{
    free(r->content_type);
    free(r->body);
    *r = (struct silica_response){0};
}

int client_put_encoded(struct buf *out, const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    int r = 0;
    for (const char *p = text; r == 0 && *p; p++)
        r = strchr(plain, *p) ? buf_putc(out, *p) : buf_printf(out, "%%%02X", (unsigned char)*p);
    return r;
}

int client_sandbox_path(struct buf *out, const char *id, const char *tail)
{
    int r = buf_puts(out, "/v1/sandbox/");
    if (r == 0)
        r = client_put_encoded(out, id);
    if (r == 0)
        r = buf_puts(out, tail);
    if (r == 0 && !buf_cstr(out))
        r = -ENOMEM;
    return r;
}

int client_call(struct silica_client *c, const struct silica_request *request, struct client_answer *ret,
                struct silica_error *reterr)
{
    struct client_answer a = {0};
    int r = silica_request(c, request, &a.response, reterr);
    if (r == 0)
        r = silica_response_error(&a.response, reterr);
    if (r == 0 && !(a.json = strdup(a.response.body)))
        r = client_fail_memory(reterr);
    struct error e;
    if (r == 0 && json_parse(a.response.body, a.response.body_bytes, JSON_ALLOW_NUL, &a.doc, &e) < 0)
        r = client_fail(reterr, SILICA_ERROR_PROTOCOL, EBADMSG,
                        "the answer from %s is not JSON (%s): is this a Silica server?", c->url.text, e.msg);
    if (r < 0) {
        client_answer_done(&a);
        return r;
    }
    *ret = a;
    return 0;
}

void client_answer_done(struct client_answer *a)
{
    silica_response_done(&a->response);
    free(a->json);
    json_free(a->doc);
    *a = (struct client_answer){0};
}

int client_answer_list(const struct silica_client *c, const struct client_answer *a, const char *name,
                       const struct json_value **ret, struct silica_error *reterr)
{
    const struct json_value *list = json_get(json_root(a->doc), name);
    *ret = json_type_of(list) == JSON_ARRAY ? list : NULL;
    return *ret ? 0
                : client_fail(reterr, SILICA_ERROR_PROTOCOL, EBADMSG,
                              "the answer from %s has no list of %s: is this a Silica server?", c->url.text,
                              name);
}

int client_sandbox_call(struct silica_client *c, const char *method, const char *id, const char *tail,
                        const struct buf *body, struct client_answer *ret, struct silica_error *reterr)
{
    struct buf path = BUF_INIT(4096);
    int r = *id ? client_sandbox_path(&path, id, tail) : -EINVAL;
    if (r < 0) {
        buf_done(&path);
        return client_fail(reterr, SILICA_ERROR_ARGUMENT, -r, "the id of the sandbox is %s",
                           *id ? "too long" : "empty");
    }
    struct silica_request q = {.method = method, .path = buf_cstr(&path)};
    if (body) {
        q.body = buf_data(body);
        q.body_bytes = buf_len(body);
    }
    if (ret) {
        r = client_call(c, &q, ret, reterr);
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

bool client_copy_member(const struct json_value *v, const char *name, char **ret)
{
    const char *s = json_string(json_get(v, name), NULL);
    if (!s)
        return true;
    *ret = strdup(s);
    return *ret != NULL;
}

void client_put_pairs(struct json_writer *w, const char *const *pairs)
{
    json_object_begin(w);
    for (; *pairs; pairs++) {
        const char *equals = strchr(*pairs, '=');
        if (!equals)
            continue; /* refused by client_check_pairs */
        auto_free char *key = strndup(*pairs, (size_t)(equals - *pairs));
        if (!key) {
            w->err = -ENOMEM;
            return;
        }
        json_member_string(w, key, equals + 1);
    }
    json_object_end(w);
}

int client_check_pairs(const char *const *pairs, struct silica_error *reterr)
{
    for (; pairs && *pairs; pairs++) {
        const char *equals = strchr(*pairs, '=');
        if (!equals || equals == *pairs)
            return client_fail(reterr, SILICA_ERROR_ARGUMENT, EINVAL,
                               "'%.100s' is not of the form NAME=VALUE", *pairs);
    }
    return 0;
}
