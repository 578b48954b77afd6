/* SPDX-License-Identifier: Apache-2.0 */
/* main_log.h: the last of what a container's program has written, for whoever asks later. */
#pragma once

#include "agent/agent.h"

enum { MAIN_LOG_BYTES = 256 * 1024 };

/* Whole frames as the engine's API has them: the stream's number, three zeros, the length, the bytes. */
struct main_log {
    struct buf frames;
    struct list readers; /* who follows */
    bool ended;
};

void main_log_init(struct main_log *l);
void main_log_end(struct main_log *l); /* nothing more comes: who follows has seen all */
void main_log_done(struct main_log *l);
/* stream: 1 output, 2 error output. The oldest frames make room. */
void main_log_add(struct main_log *l, int stream, const char *data, size_t n);
/* Answers GET /container/logs?stdout=1&stderr=1&follow=1. */
void main_log_request(struct agent *a, struct main_log *l, struct http_request *req);
