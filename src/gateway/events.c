/* SPDX-License-Identifier: Apache-2.0 */
/* events.c: see events.h.
 *
 * An event's id is "<start of this gateway>-<number>". After a restart the numbers begin anew; whoever comes
 * with an id of an earlier start gets everything that is kept, behind an event "gap" that says so. */
#include "gateway/events.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { EPOCH_CHARS = 8, ID_SIZE = 40, REASON_MAX = 200, KEEP_ALIVE_MS = 15000, EVENT_BYTES = 2048 };

struct event {
    uint64_t number;
    enum sandbox_event kind;
    int64_t wall_ms;
    char id[SANDBOX_ID_MAX + 1];
    char owner[TOKEN_ID_CHARS + 1];
    char reason[REASON_MAX + 1]; /* "": none */
};

struct subscriber {
    struct events *events;
    struct http_request *req;
    struct subscriber *next, **prev;
    uint64_t sent;               /* number of the last event this one has seen or skipped */
    bool full;                   /* its connection takes no more for now */
    bool may_all;                /* not limited to an owner */
    char id[SANDBOX_ID_MAX + 1]; /* "": every sandbox */
    char owner[TOKEN_ID_CHARS + 1];
    struct timer keep_alive;
};

struct events {
    struct loop *loop;
    char epoch[EPOCH_CHARS + 1];
    uint64_t count; /* number of the newest */
    struct event ring[EVENTS_KEPT];
    struct subscriber *subscribers;
    size_t subscriber_count;
};

int events_new(struct loop *loop, struct events **ret, struct error *reterr)
{
    struct events *e = calloc(1, sizeof *e);
    if (!e)
        return error_sys(reterr, ENOMEM, "set up events");
    e->loop = loop;
    random_name(e->epoch, EPOCH_CHARS);
    *ret = e;
    return 0;
}

void events_free(struct events *e)
{
    free(e);
}

size_t events_subscribers(const struct events *e)
{
    return e->subscriber_count;
}

static bool wanted(const struct subscriber *s, const struct event *ev)
{
    if (s->id[0] && strcmp(s->id, ev->id) != 0)
        return false;
    return s->may_all || strcmp(s->owner, ev->owner) == 0;
}

static bool send_event(struct subscriber *s, const struct event *ev)
{
    char id[ID_SIZE], time[CLOCK_ISO_SIZE];
    struct buf out = BUF_INIT(EVENT_BYTES);
    struct json_writer w;
    (void)snprintf(id, sizeof id, "%s-%" PRIu64, s->events->epoch, ev->number);
    clock_iso(ev->wall_ms, time);
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_string(&w, "type", sandbox_event_name(ev->kind));
    json_member_string(&w, "sandboxId", ev->id);
    json_member_string(&w, "timestamp", time);
    if (ev->reason[0])
        json_member_string(&w, "reason", ev->reason);
    json_object_end(&w);
    bool room = w.err < 0 || sse_event(s->req, id, buf_data(&out), buf_len(&out));
    buf_done(&out);
    return room;
}

/* missed 0: how many is not known, because they were of an earlier start. */
static void send_gap(struct subscriber *s, uint64_t missed)
{
    char text[96];
    int n = missed ? snprintf(text, sizeof text, "{\"type\":\"gap\",\"missed\":%" PRIu64 "}", missed)
                   : snprintf(text, sizeof text, "{\"type\":\"gap\"}");
    (void)sse_event(s->req, NULL, text, (size_t)n);
}

/* As much as the connection takes. */
static void catch_up(struct subscriber *s)
{
    struct events *e = s->events;
    uint64_t oldest = e->count > EVENTS_KEPT ? e->count - EVENTS_KEPT + 1 : 1;
    if (s->sent + 1 < oldest) {
        send_gap(s, oldest - s->sent - 1);
        s->sent = oldest - 1;
    }
    while (!s->full && s->sent < e->count) {
        const struct event *ev = &e->ring[++s->sent % EVENTS_KEPT];
        if (wanted(s, ev) && !send_event(s, ev))
            s->full = true;
    }
}

void events_add(struct events *e, const struct sandbox *sb, enum sandbox_event kind, const char *reason)
{
    struct event *ev = &e->ring[++e->count % EVENTS_KEPT];
    *ev = (struct event){.number = e->count, .kind = kind, .wall_ms = clock_wall_ms()};
    memcpy(ev->id, sb->id, sizeof ev->id);
    memcpy(ev->owner, sb->owner, sizeof ev->owner);
    (void)snprintf(ev->reason, sizeof ev->reason, "%.*s", REASON_MAX, reason ? reason : "");
    for (struct subscriber *s = e->subscribers; s; s = s->next)
        if (!s->full)
            catch_up(s);
}

/* ------------------------------------------------------------------ subscribers */

static void subscriber_gone(struct http_request *req)
{
    struct subscriber *s = req->user;
    loop_timer_stop(s->events->loop, &s->keep_alive);
    *s->prev = s->next;
    if (s->next)
        s->next->prev = s->prev;
    s->events->subscriber_count--;
    free(s);
}

static void subscriber_drained(struct http_request *req)
{
    struct subscriber *s = req->user;
    s->full = false;
    catch_up(s);
}

/* So that a connection whose other end vanished is noticed, and proxies in between do not give up. */
static void keep_alive_fired(struct timer *t)
{
    static const char comment[] = ": alive\n\n";
    struct subscriber *s = container_of(t, struct subscriber, keep_alive);
    if (!s->full)
        (void)http_response_write(s->req, comment, sizeof comment - 1);
    loop_timer_start(s->events->loop, t, KEEP_ALIVE_MS, keep_alive_fired);
}

/* The number behind the epoch; false when the id is of an earlier start, or none of ours. */
static bool known_id(const struct events *e, const char *text, uint64_t *ret)
{
    unsigned long long n;
    int end = 0;
    if (strncmp(text, e->epoch, EPOCH_CHARS) != 0 || text[EPOCH_CHARS] != '-' ||
        text[EPOCH_CHARS + 1] < '0' || text[EPOCH_CHARS + 1] > '9' ||
        sscanf(text + EPOCH_CHARS + 1, "%19llu%n", &n, &end) != 1 || text[EPOCH_CHARS + 1 + end] ||
        n > e->count)
        return false;
    *ret = n;
    return true;
}

int events_subscribe(struct events *e, struct http_request *req, const struct auth_identity *who,
                     const char *id, const char *last_id)
{
    if (e->subscriber_count == EVENT_SUBSCRIBERS_MAX)
        return -EMFILE;
    struct subscriber *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->events = e;
    s->req = req;
    (void)snprintf(s->id, sizeof s->id, "%s", id);
    (void)snprintf(s->owner, sizeof s->owner, "%s", auth_owner(who));
    s->may_all = who->scope != AUTH_SCOPE_CREATE;
    s->next = e->subscribers;
    if (s->next)
        s->next->prev = &s->next;
    s->prev = &e->subscribers;
    e->subscribers = s;
    e->subscriber_count++;
    req->user = s;
    req->on_gone = subscriber_gone;
    req->on_drain = subscriber_drained;

    sse_begin(req);
    (void)http_response_write(req, ": events\n\n", 10); /* the caller sees that the stream has begun */
    s->sent = e->count;
    if (last_id && !known_id(e, last_id, &s->sent)) {
        s->sent = e->count > EVENTS_KEPT ? e->count - EVENTS_KEPT : 0;
        send_gap(s, 0);
    }
    catch_up(s);
    loop_timer_start(e->loop, &s->keep_alive, KEEP_ALIVE_MS, keep_alive_fired);
    return 0;
}
