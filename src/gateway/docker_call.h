/* SPDX-License-Identifier: Apache-2.0 */
/* docker_call.h: a short request of the engine's own to the agent of a container: one POST, a small answer.
 */
#pragma once

#include "gateway/lifecycle.h"

enum { DOCKER_CALL_BYTES = 64 * 1024 };

struct docker_call {
    /* err 0: the agent's answer; otherwise there is none. The call is free again. */
    void (*done)(struct docker_call *k, int err, int status, const char *body, size_t n);

    /* private */
    struct sandbox *sandbox; /* NULL: nothing under way */
    struct agent_want want;
    struct http_client *client;
    uint64_t generation;
    const char *target;
    struct buf body, answer;
    int status;
};

/* For a sandbox that is held. target must stay; body is taken over. done may be called from inside. */
void docker_call_start(struct docker_call *k, struct sandbox *sb, const char *target, struct buf *body,
                       void (*done)(struct docker_call *k, int err, int status, const char *body, size_t n));
void docker_call_cancel(struct docker_call *k); /* fine when nothing is under way */
