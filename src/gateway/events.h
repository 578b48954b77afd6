/* SPDX-License-Identifier: Apache-2.0 */
/* events.h: what happens to sandboxes, told to everyone who listens.
 *
 * The last EVENTS_KEPT events are kept. A subscriber has no queue of its own, only a place in that ring: who
 * reads too slowly for it is told how many it missed. */
#pragma once

#include "gateway/auth.h"
#include "gateway/lifecycle.h"
#include "net/http.h"

enum { EVENTS_KEPT = 1024, EVENT_SUBSCRIBERS_MAX = 256 };

struct events;

int events_new(struct loop *loop, struct events **ret, struct error *reterr);
void events_free(struct events *e); /* NULL is fine; every stream must be over */
void events_add(struct events *e, const struct sandbox *sb, enum sandbox_event event, const char *reason);
/* Answers req with a stream: of one sandbox (id "" = all) and of those events only that who may see. last_id:
 * the id of the last event the caller has, NULL: only new ones. -EMFILE: too many subscribers, -ENOMEM; then
 * nothing was answered. */
int events_subscribe(struct events *e, struct http_request *req, const struct auth_identity *who,
                     const char *id, const char *last_id);
size_t events_subscribers(const struct events *e);
