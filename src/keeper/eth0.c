/* SPDX-License-Identifier: Apache-2.0 */
/* eth0.c: see eth0.h. The workload has no CAP_NET_ADMIN over the namespace, and no way to get it: what is set
 * up here stays. */
#include "keeper/eth0.h"
#include "keeper/mount_util.h"
#include "keeper/netlink.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <string.h>

enum { LINK_PREFIX = IP_BITS - 1 }; /* two addresses, of either family */

struct setting {
    const char *path, *value;
};

/* The loopback interface keeps its ::1. */
static const struct setting without_ipv6[] = {{"proc/sys/net/ipv6/conf/eth0/disable_ipv6", "1"},
                                              {"proc/sys/net/ipv6/conf/eth0/accept_ra", "0"}};
/* One address, which it is given, and nothing that a neighbour could say changes it. */
static const struct setting with_ipv6[] = {{"proc/sys/net/ipv6/conf/eth0/addr_gen_mode", "1"},
                                           {"proc/sys/net/ipv6/conf/eth0/accept_ra", "0"},
                                           {"proc/sys/net/ipv6/conf/eth0/accept_redirects", "0"},
                                           {"proc/sys/net/ipv6/conf/eth0/router_solicitations", "0"},
                                           {"proc/sys/net/ipv6/conf/eth0/disable_ipv6", "0"}};

static int apply(int root_fd, const struct setting *settings, size_t count, bool needed)
{
    for (size_t i = 0; i < count; i++) {
        auto_close int fd = open_beneath(root_fd, settings[i].path, O_WRONLY);
        if (fd == -ENOENT && !needed)
            continue; /* a kernel without IPv6 */
        if (fd < 0 || write(fd, settings[i].value, strlen(settings[i].value)) < 0)
            return fd < 0 ? fd : -errno;
    }
    return 0;
}

static int connect_v6(const struct eth0 *e, unsigned index)
{
    int r = nl_address_add(index, &e->address6, LINK_PREFIX);
    if (r < 0 || (r = nl_neighbour_add(index, &e->gateway6, e->gateway_mac)) < 0)
        return r;
    return nl_default_route_add(index, &e->gateway6);
}

int eth0_connect(const struct eth0 *e, int root_fd)
{
    unsigned index = if_nametoindex("eth0");
    bool ipv6 = !ip_is_none(&e->address6);
    if (!index)
        return -errno;
    int r = ipv6 ? apply(root_fd, with_ipv6, ARRAY_SIZE(with_ipv6), true)
                 : apply(root_fd, without_ipv6, ARRAY_SIZE(without_ipv6), false);
    if (r < 0 || (r = nl_address_add(index, &e->address, LINK_PREFIX)) < 0 || (r = nl_link_up(index)) < 0 ||
        (r = nl_default_route_add(index, &e->gateway)) < 0)
        return r;
    return ipv6 ? connect_v6(e, index) : 0;
}
