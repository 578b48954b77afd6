/* SPDX-License-Identifier: Apache-2.0 */
/* resolver.c: see resolver.h.
 *
 * Theory of operation
 * Whatever the sandbox sends to port 53 arrives here (src/keeper/network_inside.c). A name that is not on the
 * list does not exist, and nobody outside hears of it. For one that is, the host's resolvers are asked, the
 * keeper is told to let the sandbox reach the addresses they name for as long as they say and a little
 * longer, and only then the sandbox gets its answer, which is written anew: addresses and nothing else. A
 * name that leads to a private address gains nothing by it: such addresses are left out, unless the list has
 * their network. There are addresses, of IPv6 only for sandboxes that have it, and no other kind of record:
 * an answer that carried any bytes its sender likes would be a way out.
 *
 * What was answered is remembered as long as the addresses are allowed: the log finds the names there, a
 * changed list lets go of the right ones, and the same question again costs nobody anything. */
#include "gateway/resolver_internal.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    TTL_MAX_S = 3600,
    ALLOW_MIN_S =
        30, /* a name that changes every second is still reachable for as long as it takes to connect */
    ALLOW_EXTRA_S = 60, /* programs keep addresses a little longer than they should */
    QUESTIONS_PER_SECOND = 20,
    QUESTIONS_BURST = 100,
};

static int64_t now_us(const struct resolver *r)
{
    return loop_now_us(r->config.loop);
}

struct resolver *resolver_new(const struct resolver_config *config, struct allow_list *list)
{
    struct resolver *r = calloc(1, sizeof *r);
    if (!r) {
        allow_list_free(list);
        return NULL;
    }
    r->config = *config;
    (void)snprintf(r->id, sizeof r->id, "%s", config->id);
    r->list = list;
    r->fds[0] = r->fds[1] = r->udp.fd = r->tcp.fd = -1;
    return r;
}

/* ------------------------------------------------------------------ names */

static struct resolver_name *name_find(struct resolver *r, const char *name, uint16_t type)
{
    for (size_t i = 0; i < r->name_count; i++)
        if (r->names[i].type == type && strcmp(r->names[i].name, name) == 0)
            return &r->names[i];
    return NULL;
}

/* A place for a name: its own, a free one, that of one whose time is over; NULL when all are in use. */
static struct resolver_name *name_take(struct resolver *r, const char *name, uint16_t type)
{
    struct resolver_name *found = name_find(r, name, type);
    for (size_t i = 0; i < r->name_count && !found; i++)
        if (!r->names[i].name[0] || r->names[i].allowed_until_us < now_us(r))
            found = &r->names[i];
    if (!found && r->name_count == r->name_cap && r->name_cap < RESOLVER_NAMES_MAX) {
        size_t cap = r->name_cap ? r->name_cap * 2 : 16;
        struct resolver_name *more = realloc(r->names, cap * sizeof *more);
        if (!more)
            return NULL;
        r->names = more;
        r->name_cap = cap;
    }
    if (!found && r->name_count < r->name_cap)
        found = &r->names[r->name_count++];
    return found;
}

const char *resolver_name(const struct resolver *r, const struct ip *address)
{
    const struct resolver_name *best = NULL;
    for (size_t i = 0; i < r->name_count; i++)
        for (size_t k = 0; k < r->names[i].count; k++)
            if (r->names[i].name[0] && ip_equal(&r->names[i].addresses[k], address) &&
                (!best || r->names[i].allowed_until_us > best->allowed_until_us))
                best = &r->names[i];
    return best ? best->name : NULL;
}

void resolver_use(struct resolver *r, struct allow_list *list)
{
    uint16_t ports[ALLOW_PORTS_MAX];
    allow_list_free(r->list);
    r->list = list;
    for (size_t i = 0; i < r->name_count; i++)
        if (!allow_list_ports(list, r->names[i].name, ports))
            r->names[i] = (struct resolver_name){0};
}

/* ------------------------------------------------------------------ questions */

static bool may_ask(struct resolver *r)
{
    const int64_t each = 1000000 / QUESTIONS_PER_SECOND, now = now_us(r);
    int64_t full = now - each * QUESTIONS_BURST;
    if (r->bucket_us < full)
        r->bucket_us = full;
    if (r->bucket_us + each > now)
        return false;
    r->bucket_us += each;
    return true;
}

static void put_addresses(struct resolver_answer *a, const struct resolver_name *n, int64_t now)
{
    int64_t left = (n->fresh_until_us - now) / 1000000;
    for (size_t i = 0; i < n->count; i++) {
        struct dns_address *to = &a->addresses[i];
        uint32_t v4 = ip_v4(&n->addresses[i]);
        *to = (struct dns_address){.type = n->type, .ttl = (uint32_t)MAX(left, (int64_t)0)};
        if (n->type == DNS_TYPE_A)
            memcpy(to->bytes, &v4, sizeof v4);
        else
            memcpy(to->bytes, n->addresses[i].bytes, sizeof to->bytes);
    }
    a->count = n->count;
}

bool resolver_judge(struct resolver *r, const struct dns_query *q, struct resolver_answer *ret)
{
    uint16_t ports[ALLOW_PORTS_MAX];
    *ret = (struct resolver_answer){.rcode = DNS_REFUSED};
    if (q->class != DNS_CLASS_IN)
        return true;
    if (!allow_list_ports(r->list, q->name, ports)) {
        r->config.refused(r->config.arg, q->name, NULL, "not on the list");
        ret->rcode = DNS_NO_NAME;
        return true;
    }
    ret->rcode = DNS_OK;
    if (q->type != DNS_TYPE_A && !(q->type == DNS_TYPE_AAAA && r->config.ipv6))
        return true; /* it exists, and has no record of this kind */
    const struct resolver_name *known = name_find(r, q->name, q->type);
    if (known && known->fresh_until_us > now_us(r)) {
        put_addresses(ret, known, now_us(r));
        return true;
    }
    if (may_ask(r))
        return false;
    r->config.refused(r->config.arg, q->name, NULL, "too many questions");
    ret->rcode = DNS_REFUSED;
    return true;
}

/* ------------------------------------------------------------------ answers */

struct found {
    struct resolver *resolver;
    const char *name;
    struct ip addresses[RESOLVER_ADDRESSES_MAX];
    size_t count;
    uint32_t ttl;
};

static void address_found(void *arg, const struct ip *address, uint32_t ttl)
{
    struct found *f = arg;
    struct resolver *r = f->resolver;
    bool listed = allow_list_has_address(r->list, address) && !keeper_address_is_never(address);
    if (!listed && !keeper_address_is_public(address)) {
        r->config.refused(r->config.arg, f->name, address, "a private address");
        return;
    }
    if (f->count < RESOLVER_ADDRESSES_MAX)
        f->addresses[f->count++] = *address;
    f->ttl = MIN(f->ttl, ttl);
}

static int read_addresses(struct resolver *r, const struct dns_query *q, struct dns_reply *reply,
                          struct found *ret)
{
    *ret = (struct found){.resolver = r, .name = q->name, .ttl = TTL_MAX_S};
    const struct dns_addresses wanted = {
        .name = q->name, .type = q->type, .found = address_found, .arg = ret};
    uint32_t ttl = TTL_MAX_S;
    int err = dns_reply_addresses(reply, &wanted, &ttl);
    ret->ttl = MIN(ret->ttl, ttl);
    return err;
}

/* The keeper's rules for addresses that are not open anyway, on the ports of the name. */
static void put_rules(const struct resolver *r, struct resolver_name *n, struct keeper_policy *p)
{
    uint16_t ports[ALLOW_PORTS_MAX];
    size_t count = allow_list_ports(r->list, n->name, ports);
    *p = (struct keeper_policy){0};
    while (n->count * count > KEEPER_RULES_MAX)
        n->count--;
    for (size_t i = 0; i < n->count; i++)
        for (size_t k = 0; k < count && keeper_address_is_public(&n->addresses[i]); k++)
            p->rules[p->rule_count++] =
                (struct keeper_rule){.address = n->addresses[i], .port = ports[k], .prefix = IP_BITS};
}

void resolver_digest(struct resolver *r, const struct dns_query *q, struct dns_reply *reply,
                     struct resolver_answer *ret, struct keeper_policy *ret_rules)
{
    struct found f;
    *ret = (struct resolver_answer){.rcode = DNS_SERVER_FAILED};
    *ret_rules = (struct keeper_policy){0};
    if (!reply)
        return;
    if (reply->rcode != DNS_OK || read_addresses(r, q, reply, &f) < 0) {
        ret->rcode = reply->rcode == DNS_NO_NAME ? DNS_NO_NAME : DNS_SERVER_FAILED;
        return;
    }
    ret->rcode = DNS_OK;
    if (!f.count)
        return;
    struct resolver_name *n = name_take(r, q->name, q->type);
    if (!n) {
        r->config.refused(r->config.arg, q->name, NULL, "too many names at a time");
        ret->rcode = DNS_SERVER_FAILED;
        return;
    }
    int64_t allow_s = MAX(f.ttl, (uint32_t)ALLOW_MIN_S) + ALLOW_EXTRA_S;
    *n = (struct resolver_name){.type = q->type,
                                .count = f.count,
                                .fresh_until_us = now_us(r) + (int64_t)f.ttl * 1000000,
                                .allowed_until_us = now_us(r) + allow_s * 1000000};
    (void)snprintf(n->name, sizeof n->name, "%s", q->name);
    memcpy(n->addresses, f.addresses, sizeof n->addresses);
    put_rules(r, n, ret_rules);
    ret_rules->seconds = ret_rules->rule_count ? (uint32_t)allow_s : 0;
    put_addresses(ret, n, now_us(r));
}

/* ------------------------------------------------------------------ after a change of the list */

struct again {
    struct deferred start;
    struct resolver *resolver; /* NULL: freed */
    size_t waiting;
    void (*done)(void *arg);
    void *arg;
};

static void again_step(struct again *a)
{
    if (--a->waiting)
        return;
    if (a->resolver) {
        a->resolver->again = NULL;
        a->done(a->arg);
    }
    free(a);
}

static void allowed_again(void *arg, const struct keeper_reply *reply, int fd)
{
    (void)reply; /* the name is asked for again then */
    close_fd(&fd);
    again_step(arg);
}

static void again_started(struct deferred *d)
{
    again_step(container_of(d, struct again, start));
}

void resolver_allow_again(struct resolver *r, void (*done)(void *arg), void *arg)
{
    struct again *a = calloc(1, sizeof *a);
    if (!a)
        abort(); /* whoever waits could not be told; a restart loses nothing promised */
    *a = (struct again){.resolver = r, .waiting = 1, .done = done, .arg = arg};
    r->again = a;
    for (size_t i = 0; i < r->name_count; i++) {
        struct resolver_name *n = &r->names[i];
        int64_t left_s = (n->allowed_until_us - now_us(r)) / 1000000;
        struct keeper_request q = {.type = KEEPER_ALLOW};
        if (!n->name[0] || left_s <= 0)
            continue;
        put_rules(r, n, &q.policy);
        if (!q.policy.rule_count)
            continue;
        q.policy.seconds = (uint32_t)MIN(left_s, (int64_t)KEEPER_ALLOW_SECONDS_MAX);
        memcpy(q.id, r->id, sizeof q.id);
        a->waiting++;
        keeper_link_send(r->config.link, &q, -1, allowed_again, a);
    }
    loop_defer(r->config.loop, &a->start, again_started); /* done never comes from inside this call */
}

void resolver_close(struct resolver *r)
{
    resolver_serve_close(r);
}

void resolver_free(struct resolver *r)
{
    if (!r)
        return;
    if (r->again)
        r->again->resolver = NULL;
    resolver_serve_close(r);
    allow_list_free(r->list);
    free(r->names);
    free(r);
}
