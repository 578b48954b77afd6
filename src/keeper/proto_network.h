/* SPDX-License-Identifier: Apache-2.0 */
/* proto_network.h: what the gateway tells the keeper about a sandbox's way out; part of proto.h. */
#pragma once

#include "base/error.h"
#include "base/ip.h"

enum {
    KEEPER_RULES_MAX = 32,
    KEEPER_ALLOW_SECONDS_MAX = 7200,
    KEEPER_CONNECTIONS_DEFAULT = 1024,
    KEEPER_CONNECTIONS_MAX = 16384, /* four of them still leave source ports to the others */
};

#define KEEPER_NET_BPS_MIN (UINT64_C(16) << 10)
#define KEEPER_NET_BPS_MAX (UINT64_C(1) << 40)

/* Where packets may go. */
struct keeper_rule {
    struct ip address; /* no bits behind the prefix */
    uint16_t port;     /* 0: any */
    uint8_t prefix;    /* of IP_BITS, also with IPv4 */
    uint8_t reserved;  /* 0 */
};

struct keeper_policy {
    uint64_t bytes_per_second; /* each way; 0: no limit */
    uint32_t connections;      /* at a time; 0: the default */
    uint32_t seconds;          /* ALLOW: how long its rules hold; otherwise 0 */
    uint32_t rule_count;
    uint32_t
        keep; /* NETWORK, 0 or 1: the addresses of ALLOW stay; they are all allowed by the new list as well */
    struct keeper_rule rules[KEEPER_RULES_MAX]; /* those behind rule_count are zero */
};

/* Everything about it that does not depend on the type of request. */
bool keeper_policy_ok(const struct keeper_policy *p);
bool keeper_policy_empty(const struct keeper_policy *p);
/* Neither private nor special: what mode `public` opens. */
bool keeper_address_is_public(const struct ip *address);
/* An address that no list can open: this host, link-local (metadata services), multicast and the like. */
bool keeper_address_is_never(const struct ip *address);
/* Does the network of this rule contain the address, on this port? */
bool keeper_rule_has(const struct keeper_rule *r, const struct ip *address, uint16_t port);
/* True when mode `public` opens every address of the network. */
bool keeper_rule_is_public(const struct keeper_rule *r);
/* True when every address of the network is one that a list can open. */
bool keeper_rule_can_open(const struct keeper_rule *r);
