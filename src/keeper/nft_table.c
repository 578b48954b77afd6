/* SPDX-License-Identifier: Apache-2.0 */
/* nft_table.c: the table as a whole: put in place of an earlier one, and removed. What is allowed for a time
 * outlives the table. */
#include "keeper/nft_internal.h"

#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <string.h>

enum {
    TABLE_BYTES = 131072, /* the rules take less than half of it */
    PIN_BYTES = 256,      /* one element in a message of its own */
    BOX_BYTES = 512,      /* a sandbox without a list and limits */
};

struct carried {
    const struct nft_family *family;
    unsigned char key[NFT_KEY_MAX];
    uint64_t left_ms;
};

struct carry {
    const struct nft_box *boxes;
    size_t box_count;
    const struct nft_family *family; /* whose pins are being read */
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
    struct carried one = {.family = c->family, .left_ms = left_ms};
    uint32_t source;
    (void)key_end;
    memcpy(one.key, key, nft_key_len(c->family));
    memcpy(&source, key, sizeof source);
    if (!left_ms || !is_listed(c, source))
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
    size_t cap = TABLE_BYTES + c->count * PIN_BYTES;
    for (size_t i = 0; i < c->box_count; i++)
        cap += c->boxes[i].listed || c->boxes[i].policy.connections ? NFT_BOX_BYTES : BOX_BYTES;
    auto_free char *data = malloc(cap);
    struct nl_buf b;
    if (!data)
        return -ENOMEM;
    nl_init(&b, data, cap);
    nft_batch_edge(&b, NFNL_MSG_BATCH_BEGIN);
    nft_put_table(&b, t->name, NFT_MSG_NEWTABLE, NLM_F_CREATE); /* so that there is one to delete */
    nft_put_table(&b, t->name, NFT_MSG_DELTABLE, 0);
    nft_put_table(&b, t->name, NFT_MSG_NEWTABLE, NLM_F_CREATE);
    nft_put_chains_and_sets(&b, t);
    for (size_t i = 0; i < c->box_count; i++) {
        if (!has_class_before(c, i))
            nft_put_class(&b, t, c->boxes[i].policy.connections, NFT_SETS_END + (uint32_t)i);
        nft_put_box(&b, t, &c->boxes[i]);
    }
    for (size_t i = 0; i < c->count; i++)
        nft_put_pin(&b, t, c->pins[i].family, NFT_MSG_NEWSETELEM, NLM_F_CREATE, c->pins[i].key,
                    c->pins[i].left_ms);
    nft_put_rules(&b, t);
    nft_put_table(&b, t->name, NFT_MSG_NEWTABLE,
                  NLM_F_CREATE | NLM_F_ACK); /* there already: only for its answer */
    nft_batch_edge(&b, NFNL_MSG_BATCH_END);
    return nft_talk(&b);
}

int nft_table_replace(const struct nft_table *t, const struct nft_box *boxes, size_t count,
                      struct error *reterr)
{
    struct carry c = {.boxes = boxes, .box_count = count};
    for (int i = 0; i < nft_family_count(t); i++) {
        c.family = &nft_families[i];
        (void)nft_set_each(t->name, nft_named(c.family, "pins").text, nft_key_len(c.family), carry_found,
                           &c); /* mostly there is no table */
    }
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
