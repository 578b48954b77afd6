/* SPDX-License-Identifier: Apache-2.0 */
/* terminal.c: silica_terminal: a terminal of a sandbox on the caller's own descriptors, over a WebSocket.
 *
 * What the caller's input brings goes out as binary frames, no faster than the server takes it; what comes
 * back is written as it is. The shell's end arrives as a message with its exit code. The end of the input is
 * passed on as Ctrl-D, which is what the end of typing looks like on a terminal. */
#include "client/client_internal.h"
#include "net/websocket.h"
#include "net/write_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { PIECE_BYTES = 16 * 1024, MESSAGE_MAX = 4 << 20 };

struct terminal {
    struct silica_client *client;
    const struct silica_terminal_options *options;
    struct ws_group group;
    struct ws *ws;
    struct source input, resize;
    struct buf answer; /* the body of a refusal */
    int status;        /* of the handshake */
    char accept[WS_ACCEPT_SIZE];
    bool accepted, ended, closed, input_over;
    int err; /* of the handshake, then of our own descriptors */
    int exit_code;
    int close_code;
    char message[256]; /* an error of the server's */
};

/* ------------------------------------------------------------------ the handshake */

static void on_head(struct http_client *hc, int status, const struct http_header *headers, size_t count,
                    int64_t content_length)
{
    struct terminal *t = http_client_user(hc);
    const char *accept = http_header_find(headers, count, "Sec-WebSocket-Accept");
    (void)content_length;
    t->status = status;
    t->accepted = status == 101 && accept && strcmp(accept, t->accept) == 0;
}

static void on_data(struct http_client *hc, const char *data, size_t n)
{
    struct terminal *t = http_client_user(hc);
    (void)buf_append(&t->answer, data, n); /* a sentence that does not fit is cut */
}

static void on_end(struct http_client *hc, int err)
{
    struct terminal *t = http_client_user(hc);
    t->err = err;
    loop_stop(t->client->loop);
}

static const struct http_client_ops handshake_ops = {
    .on_head = on_head, .on_data = on_data, .on_end = on_end};

static int put_encoded(struct buf *out, const char *text)
{
    int r = 0;
    for (const char *p = text; r == 0 && *p; p++)
        r = strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~", *p)
                ? buf_putc(out, *p)
                : buf_printf(out, "%%%02X", (unsigned char)*p);
    return r;
}

static int put_target(const struct terminal *t, const char *id, struct buf *out)
{
    const struct silica_terminal_options *o = t->options;
    int cols = 80, rows = 24;
    o->size(&cols, &rows, o->user);
    int r = buf_puts(out, t->client->url.base);
    if (r == 0)
        r = client_sandbox_path(out, id, "/ws/pty?sessionId=");
    if (r == 0)
        r = put_encoded(out, o->session ? o->session : "default");
    if (r == 0)
        r = buf_printf(out, "&cols=%d&rows=%d", cols, rows);
    if (r == 0 && o->shell && (r = buf_puts(out, "&shell=")) == 0)
        r = put_encoded(out, o->shell);
    return r == 0 && !buf_cstr(out) ? -ENOMEM : r;
}

static int shake_hands(struct terminal *t, const char *id, struct silica_error *reterr)
{
    struct silica_client *c = t->client;
    char key[WS_KEY_SIZE];
    struct buf target = BUF_INIT(16 * 1024);
    int r = ws_make_key(key);
    if (r == 0)
        r = put_target(t, id, &target);
    if (r < 0) {
        buf_done(&target);
        return client_fail(reterr, SILICA_ERROR_ARGUMENT, -r, "the terminal cannot be asked for: %s",
                           strerror(-r));
    }
    ws_accept_of(key, t->accept);
    r = transport_connect(c, reterr);
    if (r == 0) {
        const struct http_header headers[] = {
            {"Host", c->url.authority},      {"Upgrade", "websocket"},   {"Connection", "Upgrade"},
            {"Sec-WebSocket-Version", "13"}, {"Sec-WebSocket-Key", key}, {"Authorization", c->authorization},
        };
        http_client_set_user(c->conn, t);
        r = http_client_send(c->conn, "GET", buf_data(&target), headers,
                             ARRAY_SIZE(headers) - (c->authorization ? 0 : 1), 0, &handshake_ops);
        if (r == 0)
            r = loop_run(c->loop);
        if (r == 0)
            r = t->err;
        if (r < 0)
            (void)client_fail(reterr, SILICA_ERROR_BROKEN, -r, "the server at %s closed the connection",
                              c->url.text);
    }
    buf_done(&target);
    if (r == 0 && t->status >= 400)
        r = client_fail_answer(reterr, t->status, buf_len(&t->answer) ? buf_data(&t->answer) : "",
                               buf_len(&t->answer));
    else if (r == 0 && !t->accepted)
        r = client_fail(reterr, SILICA_ERROR_PROTOCOL, EBADMSG, "what answers at %s does not speak WebSocket",
                        c->url.text);
    return r;
}

/* ------------------------------------------------------------------ frames */

static void stop(struct terminal *t, int err)
{
    if (err < 0 && !t->err)
        t->err = err;
    loop_stop(t->client->loop);
}

static void send_size(struct terminal *t)
{
    char text[96];
    int cols, rows;
    if (!t->options->size(&cols, &rows, t->options->user))
        return;
    int n = snprintf(text, sizeof text, "{\"type\":\"resize\",\"cols\":%d,\"rows\":%d}", cols, rows);
    (void)ws_send(t->ws, WS_TEXT, text, (size_t)n);
}

static void control(struct terminal *t, char *data, size_t n)
{
    struct error e;
    int64_t code = 0;
    auto_json struct json_doc *doc = NULL;
    if (json_parse(data, n, JSON_ALLOW_NUL, &doc, &e) < 0)
        return;
    const struct json_value *m = json_root(doc);
    const char *type = json_string(json_get(m, "type"), NULL),
               *text = json_string(json_get(m, "message"), NULL);
    if (!type)
        return;
    if (strcmp(type, "ready") == 0) {
        send_size(t); /* a terminal that was there before has the size of its last client */
    } else if (strcmp(type, "exit") == 0) {
        t->ended = true;
        (void)json_integer(json_get(m, "code"), 0, 255, &code);
        t->exit_code = (int)code;
    } else if (strcmp(type, "error") == 0 && text) {
        (void)snprintf(t->message, sizeof t->message, "%s", text);
    }
}

static void on_message(struct ws *w, bool text, char *data, size_t n)
{
    struct terminal *t = ws_user(w);
    if (text) {
        control(t, data, n);
        return;
    }
    int r = write_all(t->options->output_fd, data, n);
    if (r < 0)
        stop(t, r);
}

static void on_closed(struct ws *w, int code, const char *reason)
{
    struct terminal *t = ws_user(w);
    (void)reason;
    t->closed = true;
    t->close_code = code;
    stop(t, 0);
}

static void input_ready(struct source *s, uint32_t events)
{
    struct terminal *t = container_of(s, struct terminal, input);
    char piece[PIECE_BYTES];
    (void)events;
    ssize_t n = read(s->fd, piece, sizeof piece);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        t->input_over = true;
        loop_del(t->client->loop, s);
        (void)ws_send(t->ws, WS_BINARY, "\x04", 1);
    } else if (!ws_send(t->ws, WS_BINARY, piece, (size_t)n)) {
        loop_del(t->client->loop, s); /* until the server has taken it */
    }
}

static void on_drain(struct ws *w)
{
    struct terminal *t = ws_user(w);
    if (!t->input_over && t->input.fd < 0)
        (void)loop_add(t->client->loop, &t->input, t->options->input_fd, EPOLLIN, input_ready);
}

static void resize_ready(struct source *s, uint32_t events)
{
    struct terminal *t = container_of(s, struct terminal, resize);
    char ignored[1024];
    (void)events;
    if (read(s->fd, ignored, sizeof ignored) <= 0)
        loop_del(t->client->loop, s);
    send_size(t);
}

static const struct ws_ops ops = {.message = on_message, .drain = on_drain, .closed = on_closed};

static int join(struct terminal *t, struct silica_error *reterr)
{
    struct silica_client *c = t->client;
    struct ws_config config = {.loop = c->loop,
                               .group = &t->group,
                               .ops = &ops,
                               .user = t,
                               .role = WS_CLIENT,
                               .message_max = MESSAGE_MAX};
    struct buf rest = BUF_INIT(MESSAGE_MAX);
    int fd = http_client_take_fd(c->conn, &rest);
    int r = fd;
    if (fd >= 0) {
        c->conn = NULL;
        r = ws_new(&config, fd, &rest, &t->ws);
    }
    buf_done(&rest);
    if (r < 0)
        return client_fail(reterr, SILICA_ERROR_SYSTEM, -r, "the terminal cannot be used: %s", strerror(-r));
    r = loop_add(c->loop, &t->input, t->options->input_fd, EPOLLIN, input_ready);
    if (r < 0)
        return client_fail(reterr, SILICA_ERROR_ARGUMENT, -r,
                           "the input of a terminal must be a terminal, a pipe or a socket");
    if (t->options->resize_fd >= 0)
        (void)loop_add(c->loop, &t->resize, t->options->resize_fd, EPOLLIN, resize_ready);
    return 0;
}

int silica_terminal(struct silica_client *c, const char *id, const struct silica_terminal_options *options,
                    int *ret_exit_code, struct silica_error *reterr)
{
    struct terminal t = {.client = c,
                         .options = options,
                         .answer = BUF_INIT(64 * 1024),
                         .input = {.fd = -1},
                         .resize = {.fd = -1}};
    int r = shake_hands(&t, id, reterr);
    if (r == 0)
        r = join(&t, reterr);
    if (r == 0 && (r = loop_run(c->loop)) < 0)
        (void)client_fail(reterr, SILICA_ERROR_SYSTEM, -r, "waiting for the server: %s", strerror(-r));
    loop_del(c->loop, &t.input);
    loop_del(c->loop, &t.resize);
    ws_group_free(&t.group);
    transport_disconnect(c);
    buf_done(&t.answer);
    if (r < 0)
        return r;
    if (t.err < 0)
        return client_fail(reterr, SILICA_ERROR_STOPPED, -t.err, "cannot write the output: %s",
                           strerror(-t.err));
    if (t.message[0] && !t.ended)
        return client_fail(reterr, SILICA_ERROR_SERVER, EIO, "%s", t.message);
    if (!t.ended)
        return client_fail(reterr, SILICA_ERROR_BROKEN, ECONNRESET, "the terminal was cut off (code %d)",
                           t.close_code);
    *ret_exit_code = t.exit_code;
    return 0;
}
