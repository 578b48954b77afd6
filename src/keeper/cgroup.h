/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup.h: control groups v1 and v2 behind one interface, chosen per controller at start.
 *
 * Layout: in every hierarchy used, <root of the hierarchy>/<prefix>/<slot> with the limits of the whole
 * sandbox and below it work/ for the workload (and, on v2 hierarchies with controllers, agent/ for PID 1,
 * because inner groups may not hold processes there). A v2 group is always made when v2 is mounted, with or
 * without controllers: CLONE_INTO_CGROUP, cgroup.kill, cgroup.freeze and cpu.stat work there. */
#pragma once

#include "base/error.h"
#include "base/limits.h"

enum cgroup_controller {
    CGROUP_MEMORY,
    CGROUP_PIDS,
    CGROUP_CPU,
    CGROUP_IO,
    CGROUP_DEVICES,
    CGROUP_FREEZER,
    CGROUP_CONTROLLER_COUNT
};
enum cgroup_version { CGROUP_MISSING, CGROUP_V1, CGROUP_V2 };

struct cgroup_host; /* what this host has; made once */
struct cgroup;      /* the groups of one sandbox */

struct cgroup_usage {
    uint64_t memory_bytes, memory_peak_bytes, cpu_us;
    uint32_t tasks;
    uint64_t oom_kills;
};

/* Finds the hierarchies (from /proc/self/mountinfo), makes the <prefix> groups (prefix: "silica" or
 * "silica-<instance>" for tests), enables v2 controllers for them, and sets up the devices rule once for all
 * sandboxes on the <prefix> group: v2 by a CGROUP_DEVICE BPF program, else v1 devices.deny/allow. Missing
 * controllers are not an error here: see cgroup_version_of. */
int cgroup_host_open(const char *prefix, struct cgroup_host **ret, struct error *reterr);
void cgroup_host_free(struct cgroup_host *h);
int cgroup_host_remove(
    struct cgroup_host *h); /* removes the (empty) prefix groups again; for tests and `doctor` */
enum cgroup_version cgroup_version_of(const struct cgroup_host *h, enum cgroup_controller c);
const char *cgroup_controller_name(enum cgroup_controller c);

/* Makes all groups of a slot with its limits; undoes itself on failure. io_dev: major:minor of the sandbox's
 * disk (0: no I/O limit). memory: the whole = limit, work = limit - 32 MiB (at least half); swap off; tasks:
 * work = limit, whole = limit + 16. */
int cgroup_create(struct cgroup_host *h, unsigned slot, const struct limits *l, dev_t io_dev,
                  struct cgroup **ret, struct error *reterr);
/* The groups of a slot made by an earlier keeper. -ENOENT when there are none. */
int cgroup_adopt(struct cgroup_host *h, unsigned slot, struct cgroup **ret, struct error *reterr);
int cgroup_set_limits(struct cgroup *g, const struct limits *l, dev_t io_dev, struct error *reterr);
/* Only those of I/O on this device, all the others stay. */
int cgroup_limit_io(struct cgroup *g, const struct limits *l, dev_t io_dev, struct error *reterr);

int cgroup_clone_fd(
    const struct cgroup *g); /* v2 directory for CLONE_INTO_CGROUP, or -1: then use cgroup_attach for all */
/* Moves PID 1 into every v1 group of the sandbox (and v2 when it was not cloned into it). */
int cgroup_attach(struct cgroup *g, pid_t pid, struct error *reterr);
/* Moves the spawner (a process of the sandbox) into the workload's groups. */
int cgroup_attach_work(struct cgroup *g, pid_t pid, struct error *reterr);

/* Moves PID 1 out of them again. */
int cgroup_lift(struct cgroup *g, pid_t pid, struct error *reterr);

int cgroup_usage_read(struct cgroup *g, struct cgroup_usage *ret);
int cgroup_freeze(struct cgroup *g, bool frozen,
                  struct error *reterr); /* returns when the state is reached or after 200 ms: -ETIMEDOUT */
/* SIGKILL to everything inside: v2 cgroup.kill; pure v1: freeze, kill, thaw, repeat until empty. Does not
 * wait for the end. */
int cgroup_kill(struct cgroup *g, struct error *reterr);
bool cgroup_empty(const struct cgroup *g);
/* Removes all directories (children first); -EBUSY while tasks are exiting (call again later). Frees g on
 * success. */
int cgroup_remove(struct cgroup *g);
void cgroup_forget(struct cgroup *g); /* frees the memory, leaves the groups (keeper restart) */

/* Calls found(slot, arg) for every slot that has a directory in any hierarchy, each once: for sweeping
 * leftovers. */
int cgroup_host_scan(struct cgroup_host *h, void (*found)(unsigned slot, void *arg), void *arg);
