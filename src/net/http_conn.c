/* SPDX-License-Identifier: Apache-2.0 */
/* http_conn.c: one connection of the server: its events, reading requests and their bodies.
 *
 * Theory of operation
 * Bytes are read into the loop's scratch memory and parsed there. What cannot be used yet (half a head, a
 * pipelined request, a body whose reader has paused) is kept in c->in, and nothing more is read until it is
 * used up. So a connection that waits owns no buffers, and one that is stuck owns little more than one read.
 * Callbacks are made only from here, below conn_enter: from an event, a timer or the deferred conn_later.
 * What the handler calls from elsewhere changes the state and asks for conn_later. EPOLLIN is taken back only
 * when an event comes that nobody wants: the usual request costs no epoll_ctl. */
#include "net/http_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { MOVE_MIN = 64 * 1024 };

static void conn_parse(struct conn *c, const char *data, size_t n);
static void conn_settle(struct conn *c);

/* ------------------------------------------------------------------ life */

void conn_enter(struct conn *c)
{
    c->busy++;
}

void conn_leave(struct conn *c)
{
    if (!c->dead && c->busy == 1)
        conn_settle(c);
    c->busy--;
    if (c->dead && !c->busy) {
        struct http_server *s = c->server;
        free(c);
        http_server_unref(s);
    }
}

static void request_free(struct conn *c)
{
    if (c->begun) {
        c->begun = false;
        if (c->server->config.over)
            c->server->config.over(&c->req, c->status, c->server->config.arg);
    }
    free(c->head);
    c->head = NULL;
    c->server->collected -= buf_len(&c->body);
    buf_done(&c->body);
}

void conn_close(struct conn *c)
{
    if (c->dead)
        return;
    struct loop *l = c->server->loop;
    int fd = c->source.fd;
    c->dead = true;
    c->active = false;
    loop_timer_stop(l, &c->timer);
    loop_undefer(l, &c->later);
    loop_del(l, &c->source);
    if (fd >= 0)
        (void)close(fd);
    buf_done(&c->in);
    outq_done(&c->out);
    request_free(c);
    http_parser_reset(&c->parser);
    http_server_forget(c->server, c);
    if (!c->busy) {
        struct http_server *s = c->server;
        free(c);
        http_server_unref(s);
    }
}

void conn_gone(struct conn *c)
{
    conn_enter(c);
    if (c->active && !c->dead) {
        c->active = false;
        if (c->req.on_gone)
            c->req.on_gone(&c->req);
    }
    conn_close(c);
    conn_leave(c);
}

void http_request_cut(struct http_request *req)
{
    conn_gone(container_of(req, struct conn, req));
}

void conn_stop(struct conn *c)
{
    c->close_after = true;
    if (c->active || c->input != INPUT_HEAD || buf_len(&c->in))
        return;
    if (outq_empty(&c->out)) {
        conn_close(c);
        return;
    }
    c->closing = true; /* behind what is still to be sent */
    conn_touch(c);
}

static void later_run(struct deferred *d)
{
    struct conn *c = container_of(d, struct conn, later);
    conn_enter(c);
    if (c->broken)
        conn_gone(c);
    else
        conn_parse(c, NULL, 0);
    conn_leave(c);
}

void conn_later(struct conn *c)
{
    if (!c->dead)
        loop_defer(c->server->loop, &c->later, later_run);
}

void conn_touch(struct conn *c)
{
    if (!c->busy)
        conn_later(c);
}

void conn_bad(struct conn *c, int status, const char *reason, int err)
{
    bool late = c->active && http_response_begun(&c->req);
    c->told = true; /* whatever the handler answers from now on is dropped */
    if (!late)
        conn_refuse(c, status, reason);
    if (c->active && c->reading && !c->body_ended) {
        c->body_ended = true;
        c->sink.on_end(&c->req, err);
    }
    if (c->active) {
        c->active = false;
        if (c->req.on_gone)
            c->req.on_gone(&c->req);
    }
    if (late)
        conn_close(c);
    else if (!c->dead)
        request_free(c);
}

/* ------------------------------------------------------------------ the state after an event */

bool conn_body_wanted(const struct conn *c)
{
    return !c->active || (c->reading && !c->paused && !c->body_ended && !c->too_large);
}

static bool input_wanted(const struct conn *c)
{
    if (c->dead || c->closing || c->broken)
        return false;
    switch ((enum conn_input)c->input) {
    case INPUT_HEAD:
        return !c->out.blocked && c->out.file_fd < 0 && !c->parser.head;
    case INPUT_BODY:
        return conn_body_wanted(c);
    case INPUT_DONE:
        break;
    }
    return false;
}

static void linger(struct conn *c)
{
    c->lingering = true;
    c->discarded = 0;
    buf_done(&c->in);
    if (c->read_end || shutdown(c->source.fd, SHUT_WR) < 0)
        conn_close(c);
}

static void update_events(struct conn *c)
{
    uint32_t events = EPOLLET | (c->eof ? 0 : (uint32_t)EPOLLRDHUP);
    if (c->lingering || input_wanted(c) || c->source.events & EPOLLIN)
        events |= EPOLLIN;
    if (c->out.blocked)
        events |= EPOLLOUT;
    if (c->out.spent && c->source.events == events)
        loop_again(c->server->loop, &c->source);
    else
        loop_mod(c->server->loop, &c->source, events);
    c->out.spent = false;
}

static void flush(struct conn *c)
{
    uint64_t before = outq_len(&c->out);
    if (!before) {
        c->out.blocked = false;
        return;
    }
    if (outq_flush(&c->out, c->source.fd) < 0)
        c->broken = true;
    else if (c->timing == TIMING_STALL && outq_len(&c->out) < before)
        c->timing = TIMING_NONE; /* progress: the time starts again */
}

static void conn_settle(struct conn *c)
{
    if (!c->out.blocked && !c->broken)
        flush(c);
    if (c->drain_wanted && c->active && !c->broken && c->out.file_fd < 0 &&
        outq_len(&c->out) <= c->server->config.limits.send_low) {
        c->drain_wanted = false;
        conn_later(c); /* sends what on_drain writes */
        if (c->req.on_drain)
            c->req.on_drain(&c->req);
        if (c->dead)
            return;
    }
    if (c->broken) {
        if (c->active)
            conn_later(c); /* which calls on_gone */
        else
            conn_close(c);
        return;
    }
    if (c->closing && !c->active && !c->lingering && outq_empty(&c->out))
        linger(c);
    if (c->dead)
        return;
    if (c->waiting && (input_wanted(c) || (c->parser.head && outq_empty(&c->out))))
        conn_later(c);
    conn_update_deadline(c);
    update_events(c);
}

/* ------------------------------------------------------------------ parsing */

void conn_request_over(struct conn *c)
{
    c->active = false;
    request_free(c);
    c->timing = TIMING_NONE;
    c->discarded = 0;
    if (c->close_after) {
        c->closing = true;
    } else if (c->input == INPUT_DONE) {
        c->input = INPUT_HEAD;
        http_parser_reset(&c->parser);
    }
    conn_touch(c);
}

static void request_start(struct conn *c)
{
    struct http_head *h = take_ptr(c->parser.head);
    struct http_request *req = &c->req;

    c->head = h;
    c->active = c->begun = true;
    c->status = 0;
    c->told = c->reading = c->paused = c->body_ended = c->too_large = c->swallow = c->drain_wanted = false;
    c->crowded = false;
    c->bare = false;
    c->answer = ANSWER_NONE;
    c->body_got = c->window_got = 0;
    c->window_left_us = 0;
    c->timing = TIMING_NONE;
    c->close_after = !h->keep_alive || h->is_connect || c->server->stopping;
    c->need_continue = h->expect_continue && h->framing != HTTP_FRAMING_NONE;
    c->input = h->framing == HTTP_FRAMING_NONE ? INPUT_DONE : INPUT_BODY;

    req->method = h->method;
    req->target = h->target;
    req->path = h->path;
    req->query = h->query;
    req->minor = h->minor;
    req->headers = h->headers;
    req->header_count = h->header_count;
    req->has_body = h->framing != HTTP_FRAMING_NONE;
    req->content_length = h->framing == HTTP_FRAMING_CHUNKED ? -1 : MAX(h->content_length, (int64_t)0);
    req->upgrade = h->upgrade;
    req->context = NULL;
    req->user = NULL;
    req->gone_on_eof = false;
    req->on_drain = NULL;
    req->on_gone = NULL;
    c->server->config.request(req, c->server->config.arg);
}

/* A complete head waits in the parser. Whoever may take the socket away must find everything before it sent.
 */
static bool request_may_start(struct conn *c)
{
    if (c->closing || c->broken)
        return false;
    if (c->parser.head->upgrade && !c->out.blocked)
        flush(c);
    return !c->broken && (!c->parser.head->upgrade || outq_empty(&c->out));
}

static void body_piece(struct conn *c)
{
    size_t n = c->parser.piece_len;
    if (!c->active) {
        c->discarded += n;
        if (c->discarded > HTTP_DISCARD_MAX)
            c->closing = true;
        return;
    }
    if (n > c->body_max - c->body_got) {
        c->too_large = true;
        return;
    }
    c->body_got += n;
    c->window_got += n;
    c->sink.on_data(&c->req, c->parser.piece, n);
    if (c->crowded)
        conn_bad(c, 429, "too many large requests are under way", -ENOBUFS);
}

static void body_complete(struct conn *c)
{
    if (c->active) {
        c->input = INPUT_DONE;
        return;
    }
    c->input = INPUT_HEAD;
    c->timing = TIMING_NONE;
    http_parser_reset(&c->parser);
}

/* on_end, when it is due. */
static bool deliver_end(struct conn *c)
{
    if (!c->active || !c->reading || c->paused || c->body_ended || !(c->too_large || c->input == INPUT_DONE))
        return false;
    c->body_ended = true;
    c->sink.on_end(&c->req, c->too_large ? -EMSGSIZE : 0);
    return true;
}

/* One event of the parser; false when it needs more bytes. */
static bool parse_step(struct conn *c)
{
    size_t used;
    enum http_event e = http_parser_next(&c->parser, c->rx, c->rx_len, &used);
    c->rx += used;
    c->rx_len -= used;
    switch (e) {
    case HTTP_EVENT_MORE:
        return false;
    case HTTP_EVENT_HEAD:
        break; /* it waits in the parser until it may start */
    case HTTP_EVENT_DATA:
        body_piece(c);
        break;
    case HTTP_EVENT_END:
        body_complete(c);
        break;
    case HTTP_EVENT_BAD:
        conn_bad(c, c->parser.status, c->parser.reason, -EBADMSG);
        break;
    }
    return true;
}

/* Parses data, or what waits in c->in when data is NULL. */
static void conn_parse(struct conn *c, const char *data, size_t n)
{
    bool kept = !data;
    if (kept) {
        n = buf_len(&c->in);
        data = n ? buf_data(&c->in) : "";
    }
    c->parsing = true;
    c->rx = data;
    c->rx_len = n;
    bool more = true;
    while (more && !c->dead) {
        if (c->parser.head) {
            if (!request_may_start(c))
                break;
            request_start(c);
        } else if (!deliver_end(c)) {
            if (!input_wanted(c))
                break;
            more = parse_step(c);
        }
    }
    if (c->dead)
        return;
    c->parsing = false;
    c->waiting = more && (c->rx_len || c->parser.head);
    if (kept)
        buf_consume(&c->in, n - c->rx_len);
    else if (buf_append(&c->in, c->rx, c->rx_len) < 0)
        conn_gone(c);
    if (!buf_len(&c->in))
        buf_done(&c->in);
}

/* ------------------------------------------------------------------ events */

static void conn_eof(struct conn *c)
{
    c->eof = c->read_end = true;
    if (c->input == INPUT_BODY && !c->active)
        conn_close(c);
    else if (http_parser_midway(&c->parser))
        conn_bad(c, 400, "the request was cut off", -EBADMSG);
    else
        c->closing = true;
}

/* A long body of known length need not come through our memory. */
static bool body_moves(const struct conn *c)
{
    return c->input == INPUT_BODY && c->active && c->reading && c->sink.on_move &&
           c->parser.framing == HTTP_FRAMING_LENGTH && c->parser.left >= MOVE_MIN && !buf_len(&c->in) &&
           c->parser.left <= c->body_max - c->body_got;
}

static ssize_t conn_move(struct conn *c)
{
    ssize_t n = c->sink.on_move(&c->req, c->source.fd, c->parser.left);
    if (n > 0) {
        c->parser.left -= (uint64_t)n;
        c->body_got += (uint64_t)n;
        c->window_got += (uint64_t)n;
        conn_parse(c, NULL, 0); /* it may have been the end */
    } else if (n == 0) {
        conn_eof(c);
    } else if (n != -EAGAIN && n != -EOPNOTSUPP) {
        conn_gone(c);
    }
    return n;
}

/* True when there may be more. */
static bool conn_receive(struct conn *c)
{
    if (body_moves(c)) {
        ssize_t moved = conn_move(c);
        if (moved != -EOPNOTSUPP)
            return moved > 0;
    }
    char *scratch = loop_scratch(c->server->loop);
    ssize_t n = recv(c->source.fd, scratch, LOOP_SCRATCH, MSG_DONTWAIT);
    if (n == 0) {
        conn_eof(c);
    } else if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            conn_gone(c);
    } else if (!buf_len(&c->in)) {
        conn_parse(c, scratch, (size_t)n);
    } else if (buf_append(&c->in, scratch, (size_t)n) < 0) {
        conn_gone(c);
    } else {
        conn_parse(c, NULL, 0);
    }
    return n == LOOP_SCRATCH || (n < 0 && errno == EINTR);
}

static bool linger_receive(struct conn *c)
{
    ssize_t n = recv(c->source.fd, loop_scratch(c->server->loop), LOOP_SCRATCH, MSG_DONTWAIT);
    if (n > 0)
        c->discarded += (size_t)n;
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || c->discarded > HTTP_LINGER_BYTES)
        conn_close(c);
    return n == LOOP_SCRATCH || (n < 0 && errno == EINTR);
}

static bool answer_streams(const struct conn *c)
{
    return c->active && (c->answer == ANSWER_CHUNKED || c->answer == ANSWER_CLOSE);
}

/* Something came that nobody wants to read now. */
static void unwanted(struct conn *c, uint32_t events)
{
    if (events & EPOLLHUP) {
        conn_gone(c);
        return;
    }
    if (events & EPOLLRDHUP) {
        /* the other direction may be open: the answer to a complete request is still owed; but nobody ends
         * his half in the middle of a stream except by going away */
        c->eof = true;
        if (answer_streams(c) || (c->active && c->req.gone_on_eof)) {
            conn_gone(c);
            return;
        }
    }
    loop_mod(c->server->loop, &c->source, c->source.events & ~(uint32_t)EPOLLIN);
}

static void conn_ready(struct source *source, uint32_t events)
{
    struct conn *c = container_of(source, struct conn, source);
    const uint32_t ends = EPOLLRDHUP | EPOLLHUP;
    bool again = false;
    conn_enter(c);
    if (events & EPOLLERR) {
        conn_gone(c);
        events = 0;
    }
    if (events & EPOLLOUT)
        flush(c);
    if (!c->dead && events & (EPOLLIN | ends)) {
        if (c->lingering)
            again = linger_receive(c) || events & ends;
        else if (input_wanted(c))
            again = conn_receive(c) || events & ends;
        else
            unwanted(c, events);
    }
    if (again && !c->dead)
        loop_again(c->server->loop, source);
    conn_leave(c);
}

int conn_new(struct http_server *s, int fd, struct peer *peer, const char *name)
{
    struct conn *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    c->server = s;
    c->source.fd = -1;
    c->in = BUF_INIT(s->config.limits.head_bytes + LOOP_SCRATCH);
    c->body = BUF_INIT(SIZE_MAX);
    outq_init(&c->out);
    http_parser_init(&c->parser, HTTP_KIND_REQUEST, &s->config.limits);
    (void)snprintf(c->req.peer, sizeof c->req.peer, "%s", name);
    int r = loop_add(s->loop, &c->source, fd, EPOLLIN | EPOLLRDHUP | EPOLLET, conn_ready);
    if (r < 0) {
        free(c);
        return r;
    }
    c->peer = peer;
    http_server_remember(s, c);
    s->conn_count++;
    s->refs++;
    conn_update_deadline(c);
    return 0;
}
