/* SPDX-License-Identifier: Apache-2.0 */
/* nlattr.c: see nlattr.h. */
#include "net/nlattr.h"

#include <arpa/inet.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>

/* The attribute at a place; false when there is none, or it is torn. */
static bool attr_at(const char *p, size_t n, size_t at, struct nlattr *ret)
{
    if (at > n || n - at < NLA_HDRLEN)
        return false;
    memcpy(ret, p + at, sizeof *ret);
    return ret->nla_len >= NLA_HDRLEN && ret->nla_len <= n - at;
}

const void *nl_attr(const void *data, size_t n, uint16_t type, size_t min, size_t *ret_len)
{
    struct nlattr a;
    for (size_t at = 0; attr_at(data, n, at, &a); at += NLA_ALIGN(a.nla_len))
        if ((a.nla_type & NLA_TYPE_MASK) == type && (size_t)a.nla_len - NLA_HDRLEN >= min) {
            if (ret_len)
                *ret_len = (size_t)a.nla_len - NLA_HDRLEN;
            return (const char *)data + at + NLA_HDRLEN;
        }
    return NULL;
}

const void *nl_attr_next(const void *data, size_t n, size_t *at, size_t *ret_len)
{
    struct nlattr a;
    if (!attr_at(data, n, *at, &a))
        return NULL;
    const char *value = (const char *)data + *at + NLA_HDRLEN;
    *ret_len = (size_t)a.nla_len - NLA_HDRLEN;
    *at += NLA_ALIGN(a.nla_len);
    return value;
}

/* One of the two addresses in CTA_TUPLE_IP. */
static bool address_read(const void *ip, size_t n, uint16_t v4, uint16_t v6, struct ip *ret)
{
    const void *bytes = nl_attr(ip, n, v4, 4, NULL);
    if (bytes) {
        uint32_t address;
        memcpy(&address, bytes, sizeof address);
        *ret = ip_from_v4(address);
        return true;
    }
    bytes = nl_attr(ip, n, v6, sizeof ret->bytes, NULL);
    if (bytes)
        *ret = ip_from_v6(bytes);
    return bytes != NULL;
}

bool nl_tuple_read(const void *tuple, size_t n, struct nl_tuple *ret)
{
    size_t ip_n, proto_n;
    const void *ip = nl_attr(tuple, n, CTA_TUPLE_IP, 0, &ip_n);
    const void *proto = nl_attr(tuple, n, CTA_TUPLE_PROTO, 0, &proto_n);
    const void *number = proto ? nl_attr(proto, proto_n, CTA_PROTO_NUM, 1, NULL) : NULL;
    const void *port = proto ? nl_attr(proto, proto_n, CTA_PROTO_DST_PORT, 2, NULL) : NULL;
    *ret = (struct nl_tuple){0};
    if (!ip || !number || !address_read(ip, ip_n, CTA_IP_V4_SRC, CTA_IP_V6_SRC, &ret->source) ||
        !address_read(ip, ip_n, CTA_IP_V4_DST, CTA_IP_V6_DST, &ret->destination))
        return false;
    memcpy(&ret->protocol, number, 1);
    if (port && (ret->protocol == IPPROTO_TCP || ret->protocol == IPPROTO_UDP)) {
        memcpy(&ret->port, port, 2);
        ret->port = ntohs(ret->port);
    }
    return true;
}
