/* SPDX-License-Identifier: Apache-2.0 */
/* flow_parse.c: see flow_parse.h. The kernel writes these messages, but sandboxes write the packets in them.
 */
#include "gateway/flow_parse.h"
#include "net/dns.h"
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
    IPV4_FRAGMENT = 6,
    IPV4_PROTOCOL = 9,
    IPV4_SOURCE = 12,
    IPV4_DESTINATION = 16,
    FRAGMENT_MASK = 0x1fff,
    UDP_HEAD = 8,
    IPV6_HEAD = 40,
    IPV6_NEXT = 6,
    IPV6_SOURCE = 8,
    IPV6_DESTINATION = 24,
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
    f->source = ip_v4(&t.source);
    f->destination = t.destination;
    f->protocol = t.protocol;
    f->port = t.port;
    f->sent = counted(attrs, n, CTA_COUNTERS_ORIG);
    f->received = counted(attrs, n, CTA_COUNTERS_REPLY);
    return true;
}

/* The port behind the headers, if it is there to be read. */
static void read_port(const unsigned char *p, size_t len, size_t head, struct flow *f)
{
    bool has_port = f->protocol == IPPROTO_TCP || f->protocol == IPPROTO_UDP;
    if (has_port && len >= head + 4)
        f->port = (uint16_t)(p[head + 2] << 8 | p[head + 3]);
}

static bool parse_v4(const unsigned char *p, size_t len, struct flow *f)
{
    uint32_t destination;
    if (len < IPV4_MIN)
        return false;
    size_t head = (size_t)(p[0] & 15) * 4;
    uint16_t fragment = (uint16_t)(p[IPV4_FRAGMENT] << 8 | p[IPV4_FRAGMENT + 1]);
    memcpy(&f->source, p + IPV4_SOURCE, 4);
    memcpy(&destination, p + IPV4_DESTINATION, 4);
    f->destination = ip_from_v4(destination);
    f->protocol = p[IPV4_PROTOCOL];
    if (head >= IPV4_MIN && !(fragment & FRAGMENT_MASK))
        read_port(p, len, head, f);
    return true;
}

/* Headers between the first one and the protocol's are rare and not followed: such a packet is told by their
 * number. */
static bool parse_v6(const unsigned char *p, size_t len, struct flow *f)
{
    if (len < IPV6_HEAD)
        return false;
    struct ip source = ip_from_v6(p + IPV6_SOURCE);
    f->source = ip_v4(&source);
    f->destination = ip_from_v6(p + IPV6_DESTINATION);
    f->protocol = p[IPV6_NEXT];
    read_port(p, len, IPV6_HEAD, f);
    return true;
}

static bool parse_packet(const void *attrs, size_t n, struct flow *f)
{
    size_t len;
    const unsigned char *p = nl_attr(attrs, n, NFULA_PAYLOAD, 1, &len);
    if (!p)
        return false;
    return p[0] >> 4 == 4 ? parse_v4(p, len, f) : p[0] >> 4 == 6 && parse_v6(p, len, f);
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

/* Every whole message in a datagram: its type and attributes. */
static void each_message(const void *data, size_t n,
                         void (*found)(uint16_t type, const void *attrs, size_t n, void *arg), void *arg)
{
    const char *p = data;
    const size_t head = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(struct nfgenmsg));
    while (n >= NLMSG_HDRLEN) {
        struct nlmsghdr h;
        memcpy(&h, p, sizeof h);
        if (h.nlmsg_len < NLMSG_HDRLEN || h.nlmsg_len > n)
            return;
        if (h.nlmsg_len >= head)
            found(h.nlmsg_type, p + head, h.nlmsg_len - head, arg);
        size_t step = MIN((size_t)NLMSG_ALIGN(h.nlmsg_len), n);
        p += step;
        n -= step;
    }
}

struct flows {
    void (*found)(const struct flow *f, void *arg);
    void *arg;
};

static void flow_message(uint16_t type, const void *attrs, size_t n, void *arg)
{
    const struct flows *to = arg;
    struct flow f;
    if (parse_message(type, attrs, n, &f))
        to->found(&f, to->arg);
}

void flow_parse(const void *data, size_t n, void (*found)(const struct flow *f, void *arg), void *arg)
{
    each_message(data, n, flow_message, &(struct flows){found, arg});
}

/* ---- answers of name servers */

struct answers {
    void (*found)(const struct flow_answer *a, void *arg);
    void *arg;
    struct flow_answer answer;
};

static void address_found(void *arg, const struct ip *address, uint32_t ttl)
{
    struct answers *to = arg;
    (void)ttl;
    to->answer.address = *address;
    to->found(&to->answer, to->arg);
}

/* The packet is whole: the kernel puts fragments together before it tells. */
static void answer_message(uint16_t type, const void *attrs, size_t n, void *arg)
{
    struct answers *to = arg;
    struct dns_query q;
    struct dns_reply reply;
    size_t len;
    const unsigned char *p = nl_attr(attrs, n, NFULA_PAYLOAD, IPV4_MIN, &len);
    if (type != (NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET) || !p || p[0] >> 4 != 4 ||
        p[IPV4_PROTOCOL] != IPPROTO_UDP)
        return;
    size_t head = (size_t)(p[0] & 15) * 4 + UDP_HEAD;
    if (head < IPV4_MIN + UDP_HEAD || len < head ||
        dns_reply_overhear(p + head, len - head, &q, &reply) < 0 || q.class != DNS_CLASS_IN ||
        (q.type != DNS_TYPE_A && q.type != DNS_TYPE_AAAA))
        return;
    memcpy(&to->answer.sandbox, p + IPV4_DESTINATION, 4);
    to->answer.name = q.name;
    const struct dns_addresses wanted = {.name = q.name, .type = q.type, .found = address_found, .arg = to};
    uint32_t ttl = UINT32_MAX;
    (void)dns_reply_addresses(&reply, &wanted, &ttl); /* what was read before it breaks off is told */
}

void flow_parse_answers(const void *data, size_t n, void (*found)(const struct flow_answer *a, void *arg),
                        void *arg)
{
    each_message(data, n, answer_message, &(struct answers){.found = found, .arg = arg});
}
