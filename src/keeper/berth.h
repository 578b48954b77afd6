/* SPDX-License-Identifier: Apache-2.0 */
/* berth.h: a place for a sandbox that needs to know little of it: a slot, control groups, namespaces, a link,
 * and a first process that waits in them for a root file system. */
#pragma once

#include "keeper/cloner.h"
#include "keeper/eth0.h"
#include "keeper/sandbox.h"

struct berth_spec {
    unsigned slot;
    struct limits limits;
    const struct network_terms *terms; /* of its link; NULL: there is no link. The caller's, for as long as
                                          the berth is there */
    bool low; /* it waits in the workload's groups: whoever it starts is there at once. See lift.c */
};

struct berth {
    struct keeper_env *env;
    struct berth_spec spec;
    struct cgroup *cgroup;
    struct child_plan
        child; /* what the process needs beyond its descriptors can be filled in while it waits */
    struct cloner cloner;
    struct eth0 eth0; /* of its link */
    int slot_dir;
    int sync[2]; /* ours, the child's */
    int userns;
    pid_t pid;
    int pidfd;
    uint64_t start_time;
};

/* Worker threads only (host_worker_start): takes milliseconds, and ten more where the kernel makes the move
 * into v1 groups wait. A failure leaves nothing. */
int berth_make(struct keeper_env *env, const struct berth_spec *spec, struct berth **ret,
               struct error *reterr);
/* Undoes everything, the process first. NULL is fine. Worker threads only. */
void berth_remove(struct berth *b);
/* Its process has become the agent: the sandbox has taken over pidfd and groups, the rest is done with. */
void berth_leave(struct berth *b);
