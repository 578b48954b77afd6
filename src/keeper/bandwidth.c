/* SPDX-License-Identifier: Apache-2.0 */
/* bandwidth.c: see bandwidth.h. A token bucket (tbf) shapes what a link sends, and a veth pair has two ends
 * that send: the host's end bounds what a sandbox receives, the sandbox's own end what it sends, where its
 * programs feel it as a slow network and not as lost packets. Neither end can be changed from inside. */
#include "keeper/bandwidth.h"
#include "keeper/netlink.h"

#include <errno.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>

enum {
    BURST_PER_SECOND = 20, /* a twentieth of a second may go at once ... */
    BURST_MIN = 16384,     /* ... but always a handful of packets */
    BURST_MAX = 16 << 20,
    QUEUE_PER_SECOND = 10, /* a tenth of a second may wait */
    QUEUE_MIN = 65536,
    QUEUE_MAX = 64 << 20,
    HANDLE = 1 << 16, /* "1:" */
};

static uint32_t clamp(uint64_t v, uint32_t min, uint32_t max)
{
    return v < min ? min : v > max ? max : (uint32_t)v;
}

static int talk(struct nl_buf *b)
{
    auto_close int fd = nl_open(NETLINK_ROUTE);
    return fd < 0 ? fd : nl_talk(fd, b);
}

static int bucket_remove(struct nl_buf *b, struct tcmsg *head)
{
    nl_begin(b, RTM_DELQDISC, NLM_F_ACK, head, sizeof *head);
    int r = talk(b);
    return r == -ENOENT || r == -EINVAL ? 0 : r; /* there was none */
}

int bandwidth_set(unsigned index, uint64_t bytes_per_second)
{
    _Alignas(4) char data[1024];
    struct nl_buf b;
    struct tcmsg head = {
        .tcm_family = AF_UNSPEC, .tcm_ifindex = (int)index, .tcm_handle = HANDLE, .tcm_parent = TC_H_ROOT};
    nl_init(&b, data, sizeof data);
    if (!bytes_per_second)
        return bucket_remove(&b, &head);
    uint32_t burst = clamp(bytes_per_second / BURST_PER_SECOND, BURST_MIN, BURST_MAX);
    struct tc_tbf_qopt bucket = {
        .rate = {.linklayer = TC_LINKLAYER_ETHERNET, .rate = clamp(bytes_per_second, 1, UINT32_MAX)},
        .limit = clamp(bytes_per_second / QUEUE_PER_SECOND, QUEUE_MIN, QUEUE_MAX) + burst,
    };
    nl_begin(&b, RTM_NEWQDISC, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, &head, sizeof head);
    nl_put_text(&b, TCA_KIND, "tbf");
    size_t options = nl_nest(&b, TCA_OPTIONS);
    nl_put(&b, TCA_TBF_PARMS, &bucket, sizeof bucket);
    nl_put_u32(&b, TCA_TBF_BURST, burst);
    if (bytes_per_second >= UINT32_MAX)
        nl_put(&b, TCA_TBF_RATE64, &bytes_per_second, sizeof bytes_per_second);
    nl_nest_end(&b, options);
    return talk(&b);
}

int bandwidth_try(void *unused)
{
    (void)unused;
    if (unshare(CLONE_NEWNET) < 0)
        return errno;
    unsigned index = if_nametoindex("lo");
    return index ? -bandwidth_set(index, 1 << 20) : errno;
}
