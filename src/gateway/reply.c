/* SPDX-License-Identifier: Apache-2.0 */
/* reply.c: see reply.h. */
#include "gateway/reply.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>

static void put_envelope(struct buf *out, const char *sandbox_id, const struct problem *p)
{
    char now[CLOCK_ISO_SIZE];
    struct json_writer w;

    clock_iso_now(now);
    json_writer_init(&w, out);
    json_object_begin(&w);
    json_member_string(&w, "code", p->code);
    json_member_string(&w, "message", p->message);
    json_put_key(&w, "context");
    json_object_begin(&w);
    if (sandbox_id)
        json_member_string(&w, "sandboxId", sandbox_id);
    if (p->field[0])
        json_member_string(&w, "field", p->field);
    if (p->retry_after_s)
        json_member_int(&w, "retryAfter", p->retry_after_s);
    json_object_end(&w);
    json_member_int(&w, "httpStatus", p->status);
    json_member_string(&w, "timestamp", now);
    json_member_string(&w, "error", p->message); /* what older clients read */
    json_object_end(&w);
}

static void send_envelope(struct http_request *req, const char *sandbox_id, const struct problem *p,
                          const struct http_header *extra)
{
    struct http_header headers[4];
    size_t count = 0;
    char seconds[16];
    struct buf body = BUF_INIT(8192);

    put_envelope(&body, sandbox_id, p);
    headers[count++] = (struct http_header){"Content-Type", "application/json"};
    if (p->status == 401)
        headers[count++] = (struct http_header){"WWW-Authenticate", "Bearer"};
    if (p->retry_after_s) {
        (void)snprintf(seconds, sizeof seconds, "%d", p->retry_after_s);
        headers[count++] = (struct http_header){"Retry-After", seconds};
    }
    if (extra)
        headers[count++] = *extra;
    http_respond_headers(req, p->status, headers, count, buf_data(&body), buf_len(&body));
    buf_done(&body);
}

void reply_problem(struct http_request *req, const char *sandbox_id, const struct problem *p)
{
    send_envelope(req, sandbox_id, p, NULL);
}

void reply_error(struct http_request *req, int status, const char *code, const char *fmt, ...)
{
    struct problem p = {.status = status, .code = code};
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(p.message, sizeof p.message, fmt, ap);
    va_end(ap);
    send_envelope(req, NULL, &p, NULL);
}

void reply_method_not_allowed(struct http_request *req, const char *allow)
{
    struct problem p;
    (void)problem_set(&p, 405, "METHOD_NOT_ALLOWED", "this path answers %s", allow);
    send_envelope(req, NULL, &p, &(struct http_header){"Allow", allow});
}

void reply_json(struct http_request *req, int status, const struct json_writer *w)
{
    if (w->err < 0)
        reply_error(req, 500, "INTERNAL_ERROR", "the answer could not be written");
    else
        http_respond(req, status, "application/json", buf_data(w->out), buf_len(w->out));
    buf_done(w->out);
}

static const struct {
    int status;
    const char *code;
} server_codes[] = {
    {400, "BAD_REQUEST"},     {408, "REQUEST_TIMEOUT"},    {413, "PAYLOAD_TOO_LARGE"},
    {414, "URI_TOO_LONG"},    {417, "EXPECTATION_FAILED"}, {431, "HEADERS_TOO_LARGE"},
    {501, "NOT_IMPLEMENTED"}, {503, "OVERLOADED"},         {505, "HTTP_VERSION_NOT_SUPPORTED"},
};

void reply_server_error(int status, const char *reason, struct buf *out, void *arg)
{
    struct problem p;
    const char *code = status < 500 ? "BAD_REQUEST" : "INTERNAL_ERROR";
    (void)arg;
    for (size_t i = 0; i < ARRAY_SIZE(server_codes); i++)
        if (server_codes[i].status == status)
            code = server_codes[i].code;
    (void)problem_set(&p, status, code, "%s", reason);
    put_envelope(out, NULL, &p);
}
