/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_stream.c: an answer as a stream to the peer: one message per piece, each acknowledged when the reader
 * has taken it. The source stops while a window is not acknowledged, so a reader that stalls costs no more
 * than that, and the command behind it waits as it does for an HTTP client. */
#include "agent/rpc_internal.h"
#include "base/base64.h"

#include <errno.h>
#include <string.h>

static void cancel(struct rpc_call *c)
{
    rpc_send_release(c->rpc, c->pipe_id, 1);
    rpc_call_free(c); /* the source sees a closed connection */
}

static void write_answered(struct rpc_sent *s, bool ok, const struct json_value *expr)
{
    struct rpc_call *c = s->call;
    (void)expr;
    c->unacknowledged -= s->bytes;
    if (!ok)
        cancel(c);
    else if (!c->rpc->blocked && c->unacknowledged < RPC_WINDOW / 2)
        rpc_call_resume(c);
}

static void end_answered(struct rpc_sent *s, bool ok, const struct json_value *expr)
{
    (void)ok;
    (void)expr;
    cancel(s->call);
}

static int put_write(struct buf *out, int64_t pipe, const char *data, size_t n)
{
    size_t len = base64_encoded_len(n);
    int r = buf_printf(out, "[\"stream\",[\"pipeline\",%lld,[\"write\"],[[\"bytes\",\"", (long long)pipe);
    char *to = r == 0 ? buf_reserve(out, len) : NULL;
    if (!to)
        return -ENOMEM;
    (void)base64_encode(to, data, n);
    while (len && to[len - 1] == '=')
        len--;
    buf_commit(out, len);
    return buf_puts(out, "\"]]]]");
}

void rpc_outlet_data(struct rpc_call *c, const char *data, size_t n)
{
    struct rpc *r = c->rpc;
    struct buf out = BUF_INIT(base64_encoded_len(n) + RPC_FRAME);
    if (put_write(&out, c->pipe_id, data, n) < 0) {
        buf_done(&out);
        rpc_send_failed(r);
        return;
    }
    struct rpc_sent *s = rpc_sent_new(r, c, write_answered);
    if (s) {
        s->bytes = buf_len(&out) + RPC_WRITE_COST;
        c->unacknowledged += s->bytes;
    }
    bool room = rpc_send_buf(r, &out);
    if (c->client && (!room || c->unacknowledged >= RPC_WINDOW))
        http_client_pause(c->client);
}

void rpc_outlet_end(struct rpc_call *c, int err)
{
    struct rpc *r = c->rpc;
    struct buf out = BUF_INIT(RPC_FRAME);
    const char *what =
        err < 0 ? "[\"abort\"],[[\"error\",\"Error\",\"The stream broke off\"]]" : "[\"close\"],[]";
    if (c->client)
        inner_http_put(&r->inner, take_ptr(c->client));
    c->phase = RPC_CLOSING;
    if (!rpc_sent_new(r, c, end_answered))
        return;
    if (buf_printf(&out, "[\"stream\",[\"pipeline\",%lld,%s]]", (long long)c->pipe_id, what) < 0)
        rpc_send_failed(r);
    else
        (void)rpc_send(r, buf_data(&out), buf_len(&out));
    buf_done(&out);
}

void rpc_outlet_start(struct rpc_call *c)
{
    if (c->client) {
        if (!c->rpc->blocked)
            http_client_resume(c->client);
        return;
    }
    rpc_outlet_data(c, buf_data(&c->answer), buf_len(&c->answer));
    rpc_outlet_end(c, 0);
}
