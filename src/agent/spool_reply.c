/* SPDX-License-Identifier: Apache-2.0 */
/* spool_reply.c: see spool_reply.h. Small answers go out in one piece, large ones as the peer takes them. */
#include "agent/spool_reply.h"
#include "base/clock.h"
#include "base/utf8.h"

enum { PIECE = 64 * 1024, SMALL = 32 * 1024, BUFFER_MAX = 8 * PIECE };

struct streaming {
    struct agent *agent;
    struct http_request *req;
    struct spool_part parts[2];
    int part;
    bool inside; /* the string of this part is open */
    uint64_t offset, dropped;
    struct utf8_stream utf8;
    unsigned flags;
    struct buf out;
};

static const char *const openings[2] = {",\"stdout\":\"", ",\"stderr\":\""};

static void streaming_free(struct streaming *s)
{
    for (int i = 0; i < 2; i++)
        spool_unref(s->parts[i].spool);
    buf_done(&s->out);
    free(s);
}

/* Appends the next piece; 0 when everything is out, < 0 on failure. */
static int next_piece(struct streaming *s)
{
    int r = 0;
    if (s->part == 2)
        return 0;
    struct spool_part *p = &s->parts[s->part];
    if (!s->inside) {
        r = buf_puts(&s->out, openings[s->part]);
        s->inside = true;
        s->offset = p->begin;
        s->utf8 = (struct utf8_stream){0};
    }
    uint64_t kept = MIN(spool_begin(p->spool), p->end);
    if (s->offset < kept) { /* a ring moves on while a slow client reads */
        s->dropped += kept - s->offset;
        s->offset = kept;
    }
    size_t want = (size_t)MIN(p->end - s->offset, (uint64_t)PIECE);
    ssize_t n = want ? spool_read(p->spool, s->offset, agent_scratch(s->agent), want) : 0;
    if (n < 0 || (want && n == 0))
        return -1;
    s->offset += (uint64_t)n;
    bool last = s->offset == p->end;
    if (r == 0)
        r = utf8_decode(&s->utf8, agent_scratch(s->agent), (size_t)n, last, UTF8_JSON | s->flags, &s->out);
    if (r == 0 && last) {
        r = buf_putc(&s->out, '"');
        s->part++;
        s->inside = false;
    }
    return r < 0 ? r : 1;
}

static int finish_object(struct streaming *s)
{
    char now[CLOCK_ISO_SIZE];
    int r = s->dropped ? buf_printf(&s->out, ",\"dropped\":%llu", (unsigned long long)s->dropped) : 0;
    clock_iso_now(now);
    return r < 0 ? r : buf_printf(&s->out, ",\"timestamp\":\"%s\"}", now);
}

static void pump(struct streaming *s)
{
    for (;;) {
        int r = next_piece(s);
        if (r < 0) {
            http_response_abort(
                s->req); /* the answer has begun: an unfinished body is all that can be said */
            streaming_free(s);
            return;
        }
        if (r == 0)
            break;
        bool room = http_response_write(s->req, buf_data(&s->out), buf_len(&s->out));
        buf_clear(&s->out);
        if (!room)
            return;
    }
    if (finish_object(s) < 0) {
        http_response_abort(s->req);
    } else {
        (void)http_response_write(s->req, buf_data(&s->out), buf_len(&s->out));
        http_response_end(s->req);
    }
    streaming_free(s);
}

static void on_drain(struct http_request *req)
{
    pump(req->user);
}

static void on_gone(struct http_request *req)
{
    streaming_free(req->user);
}

void spool_reply_send(struct agent *a, struct http_request *req, struct reply *head, struct spool_part out,
                      struct spool_part err, unsigned utf8_flags)
{
    static const struct http_header json[] = {{"Content-Type", "application/json"}};
    struct streaming local = {
        .agent = a,
        .req = req,
        .parts = {out, err},
        .flags = utf8_flags,
        .out = head->out, /* the object stays open */
    };
    bool small = out.end - out.begin + err.end - err.begin <= SMALL;
    struct streaming *s = small ? &local : malloc(sizeof *s);
    int r = head->w.err ? head->w.err : s ? 1 : -1;
    head->out = BUF_INIT(0);
    reply_done(head);
    if (r == 1 && small) {
        while ((r = next_piece(s)) > 0)
            ;
        if (r == 0)
            r = finish_object(s);
    }
    req->on_drain = req->on_gone = NULL;
    if (r < 0)
        reply_error(req, "INTERNAL_ERROR", "out of memory, or the output cannot be read back");
    else if (small)
        http_respond(req, 200, "application/json", buf_data(&s->out), buf_len(&s->out));
    if (r < 0 || small) {
        buf_done(&local.out);
        if (s != &local)
            free(s);
        return;
    }

    *s = local;
    spool_ref(out.spool);
    spool_ref(err.spool);
    req->user = s;
    req->on_drain = on_drain;
    req->on_gone = on_gone;
    http_response_begin(req, 200, json, ARRAY_SIZE(json), -1);
    (void)http_response_write(req, buf_data(&s->out), buf_len(&s->out)); /* the rest is small at first */
    buf_done(&s->out);
    s->out = BUF_INIT(BUFFER_MAX);
    pump(s);
}
