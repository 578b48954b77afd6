/* SPDX-License-Identifier: Apache-2.0 */
/* box_socket.h: sockets for the gateway, which may use them and cannot make them itself. */
#pragma once

#include "keeper/sandbox.h"

/* Makes what the request (checked, of type KEEPER_SOCKET) asks for. sb: the running sandbox, NULL when it
 * does not run. resolvers: those of the daemon's settings; none: the host's. network: NULL when there is
 * none. */
int box_socket_make(const struct keeper_request *q, const struct sandbox *sb, const struct network *network,
                    const uint32_t *resolvers, size_t resolver_count, int *ret_fd, struct error *reterr);
