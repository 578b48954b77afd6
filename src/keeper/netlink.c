/* SPDX-License-Identifier: Apache-2.0 */
/* netlink.c: see netlink.h. */
#include "keeper/netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { ANSWER_MS = 5000, ANSWER_MAX = 32768, REQUEST_MAX = 1024, DUMP_MAX = 1 << 20 };

/* ---- building */

void nl_init(struct nl_buf *b, void *data, size_t cap)
{
    *b = (struct nl_buf){.data = data, .cap = cap};
}

static void *reserve(struct nl_buf *b, size_t n)
{
    size_t room = NLMSG_ALIGN(n);
    if (b->overflow || room > b->cap - b->len) {
        b->overflow = true;
        return NULL;
    }
    char *p = b->data + b->len;
    memset(p, 0, room);
    b->len += room;
    return p;
}

static void message_grew(struct nl_buf *b)
{
    uint32_t len = (uint32_t)(b->len - b->message);
    memcpy(b->data + b->message + offsetof(struct nlmsghdr, nlmsg_len), &len, sizeof len);
}

void nl_begin(struct nl_buf *b, uint16_t type, uint16_t flags, const void *head, size_t n)
{
    size_t at = b->len;
    char *p = reserve(b, NLMSG_HDRLEN + n);
    if (!p)
        return;
    b->message = at;
    struct nlmsghdr h = {.nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags, .nlmsg_seq = ++b->seq};
    memcpy(p, &h, sizeof h);
    memcpy(p + NLMSG_HDRLEN, head, n);
    message_grew(b);
}

void nl_put(struct nl_buf *b, uint16_t type, const void *data, size_t n)
{
    struct nlattr a = {.nla_len = (uint16_t)(NLA_HDRLEN + n), .nla_type = type};
    char *p = n <= UINT16_MAX - NLA_HDRLEN ? reserve(b, NLA_HDRLEN + n) : NULL;
    if (!p) {
        b->overflow = true;
        return;
    }
    memcpy(p, &a, sizeof a);
    if (n)
        memcpy(p + NLA_HDRLEN, data, n);
    message_grew(b);
}

void nl_put_u32(struct nl_buf *b, uint16_t type, uint32_t v)
{
    nl_put(b, type, &v, sizeof v);
}

void nl_put_be32(struct nl_buf *b, uint16_t type, uint32_t v)
{
    nl_put_u32(b, type, htonl(v));
}

void nl_put_text(struct nl_buf *b, uint16_t type, const char *text)
{
    nl_put(b, type, text, strlen(text) + 1);
}

size_t nl_nest(struct nl_buf *b, uint16_t type)
{
    size_t at = b->len;
    nl_put(b, type | NLA_F_NESTED, NULL, 0);
    return at;
}

void nl_nest_end(struct nl_buf *b, size_t nest)
{
    size_t n = b->len - nest;
    if (b->overflow || n > UINT16_MAX) {
        b->overflow = true;
        return;
    }
    uint16_t len = (uint16_t)n;
    memcpy(b->data + nest + offsetof(struct nlattr, nla_len), &len, sizeof len);
}

/* ---- sending */

int nl_open(int protocol)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
    struct sockaddr_nl address = {.nl_family = AF_NETLINK};
    int size = 8 << 20; /* a whole table goes out in one piece */
    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size); /* small batches fit anyway */
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        int err = errno;
        (void)close(fd);
        return -err;
    }
    return fd;
}

static int transmit(int fd, const struct nl_buf *b)
{
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    if (b->overflow || !b->len)
        return -EMSGSIZE;
    ssize_t n = sendto(fd, b->data, b->len, 0, (struct sockaddr *)&kernel, sizeof kernel);
    return n < 0 ? -errno : n == (ssize_t)b->len ? 0 : -EIO;
}

/* One datagram of the kernel's; its length or -errno. */
static ssize_t receive(int fd, void *out, size_t cap)
{
    for (;;) {
        struct sockaddr_nl from = {0};
        socklen_t from_len = sizeof from;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = poll(&p, 1, ANSWER_MS);
        if (ready == 0)
            return -ETIMEDOUT;
        if (ready < 0 && errno != EINTR)
            return -errno;
        if (ready < 0)
            continue;
        ssize_t n = recvfrom(fd, out, cap, MSG_TRUNC | MSG_DONTWAIT, (struct sockaddr *)&from, &from_len);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return -errno;
        if (n > (ssize_t)cap)
            return -EMSGSIZE;
        if (n >= 0 && from.nl_pid == 0) /* others may send, too, but only the kernel is heard */
            return n;
    }
}

static int error_of(const struct nlmsghdr *h)
{
    struct nlmsgerr e;
    if (h->nlmsg_len < NLMSG_LENGTH(sizeof e.error))
        return -EBADMSG;
    memcpy(&e.error, NLMSG_DATA(h), sizeof e.error);
    return e.error > 0 ? -EBADMSG : e.error;
}

int nl_talk(int fd, struct nl_buf *b)
{
    _Alignas(struct nlmsghdr) char answer[ANSWER_MAX];
    int r = transmit(fd, b);
    for (int i = 0; r == 0 && i < 64; i++) {
        ssize_t n = receive(fd, answer, sizeof answer);
        if (n < 0)
            return (int)n;
        size_t left = (size_t)n;
        for (struct nlmsghdr *h = (struct nlmsghdr *)answer; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
            if (h->nlmsg_type != NLMSG_ERROR)
                continue;
            r = error_of(h);
            if (r < 0 || h->nlmsg_seq == b->seq)
                return r;
        }
    }
    return r < 0 ? r : -EBADMSG;
}

int nl_dump(int fd, struct nl_buf *b, int (*found)(const struct nlmsghdr *h, void *arg), void *arg)
{
    _Alignas(struct nlmsghdr) char answer[ANSWER_MAX];
    int r = transmit(fd, b);
    for (int i = 0; r == 0 && i < DUMP_MAX; i++) {
        ssize_t n = receive(fd, answer, sizeof answer);
        if (n < 0)
            return (int)n;
        size_t left = (size_t)n;
        for (struct nlmsghdr *h = (struct nlmsghdr *)answer; r == 0 && NLMSG_OK(h, left);
             h = NLMSG_NEXT(h, left)) {
            if (h->nlmsg_type == NLMSG_DONE)
                return 0;
            r = h->nlmsg_type == NLMSG_ERROR ? error_of(h) : found(h, arg);
        }
    }
    return r < 0 ? r : -EBADMSG;
}

const void *nl_find(const struct nlmsghdr *h, size_t skip, uint16_t type, size_t min, size_t *ret_len)
{
    size_t at = NLMSG_HDRLEN + NLMSG_ALIGN(skip);
    if (h->nlmsg_len < at)
        return NULL;
    return nl_attr((const char *)h + at, h->nlmsg_len - at, type, min, ret_len);
}

/* ---- links, addresses, routes */

static int route_talk(struct nl_buf *b)
{
    auto_close int fd = nl_open(NETLINK_ROUTE);
    return fd < 0 ? fd : nl_talk(fd, b);
}

int nl_veth_add(const struct nl_veth *v)
{
    _Alignas(4) char data[REQUEST_MAX];
    struct nl_buf b;
    struct ifinfomsg link = {.ifi_family = AF_UNSPEC};
    nl_init(&b, data, sizeof data);
    nl_begin(&b, RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &link, sizeof link);
    nl_put_text(&b, IFLA_IFNAME, v->name);
    nl_put(&b, IFLA_ADDRESS, v->mac, sizeof v->mac);
    size_t info = nl_nest(&b, IFLA_LINKINFO);
    nl_put_text(&b, IFLA_INFO_KIND, "veth");
    size_t kind = nl_nest(&b, IFLA_INFO_DATA);
    size_t peer = nl_nest(&b, VETH_INFO_PEER);
    void *head = reserve(&b, sizeof link);
    if (head) {
        memcpy(head, &link, sizeof link);
        message_grew(&b);
    }
    nl_put_text(&b, IFLA_IFNAME, v->peer_name);
    nl_put(&b, IFLA_ADDRESS, v->peer_mac, sizeof v->peer_mac);
    nl_put_u32(&b, IFLA_NET_NS_FD, (uint32_t)v->peer_netns_fd);
    nl_nest_end(&b, peer);
    nl_nest_end(&b, kind);
    nl_nest_end(&b, info);
    return route_talk(&b);
}

int nl_link_delete(const char *name)
{
    _Alignas(4) char data[REQUEST_MAX];
    struct nl_buf b;
    struct ifinfomsg link = {.ifi_family = AF_UNSPEC};
    nl_init(&b, data, sizeof data);
    nl_begin(&b, RTM_DELLINK, NLM_F_ACK, &link, sizeof link);
    nl_put_text(&b, IFLA_IFNAME, name);
    return route_talk(&b);
}

int nl_link_up(unsigned index)
{
    _Alignas(4) char data[REQUEST_MAX];
    struct nl_buf b;
    struct ifinfomsg link = {
        .ifi_family = AF_UNSPEC, .ifi_index = (int)index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    nl_init(&b, data, sizeof data);
    nl_begin(&b, RTM_NEWLINK, NLM_F_ACK, &link, sizeof link);
    return route_talk(&b);
}

static unsigned char family_of(const struct ip *a)
{
    return ip_is_v4(a) ? AF_INET : AF_INET6;
}

static void put_address(struct nl_buf *b, uint16_t type, const struct ip *a)
{
    if (ip_is_v4(a))
        nl_put_u32(b, type, ip_v4(a));
    else
        nl_put(b, type, a->bytes, sizeof a->bytes);
}

/* Nobody else on a link of ours could have the address: IPv6 need not look for them first, which takes it a
 * second. */
int nl_address_add(unsigned index, const struct ip *address, unsigned prefix)
{
    _Alignas(4) char data[REQUEST_MAX];
    struct nl_buf b;
    bool v4 = ip_is_v4(address);
    struct ifaddrmsg head = {.ifa_family = family_of(address),
                             .ifa_prefixlen = (uint8_t)(v4 ? prefix - IP_V4_BITS : prefix),
                             .ifa_flags = v4 ? 0 : IFA_F_NODAD,
                             .ifa_index = index};
    nl_init(&b, data, sizeof data);
    nl_begin(&b, RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &head, sizeof head);
    put_address(&b, IFA_LOCAL, address);
    put_address(&b, IFA_ADDRESS, address);
    return route_talk(&b);
}

int nl_default_route_add(unsigned index, const struct ip *gateway)
{
    _Alignas(4) char data[REQUEST_MAX];
    struct nl_buf b;
    struct rtmsg head = {.rtm_family = family_of(gateway),
                         .rtm_table = RT_TABLE_MAIN,
                         .rtm_protocol = RTPROT_STATIC,
                         .rtm_scope = RT_SCOPE_UNIVERSE,
                         .rtm_type = RTN_UNICAST};
    nl_init(&b, data, sizeof data);
    nl_begin(&b, RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &head, sizeof head);
    put_address(&b, RTA_GATEWAY, gateway);
    nl_put_u32(&b, RTA_OIF, index);
    return route_talk(&b);
}

int nl_neighbour_add(unsigned index, const struct ip *address, const unsigned char mac[6])
{
    _Alignas(4) char data[REQUEST_MAX];
    struct nl_buf b;
    struct ndmsg head = {
        .ndm_family = family_of(address), .ndm_ifindex = (int)index, .ndm_state = NUD_PERMANENT};
    nl_init(&b, data, sizeof data);
    nl_begin(&b, RTM_NEWNEIGH, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, &head, sizeof head);
    put_address(&b, NDA_DST, address);
    nl_put(&b, NDA_LLADDR, mac, 6);
    return route_talk(&b);
}

int nl_local_route_add(unsigned index)
{
    _Alignas(4) char data[REQUEST_MAX];
    struct nl_buf b;
    struct rtmsg head = {.rtm_family = AF_INET,
                         .rtm_table = RT_TABLE_LOCAL,
                         .rtm_protocol = RTPROT_STATIC,
                         .rtm_scope = RT_SCOPE_HOST,
                         .rtm_type = RTN_LOCAL};
    nl_init(&b, data, sizeof data);
    nl_begin(&b, RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &head, sizeof head);
    nl_put_u32(&b, RTA_OIF, index);
    return route_talk(&b);
}

struct link_seen {
    void (*found)(const char *name, void *arg);
    void *arg;
};

static int link_seen(const struct nlmsghdr *h, void *arg)
{
    const struct link_seen *s = arg;
    size_t n;
    const char *name = nl_find(h, sizeof(struct ifinfomsg), IFLA_IFNAME, 1, &n);
    if (h->nlmsg_type == RTM_NEWLINK && name && memchr(name, '\0', n))
        s->found(name, s->arg);
    return 0;
}

int nl_link_each(void (*found)(const char *name, void *arg), void *arg)
{
    _Alignas(4) char data[REQUEST_MAX];
    struct nl_buf b;
    struct ifinfomsg link = {.ifi_family = AF_UNSPEC};
    struct link_seen seen = {found, arg};
    auto_close int fd = nl_open(NETLINK_ROUTE);
    if (fd < 0)
        return fd;
    nl_init(&b, data, sizeof data);
    nl_begin(&b, RTM_GETLINK, NLM_F_DUMP, &link, sizeof link);
    return nl_dump(fd, &b, link_seen, &seen);
}

/* Asks one question that has one answer. */
static int ask(struct nl_buf *b, void *answer, size_t cap)
{
    auto_close int fd = nl_open(NETLINK_ROUTE);
    int r = fd < 0 ? fd : transmit(fd, b);
    ssize_t n = r < 0 ? r : receive(fd, answer, cap);
    const struct nlmsghdr *h = answer;
    if (n < 0 || !NLMSG_OK(h, (size_t)n))
        return n < 0 ? (int)n : -EBADMSG;
    if (h->nlmsg_type == NLMSG_ERROR)
        return (r = error_of(h)) < 0 ? r : -EBADMSG;
    return 0;
}

int nl_link_bytes(const char *name, uint64_t *ret_rx, uint64_t *ret_tx)
{
    _Alignas(4) char data[REQUEST_MAX];
    _Alignas(struct nlmsghdr) char answer[ANSWER_MAX];
    struct nl_buf b;
    struct ifinfomsg link = {.ifi_family = AF_UNSPEC};
    struct rtnl_link_stats64 stats;
    nl_init(&b, data, sizeof data);
    nl_begin(&b, RTM_GETLINK, 0, &link, sizeof link);
    nl_put_text(&b, IFLA_IFNAME, name);
    int r = ask(&b, answer, sizeof answer);
    size_t need = offsetof(struct rtnl_link_stats64, tx_bytes) + sizeof stats.tx_bytes;
    const void *found =
        r < 0 ? NULL : nl_find((const struct nlmsghdr *)answer, sizeof link, IFLA_STATS64, need, NULL);
    if (!found)
        return r < 0 ? r : -EBADMSG;
    memcpy(&stats, found, need);
    *ret_rx = stats.rx_bytes;
    *ret_tx = stats.tx_bytes;
    return 0;
}

int nl_route_interface(const struct ip *address, unsigned *ret_index)
{
    _Alignas(4) char data[REQUEST_MAX];
    _Alignas(struct nlmsghdr) char answer[ANSWER_MAX];
    struct nl_buf b;
    struct rtmsg head = {.rtm_family = family_of(address), .rtm_dst_len = ip_is_v4(address) ? 32 : 128};
    nl_init(&b, data, sizeof data);
    nl_begin(&b, RTM_GETROUTE, 0, &head, sizeof head);
    put_address(&b, RTA_DST, address);
    int r = ask(&b, answer, sizeof answer);
    if (r < 0)
        return r;
    const struct nlmsghdr *h = (const struct nlmsghdr *)answer;
    const void *index = nl_find(h, sizeof head, RTA_OIF, sizeof *ret_index, NULL);
    if (h->nlmsg_type != RTM_NEWROUTE || !index)
        return -ENETUNREACH;
    memcpy(&head, NLMSG_DATA(h), sizeof head);
    if (head.rtm_type != RTN_UNICAST) /* IPv6 has a route also to nowhere */
        return -ENETUNREACH;
    memcpy(ret_index, index, sizeof *ret_index);
    return 0;
}
