/* SPDX-License-Identifier: Apache-2.0 */
/* http_request.c: what a handler does with a request besides answering: reading the body, taking the socket.
 */
#include "net/http_internal.h"

#include <errno.h>

static struct conn *conn_of(const struct http_request *req)
{
    return container_of(req, struct conn, req);
}

const char *http_request_header(const struct http_request *req, const char *name)
{
    return http_header_find(req->headers, req->header_count, name);
}

void http_request_read_start(struct http_request *req, uint64_t max_bytes, const struct http_body_sink *sink)
{
    struct conn *c = conn_of(req);
    if (c->reading || !c->active)
        return;
    c->reading = true;
    c->sink = *sink;
    c->body_max = max_bytes;
    if (req->content_length > 0 && (uint64_t)req->content_length > max_bytes)
        c->too_large = true;
    bool arrived = c->parsing ? c->rx_len > 0 : buf_len(&c->in) > 0;
    if (c->need_continue && !c->too_large && !http_response_begun(req)) {
        static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
        struct iovec iov = {(void *)text, sizeof text - 1};
        c->need_continue = false;
        if (!arrived && outq_send(&c->out, c->source.fd, &iov, 1) < 0)
            c->broken = true;
    }
    conn_touch(c);
}

void http_request_read_pause(struct http_request *req)
{
    conn_of(req)->paused = true;
}

void http_request_read_resume(struct http_request *req)
{
    struct conn *c = conn_of(req);
    c->paused = false;
    conn_later(c); /* also from inside an event: what waits must be parsed again */
}

static void collect_data(struct http_request *req, const char *data, size_t n)
{
    struct conn *c = conn_of(req);
    struct http_server *s = c->server;
    if (s->config.limits.collected_max && n > s->config.limits.collected_max - s->collected) {
        c->crowded = true;
        return;
    }
    if (!buf_len(&c->body) && req->content_length > 0 && req->content_length <= LOOP_SCRATCH)
        (void)buf_reserve(&c->body, (size_t)req->content_length); /* most bodies: one allocation */
    if (buf_append(&c->body, data, n) < 0)
        c->too_large = true;
    else
        s->collected += n;
}

static void collect_end(struct http_request *req, int err)
{
    struct conn *c = conn_of(req);
    c->collected(req, &c->body, err);
}

void http_request_collect(struct http_request *req, uint64_t max_bytes,
                          void (*done)(struct http_request *req, struct buf *body, int err))
{
    static const struct http_body_sink sink = {.on_data = collect_data, .on_end = collect_end};
    conn_of(req)->collected = done;
    http_request_read_start(req, max_bytes, &sink);
}

int http_hijack(struct http_request *req, struct buf *rest)
{
    struct conn *c = conn_of(req);
    if (!c->active || c->told || http_response_begun(req) || !outq_empty(&c->out)) {
        conn_close(c);
        return -EPROTO;
    }
    int r = 0;
    if (c->parsing)
        r = buf_append(rest, c->rx, c->rx_len);
    else if (buf_len(&c->in))
        r = buf_append(rest, buf_data(&c->in), buf_len(&c->in));
    if (r < 0) {
        conn_close(c);
        return r;
    }
    int fd = c->source.fd;
    loop_del(c->server->loop, &c->source);
    conn_close(c);
    return fd;
}
