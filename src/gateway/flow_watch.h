/* SPDX-License-Identifier: Apache-2.0 */
/* flow_watch.h: the netlink sockets on which the kernel tells what sandboxes do in the network. */
#pragma once

#include "gateway/flow_parse.h"
#include "gateway/keeper_link.h"
#include "net/loop.h"

struct flow_watch;

struct flow_watch_config {
    struct loop *loop;
    struct keeper_link *link;
    void (*flow)(const struct flow *f, void *arg);
    /* Comes before the connections that were made with what it says. */
    void (*answer)(const struct flow_answer *a, void *arg);
    void *arg;
};

struct flow_watch *flow_watch_new(const struct flow_watch_config *config); /* NULL: out of memory */
void flow_watch_free(struct flow_watch *w);                                /* NULL is fine */
/* Asks the keeper for the sockets, with the first sandbox that has a link: whoever uses no network pays
 * nothing.
 */
void flow_watch_begin(struct flow_watch *w);
void flow_watch_read(struct flow_watch *w); /* what is queued, as far as a bound */
