/* SPDX-License-Identifier: Apache-2.0 */
/* nft_box.c: the elements of one sandbox in the table of nft.c. "Address" is its IPv4 address also where the
 * destination is of IPv6; of the sets that have destinations or chains in them there are two, see
 * nft_internal.h.
 *
 *   boxes      link and own address, of the family: without it nothing passes
 *   listed     address: only what the next three name passes
 *   nets_any   address, range of destinations
 *   nets_port  address, range of destinations, port
 *   pins       address, destination, port or 0: for a time
 *   counts     address: leads to the chain of those who may have so many connections. Chains and their sets
 * are made when the first sandbox needs them and go with the last */
#include "keeper/nft_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <stdio.h>
#include <string.h>

enum { FORGET_MAX = 4096, CLASS_BYTES = 4096, CLASS_TRIES = 4 };

enum { SOURCE_LEN = 4, PORT_LEN = 4 /* two bytes and two of padding */ };

size_t nft_key_len(const struct nft_family *f)
{
    return SOURCE_LEN + f->address_len + PORT_LEN;
}

struct nft_key nft_key_make(const struct nft_family *f, uint32_t source, const struct ip *destination,
                            uint16_t port)
{
    struct nft_key k = {.len = nft_key_len(f), .any_len = SOURCE_LEN + f->address_len};
    uint16_t be = htons(port);
    memcpy(k.bytes, &source, SOURCE_LEN);
    memcpy(k.bytes + SOURCE_LEN, destination->bytes + sizeof destination->bytes - f->address_len,
           f->address_len);
    memcpy(k.bytes + k.any_len, &be, sizeof be);
    return k;
}

void nft_key_read(const struct nft_family *f, const void *bytes, uint32_t *ret_source,
                  struct ip *ret_destination, uint16_t *ret_port)
{
    const unsigned char *p = bytes;
    uint32_t v4;
    uint16_t be;
    memcpy(ret_source, p, SOURCE_LEN);
    memcpy(&v4, p + SOURCE_LEN, sizeof v4);
    *ret_destination = f->index == NFT_V4 ? ip_from_v4(v4) : ip_from_v6(p + SOURCE_LEN);
    memcpy(&be, p + SOURCE_LEN + f->address_len, sizeof be);
    *ret_port = ntohs(be);
}

static const struct nft_family *family_of(const struct ip *destination)
{
    return &nft_families[ip_is_v4(destination) ? NFT_V4 : NFT_V6];
}

/* True when another rule of this policy says the same or more: the kernel refuses ranges within ranges. */
static bool is_covered(const struct keeper_policy *p, size_t i)
{
    const struct keeper_rule *r = &p->rules[i];
    for (size_t k = 0; k < p->rule_count; k++) {
        const struct keeper_rule *o = &p->rules[k];
        bool within = o->port == r->port && o->prefix <= r->prefix &&
                      ip_same_prefix(&r->address, &o->address, o->prefix);
        if (k != i && within && (o->prefix < r->prefix || k < i))
            return true;
    }
    return false;
}

static bool has_rule(const struct keeper_policy *p, const struct keeper_rule *r)
{
    for (size_t i = 0; i < p->rule_count; i++)
        if (memcmp(&p->rules[i], r, sizeof *r) == 0 && !is_covered(p, i))
            return true;
    return false;
}

static void put_rule(struct nl_buf *b, const struct nft_table *t, int type, uint16_t flags, uint32_t source,
                     const struct keeper_rule *r)
{
    const struct nft_family *f = family_of(&r->address);
    struct ip end = ip_network_last(&r->address, r->prefix);
    struct nft_key first = nft_key_make(f, source, &r->address, r->port),
                   last = nft_key_make(f, source, &end, r->port);
    struct nft_element e = {
        .key = first.bytes, .key_end = last.bytes, .key_len = r->port ? first.len : first.any_len};
    nft_put_element(b, t->name, nft_named(f, r->port ? "nets_port" : "nets_any").text, type, flags, &e);
}

/* Rules that `to` has and `from` has not. Those of a family that the table has not open nothing. */
static void put_rules(struct nl_buf *b, const struct nft_table *t, int type, uint16_t flags,
                      const struct nft_box *from, const struct nft_box *to)
{
    for (size_t i = 0; to->listed && i < to->policy.rule_count; i++)
        if ((t->ipv6 || ip_is_v4(&to->policy.rules[i].address)) && !is_covered(&to->policy, i) &&
            !(from->listed && has_rule(&from->policy, &to->policy.rules[i])))
            put_rule(b, t, type, flags, to->address, &to->policy.rules[i]);
}

static void put_address(struct nl_buf *b, const struct nft_table *t, const char *set, int type,
                        uint16_t flags, uint32_t address, const char *chain)
{
    struct nft_element e = {.key = &address, .key_len = sizeof address, .chain = chain};
    nft_put_element(b, t->name, set, type, flags, &e);
}

static void put_link(struct nl_buf *b, const struct nft_table *t, const struct nft_family *f, int type,
                     uint16_t flags, const struct nft_box *box)
{
    char key[IFNAMSIZ + sizeof(struct ip)] = {0};
    memcpy(key, box->link, strnlen(box->link, IFNAMSIZ - 1));
    if (f->index == NFT_V4)
        memcpy(key + IFNAMSIZ, &box->address, sizeof box->address);
    else
        memcpy(key + IFNAMSIZ, &box->address6, sizeof box->address6);
    struct nft_element e = {.key = key, .key_len = IFNAMSIZ + f->address_len};
    nft_put_element(b, t->name, nft_named(f, "boxes").text, type, flags, &e);
}

static uint32_t own_count(const struct nft_box *box)
{
    uint32_t n = box->policy.connections;
    return n == KEEPER_CONNECTIONS_DEFAULT ? 0 : n;
}

static void class_name(char out[NFT_NAME_MAX], const char *kind, const char *suffix, uint32_t connections)
{
    (void)snprintf(out, NFT_NAME_MAX, "%s%s_%u", kind, suffix, connections);
}

/* One set: connections of both families count together. */
void nft_put_class(struct nl_buf *b, const struct nft_table *t, uint32_t connections, uint32_t set_id)
{
    char chain[NFT_NAME_MAX], set[NFT_NAME_MAX];
    if (!connections || connections == KEEPER_CONNECTIONS_DEFAULT)
        return;
    class_name(set, "connections", "", connections);
    struct nft_set s = {.name = set,
                        .id = set_id,
                        .flags = NFT_SET_EVAL,
                        .key_type = NFT_TYPE_IPV4,
                        .key_len = 4,
                        .size = NFT_METERS_MAX};
    for (int i = 0; i < nft_family_count(t); i++) {
        class_name(chain, "count", nft_families[i].suffix, connections);
        nft_put_new_chain(b, t->name, chain);
        if (i == 0)
            nft_put_set(b, t->name, &s);
        nft_put_count_rules(b, t, &nft_families[i], chain, set, set_id, connections);
    }
}

static void put_count(struct nl_buf *b, const struct nft_table *t, const struct nft_family *f, int type,
                      uint16_t flags, const struct nft_box *box)
{
    char chain[NFT_NAME_MAX];
    if (!own_count(box))
        return;
    class_name(chain, "count", f->suffix, own_count(box));
    put_address(b, t, nft_named(f, "counts").text, type, flags, box->address,
                type == NFT_MSG_NEWSETELEM ? chain : NULL);
}

static void put_counts(struct nl_buf *b, const struct nft_table *t, int type, uint16_t flags,
                       const struct nft_box *box)
{
    for (int i = 0; i < nft_family_count(t); i++)
        put_count(b, t, &nft_families[i], type, flags, box);
}

void nft_put_box(struct nl_buf *b, const struct nft_table *t, const struct nft_box *box)
{
    static const struct nft_box nothing;
    if (box->listed) /* first: in a batch it makes no difference, in a trace it reads right */
        put_address(b, t, "listed", NFT_MSG_NEWSETELEM, NLM_F_CREATE, box->address, NULL);
    put_rules(b, t, NFT_MSG_NEWSETELEM, NLM_F_CREATE, &nothing, box);
    put_counts(b, t, NFT_MSG_NEWSETELEM, NLM_F_CREATE, box);
    for (int i = 0; i < nft_family_count(t); i++)
        put_link(b, t, &nft_families[i], NFT_MSG_NEWSETELEM, NLM_F_CREATE, box);
}

void nft_put_pin(struct nl_buf *b, const struct nft_table *t, const struct nft_family *f, int type,
                 uint16_t flags, const void *key, uint64_t ms)
{
    struct nft_element e = {.key = key, .key_len = nft_key_len(f), .timeout_ms = ms};
    nft_put_element(b, t->name, nft_named(f, "pins").text, type, flags, &e);
}

/* ---- one transaction each */

static int finish(struct nl_buf *b, const struct nft_table *t)
{
    nft_put_table(b, t->name, NFT_MSG_NEWTABLE,
                  NLM_F_CREATE | NLM_F_ACK); /* there already: only for its answer */
    nft_batch_edge(b, NFNL_MSG_BATCH_END);
    return nft_talk(b);
}

/* 0 also when there is one. */
static int class_make(const struct nft_table *t, const struct nft_box *box)
{
    _Alignas(4) char data[CLASS_BYTES];
    struct nl_buf b;
    if (!own_count(box))
        return 0;
    nl_init(&b, data, sizeof data);
    nft_batch_edge(&b, NFNL_MSG_BATCH_BEGIN);
    nft_put_class(&b, t, own_count(box), 1);
    int r = finish(&b, t);
    return r == -EEXIST ? 0 : r;
}

static int box_add(const struct nft_table *t, const struct nft_box *box)
{
    _Alignas(4) char data[NFT_BOX_BYTES];
    struct nl_buf b;
    nl_init(&b, data, sizeof data);
    nft_batch_edge(&b, NFNL_MSG_BATCH_BEGIN);
    nft_put_box(&b, t, box);
    return finish(&b, t);
}

int nft_box_add(const struct nft_table *t, const struct nft_box *box, struct error *reterr)
{
    int r = -ENOENT;
    for (int i = 0; i < CLASS_TRIES && r == -ENOENT;
         i++) /* its class may go with another sandbox in between */
        if ((r = class_make(t, box)) == 0)
            r = box_add(t, box);
    return r < 0 ? error_sys(reterr, -r, "let the sandbox through the packet filter") : 0;
}

/* A single message; 0 also when what it removes is not there. */
static int remove_one(const struct nft_table *t,
                      void (*put)(struct nl_buf *b, const struct nft_table *t, const void *arg),
                      const void *arg)
{
    _Alignas(4) char data[1024];
    struct nl_buf b;
    nl_init(&b, data, sizeof data);
    nft_batch_edge(&b, NFNL_MSG_BATCH_BEGIN);
    put(&b, t, arg);
    int r = finish(&b, t);
    return r == -ENOENT ? 0 : r;
}

struct forget { /* keys of one source, found in a set */
    uint32_t source;
    const char *set;
    bool ranges;
    size_t key_len, count;
    unsigned char (*keys)[2][NFT_KEY_MAX];
};

static void key_found(const void *key, const void *key_end, uint64_t left_ms, void *arg)
{
    struct forget *f = arg;
    (void)left_ms;
    if (memcmp(key, &f->source, sizeof f->source) != 0 || f->count == FORGET_MAX)
        return;
    memcpy(f->keys[f->count][0], key, f->key_len);
    memcpy(f->keys[f->count][1], key_end ? key_end : key, f->key_len);
    f->count++;
}

struct forgotten {
    const struct forget *f;
    size_t i;
};

static void put_forgotten(struct nl_buf *b, const struct nft_table *t, const void *arg)
{
    const struct forgotten *g = arg;
    struct nft_element e = {.key = g->f->keys[g->i][0], .key_len = g->f->key_len};
    if (g->f->ranges)
        e.key_end = g->f->keys[g->i][1];
    nft_put_element(b, t->name, g->f->set, NFT_MSG_DELSETELEM, 0, &e);
}

/* One by one: an element may expire between being found and being removed. */
static int forget_in(const struct nft_table *t, const char *set, bool ranges, size_t key_len, uint32_t source)
{
    struct forget f = {.source = source, .set = set, .ranges = ranges, .key_len = key_len};
    f.keys = calloc(FORGET_MAX, sizeof *f.keys);
    int r = f.keys ? nft_set_each(t->name, set, key_len, key_found, &f) : -ENOMEM;
    for (size_t i = 0; r == 0 && i < f.count; i++)
        r = remove_one(t, put_forgotten, &(struct forgotten){&f, i});
    free(f.keys);
    return r;
}

static void keep_first(int *r, int other)
{
    if (*r == 0)
        *r = other;
}

static int forget_pins(const struct nft_table *t, uint32_t source)
{
    int r = 0;
    for (int i = 0; i < nft_family_count(t); i++) {
        const struct nft_family *f = &nft_families[i];
        keep_first(&r, forget_in(t, nft_named(f, "pins").text, false, nft_key_len(f), source));
    }
    return r;
}

static int forget_networks(const struct nft_table *t, uint32_t source)
{
    int r = 0;
    for (int i = 0; i < nft_family_count(t); i++) {
        const struct nft_family *f = &nft_families[i];
        keep_first(&r, forget_in(t, nft_named(f, "nets_any").text, true, nft_key_len(f) - PORT_LEN, source));
        keep_first(&r, forget_in(t, nft_named(f, "nets_port").text, true, nft_key_len(f), source));
    }
    return r;
}

/* Goes when nobody leads there any more; the kernel knows. */
static void class_drop(const struct nft_table *t, uint32_t connections)
{
    _Alignas(4) char data[CLASS_BYTES];
    char name[NFT_NAME_MAX];
    struct nl_buf b;
    if (!connections)
        return;
    nl_init(&b, data, sizeof data);
    nft_batch_edge(&b, NFNL_MSG_BATCH_BEGIN);
    for (int i = 0; i < nft_family_count(t); i++) {
        class_name(name, "count", nft_families[i].suffix, connections);
        nft_message(&b, NFT_MSG_DELRULE, 0); /* all of this chain */
        nl_put_text(&b, NFTA_RULE_TABLE, t->name);
        nl_put_text(&b, NFTA_RULE_CHAIN, name);
        nft_message(&b, NFT_MSG_DELCHAIN, 0);
        nl_put_text(&b, NFTA_CHAIN_TABLE, t->name);
        nl_put_text(&b, NFTA_CHAIN_NAME, name);
    }
    class_name(name, "connections", "", connections);
    nft_message(&b, NFT_MSG_DELSET, 0);
    nl_put_text(&b, NFTA_SET_TABLE, t->name);
    nl_put_text(&b, NFTA_SET_NAME, name);
    (void)finish(&b, t); /* refused while somebody else has this number */
}

static int box_change(const struct nft_table *t, const struct nft_box *from, const struct nft_box *to)
{
    _Alignas(4) char data[NFT_BOX_BYTES];
    struct nl_buf b;
    nl_init(&b, data, sizeof data);
    nft_batch_edge(&b, NFNL_MSG_BATCH_BEGIN);
    if (own_count(from) != own_count(to))
        put_counts(&b, t, NFT_MSG_DELSETELEM, 0, from);
    put_rules(&b, t, NFT_MSG_DELSETELEM, 0, to, from);
    if (to->listed && !from->listed)
        put_address(&b, t, "listed", NFT_MSG_NEWSETELEM, NLM_F_CREATE, to->address, NULL);
    put_rules(&b, t, NFT_MSG_NEWSETELEM, NLM_F_CREATE, from, to);
    if (from->listed && !to->listed)
        put_address(&b, t, "listed", NFT_MSG_DELSETELEM, 0, to->address, NULL);
    if (own_count(from) != own_count(to))
        put_counts(&b, t, NFT_MSG_NEWSETELEM, NLM_F_CREATE, to);
    return finish(&b, t);
}

int nft_box_change(const struct nft_table *t, const struct nft_box *from, const struct nft_box *to,
                   struct error *reterr)
{
    int r = -ENOENT;
    if (from->listed && !to->policy.keep && (r = forget_pins(t, from->address)) == 0)
        r = -ENOENT; /* what is allowed shrinks first */
    for (int i = 0; i < CLASS_TRIES && r == -ENOENT; i++)
        if ((r = class_make(t, to)) == 0)
            r = box_change(t, from, to);
    if (r == 0 && own_count(from) != own_count(to))
        class_drop(t, own_count(from));
    return r < 0 ? error_sys(reterr, -r, "change the sandbox's place in the packet filter") : 0;
}

struct box_of { /* elements that are one for each family */
    const struct nft_box *box;
    const struct nft_family *family;
};

static void put_link_off(struct nl_buf *b, const struct nft_table *t, const void *arg)
{
    const struct box_of *o = arg;
    put_link(b, t, o->family, NFT_MSG_DELSETELEM, 0, o->box);
}

static void put_count_off(struct nl_buf *b, const struct nft_table *t, const void *arg)
{
    const struct box_of *o = arg;
    put_address(b, t, nft_named(o->family, "counts").text, NFT_MSG_DELSETELEM, 0, o->box->address, NULL);
}

static void put_listed_off(struct nl_buf *b, const struct nft_table *t, const void *arg)
{
    put_address(b, t, "listed", NFT_MSG_DELSETELEM, 0, ((const struct nft_box *)arg)->address, NULL);
}

int nft_box_remove(const struct nft_table *t, const struct nft_box *box, bool certain)
{
    int r = 0;
    for (int i = 0; i < nft_family_count(t); i++)
        keep_first(&r, remove_one(t, put_link_off, &(struct box_of){box, &nft_families[i]}));
    for (int i = 0; i < nft_family_count(t) && (!certain || own_count(box)); i++)
        keep_first(&r, remove_one(t, put_count_off, &(struct box_of){box, &nft_families[i]}));
    class_drop(t, own_count(box));
    if (certain && !box->listed)
        return r;
    keep_first(&r, forget_networks(t, box->address));
    keep_first(&r, forget_pins(t, box->address));
    /* last: without it, what is left of the others would mean nothing */
    keep_first(&r, remove_one(t, put_listed_off, box));
    return r;
}

/* New, or again for the full time: kernels before 6.12 do not prolong an element that is there. */
static int pin(const struct nft_table *t, const struct nft_family *f, const struct nft_key *k, uint64_t ms)
{
    int r = -EEXIST;
    for (int i = 0; i < 4 && (r == -EEXIST || r == -ENOENT); i++) {
        _Alignas(4) char data[1024];
        struct nl_buf b;
        nl_init(&b, data, sizeof data);
        nft_batch_edge(&b, NFNL_MSG_BATCH_BEGIN);
        if (i % 2)
            nft_put_pin(&b, t, f, NFT_MSG_DELSETELEM, 0, k->bytes, 0);
        nft_put_pin(&b, t, f, NFT_MSG_NEWSETELEM, NLM_F_CREATE | NLM_F_EXCL, k->bytes, ms);
        r = finish(&b, t);
    }
    return r;
}

int nft_box_allow(const struct nft_table *t, uint32_t address, const struct keeper_policy *rules,
                  struct error *reterr)
{
    for (size_t i = 0; i < rules->rule_count; i++) {
        const struct nft_family *f = family_of(&rules->rules[i].address);
        struct nft_key k = nft_key_make(f, address, &rules->rules[i].address, rules->rules[i].port);
        if (f->index == NFT_V6 && !t->ipv6)
            continue; /* it has no way there anyhow */
        int r = pin(t, f, &k, (uint64_t)rules->seconds * 1000);
        if (r < 0)
            return error_sys(reterr, -r, "let the sandbox reach an address");
    }
    return 0;
}

struct allowed {
    const struct nft_family *family;
    uint32_t source;
    void (*found)(const struct ip *destination, uint16_t port, void *arg);
    void *arg;
};

static void pin_found(const void *key, const void *key_end, uint64_t left_ms, void *arg)
{
    const struct allowed *a = arg;
    uint32_t source;
    struct ip destination;
    uint16_t port;
    (void)key_end;
    (void)left_ms;
    nft_key_read(a->family, key, &source, &destination, &port);
    if (source == a->source)
        a->found(&destination, port, a->arg);
}

int nft_box_allowed(const struct nft_table *t, uint32_t address,
                    void (*found)(const struct ip *destination, uint16_t port, void *arg), void *arg)
{
    int r = 0;
    for (int i = 0; i < nft_family_count(t) && r == 0; i++) {
        struct allowed a = {&nft_families[i], address, found, arg};
        r = nft_set_each(t->name, nft_named(a.family, "pins").text, nft_key_len(a.family), pin_found, &a);
    }
    return r;
}
