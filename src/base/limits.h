/* SPDX-License-Identifier: Apache-2.0 */
/* limits.h: what one sandbox may use, and the named sizes. */
#pragma once

#include "base/error.h"

struct limits {
    uint64_t memory_bytes; /* agent and workload together, tmpfs included */
    uint64_t disk_bytes;   /* files of the sandbox (not of its image) */
    uint64_t disk_inodes;
    uint64_t io_bps;    /* bytes a second, reads and writes each */
    uint64_t io_iops;   /* operations a second, reads and writes each */
    uint32_t tasks;     /* processes and threads of the workload */
    uint32_t cpu_milli; /* 1000 = one core */
};

struct instance_type {
    const char *name;
    struct limits limits;
};

extern const struct instance_type instance_types[]; /* ends with a NULL name; the first is the default */
const struct instance_type *instance_type_find(const char *name);

/* Every number inside the range the keeper accepts, or a sentence that names the field and its range. */
int limits_check(const struct limits *l, struct error *reterr);
