/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_answer.c: the request of a call, and how its answer becomes a value. */
#include "agent/rpc_internal.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { TARGET_MAX = 64 * 1024, MEMBERS_MAX = 16 };

/* ------------------------------------------------------------------ streams */

/* The value has a stream, which begins when the value is told. */
static void settle_stream(struct rpc_call *c, struct buf *value, size_t hole)
{
    struct rpc_entry *e = c->entry;
    c->phase = RPC_STREAMING;
    rpc_call_release_exports(c);
    if (!e || !e->refs || !hole) { /* released, or memory is short */
        buf_done(value);
        rpc_call_fail(c, NULL, "a stream cannot be passed on");
        return;
    }
    if (c->client)
        http_client_pause(c->client);
    e->hole = hole;
    rpc_entry_settle(e, RPC_RESOLVED, value);
}

static void settle_plain_stream(struct rpc_call *c)
{
    struct buf value = BUF_INIT(RPC_FRAME);
    int r = buf_puts(&value, "[\"readable\",0]");
    settle_stream(c, &value, r < 0 ? 0 : buf_len(&value) - 2);
}

/* The file is its own stream, in an object that tells about it. */
static void settle_file(struct rpc_call *c, const char *type, int64_t size)
{
    struct buf value = BUF_INIT(RPC_FRAME);
    char now[CLOCK_ISO_SIZE];
    struct json_writer w;
    clock_iso_now(now);
    json_writer_init(&w, &value);
    json_object_begin(&w);
    json_member_bool(&w, "success", true);
    json_put_key(&w, "content");
    json_put_raw(&w, "[\"readable\",0]", 14);
    size_t hole = buf_len(&value) - 2;
    json_member_string(&w, "path", c->path);
    json_member_int(&w, "size", size);
    json_member_string(&w, "mimeType", type ? type : "application/octet-stream");
    json_member_string(&w, "timestamp", now);
    json_object_end(&w);
    settle_stream(c, &value, w.err < 0 ? 0 : hole);
}

/* A failure as the only event of a stream. */
static void settle_soft(struct rpc_call *c)
{
    struct rpc_member members[MEMBERS_MAX];
    size_t count =
        c->is_json ? rpc_members(buf_data(&c->answer), buf_len(&c->answer), members, MEMBERS_MAX) : 0;
    const struct rpc_member *message = rpc_member_find(members, count, "message");
    struct buf event = BUF_INIT(buf_len(&c->answer) + RPC_FRAME);
    struct json_writer w;
    char now[CLOCK_ISO_SIZE];
    clock_iso_now(now);
    (void)buf_puts(&event, "event: error\ndata: ");
    json_writer_init(&w, &event);
    json_object_begin(&w);
    json_member_string(&w, "type", "error");
    json_put_key(&w, "error");
    if (message)
        json_put_raw(&w, message->value, message->value_len);
    else
        json_put_string(&w, "The command was not started");
    json_member_string(&w, "timestamp", now);
    json_object_end(&w);
    (void)buf_puts(&event, "\n\n");
    inner_http_put(&c->rpc->inner, take_ptr(c->client));
    buf_done(&c->answer);
    c->answer = event;
    settle_plain_stream(c);
}

/* ------------------------------------------------------------------ values */

static void settle_result(struct rpc_call *c)
{
    size_t n = buf_len(&c->answer);
    struct buf value = BUF_INIT((size_t)RPC_ANSWER_MAX * 2);
    struct rpc_result_extra extra = {.path = c->path, .content_len = (int64_t)c->content_len};
    int r = rpc_result_build(c->method, n ? buf_data(&c->answer) : "", n, &extra, &value);
    if (r == 0) {
        rpc_call_settle(c, RPC_RESOLVED, &value);
        return;
    }
    buf_done(&value);
    rpc_call_fail(c, "INTERNAL_ERROR", "The answer cannot be sent: %s", strerror(-r));
}

static void settle_failure(struct rpc_call *c)
{
    size_t n = c->is_json ? buf_len(&c->answer) : 0;
    struct buf value = BUF_INIT(n * 2 + RPC_FRAME);
    if (c->method->flags & RPC_SOFT) {
        settle_soft(c);
        return;
    }
    if (rpc_failure_build(c->status, n ? buf_data(&c->answer) : "", n, &value) < 0)
        rpc_send_failed(c->rpc);
    rpc_call_settle(c, RPC_REJECTED, &value);
}

/* The path is known: now the file itself. */
static void ask_for_file(struct rpc_call *c)
{
    struct buf target = BUF_INIT(TARGET_MAX), nothing = BUF_INIT(0);
    struct error e;
    auto_json struct json_doc *doc = NULL;
    size_t n = 0;
    bool upload = c->method->answer == RPC_ANSWER_UPLOAD;
    int r = json_parse(buf_data(&c->answer), buf_len(&c->answer), 0, &doc, &e);
    const char *path = r == 0 ? json_string(json_get(json_root(doc), "path"), &n) : NULL;
    if (path)
        r = buf_puts(&target, "/file");
    if (path && r == 0)
        r = rpc_put_encoded(&target, path, n, true);
    const char *text = path && r == 0 ? buf_cstr(&target) : NULL;
    inner_http_put(&c->rpc->inner, take_ptr(c->client));
    if (text) {
        buf_clear(&c->answer);
        c->phase = RPC_ASKING;
        rpc_ask(c, upload ? "PUT" : "GET", text, &nothing, upload ? -1 : 0);
    } else {
        rpc_call_fail(c, "INTERNAL_ERROR", "The path cannot be resolved");
    }
    buf_done(&target);
}

/* ------------------------------------------------------------------ the answer */

static void on_head(struct http_client *client, int status, const struct http_header *headers, size_t count,
                    int64_t content_length)
{
    struct rpc_call *c = http_client_user(client);
    const char *type = http_header_find(headers, count, "Content-Type");
    c->status = status;
    c->is_json = type && strncasecmp(type, "application/json", 16) == 0;
    c->is_stream =
        c->phase == RPC_ASKING && status < 300 &&
        (c->file || c->method->answer == RPC_ANSWER_STREAM || c->method->answer == RPC_ANSWER_CALLBACKS);
    if (!c->is_stream || c->callbacks)
        return;
    if (c->file)
        settle_file(c, type, content_length);
    else
        settle_plain_stream(c);
}

static void on_data(struct http_client *client, const char *data, size_t n)
{
    struct rpc_call *c = http_client_user(client);
    if (c->is_stream && c->callbacks) {
        rpc_callbacks_data(c, data, n);
    } else if (c->is_stream) {
        rpc_outlet_data(c, data, n);
    } else if (!c->too_large) {
        c->too_large = buf_append(&c->answer, data, n) < 0;
        if (!rpc_call_take(c, n))
            http_client_pause(client);
    }
}

static void on_end(struct http_client *client, int err)
{
    struct rpc_call *c = http_client_user(client);
    if (c->is_stream && c->callbacks)
        rpc_callbacks_end(c, err);
    else if (c->is_stream)
        rpc_outlet_end(c, err);
    else if (err < 0)
        rpc_call_fail(c, "INTERNAL_ERROR", "The request was not answered");
    else if (c->too_large)
        rpc_call_fail(c, "INTERNAL_ERROR", "The answer is too large for one message");
    else if (c->status >= 300)
        settle_failure(c);
    else if (c->phase == RPC_RESOLVING)
        ask_for_file(c);
    else
        settle_result(c);
}

static void on_drain(struct http_client *client)
{
    struct rpc_call *c = http_client_user(client);
    if (c->pipe)
        rpc_inlet_drained(c->pipe->inlet);
}

static const struct http_client_ops answer_ops = {
    .on_head = on_head,
    .on_data = on_data,
    .on_end = on_end,
    .on_drain = on_drain,
    .on_idle_close = inner_http_idle_closed,
};

void rpc_ask(struct rpc_call *c, const char *verb, const char *target, const struct buf *body,
             int64_t content_length)
{
    static const struct http_header headers[] = {
        {"Host", "localhost:3000"},
        {"X-Sandbox-Id", "rpc"}, /* a client that names its sandbox is a recent one */
        {"Content-Type", "application/json"},
    };
    c->client = inner_http_get(&c->rpc->inner);
    int r = c->client && target ? 0 : -ENOMEM;
    if (r == 0) {
        http_client_set_user(c->client, c);
        r = http_client_send(c->client, verb, target, headers, ARRAY_SIZE(headers), content_length,
                             &answer_ops);
    }
    if (r < 0) {
        rpc_call_fail(c, "INTERNAL_ERROR", "The request cannot be handled: %s", strerror(-r));
    } else if (content_length > 0) {
        (void)http_client_write(c->client, buf_data(body), buf_len(body)); /* on_end tells of a failure */
        http_client_finish(c->client);
    } else if (content_length < 0) {
        rpc_inlet_begin(c->pipe->inlet);
    }
}
