/* SPDX-License-Identifier: Apache-2.0 */
/* websocket.c: see websocket.h.
 *
 * OPEN     messages go both ways
 * CLOSING  our close frame is queued; we wait for the peer's and ignore everything else
 * ENDING   both close frames are said, or the peer broke the rules: the queue is sent, input is thrown away
 * LINGER   everything is sent and our side shut; the peer's end (or WS_LINGER_MS) ends it, so that a reset
 * does not destroy the close frame on its way DEAD     the socket is closed; the memory goes when no event
 * handler uses it any more */
#include "net/websocket.h"
#include "net/outq.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

enum ws_state { OPEN, CLOSING, ENDING, LINGER, DEAD };

enum { PIECE = 64 * 1024, ROUNDS = 8, HELD_MAX = 1024 * 1024 };

struct ws {
    struct ws_config config;
    struct ws *next, **prev; /* in the group */
    struct source source;
    struct timer timer;
    struct deferred later;
    struct ws_reader reader;
    struct outq out;
    struct buf held; /* received, not read because the owner has paused */
    int64_t heard_us;
    uint8_t state;
    unsigned busy; /* event handlers on the stack */
    bool owned;    /* the owner still wants callbacks */
    bool paused, pinged, broken, drain_wanted;
    bool pong_waits; /* the peer asks faster than it reads: only its last question is answered */
    size_t pong_len;
    char pong[WS_CONTROL_MAX];
};

static void run_later(struct deferred *d);
static void timer_fired(struct timer *t);

/* ------------------------------------------------------------------ the end */

static void release(struct ws *w)
{
    if (w->state != DEAD || w->busy)
        return;
    loop_undefer(w->config.loop, &w->later);
    ws_reader_done(&w->reader);
    outq_done(&w->out);
    buf_done(&w->held);
    free(w);
}

static void die(struct ws *w)
{
    int fd = w->source.fd;
    if (w->state == DEAD)
        return;
    w->state = DEAD;
    loop_timer_stop(w->config.loop, &w->timer);
    loop_del(w->config.loop, &w->source);
    close_fd(&fd);
    w->config.group->count--;
    *w->prev = w->next;
    if (w->next)
        w->next->prev = w->prev;
}

static void tell(struct ws *w, int code, const char *reason)
{
    if (!w->owned)
        return;
    w->owned = false;
    w->config.ops->closed(w, code, reason);
}

static void lost(struct ws *w)
{
    die(w);
    tell(w, WS_CODE_LOST, "");
}

void ws_free(struct ws *w)
{
    if (!w)
        return;
    w->owned = false;
    die(w);
    release(w);
}

void ws_group_free(struct ws_group *g)
{
    while (g->first)
        ws_free(g->first);
}

/* ------------------------------------------------------------------ sending */

/* A failure is told from the loop. */
static void put(struct ws *w, enum ws_opcode opcode, const void *data, size_t n)
{
    unsigned char header[WS_HEADER_MAX], mask[4];
    bool masked = w->config.role == WS_CLIENT;
    auto_free char *copy = NULL;
    int r = 0;
    if (w->state == DEAD || w->broken)
        return;
    if (masked) {
        copy = malloc(n + 1);
        if (!copy || getrandom(mask, sizeof mask, 0) != (ssize_t)sizeof mask)
            r = -ENOMEM;
        else
            ws_mask(copy, data, n, mask, 0);
    }
    if (r == 0) {
        size_t head = ws_header(header, opcode, true, n, masked ? mask : NULL);
        struct iovec iov[2] = {{header, head}, {masked ? copy : (void *)(uintptr_t)data, n}};
        r = outq_send(&w->out, w->source.fd, iov, n ? 2 : 1);
    }
    if (r < 0) {
        w->broken = true;
        loop_defer(w->config.loop, &w->later, run_later);
    } else if (!outq_empty(&w->out)) {
        loop_mod(w->config.loop, &w->source, w->source.events | EPOLLOUT);
        w->drain_wanted |= !ws_has_room(w); /* also if it was a pong of ours that took the last room */
    }
}

bool ws_has_room(const struct ws *w)
{
    return outq_len(&w->out) <= WS_SEND_HIGH;
}

bool ws_send(struct ws *w, enum ws_opcode opcode, const void *data, size_t n)
{
    if (w->state == OPEN)
        put(w, opcode, data, n);
    return ws_has_room(w);
}

static void put_close(struct ws *w, int code, const char *reason)
{
    char payload[WS_CONTROL_MAX];
    size_t n = MIN(strlen(reason), sizeof payload - 2);
    while (n && ((unsigned char)reason[n] & 0xc0) == 0x80)
        n--; /* not inside a character */
    payload[0] = (char)(code >> 8);
    payload[1] = (char)code;
    memcpy(payload + 2, reason, n);
    put(w, WS_CLOSE, payload, code == WS_CODE_NONE ? 0 : n + 2);
}

static void limit_time(struct ws *w)
{
    loop_timer_start(w->config.loop, &w->timer, WS_END_MS, timer_fired);
}

void ws_fail(struct ws *w, int code, const char *reason)
{
    if (w->state != OPEN)
        return;
    put_close(w, code, reason);
    w->state = CLOSING;
    limit_time(w);
    ws_resume(w); /* the peer's close may be behind what nobody wanted to read */
}

void ws_close(struct ws *w, int code, const char *reason)
{
    w->owned = false;
    ws_fail(w, code, reason);
}

/* Both have said goodbye, or the peer cannot be understood any more. */
static void end(struct ws *w)
{
    w->state = ENDING;
    w->paused = false;
    buf_done(&w->held);
    limit_time(w);
    loop_defer(w->config.loop, &w->later, run_later);
}

static void send_pong(struct ws *w, const char *data, size_t n)
{
    if (ws_has_room(w)) {
        put(w, WS_PONG, data, n);
        return;
    }
    memcpy(w->pong, data, n);
    w->pong_len = n;
    w->pong_waits = true;
}

/* ------------------------------------------------------------------ receiving */

static void found(struct ws *w, const struct ws_found *f)
{
    switch (f->event) {
    case WS_EVENT_NONE:
    case WS_EVENT_PONG:
        break;
    case WS_EVENT_MESSAGE:
        if (w->state == OPEN)
            w->config.ops->message(w, f->text, f->data ? f->data : (char[1]){0}, f->n);
        break;
    case WS_EVENT_PING:
        if (w->state == OPEN)
            send_pong(w, f->data, f->n);
        break;
    case WS_EVENT_CLOSE:
        if (w->state == OPEN)
            put_close(w, f->code, "");
        end(w);
        tell(w, f->code, f->data);
        break;
    case WS_EVENT_BROKEN:
        if (w->state == OPEN)
            put_close(w, f->code, f->why);
        end(w);
        tell(w, f->code, f->why);
        break;
    }
}

/* Returns how many bytes were read before the owner paused or the connection ended. */
static size_t feed(struct ws *w, const char *data, size_t n)
{
    size_t used = 0;
    while (used < n && !w->paused && w->state < ENDING && !w->broken) {
        struct ws_found f;
        used += ws_reader_feed(&w->reader, data + used, n - used, &f);
        found(w, &f);
    }
    return w->state >= ENDING ? n : used;
}

static void feed_held(struct ws *w)
{
    while (buf_len(&w->held) && !w->paused && w->state < ENDING && !w->broken) {
        struct ws_found f;
        size_t used = ws_reader_feed(&w->reader, buf_data(&w->held), buf_len(&w->held), &f);
        buf_consume(&w->held, used);
        found(w, &f);
    }
    if (!buf_len(&w->held))
        buf_done(&w->held);
}

static void receive(struct ws *w)
{
    char piece[PIECE];
    for (int i = 0; i < ROUNDS && !w->paused && !w->broken && w->state != DEAD && !buf_len(&w->held); i++) {
        ssize_t n = recv(w->source.fd, piece, sizeof piece, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            lost(w);
            return;
        }
        w->heard_us = loop_now_us(w->config.loop);
        w->pinged = false;
        size_t used = feed(w, piece, (size_t)n);
        if (w->state != DEAD && used < (size_t)n && buf_append(&w->held, piece + used, (size_t)n - used) < 0)
            lost(w);
        if (n < (ssize_t)sizeof piece)
            return;
    }
}

/* ------------------------------------------------------------------ events */

static void flushed(struct ws *w)
{
    if (w->state == OPEN && w->pong_waits && ws_has_room(w)) {
        w->pong_waits = false;
        put(w, WS_PONG, w->pong, w->pong_len);
    }
    if (w->state == OPEN && w->drain_wanted && outq_len(&w->out) <= WS_SEND_LOW) {
        w->drain_wanted = false;
        if (w->config.ops->drain)
            w->config.ops->drain(w);
    }
}

/* What has become possible, and which events matter now. */
static void settle(struct ws *w)
{
    if (w->state != DEAD && w->broken)
        lost(w);
    if (w->state == ENDING && outq_empty(&w->out)) {
        w->state = LINGER;
        (void)shutdown(w->source.fd, SHUT_WR);
        loop_timer_start(w->config.loop, &w->timer, WS_LINGER_MS, timer_fired);
    }
    if (w->state != DEAD)
        loop_mod(w->config.loop, &w->source,
                 (w->paused ? 0 : EPOLLIN) | (outq_empty(&w->out) ? 0 : EPOLLOUT));
}

static void ready(struct source *s, uint32_t events)
{
    struct ws *w = container_of(s, struct ws, source);
    w->busy++;
    if (events & EPOLLOUT) {
        if (outq_flush(&w->out, s->fd) < 0)
            w->broken = true;
        else
            flushed(w);
    }
    if (w->state != DEAD && events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        if (w->paused && events & (EPOLLHUP | EPOLLERR))
            lost(w); /* nobody is left to hear the answers */
        else
            receive(w);
    }
    settle(w);
    w->busy--;
    release(w);
}

static void run_later(struct deferred *d)
{
    struct ws *w = container_of(d, struct ws, later);
    w->busy++;
    if (w->state != DEAD && !w->broken)
        feed_held(w);
    settle(w);
    w->busy--;
    release(w);
}

static void timer_fired(struct timer *t)
{
    struct ws *w = container_of(t, struct ws, timer);
    int64_t silent_ms = (loop_now_us(w->config.loop) - w->heard_us) / 1000;
    w->busy++;
    if (w->state != OPEN || (silent_ms >= w->config.drop_ms && !w->paused)) {
        lost(w);
    } else {
        if (w->paused) { /* we do not listen */
            silent_ms = 0;
            w->heard_us = loop_now_us(w->config.loop);
        }
        if (silent_ms >= w->config.ping_ms && !w->pinged) {
            w->pinged = true;
            put(w, WS_PING, "", 0);
        }
        int64_t next_ms = (w->pinged ? w->config.drop_ms : w->config.ping_ms) - silent_ms;
        loop_timer_start(w->config.loop, t, MAX(next_ms, (int64_t)1), timer_fired);
    }
    w->busy--;
    release(w);
}

/* ------------------------------------------------------------------ the beginning */

void *ws_user(const struct ws *w)
{
    return w->config.user;
}

void ws_pause(struct ws *w)
{
    if (w->state != OPEN)
        return;
    w->paused = true;
    loop_mod(w->config.loop, &w->source, w->source.events & ~(uint32_t)EPOLLIN);
}

void ws_resume(struct ws *w)
{
    if (!w->paused || w->state == DEAD)
        return;
    w->paused = false;
    loop_defer(w->config.loop, &w->later, run_later);
}

int ws_new(const struct ws_config *config, int fd, struct buf *rest, struct ws **ret)
{
    auto_close int owned = fd;
    struct ws *w = calloc(1, sizeof *w);
    if (!w)
        return -ENOMEM;
    w->config = *config;
    w->config.ping_ms = config->ping_ms ? config->ping_ms : WS_PING_MS;
    w->config.drop_ms = config->drop_ms ? config->drop_ms : WS_DROP_MS;
    w->owned = true;
    w->source.fd = -1;
    w->held = BUF_INIT(HELD_MAX);
    outq_init(&w->out);
    ws_reader_init(&w->reader, config->role, config->message_max);
    w->heard_us = loop_now_us(config->loop);
    int r = buf_len(rest) ? buf_append(&w->held, buf_data(rest), buf_len(rest)) : 0;
    if (r == 0)
        r = loop_add(config->loop, &w->source, fd, EPOLLIN, ready);
    if (r < 0) {
        buf_done(&w->held);
        free(w);
        return r;
    }
    (void)take_fd(owned);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* not being TCP is fine */
    buf_clear(rest);
    w->next = config->group->first;
    w->prev = &config->group->first;
    if (w->next)
        w->next->prev = &w->next;
    config->group->first = w;
    config->group->count++;
    loop_timer_start(config->loop, &w->timer, w->config.ping_ms, timer_fired);
    if (buf_len(&w->held))
        loop_defer(config->loop, &w->later, run_later);
    *ret = w;
    return 0;
}
