/* SPDX-License-Identifier: Apache-2.0 */
/* networks.c: see networks.h.
 *
 * Theory of operation
 * A change goes through these steps, each waiting for the keeper's answer, so that at no moment more is open
 * than the old or the new configuration says: the resolver gets the new list and its sockets, the keeper
 * changes the packet filter (which forgets the addresses of names), the resolver tells it those that are
 * still allowed, and what remains of connections from before is cut. A change that is asked for meanwhile is
 * made afterwards.
 *
 * The log: the kernel tells of connections by address. An address has the sandbox that was started with it
 * last; what is still queued when it gets another one belongs to the one before, so the queue is read first.
 * Names of addresses come from the sandbox's resolver if it has one; one without asks the host's name servers
 * itself, and the kernel tells us a copy of what they answer. That is only listened to: names go on resolving
 * when this process does not run, and a sandbox that asks somebody else gains nothing but a log without
 * names.
 */
#include "gateway/networks.h"
#include "base/log.h"
#include "gateway/flow_watch.h"
#include "gateway/lifecycle_internal.h"
#include "gateway/name_book.h"
#include "gateway/resolver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum {
    BUCKETS = 1024,
    CHANGE_RETRY_MS = 50, /* an image of it may be being made */
    CHANGE_TRIES = 1200,
    NOTES_PER_SECOND = 10, /* refused names in a log */
    NOTES_BURST = 30,
};

enum change_step { STEP_NONE, STEP_RESOLVER, STEP_FILTER, STEP_NAMES, STEP_CUT };

struct box_network {
    struct networks *all;
    struct sandbox *sandbox;
    struct box_network *next; /* in its bucket */
    uint32_t address;         /* of its link now; 0: none */
    struct ip address6;       /* likewise */
    uint32_t known_as;        /* the address its connections are told by; 0: none */
    struct resolver *resolver;
    struct name_book *book; /* names it found without one */
    struct flow_log *log;
    struct sandbox_reach live; /* what the keeper was told */
    int64_t notes_us;          /* a bucket that fills with time */
    void (*ready)(struct sandbox *sb);
    enum change_step step;
    struct timer retry; /* the keeper is busy with the sandbox */
    unsigned tries;
    struct sandbox_reach goal; /* with step */
    struct network_wait *waiting;
};

struct networks {
    struct loop *loop;
    struct keeper_link *link;
    struct box_network *buckets[BUCKETS]; /* by known_as */
    struct flow_watch *watch;
    struct networks_stats stats;
};

static struct box_network **bucket(struct networks *n, uint32_t address)
{
    return &n->buckets[ntohl(address) % BUCKETS];
}

static struct box_network *find(struct networks *n, uint32_t address)
{
    struct box_network *net = *bucket(n, address);
    while (net && net->known_as != address)
        net = net->next;
    return net;
}

static void unregister(struct box_network *net)
{
    if (!net->known_as)
        return;
    struct box_network **p = bucket(net->all, net->known_as);
    while (*p != net)
        p = &(*p)->next;
    *p = net->next;
    net->known_as = 0;
}

static struct box_network *network_of(struct networks *n, struct sandbox *sb)
{
    if (!sb->network) {
        sb->network = calloc(1, sizeof *sb->network);
        if (sb->network)
            *sb->network = (struct box_network){.all = n, .sandbox = sb};
    }
    return sb->network;
}

struct flow_log *network_log(const struct sandbox *sb)
{
    return sb->network ? sb->network->log : NULL;
}

static struct flow_log *log_of(struct box_network *net)
{
    if (!net->log)
        net->log = flow_log_new(net->all->loop);
    return net->log;
}

struct flow_log *network_log_make(struct networks *n, struct sandbox *sb)
{
    struct box_network *net = n ? network_of(n, sb) : NULL;
    return net ? log_of(net) : NULL;
}

uint32_t network_address_of(const struct sandbox *sb)
{
    return sb->network ? sb->network->address : 0;
}

const struct ip *network_address6_of(const struct sandbox *sb)
{
    return network_address_of(sb) && !ip_is_none(&sb->network->address6) ? &sb->network->address6 : NULL;
}

const struct networks_stats *networks_stats(const struct networks *n)
{
    return &n->stats;
}

static void change_failed(struct box_network *net, int error, const char *why);

/* ------------------------------------------------------------------ the log */

static const char *refusal(const struct box_network *net, const struct flow *f)
{
    if (f->port == 25 && f->protocol == IPPROTO_TCP)
        return "mail";
    if (net->live.network == KEEPER_NETWORK_ALLOWLIST)
        return "not on the list, or too many connections";
    return keeper_address_is_public(&f->destination) ? "too many connections" : "a private address";
}

static const char *name_of(const struct box_network *net, const struct ip *address)
{
    const char *name = net->resolver ? resolver_name(net->resolver, address) : NULL;
    return name || !net->book ? name : name_book_find(net->book, address);
}

static void flow_found(const struct flow *f, void *arg)
{
    struct networks *n = arg;
    struct box_network *net = find(n, f->source);
    n->stats.opened += f->kind == FLOW_OPEN;
    n->stats.refused_packets += f->kind == FLOW_REFUSED;
    n->stats.sent_bytes += f->sent;
    n->stats.received_bytes += f->received;
    if (net && log_of(net))
        flow_log_add(net->log, f, name_of(net, &f->destination),
                     f->kind == FLOW_REFUSED ? refusal(net, f) : NULL);
}

static void answer_found(const struct flow_answer *a, void *arg)
{
    struct box_network *net = find(arg, a->sandbox);
    if (net && !net->book)
        net->book = name_book_new();
    if (net && net->book)
        name_book_add(net->book, a->name, &a->address);
}

static void name_refused(void *arg, const char *name, const struct ip *address, const char *why)
{
    struct box_network *net = arg;
    const int64_t each = 1000000 / NOTES_PER_SECOND, now = loop_now_us(net->all->loop);
    net->all->stats.refused_names++;
    net->notes_us = MAX(net->notes_us, now - each * NOTES_BURST);
    if (net->notes_us + each > now || !log_of(net))
        return;
    net->notes_us += each;
    flow_log_add_name(net->log, name, address, why);
}

/* ------------------------------------------------------------------ a life begins and ends */

/* The sandbox is told by this address from now on; what is queued is the last owner's. */
static void settle_address(struct box_network *net, const struct keeper_reply *told)
{
    struct networks *n = net->all;
    uint32_t address = told->address;
    net->address = address;
    net->address6 = told->address6;
    if (!address || net->known_as == address)
        return;
    flow_watch_begin(n->watch);
    flow_watch_read(n->watch);
    struct box_network *before = find(n, address);
    if (before)
        unregister(before);
    unregister(net);
    net->known_as = address;
    struct box_network **b = bucket(n, address);
    net->next = *b;
    *b = net;
}

/* A resolver with the list of this configuration; false: there is none. */
static bool use_list(struct box_network *net, const struct sandbox_reach *reach)
{
    struct allow_list *list = NULL;
    struct error e;
    if (allow_list_parse(reach->allow, &list, &e) < 0 && allow_list_parse(NULL, &list, &e) < 0)
        return false;
    if (net->resolver) {
        resolver_use(net->resolver, list);
        return true;
    }
    struct resolver_config config = {.loop = net->all->loop,
                                     .link = net->all->link,
                                     .id = net->sandbox->id,
                                     .ipv6 = !ip_is_none(&net->address6),
                                     .refused = name_refused,
                                     .arg = net};
    net->resolver = resolver_new(&config, list);
    return net->resolver != NULL;
}

static void drop_book(struct box_network *net)
{
    name_book_free(net->book);
    net->book = NULL;
}

static void drop_resolver(struct box_network *net)
{
    resolver_free(net->resolver);
    net->resolver = NULL;
}

void network_starting(struct networks *n, struct sandbox *sb)
{
    struct box_network *net = n ? network_of(n, sb) : NULL;
    if (!net)
        return;
    sandbox_reach_done(&net->live);
    if (sandbox_reach_copy(&net->live, &sb->config.reach) < 0)
        net->live.network = KEEPER_NETWORK_DEFAULT; /* then the next change is made in any case */
}

static void resolver_ready(void *arg, int err)
{
    struct box_network *net = arg;
    void (*ready)(struct sandbox * sb) = net->ready;
    if (err < 0)
        log_warn("sandbox %s: names do not resolve: %s", net->sandbox->id, strerror(-err));
    net->ready = NULL;
    if (ready)
        ready(net->sandbox);
}

void network_up(struct networks *n, struct sandbox *sb, const struct keeper_reply *told, bool again,
                void (*ready)(struct sandbox *sb))
{
    struct box_network *net = n ? network_of(n, sb) : NULL;
    if (!net) {
        ready(sb);
        return;
    }
    settle_address(net, told);
    if (again && net->resolver) {
        ready(sb);
        return;
    }
    if (net->step == STEP_RESOLVER || net->step == STEP_NAMES)
        change_failed(net, ENOENT, "");
    drop_resolver(net); /* a new life has none of the addresses of the last one */
    drop_book(net);
    if (!told->address || net->live.network != KEEPER_NETWORK_ALLOWLIST || !use_list(net, &net->live)) {
        ready(sb);
        return;
    }
    net->ready = ready;
    resolver_open(net->resolver, resolver_ready, net);
}

void network_down(struct networks *n, struct sandbox *sb)
{
    (void)n;
    if (!sb->network)
        return;
    struct box_network *net = sb->network;
    net->address = 0; /* known_as stays: the kernel has not told everything yet */
    if (net->resolver)
        resolver_close(net->resolver);
    if (net->step == STEP_RESOLVER)
        change_failed(net, ENOENT, "");
}

void network_wait_cancel(struct network_wait *w)
{
    if (!w->prev)
        return;
    *w->prev = w->next;
    if (w->next)
        w->next->prev = w->prev;
    w->prev = NULL;
}

/* ------------------------------------------------------------------ a change */

static void change_next(struct box_network *net);

static void finish_waiting(struct box_network *net, const struct problem *p)
{
    while (net->waiting) {
        struct network_wait *w = net->waiting;
        network_wait_cancel(w);
        w->done(w, p);
    }
}

static void change_failed(struct box_network *net, int error, const char *why)
{
    struct problem p;
    net->step = STEP_NONE;
    net->tries = 0;
    if (error == ENOENT) { /* it ended meanwhile: its next start has the new configuration */
        finish_waiting(net, NULL);
        return;
    }
    if (error == ENONET)
        (void)problem_set(&p, 422, "NETWORK_UNAVAILABLE", "%s", why);
    else
        (void)problem_set(&p, 500, "NETWORK_CHANGE_FAILED",
                          "the change is recorded, but takes effect only when the sandbox starts again: %s",
                          why);
    finish_waiting(net, &p);
}

static void change_retry(struct timer *t);

static void keeper_said(void *arg, const struct keeper_reply *reply, int fd)
{
    struct sandbox *sb = arg;
    struct box_network *net = sb->network;
    close_fd(&fd);
    sb->keeper_pending--;
    if (!net || net->step == STEP_NONE) {
        sandbox_reap_later(sb);
        return;
    }
    if (reply->error == EAGAIN && net->tries++ < CHANGE_TRIES) {
        loop_timer_start(net->all->loop, &net->retry, CHANGE_RETRY_MS, change_retry);
        return;
    }
    if (reply->error) {
        change_failed(net, reply->error, reply->message);
        sandbox_reap_later(sb);
        return;
    }
    net->tries = 0;
    if (net->step == STEP_FILTER)
        settle_address(net, reply);
    change_next(net);
    sandbox_reap_later(sb);
}

static void tell_keeper(struct box_network *net, enum keeper_type type)
{
    struct keeper_request q = {.type = type};
    memcpy(q.id, net->sandbox->id, sizeof q.id);
    if (type == KEEPER_NETWORK) {
        bool has = lifecycle_has_network(net->sandbox->lifecycle);
        q.network = net->goal.network != KEEPER_NETWORK_DEFAULT ? net->goal.network
                    : has                                       ? KEEPER_NETWORK_PUBLIC
                                                                : KEEPER_NETWORK_NONE;
        sandbox_reach_policy(&net->goal, &q.policy);
        q.policy.keep = sandbox_reach_extends(&net->goal, &net->live);
    }
    net->sandbox->keeper_pending++;
    keeper_link_send(net->all->link, &q, -1, keeper_said, net->sandbox);
}

static void change_retry(struct timer *t)
{
    struct box_network *net = container_of(t, struct box_network, retry);
    tell_keeper(net, net->step == STEP_CUT ? KEEPER_CUT : KEEPER_NETWORK);
}

static void change_resolver_ready(void *arg, int err)
{
    struct box_network *net = arg;
    /* a sandbox that keeps us from answering it must not keep its doors open by that */
    if (err < 0)
        log_warn("sandbox %s: names do not resolve: %s", net->sandbox->id, strerror(-err));
    change_next(net);
}

static void names_told(void *arg)
{
    change_next(arg);
}

static void change_begin(struct box_network *net)
{
    sandbox_reach_done(&net->goal);
    if (sandbox_reach_copy(&net->goal, &net->sandbox->config.reach) < 0) {
        change_failed(net, ENOMEM, "out of memory");
        return;
    }
    net->step = STEP_RESOLVER;
    bool lists = net->goal.network == KEEPER_NETWORK_ALLOWLIST;
    bool listed = net->live.network == KEEPER_NETWORK_ALLOWLIST && net->resolver;
    if (!lists) {
        change_next(net);
    } else if (!use_list(net, &net->goal)) {
        change_failed(net, ENOMEM, "out of memory");
    } else if (listed) {
        change_next(net);
    } else {
        resolver_open(net->resolver, change_resolver_ready, net);
    }
}

static void change_done(struct box_network *net)
{
    net->step = STEP_NONE;
    sandbox_reach_done(&net->live);
    net->live = net->goal;
    net->goal = (struct sandbox_reach){0};
    if (net->live.network != KEEPER_NETWORK_ALLOWLIST)
        drop_resolver(net);
    if (sandbox_reach_equal(&net->live, &net->sandbox->config.reach))
        finish_waiting(net, NULL);
    else
        change_begin(net);
}

/* The step is done. */
static void change_next(struct box_network *net)
{
    switch (net->step) {
    case STEP_RESOLVER:
        net->step = STEP_FILTER;
        tell_keeper(net, KEEPER_NETWORK);
        break;
    case STEP_FILTER:
        net->step = STEP_NAMES;
        if (net->goal.network == KEEPER_NETWORK_ALLOWLIST && net->resolver)
            resolver_allow_again(net->resolver, names_told, net);
        else
            change_next(net);
        break;
    case STEP_NAMES:
        if (sandbox_reach_extends(&net->goal, &net->live)) { /* nothing was closed */
            change_done(net);
            break;
        }
        net->step = STEP_CUT;
        tell_keeper(net, KEEPER_CUT);
        break;
    case STEP_CUT:
        change_done(net);
        break;
    case STEP_NONE:
        break;
    }
}

void network_follow(struct networks *n, struct sandbox *sb, struct network_wait *w)
{
    struct box_network *net = n ? network_of(n, sb) : NULL;
    w->prev = NULL;
    bool runs = sb->state == SANDBOX_RUNNING || sb->state == SANDBOX_FROZEN;
    if (!net || !runs || (net->step == STEP_NONE && sandbox_reach_equal(&net->live, &sb->config.reach))) {
        w->done(w, NULL);
        return;
    }
    w->next = net->waiting;
    if (w->next)
        w->next->prev = &w->next;
    w->prev = &net->waiting;
    net->waiting = w;
    if (net->step == STEP_NONE)
        change_begin(net);
}

void network_forget(struct networks *n, struct sandbox *sb)
{
    struct box_network *net = sb->network;
    (void)n;
    if (!net)
        return;
    struct problem p;
    (void)problem_set(&p, 404, "SANDBOX_NOT_FOUND", "there is no sandbox '%s'", sb->id);
    sb->network = NULL;
    finish_waiting(net, &p);
    loop_timer_stop(net->all->loop, &net->retry);
    unregister(net);
    drop_resolver(net);
    drop_book(net);
    flow_log_free(net->log);
    sandbox_reach_done(&net->live);
    sandbox_reach_done(&net->goal);
    free(net);
}

/* ------------------------------------------------------------------ all of them */

int networks_new(struct loop *loop, struct keeper_link *link, struct networks **ret, struct error *reterr)
{
    struct networks *n = calloc(1, sizeof *n);
    if (!n)
        return error_sys(reterr, ENOMEM, "set up the networks of sandboxes");
    n->loop = loop;
    n->link = link;
    n->watch = flow_watch_new(&(struct flow_watch_config){
        .loop = loop, .link = link, .flow = flow_found, .answer = answer_found, .arg = n});
    if (!n->watch) {
        free(n);
        return error_sys(reterr, ENOMEM, "set up the networks of sandboxes");
    }
    *ret = n;
    return 0;
}

void networks_free(struct networks *n)
{
    if (!n)
        return;
    flow_watch_free(n->watch);
    free(n);
}
