/* SPDX-License-Identifier: Apache-2.0 */
/* watch_routes.c: POST /api/watch (a stream of events) and POST /api/watch/check (has anything changed
 * since?).
 *
 * A subscriber's events are collected for 75 ms and then sent together. When its peer is slow they stay
 * in the feed, where equal ones collapse and what is too much is counted; memory per subscriber is bounded by
 * the feed and the response queue. */
#include "agent/reply.h"
#include "agent/routes.h"
#include "agent/watch_feed.h"
#include "agent/watch_request.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { FLUSH_MS = 75, EVENT_JSON_MAX = 64 * 1024 };

static struct watches *agent_watches(struct agent *a)
{
    if (!a->watches)
        a->watches = watches_new(a->loop);
    return a->watches;
}

static void reply_invalid(struct http_request *req, const char *message)
{
    struct reply r;
    reply_error_begin(&r, "VALIDATION_FAILED", "%s", message);
    json_put_key(&r.w, "validationErrors");
    json_array_begin(&r.w);
    json_object_begin(&r.w);
    json_member_string(&r.w, "message", message);
    json_object_end(&r.w);
    json_array_end(&r.w);
    reply_error_send(&r, req);
}

static void reply_path_error(struct http_request *req, const char *code, const char *message,
                             const char *path)
{
    struct reply r;
    reply_error_begin(&r, code, "%s", message);
    json_member_string(&r.w, "path", path);
    reply_error_send(&r, req);
}

/* Answers and returns false when the request cannot be watched. */
static bool request_check(struct http_request *req, const struct json_value *body, struct watch_request *q)
{
    struct error e;
    struct stat st;
    int err = watch_request_parse(body, q, &e);
    if (err == -EACCES && query_has(req->query, "rpc"))
        err = 0; /* callers of /rpc may look anywhere */
    if (err == -EACCES) {
        struct reply r;
        const char *given = json_string(json_get(body, "path"), NULL);
        reply_error_begin(&r, "PERMISSION_DENIED", "%s", e.msg);
        json_member_string(&r.w, "path", given);
        json_member_string(&r.w, "resolvedPath", q->path);
        json_member_string(&r.w, "workspaceRoot", AGENT_WORKSPACE);
        reply_error_send(&r, req);
        watch_request_done(q);
        return false;
    }
    if (err < 0) {
        if (err == -EINVAL)
            reply_invalid(req, e.msg);
        else
            reply_error(req, "INTERNAL_ERROR", "%s", e.msg);
        return false;
    }
    if (stat(q->path, &st) < 0) {
        (void)error_set(&e, errno, "Path does not exist: %.280s", q->path);
        reply_path_error(req, "FILE_NOT_FOUND", e.msg, q->path);
        watch_request_done(q);
        return false;
    }
    return true;
}

static void reply_join_error(struct http_request *req, int err, const char *message, const char *path)
{
    if (err == -E2BIG)
        reply_invalid(req, message);
    else
        reply_path_error(req, "WATCH_START_ERROR", message, path);
}

/* ------------------------------------------------------------------ the stream */

struct watch_stream {
    struct watch_subscriber sub;
    struct http_request *req;
    struct loop *loop;
    char *path;
    struct watch_feed feed;
    struct timer flush;
    bool announced; /* "watching" was sent */
    bool blocked;   /* the peer is slow */
};

static void stream_free(struct watch_stream *s)
{
    watches_leave(&s->sub);
    loop_timer_stop(s->loop, &s->flush);
    watch_feed_clear(&s->feed);
    free(s->path);
    free(s);
}

static void stream_send(struct watch_stream *s, const char *type, const char *key1, const char *value1,
                        const char *key2, const char *value2)
{
    struct buf out = BUF_INIT(EVENT_JSON_MAX);
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_string(&w, "type", type);
    json_member_string(&w, key1, value1);
    if (key2)
        json_member_string(&w, key2, value2);
    json_object_end(&w);
    if (w.err == 0)
        (void)sse_event(s->req, NULL, buf_data(&out), buf_len(&out));
    buf_done(&out);
}

static void stream_announce(struct watch_stream *s)
{
    s->announced = true;
    stream_send(s, "watching", "path", s->path, "watchId", watcher_id(s->sub.watcher));
}

/* All events go out at once, whatever the queue says: they are at most one feed full. */
static void stream_flush(struct watch_stream *s)
{
    struct buf out = BUF_INIT(EVENT_JSON_MAX);
    bool room = true;
    for (size_t i = 0; i < s->feed.count; i++) {
        buf_clear(&out);
        if (watch_feed_json(&s->feed, i, &out) == 0)
            room = sse_event(s->req, NULL, buf_data(&out), buf_len(&out));
    }
    buf_done(&out);
    watch_feed_clear(&s->feed);
    s->blocked = !room;
}

static void stream_timer(struct timer *t)
{
    struct watch_stream *s = container_of(t, struct watch_stream, flush);
    if (!s->blocked)
        stream_flush(s);
}

static void stream_drained(struct http_request *req)
{
    struct watch_stream *s = req->user;
    s->blocked = false;
    if (s->feed.count > 0 && !loop_timer_running(&s->flush))
        stream_flush(s);
}

static void stream_gone(struct http_request *req)
{
    stream_free(req->user);
}

static void stream_settled(struct watch_subscriber *sub)
{
    struct watch_stream *s = container_of(sub, struct watch_stream, sub);
    if (!s->announced)
        stream_announce(s);
}

static void stream_event(struct watch_subscriber *sub, enum watch_event e, const char *path, bool directory)
{
    struct watch_stream *s = container_of(sub, struct watch_stream, sub);
    if (!s->announced)
        return;
    watch_feed_add(&s->feed, e, path, directory, clock_wall_ms());
    if (!loop_timer_running(&s->flush))
        loop_timer_start(s->loop, &s->flush, FLUSH_MS, stream_timer);
}

static void stream_ended(struct watch_subscriber *sub, int err, const char *why)
{
    struct watch_stream *s = container_of(sub, struct watch_stream, sub);
    struct http_request *req = s->req;
    stream_flush(s);
    if (err)
        stream_send(s, "error", "error", why, NULL, NULL);
    else
        stream_send(s, "stopped", "reason", why, NULL, NULL);
    stream_free(s);
    http_response_end(req);
}

void route_watch(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct watch_request q;
    struct error e;
    bool created;
    if (!request_check(req, call->body, &q))
        return;
    struct watch_stream *s = calloc(1, sizeof *s);
    struct watches *all = agent_watches(a);
    if (!s || !all || !(s->path = strdup(q.path))) {
        free(s);
        watch_request_done(&q);
        reply_error(req, "INTERNAL_ERROR", "Out of memory");
        return;
    }
    s->req = req;
    s->loop = a->loop;
    s->sub =
        (struct watch_subscriber){.settled = stream_settled, .event = stream_event, .ended = stream_ended};
    int r = watches_join(all, &q, &s->sub, &created, &e);
    watch_request_done(&q);
    if (r < 0) {
        reply_join_error(req, r, e.msg, s->path);
        stream_free(s);
        return;
    }
    req->user = s;
    req->on_gone = stream_gone;
    req->on_drain = stream_drained;
    sse_begin(req);
    if (watcher_established(s->sub.watcher))
        stream_announce(s);
}

/* ------------------------------------------------------------------ the check */

struct watch_check {
    struct watch_subscriber sub;
    struct http_request *req;
    struct watches *all;
    struct watch_request q;
    bool created; /* by this call */
    bool repeated;
    bool has_since;
    char since_id[64];
    uint64_t since_version;
};

static void check_free(struct watch_check *c)
{
    watches_leave(&c->sub);
    watch_request_done(&c->q);
    free(c);
}

/* "<watch id>:<digits>". */
static bool since_parse(const char *s, char id[64], uint64_t *version)
{
    const char *colon = strrchr(s, ':');
    if (!colon || colon == s || colon[1] == '\0' || strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return false;
    if (strlen(colon + 1) > 18)
        return false;
    *version = strtoull(colon + 1, NULL, 10);
    size_t n = (size_t)(colon - s);
    (void)snprintf(id, 64, "%.*s", (int)MIN(n, (size_t)63),
                   s); /* ids of ours are shorter: a cut one equals none */
    return true;
}

static void check_answer(struct watch_check *c)
{
    struct watcher *w = c->sub.watcher;
    struct http_request *req = c->req;
    uint64_t version = watcher_version(w);
    const char *status = "unchanged", *reason = NULL;
    if (c->has_since && strcmp(c->since_id, watcher_id(w)) != 0) {
        status = "resync";
        reason = c->created ? "expired" : "restarted";
    } else if (c->has_since && c->since_version > version) {
        check_free(c);
        reply_invalid(req, "since is ahead of the watch");
        return;
    } else if (c->has_since && c->since_version < version) {
        status = "changed";
    }
    char text[100];
    (void)snprintf(text, sizeof text, "%s:%llu", watcher_id(w), (unsigned long long)version);
    struct reply r;
    reply_begin(&r);
    json_member_string(&r.w, "status", status);
    if (reason)
        json_member_string(&r.w, "reason", reason);
    json_member_string(&r.w, "version", text);
    check_free(c);
    reply_send(&r, req);
}

static void check_settled(struct watch_subscriber *sub)
{
    check_answer(container_of(sub, struct watch_check, sub));
}

static void check_gone(struct http_request *req)
{
    check_free(req->user);
}

static void check_ended(struct watch_subscriber *sub, int err, const char *why);

static void check_join(struct watch_check *c)
{
    struct http_request *req = c->req;
    struct error e;
    c->sub = (struct watch_subscriber){.settled = check_settled, .ended = check_ended};
    int r = watches_join(c->all, &c->q, &c->sub, &c->created, &e);
    if (r < 0) {
        reply_join_error(req, r, e.msg, c->q.path);
        check_free(c);
        return;
    }
    watcher_retain(c->sub.watcher);
    if (watcher_settled(c->sub.watcher))
        check_answer(c);
}

/* Lost events and the like end a watcher; what the caller wants to know is told by a fresh one. */
static void check_ended(struct watch_subscriber *sub, int err, const char *why)
{
    struct watch_check *c = container_of(sub, struct watch_check, sub);
    struct http_request *req = c->req;
    struct stat st;
    (void)err;
    if (!c->repeated && err != ETIMEDOUT && stat(c->q.path, &st) == 0) {
        c->repeated = true;
        check_join(c);
        return;
    }
    reply_path_error(req, "WATCH_START_ERROR", why, c->q.path);
    check_free(c);
}

void route_watch_check(struct agent *a, struct http_request *req, struct route_call *call)
{
    const struct json_value *since = json_get(call->body, "since");
    struct watch_request q;
    if (!request_check(req, call->body, &q))
        return;
    struct watch_check *c = calloc(1, sizeof *c);
    struct watches *all = agent_watches(a);
    if (!c || !all) {
        free(c);
        watch_request_done(&q);
        reply_error(req, "INTERNAL_ERROR", "Out of memory");
        return;
    }
    c->req = req;
    c->all = all;
    c->q = q;
    c->has_since = json_type_of(since) != JSON_NULL;
    const char *text = json_string(since, NULL);
    if (c->has_since && (!text || !since_parse(text, c->since_id, &c->since_version))) {
        check_free(c);
        reply_invalid(req, "since must be a version that an earlier check has returned");
        return;
    }
    req->user = c;
    req->on_gone = check_gone;
    check_join(c);
}
