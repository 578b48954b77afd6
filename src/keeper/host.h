/* SPDX-License-Identifier: Apache-2.0 */
/* host.h: what the keeper takes from the host once, at start, and then shares with every sandbox it builds.
 */
#pragma once

#include "base/error.h"
#include "keeper/seccomp.h"

enum { HOST_DEVICE_COUNT = 6 };

struct host_device {
    const char *name; /* "null" */
    unsigned major, minor;
};
extern const struct host_device host_devices[HOST_DEVICE_COUNT]; /* null first: masks are made of it */

struct host {
    int scratch_fd;    /* a tmpfs in the keeper's private mount namespace: device nodes, mount points */
    char scratch[128]; /* its path */
    int device_fds[HOST_DEVICE_COUNT]; /* O_PATH, type and number checked */
    struct seccomp_program filter;     /* of the sandboxes */
    void *agent;                       /* the agent's program text ... */
    size_t agent_len;                  /* ... copied into a sealed memfd of its own for every sandbox */
    uint32_t uid_base;                 /* first id of slot 0 */
    unsigned slot_count;
};

/* Enters a private mount namespace and prepares all of it. run_dir: an existing directory of the keeper's. */
int host_prepare(struct host *h, const char *run_dir, const char *agent_path, struct error *reterr);
void host_done(struct host *h);

/* Open files are charged to the sandbox that opens them, so its memory runs out first, unless the kernel's
 * bound for all files of the host (by default a tenth of what memory could hold) comes before: then there
 * would be none left for the others. Raises that bound to what memory can hold, as systemd does; never lowers
 * it. */
void host_raise_file_max(void);

/* A sealed memfd with its own copy of the agent. */
int host_agent_memfd(const struct host *h, int *ret_fd, struct error *reterr);

/* Once in every thread that builds sandboxes: a working directory of its own (the scratch directory), and
 * capabilities that survive a change of uid. */
int host_worker_start(const struct host *h, struct error *reterr);
/* Effective uid and gid of the calling thread, capabilities kept. */
int host_become(uint32_t id);
void host_become_root(void);
