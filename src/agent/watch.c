/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c: the one inotify instance, and who is told what it says.
 *
 * Theory of operation
 * All trees share one inotify instance, because a user may only have 128 of them. The kernel gives a
 * directory one watch descriptor per instance, so a directory that lies in several trees has one descriptor
 * and several nodes; the descriptor is given up with its last node. The instance exists only while there are
 * trees. Directories are looked through (to watch what is below them) a few at a time from the loop, so that
 * a large tree does not hold up other requests. A tree that must end is marked, and its owner told from the
 * loop, never from inside the handling of an event. */
#include "agent/watch_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    EVENTS_SIZE = 16 * 1024,
    SCAN_BUDGET = 512,    /* directory entries per turn of the loop */
    LIMBO_MS = 100,       /* from "moved from" to "moved to" */
    POLL_READS_MAX = 256, /* 4 MiB: more than the kernel queues by default */
};

static const char *const event_names[] = {
    [WATCH_CREATE] = "create",       [WATCH_MODIFY] = "modify",   [WATCH_DELETE] = "delete",
    [WATCH_MOVE_FROM] = "move_from", [WATCH_MOVE_TO] = "move_to", [WATCH_ATTRIB] = "attrib",
};
_Static_assert(ARRAY_SIZE(event_names) == WATCH_EVENT_COUNT, "name every event");

const char *watch_event_name(enum watch_event e)
{
    return event_names[e];
}

bool watch_event_parse(const char *name, enum watch_event *ret)
{
    for (size_t i = 0; i < WATCH_EVENT_COUNT; i++)
        if (strcmp(name, event_names[i]) == 0) {
            *ret = (enum watch_event)i;
            return true;
        }
    return false;
}

struct watch_hub *watch_hub_new(struct loop *loop)
{
    struct watch_hub *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->loop = loop;
    h->fd = -1;
    h->source.fd = -1;
    list_init(&h->trees);
    return h;
}

static void hub_close_fd(struct watch_hub *h)
{
    loop_del(h->loop, &h->source);
    close_fd(&h->fd);
}

static void hub_close(struct watch_hub *h)
{
    hub_close_fd(h);
    loop_undefer(h->loop, &h->work);
    loop_timer_stop(h->loop, &h->limbo_timer);
    free(h->events);
    free(h->buckets);
    h->events = NULL;
    h->buckets = NULL;
    h->bucket_count = 0;
}

void watch_hub_free(struct watch_hub *h)
{
    if (!h)
        return;
    hub_close(h);
    free(h);
}

/* ------------------------------------------------------------------ nodes by watch descriptor */

struct watch_node *watch_hub_find(struct watch_hub *h, const struct watch_tree *t, int wd)
{
    if (h->bucket_count == 0)
        return NULL;
    struct watch_node *n = h->buckets[(size_t)wd & (h->bucket_count - 1)];
    while (n && (n->wd != wd || n->tree != t))
        n = n->next_wd;
    return n;
}

static int hub_grow(struct watch_hub *h)
{
    size_t count = h->bucket_count ? 2 * h->bucket_count : 64;
    struct watch_node **buckets = calloc(count, sizeof(struct watch_node *));
    if (!buckets)
        return -ENOMEM;
    for (size_t i = 0; i < h->bucket_count; i++)
        while (h->buckets[i]) {
            struct watch_node *n = h->buckets[i], **to = &buckets[(size_t)n->wd & (count - 1)];
            h->buckets[i] = n->next_wd;
            n->next_wd = *to;
            *to = n;
        }
    free(h->buckets);
    h->buckets = buckets;
    h->bucket_count = count;
    return 0;
}

int watch_hub_insert(struct watch_hub *h, struct watch_node *n)
{
    if (h->node_count >= h->bucket_count) {
        int r = hub_grow(h);
        if (r < 0)
            return r;
    }
    struct watch_node **to = &h->buckets[(size_t)n->wd & (h->bucket_count - 1)];
    n->next_wd = *to;
    *to = n;
    h->node_count++;
    return 0;
}

void watch_hub_remove(struct watch_hub *h, struct watch_node *n, bool wd_is_gone)
{
    struct watch_node **at = &h->buckets[(size_t)n->wd & (h->bucket_count - 1)];
    bool shared = false;
    for (struct watch_node *other = *at; other; other = other->next_wd)
        shared = shared || (other != n && other->wd == n->wd);
    while (*at != n)
        at = &(*at)->next_wd;
    *at = n->next_wd;
    h->node_count--;
    if (!shared && !wd_is_gone && h->fd >= 0)
        (void)inotify_rm_watch(h->fd, n->wd); /* fails when the kernel was faster: the directory is deleted */
}

/* ------------------------------------------------------------------ events */

void watch_tree_end(struct watch_tree *t, int err, const char *fmt, ...)
{
    va_list ap;
    if (t->over)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(t->over_why, sizeof t->over_why, fmt, ap);
    va_end(ap);
    t->over = true;
    t->over_err = err;
    watch_hub_schedule(t->hub);
}

static void hub_event(struct watch_hub *h, const struct inotify_event *e)
{
    list_for_each(pos, &h->trees)
    {
        struct watch_tree *t = list_entry(pos, struct watch_tree, link);
        if (t->over)
            continue;
        if (e->mask & IN_Q_OVERFLOW) {
            watch_tree_end(
                t, EOVERFLOW,
                "Too many changes at once: the kernel's event queue overflowed and events were lost");
            continue;
        }
        struct watch_node *n = watch_hub_find(h, t, e->wd);
        if (n)
            watch_tree_inotify(n, e);
    }
}

static void limbo_over(struct timer *timer)
{
    struct watch_hub *h = container_of(timer, struct watch_hub, limbo_timer);
    watch_hub_poll(h); /* the other half of a move may wait there */
    list_for_each(pos, &h->trees) watch_tree_drop_limbo(list_entry(pos, struct watch_tree, link));
}

/* One buffer full; false when there is nothing to read. */
static bool hub_read(struct watch_hub *h)
{
    ssize_t n = read(h->fd, h->events, EVENTS_SIZE);
    if (n <= 0)
        return false;
    for (ssize_t at = 0; at < n;) {
        /* the kernel pads every event to the alignment of the next */
        const struct inotify_event *e = (const struct inotify_event *)(const void *)(h->events + at);
        hub_event(h, e);
        at += (ssize_t)(sizeof *e + e->len);
    }
    bool limbo = false;
    list_for_each(pos, &h->trees) limbo =
        limbo || !list_empty(&list_entry(pos, struct watch_tree, link)->limbo);
    if (limbo && !loop_timer_running(&h->limbo_timer))
        loop_timer_start(h->loop, &h->limbo_timer, LIMBO_MS, limbo_over);
    return true;
}

static void hub_ready(struct source *s, uint32_t events)
{
    (void)events;
    (void)hub_read(container_of(s, struct watch_hub, source));
}

void watch_hub_poll(struct watch_hub *h)
{
    for (int i = 0; i < POLL_READS_MAX && h->fd >= 0 && hub_read(h);)
        i++;
}

/* ------------------------------------------------------------------ work from the loop */

/* The tree to be told something, or NULL. Its owner may free any tree when told, so the list is searched anew
 * each time. */
static struct watch_tree *hub_news(struct watch_hub *h)
{
    list_for_each(pos, &h->trees)
    {
        struct watch_tree *t = list_entry(pos, struct watch_tree, link);
        if (t->over || (!t->settled && list_empty(&t->scans) && !t->scanning))
            return t;
    }
    return NULL;
}

static void hub_work(struct deferred *d)
{
    struct watch_hub *h = container_of(d, struct watch_hub, work);
    struct watch_tree *t;
    unsigned budget = SCAN_BUDGET;
    bool more = false;
    list_for_each(pos, &h->trees)
    {
        t = list_entry(pos, struct watch_tree, link);
        more = (!t->over && watch_tree_scan(t, &budget)) || more;
    }
    while ((t = hub_news(h))) {
        if (t->over) {
            t->config.ended(t, t->over_err, t->over_why, t->config.arg); /* frees it */
        } else {
            t->settled = true;
            t->config.settled(t, t->config.arg);
        }
    }
    if (more && h->fd >= 0)
        watch_hub_schedule(h);
}

void watch_hub_schedule(struct watch_hub *h)
{
    loop_defer(h->loop, &h->work, hub_work);
}

/* ------------------------------------------------------------------ the life of the instance */

int watch_hub_open(struct watch_hub *h, struct error *reterr)
{
    if (h->fd >= 0)
        return 0;
    auto_close int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd < 0)
        return error_sys(reterr, errno, "Cannot start watching (inotify)");
    h->events = malloc(EVENTS_SIZE);
    if (!h->events)
        return error_set(reterr, ENOMEM, "Out of memory");
    int r = loop_add(h->loop, &h->source, fd, EPOLLIN, hub_ready);
    if (r < 0) {
        free(h->events);
        h->events = NULL;
        return error_set(reterr, -r, "Cannot start watching");
    }
    h->fd = take_fd(fd);
    return 0;
}

void watch_hub_leave(struct watch_tree *t)
{
    list_remove(&t->link);
    if (list_empty(&t->hub->trees))
        hub_close_fd(t->hub); /* far cheaper than giving up every watch by itself */
}

void watch_hub_release(struct watch_hub *h)
{
    if (list_empty(&h->trees))
        hub_close(h);
}
