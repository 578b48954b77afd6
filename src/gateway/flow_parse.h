/* SPDX-License-Identifier: Apache-2.0 */
/* flow_parse.h: what the kernel tells of sandboxes' connections and refused packets. No I/O. */
#pragma once

#include "base/ip.h"

enum flow_kind { FLOW_OPEN, FLOW_CLOSE, FLOW_REFUSED };

struct flow {
    enum flow_kind kind;
    uint8_t protocol;
    uint16_t port; /* of the destination; 0: the protocol has none */
    uint32_t
        source; /* the sandbox's IPv4 address, network order: its IPv6 address ends with the same bytes */
    struct ip destination;
    uint64_t sent, received; /* CLOSE: bytes, with their headers */
};

/* One datagram of a netlink socket: connections (nfnetlink_conntrack) and packets (nfnetlink_log). Everything
 * else in it is skipped. */
void flow_parse(const void *data, size_t n, void (*found)(const struct flow *f, void *arg), void *arg);

/* What a name server told a sandbox: this name has this address. */
struct flow_answer {
    uint32_t sandbox; /* its IPv4 address, network order */
    const char *name; /* that was asked for, as in struct dns_query */
    struct ip address;
};
/* One datagram of a netlink socket with packets (nfnetlink_log) that name servers sent over UDP. */
void flow_parse_answers(const void *data, size_t n, void (*found)(const struct flow_answer *a, void *arg),
                        void *arg);
