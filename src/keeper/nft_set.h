/* SPDX-License-Identifier: Apache-2.0 */
/* nft_set.h: sets of the packet filter and their elements as netlink messages; goes with nft_rule.h. */
#pragma once

#include "keeper/nft_rule.h"

enum {
    NFT_TYPE_IPV4 = 7, /* how the nft program shows a key; the kernel does not look at it */
    NFT_TYPE_IPV6 = 8,
    NFT_TYPE_PROTOCOL = 12,
    NFT_TYPE_PORT = 13,
    NFT_TYPE_IFNAME = 41,
};

struct nft_set {
    const char *name;
    uint32_t id;
    uint32_t flags;
    uint32_t key_type, key_len;
    uint32_t size;          /* 0: no bound */
    uint32_t timeout_ms;    /* of elements without one of their own; 0: they stay */
    const uint32_t *fields; /* of a key with ranges in several fields: their lengths, ends with 0 */
    bool verdicts;          /* a map from keys to chains */
};
void nft_put_set(struct nl_buf *b, const char *table, const struct nft_set *s);

struct nft_element {
    const void *key;
    size_t key_len;
    const void *key_end; /* NULL: not a range */
    uint32_t flags;
    uint64_t timeout_ms; /* 0: the set's */
    const char *chain;   /* where a map of verdicts leads to; NULL */
};
/* type: NFT_MSG_NEWSETELEM with NLM_F_CREATE, or NFT_MSG_DELSETELEM. */
void nft_put_element(struct nl_buf *b, const char *table, const char *set, int type, uint16_t flags,
                     const struct nft_element *e);

/* Calls found for every element: its key (and the end of a range, or NULL), and the time it has left. */
int nft_set_each(const char *table, const char *set, size_t key_len,
                 void (*found)(const void *key, const void *key_end, uint64_t left_ms, void *arg), void *arg);
