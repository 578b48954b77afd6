/* SPDX-License-Identifier: Apache-2.0 */
/* flow_log.c: see flow_log.h. A ring in memory: it goes with the gateway, and an old entry makes room for a
 * new one. Whoever reads too slowly is told how many entries were missed. */
#include "gateway/flow_log.h"
#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum { KEEP_ALIVE_MS = 15000, ENTRY_BYTES = 2048, FIRST_CAP = 16 };

enum entry_kind { ENTRY_OPEN, ENTRY_CLOSE, ENTRY_REFUSED, ENTRY_NAME };

struct entry {
    int64_t wall_ms;
    enum entry_kind kind;
    struct flow flow;
    char *name;         /* NULL: not known */
    const char *reason; /* a constant, or NULL */
};

struct follower {
    struct flow_log *log;
    struct http_request *req;
    struct follower *next, **prev;
    uint64_t sent; /* number of the last entry this one has seen */
    bool full;     /* its connection takes no more for now */
    struct timer keep_alive;
};

struct flow_log {
    struct loop *loop;
    uint64_t count; /* number of the newest */
    struct entry *ring;
    size_t cap; /* grows up to FLOW_LOG_KEPT: most sandboxes connect to little */
    struct follower *followers;
    size_t follower_count;
};

struct flow_log *flow_log_new(struct loop *loop)
{
    struct flow_log *l = calloc(1, sizeof *l);
    if (l)
        l->loop = loop;
    return l;
}

static uint64_t oldest(const struct flow_log *l)
{
    return l->count > l->cap ? l->count - l->cap + 1 : 1;
}

static const struct entry *entry_at(const struct flow_log *l, uint64_t number)
{
    return &l->ring[number % l->cap];
}

/* ------------------------------------------------------------------ an entry as JSON */

static void put_entry(struct json_writer *w, const struct entry *e)
{
    static const char *const events[] = {"open", "close", "packet", "name"};
    char time[CLOCK_ISO_SIZE], address[IP_TEXT], number[16];
    const struct flow *f = &e->flow;
    const char *protocol = f->protocol == IPPROTO_TCP      ? "tcp"
                           : f->protocol == IPPROTO_UDP    ? "udp"
                           : f->protocol == IPPROTO_ICMP   ? "icmp"
                           : f->protocol == IPPROTO_ICMPV6 ? "icmpv6"
                                                           : number;
    (void)snprintf(number, sizeof number, "%u", f->protocol);
    clock_iso(e->wall_ms, time);
    json_object_begin(w);
    json_member_string(w, "time", time);
    json_member_string(w, "event", events[e->kind]);
    json_member_string(w, "verdict", e->kind == ENTRY_REFUSED || e->kind == ENTRY_NAME ? "deny" : "allow");
    if (e->name)
        json_member_string(w, "name", e->name);
    if (!ip_is_none(&f->destination))
        json_member_string(w, "address", ip_text(&f->destination, address));
    if (e->kind != ENTRY_NAME) {
        json_member_string(w, "protocol", protocol);
        if (f->port)
            json_member_int(w, "port", f->port);
    }
    if (e->kind == ENTRY_CLOSE) {
        json_member_int(w, "bytesSent", (int64_t)MIN(f->sent, (uint64_t)INT64_MAX));
        json_member_int(w, "bytesReceived", (int64_t)MIN(f->received, (uint64_t)INT64_MAX));
    }
    if (e->reason)
        json_member_string(w, "reason", e->reason);
    json_object_end(w);
}

void flow_log_put_json(const struct flow_log *l, struct json_writer *w)
{
    json_array_begin(w);
    for (uint64_t i = l ? oldest(l) : 1; l && i <= l->count; i++)
        put_entry(w, entry_at(l, i));
    json_array_end(w);
}

/* ------------------------------------------------------------------ followers */

static bool send_entry(struct follower *s, const struct entry *e)
{
    struct buf out = BUF_INIT(ENTRY_BYTES);
    struct json_writer w;
    json_writer_init(&w, &out);
    put_entry(&w, e);
    bool room = w.err < 0 || sse_event(s->req, NULL, buf_data(&out), buf_len(&out));
    buf_done(&out);
    return room;
}

/* As much as the connection takes. */
static void catch_up(struct follower *s)
{
    struct flow_log *l = s->log;
    if (s->sent + 1 < oldest(l)) {
        char text[96];
        int n = snprintf(text, sizeof text, "{\"event\":\"gap\",\"missed\":%" PRIu64 "}",
                         oldest(l) - s->sent - 1);
        (void)sse_event(s->req, NULL, text, (size_t)n);
        s->sent = oldest(l) - 1;
    }
    while (!s->full && s->sent < l->count)
        if (!send_entry(s, entry_at(l, ++s->sent)))
            s->full = true;
}

static void follower_gone(struct http_request *req)
{
    struct follower *s = req->user;
    loop_timer_stop(s->log->loop, &s->keep_alive);
    *s->prev = s->next;
    if (s->next)
        s->next->prev = s->prev;
    s->log->follower_count--;
    free(s);
}

static void follower_drained(struct http_request *req)
{
    struct follower *s = req->user;
    s->full = false;
    catch_up(s);
}

static void keep_alive_fired(struct timer *t)
{
    static const char comment[] = ": alive\n\n";
    struct follower *s = container_of(t, struct follower, keep_alive);
    if (!s->full)
        (void)http_response_write(s->req, comment, sizeof comment - 1);
    loop_timer_start(s->log->loop, t, KEEP_ALIVE_MS, keep_alive_fired);
}

int flow_log_follow(struct flow_log *l, struct http_request *req)
{
    struct follower *s = l->follower_count < FLOW_LOG_FOLLOWERS_MAX ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return l->follower_count < FLOW_LOG_FOLLOWERS_MAX ? -ENOMEM : -EMFILE;
    s->log = l;
    s->req = req;
    s->next = l->followers;
    if (s->next)
        s->next->prev = &s->next;
    s->prev = &l->followers;
    l->followers = s;
    l->follower_count++;
    req->user = s;
    req->on_gone = follower_gone;
    req->on_drain = follower_drained;
    sse_begin(req);
    (void)http_response_write(req, ": log\n\n", 7); /* the caller sees that the stream has begun */
    s->sent = oldest(l) - 1;
    catch_up(s);
    loop_timer_start(l->loop, &s->keep_alive, KEEP_ALIVE_MS, keep_alive_fired);
    return 0;
}

/* ------------------------------------------------------------------ entries */

/* Twice the room, with every entry at its new place. */
static bool grow(struct flow_log *l)
{
    size_t cap = l->cap ? l->cap * 2 : FIRST_CAP;
    struct entry *ring = cap <= FLOW_LOG_KEPT ? calloc(cap, sizeof *ring) : NULL;
    if (!ring)
        return l->cap > 0;
    for (uint64_t i = oldest(l); i <= l->count; i++)
        ring[i % cap] = *entry_at(l, i);
    free(l->ring);
    l->ring = ring;
    l->cap = cap;
    return true;
}

static void add(struct flow_log *l, const struct entry *e, const char *name)
{
    if (l->count >= l->cap && l->cap < FLOW_LOG_KEPT && !grow(l))
        return; /* no memory, and none had before: nothing is kept */
    struct entry *place = &l->ring[(l->count + 1) % l->cap];
    free(place->name);
    *place = *e;
    place->wall_ms = clock_wall_ms();
    place->name = name ? strdup(name) : NULL;
    l->count++;
    for (struct follower *s = l->followers; s; s = s->next)
        if (!s->full)
            catch_up(s);
}

void flow_log_add(struct flow_log *l, const struct flow *f, const char *name, const char *reason)
{
    enum entry_kind kind = f->kind == FLOW_OPEN    ? ENTRY_OPEN
                           : f->kind == FLOW_CLOSE ? ENTRY_CLOSE
                                                   : ENTRY_REFUSED;
    add(l, &(struct entry){.kind = kind, .flow = *f, .reason = reason}, name);
}

void flow_log_add_name(struct flow_log *l, const char *name, const struct ip *address, const char *reason)
{
    struct entry e = {.kind = ENTRY_NAME, .reason = reason};
    if (address)
        e.flow.destination = *address;
    add(l, &e, name);
}

void flow_log_free(struct flow_log *l)
{
    if (!l)
        return;
    while (l->followers) {
        struct follower *s = l->followers;
        loop_timer_stop(l->loop, &s->keep_alive);
        l->followers = s->next;
        if (s->next)
            s->next->prev = &l->followers;
        http_response_end(s->req); /* on_gone does not follow */
        free(s);
    }
    for (size_t i = 0; i < l->cap; i++)
        free(l->ring[i].name);
    free(l->ring);
    free(l);
}
