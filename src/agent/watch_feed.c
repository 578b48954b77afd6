/* SPDX-License-Identifier: Apache-2.0 */
/* watch_feed.c: see watch_feed.h. */
#include "agent/watch_feed.h"
#include "base/clock.h"
#include "base/json.h"

#include <string.h>

enum { HEADS = 1024 };

static size_t hash(enum watch_event e, const char *path, bool directory)
{
    uint32_t h = 2166136261u ^ (uint32_t)e * 2 ^ (uint32_t)directory;
    while (*path)
        h = (h ^ (unsigned char)*path++) * 16777619u;
    return h % HEADS;
}

static struct watch_feed_entry *find(struct watch_feed *f, size_t at, enum watch_event e, const char *path,
                                     bool directory)
{
    for (size_t i = f->heads[at]; i; i = f->entries[i - 1].next) {
        struct watch_feed_entry *entry = &f->entries[i - 1];
        if (entry->event == e && entry->directory == directory && strcmp(entry->path, path) == 0)
            return entry;
    }
    return NULL;
}

/* Room for one more entry; false: limits or memory. */
static bool feed_room(struct watch_feed *f, size_t len)
{
    if (f->count == WATCH_FEED_EVENTS_MAX || f->bytes + len > WATCH_FEED_BYTES_MAX)
        return false;
    if (f->count < f->cap)
        return true;
    size_t cap = f->cap ? 2 * f->cap : 16;
    struct watch_feed_entry *entries = reallocarray(f->entries, cap, sizeof *entries);
    if (!entries)
        return false;
    f->entries = entries;
    f->cap = cap;
    return true;
}

void watch_feed_add(struct watch_feed *f, enum watch_event e, const char *path, bool directory,
                    int64_t wall_ms)
{
    size_t at = hash(e, path, directory), len = strlen(path) + 1;
    if (!f->heads && !(f->heads = calloc(HEADS, sizeof *f->heads))) {
        f->dropped++;
        return;
    }
    struct watch_feed_entry *known = find(f, at, e, path, directory);
    if (known) {
        known->wall_ms = wall_ms;
        return;
    }
    char *copy = feed_room(f, len) ? strdup(path) : NULL;
    if (!copy) {
        f->dropped++;
        return;
    }
    f->bytes += len;
    f->entries[f->count++] = (struct watch_feed_entry){.path = copy,
                                                       .wall_ms = wall_ms,
                                                       .next = f->heads[at],
                                                       .event = (unsigned char)e,
                                                       .directory = directory};
    f->heads[at] = (uint16_t)f->count;
}

int watch_feed_json(const struct watch_feed *f, size_t i, struct buf *out)
{
    const struct watch_feed_entry *entry = &f->entries[i];
    struct json_writer w;
    char time[CLOCK_ISO_SIZE];
    clock_iso(entry->wall_ms, time);
    json_writer_init(&w, out);
    json_object_begin(&w);
    json_member_string(&w, "type", "event");
    json_member_string(&w, "eventType", watch_event_name(entry->event));
    json_put_key(&w, "path");
    json_put_bytes(&w, entry->path, strlen(entry->path));
    json_member_bool(&w, "isDirectory", entry->directory);
    json_member_string(&w, "timestamp", time);
    if (f->dropped > 0 && i + 1 == f->count)
        json_member_int(&w, "dropped", (int64_t)f->dropped);
    json_object_end(&w);
    return w.err;
}

void watch_feed_clear(struct watch_feed *f)
{
    for (size_t i = 0; i < f->count; i++)
        free(f->entries[i].path);
    free(f->entries);
    free(f->heads);
    *f = (struct watch_feed){0};
}
