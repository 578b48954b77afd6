/* SPDX-License-Identifier: Apache-2.0 */
/* flow_socket.h: netlink sockets for the gateway that tell what sandboxes do in the network. Whoever has one
 * can read it and do nothing else with it: the kernel asks the sender of a request for rights, not its
 * socket. */
#pragma once

#include "base/error.h"
#include "base/ip.h"

struct flow_pools { /* network order and a length; IPv6: with ipv6 */
    uint32_t v4;
    unsigned v4_prefix;
    bool ipv6;
    struct ip v6;
    unsigned v6_prefix;
};

/* Connections that begin and end, with their bytes; only those from these ranges of addresses. */
int flow_socket_open(const struct flow_pools *pools, int *ret_fd, struct error *reterr);
/* How much is told of a packet, and how soon. */
enum packet_part {
    PACKET_HEADERS, /* perhaps together with others, a moment later */
    PACKET_WHOLE,   /* at once */
};
/* Packets that rules gave to this log group. -EBUSY: somebody else has it. */
int packet_socket_open(uint16_t group, enum packet_part part, int *ret_fd, struct error *reterr);
