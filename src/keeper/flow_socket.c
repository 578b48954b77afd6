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
    /* the message header, the family, and the address in CTA_TUPLE_ORIG { CTA_TUPLE_IP { CTA_IP_V4_SRC or
       _V6_SRC } } */
    AT_FAMILY = NLMSG_HDRLEN,
    AT_SOURCE = NLMSG_HDRLEN + sizeof(struct nfgenmsg) + 3 * NLA_HDRLEN,
    FILTER_MAX = 32,
    HEADER_BYTES = 64,
    WHOLE_BYTES = 4096,
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

struct program {
    struct sock_filter code[FILTER_MAX];
    unsigned short len;
};

static void put(struct program *p, struct sock_filter step)
{
    p->code[p->len++] = step;
}

/* Passes messages of this family whose source has this prefix; what is of another family goes on behind. */
static void put_family(struct program *p, int family, const unsigned char *pool, unsigned bits)
{
    const unsigned words = (bits + 31) / 32;
    const unsigned char steps = (unsigned char)(words * 3);
    put(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_B | BPF_ABS, AT_FAMILY));
    put(p,
        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)family, 0, (uint8_t)(steps + 2)));
    for (unsigned i = 0; i < words; i++) {
        uint32_t word, left = bits - i * 32, mask = left >= 32 ? UINT32_MAX : UINT32_MAX << (32 - left);
        memcpy(&word, pool + (size_t)i * 4, sizeof word);
        put(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT_SOURCE + i * 4));
        put(p, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
        put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohl(word) & mask, 0,
                                            (uint8_t)((words - 1 - i) * 3 + 1)));
    }
    put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, UINT32_MAX));
    put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0));
}

/* The other connections of this host are nobody's business: the kernel does not even queue them. */
static int filter_source(int fd, const struct flow_pools *pools)
{
    struct program p = {0};
    put_family(&p, AF_INET, (const unsigned char *)&pools->v4, pools->v4_prefix);
    if (pools->ipv6)
        put_family(&p, AF_INET6, pools->v6.bytes, pools->v6_prefix);
    put(&p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0));
    struct sock_fprog program = {p.len, p.code};
    int on = 1;
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) < 0 ||
                   setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof on) < 0
               ? -errno
               : 0;
}

int flow_socket_open(const struct flow_pools *pools, int *ret_fd, struct error *reterr)
{
    struct sockaddr_nl groups = {.nl_family = AF_NETLINK,
                                 .nl_groups = NF_NETLINK_CONNTRACK_NEW | NF_NETLINK_CONNTRACK_DESTROY};
    auto_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
    int r = fd < 0 ? -errno : filter_source(fd, pools); /* before it hears anything */
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

int packet_socket_open(uint16_t group, enum packet_part part, int *ret_fd, struct error *reterr)
{
    _Alignas(4) char data[256];
    struct nl_buf b;
    struct nfulnl_msg_config_cmd bind_group = {.command = NFULNL_CFG_CMD_BIND};
    bool whole = part == PACKET_WHOLE;
    struct nfulnl_msg_config_mode mode = {.copy_range = htonl(whole ? WHOLE_BYTES : HEADER_BYTES),
                                          .copy_mode = NFULNL_COPY_PACKET};
    auto_close int fd = nl_open(NETLINK_NETFILTER);
    if (fd < 0)
        return error_sys(reterr, -fd, "listen to packets");
    nl_init(&b, data, sizeof data);
    log_message(&b, group);
    nl_put(&b, NFULA_CFG_CMD, &bind_group, sizeof bind_group);
    int r = nl_talk(fd, &b);
    nl_init(&b, data, sizeof data);
    log_message(&b, group);
    nl_put(&b, NFULA_CFG_MODE, &mode, sizeof mode);
    nl_put_be32(&b, NFULA_CFG_TIMEOUT, DELAY_HUNDREDTHS);
    nl_put_be32(&b, NFULA_CFG_QTHRESH, whole ? 1 : TOGETHER);
    if (r == 0)
        r = nl_talk(fd, &b);
    if (r == 0)
        r = settle(fd);
    if (r < 0)
        return error_sys(reterr, -r, "listen to packets (nfnetlink_log)");
    *ret_fd = take_fd(fd);
    return 0;
}
