/* SPDX-License-Identifier: Apache-2.0 */
/* ports.c: see ports.h. */
#include "gateway/ports.h"
#include "base/clock.h"
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { BUCKETS = 4096 };
static_assert((int)PORT_TOKEN_MAX == (int)PREVIEW_TOKEN_MAX, "a token fits its row");

struct ports {
    struct loop *loop;
    struct keeper_link *link;
    struct store *store;
    uint64_t hash_seed;
    struct exposed_port *buckets[BUCKETS]; /* by sandbox */
};

/* FNV-1a with a secret start: host names are chosen by strangers, who must not be able to fill one bucket. */
static struct exposed_port **bucket(struct ports *p, const char *id)
{
    uint64_t h = p->hash_seed;
    for (; *id; id++)
        h = (h ^ (unsigned char)*id) * UINT64_C(0x100000001b3);
    return &p->buckets[(h ^ h >> 32) % BUCKETS];
}

#define for_each_of(e, p, sandbox)                                     \
    for (struct exposed_port *e = *bucket(p, sandbox); e; e = e->next) \
        if (strcmp(e->id, sandbox) == 0)

struct exposed_port *ports_find(struct ports *p, const char *id, int port)
{
    for_each_of(e, p, id) if (e->port == port) return e;
    return NULL;
}

struct exposed_port *ports_find_token(struct ports *p, const char *id, const char *token)
{
    for_each_of(e, p, id) if (strcmp(e->token, token) == 0) return e;
    return NULL;
}

size_t ports_count(struct ports *p, const char *id)
{
    size_t n = 0;
    for_each_of(e, p, id) n++;
    return n;
}

size_t ports_list(struct ports *p, const char *id, const struct exposed_port *list[PORTS_PER_SANDBOX_MAX])
{
    size_t n = 0;
    for_each_of(e, p, id)
    {
        size_t i = n;
        if (e->closing || n == PORTS_PER_SANDBOX_MAX)
            continue;
        for (; i > 0 && list[i - 1]->port > e->port; i--)
            list[i] = list[i - 1];
        list[i] = e;
        n++;
    }
    return n;
}

struct exposed_port *ports_route(struct ports *p, const struct preview_host *host)
{
    static const char nobody[PREVIEW_TOKEN_MAX + 1] = "~"; /* equals no token */
    char token[PREVIEW_TOKEN_MAX + 1] = "";
    memcpy(token, host->token, strnlen(host->token, PREVIEW_TOKEN_MAX));
    struct exposed_port *e = ports_find(p, host->id, host->port);
    bool equal = equal_constant_time(token, e ? e->token : nobody, sizeof token);
    return e && equal && !e->closing ? e : NULL;
}

/* ------------------------------------------------------------------ users */

bool port_user_add(struct exposed_port *e, struct port_user *u)
{
    if (e->user_count == PORT_USERS_MAX)
        return false;
    u->connected = u->stale = false;
    u->next = e->users;
    if (u->next)
        u->next->prev = &u->next;
    u->prev = &e->users;
    e->users = u;
    e->user_count++;
    return true;
}

void port_user_del(struct exposed_port *e, struct port_user *u)
{
    if (!u->prev)
        return;
    *u->prev = u->next;
    if (u->next)
        u->next->prev = u->prev;
    u->prev = NULL;
    e->user_count--;
}

static void end_users(struct exposed_port *e)
{
    while (e->users)
        e->users->end(e->users, true);
}

/* Nobody is at the other end of their connections, but these would keep the network of the sandbox alive. */
static void end_stale(struct deferred *d)
{
    struct exposed_port *e = container_of(d, struct exposed_port, stale);
    for (struct port_user *u = e->users, *next; u; u = next) {
        next = u->next;
        if (u->stale)
            u->end(u, false);
    }
}

/* ------------------------------------------------------------------ coming and going */

static struct exposed_port *add(struct ports *p, const struct port_row *row)
{
    struct exposed_port *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->ports = p;
    e->port = row->port;
    e->exposed_ms = row->exposed_ms;
    memcpy(e->id, row->sandbox, sizeof e->id);
    (void)snprintf(e->token, sizeof e->token, "%s", row->token);
    (void)snprintf(e->name, sizeof e->name, "%s", row->name);
    upstream_pool_init(&e->pool, p->loop, p->link, e->id, e->port);
    struct exposed_port **b = bucket(p, e->id);
    e->next = *b;
    *b = e;
    return e;
}

static void forget(struct exposed_port *e)
{
    struct exposed_port **b = bucket(e->ports, e->id);
    end_users(e);
    while (*b != e)
        b = &(*b)->next;
    *b = e->next;
    loop_undefer(e->ports->loop, &e->stale);
    upstream_pool_done(&e->pool);
    free(e);
}

static int load_row(const struct port_row *row, void *arg)
{
    struct ports *p = arg;
    if (row->port < PREVIEW_PORT_MIN || row->port > PREVIEW_PORT_MAX || !preview_token_ok(row->token) ||
        sandbox_id_check(row->sandbox, NULL) < 0 || ports_find(p, row->sandbox, row->port)) {
        log_warn("state database: exposed port %d of '%s' skipped", row->port, row->sandbox);
        return 0;
    }
    struct exposed_port *e = add(p, row);
    if (!e)
        return -ENOMEM;
    e->on_disk = true;
    return 0;
}

int ports_new(struct loop *loop, struct keeper_link *link, struct store *store, struct ports **ret,
              struct error *reterr)
{
    struct ports *p = calloc(1, sizeof *p);
    if (!p)
        return error_sys(reterr, ENOMEM, "set up the table of ports");
    p->loop = loop;
    p->link = link;
    p->store = store;
    random_bytes(&p->hash_seed, sizeof p->hash_seed);
    int r = store_load_ports(store, load_row, p, reterr);
    if (r < 0) {
        ports_free(p);
        return r;
    }
    *ret = p;
    return 0;
}

void ports_close(struct ports *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct exposed_port *e = p->buckets[i]; e; e = e->next)
            end_users(e);
}

void ports_free(struct ports *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < BUCKETS; i++)
        while (p->buckets[i])
            forget(p->buckets[i]);
    free(p);
}

/* ------------------------------------------------------------------ changes */

static void row_written(void *arg, uint64_t ticket, int err)
{
    struct port_change *c = arg;
    struct exposed_port *e =
        ports_find(c->ports, c->id, c->port); /* the sandbox may have been removed meanwhile */
    (void)ticket;
    if (e && !c->removal) {
        e->writes--;
        e->on_disk = e->on_disk || err == 0;
        if (!e->on_disk && !e->writes) {
            forget(e);
            e = NULL;
        }
    } else if (e && err < 0) {
        e->closing = false; /* it is still on disk, and would be back after a restart */
    } else if (e && e->closing) {
        forget(e);
        e = NULL;
    }
    c->done(c, e, err);
}

static void change_init(struct port_change *c, struct ports *p, const char *id, int port, bool removal)
{
    c->ports = p;
    c->port = port;
    c->removal = removal;
    (void)snprintf(c->id, sizeof c->id, "%s", id);
}

void ports_expose(struct ports *p, const char *id, int port, const char *token, const char *name,
                  struct port_change *c)
{
    struct port_row row = {.port = port, .exposed_ms = clock_wall_ms()};
    struct exposed_port *e = ports_find(p, id, port);
    (void)snprintf(row.sandbox, sizeof row.sandbox, "%s", id);
    (void)snprintf(row.token, sizeof row.token, "%s", token);
    (void)snprintf(row.name, sizeof row.name, "%s", name);
    if (!e && !(e = add(p, &row))) {
        c->done(c, NULL, -ENOMEM);
        return;
    }
    row.exposed_ms = e->exposed_ms;
    memcpy(e->name, row.name, sizeof e->name);
    e->writes++;
    change_init(c, p, id, port, false);
    (void)store_put_port(p->store, &row, row_written, c);
}

void ports_unexpose(struct exposed_port *e, struct port_change *c)
{
    struct ports *p = e->ports;
    e->closing = true;
    end_users(e);
    change_init(c, p, e->id, e->port, true);
    (void)store_delete_port(p->store, c->id, c->port, row_written, c);
}

void ports_sandbox_ended(struct ports *p, const char *id)
{
    for_each_of(e, p, id)
    {
        upstream_pool_ended(&e->pool);
        for (struct port_user *u = e->users; u; u = u->next)
            u->stale = u->connected;
        loop_defer(p->loop, &e->stale, end_stale);
    }
}

void ports_sandbox_removed(struct ports *p, const char *id)
{
    for (struct exposed_port *e = *bucket(p, id), *next; e; e = next) {
        next = e->next;
        if (strcmp(e->id, id) == 0)
            forget(e);
    }
}
