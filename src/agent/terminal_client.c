/* SPDX-License-Identifier: Apache-2.0 */
/* terminal_client.c: one client of a terminal: binary frames are keys and output, text frames control. */
#include "agent/terminal.h"
#include "agent/websockets.h"
#include "base/json.h"

#include <string.h>

enum { SIZE_MAX_CELLS = 65535, DEFAULT_COLS = 80, DEFAULT_ROWS = 24 };

static void send_text(struct terminal_client *c, const char *type, const char *message, const int *code)
{
    struct buf out = BUF_INIT(8192);
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_string(&w, "type", type);
    if (message)
        json_member_string(&w, "message", message);
    if (code)
        json_member_int(&w, "code", *code);
    json_object_end(&w);
    if (w.err == 0)
        (void)ws_send(c->ws, WS_TEXT, buf_data(&out), buf_len(&out));
    buf_done(&out);
}

/* ------------------------------------------------------------------ the end */

void client_free(struct terminal_client *c)
{
    list_remove(&c->link);
    c->terminal->client_count--;
    free(c);
}

void client_drop(struct terminal_client *c, int code, const char *why)
{
    ws_close(c->ws, code, why);
    client_free(c);
}

void client_refuse(struct terminal_client *c, const char *why)
{
    send_text(c, "error", why, NULL);
    client_drop(c, WS_CODE_INTERNAL, why);
}

static void on_closed(struct ws *ws, int code, const char *reason)
{
    struct terminal_client *c = ws_user(ws);
    struct terminal *t = c->terminal;
    (void)code;
    (void)reason;
    client_free(c);
    terminal_settle(t);
}

/* ------------------------------------------------------------------ output */

static bool send_output(struct terminal_client *c, size_t max)
{
    const struct terminal *t = c->terminal;
    size_t n = (size_t)MIN(t->end - c->sent, (uint64_t)max);
    char *copy = n ? malloc(n) : NULL;
    if (!copy)
        return false;
    terminal_copy(t, c->sent, copy, n);
    c->sent += n;
    bool room = ws_send(c->ws, WS_BINARY, copy, n);
    free(copy);
    return room;
}

void client_ready(struct terminal_client *c)
{
    c->sent = c->terminal->begin;
    c->ready = true;
    (void)send_output(c, TERMINAL_REPLAY); /* in one frame */
    send_text(c, "ready", NULL, NULL);
}

void client_pump(struct terminal_client *c)
{
    const struct terminal *t = c->terminal;
    if (!c->ready)
        return;
    if (ws_has_room(c->ws))
        while (send_output(c, TERMINAL_PIECE))
            ;
    if (t->state == TERMINAL_ENDED && c->sent == t->end) {
        send_text(c, "exit", NULL, &t->code);
        client_drop(c, WS_CODE_NORMAL, "");
    }
}

static void on_drain(struct ws *ws)
{
    struct terminal_client *c = ws_user(ws);
    struct terminal *t = c->terminal;
    client_pump(c);
    terminal_settle(t);
}

/* ------------------------------------------------------------------ input */

static void control(struct terminal_client *c, char *data, size_t n)
{
    struct error e;
    double cols, rows;
    auto_json struct json_doc *doc = NULL;
    struct terminal *t = c->terminal;
    if (json_parse(data, n, JSON_ALLOW_NUL, &doc, &e) < 0) {
        send_text(c, "error", "Invalid control message", NULL);
        return;
    }
    const struct json_value *message = json_root(doc);
    const char *type = json_string(json_get(message, "type"), NULL);
    if (!type || strcmp(type, "resize") != 0)
        return;
    if (!json_number(json_get(message, "cols"), &cols) || !json_number(json_get(message, "rows"), &rows) ||
        cols < 1 || rows < 1)
        send_text(c, "error", "Invalid dimensions: cols and rows must be positive", NULL);
    else if (t->state == TERMINAL_ENDED)
        send_text(c, "error", "Invalid control message", NULL);
    else
        terminal_resize(t, (uint16_t)MIN(cols, (double)SIZE_MAX_CELLS),
                        (uint16_t)MIN(rows, (double)SIZE_MAX_CELLS));
}

static void on_message(struct ws *ws, bool text, char *data, size_t n)
{
    struct terminal_client *c = ws_user(ws);
    struct terminal *t = c->terminal;
    if (text)
        control(c, data, n);
    else if (!terminal_input(t, data, n))
        client_drop(c, WS_CODE_TOO_LARGE, "Too much input waits for the terminal");
    terminal_settle(t);
}

/* ------------------------------------------------------------------ the beginning */

static const struct ws_ops client_ops = {.message = on_message, .drain = on_drain, .closed = on_closed};

static uint16_t query_size(const struct http_request *req, const char *name, uint16_t fallback)
{
    char text[16], *end;
    if (!http_query_get(req->query, name, text, sizeof text) || text[0] < '0' || text[0] > '9')
        return fallback;
    unsigned long n = strtoul(text, &end, 10);
    return *end || !n ? fallback : (uint16_t)MIN(n, (unsigned long)SIZE_MAX_CELLS);
}

static void attach(struct terminal *t, struct terminal_client *c)
{
    c->terminal = t;
    list_append(&t->clients, &c->link);
    t->client_count++;
    if (t->input_full)
        ws_pause(c->ws);
    if (t->state == TERMINAL_RUNNING)
        client_ready(c);
}

void terminal_accept(struct agent *a, struct http_request *req)
{
    static const char no_id[] = "sessionId query parameter required";
    char session[1024], shell[1024];
    if (!http_query_get(req->query, "sessionId", session, sizeof session) || !session[0]) {
        http_respond(req, 400, "text/plain;charset=utf-8", no_id, sizeof no_id - 1);
        return;
    }
    if (!http_query_get(req->query, "shell", shell, sizeof shell) || !shell[0])
        memcpy(shell, "bash", sizeof "bash");
    uint16_t cols = query_size(req, "cols", DEFAULT_COLS), rows = query_size(req, "rows", DEFAULT_ROWS);
    struct terminal *t = terminal_find(a, session);
    struct terminal_client *c = t && t->client_count == TERMINAL_CLIENTS_MAX ? NULL : calloc(1, sizeof *c);
    if (!c) {
        http_respond(req, 503, "text/plain", "WebSocket upgrade failed", 24);
        return;
    }
    list_init(&c->link);
    struct ws_config config = {.loop = a->loop,
                               .group = &a->sockets,
                               .ops = &client_ops,
                               .user = c,
                               .role = WS_SERVER,
                               .message_max = TERMINAL_MESSAGE_MAX};
    if (ws_accept(&config, req, &c->ws) < 0) {
        free(c);
        return;
    }
    bool fresh = !t;
    if (fresh && !(t = terminal_new(a, session))) {
        send_text(c, "error", "There are too many terminals", NULL);
        ws_close(c->ws, WS_CODE_INTERNAL, "There are too many terminals");
        free(c);
        return;
    }
    attach(t, c);
    if (fresh) {
        t->cols = cols;
        t->rows = rows;
        terminal_start(t, shell);
    } else {
        terminal_settle(t);
    }
}
