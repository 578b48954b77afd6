/* SPDX-License-Identifier: Apache-2.0 */
/* flow_parse.c: see flow_parse.h. The kernel writes these messages, but sandboxes write the packets in them.
 */
#include "gateway/flow_parse.h"
#include "net/nlattr.h"

#include <endian.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>

enum {
    IPV4_MIN = 20,
    AT_FRAGMENT = 6,
    AT_PROTOCOL = 9,
    AT_SOURCE = 12,
    AT_DESTINATION = 16,
    FRAGMENT_MASK = 0x1fff
};

static uint64_t counted(const void *attrs, size_t n, uint16_t type)
{
    size_t counters_n;
    const void *counters = nl_attr(attrs, n, type, 0, &counters_n);
    const void *bytes = counters ? nl_attr(counters, counters_n, CTA_COUNTERS_BYTES, 8, NULL) : NULL;
    uint64_t be = 0;
    if (bytes)
        memcpy(&be, bytes, sizeof be);
    return be64toh(be);
}

static bool parse_connection(const void *attrs, size_t n, struct flow *f)
{
    size_t tuple_n;
    const void *tuple = nl_attr(attrs, n, CTA_TUPLE_ORIG, 0, &tuple_n);
    struct nl_tuple t;
    if (!tuple || !nl_tuple_read(tuple, tuple_n, &t))
        return false;
    f->source = t.source;
    f->destination = t.destination;
    f->protocol = t.protocol;
    f->port = t.port;
    f->sent = counted(attrs, n, CTA_COUNTERS_ORIG);
    f->received = counted(attrs, n, CTA_COUNTERS_REPLY);
    return true;
}

static bool parse_packet(const void *attrs, size_t n, struct flow *f)
{
    size_t len;
    const unsigned char *p = nl_attr(attrs, n, NFULA_PAYLOAD, IPV4_MIN, &len);
    if (!p || p[0] >> 4 != 4)
        return false;
    size_t head = (size_t)(p[0] & 15) * 4;
    uint16_t fragment = (uint16_t)(p[AT_FRAGMENT] << 8 | p[AT_FRAGMENT + 1]);
    memcpy(&f->source, p + AT_SOURCE, 4);
    memcpy(&f->destination, p + AT_DESTINATION, 4);
    f->protocol = p[AT_PROTOCOL];
    bool has_port = f->protocol == IPPROTO_TCP || f->protocol == IPPROTO_UDP;
    if (has_port && head >= IPV4_MIN && len >= head + 4 && !(fragment & FRAGMENT_MASK))
        f->port = (uint16_t)(p[head + 2] << 8 | p[head + 3]);
    return true;
}

static bool parse_message(uint16_t type, const void *attrs, size_t n, struct flow *f)
{
    *f = (struct flow){0};
    switch (type) {
    case NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_NEW:
        f->kind = FLOW_OPEN;
        return parse_connection(attrs, n, f);
    case NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_DELETE:
        f->kind = FLOW_CLOSE;
        return parse_connection(attrs, n, f);
    case NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET:
        f->kind = FLOW_REFUSED;
        return parse_packet(attrs, n, f);
    default:
        return false;
    }
}

void flow_parse(const void *data, size_t n, void (*found)(const struct flow *f, void *arg), void *arg)
{
    const char *p = data;
    const size_t head = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(struct nfgenmsg));
    while (n >= NLMSG_HDRLEN) {
        struct nlmsghdr h;
        struct flow f;
        memcpy(&h, p, sizeof h);
        if (h.nlmsg_len < NLMSG_HDRLEN || h.nlmsg_len > n)
            return;
        if (h.nlmsg_len >= head && parse_message(h.nlmsg_type, p + head, h.nlmsg_len - head, &f))
            found(&f, arg);
        size_t step = MIN((size_t)NLMSG_ALIGN(h.nlmsg_len), n);
        p += step;
        n -= step;
    }
}
