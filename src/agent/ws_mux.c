/* SPDX-License-Identifier: Apache-2.0 */
/* ws_mux.c: the requests of one WebSocket (/ws, /api/ws) handed to the agent's own HTTP server.
 *
 * Theory of operation
 * A request that arrives as a message is sent as HTTP over a socket pair whose other end the agent's server
 * has adopted, and the answer is turned back into messages. So there is one set of handlers, and whatever
 * holds for a request over HTTP (order under the session's lock, back pressure, what a disconnect ends and
 * what it does not) holds here: a cancelled stream is a closed connection (inner_http.h).
 *
 * When the WebSocket is full each answer stops at its next piece until there is room. Answers that are not
 * streams must be one message, so they are collected first (MUX_ANSWER_MAX). */
#include "agent/inner_http.h"
#include "agent/reply.h"
#include "agent/websockets.h"
#include "agent/ws_events.h"
#include "base/json.h"
#include "net/websocket.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

enum {
    MUX_REQUESTS_MAX = 1024, /* of one connection at a time; beyond: 503, which clients try again */
    MUX_HEADERS_MAX = 64,
    MUX_ANSWER_MAX = 128 << 20,
    MUX_FRAME = 64 * 1024, /* a message's own text around what it carries */
};

struct mux {
    struct list link; /* of the agent */
    struct ws *ws;
    struct list requests;
    size_t count;
    struct inner_http inner;
    bool blocked;
};

struct mux_request {
    struct list link;
    struct mux *mux;
    struct http_client *client;
    struct buf id; /* as JSON; empty: none */
    struct buf body;
    struct ws_events events;
    int status;
    bool stream;    /* the answer is one of events */
    bool json;      /* ... is JSON, so it says */
    bool ours;      /* ... and was made by a route of the API, so it is */
    bool cancelled; /* before it was known to be a stream */
    bool too_large;
};

/* ------------------------------------------------------------------ messages to the client */

static bool mux_send(struct mux *m, struct json_writer *w, struct buf *out)
{
    json_object_end(w);
    if (w->err < 0) /* memory is short: the client must not wait in vain */
        ws_fail(m->ws, WS_CODE_INTERNAL, "Send failed");
    else if (!ws_send(m->ws, WS_TEXT, buf_data(out), buf_len(out)) && !m->blocked) {
        m->blocked = true;
        ws_pause(m->ws); /* who does not read answers may not ask for more */
    }
    buf_done(out);
    return !m->blocked;
}

static void begin_message(struct json_writer *w, struct buf *out, const char *type, const struct buf *id)
{
    json_writer_init(w, out);
    json_object_begin(w);
    json_member_string(w, "type", type);
    if (id && buf_len(id)) {
        json_put_key(w, "id");
        json_put_raw(w, buf_data(id), buf_len(id));
    }
}

static void send_error(struct mux *m, const struct buf *id, const char *code, int status, const char *text)
{
    struct buf out = BUF_INIT(MUX_FRAME + (id ? buf_len(id) : 0));
    struct json_writer w;
    begin_message(&w, &out, "error", id);
    json_member_string(&w, "code", code);
    json_member_string(&w, "message", text);
    json_member_int(&w, "status", status);
    (void)mux_send(m, &w, &out);
}

static void send_response(struct mux *m, const struct buf *id, int status, const struct buf *body)
{
    struct buf out = BUF_INIT(MUX_FRAME + buf_len(id) + (body ? buf_len(body) : 0));
    struct json_writer w;
    begin_message(&w, &out, "response", id);
    json_member_int(&w, "status", status);
    if (body) {
        json_put_key(&w, "body");
        json_put_raw(&w, buf_data(body), buf_len(body));
    }
    json_member_bool(&w, "done", true);
    (void)mux_send(m, &w, &out);
}

static void send_event(struct ws_events *e, const char *event, const char *data, size_t n)
{
    struct mux_request *q = container_of(e, struct mux_request, events);
    struct buf out = BUF_INIT(MUX_FRAME + buf_len(&q->id) + 6 * n);
    struct json_writer w;
    begin_message(&w, &out, "stream", &q->id);
    if (event)
        json_member_string(&w, "event", event);
    json_put_key(&w, "data");
    json_put_bytes(&w, data, n);
    if (!mux_send(q->mux, &w, &out))
        http_client_pause(q->client);
}

static void request_free(struct mux_request *q)
{
    list_remove(&q->link);
    q->mux->count--;
    if (q->client)
        inner_http_put(&q->mux->inner, q->client);
    ws_events_done(&q->events);
    buf_done(&q->id);
    buf_done(&q->body);
    free(q);
}

/* ------------------------------------------------------------------ the answer */

static void on_head(struct http_client *client, int status, const struct http_header *headers, size_t count,
                    int64_t content_length)
{
    struct mux_request *q = http_client_user(client);
    const char *type = http_header_find(headers, count, "Content-Type");
    (void)content_length;
    q->status = status;
    q->stream = type && strncasecmp(type, "text/event-stream", 17) == 0;
    q->json = type && strncasecmp(type, "application/json", 16) == 0;
    if (q->stream && q->cancelled) {
        send_response(q->mux, &q->id, status, NULL);
        request_free(q);
    }
}

static void on_data(struct http_client *client, const char *data, size_t n)
{
    struct mux_request *q = http_client_user(client);
    if (q->stream)
        q->too_large |= !ws_events_feed(&q->events, data, n, send_event);
    else if (q->json && !q->too_large)
        q->too_large = buf_append(&q->body, data, n) < 0;
}

/* What a service or a file calls JSON may be anything. */
static bool body_is_json(struct mux_request *q)
{
    struct error e;
    auto_json struct json_doc *doc = NULL;
    if (!q->json || !buf_len(&q->body))
        return false;
    if (q->ours)
        return true;
    auto_free char *copy = malloc(buf_len(&q->body));
    if (!copy)
        return false;
    memcpy(copy, buf_data(&q->body), buf_len(&q->body));
    return json_parse(copy, buf_len(&q->body), JSON_ALLOW_NUL, &doc, &e) == 0;
}

static void on_end(struct http_client *client, int err)
{
    struct mux_request *q = http_client_user(client);
    struct mux *m = q->mux;
    if (q->stream && (err < 0 || q->too_large))
        send_error(m, &q->id, "STREAM_ERROR", 500, "The stream broke off");
    else if (err < 0)
        send_error(m, &q->id, "INTERNAL_ERROR", 500, "The request was not answered");
    else if (q->too_large)
        send_error(m, &q->id, "INTERNAL_ERROR", 500, "The answer is too large for one message");
    else
        send_response(m, &q->id, q->status, !q->stream && body_is_json(q) ? &q->body : NULL);
    request_free(q);
}

static const struct http_client_ops answer_ops = {
    .on_head = on_head,
    .on_data = on_data,
    .on_end = on_end,
    .on_idle_close = inner_http_idle_closed,
};

/* ------------------------------------------------------------------ the request */

static bool frames_the_message(const char *name)
{
    static const char *const names[] = {"Host",       "Connection", "Content-Length", "Transfer-Encoding",
                                        "Keep-Alive", "Upgrade",    "Expect",         "Trailer",
                                        "TE"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcasecmp(names[i], name) == 0)
            return true;
    return false;
}

static size_t collect_headers(const struct json_value *given, struct http_header out[MUX_HEADERS_MAX])
{
    size_t count = 0;
    out[count++] = (struct http_header){"Host", "localhost:3000"};
    json_for_each (member, given) {
        const char *value = json_string(member, NULL);
        if (value && count < MUX_HEADERS_MAX - 1 && !frames_the_message(json_key(member)))
            out[count++] = (struct http_header){json_key(member), value};
    }
    if (!http_header_find(out, count, "Content-Type"))
        out[count++] = (struct http_header){"Content-Type", "application/json"};
    return count;
}

static bool method_known(const char *method)
{
    static const char *const known[] = {"GET", "POST", "PUT", "DELETE", "OPTIONS"};
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (strcmp(known[i], method) == 0)
            return true;
    return false;
}

static int send_request(struct mux_request *q, const struct json_value *message)
{
    struct http_header headers[MUX_HEADERS_MAX];
    size_t count = collect_headers(json_get(message, "headers"), headers);
    const char *method = json_string(json_get(message, "method"), NULL);
    const char *path = json_string(json_get(message, "path"), NULL);
    const struct json_value *body = json_get(message, "body");
    struct buf text = BUF_INIT(AGENT_BODY_MAX + MUX_FRAME);
    int r = 0;
    method = method ? method : "GET";
    if (!path || path[0] != '/' || !method_known(method))
        return -EINVAL;
    q->ours = strncmp(path, "/api/", 5) == 0;
    if (json_type_of(body) != JSON_NULL && (strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0)) {
        struct json_writer w;
        json_writer_init(&w, &text);
        json_put_value(&w, body);
        r = w.err;
    }
    if (r == 0)
        r = http_client_send(q->client, method, path, headers, count, (int64_t)buf_len(&text), &answer_ops);
    if (r == 0 && buf_len(&text)) {
        (void)http_client_write(q->client, buf_data(&text), buf_len(&text)); /* on_end tells of a failure */
        http_client_finish(q->client);
    }
    buf_done(&text);
    return r;
}

static void handle_request(struct mux *m, const struct json_value *message, struct buf *id)
{
    struct mux_request *q = m->count < MUX_REQUESTS_MAX ? calloc(1, sizeof *q) : NULL;
    if (!q) {
        struct reply reply;
        struct buf body = BUF_INIT(MUX_FRAME);
        reply_error_begin(&reply, "INTERNAL_ERROR", "Too many requests are under way on this connection");
        (void)reply_error_envelope(&reply, &body);
        send_response(m, id, 503, &body);
        buf_done(&body);
        return;
    }
    q->mux = m;
    q->id = *id;
    *id = BUF_INIT(0);
    q->body = BUF_INIT(MUX_ANSWER_MAX);
    ws_events_init(&q->events);
    list_append(&m->requests, &q->link);
    m->count++;
    q->client = inner_http_get(&m->inner);
    if (q->client)
        http_client_set_user(q->client, q);
    int r = q->client ? send_request(q, message) : -ENOMEM;
    if (r < 0) {
        send_error(m, &q->id, "INTERNAL_ERROR", 500,
                   r == -EINVAL ? "The method, path or headers are not supported"
                                : "The request cannot be handled");
        request_free(q);
    }
}

/* A stream's connection is closed, as an HTTP client would; answers that are not streams are not touched. */
static void handle_cancel(struct mux *m, const struct buf *id)
{
    list_for_each(i, &m->requests)
    {
        struct mux_request *q = list_entry(i, struct mux_request, link);
        if (!buf_len(id) || buf_len(id) != buf_len(&q->id) ||
            memcmp(buf_data(id), buf_data(&q->id), buf_len(id)) != 0)
            continue;
        q->cancelled = true;
        if (q->stream) {
            send_response(m, &q->id, q->status, NULL);
            request_free(q);
        }
        return;
    }
}

static void on_message(struct ws *ws, bool text, char *data, size_t n)
{
    struct mux *m = ws_user(ws);
    struct error e;
    auto_json struct json_doc *doc = NULL;
    (void)text; /* binary is read as UTF-8, too */
    if (json_parse(data, n, JSON_ALLOW_NUL, &doc, &e) < 0) {
        send_error(m, NULL, "PARSE_ERROR", 400, "Invalid JSON message");
        return;
    }
    const struct json_value *message = json_root(doc), *given = json_get(message, "id");
    const char *type = json_string(json_get(message, "type"), NULL);
    struct buf id = BUF_INIT(n * 6 + 64);
    if (given) {
        struct json_writer w;
        json_writer_init(&w, &id);
        json_put_value(&w, given);
        if (w.err < 0)
            buf_clear(&id);
    }
    if (type && strcmp(type, "request") == 0)
        handle_request(m, message, &id);
    else if (type && strcmp(type, "cancel") == 0)
        handle_cancel(m, &id);
    else
        send_error(m, NULL, "INVALID_REQUEST", 400, "Message must be a valid WSRequest");
    buf_done(&id);
}

/* ------------------------------------------------------------------ life */

static void mux_free(struct mux *m)
{
    list_remove(&m->link);
    list_for_each(i, &m->requests) request_free(list_entry(i, struct mux_request, link));
    inner_http_done(&m->inner);
    free(m);
}

static void on_drain(struct ws *ws)
{
    struct mux *m = ws_user(ws);
    m->blocked = false;
    ws_resume(ws);
    list_for_each(i, &m->requests) http_client_resume(list_entry(i, struct mux_request, link)->client);
}

static void on_closed(struct ws *ws, int code, const char *reason)
{
    (void)code;
    (void)reason;
    mux_free(ws_user(ws));
}

static const struct ws_ops mux_ops = {.message = on_message, .drain = on_drain, .closed = on_closed};

void mux_accept(struct agent *a, struct http_request *req)
{
    struct mux *m = calloc(1, sizeof *m);
    if (!m) {
        http_respond(req, 503, "text/plain", "WebSocket upgrade failed", 24);
        return;
    }
    struct ws_config config = {.loop = a->loop,
                               .group = &a->sockets,
                               .ops = &mux_ops,
                               .user = m,
                               .role = WS_SERVER,
                               .message_max = AGENT_BODY_MAX + MUX_FRAME};
    if (ws_accept(&config, req, &m->ws) < 0) {
        free(m);
        return;
    }
    m->inner.agent = a;
    list_init(&m->requests);
    list_append(&a->muxes, &m->link);
}

void muxes_leave(struct agent *a)
{
    list_for_each(i, &a->muxes)
        ws_fail(list_entry(i, struct mux, link)->ws, WS_CODE_GOING_AWAY, "The sandbox stops");
}

void muxes_free(struct agent *a)
{
    list_for_each(i, &a->muxes) mux_free(list_entry(i, struct mux, link));
}
