/* SPDX-License-Identifier: Apache-2.0 */
/* nft_set.c: see nft_set.h. */
#include "keeper/nft_set.h"

#include <endian.h>
#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <string.h>
#include <sys/socket.h>

static void put_be64(struct nl_buf *b, uint16_t type, uint64_t v)
{
    uint64_t be = htobe64(v);
    nl_put(b, type, &be, sizeof be);
}

static void put_description(struct nl_buf *b, const struct nft_set *s)
{
    size_t nest = nl_nest(b, NFTA_SET_DESC);
    if (s->size)
        nl_put_be32(b, NFTA_SET_DESC_SIZE, s->size);
    if (s->fields) {
        size_t list = nl_nest(b, NFTA_SET_DESC_CONCAT);
        for (const uint32_t *f = s->fields; *f; f++) {
            size_t field = nl_nest(b, NFTA_LIST_ELEM);
            nl_put_be32(b, NFTA_SET_FIELD_LEN, *f);
            nl_nest_end(b, field);
        }
        nl_nest_end(b, list);
    }
    nl_nest_end(b, nest);
}

void nft_put_set(struct nl_buf *b, const char *table, const struct nft_set *s)
{
    nft_message(b, NFT_MSG_NEWSET, NLM_F_CREATE);
    nl_put_text(b, NFTA_SET_TABLE, table);
    nl_put_text(b, NFTA_SET_NAME, s->name);
    nl_put_be32(b, NFTA_SET_FLAGS, s->flags | (s->verdicts ? NFT_SET_MAP : 0));
    nl_put_be32(b, NFTA_SET_KEY_TYPE, s->key_type);
    nl_put_be32(b, NFTA_SET_KEY_LEN, s->key_len);
    nl_put_be32(b, NFTA_SET_ID, s->id);
    if (s->verdicts) {
        nl_put_be32(b, NFTA_SET_DATA_TYPE, NFT_DATA_VERDICT);
        nl_put_be32(b, NFTA_SET_DATA_LEN, 0);
    }
    if (s->size || s->fields)
        put_description(b, s);
    if (s->timeout_ms)
        put_be64(b, NFTA_SET_TIMEOUT, s->timeout_ms);
}

static void put_key(struct nl_buf *b, uint16_t type, const void *key, size_t n)
{
    size_t nest = nl_nest(b, type);
    nl_put(b, NFTA_DATA_VALUE, key, n);
    nl_nest_end(b, nest);
}

void nft_put_element(struct nl_buf *b, const char *table, const char *set, int type, uint16_t flags,
                     const struct nft_element *e)
{
    nft_message(b, type, flags);
    nl_put_text(b, NFTA_SET_ELEM_LIST_TABLE, table);
    nl_put_text(b, NFTA_SET_ELEM_LIST_SET, set);
    size_t list = nl_nest(b, NFTA_SET_ELEM_LIST_ELEMENTS);
    size_t element = nl_nest(b, NFTA_LIST_ELEM);
    if (e->flags)
        nl_put_be32(b, NFTA_SET_ELEM_FLAGS, e->flags);
    put_key(b, NFTA_SET_ELEM_KEY, e->key, e->key_len);
    if (e->key_end)
        put_key(b, NFTA_SET_ELEM_KEY_END, e->key_end, e->key_len);
    if (e->timeout_ms)
        put_be64(b, NFTA_SET_ELEM_TIMEOUT, e->timeout_ms);
    if (e->chain) {
        size_t data = nl_nest(b, NFTA_SET_ELEM_DATA), verdict = nl_nest(b, NFTA_DATA_VERDICT);
        nl_put_be32(b, NFTA_VERDICT_CODE, (uint32_t)NFT_GOTO);
        nl_put_text(b, NFTA_VERDICT_CHAIN, e->chain);
        nl_nest_end(b, verdict);
        nl_nest_end(b, data);
    }
    nl_nest_end(b, element);
    nl_nest_end(b, list);
}

/* ---- reading */

struct reading {
    size_t key_len;
    void (*found)(const void *key, const void *key_end, uint64_t left_ms, void *arg);
    void *arg;
};

/* The value inside NFTA_SET_ELEM_KEY and the like; NULL when it is not of this length. */
static const void *key_of(const void *element, size_t n, uint16_t type, size_t key_len)
{
    size_t key_n, value_n;
    const void *key = nl_attr(element, n, type, 0, &key_n);
    const void *value = key ? nl_attr(key, key_n, NFTA_DATA_VALUE, key_len, &value_n) : NULL;
    return value && value_n == key_len ? value : NULL;
}

static int elements_found(const struct nlmsghdr *h, void *arg)
{
    const struct reading *r = arg;
    size_t list_n, at = 0, n;
    const char *list = nl_find(h, sizeof(struct nfgenmsg), NFTA_SET_ELEM_LIST_ELEMENTS, 0, &list_n);
    if (!list)
        return 0;
    for (const char *e; (e = nl_attr_next(list, list_n, &at, &n));) {
        const void *key = key_of(e, n, NFTA_SET_ELEM_KEY, r->key_len);
        const void *left = nl_attr(e, n, NFTA_SET_ELEM_EXPIRATION, sizeof(uint64_t), NULL);
        uint64_t be = 0;
        if (left)
            memcpy(&be, left, sizeof be);
        if (key)
            r->found(key, key_of(e, n, NFTA_SET_ELEM_KEY_END, r->key_len), be64toh(be), r->arg);
    }
    return 0;
}

int nft_set_each(const char *table, const char *set, size_t key_len,
                 void (*found)(const void *key, const void *key_end, uint64_t left_ms, void *arg), void *arg)
{
    _Alignas(4) char data[512];
    struct nl_buf b;
    struct reading r = {key_len, found, arg};
    auto_close int fd = nl_open(NETLINK_NETFILTER);
    if (fd < 0)
        return fd;
    nl_init(&b, data, sizeof data);
    nft_message(&b, NFT_MSG_GETSETELEM, NLM_F_DUMP);
    nl_put_text(&b, NFTA_SET_ELEM_LIST_TABLE, table);
    nl_put_text(&b, NFTA_SET_ELEM_LIST_SET, set);
    return nl_dump(fd, &b, elements_found, &r);
}
