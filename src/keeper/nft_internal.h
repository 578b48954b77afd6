/* SPDX-License-Identifier: Apache-2.0 */
/* nft_internal.h: shared by nft.c (the rules), nft_table.c (the table as a whole) and nft_box.c (the elements
 * of one sandbox).
 *
 * What there is for a family is there for both: the same chains and sets, those of IPv6 with a 6 behind their
 * name. Where a sandbox is only counted or looked up by its source, both families use one set: a sandbox's
 * IPv6 address ends with its IPv4 address, and these four bytes are the key. */
#pragma once

#include "keeper/nft.h"
#include "keeper/nft_set.h"

enum {
    NFT_BOX_BYTES = 20480, /* more than all elements of one sandbox take */
    NFT_METERS_MAX = 65535,
    NFT_KEY_MAX = 24,
    NFT_NAME_MAX = 32,
    NFT_IDS = 32, /* set ids of one family */
};

struct nft_family {
    enum nft_family_index index;
    const char *suffix; /* of its chains and sets */
    uint8_t protocol;   /* NFPROTO_ */
    uint8_t icmp;
    uint32_t source, destination; /* where in the header ... */
    uint32_t address_len;         /* ... and how long */
    uint32_t known_as;            /* where the four bytes are by which a sandbox is known */
    uint32_t address_type;        /* how the nft program shows it */
};
extern const struct nft_family nft_families[NFT_FAMILIES];

/* How many of them the table has, IPv4 first. */
static inline int nft_family_count(const struct nft_table *t)
{
    return t->ipv6 ? 2 : 1;
}

struct nft_name {
    char text[NFT_NAME_MAX];
};
/* "listed" or "listed6": nft_named(f, "listed").text, to be used in the same expression. */
struct nft_name nft_named(const struct nft_family *f, const char *name);

/* A destination of one sandbox, as keys of the sets of its family: source, destination, and a port which the
 * set "nets_any" leaves out. Laid out as the kernel's keys. */
struct nft_key {
    unsigned char bytes[NFT_KEY_MAX];
    size_t len, any_len;
};
struct nft_key nft_key_make(const struct nft_family *f, uint32_t source, const struct ip *destination,
                            uint16_t port);
void nft_key_read(const struct nft_family *f, const void *bytes, uint32_t *ret_source,
                  struct ip *ret_destination, uint16_t *ret_port);
size_t nft_key_len(const struct nft_family *f);

void nft_put_box(struct nl_buf *b, const struct nft_table *t, const struct nft_box *box);
/* An element of the set "pins": a destination that is allowed for a time. */
void nft_put_pin(struct nl_buf *b, const struct nft_table *t, const struct nft_family *f, int type,
                 uint16_t flags, const void *key, uint64_t ms);
/* Chains and a set for sandboxes that may have so many connections; nothing for the default. */
void nft_put_class(struct nl_buf *b, const struct nft_table *t, uint32_t connections, uint32_t set_id);

/* ---- nft.c */

enum { NFT_SETS_END = 2 * NFT_IDS }; /* ids from here on are free */
void nft_put_chains_and_sets(struct nl_buf *b, const struct nft_table *t);
void nft_put_rules(struct nl_buf *b, const struct nft_table *t);
/* Accepts new connections up to a number of them. */
void nft_put_count_rules(struct nl_buf *b, const struct nft_table *t, const struct nft_family *f,
                         const char *chain, const char *set, uint32_t set_id, uint32_t connections);
