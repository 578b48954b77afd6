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
#include <sys/stat.h>

static bool is_file_with(int dir, const char *name, const char *text)
{
    char found[1024];
    struct stat st;
    size_t n = strlen(text);
    auto_close int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd >= 0 && n <= sizeof found && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
           st.st_size == (off_t)n && read(fd, found, sizeof found) == (ssize_t)n &&
           memcmp(found, text, n) == 0;
}

/* Whatever the image has in its place is replaced, never followed; a sandbox that wakes mostly has its own. A
 * full disk is no reason not to start. */
static void write_resolv_conf(int root, const char *text)
{
    auto_close int etc = open_beneath(root, "etc", O_PATH | O_DIRECTORY);
    if (etc < 0 || is_file_with(etc, "resolv.conf", text))
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

int child_network_link(const struct child_plan *p, int stage)
{
    return p->eth0 ? eth0_connect(p->eth0, stage) : 0;
}

int child_network_make(const struct child_plan *p, int root)
{
    int r = p->sidecar ? connect_sidecar() : 0;
    if (r == 0 && p->resolv_conf)
        write_resolv_conf(root, p->resolv_conf);
    return r;
}
