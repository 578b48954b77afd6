/* SPDX-License-Identifier: Apache-2.0 */
/* http_client.c: HTTP/1.1 client on one connection, for a server that is not trusted.
 *
 * Theory of operation
 * One exchange at a time. Sending and receiving are independent: an answer may come, and end, before the
 * request is completely sent (then the connection is not used again). When sending fails the answer is still
 * read, because a server that refuses a body answers first and closes then; only when there is none the
 * failure is reported. Callbacks are made from events only, never from inside a call. The memory stays until
 * the last event handler on the stack has returned, so every callback may free the client. */
#include "net/http_parse.h"
#include "net/mover.h"
#include "net/outq.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum {
    HEAD_USUAL = 1000,
    INTERIM_MAX = 8, /* 1xx responses in front of the final one */
    /* What a full socket does not take waits here. More than one piece of it would be copied into memory that
     * is not in any cache, and the kernel's buffer keeps the peer busy meanwhile. */
    SEND_HIGH = 32 * 1024,
    SEND_LOW = 16 * 1024,
    SEND_NOW = 16 * 1024,
};

/* IDLE      no exchange
 * HEAD      waiting for the final response head
 * BODY      reading the body
 * UPGRADED  after 101: the socket waits to be taken
 * LOST      nothing more can be done with the connection */
enum state { IDLE, HEAD, BODY, UPGRADED, LOST };

/* An end that comes together with the last bytes must be told of: see loop_again. */
#define INPUT_EVENTS ((uint32_t)EPOLLIN | (uint32_t)EPOLLRDHUP)

struct http_client {
    struct loop *loop;
    struct source source;
    struct deferred later;
    struct http_parser parser;
    struct outq out;
    struct buf in;  /* received, not yet parsed */
    const char *rx; /* what is being parsed: in `in` or in the loop's scratch */
    size_t rx_len;
    const struct http_client_ops *ops;
    void *user;
    uint64_t body_left; /* of a request with a length */
    int fd;
    int failure; /* what sending died of; reported when no answer comes */
    uint8_t state, interim;
    bool chunked; /* the request's body */
    bool sent;    /* the request is complete, at least in the queue */
    bool keep;    /* the connection may be used again */
    bool paused, drain_wanted;
    bool read_end;    /* the peer sends no more */
    bool read_failed; /* because the connection broke */
    bool parsing;
    bool freed;
    unsigned busy; /* event handlers on the stack */
};

static const struct http_limits limits = {.line_bytes = 8192, .head_bytes = 65536, .header_count = 100};

static void client_ready(struct source *s, uint32_t events);
static void client_settle(struct http_client *c);
static void client_parse(struct http_client *c, const char *data, size_t n);

/* ------------------------------------------------------------------ life */

static void client_enter(struct http_client *c)
{
    c->busy++;
}

static void client_leave(struct http_client *c)
{
    if (c->busy == 1 && !c->freed)
        client_settle(c);
    if (--c->busy == 0 && c->freed)
        free(c);
}

static void later_run(struct deferred *d)
{
    struct http_client *c = container_of(d, struct http_client, later);
    client_enter(c);
    client_parse(c, NULL, 0);
    client_leave(c);
}

static void client_later(struct http_client *c)
{
    if (!c->freed)
        loop_defer(c->loop, &c->later, later_run);
}

/* Inside an event the look at the state follows anyway. */
static void client_touch(struct http_client *c)
{
    if (!c->busy)
        client_later(c);
}

static size_t unread(const struct http_client *c)
{
    return c->parsing ? c->rx_len : buf_len(&c->in);
}

int http_client_new(struct loop *loop, int fd, struct http_client **ret, struct error *reterr)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (!(flags & O_NONBLOCK) && fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0))
        return error_sys(reterr, errno, "use a connection");
    struct http_client *c = calloc(1, sizeof *c);
    if (!c)
        return error_sys(reterr, ENOMEM, "use a connection");
    c->loop = loop;
    c->fd = fd;
    c->source.fd = -1;
    c->keep = true;
    c->in = BUF_INIT(limits.head_bytes + LOOP_SCRATCH);
    outq_init(&c->out);
    http_parser_init(&c->parser, HTTP_KIND_RESPONSE, &limits);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* not being TCP is fine */
    int r = loop_add(loop, &c->source, fd, INPUT_EVENTS | EPOLLET, client_ready);
    if (r < 0) {
        free(c);
        return error_sys(reterr, -r, "use a connection");
    }
    *ret = c;
    return 0;
}

void http_client_set_user(struct http_client *c, void *user)
{
    c->user = user;
}

void *http_client_user(const struct http_client *c)
{
    return c->user;
}

void http_client_free(struct http_client *c)
{
    if (!c || c->freed)
        return;
    c->freed = true;
    loop_undefer(c->loop, &c->later);
    loop_del(c->loop, &c->source);
    /* the socket may have come from somebody who shares it with us, and asked for a close that waits */
    (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &(struct linger){0}, sizeof(struct linger));
    close_fd(&c->fd);
    http_parser_reset(&c->parser);
    outq_done(&c->out);
    buf_done(&c->in);
    if (!c->busy)
        free(c);
}

bool http_client_reusable(const struct http_client *c)
{
    return c->state == IDLE && c->keep && !c->read_end && !unread(c);
}

int http_client_take_fd(struct http_client *c, struct buf *rest)
{
    if (c->state != UPGRADED || !outq_empty(&c->out))
        return -EPROTO;
    if (unread(c)) {
        int r = buf_append(rest, c->parsing ? c->rx : buf_data(&c->in), unread(c));
        if (r < 0)
            return r;
    }
    loop_del(c->loop, &c->source);
    int fd = take_fd(c->fd);
    http_client_free(c);
    return fd;
}

/* ------------------------------------------------------------------ sending */

static bool target_valid(const char *s)
{
    if (!*s)
        return false;
    for (; *s; s++)
        if ((unsigned char)*s <= 0x20 || (unsigned char)*s >= 0x7f)
            return false;
    return true;
}

static int build_head(struct buf *b, const char *method, const char *target,
                      const struct http_header *headers, size_t count, int64_t content_length)
{
    int r;
    if (!http_token_valid(method) || !target_valid(target) || content_length < -1)
        return -EINVAL;
    if ((r = buf_puts(b, method)) < 0 || (r = buf_putc(b, ' ')) < 0 || (r = buf_puts(b, target)) < 0 ||
        (r = buf_puts(b, " HTTP/1.1\r\n")) < 0)
        return r;
    for (size_t i = 0; i < count; i++) {
        if (http_name_equal(headers[i].name, "content-length") ||
            http_name_equal(headers[i].name, "transfer-encoding"))
            continue; /* the framing is ours */
        if ((r = http_put_header(b, headers[i].name, headers[i].value)) < 0)
            return r;
    }
    bool usually_has_body =
        strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0 || strcmp(method, "PATCH") == 0;
    if (content_length < 0)
        r = buf_puts(b, "Transfer-Encoding: chunked\r\n");
    else if (content_length > 0 || usually_has_body)
        r = http_put_length(b, (uint64_t)content_length);
    return r < 0 ? r : buf_append(b, "\r\n", 2);
}

/* Nothing can be sent any more, but an answer may be on its way. */
static void send_failed(struct http_client *c, int err)
{
    c->failure = err;
    c->keep = false;
    outq_done(&c->out);
    c->out.blocked = false;
    (void)shutdown(c->fd, SHUT_WR); /* the server must not wait for the rest */
}

static void client_flush(struct http_client *c)
{
    int r = outq_flush(&c->out, c->fd);
    if (r < 0)
        send_failed(c, r);
}

int http_client_send(struct http_client *c, const char *method, const char *target,
                     const struct http_header *headers, size_t count, int64_t content_length,
                     const struct http_client_ops *ops)
{
    if (c->state != IDLE)
        return c->state == LOST ? -ENOTCONN : -EBUSY;
    if (!http_client_reusable(c))
        return -ENOTCONN;
    struct buf b = BUF_INIT(1024 * 1024);
    (void)buf_reserve(&b, HEAD_USUAL); /* once instead of growing; without it there is the growing */
    int r = build_head(&b, method, target, headers, count, content_length);
    if (r < 0) {
        buf_done(&b);
        return r;
    }
    c->ops = ops;
    c->state = HEAD;
    c->interim = 0;
    c->failure = 0;
    c->paused = c->drain_wanted = false;
    c->chunked = content_length < 0;
    c->body_left = content_length > 0 ? (uint64_t)content_length : 0;
    c->sent = content_length == 0;
    for (size_t i = 0; i < count; i++)
        if (http_name_equal(headers[i].name, "connection") && http_list_has(headers[i].value, "close"))
            c->keep = false;
    http_parser_reset(&c->parser);
    http_parser_expect(&c->parser, method);
    struct iovec iov = {buf_data(&b), buf_len(&b)};
    /* with a body to come, the head waits for its first piece */
    r = c->sent ? outq_send(&c->out, c->fd, &iov, 1) : outq_put(&c->out, &iov, 1);
    buf_done(&b);
    if (r < 0)
        send_failed(c, r);
    if (r < 0 || !outq_empty(&c->out) || !(c->source.events & EPOLLIN))
        client_touch(c); /* otherwise the answer is all there is to wait for */
    return 0;
}

bool http_client_write(struct http_client *c, const void *data, size_t n)
{
    char size[32];
    struct iovec iov[3];
    int k = 0;

    if (c->state == IDLE || c->state >= UPGRADED || c->sent || c->failure || !n)
        return true;
    if (!c->chunked && n > c->body_left) {
        send_failed(c, -EPIPE); /* more than was promised: the request cannot be saved */
        client_touch(c);
        return true;
    }
    if (c->chunked) {
        int len = snprintf(size, sizeof size, "%zx\r\n", n);
        iov[k++] = (struct iovec){size, (size_t)len};
    } else {
        c->body_left -= n;
    }
    iov[k++] = (struct iovec){(void *)data, n};
    if (c->chunked)
        iov[k++] = (struct iovec){(void *)"\r\n", 2};
    int r = outq_len(&c->out) + n < SEND_NOW ? outq_put(&c->out, iov, k) : outq_send(&c->out, c->fd, iov, k);
    if (r < 0)
        send_failed(c, r);
    client_touch(c);
    if (outq_len(&c->out) > SEND_HIGH) {
        c->drain_wanted = true;
        return false;
    }
    return true;
}

ssize_t http_client_move(struct http_client *c, struct mover *m, int from, uint64_t max, bool *ret_full)
{
    *ret_full = false;
    if ((c->state != HEAD && c->state != BODY) || c->sent || c->failure || c->chunked || max > c->body_left ||
        !outq_empty(&c->out) || c->out.blocked)
        return -EOPNOTSUPP;
    int err;
    ssize_t n = mover_move(m, from, &c->out, c->fd, max, &err);
    if (n <= 0)
        return n == -EINVAL ? -EOPNOTSUPP : n;
    c->body_left -= (uint64_t)n;
    if (err < 0)
        send_failed(c, err);
    if (err < 0 || !outq_empty(&c->out))
        client_touch(c);
    *ret_full = c->drain_wanted = !outq_empty(&c->out);
    return n;
}

void http_client_finish(struct http_client *c)
{
    if (c->state == IDLE || c->state >= UPGRADED || c->sent)
        return;
    c->sent = true;
    if (c->failure)
        return;
    struct iovec iov = {(void *)"0\r\n\r\n", c->chunked ? 5 : 0};
    int r = c->body_left ? -EPIPE : outq_send(&c->out, c->fd, &iov, 1);
    if (r < 0)
        send_failed(c, r);
    client_touch(c);
}

/* ------------------------------------------------------------------ receiving */

void http_client_pause(struct http_client *c)
{
    c->paused = true;
}

void http_client_resume(struct http_client *c)
{
    c->paused = false;
    client_later(c); /* also from inside an event: what waits must be parsed again */
}

static void exchange_end(struct http_client *c, int err, enum state next)
{
    c->state = (uint8_t)next;
    if (err || !c->sent || !outq_empty(&c->out))
        c->keep = false;
    if (next == IDLE && !c->keep)
        c->state = LOST;
    http_parser_reset(&c->parser);
    c->ops->on_end(c, err);
}

static void response_head(struct http_client *c)
{
    auto_free struct http_head *h = take_ptr(c->parser.head);
    if (h->status / 100 == 1 && h->status != 101) {
        if (++c->interim > INTERIM_MAX)
            exchange_end(c, -EBADMSG, LOST);
        else
            http_parser_reset(&c->parser);
        return;
    }
    bool upgraded = h->upgrade;
    c->state = BODY;
    if (!h->keep_alive)
        c->keep = false;
    if (c->ops->on_head)
        c->ops->on_head(c, h->status, h->headers, h->header_count, h->content_length);
    if (!c->freed && upgraded && c->state == BODY)
        exchange_end(c, 0, UPGRADED);
}

/* One event of the parser; false when it needs more bytes or nobody wants them. */
static bool parse_step(struct http_client *c)
{
    size_t used;
    if (c->freed || c->paused || (c->state != HEAD && c->state != BODY))
        return false;
    enum http_event e = http_parser_next(&c->parser, c->rx, c->rx_len, &used);
    c->rx += used;
    c->rx_len -= used;
    switch (e) {
    case HTTP_EVENT_MORE:
        return false;
    case HTTP_EVENT_HEAD:
        response_head(c);
        break;
    case HTTP_EVENT_DATA:
        if (c->ops->on_data)
            c->ops->on_data(c, c->parser.piece, c->parser.piece_len);
        break;
    case HTTP_EVENT_END:
        if (c->rx_len)
            c->keep = false; /* bytes that belong to no request of ours */
        exchange_end(c, 0, IDLE);
        break;
    case HTTP_EVENT_BAD:
        exchange_end(c, c->parser.status == 431 ? -E2BIG : -EBADMSG, LOST);
        break;
    }
    return true;
}

/* The connection ended and everything before it is parsed. */
static void client_eof(struct http_client *c)
{
    if (c->state == HEAD || c->state == BODY) {
        c->keep = false;
        bool complete = c->state == BODY && !c->read_failed && http_parser_eof(&c->parser) == HTTP_EVENT_END;
        exchange_end(c, complete ? 0 : c->failure ? c->failure : -ECONNRESET, LOST);
    } else if (c->state == IDLE) {
        c->state = LOST;
        if (c->ops && c->ops->on_idle_close)
            c->ops->on_idle_close(c);
    }
}

static void read_failed(struct http_client *c, int err)
{
    c->read_end = c->read_failed = true;
    if (!c->failure)
        c->failure = err;
    client_eof(c);
}

/* Parses data, or what waits in c->in when data is NULL. */
static void client_parse(struct http_client *c, const char *data, size_t n)
{
    bool kept = !data;
    if (kept) {
        n = buf_len(&c->in);
        data = n ? buf_data(&c->in) : "";
    }
    c->rx = data;
    c->rx_len = n;
    c->parsing = true;
    while (parse_step(c))
        ;
    c->parsing = false;
    if (c->freed)
        return;
    if (kept) {
        buf_consume(&c->in, n - c->rx_len);
    } else if (buf_append(&c->in, c->rx, c->rx_len) < 0) {
        read_failed(c, -ENOMEM);
        return;
    }
    if (!buf_len(&c->in))
        buf_done(&c->in); /* who only waits needs no memory */
    if (c->read_end && !c->paused)
        client_eof(c);
}

static bool input_wanted(const struct http_client *c)
{
    return c->state == IDLE || ((c->state == HEAD || c->state == BODY) && !c->paused);
}

/* True when there may be more. */
static bool client_receive(struct http_client *c)
{
    char *scratch = loop_scratch(c->loop);
    ssize_t n = recv(c->fd, scratch, LOOP_SCRATCH, MSG_DONTWAIT);
    if (n > 0 && c->state == IDLE) {
        client_eof(c); /* bytes that belong to no request: as good as closed */
    } else if (n > 0 && !buf_len(&c->in)) {
        client_parse(c, scratch, (size_t)n);
    } else if (n > 0 && buf_append(&c->in, scratch, (size_t)n) < 0) {
        read_failed(c, -ENOMEM);
    } else if (n >= 0) {
        c->read_end = n == 0;
        client_parse(c, NULL, 0);
    } else if (errno != EAGAIN && errno != EINTR) {
        read_failed(c, -errno);
    }
    return n == LOOP_SCRATCH || (n < 0 && errno == EINTR);
}

static void client_settle(struct http_client *c)
{
    if (!c->out.blocked && !outq_empty(&c->out))
        client_flush(c);
    if (c->drain_wanted && outq_len(&c->out) <= SEND_LOW) {
        c->drain_wanted = false;
        client_later(c); /* sends what on_drain writes */
        if (c->ops->on_drain && !c->sent && (c->state == HEAD || c->state == BODY))
            c->ops->on_drain(c);
        if (c->freed)
            return;
    }
    bool wanted = input_wanted(c) && !c->read_end;
    if (c->source.fd < 0 && !wanted)
        return; /* given up by client_ready */
    uint32_t events = EPOLLET;
    if (wanted || c->source.events & EPOLLIN)
        events |= INPUT_EVENTS;
    if (c->out.blocked)
        events |= EPOLLOUT;
    if (c->source.fd >= 0 && c->out.spent && c->source.events == events)
        loop_again(c->loop, &c->source);
    else if (c->source.fd >= 0)
        loop_mod(c->loop, &c->source, events);
    else if (loop_add(c->loop, &c->source, c->fd, events, client_ready) < 0)
        read_failed(c, -ENOMEM);
    c->out.spent = false;
}

static void client_ready(struct source *s, uint32_t events)
{
    struct http_client *c = container_of(s, struct http_client, source);
    const uint32_t ends = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
    bool again = false;
    client_enter(c);
    if (events & EPOLLOUT && !outq_empty(&c->out))
        client_flush(c);
    else if (events & EPOLLOUT)
        c->out.blocked = false;
    if (events & (EPOLLIN | ends)) {
        if (input_wanted(c) && !c->read_end)
            again = client_receive(c) || events & ends;
        else if (events & (EPOLLHUP | EPOLLERR))
            loop_del(c->loop, &c->source); /* nothing can be done about it before input is wanted */
        else
            loop_mod(c->loop, &c->source, c->source.events & ~INPUT_EVENTS);
    }
    if (again && !c->freed)
        loop_again(c->loop, s);
    client_leave(c);
}
