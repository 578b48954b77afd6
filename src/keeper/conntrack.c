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
    FORGET_MAX = 4096, /* more than a sandbox can have */
    DELETE_BYTES = 128,
    FILTER_SOURCE = 1, /* compare the source address; the kernel's headers do not name the flag */
};

struct forget {
    uint32_t address;
    struct nl_buf deletes; /* a message for each, naming it in the kernel's own words */
    size_t count;
};

/* The source address of a tuple: CTA_TUPLE_IP { CTA_IP_V4_SRC }. */
static bool tuple_is_from(const char *tuple, size_t n, uint32_t address)
{
    struct nlattr ip, source;
    if (n < 2 * NLA_HDRLEN + 4)
        return false;
    memcpy(&ip, tuple, sizeof ip);
    memcpy(&source, tuple + NLA_HDRLEN, sizeof source);
    return (ip.nla_type & NLA_TYPE_MASK) == CTA_TUPLE_IP &&
           (source.nla_type & NLA_TYPE_MASK) == CTA_IP_V4_SRC && source.nla_len == NLA_HDRLEN + 4 &&
           memcmp(tuple + 2 * NLA_HDRLEN, &address, 4) == 0;
}

static int connection_found(const struct nlmsghdr *h, void *arg)
{
    struct forget *f = arg;
    size_t n;
    const char *tuple = nl_find(h, sizeof(struct nfgenmsg), CTA_TUPLE_ORIG, 1, &n);
    if (!tuple || !tuple_is_from(tuple, n, f->address) || f->count == FORGET_MAX)
        return 0;
    struct nfgenmsg head = {.nfgen_family = AF_INET};
    nl_begin(&f->deletes, NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_DELETE, NLM_F_ACK, &head, sizeof head);
    nl_put(&f->deletes, CTA_TUPLE_ORIG | NLA_F_NESTED, tuple, n);
    f->count++;
    return 0;
}

/* Kernels before 5.8 ignore the filter and list everything, so what comes is looked at in any case. */
static int list(int fd, struct forget *f)
{
    _Alignas(4) char data[256];
    struct nl_buf b;
    struct nfgenmsg head = {.nfgen_family = AF_INET};
    nl_init(&b, data, sizeof data);
    nl_begin(&b, NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET, NLM_F_DUMP, &head, sizeof head);
    size_t tuple = nl_nest(&b, CTA_TUPLE_ORIG);
    size_t ip = nl_nest(&b, CTA_TUPLE_IP);
    nl_put_u32(&b, CTA_IP_V4_SRC, f->address);
    nl_nest_end(&b, ip);
    nl_nest_end(&b, tuple);
    size_t filter = nl_nest(&b, CTA_FILTER);
    nl_put_u32(&b, CTA_FILTER_ORIG_FLAGS, FILTER_SOURCE);
    nl_put_u32(&b, CTA_FILTER_REPLY_FLAGS, 0);
    nl_nest_end(&b, filter);
    int r = nl_dump(fd, &b, connection_found, f);
    return r < 0 ? r : f->deletes.overflow ? -EMSGSIZE : 0;
}

int conntrack_forget(uint32_t address)
{
    struct forget f = {.address = address};
    auto_free char *deletes = malloc((size_t)FORGET_MAX * DELETE_BYTES);
    auto_close int fd = nl_open(NETLINK_NETFILTER);
    if (fd < 0 || !deletes)
        return fd < 0 ? fd : -ENOMEM;
    nl_init(&f.deletes, deletes, (size_t)FORGET_MAX * DELETE_BYTES);
    int r = list(fd, &f);
    if (r < 0)
        return r;
    for (size_t at = 0; at < f.deletes.len;) {
        struct nlmsghdr h;
        memcpy(&h, deletes + at, sizeof h);
        struct nl_buf one = {
            .data = deletes + at, .len = NLMSG_ALIGN(h.nlmsg_len), .cap = h.nlmsg_len, .seq = h.nlmsg_seq};
        if ((r = nl_talk(fd, &one)) < 0 && r != -ENOENT) /* it ended by itself meanwhile */
            return r;
        at += one.len;
    }
    return 0;
}
