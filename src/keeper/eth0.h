/* SPDX-License-Identifier: Apache-2.0 */
/* eth0.h: the sandbox's end of its link, set up from inside its network namespace: by its first process
 * before it gives up its rights, or by the keeper for one that runs already. */
#pragma once

#include "base/error.h"
#include "base/ip.h"

struct eth0 {
    struct ip address, gateway;   /* of IPv4 */
    struct ip address6, gateway6; /* none: the link has no IPv6 at all */
    unsigned char gateway_mac[6];
};

/* Addresses, the way out, and the link up. root_fd: where proc/sys is found. Makes system calls only. 0 or
 * -errno. */
int eth0_connect(const struct eth0 *e, int root_fd);
