/* SPDX-License-Identifier: Apache-2.0 */
/* keeper_link.h: asking the keeper: requests out, replies matched by number, events. */
#pragma once

#include "base/error.h"
#include "keeper/proto.h"
#include "net/loop.h"

struct keeper_link;

/* A reply; fd is the callee's to close, -1 when none came. A KEEPER_ITEM is followed by more, everything else
 * is the last word on its request. */
typedef void keeper_done(void *arg, const struct keeper_reply *reply, int fd);

struct keeper_link_ops {
    void (*event)(void *arg, const struct keeper_reply *event);
    void (*gone)(void *arg); /* the keeper ended or broke the protocol; no reply will come any more */
    void *arg;
};

/* Takes over fd. */
int keeper_link_new(struct loop *loop, int fd, const struct keeper_link_ops *ops, struct keeper_link **ret,
                    struct error *reterr);
void keeper_link_free(struct keeper_link *k); /* NULL is fine; no callbacks */

/* Sends *request (version and seq are filled in here) with a descriptor (or -1), which stays the caller's.
 * done is called exactly once (more often for items) from the loop, never from inside this call; without
 * memory or after `gone` too, with error ENOMEM or ECONNRESET. */
void keeper_link_send(struct keeper_link *k, const struct keeper_request *request, int fd, keeper_done *done,
                      void *arg);
