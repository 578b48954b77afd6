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
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nfnetlink.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum {
    TABLE_BYTES = 65536, /* the rules take less than half of it */
    PIN_BYTES = 256,     /* one element in a message of its own */
    NEW_PER_SECOND = 100,
    NEW_BURST = 200,
    NOTES_PER_SECOND = 10,
    NOTES_BURST = 30,
    NOTE_BYTES = 64, /* of a refused packet: its headers */
    RATE_FORGET_MS = 60000,
    PINS_MAX = 262144,
    TYPE_IFNAME_IPV4 = NFT_TYPE_IFNAME << 6 | NFT_TYPE_IPV4,
    TYPE_PAIR = NFT_TYPE_IPV4 << 6 | NFT_TYPE_IPV4,
    TYPE_PAIR_PORT = TYPE_PAIR << 6 | NFT_TYPE_PORT,
    SOURCE = 12, /* offsets in the IPv4 header */
    DESTINATION = 16,
};

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

static void load_address(struct nft_rule *r, uint32_t offset, uint32_t reg)
{
    nft_load_payload(r, NFT_PAYLOAD_NETWORK_HEADER, offset, 4, reg);
}

struct meter {
    const char *set;
    uint32_t id, per_second, burst;
    uint32_t flags; /* NFT_LIMIT_F_INV: the rule goes on when the sandbox is over it */
};

/* A meter per source address. */
static void limit_source(struct nft_rule *r, const struct meter *m)
{
    load_address(r, SOURCE, NFT_REG_1);
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

void nft_put_count_rules(struct nl_buf *b, const struct nft_table *t, const char *chain, const char *set,
                         uint32_t set_id, uint32_t connections)
{
    struct nft_rule r = nft_rule_begin(b, t->name, chain);
    load_address(&r, SOURCE, NFT_REG_1);
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
    nft_verdict(&r, NFT_GOTO, "over");
    r = nft_rule_begin(b, t->name, chain);
    nft_verdict(&r, NF_ACCEPT, NULL);
}

/* Goes where the map leads; a source that is not in it goes on. */
static void lookup_verdict(struct nft_rule *r, const char *set, uint32_t id)
{
    load_address(r, SOURCE, NFT_REG_1);
    nft_expression(r, "lookup");
    nl_put_text(r->b, NFTA_LOOKUP_SET, set);
    nl_put_be32(r->b, NFTA_LOOKUP_SREG, NFT_REG_1);
    nl_put_be32(r->b, NFTA_LOOKUP_SET_ID, id);
    nl_put_be32(r->b, NFTA_LOOKUP_DREG, NFT_REG_VERDICT);
    nft_expression_end(r);
    nft_rule_end(r);
}

/* ---- the table */

enum {
    SET_BOXES = 1,
    SET_NOT_PUBLIC,
    SET_NEVER,
    SET_PROTOCOLS,
    SET_RESOLVERS,
    SET_CLOSED,
    SET_RATE,
    SET_NOTES,
    SET_CONNECTIONS,
    SET_COUNTS,
    SET_LISTED,
    SET_NETS_ANY,
    SET_NETS_PORT,
    SET_PINS,
    SET_FIRST_FREE,
};

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

static void put_sets(struct nl_buf *b, const struct nft_table *t)
{
    static const uint8_t protocols[] = {IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP};
    static const uint32_t pair[] = {4, 4, 0}, pair_port[] = {4, 4, 2, 0};
    const uint32_t meter = NFT_SET_EVAL | NFT_SET_TIMEOUT, ranges = NFT_SET_INTERVAL | NFT_SET_CONCAT;
    const struct nft_set sets[] = {
        {.name = "boxes", .id = SET_BOXES, .key_type = TYPE_IFNAME_IPV4, .key_len = IFNAMSIZ + 4},
        {"not_public", SET_NOT_PUBLIC, NFT_SET_INTERVAL, NFT_TYPE_IPV4, 4, 0, 0, NULL, false},
        {"never", SET_NEVER, NFT_SET_INTERVAL, NFT_TYPE_IPV4, 4, 0, 0, NULL, false},
        {"protocols", SET_PROTOCOLS, 0, NFT_TYPE_PROTOCOL, 1, 0, 0, NULL, false},
        {"resolvers", SET_RESOLVERS, 0, NFT_TYPE_IPV4, 4, 0, 0, NULL, false},
        {"closed", SET_CLOSED, 0, NFT_TYPE_IFNAME, IFNAMSIZ, 0, 0, NULL, false},
        {"rate", SET_RATE, meter, NFT_TYPE_IPV4, 4, NFT_METERS_MAX, RATE_FORGET_MS, NULL, false},
        {"notes", SET_NOTES, meter, NFT_TYPE_IPV4, 4, NFT_METERS_MAX, RATE_FORGET_MS, NULL, false},
        {"connections", SET_CONNECTIONS, NFT_SET_EVAL, NFT_TYPE_IPV4, 4, NFT_METERS_MAX, 0, NULL, false},
        {"counts", SET_COUNTS, 0, NFT_TYPE_IPV4, 4, 0, 0, NULL, true},
        {"listed", SET_LISTED, 0, NFT_TYPE_IPV4, 4, 0, 0, NULL, false},
        {"nets_any", SET_NETS_ANY, ranges, TYPE_PAIR, 8, 0, 0, pair, false},
        {"nets_port", SET_NETS_PORT, ranges, TYPE_PAIR_PORT, 12, 0, 0, pair_port, false},
        {"pins", SET_PINS, NFT_SET_TIMEOUT, TYPE_PAIR_PORT, 12, PINS_MAX, 0, NULL, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(sets); i++)
        nft_put_set(b, t->name, &sets[i]);
    put_ranges(b, t, "not_public", ranges_not_public, ranges_not_public_count);
    put_ranges(b, t, "never", ranges_never, ranges_never_count);
    for (size_t i = 0; i < ARRAY_SIZE(protocols); i++)
        put_one(b, t, "protocols", &protocols[i], 1, 0);
    for (size_t i = 0; i < t->resolver_count; i++)
        put_one(b, t, "resolvers", &t->resolvers[i], 4, 0);
    if (t->closed[0]) {
        char name[IFNAMSIZ] = {0};
        memcpy(name, t->closed, strnlen(t->closed, IFNAMSIZ - 1));
        put_one(b, t, "closed", name, sizeof name, 0);
    }
}

/* Tells of a packet that is about to be dropped, a few times a second and sandbox, and comes back. */
static void put_note(struct nl_buf *b, const struct nft_table *t)
{
    static const struct meter notes = {"notes", SET_NOTES, NOTES_PER_SECOND, NOTES_BURST, 0};
    uint16_t group = htons(t->log_group);
    if (t->silent)
        return;
    struct nft_rule r = nft_rule_begin(b, t->name, "note");
    limit_source(&r, &notes);
    nft_expression(&r, "log");
    nl_put(b, NFTA_LOG_GROUP, &group, sizeof group);
    nl_put_be32(b, NFTA_LOG_SNAPLEN, NOTE_BYTES);
    nft_expression_end(&r);
    nft_rule_end(&r);
}

/* Two rules: one that tells, one that counts and drops. match says what. */
static void refuse(struct nl_buf *b, const struct nft_table *t, const char *chain,
                   void (*match)(struct nft_rule *r))
{
    struct nft_rule r = nft_rule_begin(b, t->name, chain);
    if (match)
        match(&r);
    nft_verdict(&r, NFT_JUMP, "note");
    r = nft_rule_begin(b, t->name, chain);
    if (match)
        match(&r);
    nft_drop(&r);
}

static void match_not_public(struct nft_rule *r)
{
    load_address(r, DESTINATION, NFT_REG_1);
    nft_lookup(r, "not_public", SET_NOT_PUBLIC, false);
}

static void match_never(struct nft_rule *r)
{
    load_address(r, DESTINATION, NFT_REG_1);
    nft_lookup(r, "never", SET_NEVER, false);
}

static void match_mail(struct nft_rule *r) /* the first thing a stolen machine is used for */
{
    nft_match_port(r, IPPROTO_TCP, 25);
}

/* From a sandbox to somewhere else: what is forbidden comes before what is already established. */
static void put_from_box(struct nl_buf *b, const struct nft_table *t)
{
    struct nft_rule r = nft_rule_begin(b, t->name, "from_box");
    nft_match_byte(&r, NFT_META_NFPROTO, NFT_CMP_NEQ, NFPROTO_IPV4);
    nft_drop(&r);
    r = nft_rule_begin(b, t->name,
                       "from_box"); /* a source that is not its own, or a sandbox we do not know */
    nft_load_meta(&r, NFT_META_IIFNAME);
    load_address(&r, SOURCE, NFT_REG_2); /* the name fills register 1, so both lie side by side */
    nft_lookup(&r, "boxes", SET_BOXES, true);
    nft_drop(&r);
    r = nft_rule_begin(b, t->name, "from_box"); /* another sandbox */
    match_link(&r, NFT_META_OIFNAME, t);
    nft_drop(&r);
    r = nft_rule_begin(b, t->name, "from_box");
    nft_load_meta(&r, NFT_META_L4PROTO);
    nft_lookup(&r, "protocols", SET_PROTOCOLS, true);
    nft_drop(&r);
    r = nft_rule_begin(b, t->name, "from_box");
    load_address(&r, SOURCE, NFT_REG_1);
    nft_lookup(&r, "listed", SET_LISTED, false);
    nft_verdict(&r, NFT_GOTO, "listed");
    static const uint8_t dns[] = {IPPROTO_UDP, IPPROTO_TCP};
    for (size_t i = 0; i < ARRAY_SIZE(dns); i++) { /* the one thing that may lie in a private network */
        r = nft_rule_begin(b, t->name, "from_box");
        load_address(&r, DESTINATION, NFT_REG_1);
        nft_lookup(&r, "resolvers", SET_RESOLVERS, false);
        nft_match_port(&r, dns[i], 53);
        nft_verdict(&r, NFT_GOTO, "limited");
    }
    refuse(b, t, "from_box", match_not_public);
    refuse(b, t, "from_box", match_mail);
    r = nft_rule_begin(b, t->name, "from_box");
    nft_verdict(&r, NFT_GOTO, "limited");
}

enum listed_port { PORT_NONE, PORT_ZERO, PORT_OWN };

/* Source, destination and port side by side, looked up in a set of what is allowed. */
static void put_listed_set(struct nl_buf *b, const struct nft_table *t, const char *set, uint32_t id,
                           enum listed_port port)
{
    struct nft_rule r = nft_rule_begin(b, t->name, "listed");
    if (port == PORT_OWN)
        nft_match_byte(&r, NFT_META_L4PROTO, NFT_CMP_NEQ, IPPROTO_ICMP);
    load_address(&r, SOURCE, NFT_REG32_00);
    load_address(&r, DESTINATION, NFT_REG32_01);
    if (port == PORT_OWN)
        nft_load_payload(&r, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, NFT_REG32_02);
    if (port == PORT_ZERO)
        nft_load_word(&r, 0, NFT_REG32_02);
    nft_lookup(&r, set, id, false);
    nft_verdict(&r, NFT_GOTO, "limited");
}

static void put_listed(struct nl_buf *b, const struct nft_table *t)
{
    refuse(b, t, "listed", match_never);
    struct nft_rule r = nft_rule_begin(b, t->name, "listed");
    match_state(&r, NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED));
    nft_verdict(&r, NF_ACCEPT, NULL);
    refuse(b, t, "listed", match_mail);
    put_listed_set(b, t, "pins", SET_PINS, PORT_ZERO);
    put_listed_set(b, t, "pins", SET_PINS, PORT_OWN);
    put_listed_set(b, t, "nets_any", SET_NETS_ANY, PORT_NONE);
    put_listed_set(b, t, "nets_port", SET_NETS_PORT, PORT_OWN);
    refuse(b, t, "listed", NULL);
}

static void put_limited(struct nl_buf *b, const struct nft_table *t)
{
    static const struct meter rate = {"rate", SET_RATE, NEW_PER_SECOND, NEW_BURST, NFT_LIMIT_F_INV};
    struct nft_rule r = nft_rule_begin(b, t->name, "limited");
    match_state(&r, NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED));
    nft_verdict(&r, NF_ACCEPT, NULL);
    r = nft_rule_begin(b, t->name,
                       "limited"); /* not the first packet of a connection, but of none that is known */
    match_state(&r, NF_CT_STATE_INVALID_BIT | NF_CT_STATE_UNTRACKED_BIT);
    nft_drop(&r);
    r = nft_rule_begin(b, t->name, "limited");
    limit_source(&r, &rate);
    nft_verdict(&r, NFT_GOTO, "over");
    r = nft_rule_begin(b, t->name, "limited");
    lookup_verdict(&r, "counts", SET_COUNTS);
    nft_put_count_rules(b, t, "limited", "connections", SET_CONNECTIONS, KEEPER_CONNECTIONS_DEFAULT);
    refuse(b, t, "over", NULL);
}

static void put_hooks(struct nl_buf *b, const struct nft_table *t)
{
    const uint32_t answers = NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED);
    struct nft_rule r = nft_rule_begin(b, t->name, "forward");
    match_link(&r, NFT_META_IIFNAME, t);
    nft_verdict(&r, NFT_GOTO, "from_box");
    r = nft_rule_begin(b, t->name, "forward"); /* into a sandbox: answers only */
    match_link(&r, NFT_META_OIFNAME, t);
    match_state(&r, answers);
    nft_verdict(&r, NF_ACCEPT, NULL);
    r = nft_rule_begin(b, t->name, "forward");
    match_link(&r, NFT_META_OIFNAME, t);
    nft_drop(&r);
    r = nft_rule_begin(b, t->name,
                       "forward"); /* this interface did not forward before us, and still does not */
    nft_load_meta(&r, NFT_META_IIFNAME);
    nft_lookup(&r, "closed", SET_CLOSED, false);
    nft_load_meta(&r, NFT_META_OIFNAME); /* another daemon's sandboxes: its own table decides */
    nft_compare(&r, NFT_CMP_NEQ, "sil", 3);
    /* whoever else begins to forward on this host later (containers, say) sends out, or redirects with rules
     * of its own, and both are left alone */
    match_state(&r, NF_CT_STATE_BIT(IP_CT_NEW) | NF_CT_STATE_INVALID_BIT | NF_CT_STATE_UNTRACKED_BIT);
    load_ct(&r, NFT_CT_STATUS);
    nft_mask(&r, IPS_DST_NAT);
    nft_compare(&r, NFT_CMP_EQ, &(uint32_t){0}, 4);
    nft_drop(&r);

    r = nft_rule_begin(b, t->name,
                       "input"); /* the host itself, on every address and port, this daemon included */
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

    uint32_t bits = htonl(t->pool_prefix ? UINT32_MAX << (32 - t->pool_prefix) : 0);
    r = nft_rule_begin(b, t->name, "nat");
    nft_match_byte(&r, NFT_META_NFPROTO, NFT_CMP_EQ, NFPROTO_IPV4);
    load_address(&r, SOURCE, NFT_REG_1);
    nft_mask(&r, bits);
    nft_compare(&r, NFT_CMP_EQ, &t->pool, 4);
    nft_expression(&r, "masq");
    nft_expression_end(&r);
    nft_rule_end(&r);
}

/* ---- what is allowed for a time outlives the table */

struct carried {
    struct nft_pin pin;
    uint64_t left_ms;
};

struct carry {
    const struct nft_box *boxes;
    size_t box_count;
    struct carried *pins;
    size_t count, cap;
};

static bool is_listed(const struct carry *c, uint32_t source)
{
    for (size_t i = 0; i < c->box_count; i++)
        if (c->boxes[i].address == source)
            return c->boxes[i].listed;
    return false;
}

static void carry_found(const void *key, const void *key_end, uint64_t left_ms, void *arg)
{
    struct carry *c = arg;
    struct carried one = {.left_ms = left_ms};
    (void)key_end;
    memcpy(&one.pin, key, sizeof one.pin);
    if (!left_ms || !is_listed(c, one.pin.source))
        return;
    if (c->count == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : 256;
        struct carried *more = realloc(c->pins, cap * sizeof *more);
        if (!more)
            return; /* its name is asked for again */
        c->pins = more;
        c->cap = cap;
    }
    c->pins[c->count++] = one;
}

static bool has_class_before(const struct carry *c, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (c->boxes[k].policy.connections == c->boxes[i].policy.connections)
            return true;
    return false;
}

static int write_table(const struct nft_table *t, const struct carry *c)
{
    static const char *const inner[] = {"note", "over", "limited", "listed", "from_box"};
    size_t cap = TABLE_BYTES + c->count * PIN_BYTES;
    for (size_t i = 0; i < c->box_count; i++)
        cap += c->boxes[i].listed || c->boxes[i].policy.connections ? NFT_BOX_BYTES : PIN_BYTES;
    auto_free char *data = malloc(cap);
    struct nl_buf b;
    if (!data)
        return -ENOMEM;
    nl_init(&b, data, cap);
    nft_batch_edge(&b, NFNL_MSG_BATCH_BEGIN);
    nft_put_table(&b, t->name, NFT_MSG_NEWTABLE, NLM_F_CREATE); /* so that there is one to delete */
    nft_put_table(&b, t->name, NFT_MSG_DELTABLE, 0);
    nft_put_table(&b, t->name, NFT_MSG_NEWTABLE, NLM_F_CREATE);
    put_sets(&b, t);
    for (size_t i = 0; i < ARRAY_SIZE(inner); i++)
        nft_put_chain(&b, t->name, inner[i], NULL, 0, 0);
    nft_put_chain(&b, t->name, "forward", "filter", NF_INET_FORWARD, 0);
    nft_put_chain(&b, t->name, "input", "filter", NF_INET_LOCAL_IN, 0);
    nft_put_chain(&b, t->name, "output", "filter", NF_INET_LOCAL_OUT, 0);
    nft_put_chain(&b, t->name, "nat", "nat", NF_INET_POST_ROUTING, 100);
    for (size_t i = 0; i < c->box_count; i++) {
        if (!has_class_before(c, i))
            nft_put_class(&b, t, c->boxes[i].policy.connections, SET_FIRST_FREE + (uint32_t)i);
        nft_put_box(&b, t, &c->boxes[i]);
    }
    for (size_t i = 0; i < c->count; i++)
        nft_put_pin(&b, t, NFT_MSG_NEWSETELEM, NLM_F_CREATE, &c->pins[i].pin, c->pins[i].left_ms);
    put_note(&b, t);
    put_limited(&b, t);
    put_listed(&b, t);
    put_from_box(&b, t);
    put_hooks(&b, t);
    nft_put_table(&b, t->name, NFT_MSG_NEWTABLE,
                  NLM_F_CREATE | NLM_F_ACK); /* there already: only for its answer */
    nft_batch_edge(&b, NFNL_MSG_BATCH_END);
    return nft_talk(&b);
}

int nft_table_replace(const struct nft_table *t, const struct nft_box *boxes, size_t count,
                      struct error *reterr)
{
    struct carry c = {.boxes = boxes, .box_count = count};
    (void)nft_set_each(t->name, "pins", sizeof(struct nft_pin), carry_found,
                       &c); /* mostly there is no table */
    int r = write_table(t, &c);
    free(c.pins);
    return r < 0
               ? error_sys(reterr, -r, "write the packet filter (nf_tables with nat and connection tracking)")
               : 0;
}

int nft_table_remove(const struct nft_table *t)
{
    _Alignas(4) char data[1024];
    struct nl_buf b;
    nl_init(&b, data, sizeof data);
    nft_batch_edge(&b, NFNL_MSG_BATCH_BEGIN);
    nft_put_table(&b, t->name, NFT_MSG_DELTABLE, NLM_F_ACK);
    nft_batch_edge(&b, NFNL_MSG_BATCH_END);
    int r = nft_talk(&b);
    return r == -ENOENT ? 0 : r;
}

int nft_table_exists(const struct nft_table *t)
{
    _Alignas(4) char data[512];
    struct nl_buf b;
    nl_init(&b, data, sizeof data);
    nft_put_table(&b, t->name, NFT_MSG_GETTABLE, NLM_F_ACK);
    int r = nft_talk(&b);
    return r == -ENOENT ? 0 : r < 0 ? r : 1;
}
