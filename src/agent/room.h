/* SPDX-License-Identifier: Apache-2.0 */
/* room.h: what this sandbox may still use, as its control groups say. */
#pragma once

#include "base/util.h"

#define ROOM_CGROUPS "/sys/fs/cgroup"

struct room {
    uint64_t memory_bytes; /* until the limit; the page cache counts as free. UINT64_MAX: there is no limit */
    unsigned cpus;         /* whole ones, at least 1 */
};

/* cgroups: where v2, or v1's controllers by their names, are mounted. What cannot be read does not limit. */
void room_read(const char *cgroups, struct room *ret);
