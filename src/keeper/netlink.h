/* SPDX-License-Identifier: Apache-2.0 */
/* netlink.h: netlink messages: built in a buffer of the caller's, sent, and every answer checked. Allocates
 * nothing and takes no lock, so it also serves between clone and exec. */
#pragma once

#include "base/error.h"
#include "base/ip.h"
#include "net/nlattr.h"

#include <linux/netlink.h>

struct nl_buf { /* one message or a batch of them */
    char *data;
    size_t len, cap;
    size_t message; /* where the last message begins */
    uint32_t seq;   /* of the last message */
    bool overflow;  /* it did not fit: sending it fails with -EMSGSIZE */
};

void nl_init(struct nl_buf *b, void *data, size_t cap); /* data: aligned to 4 */
/* Begins a message with a family header of n bytes; it ends where the next one begins. */
void nl_begin(struct nl_buf *b, uint16_t type, uint16_t flags, const void *head, size_t n);
void nl_put(struct nl_buf *b, uint16_t type, const void *data, size_t n);
void nl_put_u32(struct nl_buf *b, uint16_t type, uint32_t v);
void nl_put_be32(struct nl_buf *b, uint16_t type, uint32_t v);
void nl_put_text(struct nl_buf *b, uint16_t type, const char *text);
size_t nl_nest(struct nl_buf *b, uint16_t type);
void nl_nest_end(struct nl_buf *b, size_t nest);

int nl_open(int protocol); /* a socket or -errno */
/* Sends all of it and waits for the answer to the last message, which must carry NLM_F_ACK. The first error
 * of any message is the result. -ETIMEDOUT: the kernel owes the answer. */
int nl_talk(int fd, struct nl_buf *b);
/* Sends a request with NLM_F_DUMP; found sees every message of the answer and may end it with a negative. */
int nl_dump(int fd, struct nl_buf *b, int (*found)(const struct nlmsghdr *h, void *arg), void *arg);
/* The attribute of this type behind a family header of skip bytes; NULL when it is missing or shorter than
 * min. */
const void *nl_find(const struct nlmsghdr *h, size_t skip, uint16_t type, size_t min, size_t *ret_len);

/* ---- links, addresses and routes */

struct nl_veth {
    const char *name, *peer_name;
    unsigned char mac[6], peer_mac[6];
    int peer_netns_fd; /* the peer is born there */
};
int nl_veth_add(const struct nl_veth *v); /* -EEXIST: a link of that name is there */
int nl_link_delete(const char *name);     /* -ENODEV: there is none */
int nl_link_up(unsigned index);
/* Bytes received and sent so far. */
int nl_link_bytes(const char *name, uint64_t *ret_rx, uint64_t *ret_tx);
int nl_address_add(unsigned index, const struct ip *address, unsigned prefix); /* prefix: of IP_BITS */
int nl_default_route_add(unsigned index, const struct ip *gateway);
/* The neighbour's address is known for good: it is never asked for, and nobody can say otherwise. */
int nl_neighbour_add(unsigned index, const struct ip *address, const unsigned char mac[6]);
int nl_local_route_add(unsigned index); /* every IPv4 address is one of the machine's own */
int nl_link_each(void (*found)(const char *name, void *arg), void *arg);
/* The interface packets to an address leave through; a question, nothing is sent. -ENETUNREACH: none. */
int nl_route_interface(const struct ip *address, unsigned *ret_index);
