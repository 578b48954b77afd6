/* SPDX-License-Identifier: Apache-2.0 */
/* nft_box.c: the elements of one sandbox in the table of nft.c.
 *
 *   boxes      link and address: without it nothing passes
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

enum { FORGET_MAX = 4096, CLASS_NAME = 32, CLASS_BYTES = 2048, CLASS_TRIES = 4 };

struct net_key { /* a range's first or last; nets_any leaves out the port */
    uint32_t source, destination;
    uint16_t port, zero;
};
enum { ANY_LEN = 8, PORT_LEN = 12 };
_Static_assert(sizeof(struct net_key) == PORT_LEN && sizeof(struct nft_pin) == PORT_LEN,
               "as the kernel's keys");

static uint32_t tail_of(const struct keeper_rule *r)
{
    return r->prefix ? UINT32_MAX >> (r->prefix - 1) >> 1 : UINT32_MAX;
}

/* True when another rule of this policy says the same or more: the kernel refuses ranges within ranges. */
static bool is_covered(const struct keeper_policy *p, size_t i)
{
    const struct keeper_rule *r = &p->rules[i];
    for (size_t k = 0; k < p->rule_count; k++) {
        const struct keeper_rule *o = &p->rules[k];
        bool within = o->port == r->port && o->prefix <= r->prefix &&
                      !((ntohl(r->address) ^ ntohl(o->address)) & ~tail_of(o));
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
    struct net_key first = {source, r->address, htons(r->port), 0}, last = first;
    last.destination = htonl(ntohl(r->address) | tail_of(r));
    struct nft_element e = {.key = &first, .key_end = &last, .key_len = r->port ? PORT_LEN : ANY_LEN};
    nft_put_element(b, t->name, r->port ? "nets_port" : "nets_any", type, flags, &e);
}

/* Rules that `to` has and `from` has not. */
static void put_rules(struct nl_buf *b, const struct nft_table *t, int type, uint16_t flags,
                      const struct nft_box *from, const struct nft_box *to)
{
    for (size_t i = 0; to->listed && i < to->policy.rule_count; i++)
        if (!is_covered(&to->policy, i) && !(from->listed && has_rule(&from->policy, &to->policy.rules[i])))
            put_rule(b, t, type, flags, to->address, &to->policy.rules[i]);
}

static void put_address(struct nl_buf *b, const struct nft_table *t, const char *set, int type,
                        uint16_t flags, uint32_t address, const char *chain)
{
    struct nft_element e = {.key = &address, .key_len = sizeof address, .chain = chain};
    nft_put_element(b, t->name, set, type, flags, &e);
}

static void put_link(struct nl_buf *b, const struct nft_table *t, int type, uint16_t flags,
                     const struct nft_box *box)
{
    char key[IFNAMSIZ + 4] = {0};
    memcpy(key, box->link, strnlen(box->link, IFNAMSIZ - 1));
    memcpy(key + IFNAMSIZ, &box->address, 4);
    struct nft_element e = {.key = key, .key_len = sizeof key};
    nft_put_element(b, t->name, "boxes", type, flags, &e);
}

static uint32_t own_count(const struct nft_box *box)
{
    uint32_t n = box->policy.connections;
    return n == KEEPER_CONNECTIONS_DEFAULT ? 0 : n;
}

static void class_name(char out[CLASS_NAME], const char *kind, uint32_t connections)
{
    (void)snprintf(out, CLASS_NAME, "%s_%u", kind, connections);
}

void nft_put_class(struct nl_buf *b, const struct nft_table *t, uint32_t connections, uint32_t set_id)
{
    char chain[CLASS_NAME], set[CLASS_NAME];
    if (!connections || connections == KEEPER_CONNECTIONS_DEFAULT)
        return;
    class_name(chain, "count", connections);
    class_name(set, "connections", connections);
    struct nft_set s = {.name = set,
                        .id = set_id,
                        .flags = NFT_SET_EVAL,
                        .key_type = NFT_TYPE_IPV4,
                        .key_len = 4,
                        .size = NFT_METERS_MAX};
    nft_put_new_chain(b, t->name, chain);
    nft_put_set(b, t->name, &s);
    nft_put_count_rules(b, t, chain, set, set_id, connections);
}

static void put_count(struct nl_buf *b, const struct nft_table *t, int type, uint16_t flags,
                      const struct nft_box *box)
{
    char chain[CLASS_NAME];
    if (!own_count(box))
        return;
    class_name(chain, "count", own_count(box));
    put_address(b, t, "counts", type, flags, box->address, type == NFT_MSG_NEWSETELEM ? chain : NULL);
}

void nft_put_box(struct nl_buf *b, const struct nft_table *t, const struct nft_box *box)
{
    static const struct nft_box nothing;
    if (box->listed) /* first: in a batch it makes no difference, in a trace it reads right */
        put_address(b, t, "listed", NFT_MSG_NEWSETELEM, NLM_F_CREATE, box->address, NULL);
    put_rules(b, t, NFT_MSG_NEWSETELEM, NLM_F_CREATE, &nothing, box);
    put_count(b, t, NFT_MSG_NEWSETELEM, NLM_F_CREATE, box);
    put_link(b, t, NFT_MSG_NEWSETELEM, NLM_F_CREATE, box);
}

void nft_put_pin(struct nl_buf *b, const struct nft_table *t, int type, uint16_t flags,
                 const struct nft_pin *pin, uint64_t ms)
{
    struct nft_element e = {.key = pin, .key_len = sizeof *pin, .timeout_ms = ms};
    nft_put_element(b, t->name, "pins", type, flags, &e);
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
    size_t key_len, count;
    struct net_key (*keys)[2];
};

static void key_found(const void *key, const void *key_end, uint64_t left_ms, void *arg)
{
    struct forget *f = arg;
    (void)left_ms;
    if (memcmp(key, &f->source, sizeof f->source) != 0 || f->count == FORGET_MAX)
        return;
    memcpy(&f->keys[f->count][0], key, f->key_len);
    memcpy(&f->keys[f->count][1], key_end ? key_end : key, f->key_len);
    f->count++;
}

struct forgotten {
    const struct forget *f;
    size_t i;
};

static void put_forgotten(struct nl_buf *b, const struct nft_table *t, const void *arg)
{
    const struct forgotten *g = arg;
    struct nft_element e = {.key = &g->f->keys[g->i][0], .key_len = g->f->key_len};
    if (strcmp(g->f->set, "pins") != 0)
        e.key_end = &g->f->keys[g->i][1];
    nft_put_element(b, t->name, g->f->set, NFT_MSG_DELSETELEM, 0, &e);
}

/* One by one: an element may expire between being found and being removed. */
static int forget_source(const struct nft_table *t, const char *set, size_t key_len, uint32_t source)
{
    struct forget f = {.source = source, .set = set, .key_len = key_len};
    f.keys = calloc(FORGET_MAX, sizeof *f.keys);
    int r = f.keys ? nft_set_each(t->name, set, key_len, key_found, &f) : -ENOMEM;
    for (size_t i = 0; r == 0 && i < f.count; i++)
        r = remove_one(t, put_forgotten, &(struct forgotten){&f, i});
    free(f.keys);
    return r;
}

/* Goes when nobody leads there any more; the kernel knows. */
static void class_drop(const struct nft_table *t, uint32_t connections)
{
    _Alignas(4) char data[CLASS_BYTES];
    char name[CLASS_NAME];
    struct nl_buf b;
    if (!connections)
        return;
    nl_init(&b, data, sizeof data);
    nft_batch_edge(&b, NFNL_MSG_BATCH_BEGIN);
    class_name(name, "count", connections);
    nft_message(&b, NFT_MSG_DELRULE, 0); /* all of this chain */
    nl_put_text(&b, NFTA_RULE_TABLE, t->name);
    nl_put_text(&b, NFTA_RULE_CHAIN, name);
    nft_message(&b, NFT_MSG_DELCHAIN, 0);
    nl_put_text(&b, NFTA_CHAIN_TABLE, t->name);
    nl_put_text(&b, NFTA_CHAIN_NAME, name);
    class_name(name, "connections", connections);
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
        put_count(&b, t, NFT_MSG_DELSETELEM, 0, from);
    put_rules(&b, t, NFT_MSG_DELSETELEM, 0, to, from);
    if (to->listed && !from->listed)
        put_address(&b, t, "listed", NFT_MSG_NEWSETELEM, NLM_F_CREATE, to->address, NULL);
    put_rules(&b, t, NFT_MSG_NEWSETELEM, NLM_F_CREATE, from, to);
    if (from->listed && !to->listed)
        put_address(&b, t, "listed", NFT_MSG_DELSETELEM, 0, to->address, NULL);
    if (own_count(from) != own_count(to))
        put_count(&b, t, NFT_MSG_NEWSETELEM, NLM_F_CREATE, to);
    return finish(&b, t);
}

int nft_box_change(const struct nft_table *t, const struct nft_box *from, const struct nft_box *to,
                   struct error *reterr)
{
    int r = -ENOENT;
    if (from->listed && !to->policy.keep &&
        (r = forget_source(t, "pins", sizeof(struct nft_pin), from->address)) == 0)
        r = -ENOENT; /* what is allowed shrinks first */
    for (int i = 0; i < CLASS_TRIES && r == -ENOENT; i++)
        if ((r = class_make(t, to)) == 0)
            r = box_change(t, from, to);
    if (r == 0 && own_count(from) != own_count(to))
        class_drop(t, own_count(from));
    return r < 0 ? error_sys(reterr, -r, "change the sandbox's place in the packet filter") : 0;
}

static void put_link_off(struct nl_buf *b, const struct nft_table *t, const void *arg)
{
    put_link(b, t, NFT_MSG_DELSETELEM, 0, arg);
}

static void put_listed_off(struct nl_buf *b, const struct nft_table *t, const void *arg)
{
    put_address(b, t, "listed", NFT_MSG_DELSETELEM, 0, ((const struct nft_box *)arg)->address, NULL);
}

static void put_count_off(struct nl_buf *b, const struct nft_table *t, const void *arg)
{
    put_address(b, t, "counts", NFT_MSG_DELSETELEM, 0, ((const struct nft_box *)arg)->address, NULL);
}

static void keep_first(int *r, int other)
{
    if (*r == 0)
        *r = other;
}

int nft_box_remove(const struct nft_table *t, const struct nft_box *box, bool certain)
{
    int r = remove_one(t, put_link_off, box);
    if (!certain || own_count(box))
        keep_first(&r, remove_one(t, put_count_off, box));
    class_drop(t, own_count(box));
    if (certain && !box->listed)
        return r;
    keep_first(&r, forget_source(t, "nets_any", ANY_LEN, box->address));
    keep_first(&r, forget_source(t, "nets_port", PORT_LEN, box->address));
    keep_first(&r, forget_source(t, "pins", sizeof(struct nft_pin), box->address));
    /* last: without it, what is left of the others would mean nothing */
    keep_first(&r, remove_one(t, put_listed_off, box));
    return r;
}

/* New, or again for the full time: kernels before 6.12 do not prolong an element that is there. */
static int pin(const struct nft_table *t, const struct nft_pin *p, uint64_t ms)
{
    int r = -EEXIST;
    for (int i = 0; i < 4 && (r == -EEXIST || r == -ENOENT); i++) {
        _Alignas(4) char data[1024];
        struct nl_buf b;
        nl_init(&b, data, sizeof data);
        nft_batch_edge(&b, NFNL_MSG_BATCH_BEGIN);
        if (i % 2)
            nft_put_pin(&b, t, NFT_MSG_DELSETELEM, 0, p, 0);
        nft_put_pin(&b, t, NFT_MSG_NEWSETELEM, NLM_F_CREATE | NLM_F_EXCL, p, ms);
        r = finish(&b, t);
    }
    return r;
}

int nft_box_allow(const struct nft_table *t, uint32_t address, const struct keeper_policy *rules,
                  struct error *reterr)
{
    for (size_t i = 0; i < rules->rule_count; i++) {
        struct nft_pin p = {address, rules->rules[i].address, htons(rules->rules[i].port), 0};
        int r = pin(t, &p, (uint64_t)rules->seconds * 1000);
        if (r < 0)
            return error_sys(reterr, -r, "let the sandbox reach an address");
    }
    return 0;
}

struct allowed {
    uint32_t source;
    void (*found)(uint32_t destination, uint16_t port, void *arg);
    void *arg;
};

static void pin_found(const void *key, const void *key_end, uint64_t left_ms, void *arg)
{
    const struct allowed *a = arg;
    struct nft_pin p;
    (void)key_end;
    (void)left_ms;
    memcpy(&p, key, sizeof p);
    if (p.source == a->source)
        a->found(p.destination, ntohs(p.port), a->arg);
}

int nft_box_allowed(const struct nft_table *t, uint32_t address,
                    void (*found)(uint32_t destination, uint16_t port, void *arg), void *arg)
{
    struct allowed a = {address, found, arg};
    return nft_set_each(t->name, "pins", sizeof(struct nft_pin), pin_found, &a);
}
