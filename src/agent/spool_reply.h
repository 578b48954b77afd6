/* SPDX-License-Identifier: Apache-2.0 */
/* spool_reply.h: a JSON answer with two outputs in it, streamed from their spools however large they are. */
#pragma once

#include "agent/agent.h"
#include "agent/reply.h"

struct spool_part {
    struct spool *spool;
    uint64_t begin, end; /* the part of it that is to be sent, as far as it is still there */
};

/* Sends what is in head (begun with reply_begin, still open) followed by "stdout", "stderr", "dropped" (the
 * number of bytes that are gone, if there are any) and the timestamp. Takes over head and holds the spools
 * until it is done. utf8_flags: UTF8_DROP_NUL or 0. */
void spool_reply_send(struct agent *a, struct http_request *req, struct reply *head, struct spool_part out,
                      struct spool_part err, unsigned utf8_flags);
