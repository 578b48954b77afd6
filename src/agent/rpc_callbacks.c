/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_callbacks.c: running code for a peer that gave functions for what comes out of it. The next function is
 * called when the one before has answered, so the order is kept; meanwhile the source stops. */
#include "agent/rpc_internal.h"
#include "base/clock.h"

#include <errno.h>
#include <string.h>

enum { FUNCTIONS = 4 };

struct rpc_callbacks {
    struct rpc_call *call;
    int64_t functions[FUNCTIONS]; /* 0: not given */
    struct ws_events events;
    struct list queue; /* struct event */
    bool called;       /* a function has not answered yet */
    bool over, broken;
};

struct event {
    struct list link;
    int64_t function;
    struct buf argument; /* an expression */
};

static const char *const function_names[FUNCTIONS] = {"onStdout", "onStderr", "onResult", "onError"};
static const char *const event_names[FUNCTIONS] = {"stdout", "stderr", "result", "error"};

int rpc_callbacks_new(struct rpc_call *c, const struct json_value *functions)
{
    struct rpc_callbacks *cb = calloc(1, sizeof *cb);
    if (!cb)
        return -ENOMEM;
    cb->call = c;
    for (size_t i = 0; i < FUNCTIONS; i++) {
        const struct json_value *f = json_get(functions, function_names[i]);
        cb->functions[i] = f && rpc_form_of(f) == RPC_FORM_EXPORT ? rpc_id_of(f) : 0;
    }
    ws_events_init(&cb->events);
    list_init(&cb->queue);
    c->callbacks = cb;
    return 0;
}

static void event_free(struct event *e)
{
    list_remove(&e->link);
    buf_done(&e->argument);
    free(e);
}

void rpc_callbacks_free(struct rpc_callbacks *cb)
{
    if (!cb)
        return;
    list_for_each(i, &cb->queue) event_free(list_entry(i, struct event, link));
    ws_events_done(&cb->events);
    free(cb);
}

/* ------------------------------------------------------------------ what is handed over */

static void put_member(struct json_writer *w, const char *key, const struct rpc_member *m, const char *absent)
{
    json_put_key(w, key);
    if (w->err == 0)
        w->err = m ? rpc_put_json(w->out, m->value, m->value_len) : buf_puts(w->out, absent);
    json_put_raw(w, "", 0); /* for the writer a value has been put */
}

static void put_output(struct json_writer *w, const struct rpc_member *members, size_t count)
{
    const struct rpc_member *stamp = rpc_member_find(members, count, "timestamp");
    put_member(w, "text", rpc_member_find(members, count, "text"), "\"\"");
    json_put_key(w, "timestamp");
    if (stamp && stamp->value[0] != '"')
        json_put_raw(w, stamp->value, stamp->value_len);
    else
        json_put_int(w, clock_wall_ms());
}

static void put_result(struct json_writer *w, const struct rpc_member *members, size_t count)
{
    static const char *const keys[] = {"text",     "html",       "png",  "jpeg",  "svg", "latex",
                                       "markdown", "javascript", "json", "chart", "data"};
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        const struct rpc_member *m = rpc_member_find(members, count, keys[i]);
        if (m)
            put_member(w, keys[i], m, NULL);
    }
}

static void put_error(struct json_writer *w, const struct rpc_member *members, size_t count)
{
    put_member(w, "name", rpc_member_find(members, count, "ename"), "\"Error\"");
    put_member(w, "message", rpc_member_find(members, count, "evalue"), "\"\"");
    put_member(w, "traceback", rpc_member_find(members, count, "traceback"), "[[]]");
}

static int put_argument(struct buf *out, size_t kind, const struct rpc_member *members, size_t count)
{
    static void (*const puts[FUNCTIONS])(struct json_writer * w, const struct rpc_member *members,
                                         size_t count) = {put_output, put_output, put_result, put_error};
    struct json_writer w;
    json_writer_init(&w, out);
    json_object_begin(&w);
    puts[kind](&w, members, count);
    json_object_end(&w);
    return w.err;
}

/* What an interpreter says is passed on by the agent as it is; the peer would end the session when it is no
 * JSON. */
static bool is_json(const char *data, size_t n)
{
    struct error e;
    auto_json struct json_doc *doc = NULL;
    auto_free char *copy = malloc(n + 1);
    if (!copy)
        return false;
    memcpy(copy, data, n);
    return json_parse(copy, n, JSON_ALLOW_NUL, &doc, &e) == 0;
}

static void on_event(struct ws_events *events, const char *name, const char *data, size_t n)
{
    struct rpc_callbacks *cb = container_of(events, struct rpc_callbacks, events);
    struct rpc_member members[32];
    (void)name;
    if (!is_json(data, n)) {
        cb->broken = true;
        return;
    }
    size_t count = rpc_members(data, n, members, ARRAY_SIZE(members));
    const struct rpc_member *type = rpc_member_find(members, count, "type");
    for (size_t i = 0; type && i < FUNCTIONS; i++) {
        size_t len = strlen(event_names[i]);
        if (!cb->functions[i] || type->value_len != len + 2 ||
            memcmp(type->value + 1, event_names[i], len) != 0)
            continue;
        struct event *e = calloc(1, sizeof *e);
        if (!e) {
            cb->broken = true;
            return;
        }
        e->function = cb->functions[i];
        e->argument = BUF_INIT(n * 2 + RPC_FRAME);
        list_append(&cb->queue, &e->link);
        cb->broken |= put_argument(&e->argument, i, members, count) < 0;
    }
}

/* ------------------------------------------------------------------ calling */

static void next(struct rpc_callbacks *cb);

static void answered(struct rpc_sent *s, bool ok, const struct json_value *expr)
{
    struct rpc_call *c = s->call;
    struct rpc_callbacks *cb = c->callbacks;
    rpc_send_release(s->rpc, s->node.id, 1);
    cb->called = false;
    if (ok) {
        next(cb);
        return;
    }
    struct buf value = BUF_INIT(AGENT_BODY_MAX); /* the peer's own error goes back to it */
    struct json_writer w;
    json_writer_init(&w, &value);
    json_put_value(&w, expr);
    if (w.err < 0)
        rpc_send_failed(s->rpc);
    rpc_call_settle(c, RPC_REJECTED, &value);
}

static void call_function(struct rpc_callbacks *cb, struct event *e)
{
    struct rpc *r = cb->call->rpc;
    struct buf out = BUF_INIT(buf_len(&e->argument) + RPC_FRAME);
    int err = buf_printf(&out, "[\"push\",[\"pipeline\",%lld,[],[", (long long)e->function);
    if (err == 0)
        err = buf_append(&out, buf_data(&e->argument), buf_len(&e->argument));
    if (err == 0)
        err = buf_puts(&out, "]]]");
    struct rpc_sent *s = err == 0 ? rpc_sent_new(r, cb->call, answered) : NULL;
    if (s) {
        cb->called = true;
        (void)rpc_send(r, buf_data(&out), buf_len(&out));
        buf_clear(&out);
        (void)buf_printf(&out, "[\"pull\",%lld]", (long long)s->node.id);
        (void)rpc_send(r, buf_data(&out), buf_len(&out));
    } else {
        rpc_send_failed(r);
    }
    buf_done(&out);
    event_free(e);
}

/* Calls the next function, or goes on with the source, or is done. */
static void next(struct rpc_callbacks *cb)
{
    struct rpc_call *c = cb->call;
    if (cb->called)
        return;
    if (!list_empty(&cb->queue)) {
        call_function(cb, list_first(&cb->queue, struct event, link));
    } else if (cb->broken) {
        rpc_call_fail(c, "CODE_EXECUTION_ERROR", "The output of the code broke off");
    } else if (cb->over) {
        struct buf value = BUF_INIT(RPC_FRAME);
        (void)buf_puts(&value, "[\"undefined\"]");
        rpc_call_settle(c, RPC_RESOLVED, &value);
    } else {
        http_client_resume(c->client);
    }
}

void rpc_callbacks_data(struct rpc_call *c, const char *data, size_t n)
{
    struct rpc_callbacks *cb = c->callbacks;
    cb->broken |= !ws_events_feed(&cb->events, data, n, on_event);
    if (cb->broken || !list_empty(&cb->queue)) {
        http_client_pause(c->client);
        next(cb);
    }
}

void rpc_callbacks_end(struct rpc_call *c, int err)
{
    struct rpc_callbacks *cb = c->callbacks;
    inner_http_put(&c->rpc->inner, take_ptr(c->client));
    cb->over = true;
    cb->broken |= err < 0;
    next(cb);
}
