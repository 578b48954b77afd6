/* SPDX-License-Identifier: Apache-2.0 */
/* conntrack.c: see conntrack.h. The kernel has no call that does it in one step: the connections are listed
 * and then deleted one by one. */
#include "keeper/conntrack.h"
#include "keeper/netlink.h"

#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <string.h>
#include <sys/socket.h>

enum {
    BATCH_MAX = 4096, /* as many as a sandbox has, mostly */
    BATCHES_MAX = 32,
    DELETE_BYTES = 160,
    FILTER_SOURCE = 1, /* compare the source address; the kernel's headers do not name the flag */
};

struct ending {
    const struct ip *address;
    bool (*keep)(const struct nl_tuple *f, void *arg);
    void *arg;
    struct nl_buf deletes; /* a message for each, naming it in the kernel's own words */
    size_t count;
};

static unsigned char family_of(const struct ending *e)
{
    return ip_is_v4(e->address) ? AF_INET : AF_INET6;
}

static int connection_found(const struct nlmsghdr *h, void *arg)
{
    struct ending *e = arg;
    struct nl_tuple flow;
    size_t n;
    const char *tuple = nl_find(h, sizeof(struct nfgenmsg), CTA_TUPLE_ORIG, 1, &n);
    if (!tuple || !nl_tuple_read(tuple, n, &flow) || !ip_equal(&flow.source, e->address) ||
        e->count == BATCH_MAX || (e->keep && e->keep(&flow, e->arg)))
        return 0;
    struct nfgenmsg head = {.nfgen_family = family_of(e)};
    nl_begin(&e->deletes, NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_DELETE, NLM_F_ACK, &head, sizeof head);
    nl_put(&e->deletes, CTA_TUPLE_ORIG | NLA_F_NESTED, tuple, n);
    e->count++;
    return 0;
}

/* Kernels before 5.8 ignore the filter and list everything, so what comes is looked at in any case. Of IPv6
 * everything is listed at once: there the kernel's comparison of addresses is the wrong way round (seen
 * in 6.18), and would leave out just those that are wanted. */
static int list(int fd, struct ending *e)
{
    _Alignas(4) char data[256];
    struct nl_buf b;
    struct nfgenmsg head = {.nfgen_family = family_of(e)};
    nl_init(&b, data, sizeof data);
    nl_begin(&b, NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET, NLM_F_DUMP, &head, sizeof head);
    if (ip_is_v4(e->address)) {
        size_t tuple = nl_nest(&b, CTA_TUPLE_ORIG);
        size_t ip = nl_nest(&b, CTA_TUPLE_IP);
        nl_put_u32(&b, CTA_IP_V4_SRC, ip_v4(e->address));
        nl_nest_end(&b, ip);
        nl_nest_end(&b, tuple);
        size_t filter = nl_nest(&b, CTA_FILTER);
        nl_put_u32(&b, CTA_FILTER_ORIG_FLAGS, FILTER_SOURCE);
        nl_put_u32(&b, CTA_FILTER_REPLY_FLAGS, 0);
        nl_nest_end(&b, filter);
    }
    int r = nl_dump(fd, &b, connection_found, e);
    return r < 0 ? r : e->deletes.overflow ? -EMSGSIZE : 0;
}

static int end_listed(int fd, struct ending *e)
{
    char *deletes = e->deletes.data;
    for (size_t at = 0; at < e->deletes.len;) {
        struct nlmsghdr h;
        memcpy(&h, deletes + at, sizeof h);
        struct nl_buf one = {
            .data = deletes + at, .len = NLMSG_ALIGN(h.nlmsg_len), .cap = h.nlmsg_len, .seq = h.nlmsg_seq};
        int r = nl_talk(fd, &one);
        if (r < 0 && r != -ENOENT) /* it ended by itself meanwhile */
            return r;
        at += one.len;
    }
    return 0;
}

int conntrack_end(const struct ip *address, bool (*keep)(const struct nl_tuple *f, void *arg), void *arg)
{
    struct ending e = {.address = address, .keep = keep, .arg = arg};
    auto_free char *deletes = malloc((size_t)BATCH_MAX * DELETE_BYTES);
    auto_close int fd = nl_open(NETLINK_NETFILTER);
    int r = 0;
    if (fd < 0 || !deletes)
        return fd < 0 ? fd : -ENOMEM;
    for (int i = 0; i < BATCHES_MAX && r == 0; i++) {
        nl_init(&e.deletes, deletes, (size_t)BATCH_MAX * DELETE_BYTES);
        e.count = 0;
        if ((r = list(fd, &e)) == 0)
            r = end_listed(fd, &e);
        if (e.count < BATCH_MAX)
            break;
    }
    return r;
}
