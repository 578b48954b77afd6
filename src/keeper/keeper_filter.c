/* SPDX-License-Identifier: Apache-2.0 */
/* keeper_filter.c: the packet filter belongs to the whole host, and others write to it, too. One command that
 * people do use, `nft flush ruleset`, takes our table along, and with it everything that stands between a
 * sandbox and the host. The kernel tells of it; the table is put back at once, and connections that were made
 * in between and could not be made now are ended. */
#include "base/log.h"
#include "keeper/keeper_internal.h"
#include "keeper/netlink.h"

#include <errno.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <string.h>
#include <sys/socket.h>

enum { DATAGRAM_MAX = 32768, DATAGRAMS_PER_EVENT = 64, RETRY_MS = 1000 };

static void filter_restore(struct keeper *k);

static void retry_fired(struct timer *t)
{
    filter_restore(container_of(t, struct keeper, filter_retry));
}

static void filter_restore(struct keeper *k)
{
    struct error e = {0};
    int r = network_restore(k->env.network, k->slot_used, &e);
    if (r == 0)
        return; /* it was our own doing */
    if (r > 0) {
        log_error("somebody has removed the packet filter of sandboxes; it is in place again");
        return;
    }
    log_error("the packet filter of sandboxes is gone and cannot be put back: %s", e.msg);
    loop_timer_start(k->loop, &k->filter_retry, RETRY_MS, retry_fired);
}

/* Whether a table was removed among these messages; ours or another, it is looked for then. */
static bool tells_of_removal(const char *data, size_t n)
{
    for (const struct nlmsghdr *h = (const struct nlmsghdr *)data; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n))
        if (h->nlmsg_type == (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELTABLE))
            return true;
    return false;
}

static void filter_ready(struct source *s, uint32_t events)
{
    struct keeper *k = container_of(s, struct keeper, filter);
    _Alignas(struct nlmsghdr) char data[DATAGRAM_MAX];
    bool look = false;
    (void)events;
    for (int i = 0; i < DATAGRAMS_PER_EVENT; i++) {
        ssize_t n = recv(k->filter_fd, data, sizeof data, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            break;
        /* ENOBUFS: there was more than we could hear */
        look |= n < 0 ? errno != EINTR : tells_of_removal(data, (size_t)n);
    }
    if (look)
        filter_restore(k);
}

void keeper_filter_watch(struct keeper *k)
{
    int group = NFNLGRP_NFTABLES;
    if (!k->env.network)
        return;
    k->filter_fd = nl_open(NETLINK_NETFILTER);
    int r = k->filter_fd < 0 ? k->filter_fd : 0;
    if (r == 0 && setsockopt(k->filter_fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) < 0)
        r = -errno;
    if (r == 0)
        r = loop_add(k->loop, &k->filter, k->filter_fd, EPOLLIN, filter_ready);
    if (r < 0)
        log_warn("nobody would notice if the packet filter were removed: %s", strerror(-r));
}

void keeper_filter_forget(struct keeper *k)
{
    loop_timer_stop(k->loop, &k->filter_retry);
    loop_del(k->loop, &k->filter);
    close_fd(&k->filter_fd);
}
