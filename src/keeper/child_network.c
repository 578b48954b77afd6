/* SPDX-License-Identifier: Apache-2.0 */
/* child_network.c: see child_network.h. Done by the first process itself, with the rights it has over its own
 * network namespace before it drops them: the keeper configures nothing in a sandbox's namespace. */
#include "keeper/child_network.h"
#include "keeper/eth0.h"
#include "keeper/mount_util.h"
#include "keeper/netlink.h"
#include "keeper/nft_redirect.h"
#include "keeper/proto.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <string.h>

/* Whatever the image has in its place is replaced, never followed. A full disk is no reason not to start. */
static void write_resolv_conf(int root, const char *text)
{
    auto_close int etc = open_beneath(root, "etc", O_PATH | O_DIRECTORY);
    if (etc < 0)
        return;
    (void)unlinkat(etc, "resolv.conf", 0);
    auto_close int fd =
        openat(etc, "resolv.conf", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd >= 0)
        (void)!write(fd, text, strlen(text));
}

/* There is no link: every address is the machine's own, and whatever is connected to is the catcher. The
 * workload cannot change this: it has no CAP_NET_ADMIN over the namespace, and no way to get it. */
static int connect_sidecar(void)
{
    unsigned index = if_nametoindex("lo");
    if (!index)
        return -errno;
    int r = nl_link_up(index);
    if (r < 0 || (r = nl_local_route_add(index)) < 0)
        return r;
    return nft_redirect_add(KEEPER_PORT_CATCHER);
}

int child_network_make(const struct child_plan *p, int root)
{
    if (!p->resolv_conf)
        return 0;
    if (p->sidecar) {
        int r = connect_sidecar();
        if (r == 0)
            write_resolv_conf(root, p->resolv_conf);
        return r;
    }
    int r = p->eth0 ? eth0_connect(p->eth0, root) : 0;
    if (r == 0)
        write_resolv_conf(root, p->resolv_conf);
    return r;
}
