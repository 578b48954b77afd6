/* SPDX-License-Identifier: Apache-2.0 */
/* transport.c: one blocking exchange over the event loop hidden in a client.
 *
 * Theory of operation
 * transport_run connects (or takes the connection kept from last time), sends, and runs the loop until the
 * exchange has ended. A kept connection may have been closed by the server meanwhile: pending events are
 * looked at before it is used, and if it still breaks before the first byte of an answer, a request that may
 * be repeated without harm (GET, HEAD, PUT, DELETE) goes out once more on a new connection. A command is
 * never sent twice. Invariant: outside transport_run the user pointer of a kept connection is the client,
 * inside it is the exchange. */
#include "client/client_internal.h"

#include "net/socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

enum { HEADERS_MAX = 32, PIECE_BYTES = 65536 };

struct exchange {
    struct silica_client *client;
    const struct silica_request *request;
    const struct silica_receiver *receiver;
    struct timer timer;
    size_t body_sent;
    bool head_seen;
    bool ended;   /* on_end was called; err is valid */
    bool stopped; /* by the receiver */
    bool upload_over, upload_told;
    bool timed_out;
    int err;
};

/* The connection is thrown away after the loop, not here: we are inside one of its callbacks. */
static void exchange_stop(struct exchange *x, struct http_client *hc)
{
    x->stopped = true;
    http_client_pause(hc);
    loop_stop(x->client->loop);
}

/* What the caller makes while it is sent. An answer that came first ends it: the server has seen enough. */
static void exchange_send_upload(struct exchange *x, struct http_client *hc)
{
    const struct silica_upload *u = x->request->upload;
    char piece[PIECE_BYTES];
    bool room = true;
    while (room && !x->upload_over && !x->head_seen) {
        long n = u->read(piece, sizeof piece, u->user);
        if (n < 0 || (u->bytes >= 0 && (uint64_t)n > (uint64_t)u->bytes - x->body_sent)) {
            exchange_stop(x, hc);
            return;
        }
        x->body_sent += (size_t)n;
        x->upload_over = n == 0;
        if (n > 0)
            room = http_client_write(hc, piece, (size_t)n);
    }
    if (x->upload_over && !x->upload_told) {
        x->upload_told = true;
        http_client_finish(hc);
    }
}

static void exchange_send_body(struct exchange *x, struct http_client *hc)
{
    const struct silica_request *q = x->request;
    bool room = true;
    if (q->upload) {
        exchange_send_upload(x, hc);
        return;
    }
    if (x->body_sent == q->body_bytes)
        return;
    while (room && x->body_sent < q->body_bytes) {
        size_t n = MIN(q->body_bytes - x->body_sent, (size_t)PIECE_BYTES);
        room = http_client_write(hc, (const char *)q->body + x->body_sent, n);
        x->body_sent += n;
    }
    if (x->body_sent == q->body_bytes)
        http_client_finish(hc);
}

static void on_drain(struct http_client *hc)
{
    exchange_send_body(http_client_user(hc), hc);
}

static void on_head(struct http_client *hc, int status, const struct http_header *headers, size_t count,
                    int64_t content_length)
{
    (void)content_length;
    struct exchange *x = http_client_user(hc);
    x->head_seen = true;
    loop_timer_stop(x->client->loop, &x->timer);
    const char *type = http_header_find(headers, count, "Content-Type");
    if (x->receiver->head && x->receiver->head(status, type ? type : "", x->receiver->user) < 0)
        exchange_stop(x, hc);
}

static void on_data(struct http_client *hc, const char *data, size_t n)
{
    struct exchange *x = http_client_user(hc);
    if (!x->stopped && x->receiver->data && x->receiver->data(data, n, x->receiver->user) < 0)
        exchange_stop(x, hc);
}

static void on_end(struct http_client *hc, int err)
{
    struct exchange *x = http_client_user(hc);
    x->ended = true;
    x->err = err;
    http_client_set_user(hc, x->client);
    loop_stop(x->client->loop);
}

static void on_idle_close(struct http_client *hc)
{
    struct silica_client *c = http_client_user(hc);
    http_client_free(hc);
    c->conn = NULL;
}

static const struct http_client_ops exchange_ops = {
    .on_head = on_head,
    .on_data = on_data,
    .on_end = on_end,
    .on_drain = on_drain,
    .on_idle_close = on_idle_close,
};

static void on_timeout(struct timer *t)
{
    struct exchange *x = container_of(t, struct exchange, timer);
    x->timed_out = true;
    loop_stop(x->client->loop);
}

static void drop_connection(struct silica_client *c)
{
    http_client_free(c->conn);
    c->conn = NULL;
}

void transport_disconnect(struct silica_client *c)
{
    drop_connection(c);
}

static int connect_client(struct silica_client *c, struct silica_error *reterr)
{
    auto_close int fd = -1;
    struct error e = {0};
    int r = c->url.socket ? socket_connect_unix(c->url.socket, SOCK_STREAM, &fd, &e)
                          : socket_connect_tcp(c->url.host, c->url.port, c->connect_timeout_ms, &fd, &e);
    if (r == -ECONNREFUSED || r == -ENOENT || r == -EACCES || r == -ETIMEDOUT)
        (void)error_set(&e, -r, "%s", strerror(-r)); /* the URL already says all the rest */
    if (r < 0)
        return client_fail(reterr, SILICA_ERROR_CONNECT, -r, "cannot connect to %s: %s", c->url.text, e.msg);
    r = http_client_new(c->loop, fd, &c->conn, &e);
    if (r < 0)
        return client_fail(reterr, SILICA_ERROR_SYSTEM, -r, "%s", e.msg);
    (void)take_fd(fd); /* the connection's from now on */
    return 0;
}

int transport_connect(struct silica_client *c, struct silica_error *reterr)
{
    drop_connection(c);
    return connect_client(c, reterr);
}

/* Splits "Name: value" into storage. */
static int add_header(struct http_header *headers, size_t *count, const char *line, char *storage,
                      struct silica_error *reterr)
{
    memcpy(storage, line, strlen(line) + 1); /* the caller measured it */
    char *colon = strchr(storage, ':');
    if (!colon || colon == storage || storage[strcspn(storage, "\r\n")])
        return client_fail(reterr, SILICA_ERROR_ARGUMENT, EINVAL,
                           "'%.100s' is not a header; write 'Name: value'", line);
    *colon = '\0';
    const char *value = colon + 1;
    value += strspn(value, " \t");
    headers[(*count)++] = (struct http_header){storage, value};
    return 0;
}

static int send_request(struct silica_client *c, const struct silica_request *q, struct silica_error *reterr)
{
    struct http_header headers[HEADERS_MAX];
    size_t count = 0, given = 0, bytes = 0;
    for (; q->headers && q->headers[given]; given++)
        bytes += strlen(q->headers[given]) + 1;
    if (given > HEADERS_MAX - 4)
        return client_fail(reterr, SILICA_ERROR_ARGUMENT, E2BIG, "more than %d headers", HEADERS_MAX - 4);

    auto_free char *storage = malloc(bytes + 1);
    auto_free char *target = NULL;
    if (asprintf(&target, "%s%s", c->url.base, q->path) < 0)
        target = NULL;
    if (!storage || !target)
        return client_fail_memory(reterr);

    headers[count++] = (struct http_header){"Host", c->url.authority};
    char *p = storage;
    for (size_t i = 0; i < given; i++) {
        int r = add_header(headers, &count, q->headers[i], p, reterr);
        if (r < 0)
            return r;
        p += strlen(q->headers[i]) + 1;
    }
    if (c->authorization && !http_header_find(headers, count, "Authorization"))
        headers[count++] = (struct http_header){"Authorization", c->authorization};
    if (q->body && !http_header_find(headers, count, "Content-Type"))
        headers[count++] = (struct http_header){"Content-Type", "application/json"};
    if (q->upload && !http_header_find(headers, count, "Content-Type"))
        headers[count++] = (struct http_header){"Content-Type", "application/octet-stream"};
    int64_t length = q->upload ? q->upload->bytes : (int64_t)q->body_bytes;
    int r = http_client_send(c->conn, q->method, target, headers, count, length, &exchange_ops);
    return r < 0 ? client_fail(reterr, SILICA_ERROR_ARGUMENT, -r, "the request cannot be sent: %s",
                               strerror(-r))
                 : 0;
}

static int exchange_result(struct exchange *x, int loop_result, struct silica_error *reterr)
{
    const char *url = x->client->url.text;
    if (loop_result < 0)
        return client_fail(reterr, SILICA_ERROR_SYSTEM, -loop_result, "waiting for the server: %s",
                           strerror(-loop_result));
    if (x->stopped)
        return client_fail(reterr, SILICA_ERROR_STOPPED, ECANCELED, "stopped by the caller");
    if (x->timed_out)
        return client_fail(reterr, SILICA_ERROR_BROKEN, ETIMEDOUT,
                           "the server at %s did not answer within %d ms", url, x->client->answer_timeout_ms);
    if (x->err == -EBADMSG || x->err == -E2BIG)
        return client_fail(reterr, SILICA_ERROR_PROTOCOL, -x->err, "what answers at %s does not speak HTTP",
                           url);
    if (x->err < 0)
        return client_fail(reterr, SILICA_ERROR_BROKEN, -x->err,
                           "the server at %s closed the connection before its answer was complete", url);
    return 0;
}

/* One try. *ret_retry: the connection was old and broke before anything came back. */
static int exchange_run(struct exchange *x, bool *ret_retry, struct silica_error *reterr)
{
    struct silica_client *c = x->client;
    *ret_retry = false;
    if (c->conn)
        (void)loop_step(c->loop, 0); /* a connection closed meanwhile goes away here */
    if (c->conn && !http_client_reusable(c->conn))
        drop_connection(c);
    bool kept = c->conn != NULL;
    int r = kept ? 0 : connect_client(c, reterr);
    if (r < 0)
        return r;

    http_client_set_user(c->conn, x);
    r = send_request(c, x->request, reterr);
    if (r < 0) {
        drop_connection(c);
        return r;
    }
    if (c->answer_timeout_ms)
        loop_timer_start(c->loop, &x->timer, c->answer_timeout_ms, on_timeout);
    exchange_send_body(x, c->conn);
    int loop_result = x->ended ? 0 : loop_run(c->loop);
    loop_timer_stop(c->loop, &x->timer);

    r = exchange_result(x, loop_result, reterr);
    if (r < 0 || (c->conn && !http_client_reusable(c->conn)))
        drop_connection(c);
    *ret_retry = r < 0 && kept && x->ended && !x->head_seen;
    return r;
}

static bool repeatable(const char *method)
{
    static const char *const methods[] = {"GET", "HEAD", "PUT", "DELETE"};
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
        if (strcmp(methods[i], method) == 0)
            return true;
    return false;
}

int transport_run(struct silica_client *c, const struct silica_request *request,
                  const struct silica_receiver *receiver, struct silica_error *reterr)
{
    if (request->path[0] != '/')
        return client_fail(reterr, SILICA_ERROR_ARGUMENT, EINVAL, "the path '%.100s' does not begin with /",
                           request->path);
    bool retry;
    struct exchange x = {.client = c, .request = request, .receiver = receiver};
    int r = exchange_run(&x, &retry, reterr);
    if (r < 0 && retry && repeatable(request->method)) {
        x = (struct exchange){.client = c, .request = request, .receiver = receiver};
        r = exchange_run(&x, &retry, reterr);
    }
    return r;
}
