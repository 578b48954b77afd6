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

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

enum { CONNECT_TRIES = 3, KEPT_MAX = 4096, LINK_PREFIX = IP_BITS - 1 };

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

/* Our end's IPv6 address; the sandbox's hardware address is known for good. */
static int address_v6(struct network *n, const struct nft_box *box, unsigned slot, unsigned index)
{
    struct nl_veth v = {0};
    struct ip gateway = nft_address6(&n->table, network_gateway(n, slot));
    network_fix_macs(&v, slot);
    int r = nl_address_add(index, &gateway, LINK_PREFIX);
    return r < 0 ? r : nl_neighbour_add(index, &box->address6, v.peer_mac);
}

static int bring_up(struct network *n, const struct nft_box *box, unsigned slot, unsigned index,
                    struct error *reterr)
{
    struct ip gateway = ip_from_v4(network_gateway(n, slot));
    int r = nl_address_add(index, &gateway, LINK_PREFIX);
    if (r == 0)
        r = nl_link_up(index);
    if (r == 0 && n->table.ipv6)
        r = address_v6(n, box, slot, index);
    return r < 0 ? error_sys(reterr, -r, "bring up the sandbox's link") : 0;
}

static int connect_box(struct network *n, unsigned slot, int netns_fd, const struct network_terms *terms,
                       bool inside, struct error *reterr)
{
    struct nft_box box;
    struct eth0 eth0;
    unsigned index;
    uint64_t rate = terms->policy.bytes_per_second;
    struct inside_work w = {.connect = inside ? &eth0 : NULL,
                            .shape = rate != 0,
                            .bytes_per_second = rate,
                            .resolver = terms->listed ? INSIDE_RESOLVER_ON : INSIDE_RESOLVER_KEEP};
    network_name_box(n, slot, terms, &box);
    network_eth0(n, slot, &eth0);
    int r = make_pair(n, &box, slot, netns_fd, &index, reterr);
    if (r < 0 || (r = network_harden_link(n, box.link, reterr)) < 0)
        return r;
    if (rate && (r = bandwidth_set(index, rate)) < 0)
        return error_sys(reterr, -r, "limit the bandwidth of the sandbox (tbf)");
    if ((r = bring_up(n, &box, slot, index, reterr)) < 0 || (r = network_inside(netns_fd, &w, reterr)) < 0)
        return r;
    return nft_box_add(&n->table, &box, reterr);
}

int network_connect(struct network *n, unsigned slot, int netns_fd, const struct network_terms *terms,
                    struct error *reterr)
{
    return connect_box(n, slot, netns_fd, terms, false, reterr);
}

/* Of both families, except those that keep wants. */
static int end_connections(const struct network *n, unsigned slot,
                           bool (*keep)(const struct nl_tuple *f, void *arg), void *arg)
{
    struct ip address = ip_from_v4(network_address(n, slot)), address6 = network_address6(n, slot);
    int r = conntrack_end(&address, keep, arg);
    return r < 0 || !n->table.ipv6 ? r : conntrack_end(&address6, keep, arg);
}

void network_disconnect(struct network *n, unsigned slot, const struct network_terms *terms)
{
    struct nft_box box;
    network_name_box(n, slot, terms, &box);
    int r = nft_box_remove(&n->table, &box, terms != NULL);
    if (r < 0)
        log_warn("the packet filter keeps slot %u: %s", slot, strerror(-r));
    r = end_connections(n, slot, NULL, NULL);
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

static void pin_found(const struct ip *destination, uint16_t port, void *arg)
{
    struct keeping *k = arg;
    if (k->pin_count < KEPT_MAX)
        k->pins[k->pin_count++] =
            (struct keeper_rule){.address = *destination, .port = port, .prefix = IP_BITS};
}

static bool is_resolver(const struct network *n, const struct nl_tuple *f)
{
    for (size_t i = 0; i < n->table.resolver_count && ip_is_v4(&f->destination); i++)
        if (n->table.resolvers[i] == ip_v4(&f->destination))
            return f->port == 53;
    return false;
}

/* What the rules of nft.c would say to the first packet of this connection. */
static bool still_allowed(const struct nl_tuple *f, void *arg)
{
    const struct keeping *k = arg;
    const struct keeper_policy *p = &k->terms->policy;
    if (!k->terms->listed)
        return is_resolver(k->n, f) || keeper_address_is_public(&f->destination);
    if (keeper_address_is_never(&f->destination))
        return false;
    for (size_t i = 0; i < p->rule_count; i++)
        if (keeper_rule_has(&p->rules[i], &f->destination, f->port))
            return true;
    for (size_t i = 0; i < k->pin_count; i++)
        if (keeper_rule_has(&k->pins[i], &f->destination, f->port))
            return true;
    return false;
}

int network_cut(struct network *n, unsigned slot, const struct network_terms *terms, struct error *reterr)
{
    struct keeping k = {.n = n, .terms = terms};
    int r = 0;
    if (terms && terms->listed) {
        k.pins = calloc(KEPT_MAX, sizeof *k.pins);
        r = k.pins ? nft_box_allowed(&n->table, network_address(n, slot), pin_found, &k) : -ENOMEM;
    }
    if (r == 0)
        r = end_connections(n, slot, terms ? still_allowed : NULL, &k);
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

/* Whether our end has its address: binding to it is the cheapest way to ask. */
bool network_link_has_ipv6(const struct network *n, unsigned slot)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6};
    struct ip gateway = nft_address6(&n->table, network_gateway(n, slot));
    memcpy(&at.sin6_addr, gateway.bytes, sizeof gateway.bytes);
    auto_close int fd = n->table.ipv6 ? socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    return fd >= 0 && bind(fd, (const struct sockaddr *)&at, sizeof at) == 0;
}

void network_link_delete(struct network *n, unsigned slot)
{
    struct nft_box box;
    network_name_box(n, slot, NULL, &box);
    int r = nl_link_delete(box.link);
    if (r < 0 && r != -ENODEV)
        log_warn("link %s cannot be removed: %s", box.link, strerror(-r));
}

int network_watch(const struct network *n, enum keeper_socket kind, int *ret_fd, struct error *reterr)
{
    const struct nft_table *t = &n->table;
    const struct flow_pools pools = {.v4 = t->pool,
                                     .v4_prefix = t->pool_prefix,
                                     .ipv6 = t->ipv6,
                                     .v6 = nft_address6(t, t->pool),
                                     .v6_prefix = IP_V4_BITS + t->pool_prefix};
    switch (kind) {
    case KEEPER_SOCKET_FLOWS:
        return flow_socket_open(&pools, ret_fd, reterr);
    case KEEPER_SOCKET_REFUSED:
        return packet_socket_open(t->log_group, PACKET_HEADERS, ret_fd, reterr);
    default:
        return packet_socket_open(t->answer_group, PACKET_WHOLE, ret_fd, reterr);
    }
}

int network_usage(const struct network *n, unsigned slot, uint64_t *ret_rx, uint64_t *ret_tx)
{
    struct nft_box box;
    network_name_box(n, slot, NULL, &box);
    return nl_link_bytes(box.link, ret_tx, ret_rx); /* what our end receives the sandbox has sent */
}
