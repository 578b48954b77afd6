/* SPDX-License-Identifier: Apache-2.0 */
/* cloner.h: the first process of a sandbox, cloned without a copy of the keeper's memory. */
#pragma once

#include "keeper/child.h"

#include <linux/sched.h>
#include <pthread.h>

/* clone3 with args, which ask for the caller's memory and for it to wait (CLONE_VM, CLONE_VFORK). The child
 * calls run(arg), which never returns. The child's pid, or -errno. */
long clone_and_run(struct clone_args *args, void (*run)(void *arg), void *arg);

struct cloner {
    const struct child_plan *plan;
    uint32_t uid; /* whose the user namespace will be */
    struct clone_args args;
    pid_t pid;
    int pidfd;
    pthread_t thread;
    bool running; /* the thread has to be joined */
};

/* Clones; returns when the process runs, which then waits on plan->sync_fd for its root. line is the other
 * end of that channel, group a v2 group to be cloned into or -1. c and plan stay where they are until
 * cloner_finish. */
int cloner_start(struct cloner *c, const struct child_plan *plan, uint32_t uid, int group, int line,
                 struct error *reterr);
/* Once the process has become another program or has ended; before that it waits. */
void cloner_finish(struct cloner *c);
