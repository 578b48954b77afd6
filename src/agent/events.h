/* SPDX-License-Identifier: Apache-2.0 */
/* events.h: output as server-sent events, many in one write. */
#pragma once

#include "base/buf.h"
#include "base/json.h"
#include "base/utf8.h"
#include "net/http.h"

enum {
    EVENT_PIECE = 64 * 1024, /* a longer line is sent in pieces of this size */
    EVENT_OUT_MAX = 64 << 20,
};

/* The unchanging parts of the events of one stream, and the buffer they are made in.
 *
 * With a run every event has an id line, `<run>-<stdout>-<stderr>`: whose output it is, and how many bytes of
 * each have been told with it. The last one ends in `-end`. */
struct event_frame {
    struct buf suffix; /* `","processId":"x","timestamp":"T"}\n`, and another `\n` without ids */
    char *process_id;  /* NULL: without */
    struct buf out;
    uint64_t run;         /* 0: no ids */
    uint64_t position[2]; /* bytes put */
    uint64_t told[2];     /* ... without those of a character that is not complete */
    bool last;            /* the next event is the last one */
    bool named;           /* every event has a line with its type */
};

int event_frame_init(struct event_frame *f, const char *process_id);
void event_frame_done(struct event_frame *f);
/* Renews the timestamp; to be called once per burst of events. */
void event_frame_stamp(struct event_frame *f);

/* One event with this data (which may lack the end of a character: it waits in st). Nothing when nothing can
 * be decoded. stream: 1 or 2. */
void event_put(struct event_frame *f, int stream, struct utf8_stream *st, unsigned utf8_flags,
               const char *data, size_t n, bool final);
/* One event per line of the data. Returns how much was used: a last piece without newline stays, unless it is
 * the whole data and long (EVENT_PIECE) or `final`. */
size_t event_put_lines(struct event_frame *f, int stream, struct utf8_stream *st, const char *data, size_t n,
                       bool final);
/* Parts of one event whose data comes in pieces. */
void event_open(struct event_frame *f, int stream);
void event_close(struct event_frame *f);

/* Sends what has been put; false: wait for on_drain. */
bool event_flush(struct event_frame *f, struct http_request *req);

/* A last or other single event: opens the object with "type"; event_end adds the timestamp and puts it into
 * f->out. */
void event_begin(struct json_writer *w, struct buf *json, const char *type);
void event_end(struct event_frame *f, struct json_writer *w, struct buf *json);
