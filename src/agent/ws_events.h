/* SPDX-License-Identifier: Apache-2.0 */
/* ws_events.h: an event stream (text/event-stream) taken apart again, piece by piece. */
#pragma once

#include "base/buf.h"

enum { WS_EVENT_BYTES_MAX = 64 << 20 }; /* of one event */

struct ws_events {
    struct buf line;  /* not complete yet */
    struct buf data;  /* of the event so far */
    struct buf event; /* its name; empty: none */
    bool has_data;
};

void ws_events_init(struct ws_events *e);
void ws_events_done(struct ws_events *e);
/* event is NULL when the stream did not name it. false: an event is too large, or memory is short. */
bool ws_events_feed(struct ws_events *e, const char *bytes, size_t n,
                    void (*each)(struct ws_events *e, const char *event, const char *data, size_t n));
