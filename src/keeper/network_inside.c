/* SPDX-License-Identifier: Apache-2.0 */
/* network_inside.c: see network_inside.h. As with eth0.h, what is set up here stays. */
#include "keeper/network_inside.h"
#include "keeper/bandwidth.h"
#include "keeper/netlink.h"
#include "keeper/nft_rule.h"
#include "keeper/proto.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

enum { DNS_PORT = 53, PRIORITY = -100 /* where destinations are changed */ };

static const char table[] = "resolver";

/* One rule a protocol: a question to anybody is a question to us. */
static int resolver_on(void)
{
    static const uint8_t protocols[] = {IPPROTO_UDP, IPPROTO_TCP};
    _Alignas(4) char data[4096];
    struct nl_buf b;
    nl_init(&b, data, sizeof data);
    nft_batch_edge(&b, NFNL_MSG_BATCH_BEGIN);
    nft_put_table(&b, table, NFT_MSG_NEWTABLE, NLM_F_CREATE); /* whatever is there is made anew */
    nft_put_table(&b, table, NFT_MSG_DELTABLE, 0);
    nft_put_table(&b, table, NFT_MSG_NEWTABLE, NLM_F_CREATE);
    nft_put_chain(&b, table, "out", "nat", NF_INET_LOCAL_OUT, PRIORITY);
    for (size_t i = 0; i < ARRAY_SIZE(protocols); i++) {
        struct nft_rule r = nft_rule_begin(&b, table, "out");
        nft_match_byte(&r, NFT_META_NFPROTO, NFT_CMP_EQ, NFPROTO_IPV4);
        nft_match_port(&r, protocols[i], DNS_PORT);
        nft_redirect(&r, KEEPER_PORT_RESOLVER);
    }
    nft_put_table(&b, table, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_ACK); /* only for its answer */
    nft_batch_edge(&b, NFNL_MSG_BATCH_END);
    return nft_talk(&b);
}

int network_try_resolver(void *unused)
{
    (void)unused;
    return unshare(CLONE_NEWNET) < 0 ? errno : -resolver_on();
}

static int resolver_off(void)
{
    _Alignas(4) char data[512];
    struct nl_buf b;
    nl_init(&b, data, sizeof data);
    nft_batch_edge(&b, NFNL_MSG_BATCH_BEGIN);
    nft_put_table(&b, table, NFT_MSG_DELTABLE, NLM_F_ACK);
    nft_batch_edge(&b, NFNL_MSG_BATCH_END);
    int r = nft_talk(&b);
    return r == -ENOENT ? 0 : r;
}

/* /proc/sys/net shows the namespace of the thread that opens it. */
static int connect_eth0(const struct eth0 *e)
{
    auto_close int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return root < 0 ? -errno : eth0_connect(e, root);
}

static int work(const struct inside_work *w)
{
    int r = 0;
    if (w->shape) { /* before it is up, if it is not: then nothing has to be waited for */
        unsigned index = if_nametoindex("eth0");
        r = index ? bandwidth_set(index, w->bytes_per_second) : -errno;
    }
    if (r == 0 && w->resolver == INSIDE_RESOLVER_ON)
        r = resolver_on();
    if (r == 0 && w->resolver == INSIDE_RESOLVER_OFF)
        r = resolver_off();
    return r < 0 || !w->connect ? r : connect_eth0(w->connect);
}

struct inside {
    int netns_fd;
    const struct inside_work *work;
    int result;
};

static void *inside_run(void *arg)
{
    struct inside *i = arg;
    i->result = setns(i->netns_fd, CLONE_NEWNET) < 0 ? -errno : work(i->work);
    return NULL;
}

int network_inside(int netns_fd, const struct inside_work *w, struct error *reterr)
{
    struct inside i = {.netns_fd = netns_fd, .work = w};
    pthread_t thread;
    if (!w->connect && !w->shape && w->resolver == INSIDE_RESOLVER_KEEP)
        return 0;
    int r = pthread_create(&thread, NULL, inside_run, &i);
    if (r)
        return error_sys(reterr, r, "enter the sandbox's network");
    (void)pthread_join(thread, NULL);
    return i.result < 0 ? error_sys(reterr, -i.result, "set up the network inside the sandbox") : 0;
}
