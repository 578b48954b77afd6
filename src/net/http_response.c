/* SPDX-License-Identifier: Apache-2.0 */
/* http_response.c: answers: their heads, their framing, their way to the socket; server-sent events.
 *
 * A complete answer (http_respond) goes out in one sendmsg, unless more pipelined requests wait: then their
 * answers go together. The pieces of a streamed answer are collected until the end of the batch of events, or
 * until HTTP_SEND_NOW bytes. Framing headers are the server's alone: a handler's Content-Length and
 * Transfer-Encoding are left out. A header that would break the head (CR, LF, NUL, a name that is no token)
 * turns the answer into a 500. */
#include "base/clock.h"
#include "base/log.h"
#include "net/http_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static struct conn *conn_of(const struct http_request *req)
{
    return container_of(req, struct conn, req);
}

/* ------------------------------------------------------------------ heads */

static const char *date_now(struct http_server *s)
{
    static const char days[][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t t = (time_t)(clock_wall_ms() / 1000);
    if (t != s->date_second) {
        struct tm tm;
        if (!gmtime_r(&t, &tm))
            return s->date;
        (void)snprintf(s->date, sizeof s->date, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday % 7],
                       tm.tm_mday % 100, months[tm.tm_mon % 12], (tm.tm_year + 1900) % 10000,
                       tm.tm_hour % 100, tm.tm_min % 100, tm.tm_sec % 100);
        s->date_second = t;
    }
    return s->date;
}

static int put_status(struct buf *b, int status)
{
    if (status == 200) /* most of them */
        return buf_append(b, "HTTP/1.1 200 OK\r\n", 17);
    return buf_printf(b, "HTTP/1.1 %d %s\r\n", status, http_status_text(status));
}

static bool is_framing(const char *name)
{
    return http_name_equal(name, "content-length") || http_name_equal(name, "transfer-encoding") ||
           http_name_equal(name, "connection") || http_name_equal(name, "keep-alive");
}

/* The common headers and the date, except those that the handler gives itself. */
static int put_own_headers(struct http_server *s, struct buf *b, const struct http_header *headers,
                           size_t count, bool bare)
{
    const struct http_header *common = s->config.common_headers;
    int r = 0;
    for (size_t i = 0; i < s->config.common_count && r == 0 && !bare; i++)
        if (!http_header_find(headers, count, common[i].name))
            r = http_put_header(b, common[i].name, common[i].value);
    if (s->config.send_date && r == 0 && !http_header_find(headers, count, "Date"))
        r = http_put_header(b, "Date", date_now(s));
    return r;
}

/* The handler's headers; -EINVAL when one of them cannot be sent. */
static int put_headers(struct buf *b, const struct http_header *headers, size_t count, bool *close_after,
                       const char **ret_connection)
{
    for (size_t i = 0; i < count; i++) {
        const char *name = headers[i].name, *value = headers[i].value;
        if (is_framing(name)) {
            if (!http_name_equal(name, "connection"))
                continue;
            if (http_list_has(value, "close"))
                *close_after = true;
            else
                *ret_connection = value;
            continue;
        }
        int r = http_put_header(b, name, value);
        if (r < 0)
            return r;
    }
    return 0;
}

/* An unread body ends the connection when reading it would take long, or when the client waits for a 100.
 * Only a streamed answer may still be waiting for the rest of the body it has begun to read. */
static bool body_in_the_way(const struct conn *c, bool streamed)
{
    if (c->input != INPUT_BODY)
        return false;
    if (c->need_continue || c->too_large)
        return true;
    return !(c->reading && streamed) && c->parser.framing == HTTP_FRAMING_LENGTH &&
           c->parser.left > HTTP_DISCARD_MAX;
}

static enum conn_answer answer_kind(const struct conn *c, int status, int64_t content_length)
{
    if (c->head->is_head || status == 204 || status == 304)
        return ANSWER_NO_BODY;
    if (content_length >= 0)
        return ANSWER_LENGTH;
    return c->req.minor ? ANSWER_CHUNKED : ANSWER_CLOSE;
}

static int put_framing(struct conn *c, struct buf *b, int status, int64_t content_length,
                       const char *connection)
{
    int r = 0;
    if (status != 204 && status != 304) {
        if (content_length >= 0)
            r = http_put_length(b, (uint64_t)content_length);
        else if (c->req.minor)
            r = buf_puts(b, "Transfer-Encoding: chunked\r\n");
    }
    if (c->close_after)
        connection = "close";
    else if (!connection && !c->req.minor)
        connection = "keep-alive";
    if (connection && r == 0)
        r = http_put_header(b, "Connection", connection);
    return r == 0 ? buf_append(b, "\r\n", 2) : r;
}

/* Builds the head in the server's buffer and decides how the body is sent. */
static int begin(struct conn *c, int status, const struct http_header *headers, size_t count,
                 int64_t content_length, bool streamed)
{
    struct buf *b = &c->server->head;
    const char *connection = NULL;
    int r;

    buf_clear(b);
    if (status < 200 || status > 599)
        return -EINVAL;
    if ((r = put_status(b, status)) < 0 || (r = put_own_headers(c->server, b, headers, count, c->bare)) < 0 ||
        (r = put_headers(b, headers, count, &c->close_after, &connection)) < 0)
        return r;
    c->status = status;
    c->answer = (uint8_t)answer_kind(c, status, content_length);
    if (c->answer == ANSWER_CLOSE || c->server->stopping || body_in_the_way(c, streamed))
        c->close_after = true;
    c->answer_left = content_length > 0 ? (uint64_t)content_length : 0;
    return put_framing(c, b, status, content_length, connection);
}

/* ------------------------------------------------------------------ answers of the server's own */

static int put_refusal(struct http_server *s, int status, const char *reason, bool with_body)
{
    struct buf *b = &s->head;
    struct buf body = BUF_INIT(HTTP_HEAD_OUT_MAX / 2);
    const char *type = s->config.error_body ? "application/json" : "text/plain; charset=utf-8";
    int r;

    buf_clear(b);
    if (s->config.error_body) {
        s->config.error_body(status, reason, &body, s->config.arg);
        r = 0;
    } else {
        r = buf_printf(&body, "%s\n", reason);
    }
    if (r == 0 && (r = put_status(b, status)) == 0 && (r = put_own_headers(s, b, NULL, 0, false)) == 0 &&
        (r = http_put_header(b, "Content-Type", type)) == 0 &&
        (r = http_put_length(b, buf_len(&body))) == 0 &&
        (r = buf_puts(b, "Connection: close\r\n\r\n")) == 0 && with_body && buf_len(&body))
        r = buf_append(b, buf_data(&body), buf_len(&body));
    buf_done(&body);
    return r;
}

const struct buf *http_refusal(struct http_server *s, int status, const char *reason, bool body)
{
    return put_refusal(s, status, reason, body) < 0 ? NULL : &s->head;
}

void conn_refuse(struct conn *c, int status, const char *reason)
{
    c->status = status;
    bool with_body = !c->head || !c->head->is_head;
    const struct buf *b = http_refusal(c->server, status, reason, with_body);
    struct iovec iov = {b ? buf_data(b) : NULL, b ? buf_len(b) : 0};
    if (!b || outq_send(&c->out, c->source.fd, &iov, 1) < 0)
        c->broken = true;
    c->close_after = c->closing = true;
}

/* What the handler wants to send is not fit to be sent. */
static void swallow(struct conn *c)
{
    log_error("%s %s: the response has a bad header or status, sending 500 instead", c->req.method,
              c->req.path);
    c->swallow = true;
    c->answer = ANSWER_NO_BODY;
    conn_refuse(c, 500, "the response could not be sent");
    c->closing = false; /* not before the handler is through with it */
    conn_touch(c);
}

/* ------------------------------------------------------------------ the handler's answers */

/* True when an answer may begin now; otherwise the call is a late or wrong one. */
static bool may_begin(struct conn *c)
{
    if (c->told) { /* the server was faster: the handler's answer, whatever it is, ends the request */
        c->active = false;
        return false;
    }
    if (http_response_begun(&c->req)) {
        http_response_abort(&c->req);
        return false;
    }
    return true;
}

void http_respond_headers(struct http_request *req, int status, const struct http_header *headers,
                          size_t count, const void *body, size_t n)
{
    struct conn *c = conn_of(req);
    if (!may_begin(c))
        return;
    if (begin(c, status, headers, count, (int64_t)n, false) < 0) {
        swallow(c);
        conn_request_over(c);
        return;
    }
    const struct buf *b = &c->server->head;
    struct iovec iov[2] = {{buf_data(b), buf_len(b)}, {(void *)body, c->answer == ANSWER_NO_BODY ? 0 : n}};
    bool more_come = c->parsing && c->rx_len && c->input == INPUT_DONE && !c->close_after;
    int r;
    if (more_come && outq_len(&c->out) + buf_len(b) + n < HTTP_SEND_NOW)
        r = outq_put(&c->out, iov, 2);
    else
        r = outq_send(&c->out, c->source.fd, iov, 2);
    if (r < 0)
        c->broken = true;
    conn_request_over(c);
}

void http_respond(struct http_request *req, int status, const char *content_type, const void *body, size_t n)
{
    struct http_header type = {"Content-Type", content_type};
    http_respond_headers(req, status, &type, content_type ? 1 : 0, body, n);
}

void http_response_begin(struct http_request *req, int status, const struct http_header *headers,
                         size_t count, int64_t content_length)
{
    struct conn *c = conn_of(req);
    if (c->told)
        return;
    if (http_response_begun(req)) {
        c->broken = true; /* two heads would be two answers */
        conn_touch(c);
        return;
    }
    if (begin(c, status, headers, count, content_length, true) < 0) {
        swallow(c);
        return;
    }
    const struct buf *b = &c->server->head;
    struct iovec iov = {buf_data(b), buf_len(b)};
    if (outq_put(&c->out, &iov, 1) < 0)
        c->broken = true;
    conn_touch(c);
}

/* Frames and sends up to three pieces of data as one piece of the body. */
static bool write_pieces(struct conn *c, const struct iovec *data, int count)
{
    struct iovec iov[OUTQ_IOV];
    size_t n = 0;
    int k = 0;
    for (int i = 0; i < count; i++)
        n += data[i].iov_len;
    if (c->told || c->swallow || c->broken || c->answer == ANSWER_NO_BODY || !n)
        return true;

    char size[24], *end = size + sizeof size;
    if (c->answer == ANSWER_LENGTH) {
        if (n > c->answer_left) {
            c->broken = true; /* more than was promised: nothing of it is sent, the answer cannot be saved */
            conn_touch(c);
            return true;
        }
        c->answer_left -= n;
    } else if (c->answer == ANSWER_CHUNKED) {
        memcpy(end - 2, "\r\n", 2);
        char *start = http_format_number(end - 2, n, 16);
        iov[k++] = (struct iovec){start, (size_t)(end - start)};
    }
    for (int i = 0; i < count; i++)
        iov[k++] = data[i];
    if (c->answer == ANSWER_CHUNKED)
        iov[k++] = (struct iovec){(void *)"\r\n", 2};

    /* the last piece goes out with what waits, without being copied */
    bool complete = c->answer == ANSWER_LENGTH && !c->answer_left;
    int r = !complete && outq_len(&c->out) + n < HTTP_SEND_NOW ? outq_put(&c->out, iov, k)
                                                               : outq_send(&c->out, c->source.fd, iov, k);
    if (r < 0)
        c->broken = true;
    conn_touch(c);
    if (r == 0 && outq_len(&c->out) > c->server->config.limits.send_high) {
        c->drain_wanted = true;
        return false;
    }
    return true;
}

bool http_response_write(struct http_request *req, const void *data, size_t n)
{
    struct iovec iov = {(void *)data, n};
    return write_pieces(conn_of(req), &iov, 1);
}

size_t http_response_queued(const struct http_request *req)
{
    uint64_t n = outq_len(&conn_of(req)->out);
    return n < SIZE_MAX ? (size_t)n : SIZE_MAX;
}

bool http_response_begun(const struct http_request *req)
{
    return conn_of(req)->answer != ANSWER_NONE;
}

void http_response_bare(struct http_request *req)
{
    conn_of(req)->bare = true;
}

void http_response_close_after(struct http_request *req)
{
    conn_of(req)->close_after = true;
}

void http_response_sendfile(struct http_request *req, int fd, uint64_t offset, uint64_t n)
{
    auto_close int file = fd;
    struct conn *c = conn_of(req);
    int r = 0;

    c->drain_wanted = true;
    conn_touch(c);
    if (c->told || c->swallow || c->broken || c->answer == ANSWER_NO_BODY || !n)
        return;
    if (c->answer == ANSWER_NONE || c->out.file_fd >= 0 ||
        (c->answer == ANSWER_LENGTH && n > c->answer_left)) {
        c->broken = true;
        return;
    }
    if (c->answer == ANSWER_LENGTH)
        c->answer_left -= n;
    if (c->answer == ANSWER_CHUNKED) {
        char size[24], *end = size + sizeof size;
        memcpy(end - 2, "\r\n", 2);
        char *start = http_format_number(end - 2, n, 16);
        struct iovec iov = {start, (size_t)(end - start)};
        r = outq_put(&c->out, &iov, 1);
    }
    if (r == 0)
        r = outq_put_file(&c->out, take_fd(file), offset, n);
    if (r == 0 && c->answer == ANSWER_CHUNKED) {
        struct iovec iov = {(void *)"\r\n", 2};
        r = outq_put(&c->out, &iov, 1);
    }
    if (r < 0)
        c->broken = true;
}

void http_response_end(struct http_request *req)
{
    struct conn *c = conn_of(req);
    if (c->told) {
        c->active = false;
        return;
    }
    if (c->answer == ANSWER_NONE) {
        static const char text[] = "no response\n";
        http_respond(req, 500, "text/plain", text, sizeof text - 1);
        return;
    }
    if (c->broken || (c->answer == ANSWER_LENGTH && c->answer_left)) {
        http_response_abort(req);
        return;
    }
    struct iovec iov = {(void *)"0\r\n\r\n", c->answer == ANSWER_CHUNKED ? 5 : 0};
    if (outq_send(&c->out, c->source.fd, &iov, 1) < 0)
        c->broken = true;
    conn_request_over(c);
}

void http_response_abort(struct http_request *req)
{
    struct conn *c = conn_of(req);
    c->active = false;
    /* an answer that ends with the connection would look complete: a reset tells the truth */
    if (c->answer == ANSWER_CLOSE)
        (void)setsockopt(c->source.fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1},
                         sizeof(struct linger));
    conn_close(c);
}

/* ------------------------------------------------------------------ server-sent events */

void sse_begin(struct http_request *req)
{
    static const struct http_header headers[] = {
        {"Content-Type", "text/event-stream"},
        {"Cache-Control", "no-cache"},
        {"Connection", "keep-alive"},
    };
    http_response_begin(req, 200, headers, ARRAY_SIZE(headers), -1);
}

static bool has_newline(const char *s, size_t n)
{
    return n && (memchr(s, '\n', n) || memchr(s, '\r', n));
}

bool sse_event(struct http_request *req, const char *id, const char *json, size_t n)
{
    struct conn *c = conn_of(req);
    auto_free char *flat = NULL;
    char prefix[128] = "data: ";

    /* line ends would end the event; in JSON they can only be blanks between tokens */
    if (has_newline(json, n)) {
        flat = malloc(n);
        if (!flat) {
            c->broken = true;
            conn_touch(c);
            return true;
        }
        for (size_t i = 0; i < n; i++)
            flat[i] = json[i] == '\n' || json[i] == '\r' ? ' ' : json[i];
        json = flat;
    }
    if (id && strlen(id) < 100 && !has_newline(id, strlen(id)))
        (void)snprintf(prefix, sizeof prefix, "id: %s\ndata: ", id);
    struct iovec iov[3] = {{prefix, strlen(prefix)}, {(void *)json, n}, {(void *)"\n\n", 2}};
    return write_pieces(c, iov, 3);
}
