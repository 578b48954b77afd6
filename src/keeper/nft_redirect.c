/* SPDX-License-Identifier: Apache-2.0 */
/* nft_redirect.c: see nft_redirect.h. */
#include "keeper/nft_redirect.h"
#include "keeper/nft_rule.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <netinet/in.h>
#include <sched.h>

enum { DESTINATION = 16 /* in the IPv4 header */, PRIORITY = -100 /* where destinations are changed */ };

/* Everything has to be there: the daemon's own table needs other parts of the kernel. */
int nft_redirect_try(void *unused)
{
    (void)unused;
    return unshare(CLONE_NEWNET) < 0 ? errno : -nft_redirect_add(1);
}

int nft_redirect_add(uint16_t port)
{
    static const char table[] = "sidecar";
    const uint32_t loopback = htonl(0x7f000000);
    _Alignas(4) char data[2048];
    struct nl_buf b;
    nl_init(&b, data, sizeof data);
    nft_batch_edge(&b, NFNL_MSG_BATCH_BEGIN);
    nft_put_table(&b, table, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL);
    nft_put_chain(&b, table, "out", "nat", NF_INET_LOCAL_OUT, PRIORITY);
    struct nft_rule r = nft_rule_begin(&b, table, "out");
    nft_match_byte(&r, NFT_META_NFPROTO, NFT_CMP_EQ, NFPROTO_IPV4);
    nft_match_byte(&r, NFT_META_L4PROTO, NFT_CMP_EQ, IPPROTO_TCP);
    nft_load_payload(&r, NFT_PAYLOAD_NETWORK_HEADER, DESTINATION, 4, NFT_REG_1);
    nft_mask(&r, htonl(0xff000000));
    nft_compare(&r, NFT_CMP_NEQ, &loopback, sizeof loopback);
    nft_redirect(&r, port);
    nft_put_table(&b, table, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_ACK); /* only for its answer */
    nft_batch_edge(&b, NFNL_MSG_BATCH_END);
    return nft_talk(&b);
}
