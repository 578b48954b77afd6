/* SPDX-License-Identifier: Apache-2.0 */
/* agent_probe.h: a short question of the gateway's own to the agent of a sandbox, on a connection made for
 * it: one GET, a deadline, a small answer. Not a use: it keeps nothing awake. */
#pragma once

#include "base/buf.h"
#include "gateway/keeper_link.h"
#include "net/http.h"

enum { AGENT_PROBE_BYTES = 256 * 1024 };

struct agent_probe {
    struct loop *loop;
    struct keeper_link *link;
    const char *id, *path;
    /* err 0: the body of a 200 answer, NUL-terminated; -ETIMEDOUT, -EBADMSG (any other answer), -ENOBUFS, or
     * the keeper's. The probe is free again. */
    void (*done)(struct agent_probe *p, int err, char *body, size_t n);
    void (*settled)(struct agent_probe *p); /* connecting fell to false after a cancel; may be NULL */
    struct http_client *client;
    struct timer deadline;
    struct buf body;
    int status;
    bool running;
    bool connecting; /* a reply of the keeper will come: the memory must stay */
};

void agent_probe_init(struct agent_probe *p, struct loop *loop, struct keeper_link *link, const char *id);
/* path must stay. False when one is running, or not settled after a cancel. done is not called from inside.
 */
bool agent_probe_start(struct agent_probe *p, const char *path, int64_t deadline_ms,
                       void (*done)(struct agent_probe *p, int err, char *body, size_t n));
void agent_probe_cancel(struct agent_probe *p); /* done is not called; fine when none runs */
