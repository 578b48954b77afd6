/* SPDX-License-Identifier: Apache-2.0 */
/* proto_network.c: see proto_network.h. Gateway and keeper agree here on what is public, private and
 * forbidden; the packet filter is made from the same ranges. */
#include "keeper/address_ranges.h"
#include "keeper/proto_network.h"

#include <arpa/inet.h>
#include <string.h>

/* Where no packet of a sandbox in mode `public` may go. */
const struct address_range ranges_not_public[] = {
    {0x00000000, 0x01000000}, /* 0.0.0.0/8 "this network" */
    {0x0a000000, 0x0b000000}, /* 10.0.0.0/8 */
    {0x64400000, 0x64800000}, /* 100.64.0.0/10 carrier NAT */
    {0x7f000000, 0x80000000}, /* 127.0.0.0/8 */
    {0xa9fe0000, 0xa9ff0000}, /* 169.254.0.0/16 link-local, metadata services */
    {0xac100000, 0xac200000}, /* 172.16.0.0/12 */
    {0xc0000000, 0xc0000100}, /* 192.0.0.0/24 protocol assignments */
    {0xc0a80000, 0xc0a90000}, /* 192.168.0.0/16 */
    {0xc6120000, 0xc6140000}, /* 198.18.0.0/15 benchmarks */
    {0xe0000000, 0},          /* 224.0.0.0/4 multicast, 240.0.0.0/4 reserved, broadcast */
};
const size_t ranges_not_public_count = ARRAY_SIZE(ranges_not_public);

/* Of those, what not even an allow-list opens. */
const struct address_range ranges_never[] = {
    {0x00000000, 0x01000000}, {0x7f000000, 0x80000000}, {0xa9fe0000, 0xa9ff0000},
    {0xc0000000, 0xc0000100}, {0xe0000000, 0},
};
const size_t ranges_never_count = ARRAY_SIZE(ranges_never);

/* The same for IPv6, where the public addresses are one part of all, 2000::/3, with holes in it. */
#define IPV6(...)                \
    {                            \
        .bytes = { __VA_ARGS__ } \
    }
const struct address_network networks_not_public[] = {
    {IPV6(0x00), 3},        /* ::/3: this host, IPv4 in all its disguises (::ffff:0:0/96, NAT64) */
    {IPV6(0x20, 0x01), 23}, /* 2001::/23 protocol assignments, Teredo among them */
    {IPV6(0x20, 0x01, 0x0d, 0xb8), 32}, /* 2001:db8::/32 documentation */
    {IPV6(0x20, 0x02), 16},             /* 2002::/16 6to4: IPv4 again */
    {IPV6(0x3f, 0xff), 20},             /* 3fff::/20 documentation */
    {IPV6(0x40), 2},                    /* 4000::/2 not assigned */
    {IPV6(0x80), 1},                    /* 8000::/1 not assigned; private, link-local, multicast */
};
const size_t networks_not_public_count = ARRAY_SIZE(networks_not_public);

const struct address_network networks_never[] = {
    {IPV6(0x00), 8},                                        /* ::/8 */
    {IPV6(0x20, 0x01), 32},                                 /* Teredo */
    {IPV6(0x20, 0x02), 16},                                 /* 6to4 */
    {IPV6(0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, 0x54), 128}, /* fd00:ec2::254 and ... */
    {IPV6(0xfd, 0x20, 0x00, 0xce, [14] = 0x02, 0x54), 128}, /* fd20:ce::254 metadata services */
    {IPV6(0xfe, 0x80), 10},                                 /* link-local */
    {IPV6(0xff), 8},                                        /* multicast */
};
const size_t networks_never_count = ARRAY_SIZE(networks_never);

static bool v4_touches(const struct address_range *ranges, size_t count, uint32_t first, uint32_t last)
{
    for (size_t i = 0; i < count; i++)
        if (first <= ranges[i].end - 1 && last >= ranges[i].first) /* end 0: wraps to the last address */
            return true;
    return false;
}

static bool v6_touches(const struct address_network *networks, size_t count, const struct ip *a,
                       unsigned prefix)
{
    for (size_t i = 0; i < count; i++)
        if (ip_same_prefix(a, &networks[i].first, MIN(prefix, (unsigned)networks[i].prefix)))
            return true;
    return false;
}

static bool is_v4(const struct keeper_rule *r)
{
    return r->prefix >= IP_V4_BITS && ip_is_v4(&r->address);
}

static bool touches_not_public(const struct keeper_rule *r)
{
    struct ip last = ip_network_last(&r->address, r->prefix);
    return is_v4(r)
               ? v4_touches(ranges_not_public, ARRAY_SIZE(ranges_not_public), ntohl(ip_v4(&r->address)),
                            ntohl(ip_v4(&last)))
               : v6_touches(networks_not_public, ARRAY_SIZE(networks_not_public), &r->address, r->prefix);
}

static bool touches_never(const struct keeper_rule *r)
{
    struct ip last = ip_network_last(&r->address, r->prefix);
    return is_v4(r) ? v4_touches(ranges_never, ARRAY_SIZE(ranges_never), ntohl(ip_v4(&r->address)),
                                 ntohl(ip_v4(&last)))
                    : v6_touches(networks_never, ARRAY_SIZE(networks_never), &r->address, r->prefix);
}

bool keeper_address_is_public(const struct ip *address)
{
    return !touches_not_public(&(struct keeper_rule){.address = *address, .prefix = IP_BITS});
}

bool keeper_address_is_never(const struct ip *address)
{
    return touches_never(&(struct keeper_rule){.address = *address, .prefix = IP_BITS});
}

bool keeper_rule_has(const struct keeper_rule *r, const struct ip *address, uint16_t port)
{
    return (!r->port || r->port == port) && ip_same_prefix(&r->address, address, r->prefix);
}

bool keeper_rule_is_public(const struct keeper_rule *r)
{
    return !touches_not_public(r);
}

bool keeper_rule_can_open(const struct keeper_rule *r)
{
    return !touches_never(r);
}

static bool rule_ok(const struct keeper_rule *r)
{
    return r->prefix <= IP_BITS && !r->reserved && ip_is_network(&r->address, r->prefix) &&
           keeper_rule_can_open(r);
}

bool keeper_policy_ok(const struct keeper_policy *p)
{
    static const struct keeper_rule nothing;
    if (p->rule_count > KEEPER_RULES_MAX || p->keep > 1 || p->connections > KEEPER_CONNECTIONS_MAX ||
        p->seconds > KEEPER_ALLOW_SECONDS_MAX)
        return false;
    if (p->bytes_per_second &&
        (p->bytes_per_second < KEEPER_NET_BPS_MIN || p->bytes_per_second > KEEPER_NET_BPS_MAX))
        return false;
    for (size_t i = 0; i < KEEPER_RULES_MAX; i++)
        if (i < p->rule_count ? !rule_ok(&p->rules[i]) : memcmp(&p->rules[i], &nothing, sizeof nothing) != 0)
            return false;
    return true;
}

bool keeper_policy_empty(const struct keeper_policy *p)
{
    static const struct keeper_policy nothing;
    return memcmp(p, &nothing, sizeof nothing) == 0;
}
