/* SPDX-License-Identifier: Apache-2.0 */
/* network.h: the way out of sandboxes: one link per slot, two addresses each, one packet filter for all. */
#pragma once

#include "base/error.h"

enum { NETWORK_RESOLVERS_MAX = 3 };

struct network;

struct network_config {
    const char *instance;
    const char
        *run_dir;  /* keeps a note of what we changed on the host; gone after a reboot, as the change is */
    uint32_t pool; /* addresses of the links; network order */
    unsigned pool_prefix;
    unsigned slots;
    uint32_t resolvers[NETWORK_RESOLVERS_MAX]; /* none: those of the host */
    size_t resolver_count;
};

/* "10.213.0.0/16": a private range of /8 to /30 with no bits set behind its prefix. */
int network_pool_parse(const char *text, uint32_t *ret_pool, unsigned *ret_prefix, struct error *reterr);
/* The name servers of a resolv.conf that a sandbox can be given: IPv4, not loopback. Returns how many. */
size_t network_resolvers_parse(const char *text, uint32_t out[NETWORK_RESOLVERS_MAX]);

/* Checks the settings; changes nothing. */
int network_open(const struct network_config *config, struct network **ret, struct error *reterr);
/* Writes the packet filter for the links of the slots in use, removes all other links of ours, opens the way
 * to the uplink. Before any call below. */
int network_begin(struct network *n, const unsigned char *slot_used, struct error *reterr);
/* Takes back what network_begin did unless slots are still in use, and frees. NULL is fine. */
void network_close(struct network *n, const unsigned char *slot_used);
/* For a daemon without a network: removes whatever an earlier one with this instance name left. */
void network_remove_all(const struct network_config *config);

/* Any thread. Makes the link of a slot, its peer `eth0` in the namespace, and lets it through the filter. */
int network_connect(struct network *n, unsigned slot, int netns_fd, struct error *reterr);
/* Takes the slot's right to send and forgets its connections. The link goes with its namespace. */
void network_disconnect(struct network *n, unsigned slot);
bool network_has_link(struct network *n, unsigned slot);
void network_link_delete(struct network *n, unsigned slot); /* at once: takes 30 ms */

uint32_t network_address(const struct network *n, unsigned slot); /* of the sandbox; network order */
uint32_t network_gateway(const struct network *n, unsigned slot); /* the host's end */
const char *network_resolv_conf(const struct network *n);         /* the file for sandboxes */

/* For the doctor, in a process that ends with the trial: they enter network namespaces of their own. 0 or an
 * errno. */
int network_try_filter(void *unused);
int network_try_link(void *unused);
/* The interface to the internet; 1 when it forwards, 0 when not, -EROFS when it cannot be made to, -errno. */
int network_uplink(char ret_name[16]);
/* The name servers sandboxes would be given, and how many. */
size_t network_host_resolvers(uint32_t out[NETWORK_RESOLVERS_MAX]);
