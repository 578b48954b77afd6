/* SPDX-License-Identifier: Apache-2.0 */
/* network_internal.h: shared by network.c (the host's side) and network_box.c (one sandbox). */
#pragma once

#include "keeper/netlink.h"
#include "keeper/network.h"
#include "keeper/nft.h"

struct network {
    struct nft_table table;
    unsigned slots;
    int slots_fd;
    char note[512], accounting_note[512];
    char resolv_conf[32 * NETWORK_RESOLVERS_MAX + 128];
};

/* terms NULL: only the link's name and address. */
void network_name_box(const struct network *n, unsigned slot, const struct network_terms *terms,
                      struct nft_box *ret);
int network_harden_link(const char *link, struct error *reterr);
void network_fix_macs(struct nl_veth *v, unsigned slot);
