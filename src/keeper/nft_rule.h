/* SPDX-License-Identifier: Apache-2.0 */
/* nft_rule.h: packet filter tables, chains and rules as netlink messages (family inet). A rule is a list of
 * expressions; see `nft --debug=netlink` for the same in words. Allocates nothing, as netlink.h. */
#pragma once

#include "keeper/netlink.h"

#include <linux/netfilter/nf_tables.h>

/* ---- messages: between a pair of edges they take effect together or not at all */

void nft_batch_edge(struct nl_buf *b, uint16_t type); /* NFNL_MSG_BATCH_BEGIN or _END */
void nft_message(struct nl_buf *b, int type, uint16_t flags);
void nft_put_table(struct nl_buf *b, const char *table, int type, uint16_t flags);
/* type NULL: a chain of no hook. */
void nft_put_chain(struct nl_buf *b, const char *table, const char *name, const char *type, int hook,
                   int priority);
/* A chain of no hook; with the rest of its batch it is refused with -EEXIST when it is there. */
void nft_put_new_chain(struct nl_buf *b, const char *table, const char *name);
int nft_talk(struct nl_buf *b); /* sends a batch whose last message has NLM_F_ACK */

/* ---- rules */

struct nft_rule {
    struct nl_buf *b;
    size_t list, item, data; /* nests that are open */
};

struct nft_rule nft_rule_begin(struct nl_buf *b, const char *table, const char *chain);
void nft_rule_end(struct nft_rule *r);
/* Between the two: attributes of the expression. */
void nft_expression(struct nft_rule *r, const char *name);
void nft_expression_end(struct nft_rule *r);

void nft_load_meta(struct nft_rule *r, uint32_t key); /* into register 1, as all loads without a register */
void nft_load_payload(struct nft_rule *r, uint32_t base, uint32_t offset, uint32_t len, uint32_t reg);
void nft_load_word(struct nft_rule *r, uint32_t word, uint32_t reg);
void nft_compare(struct nft_rule *r, uint32_t op, const void *data, size_t n);
void nft_mask(struct nft_rule *r, uint32_t bits);
void nft_mask_bytes(struct nft_rule *r, const void *bits, size_t n); /* n: 16 at most */
void nft_lookup(struct nft_rule *r, const char *set, uint32_t id, bool inverted);
void nft_match_byte(struct nft_rule *r, uint32_t key, uint32_t op, uint8_t byte);
void nft_match_port(struct nft_rule *r, uint8_t protocol, uint16_t port); /* of the destination */
void nft_match_from_port(struct nft_rule *r, uint8_t protocol, uint16_t port);
/* These end the rule. */
void nft_verdict(struct nft_rule *r, int code, const char *chain);
void nft_drop(struct nft_rule *r);                    /* and counts */
void nft_redirect(struct nft_rule *r, uint16_t port); /* to this machine; in a chain of type nat */
