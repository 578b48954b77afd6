/* SPDX-License-Identifier: Apache-2.0 */
/* rpc.c: a connection to /rpc: its messages and its tables.
 *
 * Theory of operation
 * Both sides may call each other (rpc_wire.h). What the peer creates by push, stream and pipe gets the next
 * number of its sequence, on both sides by counting; what somebody hands out inside of a value gets a
 * negative number of its giver. So there are two tables: `in`, what the peer may name (rpc_entry.c), and
 * `out`, our own messages that are to be answered. The peer closes the connection when nothing is left in its
 * tables, and a connection keeps a sandbox awake: whatever was received is released as soon as its call is
 * over.
 *
 * A call of a method is a request to the agent's own HTTP server (rpc_methods.c, rpc_call.c, inner_http.h),
 * so there is one set of handlers, and whatever holds for a request over HTTP holds here. Its answer is the
 * value of the entry (rpc_answer.c), or a stream of bytes that goes out through a pipe (rpc_stream.c), or a
 * series of calls to functions of the peer's (rpc_callbacks.c). A stream of the peer's is the body of a
 * request (rpc_inlet.c). In both directions at most a window of bytes is under way.
 *
 * Values may be used before they are there: a call waits for the values in its arguments.
 *
 * When the peer does not read, values wait in their entries, streams stop, and nothing more is read from it.
 * What waits is counted (rpc_budget.c).
 * A message that cannot be understood ends the session, because numbers would be counted wrongly behind it.
 */
#include "agent/rpc_internal.h"
#include "base/utf8.h"
#include "net/websocket.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CODE_OVER = 3000, ABORT_TEXT_MAX = 512 };

/* ------------------------------------------------------------------ sending */

bool rpc_send(struct rpc *r, const char *text, size_t n)
{
    if (!r->over && !ws_send(r->ws, WS_TEXT, text, n) && !r->blocked) {
        r->blocked = true;
        ws_pause(r->ws); /* who does not read answers may not ask for more */
    }
    return !r->blocked;
}

bool rpc_send_buf(struct rpc *r, struct buf *out)
{
    bool room = rpc_send(r, buf_data(out), buf_len(out));
    buf_done(out);
    return room;
}

void rpc_send_failed(struct rpc *r)
{
    if (!r->over)
        ws_fail(r->ws, WS_CODE_INTERNAL, "Send failed");
    r->over = true;
}

void rpc_send_release(struct rpc *r, int64_t id, int64_t count)
{
    char text[80];
    int n = snprintf(text, sizeof text, "[\"release\",%lld,%lld]", (long long)id, (long long)count);
    (void)rpc_send(r, text, (size_t)n);
}

void rpc_abort(struct rpc *r, const char *name, const char *fmt, ...)
{
    struct buf out = BUF_INIT(RPC_FRAME);
    char text[ABORT_TEXT_MAX];
    va_list ap;
    if (r->over)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t n = strlen(text);
    while (n && !utf8_valid(text, n)) /* a character may have been cut at the end */
        text[--n] = '\0';
    if (buf_puts(&out, "[\"abort\",") == 0 && rpc_put_error(&out, name, text, NULL) == 0 &&
        buf_putc(&out, ']') == 0)
        (void)rpc_send(r, buf_data(&out), buf_len(&out));
    buf_done(&out);
    ws_fail(r->ws, CODE_OVER, text);
    r->over = true;
}

struct rpc_sent *rpc_sent_new(struct rpc *r, struct rpc_call *call,
                              void (*answered)(struct rpc_sent *s, bool ok, const struct json_value *expr))
{
    struct rpc_sent *s = calloc(1, sizeof *s);
    if (!s) {
        rpc_send_failed(r);
        return NULL;
    }
    s->rpc = r;
    s->call = call;
    s->answered = answered;
    list_init(&s->link);
    if (call)
        list_append(&call->sent, &s->link);
    rpc_table_add(&r->out, &s->node, r->next_out++);
    return s;
}

static int refuse_thing(void *arg, enum rpc_form form, const struct json_value *at)
{
    struct rpc *r = arg;
    if (form == RPC_FORM_EXPORT)
        rpc_send_release(r, rpc_id_of(at), 1);
    struct rpc_entry *e = form == RPC_FORM_READABLE ? rpc_entry_find(r, rpc_id_of(at)) : NULL;
    if (e && e->inlet && rpc_inlet_is_free(e->inlet))
        rpc_inlet_refuse(e->inlet, "nobody reads this stream");
    return 0;
}

void rpc_refuse_things(struct rpc *r, const struct json_value *expr)
{
    (void)rpc_walk(expr, refuse_thing, r);
}

/* ------------------------------------------------------------------ receiving */

/* Every number must be one of ours. */
static int check_reference(void *arg, enum rpc_form form, const struct json_value *at)
{
    struct rpc *r = arg;
    if (form != RPC_FORM_REFERENCE || rpc_entry_find(r, rpc_id_of(at)))
        return 0;
    rpc_abort(r, "Error", "no such entry on exports table: %lld", (long long)rpc_id_of(at));
    return -ENOENT;
}

static bool check_expression(struct rpc *r, const struct json_value *expr)
{
    int err = rpc_walk(expr, check_reference, r);
    if (err == -EBADMSG)
        rpc_abort(r, "TypeError", "unknown special value in an expression");
    return err == 0;
}

static void on_push(struct rpc *r, const struct json_value *expr, bool once)
{
    if (!check_expression(r, expr))
        return;
    struct rpc_entry *e = rpc_entry_new(r, RPC_ENTRY_CALL, r->next_in++);
    if (!e) {
        rpc_abort(r, "Error", "more than %d results are not released", RPC_ENTRIES_MAX);
        return;
    }
    e->once = e->pulled = once;
    rpc_evaluate(e, expr);
}

static void on_answer(struct rpc *r, const struct rpc_message *m)
{
    struct rpc_node *n = rpc_table_find(&r->out, m->id);
    if (!check_expression(r, m->expr))
        return;
    if (n) {
        struct rpc_sent *s = container_of(n, struct rpc_sent, node);
        rpc_table_remove(&r->out, n);
        list_remove(&s->link);
        if (s->answered)
            s->answered(s, m->kind == RPC_RESOLVE, m->expr);
        free(s);
    }
    rpc_refuse_things(r, m->expr);
}

static void on_release(struct rpc *r, const struct rpc_message *m)
{
    struct rpc_entry *e = rpc_entry_find(r, m->id);
    if (!e) {
        rpc_abort(r, "Error", "no such export ID: %lld", (long long)m->id);
    } else if (m->count > e->refs) {
        rpc_abort(r, "Error", "refcount would go negative: %lld < %lld", (long long)e->refs,
                  (long long)m->count);
    } else {
        e->refs -= m->count;
        if (!e->refs)
            rpc_entry_forget(e);
    }
}

static void on_pull(struct rpc *r, int64_t id)
{
    struct rpc_entry *e = rpc_entry_find(r, id);
    if (e)
        rpc_entry_pull(e);
    else
        rpc_abort(r, "Error", "no such export ID: %lld", (long long)id);
}

static void on_abort(struct rpc *r, const struct json_value *expr)
{
    const char *text = json_string(rpc_element(expr, 2), NULL);
    ws_fail(r->ws, CODE_OVER, text ? text : "");
    r->over = true;
}

static void refuse_message(struct rpc *r, const struct json_value *root)
{
    struct buf text = BUF_INIT(ABORT_TEXT_MAX);
    struct json_writer w;
    json_writer_init(&w, &text);
    json_put_value(&w, root); /* as much of it as there is room for */
    const char *message = buf_cstr(&text);
    rpc_abort(r, "Error", "bad RPC message: %s", message ? message : "");
    buf_done(&text);
}

static void receive(struct rpc *r, const struct json_value *root)
{
    struct rpc_message m;
    if (rpc_message_read(root, &m) < 0) {
        refuse_message(r, root);
        return;
    }
    switch (m.kind) {
    case RPC_PUSH:
    case RPC_STREAM:
        on_push(r, m.expr, m.kind == RPC_STREAM);
        break;
    case RPC_PIPE:
        if (!rpc_entry_new(r, RPC_ENTRY_PIPE, r->next_in++))
            rpc_abort(r, "Error", "more than %d results are not released", RPC_ENTRIES_MAX);
        break;
    case RPC_PULL:
        on_pull(r, m.id);
        break;
    case RPC_RELEASE:
        on_release(r, &m);
        break;
    case RPC_RESOLVE:
    case RPC_REJECT:
        on_answer(r, &m);
        break;
    case RPC_ABORT:
        on_abort(r, m.expr);
        break;
    }
}

/* ------------------------------------------------------------------ life */

static void rpc_clear(struct rpc *r)
{
    list_for_each(i, &r->calls) rpc_call_free(list_entry(i, struct rpc_call, link));
    list_for_each(i, &r->waiting) rpc_call_free(list_entry(i, struct rpc_call, link));
    rpc_entries_free(r);
    for (size_t i = 0; i < RPC_BUCKETS; i++)
        list_for_each(s, &r->out.buckets[i]) free(list_entry(s, struct rpc_sent, node.link));
    rpc_table_init(&r->out);
    inner_http_done(&r->inner);
    loop_undefer(r->agent->loop, &r->turn); /* what has ended may have asked for it */
}

static void on_message(struct ws *ws, bool text, char *data, size_t n)
{
    struct rpc *r = ws_user(ws);
    struct error e;
    auto_json struct json_doc *doc = NULL;
    (void)text; /* binary is read as UTF-8, too */
    int err = json_parse(data, n, JSON_ALLOW_NUL, &doc, &e);
    if (err == -ENOMEM)
        rpc_send_failed(r);
    else if (err < 0)
        rpc_abort(r, "SyntaxError", "%s", e.msg);
    else
        receive(r, json_root(doc));
    if (r->over)
        rpc_clear(r);
}

void rpc_turn(struct deferred *d)
{
    rpc_calls_turn(container_of(d, struct rpc, turn));
}

static void on_drain(struct ws *ws)
{
    struct rpc *r = ws_user(ws);
    r->blocked = false;
    ws_resume(ws);
    rpc_entries_flush(r);
    if (r->blocked)
        return;
    list_for_each(i, &r->calls) rpc_call_resume(list_entry(i, struct rpc_call, link));
}

static void rpc_free(struct rpc *r)
{
    r->over = true; /* nothing of what ends now is to be sent */
    list_remove(&r->link);
    rpc_clear(r);
    free(r);
}

static void on_closed(struct ws *ws, int code, const char *reason)
{
    (void)code;
    (void)reason;
    rpc_free(ws_user(ws));
}

static const struct ws_ops rpc_ops = {.message = on_message, .drain = on_drain, .closed = on_closed};

void rpc_accept(struct agent *a, struct http_request *req)
{
    struct rpc *r = calloc(1, sizeof *r);
    struct rpc_entry *main_object = NULL;
    if (r) {
        r->agent = r->inner.agent = a;
        r->next_in = r->next_out = 1;
        r->next_export = -1;
        rpc_table_init(&r->in);
        rpc_table_init(&r->out);
        list_init(&r->link);
        list_init(&r->calls);
        list_init(&r->waiting);
        list_init(&r->ready);
        main_object = rpc_entry_new(r, RPC_ENTRY_TARGET, 0);
    }
    if (!main_object) {
        free(r);
        http_respond(req, 503, "text/plain", "WebSocket upgrade failed", 24);
        return;
    }
    main_object->target = "";
    struct ws_config config = {.loop = a->loop,
                               .group = &a->sockets,
                               .ops = &rpc_ops,
                               .user = r,
                               .role = WS_SERVER,
                               .message_max = AGENT_BODY_MAX + RPC_FRAME};
    if (ws_accept(&config, req, &r->ws) < 0)
        rpc_free(r);
    else
        list_append(&a->rpcs, &r->link);
}

void rpcs_free(struct agent *a)
{
    list_for_each(i, &a->rpcs) rpc_free(list_entry(i, struct rpc, link));
    rpc_budget_done(a);
}

/* ------------------------------------------------------------------ the client's main object */

static void told_of_tunnel(struct rpc_sent *s, bool ok, const struct json_value *expr)
{
    (void)ok; /* it has nothing to say */
    (void)expr;
    rpc_send_release(s->rpc, s->node.id, 1);
}

void rpc_tunnel_exited(struct agent *a, const char *tunnel_id, int port, int exit_code, const char *run_id)
{
    struct rpc *r = NULL;
    list_for_each(i, &a->rpcs)
    {
        struct rpc *candidate = list_entry(i, struct rpc, link);
        r = candidate->over ? r : candidate;
    }
    struct rpc_sent *s = r ? rpc_sent_new(r, NULL, told_of_tunnel) : NULL;
    if (!s)
        return;
    struct buf out = BUF_INIT(RPC_FRAME);
    struct json_writer w;
    json_writer_init(&w, &out);
    json_array_begin(&w);
    json_put_string(&w, "push");
    json_array_begin(&w);
    json_put_string(&w, "pipeline");
    json_put_int(&w, 0);
    json_array_begin(&w);
    json_put_string(&w, "onTunnelExit");
    json_array_end(&w);
    json_array_begin(&w);
    json_put_string(&w, tunnel_id);
    json_put_int(&w, port);
    json_put_int(&w, exit_code);
    if (run_id)
        json_put_string(&w, run_id);
    json_array_end(&w);
    json_array_end(&w);
    json_array_end(&w);
    if (w.err < 0) {
        rpc_send_failed(r);
    } else {
        (void)rpc_send(r, buf_data(&out), buf_len(&out));
        buf_clear(&out);
        (void)buf_printf(&out, "[\"pull\",%lld]", (long long)s->node.id);
        (void)rpc_send(r, buf_data(&out), buf_len(&out));
    }
    buf_done(&out);
}
