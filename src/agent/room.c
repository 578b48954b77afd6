/* SPDX-License-Identifier: Apache-2.0 */
/* room.c: see room.h. The root that a sandbox sees of each hierarchy is its own group. */
#include "agent/room.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* False when there is no such file, or nothing in it. */
static bool read_text(const char *dir, const char *file, char *out, size_t cap)
{
    char path[256];
    size_t len = 0;
    if (snprintf(path, sizeof path, "%s/%s", dir, file) >= (int)sizeof path)
        return false;
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && len < cap - 1 && (n = read(fd, out + len, cap - 1 - len)) > 0;)
        len += (size_t)n;
    out[len] = '\0';
    return len > 0;
}

/* The number of a file; UINT64_MAX for anything else, such as v2's "max" and v1's -1. */
static uint64_t read_number(const char *dir, const char *file)
{
    char text[64];
    if (!read_text(dir, file, text, sizeof text) || text[0] < '0' || text[0] > '9')
        return UINT64_MAX;
    return strtoull(text, NULL, 10);
}

/* The number behind "name " in lines of such pairs; 0: not there. */
static uint64_t find_number(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, n) == 0 && line[n] == ' ')
            return strtoull(line + n + 1, NULL, 10);
    }
    return 0;
}

static uint64_t memory_room(const char *dir)
{
    char stat[8192];
    bool v2 = true;
    uint64_t limit = read_number(dir, "memory.max"), used;
    if (limit == UINT64_MAX) {
        v2 = false;
        limit = read_number(dir, "memory/memory.limit_in_bytes");
    }
    used = read_number(dir, v2 ? "memory.current" : "memory/memory.usage_in_bytes");
    if (limit == UINT64_MAX || used == UINT64_MAX)
        return UINT64_MAX;
    uint64_t cache = 0;
    if (read_text(dir, v2 ? "memory.stat" : "memory/memory.stat", stat, sizeof stat))
        cache = v2 ? find_number(stat, "active_file") + find_number(stat, "inactive_file")
                   : find_number(stat, "total_active_file") + find_number(stat, "total_inactive_file");
    used -= MIN(used, cache); /* the numbers are not of the same moment */
    return limit - MIN(limit, used);
}

static unsigned cpus(const char *dir)
{
    char text[64];
    cpu_set_t set;
    uint64_t quota = read_number(dir, "cpu/cpu.cfs_quota_us"),
             period = read_number(dir, "cpu/cpu.cfs_period_us");
    if (read_text(dir, "cpu.max", text, sizeof text)) {
        char *end = text;
        quota = text[0] == 'm' ? UINT64_MAX : strtoull(text, &end, 10);
        period = strtoull(end, NULL, 10);
    }
    unsigned count = sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
    if (quota != UINT64_MAX && period && period != UINT64_MAX)
        count = (unsigned)MIN((uint64_t)count, quota / period);
    return MAX(count, 1U);
}

void room_read(const char *cgroups, struct room *ret)
{
    *ret = (struct room){.memory_bytes = memory_room(cgroups), .cpus = cpus(cgroups)};
}
