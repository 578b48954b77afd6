/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_inlet.c: a stream from the peer, which becomes the body of a request.
 *
 * Pieces that come before the request can take them wait here, and are acknowledged when it has taken them:
 * the peer sends no more than its window ahead. One that does not care meets RPC_HELD_MAX. */
#include "agent/rpc_internal.h"
#include "base/base64.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct rpc_inlet {
    struct rpc_entry *entry;
    struct rpc_call *call;     /* who reads it; NULL: nobody yet, or nobody any more */
    bool begun;                /* its request has been sent */
    bool closed;               /* by the peer; nothing may follow */
    bool used;                 /* somebody reads it, or has read it */
    char refused[120];         /* why nobody will; "": somebody may */
    struct list pieces;        /* struct piece */
    struct rpc_entry *unacked; /* its bytes are more than the request can take; held */
};

struct piece {
    struct list link;
    struct rpc_entry *op; /* held */
    bool last;
    size_t n;
    char data[];
};

struct rpc_inlet *rpc_inlet_new(struct rpc_entry *e)
{
    struct rpc_inlet *in = calloc(1, sizeof *in);
    if (!in)
        return NULL;
    in->entry = e;
    list_init(&in->pieces);
    return in;
}

static void settle_op(struct rpc_inlet *in, struct rpc_entry *op)
{
    if (in->refused[0])
        rpc_entry_fail(op, "Error", NULL, "%s", in->refused);
    else
        rpc_entry_resolve_text(op, "[\"undefined\"]");
}

static void acknowledge(struct rpc_inlet *in)
{
    struct rpc_entry *op = take_ptr(in->unacked);
    if (op)
        settle_op(in, op);
    rpc_entry_drop(op);
}

static void piece_done(struct rpc_inlet *in, struct piece *p)
{
    list_remove(&p->link);
    rpc_unhold(in->entry->rpc, p->n);
    settle_op(in, p->op);
    rpc_entry_drop(p->op);
    free(p);
}

void rpc_inlet_refuse(struct rpc_inlet *in, const char *why)
{
    in->call = NULL;
    if (!in->refused[0])
        (void)snprintf(in->refused, sizeof in->refused, "%s", why);
    acknowledge(in);
    while (!list_empty(&in->pieces))
        piece_done(in, list_first(&in->pieces, struct piece, link));
}

void rpc_inlet_free(struct rpc_inlet *in)
{
    if (!in)
        return;
    rpc_inlet_refuse(in, "the stream is gone");
    free(in);
}

/* The source has failed: so does the request, before it is complete. */
static void fail_call(struct rpc_inlet *in, const char *why)
{
    struct rpc_call *c = in->call;
    if (c)
        rpc_call_fail(c, "FILESYSTEM_ERROR", "%s", why); /* refuses the inlet */
    else
        rpc_inlet_refuse(in, why);
}

void rpc_inlet_lost(struct rpc_inlet *in)
{
    if (!in->closed)
        fail_call(in, "The stream ended before it was complete");
}

bool rpc_inlet_is_free(const struct rpc_inlet *in)
{
    return !in->used && !in->refused[0];
}

void rpc_inlet_use(struct rpc_inlet *in, struct rpc_call *c)
{
    in->call = c;
    in->used = true;
}

/* Hands over what can be handed over. */
static void pump(struct rpc_inlet *in)
{
    while (in->begun && in->call && in->call->client && !in->unacked && !list_empty(&in->pieces)) {
        struct piece *p = list_first(&in->pieces, struct piece, link);
        if (p->last) {
            http_client_finish(in->call->client);
        } else if (!http_client_write(in->call->client, p->data, p->n)) {
            in->unacked = p->op;
            rpc_entry_hold(p->op);
            list_remove(&p->link);
            rpc_unhold(in->entry->rpc, p->n);
            rpc_entry_drop(p->op);
            free(p);
            return;
        }
        piece_done(in, p);
    }
}

void rpc_inlet_begin(struct rpc_inlet *in)
{
    in->begun = true;
    pump(in);
}

void rpc_inlet_drained(struct rpc_inlet *in)
{
    acknowledge(in);
    pump(in);
}

/* 0, or -errno: the chunk cannot be taken. */
static int take_piece(struct rpc_inlet *in, struct rpc_entry *op, const struct json_value *chunk, bool last)
{
    size_t len = 0;
    const char *text = last ? "" : json_string(rpc_element(chunk, 1), &len);
    if (!last && rpc_form_of(chunk) != RPC_FORM_BYTES)
        return -EBADMSG;
    struct piece *p = malloc(sizeof *p + len / 4 * 3 + 2);
    if (!p)
        return -ENOMEM;
    ssize_t n = base64_decode(p->data, text, len);
    if (n < 0 || !rpc_hold(in->entry->rpc, (size_t)n)) {
        free(p);
        return n < 0 ? -EBADMSG : -ENOBUFS;
    }
    p->n = (size_t)n;
    p->op = op;
    p->last = last;
    rpc_entry_hold(op);
    list_append(&in->pieces, &p->link);
    pump(in);
    return 0;
}

static void on_write(struct rpc_inlet *in, struct rpc_entry *op, const struct json_value *chunk)
{
    int r = take_piece(in, op, chunk, false);
    if (r == 0)
        return;
    const char *why = r == -EBADMSG   ? "The pieces of a stream must be bytes"
                      : r == -ENOBUFS ? "Too many bytes of streams wait to be written"
                                      : "out of memory";
    rpc_entry_fail(op, "Error", NULL, "%s", why);
    fail_call(in, why);
}

static void on_abort(struct rpc_inlet *in, struct rpc_entry *op, const struct json_value *reason)
{
    const char *text = rpc_form_of(reason) == RPC_FORM_ERROR ? json_string(rpc_element(reason, 2), NULL)
                                                             : json_string(reason, NULL);
    char why[300];
    (void)snprintf(why, sizeof why, "The stream was aborted%s%.200s", text ? ": " : "", text ? text : "");
    in->closed = true;
    rpc_entry_resolve_text(op, "[\"undefined\"]");
    fail_call(in, why);
}

void rpc_inlet_call(struct rpc_inlet *in, struct rpc_entry *op, const struct rpc_reference *ref)
{
    const char *name = json_count(ref->path) == 1 ? json_string(json_first(ref->path), NULL) : NULL;
    if (!ref->args || !name ||
        (strcmp(name, "write") != 0 && strcmp(name, "close") != 0 && strcmp(name, "abort") != 0)) {
        rpc_entry_fail(op, "TypeError", NULL, "a stream has no such method");
        return;
    }
    if (in->refused[0] || in->closed) {
        rpc_entry_fail(op, "Error", NULL, "%s", in->refused[0] ? in->refused : "the stream is closed");
    } else if (strcmp(name, "write") == 0) {
        on_write(in, op, json_first(ref->args));
    } else if (strcmp(name, "abort") == 0) {
        on_abort(in, op, json_first(ref->args));
    } else {
        in->closed = true;
        if (take_piece(in, op, NULL, true) < 0)
            rpc_entry_fail(op, "Error", NULL, "out of memory");
    }
}
