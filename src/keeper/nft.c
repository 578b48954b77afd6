/* SPDX-License-Identifier: Apache-2.0 */
/* nft.c: see nft.h.
 *
 * Theory of operation
 * The table is `inet`, so that its verdicts hold for IPv6 as well. Read nft_table_replace from the top: it is
 * the rule set. Links of sandboxes are known by their name's prefix; whatever comes from or goes to such a
 * link and is not accepted by a rule is dropped, whether the sandbox is known or not: a link without its set
 * element has no network. The chains' policy is `accept` nevertheless, because a packet that has nothing to
 * do with our links is none of our business: with `drop`, every other container of the host would lose its
 * network. An accept of ours does not overrule a drop in somebody else's table, nor theirs ours.
 *
 * The table has no owner flag: it must outlive the daemon as the sandboxes do. */
#include "keeper/nft.h"
#include "keeper/netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum {
    TABLE_BYTES = 32768, /* the rules take less than half of it */
    BOX_BYTES = 256,     /* one element in a message of its own */
    CONNECTIONS_MAX = 1024,
    NEW_PER_SECOND = 100,
    NEW_BURST = 200,
    RATE_FORGET_MS = 60000,
    METERS_MAX = 65535,
    TYPE_IPV4 = 7, /* how the nft program shows a key; the kernel does not look at it */
    TYPE_PROTOCOL = 12,
    TYPE_IFNAME = 41,
    TYPE_IFNAME_IPV4 = TYPE_IFNAME << 6 | TYPE_IPV4,
};

/* Where no packet of a sandbox may go: everything that is not the public internet. */
static const struct {
    uint32_t first, end; /* host order; end is excluded, 0: the end of the address space */
} not_public[] = {
    {0x00000000, 0x01000000}, /* 0.0.0.0/8 "this network" */
    {0x0a000000, 0x0b000000}, /* 10.0.0.0/8 */
    {0x64400000, 0x64800000}, /* 100.64.0.0/10 carrier NAT */
    {0x7f000000, 0x80000000}, /* 127.0.0.0/8 */
    {0xa9fe0000, 0xa9ff0000}, /* 169.254.0.0/16 link-local, metadata services */
    {0xac100000, 0xac200000}, /* 172.16.0.0/12 */
    {0xc0000000, 0xc0000100}, /* 192.0.0.0/24 protocol assignments */
    {0xc0a80000, 0xc0a90000}, /* 192.168.0.0/16 */
    {0xc6120000, 0xc6140000}, /* 198.18.0.0/15 benchmarks */
    {0xe0000000, 0},          /* 224.0.0.0/4 multicast, 240.0.0.0/4 reserved, broadcast */
};

/* ---- messages */

static void message(struct nl_buf *b, int type, uint16_t flags)
{
    struct nfgenmsg head = {.nfgen_family = NFPROTO_INET};
    nl_begin(b, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags, &head, sizeof head);
}

static void batch_edge(struct nl_buf *b, uint16_t type)
{
    struct nfgenmsg head = {.res_id = htons(NFNL_SUBSYS_NFTABLES)};
    uint32_t seq = b->seq;
    nl_begin(b, type, 0, &head, sizeof head);
    if (type == NFNL_MSG_BATCH_END)
        b->seq = seq; /* the answer comes for the message before it */
}

static void put_table(struct nl_buf *b, const struct nft_table *t, int type, uint16_t flags)
{
    message(b, type, flags);
    nl_put_text(b, NFTA_TABLE_NAME, t->name);
}

static void put_chain(struct nl_buf *b, const struct nft_table *t, const char *name, const char *type,
                      int hook, int priority)
{
    message(b, NFT_MSG_NEWCHAIN, NLM_F_CREATE);
    nl_put_text(b, NFTA_CHAIN_TABLE, t->name);
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

static void put_set(struct nl_buf *b, const struct nft_table *t, const char *name, uint32_t id,
                    uint32_t flags, uint32_t key_type, uint32_t key_len)
{
    message(b, NFT_MSG_NEWSET, NLM_F_CREATE);
    nl_put_text(b, NFTA_SET_TABLE, t->name);
    nl_put_text(b, NFTA_SET_NAME, name);
    nl_put_be32(b, NFTA_SET_FLAGS, flags);
    nl_put_be32(b, NFTA_SET_KEY_TYPE, key_type);
    nl_put_be32(b, NFTA_SET_KEY_LEN, key_len);
    nl_put_be32(b, NFTA_SET_ID, id);
    if (flags & NFT_SET_EVAL) {
        size_t nest = nl_nest(b, NFTA_SET_DESC);
        nl_put_be32(b, NFTA_SET_DESC_SIZE, METERS_MAX);
        nl_nest_end(b, nest);
    }
    if (flags & NFT_SET_TIMEOUT) {
        uint32_t ms[2] = {0, htonl(RATE_FORGET_MS)}; /* 64 bits, big endian */
        nl_put(b, NFTA_SET_TIMEOUT, ms, sizeof ms);
    }
}

static void put_element(struct nl_buf *b, const struct nft_table *t, const char *set, int type,
                        uint16_t flags, const void *key, size_t n, uint32_t element_flags)
{
    message(b, type, flags);
    nl_put_text(b, NFTA_SET_ELEM_LIST_TABLE, t->name);
    nl_put_text(b, NFTA_SET_ELEM_LIST_SET, set);
    size_t list = nl_nest(b, NFTA_SET_ELEM_LIST_ELEMENTS);
    size_t element = nl_nest(b, NFTA_LIST_ELEM);
    if (element_flags)
        nl_put_be32(b, NFTA_SET_ELEM_FLAGS, element_flags);
    size_t nest = nl_nest(b, NFTA_SET_ELEM_KEY);
    nl_put(b, NFTA_DATA_VALUE, key, n);
    nl_nest_end(b, nest);
    nl_nest_end(b, element);
    nl_nest_end(b, list);
}

static void put_box(struct nl_buf *b, const struct nft_table *t, int type, uint16_t flags,
                    const struct nft_box *box)
{
    char key[IFNAMSIZ + 4] = {0};
    memcpy(key, box->link, strnlen(box->link, IFNAMSIZ - 1));
    memcpy(key + IFNAMSIZ, &box->address, 4);
    put_element(b, t, "boxes", type, flags, key, sizeof key, 0);
}

/* ---- rules: a rule is a list of expressions; see `nft --debug=netlink` for the same in words */

struct rule {
    struct nl_buf *b;
    size_t list, item, data; /* nests that are open */
};

static struct rule rule_begin(struct nl_buf *b, const struct nft_table *t, const char *chain)
{
    struct rule r = {.b = b};
    message(b, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND);
    nl_put_text(b, NFTA_RULE_TABLE, t->name);
    nl_put_text(b, NFTA_RULE_CHAIN, chain);
    r.list = nl_nest(b, NFTA_RULE_EXPRESSIONS);
    return r;
}

static void expression(struct rule *r, const char *name)
{
    r->item = nl_nest(r->b, NFTA_LIST_ELEM);
    nl_put_text(r->b, NFTA_EXPR_NAME, name);
    r->data = nl_nest(r->b, NFTA_EXPR_DATA);
}

static void expression_end(struct rule *r)
{
    nl_nest_end(r->b, r->data);
    nl_nest_end(r->b, r->item);
}

static void rule_end(struct rule *r)
{
    nl_nest_end(r->b, r->list);
}

static void value(struct rule *r, uint16_t type, const void *data, size_t n)
{
    size_t nest = nl_nest(r->b, type);
    nl_put(r->b, NFTA_DATA_VALUE, data, n);
    nl_nest_end(r->b, nest);
}

static void load_meta(struct rule *r, uint32_t key)
{
    expression(r, "meta");
    nl_put_be32(r->b, NFTA_META_KEY, key);
    nl_put_be32(r->b, NFTA_META_DREG, NFT_REG_1);
    expression_end(r);
}

static void load_payload(struct rule *r, uint32_t base, uint32_t offset, uint32_t len, uint32_t reg)
{
    expression(r, "payload");
    nl_put_be32(r->b, NFTA_PAYLOAD_DREG, reg);
    nl_put_be32(r->b, NFTA_PAYLOAD_BASE, base);
    nl_put_be32(r->b, NFTA_PAYLOAD_OFFSET, offset);
    nl_put_be32(r->b, NFTA_PAYLOAD_LEN, len);
    expression_end(r);
}

static void compare(struct rule *r, uint32_t op, const void *data, size_t n)
{
    expression(r, "cmp");
    nl_put_be32(r->b, NFTA_CMP_SREG, NFT_REG_1);
    nl_put_be32(r->b, NFTA_CMP_OP, op);
    value(r, NFTA_CMP_DATA, data, n);
    expression_end(r);
}

static void mask(struct rule *r, uint32_t bits)
{
    expression(r, "bitwise");
    nl_put_be32(r->b, NFTA_BITWISE_SREG, NFT_REG_1);
    nl_put_be32(r->b, NFTA_BITWISE_DREG, NFT_REG_1);
    nl_put_be32(r->b, NFTA_BITWISE_LEN, 4);
    value(r, NFTA_BITWISE_MASK, &bits, 4);
    value(r, NFTA_BITWISE_XOR, &(uint32_t){0}, 4);
    expression_end(r);
}

static void lookup(struct rule *r, const char *set, uint32_t id, bool inverted)
{
    expression(r, "lookup");
    nl_put_text(r->b, NFTA_LOOKUP_SET, set);
    nl_put_be32(r->b, NFTA_LOOKUP_SREG, NFT_REG_1);
    nl_put_be32(r->b, NFTA_LOOKUP_SET_ID, id);
    if (inverted)
        nl_put_be32(r->b, NFTA_LOOKUP_FLAGS, NFT_LOOKUP_F_INV);
    expression_end(r);
}

static void verdict(struct rule *r, int code, const char *chain)
{
    expression(r, "immediate");
    nl_put_be32(r->b, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
    size_t data = nl_nest(r->b, NFTA_IMMEDIATE_DATA);
    size_t nest = nl_nest(r->b, NFTA_DATA_VERDICT);
    nl_put_be32(r->b, NFTA_VERDICT_CODE, (uint32_t)code);
    if (chain)
        nl_put_text(r->b, NFTA_VERDICT_CHAIN, chain);
    nl_nest_end(r->b, nest);
    nl_nest_end(r->b, data);
    expression_end(r);
    rule_end(r);
}

static void drop(struct rule *r)
{
    expression(r, "counter");
    expression_end(r);
    verdict(r, NF_DROP, NULL);
}

static void match_link(struct rule *r, uint32_t key, const struct nft_table *t)
{
    load_meta(r, key);
    compare(r, NFT_CMP_EQ, t->prefix, strlen(t->prefix));
}

static void match_byte(struct rule *r, uint32_t key, uint32_t op, uint8_t byte)
{
    load_meta(r, key);
    compare(r, op, &byte, 1);
}

static void match_port(struct rule *r, uint8_t protocol, uint16_t port)
{
    uint16_t be = htons(port);
    match_byte(r, NFT_META_L4PROTO, NFT_CMP_EQ, protocol);
    load_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, NFT_REG_1);
    compare(r, NFT_CMP_EQ, &be, sizeof be);
}

static void load_ct(struct rule *r, uint32_t key)
{
    expression(r, "ct");
    nl_put_be32(r->b, NFTA_CT_KEY, key);
    nl_put_be32(r->b, NFTA_CT_DREG, NFT_REG_1);
    expression_end(r);
}

static void match_state(struct rule *r, uint32_t bits)
{
    load_ct(r, NFT_CT_STATE);
    mask(r, bits);
    compare(r, NFT_CMP_NEQ, &(uint32_t){0}, 4);
}

enum { SOURCE = 12, DESTINATION = 16 }; /* offsets in the IPv4 header */

static void load_address(struct rule *r, uint32_t offset, uint32_t reg)
{
    load_payload(r, NFT_PAYLOAD_NETWORK_HEADER, offset, 4, reg);
}

/* A meter per source address; the rule goes on when the sandbox is over it. */
static void over_rate(struct rule *r, uint32_t set_id)
{
    load_address(r, SOURCE, NFT_REG_1);
    expression(r, "dynset");
    nl_put_text(r->b, NFTA_DYNSET_SET_NAME, "rate");
    nl_put_be32(r->b, NFTA_DYNSET_SET_ID, set_id);
    nl_put_be32(r->b, NFTA_DYNSET_OP, NFT_DYNSET_OP_UPDATE);
    nl_put_be32(r->b, NFTA_DYNSET_SREG_KEY, NFT_REG_1);
    size_t nest = nl_nest(r->b, NFTA_DYNSET_EXPR);
    nl_put_text(r->b, NFTA_EXPR_NAME, "limit");
    size_t data = nl_nest(r->b, NFTA_EXPR_DATA);
    uint32_t rate[2] = {0, htonl(NEW_PER_SECOND)}, second[2] = {0, htonl(1)};
    nl_put(r->b, NFTA_LIMIT_RATE, rate, sizeof rate);
    nl_put(r->b, NFTA_LIMIT_UNIT, second, sizeof second);
    nl_put_be32(r->b, NFTA_LIMIT_BURST, NEW_BURST);
    nl_put_be32(r->b, NFTA_LIMIT_TYPE, NFT_LIMIT_PKTS);
    nl_put_be32(r->b, NFTA_LIMIT_FLAGS, NFT_LIMIT_F_INV);
    nl_nest_end(r->b, data);
    nl_nest_end(r->b, nest);
    expression_end(r);
}

static void over_count(struct rule *r, uint32_t set_id)
{
    load_address(r, SOURCE, NFT_REG_1);
    expression(r, "dynset");
    nl_put_text(r->b, NFTA_DYNSET_SET_NAME, "connections");
    nl_put_be32(r->b, NFTA_DYNSET_SET_ID, set_id);
    nl_put_be32(r->b, NFTA_DYNSET_OP, NFT_DYNSET_OP_ADD);
    nl_put_be32(r->b, NFTA_DYNSET_SREG_KEY, NFT_REG_1);
    size_t nest = nl_nest(r->b, NFTA_DYNSET_EXPR);
    nl_put_text(r->b, NFTA_EXPR_NAME, "connlimit");
    size_t data = nl_nest(r->b, NFTA_EXPR_DATA);
    nl_put_be32(r->b, NFTA_CONNLIMIT_COUNT, CONNECTIONS_MAX);
    nl_put_be32(r->b, NFTA_CONNLIMIT_FLAGS, NFT_CONNLIMIT_F_INV);
    nl_nest_end(r->b, data);
    nl_nest_end(r->b, nest);
    expression_end(r);
}

/* ---- the table */

enum { SET_BOXES = 1, SET_NOT_PUBLIC, SET_PROTOCOLS, SET_RESOLVERS, SET_CLOSED, SET_RATE, SET_CONNECTIONS };

static void put_sets(struct nl_buf *b, const struct nft_table *t)
{
    static const uint8_t protocols[] = {IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP};
    put_set(b, t, "boxes", SET_BOXES, 0, TYPE_IFNAME_IPV4, IFNAMSIZ + 4);
    put_set(b, t, "not_public", SET_NOT_PUBLIC, NFT_SET_INTERVAL, TYPE_IPV4, 4);
    put_set(b, t, "protocols", SET_PROTOCOLS, 0, TYPE_PROTOCOL, 1);
    put_set(b, t, "resolvers", SET_RESOLVERS, 0, TYPE_IPV4, 4);
    put_set(b, t, "closed", SET_CLOSED, 0, TYPE_IFNAME, IFNAMSIZ);
    put_set(b, t, "rate", SET_RATE, NFT_SET_EVAL | NFT_SET_TIMEOUT, TYPE_IPV4, 4);
    put_set(b, t, "connections", SET_CONNECTIONS, NFT_SET_EVAL, TYPE_IPV4, 4);
    for (size_t i = 0; i < ARRAY_SIZE(not_public); i++) {
        uint32_t first = htonl(not_public[i].first), end = htonl(not_public[i].end);
        put_element(b, t, "not_public", NFT_MSG_NEWSETELEM, NLM_F_CREATE, &first, 4, 0);
        if (end)
            put_element(b, t, "not_public", NFT_MSG_NEWSETELEM, NLM_F_CREATE, &end, 4,
                        NFT_SET_ELEM_INTERVAL_END);
    }
    for (size_t i = 0; i < ARRAY_SIZE(protocols); i++)
        put_element(b, t, "protocols", NFT_MSG_NEWSETELEM, NLM_F_CREATE, &protocols[i], 1, 0);
    for (size_t i = 0; i < t->resolver_count; i++)
        put_element(b, t, "resolvers", NFT_MSG_NEWSETELEM, NLM_F_CREATE, &t->resolvers[i], 4, 0);
    if (t->closed[0]) {
        char name[IFNAMSIZ] = {0};
        memcpy(name, t->closed, strnlen(t->closed, IFNAMSIZ - 1));
        put_element(b, t, "closed", NFT_MSG_NEWSETELEM, NLM_F_CREATE, name, sizeof name, 0);
    }
}

/* From a sandbox to somewhere else: what is forbidden comes before what is already established. */
static void put_from_box(struct nl_buf *b, const struct nft_table *t)
{
    struct rule r = rule_begin(b, t, "from_box");
    match_byte(&r, NFT_META_NFPROTO, NFT_CMP_NEQ, NFPROTO_IPV4);
    drop(&r);
    r = rule_begin(b, t, "from_box"); /* a source that is not its own, or a sandbox we do not know */
    load_meta(&r, NFT_META_IIFNAME);
    load_address(&r, SOURCE, NFT_REG_2); /* the name fills register 1, so both lie side by side */
    lookup(&r, "boxes", SET_BOXES, true);
    drop(&r);
    r = rule_begin(b, t, "from_box"); /* another sandbox */
    match_link(&r, NFT_META_OIFNAME, t);
    drop(&r);
    r = rule_begin(b, t, "from_box");
    load_meta(&r, NFT_META_L4PROTO);
    lookup(&r, "protocols", SET_PROTOCOLS, true);
    drop(&r);
    static const uint8_t dns[] = {IPPROTO_UDP, IPPROTO_TCP};
    for (size_t i = 0; i < ARRAY_SIZE(dns); i++) { /* the one thing that may lie in a private network */
        r = rule_begin(b, t, "from_box");
        load_address(&r, DESTINATION, NFT_REG_1);
        lookup(&r, "resolvers", SET_RESOLVERS, false);
        match_port(&r, dns[i], 53);
        verdict(&r, NFT_GOTO, "limited");
    }
    r = rule_begin(b, t, "from_box");
    load_address(&r, DESTINATION, NFT_REG_1);
    lookup(&r, "not_public", SET_NOT_PUBLIC, false);
    drop(&r);
    r = rule_begin(b, t, "from_box"); /* mail: the first thing a stolen machine is used for */
    match_port(&r, IPPROTO_TCP, 25);
    drop(&r);
    r = rule_begin(b, t, "from_box");
    verdict(&r, NFT_GOTO, "limited");
}

static void put_limited(struct nl_buf *b, const struct nft_table *t)
{
    struct rule r = rule_begin(b, t, "limited");
    match_state(&r, NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED));
    verdict(&r, NF_ACCEPT, NULL);
    r = rule_begin(b, t, "limited"); /* not the first packet of a connection, but of none that is known */
    match_state(&r, NF_CT_STATE_INVALID_BIT | NF_CT_STATE_UNTRACKED_BIT);
    drop(&r);
    r = rule_begin(b, t, "limited");
    over_rate(&r, SET_RATE);
    drop(&r);
    r = rule_begin(b, t, "limited");
    over_count(&r, SET_CONNECTIONS);
    drop(&r);
    r = rule_begin(b, t, "limited");
    verdict(&r, NF_ACCEPT, NULL);
}

static void put_hooks(struct nl_buf *b, const struct nft_table *t)
{
    const uint32_t answers = NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED);
    struct rule r = rule_begin(b, t, "forward");
    match_link(&r, NFT_META_IIFNAME, t);
    verdict(&r, NFT_GOTO, "from_box");
    r = rule_begin(b, t, "forward"); /* into a sandbox: answers only */
    match_link(&r, NFT_META_OIFNAME, t);
    match_state(&r, answers);
    verdict(&r, NF_ACCEPT, NULL);
    r = rule_begin(b, t, "forward");
    match_link(&r, NFT_META_OIFNAME, t);
    drop(&r);
    r = rule_begin(b, t, "forward"); /* this interface did not forward before us, and still does not */
    load_meta(&r, NFT_META_IIFNAME);
    lookup(&r, "closed", SET_CLOSED, false);
    load_meta(&r, NFT_META_OIFNAME); /* another daemon's sandboxes: its own table decides */
    compare(&r, NFT_CMP_NEQ, "sil", 3);
    /* whoever else begins to forward on this host later (containers, say) sends out, or redirects with rules
     * of its own, and both are left alone */
    match_state(&r, NF_CT_STATE_BIT(IP_CT_NEW) | NF_CT_STATE_INVALID_BIT | NF_CT_STATE_UNTRACKED_BIT);
    load_ct(&r, NFT_CT_STATUS);
    mask(&r, IPS_DST_NAT);
    compare(&r, NFT_CMP_EQ, &(uint32_t){0}, 4);
    drop(&r);

    r = rule_begin(b, t, "input"); /* the host itself, on every address and port, this daemon included */
    match_link(&r, NFT_META_IIFNAME, t);
    drop(&r);

    r = rule_begin(b, t, "output"); /* the router's complaints (such as "packet too big"), nothing else */
    match_link(&r, NFT_META_OIFNAME, t);
    match_state(&r, NF_CT_STATE_BIT(IP_CT_RELATED));
    verdict(&r, NF_ACCEPT, NULL);
    r = rule_begin(b, t, "output");
    match_link(&r, NFT_META_OIFNAME, t);
    drop(&r);

    uint32_t bits = htonl(t->pool_prefix ? UINT32_MAX << (32 - t->pool_prefix) : 0);
    r = rule_begin(b, t, "nat");
    match_byte(&r, NFT_META_NFPROTO, NFT_CMP_EQ, NFPROTO_IPV4);
    load_address(&r, SOURCE, NFT_REG_1);
    mask(&r, bits);
    compare(&r, NFT_CMP_EQ, &t->pool, 4);
    expression(&r, "masq");
    expression_end(&r);
    rule_end(&r);
}

static int filter_talk(struct nl_buf *b)
{
    auto_close int fd = nl_open(NETLINK_NETFILTER);
    return fd < 0 ? fd : nl_talk(fd, b);
}

int nft_table_replace(const struct nft_table *t, const struct nft_box *boxes, size_t count,
                      struct error *reterr)
{
    size_t cap = TABLE_BYTES + count * BOX_BYTES;
    auto_free char *data = malloc(cap);
    struct nl_buf b;
    if (!data)
        return error_sys(reterr, ENOMEM, "write the packet filter");
    nl_init(&b, data, cap);
    batch_edge(&b, NFNL_MSG_BATCH_BEGIN);
    put_table(&b, t, NFT_MSG_NEWTABLE, NLM_F_CREATE); /* so that there is one to delete */
    put_table(&b, t, NFT_MSG_DELTABLE, 0);
    put_table(&b, t, NFT_MSG_NEWTABLE, NLM_F_CREATE);
    put_sets(&b, t);
    put_chain(&b, t, "limited", NULL, 0, 0);
    put_chain(&b, t, "from_box", NULL, 0, 0);
    put_chain(&b, t, "forward", "filter", NF_INET_FORWARD, 0);
    put_chain(&b, t, "input", "filter", NF_INET_LOCAL_IN, 0);
    put_chain(&b, t, "output", "filter", NF_INET_LOCAL_OUT, 0);
    put_chain(&b, t, "nat", "nat", NF_INET_POST_ROUTING, 100);
    for (size_t i = 0; i < count; i++)
        put_box(&b, t, NFT_MSG_NEWSETELEM, NLM_F_CREATE, &boxes[i]);
    put_limited(&b, t);
    put_from_box(&b, t);
    put_hooks(&b, t);
    put_table(&b, t, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_ACK); /* there already: only for its answer */
    batch_edge(&b, NFNL_MSG_BATCH_END);
    int r = filter_talk(&b);
    return r < 0
               ? error_sys(reterr, -r, "write the packet filter (nf_tables with nat and connection tracking)")
               : 0;
}

int nft_table_remove(const struct nft_table *t)
{
    _Alignas(4) char data[1024];
    struct nl_buf b;
    nl_init(&b, data, sizeof data);
    batch_edge(&b, NFNL_MSG_BATCH_BEGIN);
    put_table(&b, t, NFT_MSG_DELTABLE, NLM_F_ACK);
    batch_edge(&b, NFNL_MSG_BATCH_END);
    int r = filter_talk(&b);
    return r == -ENOENT ? 0 : r;
}

static int change_box(const struct nft_table *t, const struct nft_box *box, int type, uint16_t flags)
{
    _Alignas(4) char data[1024];
    struct nl_buf b;
    nl_init(&b, data, sizeof data);
    batch_edge(&b, NFNL_MSG_BATCH_BEGIN);
    put_box(&b, t, type, flags | NLM_F_ACK, box);
    batch_edge(&b, NFNL_MSG_BATCH_END);
    return filter_talk(&b);
}

int nft_box_add(const struct nft_table *t, const struct nft_box *box, struct error *reterr)
{
    int r = change_box(t, box, NFT_MSG_NEWSETELEM, NLM_F_CREATE);
    return r < 0 ? error_sys(reterr, -r, "let the sandbox through the packet filter") : 0;
}

int nft_box_remove(const struct nft_table *t, const struct nft_box *box)
{
    int r = change_box(t, box, NFT_MSG_DELSETELEM, 0);
    return r == -ENOENT ? 0 : r;
}
