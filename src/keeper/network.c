/* SPDX-License-Identifier: Apache-2.0 */
/* network.c: see network.h.
 *
 * Theory of operation
 * Slot n owns two neighbouring addresses of the pool (a /31): the even one is the host's end of a veth pair,
 * the odd one the sandbox's `eth0`. There is no bridge, so two sandboxes share nothing but the host's
 * routing, and there the packet filter (nft.c) stands between them. A link by itself can do nothing: the
 * filter drops whatever comes from a link of ours unless (link, address) is in its set, which is the last
 * step of a start and the first of an end.
 *
 * The link's name is the state: after a restart, a link whose slot was adopted is a sandbox with a network,
 * any other link with our prefix is a leftover. The prefix contains a hash of the instance's name.
 *
 * IPv6, where the daemon gives it: the same link has two more addresses, each the daemon's prefix with the
 * IPv4 address at its end, so that whoever knows a sandbox by one of them knows the other. Both ends know
 * each other's hardware address for good: nobody asks for neighbours, nobody believes a router, and the
 * filter drops whatever a sandbox says about either. Out they go under the host's own address (NAT66).
 */
#include "keeper/network.h"
#include "base/log.h"
#include "keeper/network_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

_Static_assert((int)NETWORK_RESOLVERS_MAX == (int)NFT_RESOLVERS_MAX, "the filter knows every resolver");

enum {
    TRIAL_SLOT = 99998, /* no sandbox has it */
    PREFIX6_BITS = 64,
};

/* ---- settings */

static bool is_private(uint32_t first, unsigned prefix)
{
    static const struct {
        uint32_t first;
        unsigned prefix;
    } ranges[] = {{0x0a000000, 8}, {0xac100000, 12}, {0xc0a80000, 16}, {0x64400000, 10}};
    for (size_t i = 0; i < ARRAY_SIZE(ranges); i++)
        if (prefix >= ranges[i].prefix && (first ^ ranges[i].first) >> (32 - ranges[i].prefix) == 0)
            return true;
    return false;
}

int network_pool_parse(const char *text, uint32_t *ret_pool, unsigned *ret_prefix, struct error *reterr)
{
    char address[INET_ADDRSTRLEN];
    struct in_addr in;
    unsigned prefix;
    int end = 0;
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : sizeof address;
    if (n >= sizeof address || slash[1] < '0' || slash[1] > '9' ||
        sscanf(slash + 1, "%2u%n", &prefix, &end) != 1 || slash[1 + end])
        return error_set(reterr, EINVAL, "'%.40s' is not a network such as 10.213.0.0/16", text);
    memcpy(address, text, n);
    address[n] = '\0';
    if (inet_pton(AF_INET, address, &in) != 1 || prefix < 8 || prefix > 30 ||
        (ntohl(in.s_addr) & (UINT32_MAX >> prefix)))
        return error_set(reterr, EINVAL, "'%.40s' is not a network such as 10.213.0.0/16", text);
    /* sandboxes must not reach each other: the filter's list of private networks has to cover the pool */
    if (!is_private(ntohl(in.s_addr), prefix))
        return error_set(
            reterr, EINVAL,
            "'%.40s' is not private: choose a part of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or "
            "100.64.0.0/10",
            text);
    *ret_pool = in.s_addr;
    *ret_prefix = prefix;
    return 0;
}

int network_ipv6_parse(const char *text, struct ip *ret, struct error *reterr)
{
    /* never seen outside this host; sandboxes of two daemons differ in their IPv4 addresses */
    const char *prefix = strcmp(text, "on") == 0 ? "fd51:11ca:2130::/64" : text;
    char address[IP_TEXT] = "";
    const char *slash = strchr(prefix, '/');
    struct ip a;
    if (strcmp(text, "off") == 0) {
        *ret = (struct ip){0};
        return 0;
    }
    if (slash && (size_t)(slash - prefix) < sizeof address)
        memcpy(address, prefix, (size_t)(slash - prefix));
    if (!slash || strcmp(slash, "/64") != 0 || !ip_parse(address, &a) || ip_is_v4(&a) ||
        !ip_is_network(&a, PREFIX6_BITS) || (a.bytes[0] & 0xfe) != 0xfc)
        return error_set(reterr, EINVAL,
                         "'%.60s' is neither on, nor off, nor a private network such as fd12:3456:789a::/64",
                         text);
    *ret = a;
    return 0;
}

size_t network_resolvers_parse(const char *text, bool loopback, uint32_t out[NETWORK_RESOLVERS_MAX])
{
    size_t count = 0;
    for (const char *line = text; line && *line && count < NETWORK_RESOLVERS_MAX;) {
        char address[INET_ADDRSTRLEN];
        struct in_addr in;
        if (sscanf(line, "nameserver%*[ \t]%15[0-9.]", address) == 1 &&
            inet_pton(AF_INET, address, &in) == 1 && (loopback || ntohl(in.s_addr) >> 24 != 127) &&
            in.s_addr != 0)
            out[count++] = in.s_addr;
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return count;
}

size_t network_host_resolvers(bool loopback, uint32_t out[NETWORK_RESOLVERS_MAX])
{
    size_t count = 0;
    /* the second is where systemd-resolved tells what stands behind its loopback address */
    static const char *const files[] = {"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"};
    for (size_t i = 0; i < ARRAY_SIZE(files) && !count; i++) {
        char text[4096];
        auto_close int fd = open(files[i], O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        if (n <= 0)
            continue;
        text[n] = '\0';
        count = network_resolvers_parse(text, loopback, out);
    }
    return count;
}

static void write_resolv_conf(struct network *n)
{
    size_t at = 0;
    for (size_t i = 0; i < n->table.resolver_count; i++) {
        char text[INET_ADDRSTRLEN];
        (void)inet_ntop(AF_INET, &n->table.resolvers[i], text, sizeof text);
        at += (size_t)snprintf(n->resolv_conf + at, sizeof n->resolv_conf - at, "nameserver %s\n", text);
    }
    (void)snprintf(n->resolv_conf + at, sizeof n->resolv_conf - at, "options timeout:2 attempts:3\n");
}

static void name_things(struct nft_table *t, const char *instance)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (const char *p = instance; *p; p++)
        h = (h ^ (unsigned char)*p) * 16777619u;
    (void)snprintf(t->name, sizeof t->name, "silica%s%s", instance[0] ? "-" : "", instance);
    uint16_t hash = (uint16_t)(h ^ h >> 16);
    (void)snprintf(t->prefix, sizeof t->prefix, "sil%04x-", hash);
    t->log_group = hash ? hash : 1; /* 0 is what everybody's tools listen to */
    t->answer_group = t->log_group ^ 0x8000 ? t->log_group ^ 0x8000 : 1;
}

static bool is_ours(const struct nft_table *t, const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, a, sizeof in);
        return (ntohl(in.sin_addr.s_addr) ^ ntohl(t->pool)) >> (32 - t->pool_prefix) == 0;
    }
    if (a->sa_family == AF_INET6 && t->ipv6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, a, sizeof in6);
        struct ip ip = ip_from_v6(&in6.sin6_addr), pool = nft_address6(t, t->pool);
        return ip_same_prefix(&ip, &pool, IP_V4_BITS + t->pool_prefix);
    }
    return false;
}

/* Addresses of the pool on links that are not ours would be cut off, and with a second daemon's we would
 * fight. */
static int check_pool_free(const struct nft_table *t, struct error *reterr)
{
    struct ifaddrs *all = NULL;
    int r = 0;
    if (getifaddrs(&all) < 0)
        return error_sys(reterr, errno, "list the host's addresses");
    for (const struct ifaddrs *a = all; a && r == 0; a = a->ifa_next)
        if (a->ifa_addr && is_ours(t, a->ifa_addr) && strncmp(a->ifa_name, t->prefix, strlen(t->prefix)) != 0)
            r = error_set(reterr, EADDRINUSE,
                          "the address pool of sandboxes is in use on interface %.16s; choose another with "
                          "%s",
                          a->ifa_name, a->ifa_addr->sa_family == AF_INET ? "--network-pool" : "--ipv6");
    freeifaddrs(all);
    return r;
}

static int check_ipv6(struct error *reterr)
{
    if (access("/proc/sys/net/ipv6/conf/all/forwarding", F_OK) == 0)
        return 0;
    return error_set(reterr, EAFNOSUPPORT,
                     "this kernel has no IPv6 (perhaps it was started with ipv6.disable=1): start without "
                     "--ipv6; IPv4 does not need it");
}

int network_open(const struct network_config *config, struct network **ret, struct error *reterr)
{
    if ((UINT64_C(1) << (32 - config->pool_prefix)) < (uint64_t)config->slots * 2)
        return error_set(reterr, EINVAL, "the address pool is too small for %u sandboxes: two addresses each",
                         config->slots);
    struct network *n = calloc(1, sizeof *n);
    if (!n)
        return error_sys(reterr, ENOMEM, "prepare the network");
    name_things(&n->table, config->instance);
    n->table.pool = config->pool;
    n->table.pool_prefix = config->pool_prefix;
    n->table.resolver_count = config->resolver_count;
    memcpy(n->table.resolvers, config->resolvers, sizeof n->table.resolvers);
    n->slots = config->slots;
    n->slots_fd = config->slots_fd;
    n->table.ipv6 = !ip_is_none(&config->prefix6);
    n->table.prefix6 = config->prefix6;
    network_name_notes(n, config->run_dir);
    int r = n->table.ipv6 ? check_ipv6(reterr) : 0;
    if (r == 0)
        r = check_pool_free(&n->table, reterr);
    if (r < 0) {
        free(n);
        return r;
    }
    if (!n->table.resolver_count)
        n->table.resolver_count = network_host_resolvers(false, n->table.resolvers);
    if (!n->table.resolver_count)
        log_warn(
            "no name server that sandboxes could reach: names do not resolve in them; set one with --dns");
    write_resolv_conf(n);
    *ret = n;
    return 0;
}

/* ---- names and numbers */

uint32_t network_gateway(const struct network *n, unsigned slot)
{
    return htonl(ntohl(n->table.pool) + slot * 2);
}

uint32_t network_address(const struct network *n, unsigned slot)
{
    return htonl(ntohl(n->table.pool) + slot * 2 + 1);
}

struct ip network_address6(const struct network *n, unsigned slot)
{
    return n->table.ipv6 ? nft_address6(&n->table, network_address(n, slot)) : (struct ip){0};
}

void network_eth0(const struct network *n, unsigned slot, struct eth0 *ret)
{
    struct nl_veth v = {0};
    network_fix_macs(&v, slot);
    *ret = (struct eth0){.address = ip_from_v4(network_address(n, slot)),
                         .gateway = ip_from_v4(network_gateway(n, slot)),
                         .address6 = network_address6(n, slot)};
    if (n->table.ipv6)
        ret->gateway6 = nft_address6(&n->table, network_gateway(n, slot));
    memcpy(ret->gateway_mac, v.mac, sizeof ret->gateway_mac);
}

const char *network_resolv_conf(const struct network *n)
{
    return n->resolv_conf;
}

void network_name_box(const struct network *n, unsigned slot, const struct network_terms *terms,
                      struct nft_box *ret)
{
    *ret = (struct nft_box){.address = network_address(n, slot), .address6 = network_address6(n, slot)};
    if (terms) {
        ret->listed = terms->listed;
        ret->policy = terms->policy;
    }
    (void)snprintf(ret->link, sizeof ret->link, "%.10s%u", n->table.prefix, slot % 100000);
}

/* The slot of a link of ours; false for everybody else's. */
static bool slot_of(const struct nft_table *t, const char *name, unsigned *ret)
{
    size_t n = strlen(t->prefix);
    int end = 0;
    return strncmp(name, t->prefix, n) == 0 && name[n] >= '0' && name[n] <= '9' &&
           sscanf(name + n, "%5u%n", ret, &end) == 1 && name[n + (size_t)end] == '\0';
}

/* ---- the host's end of a link */

struct link_setting {
    const char *family, *name, *value;
    bool optional; /* not every kernel has it */
};

static int apply(const char *link, const struct link_setting *settings, size_t count, struct error *reterr)
{
    for (size_t i = 0; i < count; i++) {
        int r = network_setting_write(settings[i].family, link, settings[i].name, settings[i].value);
        if (r == -ENOENT && settings[i].optional)
            continue;
        if (r < 0)
            return error_sys(reterr, -r, "set %s of the sandbox's link", settings[i].name);
    }
    return 0;
}

/* Routes for this sandbox only, tells it nothing, believes nothing. */
int network_harden_link(const struct network *n, const char *link, struct error *reterr)
{
    static const struct link_setting v4[] = {
        {"ipv4", "rp_filter", "1", false},        {"ipv4", "arp_ignore", "1", false},
        {"ipv4", "proxy_arp", "0", false},        {"ipv4", "accept_local", "0", false},
        {"ipv4", "accept_redirects", "0", false}, {"ipv4", "send_redirects", "0", false},
        {"ipv4", "route_localnet", "0", false},   {"ipv4", "accept_source_route", "0", false},
        {"ipv4", "forwarding", "1", false},
    };
    static const struct link_setting no_v6[] = {{"ipv6", "disable_ipv6", "1", true},
                                                {"ipv6", "accept_ra", "0", true}};
    static const struct link_setting v6[] = {
        {"ipv6", "addr_gen_mode", "1", false},    {"ipv6", "accept_ra", "0", false},
        {"ipv6", "accept_redirects", "0", false}, {"ipv6", "autoconf", "0", false},
        {"ipv6", "proxy_ndp", "0", false},        {"ipv6", "accept_source_route", "-1", false},
        {"ipv6", "force_forwarding", "1", true},  {"ipv6", "disable_ipv6", "0", false},
    };
    int r = n->table.ipv6 ? apply(link, v6, ARRAY_SIZE(v6), reterr)
                          : apply(link, no_v6, ARRAY_SIZE(no_v6), reterr);
    return r < 0 ? r : apply(link, v4, ARRAY_SIZE(v4), reterr);
}

/* ---- the host's side of it all */

struct link_scan {
    struct network *n;
    const unsigned char *slot_used;
    struct nft_box *boxes;
    size_t count;
    unsigned *leftovers; /* slots */
    size_t leftover_count;
};

static void link_found(const char *name, void *arg)
{
    struct link_scan *s = arg;
    unsigned slot;
    if (!slot_of(&s->n->table, name, &slot))
        return;
    if (slot < s->n->slots && s->slot_used[slot] && s->count < s->n->slots) {
        struct network_terms terms;
        network_terms_read(s->n->slots_fd, slot, &terms);
        network_name_box(s->n, slot, &terms, &s->boxes[s->count++]);
    } else if (s->leftover_count < s->n->slots)
        s->leftovers[s->leftover_count++] = slot;
}

static int scan_links(struct link_scan *s, struct network *n, const unsigned char *slot_used)
{
    *s = (struct link_scan){.n = n,
                            .slot_used = slot_used,
                            .boxes = calloc(n->slots, sizeof *s->boxes),
                            .leftovers = calloc(n->slots, sizeof *s->leftovers)};
    return s->boxes && s->leftovers ? nl_link_each(link_found, s) : -ENOMEM;
}

static void scan_done(struct link_scan *s)
{
    for (size_t i = 0; i < s->leftover_count; i++)
        network_link_delete(s->n, s->leftovers[i]);
    free(s->boxes);
    free(s->leftovers);
}

void network_fix_macs(struct nl_veth *v, unsigned slot)
{
    /* locally administered; the same on every pair but for the slot, so that nothing depends on chance */
    const unsigned char host[6] = {0x02, 0x51, 0x11, 0x00, (unsigned char)(slot >> 8), (unsigned char)slot};
    memcpy(v->mac, host, sizeof host);
    memcpy(v->peer_mac, host, sizeof host);
    v->peer_mac[3] = 1;
}

/* A pair like a sandbox's, made and removed: better no network at all than every start failing half-way.
 * Behind the last slot's number, so that a crash in between leaves what the next start sweeps. */
static int try_pair(struct network *n, struct error *reterr)
{
    struct nft_box one, other;
    network_name_box(n, TRIAL_SLOT, NULL, &one);
    network_name_box(n, TRIAL_SLOT + 1, NULL, &other);
    auto_close int here = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    struct nl_veth v = {.name = one.link, .peer_name = other.link, .peer_netns_fd = here};
    network_fix_macs(&v, TRIAL_SLOT);
    int r = here < 0 ? -errno : nl_veth_add(&v);
    if (r < 0)
        return error_sys(reterr, -r, "make a pair of links (veth)");
    r = network_harden_link(n, one.link, reterr);
    network_link_delete(n, TRIAL_SLOT);
    return r;
}

static int choose_uplinks(struct network *n, struct error *reterr)
{
    int r = network_uplink_choose(n, NFT_V4, reterr);
    if (r == 0 && n->table.ipv6)
        return network_uplink_choose(n, NFT_V6, reterr);
    network_uplink_undo(n, NFT_V6); /* an earlier keeper's */
    return r;
}

static int write_filter(struct network *n, const struct link_scan *s, struct error *reterr)
{
    if (nft_table_replace(&n->table, s->boxes, s->count, reterr) == 0)
        return 0;
    n->table.silent = true; /* perhaps only the log is missing */
    int r = nft_table_replace(&n->table, s->boxes, s->count, reterr);
    if (r == 0)
        log_warn("refused packets are not told: this kernel has no nfnetlink_log or nft_log");
    return r;
}

int network_begin(struct network *n, const unsigned char *slot_used, struct error *reterr)
{
    struct link_scan s;
    int r = scan_links(&s, n, slot_used);
    if (r < 0)
        (void)error_sys(reterr, -r, "list the host's links");
    if (r == 0)
        r = choose_uplinks(n, reterr);
    if (r == 0)
        r = write_filter(n, &s, reterr);
    if (r == 0) /* the guard stands: now the door */
        r = network_uplink_open(n, reterr);
    scan_done(&s);
    if (r == 0)
        network_accounting_on(n);
    return r < 0 ? r : try_pair(n, reterr);
}

static void end_what_slipped_through(struct network *n, const struct link_scan *s)
{
    for (size_t i = 0; i < s->count; i++) {
        struct network_terms terms;
        unsigned slot;
        struct error e;
        if (!slot_of(&n->table, s->boxes[i].link, &slot))
            continue;
        network_terms_read(n->slots_fd, slot, &terms);
        if (network_cut(n, slot, &terms, &e) < 0)
            log_warn("slot %u: %s", slot, e.msg);
    }
}

int network_restore(struct network *n, const unsigned char *slot_used, struct error *reterr)
{
    struct link_scan s;
    int r = nft_table_exists(&n->table);
    if (r != 0)
        return r < 0 ? error_sys(reterr, -r, "look for the packet filter") : 0;
    r = scan_links(&s, n, slot_used);
    if (r < 0)
        (void)error_sys(reterr, -r, "list the host's links");
    else
        r = nft_table_replace(&n->table, s.boxes, s.count, reterr);
    if (r == 0)
        end_what_slipped_through(n, &s);
    free(s.boxes); /* leftover links stay: sandboxes are being made and ended meanwhile */
    free(s.leftovers);
    return r < 0 ? r : 1;
}

void network_close(struct network *n, const unsigned char *slot_used)
{
    struct link_scan s;
    if (!n)
        return;
    int r = scan_links(&s, n, slot_used);
    bool in_use = r < 0 || s.count;
    scan_done(&s); /* links first: none of them may outlive the rules */
    if (!in_use) {
        network_accounting_restore(n);
        network_uplink_undo(n, NFT_V4);
        network_uplink_undo(n, NFT_V6);
        (void)nft_table_remove(&n->table);
    }
    free(n);
}

void network_remove_all(const struct network_config *config)
{
    struct network n = {.slots = config->slots};
    struct link_scan s;
    auto_free unsigned char *none = calloc(config->slots, 1);
    if (!none)
        return;
    name_things(&n.table, config->instance);
    network_name_notes(&n, config->run_dir);
    if (scan_links(&s, &n, none) == 0 && s.leftover_count)
        log_info("removing %zu network links of sandboxes: this daemon gives them none", s.leftover_count);
    scan_done(&s);
    network_uplink_undo(&n, NFT_V4);
    network_uplink_undo(&n, NFT_V6);
    network_accounting_restore(&n);
    (void)nft_table_remove(&n.table); /* a kernel without nf_tables has none */
}

/* ---- the doctor's questions */

static struct network trial_network(void)
{
    struct network n = {.slots = 1, .table = {.pool = htonl(0x0ad50000), .pool_prefix = 16}};
    name_things(&n.table, "doctor");
    return n;
}

int network_try_filter(void *ipv6)
{
    struct network n = trial_network();
    struct error e = {0};
    n.table.silent = true;
    n.table.ipv6 = ipv6 != NULL;
    if (ipv6 && (check_ipv6(&e) < 0 || network_ipv6_parse("on", &n.table.prefix6, &e) < 0))
        return e.code;
    if (unshare(CLONE_NEWNET) < 0)
        return errno;
    (void)nft_table_replace(&n.table, NULL, 0, &e);
    return e.code;
}

int network_try_log(void *unused)
{
    struct network n = trial_network();
    struct error e = {0};
    (void)unused;
    if (unshare(CLONE_NEWNET) < 0)
        return errno;
    auto_close int flows = -1;
    auto_close int refused = -1;
    if (nft_table_replace(&n.table, NULL, 0, &e) == 0 &&
        network_watch(&n, KEEPER_SOCKET_FLOWS, &flows, &e) == 0)
        (void)network_watch(&n, KEEPER_SOCKET_REFUSED, &refused, &e);
    return e.code;
}

int network_try_link(void *unused)
{
    struct nl_veth v = {.name = "trial", .peer_name = "eth0"};
    struct network n = trial_network();
    struct error e = {0};
    (void)unused;
    network_fix_macs(&v, 0);
    if (unshare(CLONE_NEWNET) < 0)
        return errno;
    auto_close int inside = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (inside < 0 || unshare(CLONE_NEWNET) < 0)
        return errno;
    v.peer_netns_fd = inside;
    int r = nl_veth_add(&v);
    if (r < 0)
        return -r;
    (void)network_harden_link(&n, v.name, &e);
    return e.code;
}
