/* SPDX-License-Identifier: Apache-2.0 */
/* nft_internal.h: shared by nft.c (the rules) and nft_box.c (the elements of one sandbox). */
#pragma once

#include "keeper/nft.h"
#include "keeper/nft_set.h"

enum {
    NFT_BOX_BYTES = 16384, /* more than all elements of one sandbox take */
    NFT_METERS_MAX = 65535,
};

/* A destination that is allowed for a time: an element of the set "pins". Laid out as the kernel's key. */
struct nft_pin {
    uint32_t source, destination;
    uint16_t port; /* network order; 0: any */
    uint16_t zero;
};

void nft_put_box(struct nl_buf *b, const struct nft_table *t, const struct nft_box *box);
void nft_put_pin(struct nl_buf *b, const struct nft_table *t, int type, uint16_t flags,
                 const struct nft_pin *pin, uint64_t ms);
/* A chain and a set for sandboxes that may have so many connections; nothing for the default. */
void nft_put_class(struct nl_buf *b, const struct nft_table *t, uint32_t connections, uint32_t set_id);
/* nft.c: accepts new connections up to a number of them. */
void nft_put_count_rules(struct nl_buf *b, const struct nft_table *t, const char *chain, const char *set,
                         uint32_t set_id, uint32_t connections);
