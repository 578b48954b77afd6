/* SPDX-License-Identifier: Apache-2.0 */
/* flow_socket.h: netlink sockets for the gateway that tell what sandboxes do in the network. Whoever has one
 * can read it and do nothing else with it: the kernel asks the sender of a request for rights, not its
 * socket. */
#pragma once

#include "base/error.h"

/* Connections that begin and end, with their bytes; only those from this range of addresses (network order).
 */
int flow_socket_open(uint32_t pool, unsigned prefix, int *ret_fd, struct error *reterr);
/* The headers of packets that rules gave to this log group. -EBUSY: somebody else has it. */
int refused_socket_open(uint16_t group, int *ret_fd, struct error *reterr);
