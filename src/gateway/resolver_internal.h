/* SPDX-License-Identifier: Apache-2.0 */
/* resolver_internal.h: shared by resolver.c (what is answered) and resolver_serve.c (sockets and questions).
 */
#pragma once

#include "gateway/dns_lookup.h"
#include "gateway/keeper_socket.h"
#include "gateway/resolver.h"

#include <netinet/in.h>

enum {
    RESOLVER_NAMES_MAX = 1024, /* that are allowed at the same time */
    RESOLVER_ADDRESSES_MAX = 8,
    RESOLVER_QUESTIONS_MAX = 64,
    RESOLVER_CONNS_MAX = 16,
};

struct resolver_name {
    char name[DNS_NAME_MAX + 1]; /* "": free */
    uint16_t type;               /* DNS_TYPE_A or _AAAA: each is asked for, and forgotten, by itself */
    struct ip addresses[RESOLVER_ADDRESSES_MAX];
    size_t count;
    int64_t fresh_until_us;   /* answers come from here */
    int64_t allowed_until_us; /* the keeper lets packets pass */
};

struct resolver {
    struct resolver_config config;
    char id[SANDBOX_ID_MAX + 1];
    struct allow_list *list;
    struct resolver_name *names;
    size_t name_count, name_cap;
    int64_t bucket_us; /* what the sandbox may still ask: a bucket that fills with time */

    struct keeper_ask *asks[2]; /* for the UDP and the TCP socket */
    int fds[2];
    struct source udp, tcp;
    void (*ready)(void *arg, int err);
    void *ready_arg;
    struct question *questions;
    size_t question_count;
    struct resolver_conn *conns;
    size_t conn_count;

    struct again *again; /* the keeper is being told all names */
};

/* What is to be said to a question. */
struct resolver_answer {
    int rcode;
    size_t count;
    struct dns_address addresses[RESOLVER_ADDRESSES_MAX];
};

/* True: *ret is the answer. False: the host's resolvers must be asked first. */
bool resolver_judge(struct resolver *r, const struct dns_query *q, struct resolver_answer *ret);
/* They answered (NULL: they did not): the answer, and what the keeper must be told before it is given. */
void resolver_digest(struct resolver *r, const struct dns_query *q, struct dns_reply *reply,
                     struct resolver_answer *ret, struct keeper_policy *ret_rules);

/* resolver_serve.c */
void resolver_serve_close(struct resolver *r);
