/* SPDX-License-Identifier: Apache-2.0 */
/* network_box.c: the link of one sandbox: made, changed while it runs, taken away. See network.h.
 *
 * Whoever changes the terms of a running sandbox does it in this order: what is no longer allowed is closed
 * in the packet filter, what is new is opened, and then the connections that remain from before are ended if
 * they could not be made any more (network_cut). */
#include "base/log.h"
#include "keeper/bandwidth.h"
#include "keeper/conntrack.h"
#include "keeper/flow_socket.h"
#include "keeper/network_inside.h"
#include "keeper/network_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

enum { CONNECT_TRIES = 3, KEPT_MAX = 4096 };

/* The pair itself, both ends down; *ret_index: the host's. */
static int make_pair(struct network *n, const struct nft_box *box, unsigned slot, int netns_fd,
                     unsigned *ret_index, struct error *reterr)
{
    struct nl_veth v = {.name = box->link, .peer_name = "eth0", .peer_netns_fd = netns_fd};
    network_fix_macs(&v, slot);
    int r = -EEXIST;
    (void)n;
    for (int i = 0; i < CONNECT_TRIES && r == -EEXIST; i++)
        if ((r = nl_veth_add(&v)) ==
            -EEXIST) /* the slot's last owner: the kernel is about to remove it itself */
            (void)nl_link_delete(box->link);
    if (r < 0)
        return error_sys(reterr, -r, "make the sandbox's link");
    *ret_index = if_nametoindex(box->link);
    return *ret_index ? 0 : error_sys(reterr, errno, "find the sandbox's link");
}

static int connect_box(struct network *n, unsigned slot, int netns_fd, const struct network_terms *terms,
                       bool inside, struct error *reterr)
{
    struct nft_box box;
    unsigned index;
    uint64_t rate = terms->policy.bytes_per_second;
    struct inside_work w = {.connect = inside,
                            .address = network_address(n, slot),
                            .gateway = network_gateway(n, slot),
                            .shape = rate != 0,
                            .bytes_per_second = rate,
                            .resolver = terms->listed ? INSIDE_RESOLVER_ON : INSIDE_RESOLVER_KEEP};
    network_name_box(n, slot, terms, &box);
    int r = make_pair(n, &box, slot, netns_fd, &index, reterr);
    if (r < 0 || (r = network_harden_link(box.link, reterr)) < 0)
        return r;
    if (rate && (r = bandwidth_set(index, rate)) < 0)
        return error_sys(reterr, -r, "limit the bandwidth of the sandbox (tbf)");
    if ((r = nl_address_add(index, network_gateway(n, slot), 31)) < 0 || (r = nl_link_up(index)) < 0)
        return error_sys(reterr, -r, "bring up the sandbox's link");
    if ((r = network_inside(netns_fd, &w, reterr)) < 0)
        return r;
    return nft_box_add(&n->table, &box, reterr);
}

int network_connect(struct network *n, unsigned slot, int netns_fd, const struct network_terms *terms,
                    struct error *reterr)
{
    return connect_box(n, slot, netns_fd, terms, false, reterr);
}

void network_disconnect(struct network *n, unsigned slot, const struct network_terms *terms)
{
    struct nft_box box;
    network_name_box(n, slot, terms, &box);
    int r = nft_box_remove(&n->table, &box, terms != NULL);
    if (r < 0)
        log_warn("the packet filter keeps slot %u: %s", slot, strerror(-r));
    r = conntrack_end(box.address, NULL, NULL);
    if (r < 0)
        log_warn("connections of slot %u stay until they time out: %s", slot, strerror(-r));
}

/* Both have a link. */
static int change_terms(struct network *n, unsigned slot, int netns_fd, const struct network_terms *from,
                        const struct network_terms *to, struct error *reterr)
{
    struct nft_box before, after;
    uint64_t rate = to->policy.bytes_per_second;
    struct inside_work w = {.shape = rate != from->policy.bytes_per_second, .bytes_per_second = rate};
    network_name_box(n, slot, from, &before);
    network_name_box(n, slot, to, &after);
    if (to->listed != from->listed)
        w.resolver = to->listed ? INSIDE_RESOLVER_ON : INSIDE_RESOLVER_OFF;
    int r = network_inside(netns_fd, &w, reterr);
    if (r < 0)
        return r;
    unsigned index = if_nametoindex(after.link);
    if (w.shape && (!index || (r = bandwidth_set(index, rate)) < 0))
        return error_sys(reterr, index ? -r : errno, "limit the bandwidth of the sandbox (tbf)");
    return nft_box_change(&n->table, &before, &after, reterr); /* last: all of it or nothing */
}

int network_change(struct network *n, unsigned slot, int netns_fd, const struct network_terms *from,
                   const struct network_terms *to, struct error *reterr)
{
    if (!from && !to)
        return 0;
    if (!to) {
        const struct inside_work off = {.resolver = INSIDE_RESOLVER_OFF};
        network_disconnect(n, slot, from);
        network_link_delete(n, slot);
        (void)network_inside(netns_fd, &off, NULL); /* without a link it redirects nothing that matters */
        return 0;
    }
    if (from)
        return change_terms(n, slot, netns_fd, from, to, reterr);
    int r = connect_box(n, slot, netns_fd, to, true, reterr);
    if (r < 0) {
        network_disconnect(n, slot, to);
        network_link_delete(n, slot);
    }
    return r;
}

int network_allow(struct network *n, unsigned slot, const struct keeper_policy *rules, struct error *reterr)
{
    return nft_box_allow(&n->table, network_address(n, slot), rules, reterr);
}

/* ---- connections from before */

struct keeping {
    const struct network *n;
    const struct network_terms *terms;
    struct keeper_rule *pins;
    size_t pin_count;
};

static void pin_found(uint32_t destination, uint16_t port, void *arg)
{
    struct keeping *k = arg;
    if (k->pin_count < KEPT_MAX)
        k->pins[k->pin_count++] = (struct keeper_rule){.address = destination, .port = port, .prefix = 32};
}

static bool rule_allows(const struct keeper_rule *r, const struct nl_tuple *f)
{
    uint32_t differs = ntohl(r->address) ^ ntohl(f->destination);
    return (!r->port || r->port == f->port) && (r->prefix == 0 || differs >> (32 - r->prefix) == 0);
}

static bool is_resolver(const struct network *n, const struct nl_tuple *f)
{
    for (size_t i = 0; i < n->table.resolver_count; i++)
        if (n->table.resolvers[i] == f->destination)
            return f->port == 53;
    return false;
}

/* What the rules of nft.c would say to the first packet of this connection. */
static bool still_allowed(const struct nl_tuple *f, void *arg)
{
    const struct keeping *k = arg;
    const struct keeper_policy *p = &k->terms->policy;
    if (!k->terms->listed)
        return is_resolver(k->n, f) || keeper_address_is_public(f->destination);
    if (keeper_address_is_never(f->destination))
        return false;
    for (size_t i = 0; i < p->rule_count; i++)
        if (rule_allows(&p->rules[i], f))
            return true;
    for (size_t i = 0; i < k->pin_count; i++)
        if (rule_allows(&k->pins[i], f))
            return true;
    return false;
}

int network_cut(struct network *n, unsigned slot, const struct network_terms *terms, struct error *reterr)
{
    uint32_t address = network_address(n, slot);
    struct keeping k = {.n = n, .terms = terms};
    int r = 0;
    if (terms && terms->listed) {
        k.pins = calloc(KEPT_MAX, sizeof *k.pins);
        r = k.pins ? nft_box_allowed(&n->table, address, pin_found, &k) : -ENOMEM;
    }
    if (r == 0)
        r = conntrack_end(address, terms ? still_allowed : NULL, &k);
    free(k.pins);
    return r < 0 ? error_sys(reterr, -r, "end the sandbox's connections") : 0;
}

/* ---- the link itself */

bool network_has_link(struct network *n, unsigned slot)
{
    struct nft_box box;
    network_name_box(n, slot, NULL, &box);
    return if_nametoindex(box.link) != 0;
}

void network_link_delete(struct network *n, unsigned slot)
{
    struct nft_box box;
    network_name_box(n, slot, NULL, &box);
    int r = nl_link_delete(box.link);
    if (r < 0 && r != -ENODEV)
        log_warn("link %s cannot be removed: %s", box.link, strerror(-r));
}

int network_watch(const struct network *n, bool refused, int *ret_fd, struct error *reterr)
{
    return refused ? refused_socket_open(n->table.log_group, ret_fd, reterr)
                   : flow_socket_open(n->table.pool, n->table.pool_prefix, ret_fd, reterr);
}

int network_usage(const struct network *n, unsigned slot, uint64_t *ret_rx, uint64_t *ret_tx)
{
    struct nft_box box;
    network_name_box(n, slot, NULL, &box);
    return nl_link_bytes(box.link, ret_tx, ret_rx); /* what our end receives the sandbox has sent */
}
