/* SPDX-License-Identifier: Apache-2.0 */
/* network_internal.h: shared by network.c (settings, names and the table), network_uplink.c (what changes on
 * the host besides) and network_box.c (one sandbox). */
#pragma once

#include "keeper/netlink.h"
#include "keeper/network.h"
#include "keeper/nft.h"

struct network {
    struct nft_table table;
    unsigned slots;
    int slots_fd;
    char note[NFT_FAMILIES][512], accounting_note[512];
    char resolv_conf[32 * NETWORK_RESOLVERS_MAX + 128];
};

/* terms NULL: only the link's name and addresses. */
void network_name_box(const struct network *n, unsigned slot, const struct network_terms *terms,
                      struct nft_box *ret);
int network_harden_link(const struct network *n, const char *link, struct error *reterr);
void network_fix_macs(struct nl_veth *v, unsigned slot);

/* ---- network_uplink.c */

/* A setting of an interface; family: "ipv4" or "ipv6". */
int network_setting_write(const char *family, const char *link, const char *name, const char *value);
/* Where the notes are of what was changed. */
void network_name_notes(struct network *n, const char *run_dir);
/* Which interface must be made to forward because of us: fills table.closed, "" for none. Changes nothing,
 * but for undoing what an earlier keeper did and we do not need. */
int network_uplink_choose(struct network *n, enum nft_family_index family, struct error *reterr);
/* The filter stands: opens what was chosen. */
int network_uplink_open(struct network *n, struct error *reterr);
/* Undoes it: what was chosen, or what the notes of another keeper say. */
void network_uplink_undo(struct network *n, enum nft_family_index family);
void network_accounting_on(const struct network *n);
void network_accounting_restore(const struct network *n);
