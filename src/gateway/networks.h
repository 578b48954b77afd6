/* SPDX-License-Identifier: Apache-2.0 */
/* networks.h: the networks of sandboxes as the gateway serves them: who has which address, the resolvers of
 * those with an allow-list, changes while they run, and the log of what they connect to. */
#pragma once

#include "gateway/flow_log.h"
#include "gateway/keeper_link.h"
#include "gateway/problem.h"
#include "gateway/sandbox_reach.h"

struct networks;
struct box_network; /* of one sandbox; belongs to struct sandbox */
struct sandbox;

struct networks_stats {
    uint64_t opened, refused_packets, refused_names;
    uint64_t sent_bytes, received_bytes; /* of connections that are over */
};

int networks_new(struct loop *loop, struct keeper_link *link, struct networks **ret, struct error *reterr);
void networks_free(struct networks *n); /* NULL is fine; every sandbox is gone */
const struct networks_stats *networks_stats(const struct networks *n);

/* All of the following are fine with n == NULL: then sandboxes have no networks to serve. */

/* It is about to be started with this configuration. */
void network_starting(struct networks *n, struct sandbox *sb);
/* The keeper says it runs, and with which addresses. ready is called once what it needs is there, perhaps at
 * once. again: it ran before, and nothing has changed. */
void network_up(struct networks *n, struct sandbox *sb, const struct keeper_reply *told, bool again,
                void (*ready)(struct sandbox *sb));
void network_down(struct networks *n, struct sandbox *sb);   /* it ended */
void network_forget(struct networks *n, struct sandbox *sb); /* it is removed */

/* One who waits until what is configured holds for the sandbox that runs. */
struct network_wait {
    void (*done)(struct network_wait *w, const struct problem *p); /* p NULL: it does */
    struct network_wait *next, **prev;                             /* prev NULL: does not wait */
};
/* Brings the running sandbox to its configuration. done is called from the loop, or at once when nothing has
 * to be done. */
void network_follow(struct networks *n, struct sandbox *sb, struct network_wait *w);
void network_wait_cancel(struct network_wait *w); /* fine when not waiting */

/* NULL: nothing was logged. */
struct flow_log *network_log(const struct sandbox *sb);
/* The same, made if there is none; NULL: out of memory. */
struct flow_log *network_log_make(struct networks *n, struct sandbox *sb);
uint32_t network_address_of(const struct sandbox *sb);          /* 0: it has no link */
const struct ip *network_address6_of(const struct sandbox *sb); /* NULL: it has none */
