/* SPDX-License-Identifier: Apache-2.0 */
/* flow_socket.c: see flow_socket.h. The keeper makes the sockets and reads not a byte of what they tell. */
#include "keeper/flow_socket.h"
#include "keeper/netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_compat.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <string.h>
#include <sys/socket.h>

enum {
    BUFFER_BYTES = 1 << 20, /* what does not fit is lost: a log must not slow down the network */
    /* the message header, the family, and the address in CTA_TUPLE_ORIG { CTA_TUPLE_IP { CTA_IP_V4_SRC } } */
    AT_FAMILY = NLMSG_HDRLEN,
    AT_SOURCE = NLMSG_HDRLEN + sizeof(struct nfgenmsg) + 3 * NLA_HDRLEN,
    PACKET_BYTES = 64,
    DELAY_HUNDREDTHS = 10, /* how long told packets may wait for company */
    TOGETHER = 16,
};

static int settle(int fd)
{
    int size = BUFFER_BYTES, on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
    (void)setsockopt(fd, SOL_NETLINK, NETLINK_NO_ENOBUFS, &on, sizeof on);
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

/* The other connections of this host are nobody's business: the kernel does not even queue them. */
static int filter_source(int fd, uint32_t pool, unsigned prefix)
{
    uint32_t mask = prefix ? UINT32_MAX << (32 - prefix) : 0;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, AT_FAMILY),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT_SOURCE),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(pool) & mask, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    struct sock_fprog program = {ARRAY_SIZE(code), code};
    int on = 1;
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) < 0 ||
                   setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof on) < 0
               ? -errno
               : 0;
}

int flow_socket_open(uint32_t pool, unsigned prefix, int *ret_fd, struct error *reterr)
{
    struct sockaddr_nl groups = {.nl_family = AF_NETLINK,
                                 .nl_groups = NF_NETLINK_CONNTRACK_NEW | NF_NETLINK_CONNTRACK_DESTROY};
    auto_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
    int r = fd < 0 ? -errno : filter_source(fd, pool, prefix); /* before it hears anything */
    if (r == 0 && bind(fd, (struct sockaddr *)&groups, sizeof groups) < 0)
        r = -errno;
    if (r == 0)
        r = settle(fd);
    if (r < 0)
        return error_sys(reterr, -r, "listen to connections (nf_conntrack_netlink)");
    *ret_fd = take_fd(fd);
    return 0;
}

static void log_message(struct nl_buf *b, uint16_t group)
{
    struct nfgenmsg head = {.nfgen_family = AF_UNSPEC, .res_id = htons(group)};
    nl_begin(b, NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG, NLM_F_ACK, &head, sizeof head);
}

int refused_socket_open(uint16_t group, int *ret_fd, struct error *reterr)
{
    _Alignas(4) char data[256];
    struct nl_buf b;
    struct nfulnl_msg_config_cmd bind_group = {.command = NFULNL_CFG_CMD_BIND};
    struct nfulnl_msg_config_mode mode = {.copy_range = htonl(PACKET_BYTES), .copy_mode = NFULNL_COPY_PACKET};
    auto_close int fd = nl_open(NETLINK_NETFILTER);
    if (fd < 0)
        return error_sys(reterr, -fd, "listen to refused packets");
    nl_init(&b, data, sizeof data);
    log_message(&b, group);
    nl_put(&b, NFULA_CFG_CMD, &bind_group, sizeof bind_group);
    int r = nl_talk(fd, &b);
    nl_init(&b, data, sizeof data);
    log_message(&b, group);
    nl_put(&b, NFULA_CFG_MODE, &mode, sizeof mode);
    nl_put_be32(&b, NFULA_CFG_TIMEOUT, DELAY_HUNDREDTHS);
    nl_put_be32(&b, NFULA_CFG_QTHRESH, TOGETHER);
    if (r == 0)
        r = nl_talk(fd, &b);
    if (r == 0)
        r = settle(fd);
    if (r < 0)
        return error_sys(reterr, -r, "listen to refused packets (nfnetlink_log)");
    *ret_fd = take_fd(fd);
    return 0;
}
