/* SPDX-License-Identifier: Apache-2.0 */
/* throttle.h: who guesses tokens has to wait: failures counted per address, in a table of fixed size. */
#pragma once

#include "base/util.h"

enum {
    THROTTLE_FAILURES = 20,     /* so many wrong tokens ... */
    THROTTLE_WINDOW_MS = 10000, /* ... within this time ... */
    THROTTLE_BLOCK_MS = 10000,  /* ... close the door for this long */
    THROTTLE_SETS = 128,
    THROTTLE_WAYS = 8,
};

struct throttle {
    uint64_t seed;
    struct throttle_entry {
        uint64_t key; /* 0: free */
        int64_t since_ms, blocked_until_ms;
        unsigned failures;
    } entries[THROTTLE_SETS][THROTTLE_WAYS];
};

void throttle_init(struct throttle *t);
/* Seconds the peer ("address:port") still has to wait, 0: none. Unix sockets ("unix") never wait: who may
 * open them was decided by their mode. */
int throttle_wait(const struct throttle *t, const char *peer, int64_t now_ms);
void throttle_failed(struct throttle *t, const char *peer, int64_t now_ms);
