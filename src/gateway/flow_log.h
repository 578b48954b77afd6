/* SPDX-License-Identifier: Apache-2.0 */
/* flow_log.h: what one sandbox did in the network: the last entries, and who follows them. */
#pragma once

#include "base/json.h"
#include "gateway/flow_parse.h"
#include "net/http.h"
#include "net/loop.h"

enum { FLOW_LOG_KEPT = 512, FLOW_LOG_FOLLOWERS_MAX = 16 };

struct flow_log;

struct flow_log *flow_log_new(struct loop *loop); /* NULL: out of memory */
void flow_log_free(struct flow_log *l);           /* NULL is fine; ends the streams */

/* name: NULL when not known; reason: why it was refused, otherwise NULL. */
void flow_log_add(struct flow_log *l, const struct flow *f, const char *name, const char *reason);
/* A question to the resolver that was refused, or an address in its answer; NULL: the question itself. */
void flow_log_add_name(struct flow_log *l, const char *name, const struct ip *address, const char *reason);

/* An array, the oldest first; l NULL: an empty one. */
void flow_log_put_json(const struct flow_log *l, struct json_writer *w);
/* Answers with a stream that begins with what is kept. -EMFILE: too many do; then there is no answer yet. */
int flow_log_follow(struct flow_log *l, struct http_request *req);
