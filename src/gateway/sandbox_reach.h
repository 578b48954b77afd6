/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_reach.h: what a caller may decide about a sandbox's network; may change while it runs. */
#pragma once

#include "base/json.h"
#include "gateway/problem.h"
#include "keeper/proto.h"

struct sandbox_reach {
    enum keeper_network network;
    char *allow;               /* with ALLOWLIST: checked entries, a line each; NULL: none */
    uint64_t bytes_per_second; /* each way; 0: no limit */
    uint32_t connections;      /* at a time; 0: the default */
};

int sandbox_reach_copy(struct sandbox_reach *dst, const struct sandbox_reach *src); /* 0, -ENOMEM */
void sandbox_reach_done(struct sandbox_reach *r);
bool sandbox_reach_equal(const struct sandbox_reach *a, const struct sandbox_reach *b);

/* The member `network`: "none", "public" or {"mode": ..., "allow": [...]}; absent or null: unchanged. 0, or
 * -EINVAL with *p. */
int sandbox_reach_apply(struct sandbox_reach *r, const struct json_value *v, struct problem *p);
/* "host[:port],..." as on a command line. */
int sandbox_reach_allow_words(struct sandbox_reach *r, const char *words, struct error *reterr);
/* Writes {"mode": ..., "allow": [...]}; fallback: what DEFAULT means here. */
void sandbox_reach_put_json(struct json_writer *w, const struct sandbox_reach *r, bool has_network);
/* Both have lists, and what `before` allows this one allows as well. */
bool sandbox_reach_extends(const struct sandbox_reach *r, const struct sandbox_reach *before);
/* Does it open private networks that `before` does not? */
bool sandbox_reach_opens_private(const struct sandbox_reach *r, const struct sandbox_reach *before);
/* What the keeper is told. */
void sandbox_reach_policy(const struct sandbox_reach *r, struct keeper_policy *ret);
