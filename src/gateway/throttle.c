/* SPDX-License-Identifier: Apache-2.0 */
/* throttle.c: see throttle.h. An address lives in one of the eight places of its set; when all are taken, the
 * one whose failures are oldest is forgotten. The seed is secret, so that nobody can choose addresses which
 * crowd another out. */
#include "gateway/throttle.h"
#include "base/id.h"

#include <string.h>

void throttle_init(struct throttle *t)
{
    memset(t, 0, sizeof *t);
    random_bytes(&t->seed, sizeof t->seed);
}

/* 0: not counted. The port is not part of it. */
static uint64_t key_of(const struct throttle *t, const char *peer)
{
    const char *end = strrchr(peer, ':');
    uint64_t h = t->seed;
    if (!end)
        return 0;
    for (const char *p = peer; p < end; p++) {
        h = (h ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
        h ^= h >> 29;
    }
    return h ? h : 1;
}

int throttle_wait(const struct throttle *t, const char *peer, int64_t now_ms)
{
    uint64_t key = key_of(t, peer);
    if (!key)
        return 0;
    const struct throttle_entry *set = t->entries[key % THROTTLE_SETS];
    for (size_t i = 0; i < THROTTLE_WAYS; i++)
        if (set[i].key == key && set[i].blocked_until_ms > now_ms)
            return (int)((set[i].blocked_until_ms - now_ms + 999) / 1000);
    return 0;
}

void throttle_failed(struct throttle *t, const char *peer, int64_t now_ms)
{
    uint64_t key = key_of(t, peer);
    if (!key)
        return;
    struct throttle_entry *set = t->entries[key % THROTTLE_SETS], *e = &set[0];
    for (size_t i = 0; i < THROTTLE_WAYS; i++) {
        if (set[i].key == key) {
            e = &set[i];
            break;
        }
        if (!set[i].key || set[i].since_ms < e->since_ms)
            e = &set[i];
    }
    if (e->key != key || now_ms - e->since_ms >= THROTTLE_WINDOW_MS)
        *e = (struct throttle_entry){.key = key, .since_ms = now_ms, .blocked_until_ms = 0};
    if (++e->failures >= THROTTLE_FAILURES) {
        e->blocked_until_ms = now_ms + THROTTLE_BLOCK_MS;
        e->failures = 0;
    }
}
