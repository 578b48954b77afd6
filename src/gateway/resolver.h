/* SPDX-License-Identifier: Apache-2.0 */
/* resolver.h: the name server of one sandbox with an allow-list. */
#pragma once

#include "gateway/allow_list.h"
#include "gateway/keeper_link.h"
#include "net/loop.h"

struct resolver;

struct resolver_config {
    struct loop *loop;
    struct keeper_link *link;
    const char *id; /* of the sandbox */
    bool ipv6;      /* the sandbox has addresses of both families */
    /* A question was refused, or an address in the answer to it (NULL: the question itself). */
    void (*refused)(void *arg, const char *name, const struct ip *address, const char *why);
    void *arg;
};

/* Takes over list. NULL: out of memory; then the list is freed. */
struct resolver *resolver_new(const struct resolver_config *config, struct allow_list *list);
void resolver_free(struct resolver *r); /* NULL is fine */

/* The sandbox runs: asks the keeper for the sockets inside. ready comes once from the loop, with 0 or -errno,
 * unless the resolver is freed before. */
void resolver_open(struct resolver *r, void (*ready)(void *arg, int err), void *arg);
/* The sandbox ended: the sockets are let go; names are remembered until the next resolver_open. */
void resolver_close(struct resolver *r);
/* Another list from now on; takes it over. Names it does not allow are forgotten. */
void resolver_use(struct resolver *r, struct allow_list *list);
/* The keeper has forgotten all addresses: tells it those of the names that are still allowed. done comes once
 * from the loop, unless the resolver is freed before. */
void resolver_allow_again(struct resolver *r, void (*done)(void *arg), void *arg);
/* The name through which this address became known last; NULL: none. */
const char *resolver_name(const struct resolver *r, const struct ip *address);
