/* SPDX-License-Identifier: Apache-2.0 */
/* dns_lookup.h: asking the host's resolvers for the addresses of a name, or whatever a client asks. */
#pragma once

#include "gateway/keeper_link.h"
#include "net/dns.h"
#include "net/loop.h"

struct dns_lookup;

struct dns_lookup_config {
    struct loop *loop;
    struct keeper_link *link;
    const char *id;   /* of the sandbox that asks */
    const char *name; /* whose addresses are wanted, of this type (DNS_TYPE_A, _AAAA); or NULL: */
    uint16_t type;
    const void *packet;
    const struct dns_query *query; /* a client's question (its packet and what was parsed of it), passed on */
    /* Once, from the loop; the lookup is gone then. reply NULL: nobody answered. */
    void (*done)(void *arg, struct dns_reply *reply);
    void *arg;
};

struct dns_lookup *dns_lookup_new(
    const struct dns_lookup_config *config);  /* NULL: out of memory, or no name */
void dns_lookup_cancel(struct dns_lookup *l); /* done is not called any more; NULL is fine */
