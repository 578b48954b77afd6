/* SPDX-License-Identifier: Apache-2.0 */
/* watch_share.h: watchers that equal requests share, and that live as long as somebody listens or checks. */
#pragma once

#include "agent/list.h"
#include "agent/watch.h"

enum { WATCHERS_MAX = 256, WATCH_RETAIN_MS = 10 * 60 * 1000, WATCH_ESTABLISH_MS = 10 * 1000 };

struct watches; /* all watchers */
struct watcher;

struct watch_request {
    char *path; /* absolute, normalised */
    bool recursive;
    char **include; /* sorted, each once */
    size_t include_count;
    char **exclude;
    size_t exclude_count;
    unsigned events;
};
void watch_request_done(struct watch_request *q);

/* Embedded in its owner. */
struct watch_subscriber {
    /* Everything that was there when asked is being watched; after joining, and again after directories were
     * added. May leave. */
    void (*settled)(struct watch_subscriber *s);
    /* May be NULL. Must not leave. */
    void (*event)(struct watch_subscriber *s, enum watch_event e, const char *path, bool directory);
    /* No longer joined. err 0: the path is gone; otherwise watching failed. */
    void (*ended)(struct watch_subscriber *s, int err, const char *why);

    struct watcher *watcher; /* NULL: not joined */
    struct list link;        /* private */
};

struct watches *watches_new(struct loop *loop);
void watches_free(struct watches *ws); /* NULL is fine; subscribers are told that it is over */

/* Joins a watcher for q, which is created when there is none (*ret_created). 0, -E2BIG (patterns), -EBUSY
 * (too many watchers) or why it cannot be watched. */
int watches_join(struct watches *ws, const struct watch_request *q, struct watch_subscriber *s,
                 bool *ret_created, struct error *reterr);
void watches_leave(struct watch_subscriber *s); /* fine when not joined */

const char *watcher_id(const struct watcher *w);
bool watcher_established(const struct watcher *w); /* it has settled once */
bool watcher_settled(struct watcher *w);           /* after handling all that has happened up to now */
uint64_t watcher_version(const struct watcher *w);
void watcher_retain(struct watcher *w); /* keeps it for WATCH_RETAIN_MS from now, also without subscribers */
