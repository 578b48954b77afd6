/* SPDX-License-Identifier: Apache-2.0 */
/* nft.c: the rules of the table; see nft.h, and nft_internal.h for the two families.
 *
 * Theory of operation
 * The table is `inet`, so that its verdicts hold for IPv6 as well, whether sandboxes have it or not. Read
 * nft_put_rules from the top: it is the rule set. Links of sandboxes are known by their name's prefix;
 * whatever comes from or goes to such a link and is not accepted by a rule is dropped, whether the sandbox is
 * known or not: a link without its set element has no network. The chains' policy is `accept` nevertheless,
 * because a packet that has nothing to do with our links is none of our business: with `drop`, every other
 * container of the host would lose its network. An accept of ours does not overrule a drop in somebody else's
 * table, nor theirs ours.
 *
 * Sandboxes with a list of their own (the set "listed") go another way through the rules than all others: the
 * chain "listed" lets new connections pass only to what the elements of nft_box.c name. What is established
 * passes in any case: an address that is allowed for a time stays good for the connections made in it, and
 * when a list changes, the connections it no longer allows are ended (conntrack.c).
 *
 * Refused packets are told to a log group, a few a second and sandbox at most.
 *
 * The table has no owner flag: it must outlive the daemon as the sandboxes do. */
#include "keeper/address_ranges.h"
#include "keeper/nft_internal.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nfnetlink.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum {
    NEW_PER_SECOND = 100,
    NEW_BURST = 200,
    NOTES_PER_SECOND = 10,
    NOTES_BURST = 30,
    NOTE_BYTES = 64, /* of a refused packet: its headers */
    ANSWERS_PER_SECOND = 50,
    ANSWERS_BURST = 200,
    ANSWER_BYTES = 4096,
    RATE_FORGET_MS = 60000,
    PINS_MAX = 262144,
};

const struct nft_family nft_families[NFT_FAMILIES] = {
    [NFT_V4] = {.index = NFT_V4,
                .suffix = "",
                .protocol = NFPROTO_IPV4,
                .icmp = IPPROTO_ICMP,
                .source = 12,
                .destination = 16,
                .address_len = 4,
                .known_as = 12,
                .address_type = NFT_TYPE_IPV4},
    [NFT_V6] = {.index = NFT_V6,
                .suffix = "6",
                .protocol = NFPROTO_IPV6,
                .icmp = IPPROTO_ICMPV6,
                .source = 8,
                .destination = 24,
                .address_len = 16,
                .known_as = 20,
                .address_type = NFT_TYPE_IPV6},
};

struct nft_name nft_named(const struct nft_family *f, const char *name)
{
    struct nft_name n;
    (void)snprintf(n.text, sizeof n.text, "%s%s", name, f->suffix);
    return n;
}

struct ip nft_address6(const struct nft_table *t, uint32_t address)
{
    struct ip a = t->prefix6;
    memcpy(a.bytes + sizeof a.bytes - sizeof address, &address, sizeof address);
    return a;
}

/* ---- rules: a rule is a list of expressions; see `nft --debug=netlink` for the same in words */

static void match_link(struct nft_rule *r, uint32_t key, const struct nft_table *t)
{
    nft_load_meta(r, key);
    nft_compare(r, NFT_CMP_EQ, t->prefix, strlen(t->prefix));
}

static void load_ct(struct nft_rule *r, uint32_t key)
{
    nft_expression(r, "ct");
    nl_put_be32(r->b, NFTA_CT_KEY, key);
    nl_put_be32(r->b, NFTA_CT_DREG, NFT_REG_1);
    nft_expression_end(r);
}

static void match_state(struct nft_rule *r, uint32_t bits)
{
    load_ct(r, NFT_CT_STATE);
    nft_mask(r, bits);
    nft_compare(r, NFT_CMP_NEQ, &(uint32_t){0}, 4);
}

/* The sandbox, as most sets know it. */
static void load_sandbox(struct nft_rule *r, const struct nft_family *f, uint32_t reg)
{
    nft_load_payload(r, NFT_PAYLOAD_NETWORK_HEADER, f->known_as, 4, reg);
}

static void load_destination(struct nft_rule *r, const struct nft_family *f, uint32_t reg)
{
    nft_load_payload(r, NFT_PAYLOAD_NETWORK_HEADER, f->destination, f->address_len, reg);
}

struct meter {
    const char *set;
    uint32_t id, per_second, burst;
    uint32_t flags; /* NFT_LIMIT_F_INV: the rule goes on when the sandbox is over it */
};

/* A meter per sandbox, which is in register 1. */
static void limit_loaded(struct nft_rule *r, const struct meter *m)
{
    nft_expression(r, "dynset");
    nl_put_text(r->b, NFTA_DYNSET_SET_NAME, m->set);
    nl_put_be32(r->b, NFTA_DYNSET_SET_ID, m->id);
    nl_put_be32(r->b, NFTA_DYNSET_OP, NFT_DYNSET_OP_UPDATE);
    nl_put_be32(r->b, NFTA_DYNSET_SREG_KEY, NFT_REG_1);
    size_t nest = nl_nest(r->b, NFTA_DYNSET_EXPR);
    nl_put_text(r->b, NFTA_EXPR_NAME, "limit");
    size_t data = nl_nest(r->b, NFTA_EXPR_DATA);
    uint32_t rate[2] = {0, htonl(m->per_second)}, second[2] = {0, htonl(1)};
    nl_put(r->b, NFTA_LIMIT_RATE, rate, sizeof rate);
    nl_put(r->b, NFTA_LIMIT_UNIT, second, sizeof second);
    nl_put_be32(r->b, NFTA_LIMIT_BURST, m->burst);
    nl_put_be32(r->b, NFTA_LIMIT_TYPE, NFT_LIMIT_PKTS);
    nl_put_be32(r->b, NFTA_LIMIT_FLAGS, m->flags);
    nl_nest_end(r->b, data);
    nl_nest_end(r->b, nest);
    nft_expression_end(r);
}

static void limit_sandbox(struct nft_rule *r, const struct nft_family *f, const struct meter *m)
{
    load_sandbox(r, f, NFT_REG_1);
    limit_loaded(r, m);
}

void nft_put_count_rules(struct nl_buf *b, const struct nft_table *t, const struct nft_family *f,
                         const char *chain, const char *set, uint32_t set_id, uint32_t connections)
{
    struct nft_rule r = nft_rule_begin(b, t->name, chain);
    load_sandbox(&r, f, NFT_REG_1);
    nft_expression(&r, "dynset");
    nl_put_text(b, NFTA_DYNSET_SET_NAME, set);
    nl_put_be32(b, NFTA_DYNSET_SET_ID, set_id);
    nl_put_be32(b, NFTA_DYNSET_OP, NFT_DYNSET_OP_ADD);
    nl_put_be32(b, NFTA_DYNSET_SREG_KEY, NFT_REG_1);
    size_t nest = nl_nest(b, NFTA_DYNSET_EXPR);
    nl_put_text(b, NFTA_EXPR_NAME, "connlimit");
    size_t data = nl_nest(b, NFTA_EXPR_DATA);
    nl_put_be32(b, NFTA_CONNLIMIT_COUNT, connections);
    nl_put_be32(b, NFTA_CONNLIMIT_FLAGS, NFT_CONNLIMIT_F_INV);
    nl_nest_end(b, data);
    nl_nest_end(b, nest);
    nft_expression_end(&r);
    nft_verdict(&r, NFT_GOTO, nft_named(f, "over").text);
    r = nft_rule_begin(b, t->name, chain);
    nft_verdict(&r, NF_ACCEPT, NULL);
}

/* Goes where the map leads; a sandbox that is not in it goes on. */
static void lookup_verdict(struct nft_rule *r, const struct nft_family *f, const char *set, uint32_t id)
{
    load_sandbox(r, f, NFT_REG_1);
    nft_expression(r, "lookup");
    nl_put_text(r->b, NFTA_LOOKUP_SET, set);
    nl_put_be32(r->b, NFTA_LOOKUP_SREG, NFT_REG_1);
    nl_put_be32(r->b, NFTA_LOOKUP_SET_ID, id);
    nl_put_be32(r->b, NFTA_LOOKUP_DREG, NFT_REG_VERDICT);
    nft_expression_end(r);
    nft_rule_end(r);
}

/* ---- sets */

enum {
    /* of each family */
    SET_BOXES = 1,
    SET_NOT_PUBLIC,
    SET_NEVER,
    SET_PROTOCOLS,
    SET_CLOSED,
    SET_COUNTS,
    SET_NETS_ANY,
    SET_NETS_PORT,
    SET_PINS,
    /* of both */
    SET_RESOLVERS,
    SET_RATE,
    SET_NOTES,
    SET_ANSWERS,
    SET_CONNECTIONS,
    SET_LISTED,
    SET_COUNT,
};
_Static_assert(SET_COUNT <= (int)NFT_IDS, "ids do not meet");

static uint32_t set_id(const struct nft_family *f, uint32_t set)
{
    return (uint32_t)f->index * NFT_IDS + set;
}

static void put_one(struct nl_buf *b, const struct nft_table *t, const char *set, const void *key, size_t n,
                    uint32_t flags)
{
    struct nft_element e = {.key = key, .key_len = n, .flags = flags};
    nft_put_element(b, t->name, set, NFT_MSG_NEWSETELEM, NLM_F_CREATE, &e);
}

static void put_ranges(struct nl_buf *b, const struct nft_table *t, const char *set,
                       const struct address_range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t first = htonl(ranges[i].first), end = htonl(ranges[i].end);
        put_one(b, t, set, &first, 4, 0);
        if (end)
            put_one(b, t, set, &end, 4, NFT_SET_ELEM_INTERVAL_END);
    }
}

/* The address behind this one; none behind the last. */
static struct ip next_of(struct ip a)
{
    for (size_t i = sizeof a.bytes; i-- > 0;)
        if (++a.bytes[i])
            break;
    return a;
}

static void put_networks(struct nl_buf *b, const struct nft_table *t, const char *set,
                         const struct address_network *networks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct ip end = next_of(ip_network_last(&networks[i].first, networks[i].prefix));
        put_one(b, t, set, &networks[i].first, sizeof end, 0);
        if (!ip_is_none(&end))
            put_one(b, t, set, &end, sizeof end, NFT_SET_ELEM_INTERVAL_END);
    }
}

static void put_family_sets(struct nl_buf *b, const struct nft_table *t, const struct nft_family *f)
{
    const uint8_t protocols[] = {f->icmp, IPPROTO_TCP, IPPROTO_UDP};
    const uint32_t pair[] = {4, f->address_len, 0}, pair_port[] = {4, f->address_len, 2, 0};
    const uint32_t ranges = NFT_SET_INTERVAL | NFT_SET_CONCAT, len = f->address_len, type = f->address_type;
    const uint32_t box_type = NFT_TYPE_IFNAME << 6 | type, pair_type = NFT_TYPE_IPV4 << 6 | type;
    const uint32_t port_type = pair_type << 6 | NFT_TYPE_PORT;
    const struct nft_set sets[] = {
        {"boxes", SET_BOXES, 0, box_type, IFNAMSIZ + len, 0, 0, NULL, false},
        {"not_public", SET_NOT_PUBLIC, NFT_SET_INTERVAL, type, len, 0, 0, NULL, false},
        {"never", SET_NEVER, NFT_SET_INTERVAL, type, len, 0, 0, NULL, false},
        {"protocols", SET_PROTOCOLS, 0, NFT_TYPE_PROTOCOL, 1, 0, 0, NULL, false},
        {"closed", SET_CLOSED, 0, NFT_TYPE_IFNAME, IFNAMSIZ, 0, 0, NULL, false},
        {"counts", SET_COUNTS, 0, NFT_TYPE_IPV4, 4, 0, 0, NULL, true},
        {"nets_any", SET_NETS_ANY, ranges, pair_type, 4 + len, 0, 0, pair, false},
        {"nets_port", SET_NETS_PORT, ranges, port_type, 8 + len, 0, 0, pair_port, false},
        {"pins", SET_PINS, NFT_SET_TIMEOUT, port_type, 8 + len, PINS_MAX, 0, NULL, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
        struct nft_set s = sets[i];
        struct nft_name name = nft_named(f, s.name);
        s.name = name.text;
        s.id = set_id(f, s.id);
        nft_put_set(b, t->name, &s);
    }
    for (size_t i = 0; i < ARRAY_SIZE(protocols); i++)
        put_one(b, t, nft_named(f, "protocols").text, &protocols[i], 1, 0);
    if (t->closed[f->index][0]) {
        char name[IFNAMSIZ] = {0};
        memcpy(name, t->closed[f->index], strnlen(t->closed[f->index], IFNAMSIZ - 1));
        put_one(b, t, nft_named(f, "closed").text, name, sizeof name, 0);
    }
}

static void put_sets(struct nl_buf *b, const struct nft_table *t)
{
    const uint32_t meter = NFT_SET_EVAL | NFT_SET_TIMEOUT;
    const struct nft_set sets[] = {
        {"resolvers", SET_RESOLVERS, 0, NFT_TYPE_IPV4, 4, 0, 0, NULL, false},
        {"rate", SET_RATE, meter, NFT_TYPE_IPV4, 4, NFT_METERS_MAX, RATE_FORGET_MS, NULL, false},
        {"notes", SET_NOTES, meter, NFT_TYPE_IPV4, 4, NFT_METERS_MAX, RATE_FORGET_MS, NULL, false},
        {"answers", SET_ANSWERS, meter, NFT_TYPE_IPV4, 4, NFT_METERS_MAX, RATE_FORGET_MS, NULL, false},
        {"connections", SET_CONNECTIONS, NFT_SET_EVAL, NFT_TYPE_IPV4, 4, NFT_METERS_MAX, 0, NULL, false},
        {"listed", SET_LISTED, 0, NFT_TYPE_IPV4, 4, 0, 0, NULL, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(sets); i++)
        nft_put_set(b, t->name, &sets[i]);
    for (size_t i = 0; i < t->resolver_count; i++)
        put_one(b, t, "resolvers", &t->resolvers[i], 4, 0);
    for (int i = 0; i < nft_family_count(t); i++)
        put_family_sets(b, t, &nft_families[i]);
    put_ranges(b, t, "not_public", ranges_not_public, ranges_not_public_count);
    put_ranges(b, t, "never", ranges_never, ranges_never_count);
    if (!t->ipv6)
        return;
    put_networks(b, t, "not_public6", networks_not_public, networks_not_public_count);
    put_networks(b, t, "never6", networks_never, networks_never_count);
}

void nft_put_chains_and_sets(struct nl_buf *b, const struct nft_table *t)
{
    static const char *const inner[] = {"note", "over", "limited", "listed", "from_box"};
    put_sets(b, t);
    for (int i = 0; i < nft_family_count(t); i++)
        for (size_t k = 0; k < ARRAY_SIZE(inner); k++)
            nft_put_chain(b, t->name, nft_named(&nft_families[i], inner[k]).text, NULL, 0, 0);
    nft_put_chain(b, t->name, "forward", "filter", NF_INET_FORWARD, 0);
    nft_put_chain(b, t->name, "input", "filter", NF_INET_LOCAL_IN, 0);
    nft_put_chain(b, t->name, "output", "filter", NF_INET_LOCAL_OUT, 0);
    nft_put_chain(b, t->name, "nat", "nat", NF_INET_POST_ROUTING, 100);
}

/* ---- the chains of a family */

/* To a log group, and on. Ends the rule. */
static void tell(struct nft_rule *r, uint16_t group, uint32_t bytes)
{
    uint16_t be = htons(group);
    nft_expression(r, "log");
    nl_put(r->b, NFTA_LOG_GROUP, &be, sizeof be);
    nl_put_be32(r->b, NFTA_LOG_SNAPLEN, bytes);
    nft_expression_end(r);
    nft_rule_end(r);
}

/* Tells of a packet that is about to be dropped, a few times a second and sandbox, and comes back. */
static void put_note(struct nl_buf *b, const struct nft_table *t, const struct nft_family *f)
{
    static const struct meter notes = {"notes", SET_NOTES, NOTES_PER_SECOND, NOTES_BURST, 0};
    if (t->silent)
        return;
    struct nft_rule r = nft_rule_begin(b, t->name, nft_named(f, "note").text);
    limit_sandbox(&r, f, &notes);
    tell(&r, t->log_group, NOTE_BYTES);
}

/* Two rules: one that tells, one that counts and drops. match says what; NULL: everything. */
static void refuse(struct nl_buf *b, const struct nft_table *t, const struct nft_family *f, const char *chain,
                   void (*match)(struct nft_rule *r, const struct nft_family *f))
{
    struct nft_name in = nft_named(f, chain);
    struct nft_rule r = nft_rule_begin(b, t->name, in.text);
    if (match)
        match(&r, f);
    nft_verdict(&r, NFT_JUMP, nft_named(f, "note").text);
    r = nft_rule_begin(b, t->name, in.text);
    if (match)
        match(&r, f);
    nft_drop(&r);
}

static void match_not_public(struct nft_rule *r, const struct nft_family *f)
{
    load_destination(r, f, NFT_REG_1);
    nft_lookup(r, nft_named(f, "not_public").text, set_id(f, SET_NOT_PUBLIC), false);
}

static void match_never(struct nft_rule *r, const struct nft_family *f)
{
    load_destination(r, f, NFT_REG_1);
    nft_lookup(r, nft_named(f, "never").text, set_id(f, SET_NEVER), false);
}

static void match_mail(struct nft_rule *r,
                       const struct nft_family *f) /* the first thing a stolen machine is used for */
{
    (void)f;
    nft_match_port(r, IPPROTO_TCP, 25);
}

/* The one thing that may lie in a private network. Name servers are spoken to over IPv4. */
static void put_resolvers(struct nl_buf *b, const struct nft_table *t, const struct nft_family *f)
{
    static const uint8_t dns[] = {IPPROTO_UDP, IPPROTO_TCP};
    for (size_t i = 0; i < ARRAY_SIZE(dns); i++) {
        struct nft_rule r = nft_rule_begin(b, t->name, "from_box");
        load_destination(&r, f, NFT_REG_1);
        nft_lookup(&r, "resolvers", SET_RESOLVERS, false);
        nft_match_port(&r, dns[i], 53);
        nft_verdict(&r, NFT_GOTO, "limited");
    }
}

/* The first rules of IPv4's chain, where everything arrives: what is of another family goes elsewhere. */
static void put_families(struct nl_buf *b, const struct nft_table *t)
{
    struct nft_rule r;
    if (t->ipv6) {
        r = nft_rule_begin(b, t->name, "from_box");
        nft_match_byte(&r, NFT_META_NFPROTO, NFT_CMP_EQ, NFPROTO_IPV6);
        nft_verdict(&r, NFT_GOTO, "from_box6");
    }
    r = nft_rule_begin(b, t->name, "from_box");
    nft_match_byte(&r, NFT_META_NFPROTO, NFT_CMP_NEQ, NFPROTO_IPV4);
    nft_drop(&r);
}

/* From a sandbox to somewhere else: what is forbidden comes before what is already established. */
static void put_from_box(struct nl_buf *b, const struct nft_table *t, const struct nft_family *f)
{
    struct nft_name chain = nft_named(f, "from_box");
    if (f->index == NFT_V4)
        put_families(b, t);
    struct nft_rule r = nft_rule_begin(
        b, t->name, chain.text); /* a source that is not its own, or a sandbox we do not know */
    nft_load_meta(&r, NFT_META_IIFNAME);
    /* the name fills register 1, so both lie side by side */
    nft_load_payload(&r, NFT_PAYLOAD_NETWORK_HEADER, f->source, f->address_len, NFT_REG_2);
    nft_lookup(&r, nft_named(f, "boxes").text, set_id(f, SET_BOXES), true);
    nft_drop(&r);
    r = nft_rule_begin(b, t->name, chain.text); /* another sandbox */
    match_link(&r, NFT_META_OIFNAME, t);
    nft_drop(&r);
    r = nft_rule_begin(b, t->name, chain.text);
    nft_load_meta(&r, NFT_META_L4PROTO);
    nft_lookup(&r, nft_named(f, "protocols").text, set_id(f, SET_PROTOCOLS), true);
    nft_drop(&r);
    r = nft_rule_begin(b, t->name, chain.text);
    load_sandbox(&r, f, NFT_REG_1);
    nft_lookup(&r, "listed", SET_LISTED, false);
    nft_verdict(&r, NFT_GOTO, nft_named(f, "listed").text);
    if (f->index == NFT_V4)
        put_resolvers(b, t, f);
    refuse(b, t, f, "from_box", match_not_public);
    refuse(b, t, f, "from_box", match_mail);
    r = nft_rule_begin(b, t->name, chain.text);
    nft_verdict(&r, NFT_GOTO, nft_named(f, "limited").text);
}

enum listed_port { PORT_NONE, PORT_ZERO, PORT_OWN };

/* Sandbox, destination and port side by side, looked up in a set of what is allowed. */
static void put_listed_set(struct nl_buf *b, const struct nft_table *t, const struct nft_family *f,
                           const char *set, uint32_t id, enum listed_port port)
{
    struct nft_rule r = nft_rule_begin(b, t->name, nft_named(f, "listed").text);
    const uint32_t behind = NFT_REG32_01 + f->address_len / 4;
    if (port == PORT_OWN)
        nft_match_byte(&r, NFT_META_L4PROTO, NFT_CMP_NEQ, f->icmp);
    load_sandbox(&r, f, NFT_REG32_00);
    load_destination(&r, f, NFT_REG32_01);
    if (port == PORT_OWN)
        nft_load_payload(&r, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, behind);
    if (port == PORT_ZERO)
        nft_load_word(&r, 0, behind);
    nft_lookup(&r, nft_named(f, set).text, set_id(f, id), false);
    nft_verdict(&r, NFT_GOTO, nft_named(f, "limited").text);
}

static void put_listed(struct nl_buf *b, const struct nft_table *t, const struct nft_family *f)
{
    refuse(b, t, f, "listed", match_never);
    struct nft_rule r = nft_rule_begin(b, t->name, nft_named(f, "listed").text);
    match_state(&r, NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED));
    nft_verdict(&r, NF_ACCEPT, NULL);
    refuse(b, t, f, "listed", match_mail);
    put_listed_set(b, t, f, "pins", SET_PINS, PORT_ZERO);
    put_listed_set(b, t, f, "pins", SET_PINS, PORT_OWN);
    put_listed_set(b, t, f, "nets_any", SET_NETS_ANY, PORT_NONE);
    put_listed_set(b, t, f, "nets_port", SET_NETS_PORT, PORT_OWN);
    refuse(b, t, f, "listed", NULL);
}

static void put_limited(struct nl_buf *b, const struct nft_table *t, const struct nft_family *f)
{
    static const struct meter rate = {"rate", SET_RATE, NEW_PER_SECOND, NEW_BURST, NFT_LIMIT_F_INV};
    struct nft_name chain = nft_named(f, "limited");
    struct nft_rule r = nft_rule_begin(b, t->name, chain.text);
    match_state(&r, NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED));
    nft_verdict(&r, NF_ACCEPT, NULL);
    r = nft_rule_begin(b, t->name, chain.text); /* not the first packet of a connection, but of none that is
                                                 * known; what IPv6 says to neighbours is tracked by nobody */
    match_state(&r, NF_CT_STATE_INVALID_BIT | NF_CT_STATE_UNTRACKED_BIT);
    nft_drop(&r);
    r = nft_rule_begin(b, t->name, chain.text);
    limit_sandbox(&r, f, &rate);
    nft_verdict(&r, NFT_GOTO, nft_named(f, "over").text);
    r = nft_rule_begin(b, t->name, chain.text);
    lookup_verdict(&r, f, nft_named(f, "counts").text, set_id(f, SET_COUNTS));
    nft_put_count_rules(b, t, f, chain.text, "connections", SET_CONNECTIONS, KEEPER_CONNECTIONS_DEFAULT);
    refuse(b, t, f, "over", NULL);
}

/* ---- hooks */

/* This interface did not forward before us, and still does not. */
static void put_closed(struct nl_buf *b, const struct nft_table *t, const struct nft_family *f)
{
    struct nft_rule r = nft_rule_begin(b, t->name, "forward");
    nft_match_byte(&r, NFT_META_NFPROTO, NFT_CMP_EQ, f->protocol);
    nft_load_meta(&r, NFT_META_IIFNAME);
    nft_lookup(&r, nft_named(f, "closed").text, set_id(f, SET_CLOSED), false);
    nft_load_meta(&r, NFT_META_OIFNAME); /* another daemon's sandboxes: its own table decides */
    nft_compare(&r, NFT_CMP_NEQ, "sil", 3);
    /* whoever else begins to forward on this host later (containers, say) sends out, or redirects with rules
     * of its own, and both are left alone */
    match_state(&r, NF_CT_STATE_BIT(IP_CT_NEW) | NF_CT_STATE_INVALID_BIT | NF_CT_STATE_UNTRACKED_BIT);
    load_ct(&r, NFT_CT_STATUS);
    nft_mask(&r, IPS_DST_NAT);
    nft_compare(&r, NFT_CMP_EQ, &(uint32_t){0}, 4);
    nft_drop(&r);
}

/* Tells what the name servers that we chose answer a sandbox, so that its log can have names. Others it may
 * ask, too, but they could say anything. */
static void put_answers(struct nl_buf *b, const struct nft_table *t)
{
    static const struct meter answers = {"answers", SET_ANSWERS, ANSWERS_PER_SECOND, ANSWERS_BURST, 0};
    const struct nft_family *f = &nft_families[NFT_V4];
    if (t->silent)
        return;
    struct nft_rule r = nft_rule_begin(b, t->name, "forward");
    match_link(&r, NFT_META_OIFNAME, t);
    nft_match_byte(&r, NFT_META_NFPROTO, NFT_CMP_EQ, f->protocol);
    nft_load_payload(&r, NFT_PAYLOAD_NETWORK_HEADER, f->source, f->address_len, NFT_REG_1);
    nft_lookup(&r, "resolvers", SET_RESOLVERS, false);
    nft_match_from_port(&r, IPPROTO_UDP, 53);
    match_state(&r, NF_CT_STATE_BIT(IP_CT_ESTABLISHED));
    load_destination(&r, f, NFT_REG_1);
    limit_loaded(&r, &answers);
    tell(&r, t->answer_group, ANSWER_BYTES);
}

static void put_forward(struct nl_buf *b, const struct nft_table *t)
{
    const uint32_t answers = NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED);
    struct nft_rule r = nft_rule_begin(b, t->name, "forward");
    match_link(&r, NFT_META_IIFNAME, t);
    nft_verdict(&r, NFT_GOTO, "from_box");
    put_answers(b, t);
    r = nft_rule_begin(b, t->name, "forward"); /* into a sandbox: answers only */
    match_link(&r, NFT_META_OIFNAME, t);
    match_state(&r, answers);
    nft_verdict(&r, NF_ACCEPT, NULL);
    r = nft_rule_begin(b, t->name, "forward");
    match_link(&r, NFT_META_OIFNAME, t);
    nft_drop(&r);
    for (int i = 0; i < nft_family_count(t); i++)
        put_closed(b, t, &nft_families[i]);
}

/* The host itself. What it says about neighbours and routers needs no exception: both ends know what they
 * have to (network.c). */
static void put_host(struct nl_buf *b, const struct nft_table *t)
{
    struct nft_rule r =
        nft_rule_begin(b, t->name, "input"); /* every address and port, this daemon included */
    match_link(&r, NFT_META_IIFNAME, t);
    nft_drop(&r);
    r = nft_rule_begin(b, t->name,
                       "output"); /* the router's complaints (such as "packet too big"), nothing else */
    match_link(&r, NFT_META_OIFNAME, t);
    match_state(&r, NF_CT_STATE_BIT(IP_CT_RELATED));
    nft_verdict(&r, NF_ACCEPT, NULL);
    r = nft_rule_begin(b, t->name, "output");
    match_link(&r, NFT_META_OIFNAME, t);
    nft_drop(&r);
}

static void put_masquerade(struct nl_buf *b, const struct nft_table *t, const struct nft_family *f)
{
    struct ip v6 = nft_address6(t, t->pool),
              bits = ip_network_last(&(struct ip){0}, IP_V4_BITS + t->pool_prefix);
    const size_t skip = sizeof bits.bytes - 4; /* of IPv4 in IPv6's */
    for (size_t i = 0; i < sizeof bits.bytes; i++)
        bits.bytes[i] = (unsigned char)~bits.bytes[i];
    struct nft_rule r = nft_rule_begin(b, t->name, "nat");
    nft_match_byte(&r, NFT_META_NFPROTO, NFT_CMP_EQ, f->protocol);
    nft_load_payload(&r, NFT_PAYLOAD_NETWORK_HEADER, f->source, f->address_len, NFT_REG_1);
    nft_mask_bytes(&r, f->index == NFT_V6 ? bits.bytes : bits.bytes + skip, f->address_len);
    nft_compare(&r, NFT_CMP_EQ, f->index == NFT_V6 ? v6.bytes : v6.bytes + skip, f->address_len);
    nft_expression(&r, "masq");
    nft_expression_end(&r);
    nft_rule_end(&r);
}

void nft_put_rules(struct nl_buf *b, const struct nft_table *t)
{
    put_forward(b, t);
    put_host(b, t);
    for (int i = 0; i < nft_family_count(t); i++) {
        const struct nft_family *f = &nft_families[i];
        put_from_box(b, t, f);
        put_listed(b, t, f);
        put_limited(b, t, f);
        put_note(b, t, f);
        put_masquerade(b, t, f);
    }
}
