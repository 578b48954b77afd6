/* SPDX-License-Identifier: Apache-2.0 */
/* network_inside.h: what the keeper sets up in a sandbox's own network namespace. */
#pragma once

#include "keeper/eth0.h"

enum inside_resolver { INSIDE_RESOLVER_KEEP, INSIDE_RESOLVER_OFF, INSIDE_RESOLVER_ON };

struct inside_work {
    const struct eth0 *connect;    /* eth0 is set up; NULL: the first process does that, or has done it */
    bool shape;                    /* eth0 gets this limit of what it sends */
    uint64_t bytes_per_second;     /* with shape; 0: none */
    enum inside_resolver resolver; /* questions to port 53 of whatever address go to KEEPER_PORT_RESOLVER */
};

/* For the doctor, in a process that ends with the trial. 0 or an errno. */
int network_try_resolver(void *unused);
/* Enters the namespace in a thread that ends with the work. Any thread. */
int network_inside(int netns_fd, const struct inside_work *w, struct error *reterr);
