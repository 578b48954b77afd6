/* SPDX-License-Identifier: Apache-2.0 */
/* network.h: the way out of sandboxes: one link per slot, two addresses each, one packet filter for all. */
#pragma once

#include "keeper/eth0.h"
#include "keeper/network_terms.h"
#include "keeper/nft.h"
#include "keeper/proto.h"

enum { NETWORK_RESOLVERS_MAX = 3 };

struct network;

struct network_config {
    const char *instance;
    const char
        *run_dir;  /* keeps a note of what we changed on the host; gone after a reboot, as the change is */
    uint32_t pool; /* addresses of the links; network order */
    unsigned pool_prefix;
    struct ip prefix6; /* a /64 for IPv6 addresses; none: sandboxes have no IPv6 */
    unsigned slots;
    int slots_fd; /* the directories of slots, with the terms of those in use; -1: none are */
    uint32_t resolvers[NETWORK_RESOLVERS_MAX]; /* none: those of the host */
    size_t resolver_count;
};

/* "10.213.0.0/16": a private range of /8 to /30 with no bits set behind its prefix. */
int network_pool_parse(const char *text, uint32_t *ret_pool, unsigned *ret_prefix, struct error *reterr);
/* "on", "off" or a private /64: what goes into prefix6. */
int network_ipv6_parse(const char *text, struct ip *ret, struct error *reterr);
/* The IPv4 name servers of a resolv.conf. Those on a loopback address serve the host and no sandbox. Returns
 * how many. */
size_t network_resolvers_parse(const char *text, bool loopback, uint32_t out[NETWORK_RESOLVERS_MAX]);
/* Those of the host's own file, now. */
size_t network_host_resolvers(bool loopback, uint32_t out[NETWORK_RESOLVERS_MAX]);

/* Checks the settings; changes nothing. */
int network_open(const struct network_config *config, struct network **ret, struct error *reterr);
/* Writes the packet filter for the links of the slots in use, removes all other links of ours, opens the way
 * to the uplink. Before any call below. */
int network_begin(struct network *n, const unsigned char *slot_used, struct error *reterr);
/* Writes the packet filter anew if it is not there any more, and ends what could not have begun with it. 1:
 * it did; 0: it is there. */
int network_restore(struct network *n, const unsigned char *slot_used, struct error *reterr);
/* Takes back what network_begin did unless slots are still in use, and frees. NULL is fine. */
void network_close(struct network *n, const unsigned char *slot_used);
/* For a daemon without a network: removes whatever an earlier one with this instance name left. */
void network_remove_all(const struct network_config *config);

/* Any thread. Makes the link of a slot, its peer `eth0` in the namespace, and lets it through the filter. */
int network_connect(struct network *n, unsigned slot, int netns_fd, const struct network_terms *terms,
                    struct error *reterr);
/* Takes the slot's right to send and ends its connections. The link goes with its namespace. */
void network_disconnect(struct network *n, unsigned slot,
                        const struct network_terms *terms); /* NULL: not known */
/* Other terms for a running sandbox, or a link where there was none (from NULL), or none any more (to NULL).
 * What network_allow opened is closed. */
int network_change(struct network *n, unsigned slot, int netns_fd, const struct network_terms *from,
                   const struct network_terms *to, struct error *reterr);
/* Opens the rules' addresses to a sandbox with a list, for their seconds. Takes well below a millisecond. */
int network_allow(struct network *n, unsigned slot, const struct keeper_policy *rules, struct error *reterr);
/* Ends the connections that could not be made on these terms; NULL: all. */
int network_cut(struct network *n, unsigned slot, const struct network_terms *terms, struct error *reterr);
/* A socket that tells of connections of sandboxes (KEEPER_SOCKET_FLOWS), of packets they were refused, or of
 * what name servers answered them. */
int network_watch(const struct network *n, enum keeper_socket kind, int *ret_fd, struct error *reterr);
/* What the sandbox has received and sent since it has its link. */
int network_usage(const struct network *n, unsigned slot, uint64_t *ret_rx, uint64_t *ret_tx);
bool network_has_link(struct network *n, unsigned slot);
void network_link_delete(struct network *n, unsigned slot); /* at once: takes 30 ms */

uint32_t network_address(const struct network *n, unsigned slot);   /* of the sandbox; network order */
uint32_t network_gateway(const struct network *n, unsigned slot);   /* the host's end */
struct ip network_address6(const struct network *n, unsigned slot); /* none: there is no IPv6 */
/* False for a sandbox that is older than the daemon's IPv6, or from a time with another prefix. */
bool network_link_has_ipv6(const struct network *n, unsigned slot);
void network_eth0(const struct network *n, unsigned slot, struct eth0 *ret); /* what is to be set up inside */
const char *network_resolv_conf(const struct network *n);                    /* the file for sandboxes */

/* For the doctor, in a process that ends with the trial: they enter network namespaces of their own. 0 or an
 * errno. */
int network_try_filter(void *ipv6); /* not NULL: for both families */
int network_try_link(void *unused);
int network_try_log(void *unused);
/* The interface to the internet; 1 when it forwards, 0 when not, -EROFS when it cannot be made to, -ENOENT
 * when only the whole host could (IPv6), -errno. */
int network_uplink(enum nft_family_index family, char ret_name[IFNAMSIZ]);
