/* SPDX-License-Identifier: Apache-2.0 */
/* process_kill.h: ending whole process trees, without losing anybody who forks meanwhile. */
#pragma once

#include "agent/agent.h"

enum { KILL_GRACE_MS = 5000, KILL_WAIT_MS = 5000 };

struct killing;

struct killing_config {
    const pid_t *roots; /* copied */
    size_t count;
    const struct process_tag *tags; /* copied; their bearers belong to the tree wherever they are */
    size_t tag_count;
    bool sessions; /* a root also stands for the kernel session it leads (setsid), not only for its group */
    int signal;    /* the first one */
    int grace_ms;  /* then SIGKILL; 0 with SIGKILL */
    void (*done)(void *arg, bool gone); /* once, from the loop; gone: nobody is left */
    void *arg;
};

/* A tree is everything below a root by parentage, plus the root's process group, plus the bearers of the
 * tags, plus what is below those. What escapes: a process that has lowered its own tag, has made itself a
 * session of its own and has lost its parent. NULL when memory is short. */
struct killing *killing_start(struct agent *a, const struct killing_config *config);
