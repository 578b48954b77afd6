/* SPDX-License-Identifier: Apache-2.0 */
/* nft.h: the daemon's own table of packet filter rules. Per sandbox there is one element of one set; the
 * rules themselves never change while the daemon runs. */
#pragma once

#include "base/error.h"

#include <net/if.h>

enum { NFT_TABLE_NAME_MAX = 95, NFT_RESOLVERS_MAX = 3 };

struct nft_table {
    char name[NFT_TABLE_NAME_MAX + 1];
    char prefix[IFNAMSIZ];                 /* what the names of our links begin with, and no others */
    uint32_t pool;                         /* network order */
    unsigned pool_prefix;                  /* its length */
    uint32_t resolvers[NFT_RESOLVERS_MAX]; /* network order: reachable on port 53 wherever they are */
    size_t resolver_count;
    char closed[IFNAMSIZ]; /* an interface that forwards only because of us: nothing but our traffic; "": none
                            */
};

struct nft_box {
    char link[IFNAMSIZ];
    uint32_t address; /* the only source this link may use; network order */
};

/* Puts the table in place of an earlier one of that name, in one step: there is no moment without rules. */
int nft_table_replace(const struct nft_table *t, const struct nft_box *boxes, size_t count,
                      struct error *reterr);
int nft_table_remove(const struct nft_table *t); /* 0 also when there is none */
int nft_box_add(const struct nft_table *t, const struct nft_box *box, struct error *reterr);
int nft_box_remove(const struct nft_table *t, const struct nft_box *box); /* 0 also when it is not there */
