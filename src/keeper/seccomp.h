/* SPDX-License-Identifier: Apache-2.0 */
/* seccomp.h: the system call policies as data, compiled once to raw BPF.
 *
 * The keeper builds each profile at start, which allocates; a child loads the finished program with
 * seccomp(2), which is async-signal-safe. */
#pragma once

#include "base/error.h"

#include <linux/filter.h>

enum seccomp_profile {
    SECCOMP_PROFILE_SANDBOX, /* everything inside a sandbox: the agent and all it starts */
    SECCOMP_PROFILE_GATEWAY, /* the process that parses bytes from strangers */
    SECCOMP_PROFILE_IMAGER,  /* the process that unpacks and packs images */
};

struct seccomp_program {
    struct sock_filter *filter;
    unsigned short len;
};

/* What the policy says of one call, for tests and for `silica doctor`: 0 = allowed, else the errno the caller
 * sees; EPERM stands for a call that kills the process, and sync, which succeeds without acting, counts as
 * allowed. args may be NULL (all zero). arch is an AUDIT_ARCH_* value. */
int seccomp_policy_verdict(enum seccomp_profile profile, uint32_t arch, uint32_t nr, const uint64_t args[6]);

int seccomp_build(enum seccomp_profile profile, struct seccomp_program *ret, struct error *reterr);
void seccomp_program_done(struct seccomp_program *p);

/* Loads the program into the calling thread (all threads with TSYNC). no_new_privs must be set.
 * Async-signal-safe: 0 or -errno. */
int seccomp_load(const struct seccomp_program *p);
