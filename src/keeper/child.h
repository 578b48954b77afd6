/* SPDX-License-Identifier: Apache-2.0 */
/* child.h: what the first process of a sandbox does between clone3 and the agent's first instruction. */
#pragma once

#include "keeper/host.h"
#include "keeper/proto.h"

struct eth0;

/* Everything the child needs, in the order in which it has to be there: it waits, in the same memory
 * (cloner.c). */
struct child_plan {
    /* before the clone */
    int sync_fd; /* SOCK_SEQPACKET: what follows the clone comes in; struct child_report goes out */
    int device_mounts[HOST_DEVICE_COUNT]; /* detached copies of the host's nodes */
    int agent_fd, http_fd, control_fd;

    /* before CHILD_PLACE */
    const struct eth0 *eth0;  /* NULL: it has none yet */
    const char *cgroup_v1[4]; /* controllers to show in /sys/fs/cgroup; NULL ends the list */
    bool cgroup_v2;           /* or the unified hierarchy */

    /* before CHILD_ROOT */
    const char *hostname;
    const struct keeper_volume_mount *volumes; /* whose mounts come in on sync_fd before the root */
    size_t volume_count;
    const char *resolv_conf; /* NULL: there is no network but the loopback interface */
    bool sidecar;            /* there is no eth0: connections out go to KEEPER_PORT_CATCHER */
    uint64_t tmp_bytes;      /* size of /tmp and /run together; 0: directories of the root */
    const struct seccomp_program *filter;
    char *const *argv;
    char *const *envp;
};

/* What the keeper says on sync_fd, a byte each. CHILD_GROUPS may come first: it is in its groups, and has to
 * say when it has entered a namespace of them. CHILD_PLACE: ids, groups and link are there. The mounts come
 * with a descriptor, volumes in the order of the plan and the root last. */
enum { CHILD_GROUPS = 'c', CHILD_PLACE = 'p', CHILD_VOLUME = 'v', CHILD_ROOT = 'r' };
enum { CHILD_TIMEOUT_MS = 10000 }; /* for each of its answers */
enum { CHILD_STEP_CLONE = -1 };    /* before its own first step; without an error: it runs */

struct child_report {
    int32_t step;
    int32_t err;
};

const char *child_step_name(int step);
bool child_step_is_volumes(int step); /* its failure is about a path that a caller chose */

/* Never returns: says that it runs, then ends in the agent, or reports the failing step on sync_fd and exits.
 */
_Noreturn void child_run(const struct child_plan *plan);

/* For a sandbox that has a read-only root and nobody's processes: gives it `root` instead, which `volumes`
 * (as many as the plan has) are mounted in, and its host name. The caller is a process of its own,
 * single-threaded, and of no use afterwards: it is in the namespaces of the process behind pidfd then. 0, or
 * -errno and the step.
 */
int child_move_in(const struct child_plan *plan, int pidfd, int root, const int *volumes, int *ret_step);

/* The capability sets of security.md section 9, as bit masks; the posture check compares with them. */
extern const uint64_t child_agent_caps;
extern const uint64_t child_workload_caps;
