/* SPDX-License-Identifier: Apache-2.0 */
/* nft.h: the daemon's own table of packet filter rules. Per sandbox there are a few elements of sets; the
 * rules themselves never change while the daemon runs. */
#pragma once

#include "keeper/proto_network.h"

#include <net/if.h>

enum { NFT_TABLE_NAME_MAX = 95, NFT_RESOLVERS_MAX = 3 };
enum nft_family_index { NFT_V4, NFT_V6, NFT_FAMILIES };

struct nft_table {
    char name[NFT_TABLE_NAME_MAX + 1];
    char prefix[IFNAMSIZ];                 /* what the names of our links begin with, and no others */
    uint32_t pool;                         /* network order */
    unsigned pool_prefix;                  /* its length */
    bool ipv6;                             /* sandboxes have addresses of both families */
    struct ip prefix6;                     /* then: a /64; their IPv4 address makes the rest */
    uint32_t resolvers[NFT_RESOLVERS_MAX]; /* network order: reachable on port 53 wherever they are */
    size_t resolver_count;
    /* an interface that forwards this family only because of us: nothing but our traffic; "": none */
    char closed[NFT_FAMILIES][IFNAMSIZ];
    uint16_t log_group;    /* where refused packets are told ... */
    uint16_t answer_group; /* ... and what name servers answer */
    bool silent;           /* the kernel cannot tell of them */
};

struct nft_box {
    char link[IFNAMSIZ];
    uint32_t address;   /* the only source this link may use; network order */
    struct ip address6; /* and that of IPv6, if the table has it */
    bool listed;        /* goes only where the policy's rules and nft_box_allow say */
    struct keeper_policy policy;
};

/* The IPv6 address of whoever has this IPv4 address. */
struct ip nft_address6(const struct nft_table *t, uint32_t address);

/* Puts the table in place of an earlier one of that name, in one step: there is no moment without rules.
 * Addresses that were allowed for a time stay allowed for the rest of it. */
int nft_table_replace(const struct nft_table *t, const struct nft_box *boxes, size_t count,
                      struct error *reterr);
int nft_table_remove(const struct nft_table *t); /* 0 also when there is none */
int nft_table_exists(const struct nft_table *t); /* 1, 0, or -errno */

/* nft_box.c */
int nft_box_add(const struct nft_table *t, const struct nft_box *box, struct error *reterr);
/* From one policy to another in one step. What was allowed for a time is forgotten unless the new one keeps
 * it. */
int nft_box_change(const struct nft_table *t, const struct nft_box *from, const struct nft_box *to,
                   struct error *reterr);
/* Everything of this link and address; 0 also when nothing is there. certain: box says what there is. */
int nft_box_remove(const struct nft_table *t, const struct nft_box *box, bool certain);
/* The rules' addresses and ports for so many seconds from now. */
int nft_box_allow(const struct nft_table *t, uint32_t address, const struct keeper_policy *rules,
                  struct error *reterr);
/* What is allowed for a time now: calls found(destination, port or 0). */
int nft_box_allowed(const struct nft_table *t, uint32_t address,
                    void (*found)(const struct ip *destination, uint16_t port, void *arg), void *arg);
