/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_entry.c: what the peer may name by a number, from its message to its last release.
 *
 * A value is told once, when it is there and the peer has pulled it, and kept until it is released: the peer
 * may have sent calls that use it before it heard the answer. */
#include "agent/rpc_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void rpc_table_init(struct rpc_table *t)
{
    for (size_t i = 0; i < RPC_BUCKETS; i++)
        list_init(&t->buckets[i]);
    t->count = 0;
}

void rpc_table_add(struct rpc_table *t, struct rpc_node *n, int64_t id)
{
    n->id = id;
    list_append(&t->buckets[(uint64_t)id % RPC_BUCKETS], &n->link);
    t->count++;
}

void rpc_table_remove(struct rpc_table *t, struct rpc_node *n)
{
    if (list_empty(&n->link))
        return;
    list_remove(&n->link);
    t->count--;
}

struct rpc_node *rpc_table_find(const struct rpc_table *t, int64_t id)
{
    const struct list *bucket = &t->buckets[(uint64_t)id % RPC_BUCKETS];
    for (struct list *i = bucket->next; i != bucket; i = i->next)
        if (list_entry(i, struct rpc_node, link)->id == id)
            return list_entry(i, struct rpc_node, link);
    return NULL;
}

/* ------------------------------------------------------------------ life */

struct rpc_entry *rpc_entry_new(struct rpc *r, enum rpc_entry_kind kind, int64_t id)
{
    struct rpc_entry *e = r->in.count < RPC_ENTRIES_MAX ? calloc(1, sizeof *e) : NULL;
    if (!e)
        return NULL;
    e->rpc = r;
    e->kind = kind;
    e->refs = 1;
    list_init(&e->ready);
    rpc_table_add(&r->in, &e->node, id);
    if (kind == RPC_ENTRY_PIPE && !(e->inlet = rpc_inlet_new(e))) {
        rpc_entry_forget(e);
        return NULL;
    }
    return e;
}

struct rpc_entry *rpc_entry_find(struct rpc *r, int64_t id)
{
    struct rpc_node *n = rpc_table_find(&r->in, id);
    return n ? container_of(n, struct rpc_entry, node) : NULL;
}

static void free_unused(struct rpc_entry *e)
{
    if (e->refs || e->holds)
        return;
    rpc_unkeep(e->rpc, e->held);
    rpc_inlet_free(e->inlet);
    buf_done(&e->value);
    free(e);
}

void rpc_entry_hold(struct rpc_entry *e)
{
    e->holds++;
}

void rpc_entry_drop(struct rpc_entry *e)
{
    struct rpc_call *c = NULL;
    if (!e)
        return;
    e->holds--;
    if (!e->refs && e->holds == 1 && e->call) { /* only the call is left, and nobody to tell */
        c = take_ptr(e->call);
        c->entry = NULL;
        e->holds--;
    }
    free_unused(e);
    if (c)
        rpc_call_released(c);
}

void rpc_entry_forget(struct rpc_entry *e)
{
    rpc_table_remove(&e->rpc->in, &e->node);
    list_remove(&e->ready);
    e->refs = 0;
    e->holds++; /* until we are done with it */
    if (e->inlet)
        rpc_inlet_lost(e->inlet);
    rpc_entry_drop(e);
}

void rpc_entries_free(struct rpc *r)
{
    for (size_t i = 0; i < RPC_BUCKETS; i++)
        while (!list_empty(&r->in.buckets[i]))
            rpc_entry_forget(
                container_of(list_first(&r->in.buckets[i], struct rpc_node, link), struct rpc_entry, node));
}

/* ------------------------------------------------------------------ telling */

/* What the peer has read of the API gets a number when it hears of it, so that it can give it back. */
static void value_of_target(struct rpc_entry *e)
{
    struct rpc *r = e->rpc;
    struct rpc_entry *t = rpc_entry_new(r, RPC_ENTRY_TARGET, r->next_export);
    if (!t) {
        e->state = RPC_REJECTED;
        (void)rpc_put_error(&e->value, "Error", "too much of the API is in use", NULL);
        return;
    }
    t->target = e->target;
    (void)buf_printf(&e->value, "[\"export\",%lld]", (long long)r->next_export--);
}

static int put_value(const struct rpc_entry *e, const struct rpc_call *c, struct buf *out)
{
    const char *value = buf_data(&e->value);
    size_t n = buf_len(&e->value);
    if (!e->hole)
        return buf_append(out, value, n);
    int r = buf_append(out, value, e->hole);
    if (r == 0)
        r = buf_printf(out, "%lld", (long long)c->pipe_id);
    return r < 0 ? r : buf_append(out, value + e->hole + 1, n - e->hole - 1);
}

static void tell(struct rpc_entry *e)
{
    struct rpc *r = e->rpc;
    struct rpc_call *c = NULL;
    if (r->blocked) {
        if (list_empty(&e->ready))
            list_append(&r->ready, &e->ready);
        return;
    }
    list_remove(&e->ready);
    e->told = true;
    if (e->target && e->state == RPC_RESOLVED && !buf_len(&e->value))
        value_of_target(e);
    if (e->hole && e->call) { /* the stream lives on without the entry */
        c = take_ptr(e->call);
        c->entry = NULL;
        e->holds--;
        c->pipe_id = r->next_out++;
        (void)rpc_send(r, "[\"pipe\"]", 8);
    }
    struct buf out = BUF_INIT(buf_len(&e->value) + RPC_FRAME);
    int err = buf_printf(&out, "[\"%s\",%lld,", e->state == RPC_RESOLVED ? "resolve" : "reject",
                         (long long)e->node.id);
    if (err == 0)
        err = put_value(e, c, &out);
    if (err == 0)
        err = buf_putc(&out, ']');
    if (err < 0)
        rpc_send_failed(r);
    else
        (void)rpc_send_buf(r, &out);
    buf_done(&out);
    if (c)
        rpc_outlet_start(c);
    if (e->once)
        rpc_entry_forget(e);
}

void rpc_entry_settle(struct rpc_entry *e, enum rpc_state state, struct buf *value)
{
    struct rpc *r = e->rpc;
    e->state = state;
    if (value) {
        e->value = *value;
        *value = BUF_INIT(0);
        e->held = buf_len(&e->value);
        rpc_keep(r, e->held);
    } else {
        e->value = BUF_INIT(RPC_FRAME);
    }
    if (!list_empty(&r->waiting))
        loop_defer(r->agent->loop, &r->turn, rpc_turn);
    if (e->pulled && e->refs)
        tell(e);
}

void rpc_entry_resolve_text(struct rpc_entry *e, const char *expr)
{
    struct buf value = BUF_INIT(RPC_FRAME);
    if (buf_puts(&value, expr) < 0)
        rpc_send_failed(e->rpc);
    rpc_entry_settle(e, RPC_RESOLVED, &value);
}

void rpc_entry_fail(struct rpc_entry *e, const char *name, const char *code, const char *fmt, ...)
{
    struct buf value = BUF_INIT(RPC_FRAME);
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (rpc_put_error(&value, name, text, code) < 0)
        rpc_send_failed(e->rpc);
    rpc_entry_settle(e, RPC_REJECTED, &value);
}

void rpc_entry_pull(struct rpc_entry *e)
{
    if (e->pulled)
        return;
    e->pulled = true;
    if (e->kind != RPC_ENTRY_CALL) {
        e->value = BUF_INIT(RPC_FRAME);
        e->state = RPC_REJECTED;
        (void)rpc_put_error(&e->value, "Error", "this is no promise: there is nothing to pull", NULL);
        tell(e);
    } else if (e->state != RPC_PENDING) {
        tell(e);
    }
}

void rpc_entries_flush(struct rpc *r)
{
    while (!r->blocked && !list_empty(&r->ready))
        tell(list_first(&r->ready, struct rpc_entry, ready));
}
