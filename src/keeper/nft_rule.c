/* SPDX-License-Identifier: Apache-2.0 */
/* nft_rule.c: see nft_rule.h. */
#include "keeper/nft_rule.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <netinet/in.h>

void nft_message(struct nl_buf *b, int type, uint16_t flags)
{
    struct nfgenmsg head = {.nfgen_family = NFPROTO_INET};
    nl_begin(b, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags, &head, sizeof head);
}

void nft_batch_edge(struct nl_buf *b, uint16_t type)
{
    struct nfgenmsg head = {.res_id = htons(NFNL_SUBSYS_NFTABLES)};
    uint32_t seq = b->seq;
    nl_begin(b, type, 0, &head, sizeof head);
    if (type == NFNL_MSG_BATCH_END)
        b->seq = seq; /* the answer comes for the message before it */
}

void nft_put_table(struct nl_buf *b, const char *table, int type, uint16_t flags)
{
    nft_message(b, type, flags);
    nl_put_text(b, NFTA_TABLE_NAME, table);
}

void nft_put_chain(struct nl_buf *b, const char *table, const char *name, const char *type, int hook,
                   int priority)
{
    nft_message(b, NFT_MSG_NEWCHAIN, NLM_F_CREATE);
    nl_put_text(b, NFTA_CHAIN_TABLE, table);
    nl_put_text(b, NFTA_CHAIN_NAME, name);
    if (!type)
        return;
    size_t nest = nl_nest(b, NFTA_CHAIN_HOOK);
    nl_put_be32(b, NFTA_HOOK_HOOKNUM, (uint32_t)hook);
    nl_put_be32(b, NFTA_HOOK_PRIORITY, (uint32_t)priority);
    nl_nest_end(b, nest);
    nl_put_be32(b, NFTA_CHAIN_POLICY, NF_ACCEPT);
    nl_put_text(b, NFTA_CHAIN_TYPE, type);
}

void nft_put_new_chain(struct nl_buf *b, const char *table, const char *name)
{
    nft_message(b, NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_EXCL);
    nl_put_text(b, NFTA_CHAIN_TABLE, table);
    nl_put_text(b, NFTA_CHAIN_NAME, name);
}

int nft_talk(struct nl_buf *b)
{
    auto_close int fd = nl_open(NETLINK_NETFILTER);
    return fd < 0 ? fd : nl_talk(fd, b);
}

/* ---- rules */

struct nft_rule nft_rule_begin(struct nl_buf *b, const char *table, const char *chain)
{
    struct nft_rule r = {.b = b};
    nft_message(b, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND);
    nl_put_text(b, NFTA_RULE_TABLE, table);
    nl_put_text(b, NFTA_RULE_CHAIN, chain);
    r.list = nl_nest(b, NFTA_RULE_EXPRESSIONS);
    return r;
}

void nft_expression(struct nft_rule *r, const char *name)
{
    r->item = nl_nest(r->b, NFTA_LIST_ELEM);
    nl_put_text(r->b, NFTA_EXPR_NAME, name);
    r->data = nl_nest(r->b, NFTA_EXPR_DATA);
}

void nft_expression_end(struct nft_rule *r)
{
    nl_nest_end(r->b, r->data);
    nl_nest_end(r->b, r->item);
}

void nft_rule_end(struct nft_rule *r)
{
    nl_nest_end(r->b, r->list);
}

static void value(struct nft_rule *r, uint16_t type, const void *data, size_t n)
{
    size_t nest = nl_nest(r->b, type);
    nl_put(r->b, NFTA_DATA_VALUE, data, n);
    nl_nest_end(r->b, nest);
}

void nft_load_meta(struct nft_rule *r, uint32_t key)
{
    nft_expression(r, "meta");
    nl_put_be32(r->b, NFTA_META_KEY, key);
    nl_put_be32(r->b, NFTA_META_DREG, NFT_REG_1);
    nft_expression_end(r);
}

void nft_load_payload(struct nft_rule *r, uint32_t base, uint32_t offset, uint32_t len, uint32_t reg)
{
    nft_expression(r, "payload");
    nl_put_be32(r->b, NFTA_PAYLOAD_DREG, reg);
    nl_put_be32(r->b, NFTA_PAYLOAD_BASE, base);
    nl_put_be32(r->b, NFTA_PAYLOAD_OFFSET, offset);
    nl_put_be32(r->b, NFTA_PAYLOAD_LEN, len);
    nft_expression_end(r);
}

void nft_compare(struct nft_rule *r, uint32_t op, const void *data, size_t n)
{
    nft_expression(r, "cmp");
    nl_put_be32(r->b, NFTA_CMP_SREG, NFT_REG_1);
    nl_put_be32(r->b, NFTA_CMP_OP, op);
    value(r, NFTA_CMP_DATA, data, n);
    nft_expression_end(r);
}

static void load_value(struct nft_rule *r, const void *data, size_t n)
{
    nft_expression(r, "immediate");
    nl_put_be32(r->b, NFTA_IMMEDIATE_DREG, NFT_REG_1);
    value(r, NFTA_IMMEDIATE_DATA, data, n);
    nft_expression_end(r);
}

void nft_load_word(struct nft_rule *r, uint32_t word, uint32_t reg)
{
    nft_expression(r, "immediate");
    nl_put_be32(r->b, NFTA_IMMEDIATE_DREG, reg);
    value(r, NFTA_IMMEDIATE_DATA, &word, sizeof word);
    nft_expression_end(r);
}

void nft_mask_bytes(struct nft_rule *r, const void *bits, size_t n)
{
    static const unsigned char zero[16];
    nft_expression(r, "bitwise");
    nl_put_be32(r->b, NFTA_BITWISE_SREG, NFT_REG_1);
    nl_put_be32(r->b, NFTA_BITWISE_DREG, NFT_REG_1);
    nl_put_be32(r->b, NFTA_BITWISE_LEN, (uint32_t)n);
    value(r, NFTA_BITWISE_MASK, bits, n);
    value(r, NFTA_BITWISE_XOR, zero, n);
    nft_expression_end(r);
}

void nft_mask(struct nft_rule *r, uint32_t bits)
{
    nft_mask_bytes(r, &bits, sizeof bits);
}

void nft_lookup(struct nft_rule *r, const char *set, uint32_t id, bool inverted)
{
    nft_expression(r, "lookup");
    nl_put_text(r->b, NFTA_LOOKUP_SET, set);
    nl_put_be32(r->b, NFTA_LOOKUP_SREG, NFT_REG_1);
    nl_put_be32(r->b, NFTA_LOOKUP_SET_ID, id);
    if (inverted)
        nl_put_be32(r->b, NFTA_LOOKUP_FLAGS, NFT_LOOKUP_F_INV);
    nft_expression_end(r);
}

void nft_verdict(struct nft_rule *r, int code, const char *chain)
{
    nft_expression(r, "immediate");
    nl_put_be32(r->b, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
    size_t data = nl_nest(r->b, NFTA_IMMEDIATE_DATA);
    size_t nest = nl_nest(r->b, NFTA_DATA_VERDICT);
    nl_put_be32(r->b, NFTA_VERDICT_CODE, (uint32_t)code);
    if (chain)
        nl_put_text(r->b, NFTA_VERDICT_CHAIN, chain);
    nl_nest_end(r->b, nest);
    nl_nest_end(r->b, data);
    nft_expression_end(r);
    nft_rule_end(r);
}

void nft_redirect(struct nft_rule *r, uint16_t port)
{
    const uint16_t be = htons(port);
    load_value(r, &be, sizeof be);
    nft_expression(r, "redir");
    nl_put_be32(r->b, NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1);
    nft_expression_end(r);
    nft_rule_end(r);
}

void nft_drop(struct nft_rule *r)
{
    nft_expression(r, "counter");
    nft_expression_end(r);
    nft_verdict(r, NF_DROP, NULL);
}

void nft_match_byte(struct nft_rule *r, uint32_t key, uint32_t op, uint8_t byte)
{
    nft_load_meta(r, key);
    nft_compare(r, op, &byte, 1);
}

static void match_port_at(struct nft_rule *r, uint8_t protocol, uint32_t offset, uint16_t port)
{
    uint16_t be = htons(port);
    nft_match_byte(r, NFT_META_L4PROTO, NFT_CMP_EQ, protocol);
    nft_load_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, offset, 2, NFT_REG_1);
    nft_compare(r, NFT_CMP_EQ, &be, sizeof be);
}

void nft_match_port(struct nft_rule *r, uint8_t protocol, uint16_t port)
{
    match_port_at(r, protocol, 2, port);
}

void nft_match_from_port(struct nft_rule *r, uint8_t protocol, uint16_t port)
{
    match_port_at(r, protocol, 0, port);
}
