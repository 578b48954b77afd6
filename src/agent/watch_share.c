/* SPDX-License-Identifier: Apache-2.0 */
/* watch_share.c: see watch_share.h.
 *
 * A watcher is found by its key: everything in a request that makes a difference, as one string of bytes. It
 * ends when its last subscriber leaves, unless it is retained; a retained one ends when the time is over and
 * nobody subscribes. Subscribers are told of an end from the loop (watch.h's `ended`), so that no list is
 * changed under someone's feet. */
#include "agent/watch_share.h"
#include "base/buf.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct watches {
    struct loop *loop;
    struct watch_hub *hub;
    struct list watchers;
    size_t count;
    uint64_t last_number;
};

struct watcher {
    struct watches *all;
    struct list link;
    struct list subscribers;
    struct watch_tree *tree;
    struct watch_glob *include, *exclude;
    struct buf key;
    char id[64];
    uint64_t version; /* events so far */
    bool established, retained;
    struct timer establish_timer, retain_timer;
};

void watch_request_done(struct watch_request *q)
{
    for (size_t i = 0; i < q->include_count; i++)
        free(q->include[i]);
    for (size_t i = 0; i < q->exclude_count; i++)
        free(q->exclude[i]);
    free(q->include);
    free(q->exclude);
    free(q->path);
    *q = (struct watch_request){0};
}

struct watches *watches_new(struct loop *loop)
{
    struct watches *ws = calloc(1, sizeof *ws);
    if (!ws || !(ws->hub = watch_hub_new(loop))) {
        free(ws);
        return NULL;
    }
    ws->loop = loop;
    list_init(&ws->watchers);
    return ws;
}

static void watcher_free(struct watcher *w)
{
    loop_timer_stop(w->all->loop, &w->establish_timer);
    loop_timer_stop(w->all->loop, &w->retain_timer);
    watch_tree_free(w->tree);
    watch_glob_free(w->include);
    watch_glob_free(w->exclude);
    buf_done(&w->key);
    list_remove(&w->link);
    w->all->count--;
    free(w);
}

static void watcher_end(struct watcher *w, int err, const char *why)
{
    list_remove(&w->link); /* a subscriber that joins again from its callback gets a new one */
    while (!list_empty(&w->subscribers)) {
        struct watch_subscriber *s = list_first(&w->subscribers, struct watch_subscriber, link);
        list_remove(&s->link);
        s->watcher = NULL;
        s->ended(s, err, why);
    }
    watcher_free(w);
}

void watches_free(struct watches *ws)
{
    if (!ws)
        return;
    while (!list_empty(&ws->watchers))
        watcher_end(list_first(&ws->watchers, struct watcher, link), 0, "The server is stopping");
    watch_hub_free(ws->hub);
    free(ws);
}

/* ------------------------------------------------------------------ what the tree tells */

static void tree_settled(struct watch_tree *t, void *arg)
{
    struct watcher *w = arg;
    (void)t;
    w->established = true;
    loop_timer_stop(w->all->loop, &w->establish_timer);
    /* A subscriber may leave when told, and the last one takes the watcher with it; so it is held meanwhile.
     */
    struct watch_subscriber guard = {.watcher = w};
    list_append(&w->subscribers, &guard.link);
    for (struct list *pos = w->subscribers.next; pos != &guard.link;) {
        struct watch_subscriber *s = list_entry(pos, struct watch_subscriber, link);
        pos = pos->next;
        s->settled(s);
    }
    watches_leave(&guard);
}

static void tree_event(struct watch_tree *t, enum watch_event e, const char *path, bool directory, void *arg)
{
    struct watcher *w = arg;
    (void)t;
    w->version++;
    list_for_each(pos, &w->subscribers)
    {
        struct watch_subscriber *s = list_entry(pos, struct watch_subscriber, link);
        if (s->event)
            s->event(s, e, path, directory);
    }
}

static void tree_ended(struct watch_tree *t, int err, const char *why, void *arg)
{
    (void)t;
    watcher_end(arg, err, why);
}

static void establish_late(struct timer *timer)
{
    struct watcher *w = container_of(timer, struct watcher, establish_timer);
    watcher_end(w, ETIMEDOUT, "The watch could not be established within 10 seconds");
}

static void retain_over(struct timer *timer)
{
    struct watcher *w = container_of(timer, struct watcher, retain_timer);
    w->retained = false;
    if (list_empty(&w->subscribers))
        watcher_free(w);
}

/* ------------------------------------------------------------------ joining */

static int request_key(const struct watch_request *q, struct buf *out)
{
    int r = buf_append(out, q->path, strlen(q->path) + 1);
    if (r == 0)
        r = buf_printf(out, "%d/%x/%zu", q->recursive, q->events, q->include_count);
    for (size_t i = 0; i < q->include_count && r == 0; i++)
        r = buf_append(out, q->include[i], strlen(q->include[i]) + 1);
    for (size_t i = 0; i < q->exclude_count && r == 0; i++)
        r = buf_append(out, q->exclude[i], strlen(q->exclude[i]) + 1);
    return r;
}

static struct watcher *find(struct watches *ws, const struct buf *key)
{
    list_for_each(pos, &ws->watchers)
    {
        struct watcher *w = list_entry(pos, struct watcher, link);
        if (buf_len(&w->key) == buf_len(key) && memcmp(buf_data(&w->key), buf_data(key), buf_len(key)) == 0)
            return w;
    }
    return NULL;
}

static int watcher_open(struct watcher *w, const struct watch_request *q, struct error *reterr)
{
    int r = 0;
    if (q->include_count)
        r = watch_glob_new((const char *const *)q->include, q->include_count, &w->include);
    if (r == 0)
        r = watch_glob_new((const char *const *)q->exclude, q->exclude_count, &w->exclude);
    if (r < 0)
        return error_set(reterr, -r, r == -E2BIG ? "The patterns are too long" : "Out of memory");
    struct watch_tree_config config = {
        .path = q->path,
        .recursive = q->recursive,
        .include = w->include,
        .exclude = w->exclude,
        .events = q->events,
        .settled = tree_settled,
        .event = tree_event,
        .ended = tree_ended,
        .arg = w,
    };
    return watch_tree_new(w->all->hub, &config, &w->tree, reterr);
}

static int watcher_new(struct watches *ws, const struct watch_request *q, struct buf *key,
                       struct watcher **ret, struct error *reterr)
{
    if (ws->count >= WATCHERS_MAX)
        return error_set(reterr, EBUSY, "Too many watches (limit %d)", WATCHERS_MAX);
    struct watcher *w = calloc(1, sizeof *w);
    if (!w)
        return error_set(reterr, ENOMEM, "Out of memory");
    w->all = ws;
    w->key = *key;
    *key = BUF_INIT(key->limit);
    list_init(&w->subscribers);
    list_append(&ws->watchers, &w->link);
    ws->count++;
    (void)snprintf(w->id, sizeof w->id, "watch-%llu-%lld", (unsigned long long)++ws->last_number,
                   (long long)clock_wall_ms());
    int r = watcher_open(w, q, reterr);
    if (r < 0) {
        watcher_free(w);
        return r;
    }
    loop_timer_start(ws->loop, &w->establish_timer, WATCH_ESTABLISH_MS, establish_late);
    *ret = w;
    return 0;
}

int watches_join(struct watches *ws, const struct watch_request *q, struct watch_subscriber *s,
                 bool *ret_created, struct error *reterr)
{
    struct buf key = BUF_INIT(1 << 20);
    int r = request_key(q, &key);
    if (r < 0) {
        buf_done(&key);
        return error_set(reterr, r == -ENOBUFS ? E2BIG : -r, "The patterns are too long");
    }
    struct watcher *w = find(ws, &key);
    *ret_created = !w;
    if (!w)
        r = watcher_new(ws, q, &key, &w, reterr);
    buf_done(&key);
    if (r < 0)
        return r;
    s->watcher = w;
    list_append(&w->subscribers, &s->link);
    return 0;
}

void watches_leave(struct watch_subscriber *s)
{
    struct watcher *w = s->watcher;
    if (!w)
        return;
    s->watcher = NULL;
    list_remove(&s->link);
    if (list_empty(&w->subscribers) && !w->retained)
        watcher_free(w);
}

const char *watcher_id(const struct watcher *w)
{
    return w->id;
}

bool watcher_established(const struct watcher *w)
{
    return w->established;
}

bool watcher_settled(struct watcher *w)
{
    watch_hub_poll(w->all->hub);
    return watch_tree_settled(w->tree);
}

uint64_t watcher_version(const struct watcher *w)
{
    return w->version;
}

void watcher_retain(struct watcher *w)
{
    w->retained = true;
    loop_timer_start(w->all->loop, &w->retain_timer, WATCH_RETAIN_MS, retain_over);
}
