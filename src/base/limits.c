/* SPDX-License-Identifier: Apache-2.0 */
/* limits.c: named sizes. Each is at least what the documented system gives under that name; `lite` has
 * the defaults of our threat model instead of a sixteenth of a core, because one's own machine is not rented
 * by the second. */
#include "base/limits.h"

#include <errno.h>
#include <string.h>

#define MiB (UINT64_C(1) << 20)
#define GiB (UINT64_C(1) << 30)

/* 100 MB/s and 2000 operations: enough for package installs, too little to starve a neighbour */
#define IO .io_bps = 100 * 1000 * 1000, .io_iops = 2000

const struct instance_type instance_types[] = {
    {"lite",
     {.memory_bytes = 1 * GiB,
      .cpu_milli = 1000,
      .tasks = 512,
      .disk_bytes = 2 * GiB,
      .disk_inodes = 131072,
      IO}},
    {"basic",
     {.memory_bytes = 2 * GiB,
      .cpu_milli = 1000,
      .tasks = 512,
      .disk_bytes = 4 * GiB,
      .disk_inodes = 262144,
      IO}},
    {"standard-1",
     {.memory_bytes = 4 * GiB,
      .cpu_milli = 1000,
      .tasks = 1024,
      .disk_bytes = 8 * GiB,
      .disk_inodes = 524288,
      IO}},
    {"standard-2",
     {.memory_bytes = 6 * GiB,
      .cpu_milli = 1000,
      .tasks = 1024,
      .disk_bytes = 12 * GiB,
      .disk_inodes = 786432,
      IO}},
    {"standard-3",
     {.memory_bytes = 8 * GiB,
      .cpu_milli = 2000,
      .tasks = 2048,
      .disk_bytes = 16 * GiB,
      .disk_inodes = 1048576,
      IO}},
    {"standard-4",
     {.memory_bytes = 12 * GiB,
      .cpu_milli = 4000,
      .tasks = 2048,
      .disk_bytes = 20 * GiB,
      .disk_inodes = 1310720,
      IO}},
    {NULL, {0}},
};

const struct instance_type *instance_type_find(const char *name)
{
    for (const struct instance_type *t = instance_types; t->name; t++)
        if (strcmp(t->name, name) == 0)
            return t;
    return NULL;
}

static int check(const char *what, uint64_t v, uint64_t min, uint64_t max, struct error *reterr)
{
    if (v >= min && v <= max)
        return 0;
    return error_set(reterr, ERANGE, "%s is %llu, allowed are %llu to %llu", what, (unsigned long long)v,
                     (unsigned long long)min, (unsigned long long)max);
}

int limits_check(const struct limits *l, struct error *reterr)
{
    int r;
    /* below 64 MiB not even the agent's reserve and one shell fit */
    if ((r = check("memory", l->memory_bytes, 64 * MiB, 1024 * GiB, reterr)) < 0 ||
        (r = check("disk", l->disk_bytes, 64 * MiB, 1024 * GiB, reterr)) < 0 ||
        (r = check("inodes", l->disk_inodes, 1024, 1 << 28, reterr)) < 0 ||
        (r = check("ioBytesPerSecond", l->io_bps, 1 * MiB, 1024 * GiB, reterr)) < 0 ||
        (r = check("ioOperationsPerSecond", l->io_iops, 50, 10000000, reterr)) < 0 ||
        (r = check("tasks", l->tasks, 16, 32768, reterr)) < 0 ||
        (r = check("cpuMilli", l->cpu_milli, 10, 1024000, reterr)) < 0)
        return r;
    return 0;
}
