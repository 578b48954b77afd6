/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_call.c: from the expression of a push to the request that it stands for.
 *
 * A call can begin when there is a place (RPC_RUNNING_MAX) and every value that its expression names is
 * there. One that must wait keeps its expression as text, and holds what it names: the peer may release it
 * meanwhile. References lead only to earlier messages, so no two calls can wait for each other. */
#include "agent/rpc_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { BODY_MAX = AGENT_BODY_MAX + RPC_FRAME, TARGET_MAX = 64 * 1024, NAME_TEXT_MAX = 100 };

/* ------------------------------------------------------------------ the end */

static void drop_needs(struct rpc_call *c)
{
    while (c->need_count) {
        struct rpc_entry *e = c->needs[--c->need_count];
        if (e->inlet && rpc_inlet_is_free(e->inlet)) /* it was for us, and we have no use for it */
            rpc_inlet_refuse(e->inlet, "nobody reads this stream");
        rpc_entry_drop(e);
    }
}

void rpc_call_release_exports(struct rpc_call *c)
{
    for (size_t i = 0; i < c->export_count; i++)
        rpc_send_release(c->rpc, c->exports[i], 1);
    c->export_count = 0;
}

static struct rpc_entry *take_entry(struct rpc_call *c)
{
    struct rpc_entry *e = take_ptr(c->entry);
    if (e)
        e->call = NULL;
    return e;
}

void rpc_call_free(struct rpc_call *c)
{
    struct rpc *r = c->rpc;
    list_remove(&c->link);
    list_for_each(i, &c->sent)
    {
        struct rpc_sent *s = list_entry(i, struct rpc_sent, link);
        list_remove(&s->link);
        s->answered = NULL;
        s->call = NULL;
    }
    if (c->client)
        inner_http_put(&r->inner, c->client);
    rpc_call_release_exports(c);
    rpc_callbacks_free(c->callbacks);
    if (c->pipe)
        rpc_inlet_refuse(c->pipe->inlet, "nobody reads this stream any more");
    rpc_entry_drop(c->pipe);
    drop_needs(c);
    rpc_entry_drop(take_entry(c));
    rpc_call_fed(c);
    if (c->started) {
        r->running--;
        if (!list_empty(&r->waiting) && !r->over)
            loop_defer(r->agent->loop, &r->turn, rpc_turn);
    }
    buf_done(&c->answer);
    free(c->exports);
    free(c->later);
    free(c->path);
    free(c);
}

void rpc_call_settle(struct rpc_call *c, enum rpc_state state, struct buf *value)
{
    struct rpc_entry *e = take_entry(c);
    rpc_call_release_exports(c);
    if (e)
        rpc_entry_settle(e, state, value);
    else if (value)
        buf_done(value);
    rpc_entry_drop(e);
    rpc_call_free(c);
}

static void fail(struct rpc_call *c, const char *name, const char *code, const char *text)
{
    struct buf value = BUF_INIT(RPC_FRAME);
    if (rpc_put_error(&value, name, text, code) < 0)
        rpc_send_failed(c->rpc);
    rpc_call_settle(c, RPC_REJECTED, &value);
}

void rpc_call_fail(struct rpc_call *c, const char *code, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fail(c, "Error", code, text);
}

void rpc_call_released(struct rpc_call *c)
{
    /* commands run on without a listener; a stream which nobody will read is not begun */
    if (c->phase == RPC_STREAMING)
        rpc_call_free(c);
}

void rpc_call_resume(struct rpc_call *c)
{
    if (c->client && c->unacknowledged < RPC_WINDOW && !c->entry && !c->callbacks)
        http_client_resume(c->client);
}

/* ------------------------------------------------------------------ values of others */

static struct rpc_entry *find_need(const struct rpc_call *c, int64_t id)
{
    for (size_t i = 0; i < c->need_count; i++)
        if (c->needs[i]->node.id == id)
            return c->needs[i];
    return NULL;
}

/* Kept for the end of the call; what there is no room for is given back at once. */
static void collect_export(struct rpc_call *c, int64_t id)
{
    int64_t *more = NULL;
    if (c->export_count < RPC_EXPORTS_MAX)
        more = realloc(c->exports, (c->export_count + 1) * sizeof *more);
    if (!more) {
        c->needs_error = c->export_count < RPC_EXPORTS_MAX ? -ENOMEM : -E2BIG;
        rpc_send_release(c->rpc, id, 1);
        return;
    }
    c->exports = more;
    c->exports[c->export_count++] = id;
}

static int collect_need(void *arg, enum rpc_form form, const struct json_value *at)
{
    struct rpc_call *c = arg;
    if (form == RPC_FORM_EXPORT)
        collect_export(c, rpc_id_of(at));
    if (form != RPC_FORM_REFERENCE && form != RPC_FORM_READABLE)
        return 0;
    if (c->reference_count++ == RPC_NEEDS_MAX)
        c->needs_error = -E2BIG; /* also of the same one: each is looked for in its value */
    struct rpc_entry *e = rpc_entry_find(c->rpc, rpc_id_of(at));
    if (e && !c->needs_error && !find_need(c, e->node.id)) {
        rpc_entry_hold(e);
        c->needs[c->need_count++] = e;
    }
    return 0;
}

static bool can_begin(const struct rpc_call *c)
{
    for (size_t i = 0; i < c->need_count; i++)
        if (c->needs[i]->kind == RPC_ENTRY_CALL && c->needs[i]->state == RPC_PENDING)
            return false;
    return rpc_has_place(c->rpc);
}

/* A place in an array: a number, or its digits, which is what a property of a JavaScript proxy looks like. */
static bool parse_index(const struct json_value *part, int64_t *ret)
{
    const char *s = json_string(part, NULL);
    if (!s)
        return json_integer(part, 0, JSON_MAX_VALUES, ret);
    if (!*s || strlen(s) > 9 || strspn(s, "0123456789") != strlen(s))
        return false;
    *ret = strtoll(s, NULL, 10);
    return true;
}

/* The property of a value that the path leads to; NULL: undefined. */
static const struct json_value *follow(const struct json_value *expr, const struct json_value *path)
{
    int64_t index;
    json_for_each (part, path) {
        const char *name = json_string(part, NULL);
        if (rpc_form_of(expr) == RPC_FORM_ARRAY)
            expr = parse_index(part, &index) ? rpc_element(json_first(expr), (size_t)index) : NULL;
        else
            expr = name ? json_get(expr, name) : NULL;
        if (!expr)
            return NULL;
    }
    return expr;
}

/* A copy of the value, parsed; the text must live as long as the document. */
static int parse_value(const struct rpc_entry *e, char **ret_text, struct json_doc **ret)
{
    struct error why;
    size_t n = buf_len(&e->value);
    *ret_text = malloc(n + 1);
    if (!*ret_text)
        return -ENOMEM;
    memcpy(*ret_text, buf_data(&e->value), n);
    return json_parse(*ret_text, n, JSON_ALLOW_NUL, ret, &why);
}

/* The values that are in the arguments. -ECANCELED: one of them is an error. */
static int resolve_argument(void *arg, const struct rpc_reference *ref, struct json_writer *w)
{
    struct rpc_call *c = arg;
    const struct rpc_entry *e = find_need(c, ref->id);
    auto_free char *text = NULL;
    auto_json struct json_doc *doc = NULL;
    if (!e || e->kind != RPC_ENTRY_CALL || e->target)
        return -ENOTSUP;
    if (e->state == RPC_REJECTED)
        return -ECANCELED;
    int r = parse_value(e, &text, &doc);
    if (r < 0)
        return r == -ENOMEM ? r : -ENOTSUP;
    const struct json_value *v = follow(json_root(doc), ref->path);
    if (v)
        return rpc_to_json(v, w, NULL, NULL);
    json_put_null(w);
    return w->err;
}

/* Fails as the value that failed. */
static void fail_like(struct rpc_call *c, const struct rpc_entry *e)
{
    struct buf value = BUF_INIT(buf_len(&e->value));
    if (buf_append(&value, buf_data(&e->value), buf_len(&e->value)) < 0)
        rpc_send_failed(c->rpc);
    rpc_call_settle(c, RPC_REJECTED, &value);
}

static void fail_request(struct rpc_call *c, int err)
{
    if (err == -ECANCELED)
        for (size_t i = 0; i < c->need_count; i++)
            if (c->needs[i]->state == RPC_REJECTED) {
                fail_like(c, c->needs[i]);
                return;
            }
    if (err == -ENOTSUP)
        rpc_call_fail(c, "VALIDATION_FAILED",
                      "An argument of %s is not a plain value (bytes, a stream, an error or a call)",
                      c->method ? c->method->name : "this expression");
    else if (err == -ENOBUFS)
        rpc_call_fail(c, "INTERNAL_ERROR", "The arguments are too large");
    else if (err == -E2BIG)
        rpc_call_fail(c, "VALIDATION_FAILED", "The arguments name too many things");
    else
        rpc_call_fail(c, "INTERNAL_ERROR", "The call cannot be made: %s", strerror(-err));
}

/* ------------------------------------------------------------------ the request */

/* A string argument, also when it is the value of another call; the caller frees *ret. */
static int string_argument(struct rpc_call *c, const struct json_value *args, const char *name, char **ret,
                           size_t *ret_len)
{
    const struct json_value *expr = rpc_argument(c->method, args, name);
    struct buf text = BUF_INIT(BODY_MAX);
    struct json_writer w;
    struct error why;
    auto_json struct json_doc *doc = NULL;
    const char *s = NULL;
    json_writer_init(&w, &text);
    int r = expr ? rpc_to_json(expr, &w, resolve_argument, c) : 0;
    if (r == 0 && expr)
        r = json_parse(buf_data(&text), buf_len(&text), JSON_ALLOW_NUL, &doc, &why);
    if (r == 0 && doc && (s = json_string(json_root(doc), ret_len)) && !(*ret = malloc(*ret_len + 1)))
        r = -ENOMEM;
    if (r == 0 && s)
        memcpy(*ret, s, *ret_len + 1);
    buf_done(&text);
    return r;
}

static bool wants_file(const struct rpc_call *c, const struct json_value *args)
{
    const struct json_value *options = rpc_argument(c->method, args, "{encoding}");
    const char *encoding = json_string(json_get(options, "encoding"), NULL);
    return c->method->answer == RPC_ANSWER_FILE && encoding && strcmp(encoding, "none") == 0;
}

/* The stream that is to be uploaded. */
static bool use_pipe(struct rpc_call *c, const struct json_value *args)
{
    const struct json_value *stream = rpc_argument(c->method, args, "<stream");
    struct rpc_entry *e = rpc_form_of(stream) == RPC_FORM_READABLE ? find_need(c, rpc_id_of(stream)) : NULL;
    if (!e || !e->inlet || !rpc_inlet_is_free(e->inlet)) {
        rpc_call_fail(c, "VALIDATION_FAILED", "%s needs a stream that nobody else reads", c->method->name);
        return false;
    }
    rpc_entry_hold(e);
    c->pipe = e;
    rpc_inlet_use(e->inlet, c);
    return true;
}

static void request(struct rpc_call *c, const struct json_value *args)
{
    struct buf body = BUF_INIT(BODY_MAX), target = BUF_INIT(TARGET_MAX);
    const struct rpc_method *m = c->method;
    size_t n = 0;
    int r = rpc_request_build(m, args, &body, &target, resolve_argument, c);
    c->file = wants_file(c, args);
    bool first_path = c->file || m->answer == RPC_ANSWER_UPLOAD;
    if (r == 0 && first_path)
        r = string_argument(c, args, "path", &c->path, &n);
    if (r == 0 && rpc_argument(m, args, "content")) { /* only its length is wanted */
        auto_free char *content = NULL;
        const struct json_value *expr = rpc_argument(m, args, "content");
        if (rpc_form_of(expr) == RPC_FORM_REFERENCE)
            r = string_argument(c, args, "content", &content, &c->content_len);
        else
            (void)json_string(expr, &c->content_len);
    }
    if (r == 0 && m->answer == RPC_ANSWER_CALLBACKS)
        r = rpc_callbacks_new(c, rpc_argument(m, args, "<callbacks"));
    if (r < 0) {
        fail_request(c, r);
    } else if (m->answer != RPC_ANSWER_UPLOAD || use_pipe(c, args)) {
        drop_needs(c);
        c->phase = first_path ? RPC_RESOLVING : RPC_ASKING;
        rpc_ask(c, first_path ? "POST" : m->verb, first_path ? "/api/resolve" : buf_cstr(&target), &body,
                (int64_t)buf_len(&body));
    }
    buf_done(&body);
    buf_done(&target);
}

/* ------------------------------------------------------------------ the beginning */

static void not_a_function(struct rpc_call *c, const char *prefix, const struct json_value *path)
{
    char text[NAME_TEXT_MAX + 40], name[NAME_TEXT_MAX];
    size_t n = (size_t)snprintf(name, sizeof name, "%s", prefix);
    json_for_each (part, path) {
        const char *s = json_string(part, NULL);
        if (n < sizeof name)
            n += (size_t)snprintf(name + n, sizeof name - n, "%s%s", n ? "." : "", s ? s : "?");
    }
    (void)snprintf(text, sizeof text, "'%s' is not a function.", name);
    fail(c, "TypeError", NULL, text);
}

/* Reading a property of a value. */
static void read_value(struct rpc_call *c, const struct rpc_entry *e, const struct json_value *path)
{
    struct buf value = BUF_INIT(buf_len(&e->value) * 6 + RPC_FRAME);
    auto_free char *text = NULL;
    auto_json struct json_doc *doc = NULL;
    struct json_writer w;
    int r = parse_value(e, &text, &doc);
    const struct json_value *v = r == 0 ? follow(json_root(doc), path) : NULL;
    json_writer_init(&w, &value);
    if (v && rpc_form_of(v) == RPC_FORM_READABLE)
        r = -ENOTSUP;
    else if (v)
        json_put_value(&w, v);
    else
        json_put_raw(&w, "[\"undefined\"]", 13);
    if (r == 0)
        r = w.err;
    if (r == 0) {
        rpc_call_settle(c, RPC_RESOLVED, &value);
        return;
    }
    buf_done(&value);
    fail_request(c, r);
}

/* A plain value was pushed. */
static void take_value(struct rpc_call *c, const struct json_value *expr)
{
    struct buf json = BUF_INIT(BODY_MAX), value = BUF_INIT((size_t)BODY_MAX * 2);
    struct json_writer w;
    json_writer_init(&w, &json);
    int r = rpc_to_json(expr, &w, resolve_argument, c);
    if (r == 0)
        r = rpc_put_json(&value, buf_data(&json), buf_len(&json));
    buf_done(&json);
    if (r == 0) {
        rpc_call_settle(c, RPC_RESOLVED, &value);
        return;
    }
    buf_done(&value);
    fail_request(c, r);
}

static void begin(struct rpc_call *c, const struct json_value *expr)
{
    struct rpc *r = c->rpc;
    list_remove(&c->link);
    list_append(&r->calls, &c->link);
    c->started = true;
    r->running++;
    rpc_call_reserve(c);
    if (c->needs_error) {
        fail_request(c, c->needs_error);
        return;
    }
    if (rpc_form_of(expr) != RPC_FORM_REFERENCE) {
        take_value(c, expr);
        return;
    }
    struct rpc_reference ref = rpc_reference_of(expr);
    const struct rpc_entry *e = find_need(c, ref.id);
    if (e->state == RPC_REJECTED) {
        fail_like(c, e);
    } else if (!e->target && ref.args) {
        not_a_function(c, "", ref.path);
    } else if (!e->target) {
        read_value(c, e, ref.path);
    } else if (!ref.args) {
        const char *part = rpc_part_find(e->target, ref.path);
        if (part) {
            if (c->entry)
                c->entry->target = part;
            rpc_call_settle(c, RPC_RESOLVED, NULL);
        } else {
            struct buf nothing = BUF_INIT(RPC_FRAME);
            (void)buf_puts(&nothing, "[\"undefined\"]");
            rpc_call_settle(c, RPC_RESOLVED, &nothing);
        }
    } else {
        c->method = rpc_method_find(e->target, ref.path);
        if (c->method)
            request(c, ref.args);
        else
            not_a_function(c, e->target, ref.path);
    }
}

/* Keeps the expression; its text belongs to the message. */
static bool keep_expression(struct rpc_call *c, const struct json_value *expr)
{
    struct buf text = BUF_INIT((size_t)BODY_MAX * 2);
    struct json_writer w;
    json_writer_init(&w, &text);
    json_put_value(&w, expr);
    if (w.err == 0 && rpc_hold(c->rpc, buf_len(&text))) {
        c->held += buf_len(&text);
        c->later_len = buf_len(&text);
        if ((c->later = malloc(c->later_len)))
            memcpy(c->later, buf_data(&text), c->later_len);
    }
    buf_done(&text);
    return c->later != NULL;
}

void rpc_evaluate(struct rpc_entry *e, const struct json_value *expr)
{
    struct rpc *r = e->rpc;
    struct rpc_reference ref = rpc_reference_of(expr);
    struct rpc_entry *t = rpc_form_of(expr) == RPC_FORM_REFERENCE ? rpc_entry_find(r, ref.id) : NULL;
    if (t && t->kind == RPC_ENTRY_PIPE) {
        rpc_inlet_call(t->inlet, e, &ref);
        return;
    }
    struct rpc_call *c = calloc(1, sizeof *c);
    if (!c) {
        rpc_send_failed(r);
        return;
    }
    c->rpc = r;
    c->answer = BUF_INIT(RPC_ANSWER_MAX);
    list_init(&c->sent);
    list_init(&c->link);
    list_init(&c->starved);
    rpc_entry_hold(e);
    c->entry = e;
    e->call = c;
    list_append(&r->waiting, &c->link);
    (void)rpc_walk(expr, collect_need, c);
    if (can_begin(c))
        begin(c, expr);
    else if (!keep_expression(c, expr))
        rpc_call_fail(c, "INTERNAL_ERROR", "Too many calls wait");
}

static void begin_later(struct rpc_call *c)
{
    struct error why;
    auto_json struct json_doc *doc = NULL;
    auto_free char *text = take_ptr(c->later);
    if (json_parse(text, c->later_len, JSON_ALLOW_NUL, &doc, &why) < 0)
        rpc_call_fail(c, "INTERNAL_ERROR", "out of memory");
    else
        begin(c, json_root(doc));
}

void rpc_calls_turn(struct rpc *r)
{
    bool more = true;
    while (more && !r->over && rpc_has_place(r)) {
        more = false;
        for (struct list *i = r->waiting.next; i != &r->waiting && !more; i = i->next)
            if (can_begin(list_entry(i, struct rpc_call, link))) {
                begin_later(list_entry(i, struct rpc_call, link)); /* the list may be another one now */
                more = true;
            }
    }
}
