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

static bool touches(const struct address_range *ranges, size_t count, uint32_t first, uint32_t last)
{
    for (size_t i = 0; i < count; i++)
        if (first <= ranges[i].end - 1 && last >= ranges[i].first) /* end 0: wraps to the last address */
            return true;
    return false;
}

bool keeper_address_is_public(uint32_t address)
{
    uint32_t a = ntohl(address);
    return !touches(ranges_not_public, ARRAY_SIZE(ranges_not_public), a, a);
}

bool keeper_address_is_never(uint32_t address)
{
    uint32_t a = ntohl(address);
    return touches(ranges_never, ARRAY_SIZE(ranges_never), a, a);
}

static uint32_t tail_of(const struct keeper_rule *r)
{
    return r->prefix ? UINT32_MAX >> (r->prefix - 1) >> 1 : UINT32_MAX;
}

bool keeper_rule_is_public(const struct keeper_rule *r)
{
    uint32_t first = ntohl(r->address);
    return !touches(ranges_not_public, ARRAY_SIZE(ranges_not_public), first, first | tail_of(r));
}

bool keeper_rule_can_open(const struct keeper_rule *r)
{
    uint32_t first = ntohl(r->address);
    return r->prefix >= 1 && !touches(ranges_never, ARRAY_SIZE(ranges_never), first, first | tail_of(r));
}

static bool rule_ok(const struct keeper_rule *r)
{
    return r->prefix <= 32 && !r->reserved && !(ntohl(r->address) & tail_of(r)) && keeper_rule_can_open(r);
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
