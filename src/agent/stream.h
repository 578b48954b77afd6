/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h: following a process over a response. */
#pragma once

#include "agent/process.h"

enum stream_kind {
    STREAM_EXECUTE, /* start, output, complete */
    STREAM_PROCESS, /* process_info, everything so far, output, exit */
};

/* Where a client wants to go on: the id of the last event it has seen (events.h), given as Last-Event-ID. */
struct stream_position {
    bool ids;     /* it wants to see ids at all: the header, or ?ids=1 */
    bool resumes; /* what follows is set */
    bool ended;   /* it has seen the last event */
    bool rpc;     /* ?rpc: the events as /rpc has them */
    uint64_t run, offset[2];
};
struct stream_position stream_position_of(const struct http_request *req);

/* Begins the event stream, or goes on at the position if that is of this process; from NULL: without ids.
 * -ENOMEM: nothing was sent. */
int stream_attach(struct process *p, struct http_request *req, enum stream_kind kind,
                  const struct stream_position *from);
