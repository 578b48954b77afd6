/* SPDX-License-Identifier: Apache-2.0 */
/* watch_feed.h: the events one subscriber has not been sent yet: equal ones collapse, their number is
 * bounded. */
#pragma once

#include "agent/watch.h"
#include "base/buf.h"

enum { WATCH_FEED_EVENTS_MAX = 1000, WATCH_FEED_BYTES_MAX = 512 * 1024 };

struct watch_feed_entry {
    char *path;
    int64_t wall_ms; /* of the last of the equal events */
    uint16_t next;   /* 1 + index of the next with the same hash, 0: none */
    unsigned char event;
    bool directory;
};

struct watch_feed {
    struct watch_feed_entry *entries; /* in order of their first occurrence */
    uint16_t *heads;                  /* hash table */
    size_t count, cap, bytes;
    uint64_t dropped; /* events that found no room since the last clear */
};

/* Zero-initialised is empty. */
void watch_feed_add(struct watch_feed *f, enum watch_event e, const char *path, bool directory,
                    int64_t wall_ms);
/* The JSON of entry i, which tells the number of dropped events when it is the last one. */
int watch_feed_json(const struct watch_feed *f, size_t i, struct buf *out);
void watch_feed_clear(struct watch_feed *f); /* frees all memory */
