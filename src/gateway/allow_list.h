/* SPDX-License-Identifier: Apache-2.0 */
/* allow_list.h: where a sandbox may go: names, networks and ports, read from the words of a caller. No I/O.
 *
 *   example.org          the name itself, every port
 *   *.example.org:443    every name below it, not itself; one port
 *   *                    every name
 *   198.51.100.7, 10.1.2.0/24:5432, 2606:4700::/32, [2606:4700::1111]:443 */
#pragma once

#include "base/error.h"
#include "keeper/proto_network.h"
#include "net/dns.h"

enum {
    ALLOW_ENTRIES_MAX = 128,
    ALLOW_ENTRY_CHARS = 263, /* "*.", a name, a port */
    ALLOW_PORTS_MAX = 8,     /* that one name can have */
    /* what may stand for the star: data is smuggled in long names */
    ALLOW_STAR_LABELS = 4,
    ALLOW_STAR_CHARS = 100,
};

struct allow_list;

/* Reads one entry and writes it as we say it: lower case, no last dot, a network without "/32" or "/128".
 * -EINVAL with a sentence that quotes it. */
int allow_entry_check(const char *text, char out[ALLOW_ENTRY_CHARS + 1], struct error *reterr);
/* Does the entry open a network that mode `public` does not? */
bool allow_entry_is_private(const char *entry);

/* text: checked entries, a line each; NULL or "": none. -EINVAL, -E2BIG (more than a list has room for),
 * -ENOMEM. */
int allow_list_parse(const char *text, struct allow_list **ret, struct error *reterr);
void allow_list_free(struct allow_list *l); /* NULL is fine */

/* Which ports of a name (as in struct dns_query) are allowed: how many, 0: none; a port of 0 means all. */
size_t allow_list_ports(const struct allow_list *l, const char *name, uint16_t out[ALLOW_PORTS_MAX]);
/* Its networks, as the keeper wants them. */
void allow_list_rules(const struct allow_list *l, struct keeper_policy *p);
/* True when the networks cover this address on some port. */
bool allow_list_has_address(const struct allow_list *l, const struct ip *address);
