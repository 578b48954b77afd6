/* SPDX-License-Identifier: Apache-2.0 */
/* egress_internal.h: shared by egress.c (settings, attaching), egress_conn.c (TCP) and egress_dns.c (names).
 */
#pragma once

#include "gateway/egress.h"
#include "gateway/egress_authority.h"
#include "gateway/keeper_socket.h"
#include "net/dns.h"

#include <netinet/in.h>

enum {
    EGRESS_CONNECTIONS_MAX = 1024, /* of a sandbox, as in the packet filter; then new ones are reset */
    EGRESS_LOOKUPS_MAX = 128,      /* names being looked up; then queries are dropped and asked again */
    /* A sandbox that does nothing but connect must not take the loop from the others: it waits. */
    EGRESS_NEW_PER_SECOND = 200,
    EGRESS_NEW_BURST = 256,
    EGRESS_QUERIES_PER_SECOND = 500,
    EGRESS_QUERIES_BURST = 500,
    EGRESS_PAUSE_MS = 50,
};

/* How many may come at once, and how many per second. */
struct egress_pace {
    int64_t since_us, left;
};

struct egress {
    struct loop *loop;
    struct keeper_link *link;
    struct authority *authority;

    unsigned port; /* of the owner's listener; 0: nobody told yet */
    bool internet;
    char **hostnames;
    size_t hostname_count;

    char id[SANDBOX_ID_MAX + 1]; /* "": not attached */
    struct keeper_ask *asks[2];  /* for the two sockets inside */
    int fds[2];
    struct source catcher, dns; /* of these two */
    struct egress_pace catcher_pace, dns_pace;
    struct timer catcher_pause, dns_pause;
    void (*ready)(void *arg, int err); /* NULL: told, or nobody wants to know */
    void *ready_arg;

    struct egress_conn *conns;
    size_t conn_count;
    struct egress_lookup *lookups;
    size_t lookup_count;
};

/* egress.c: may one more come now? */
bool egress_pace_take(struct egress_pace *p, int64_t now_us, int per_second, int burst);

/* egress_conn.c: a connection out of the sandbox; takes fd. */
void egress_conn_new(struct egress *e, int fd);
void egress_conn_free(struct egress_conn *c);

/* egress_dns.c */
void egress_dns_ready(struct source *s, uint32_t events); /* of e->dns */
void egress_lookup_free(struct egress_lookup *l);
