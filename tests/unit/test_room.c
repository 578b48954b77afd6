/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/room.h"
#include "test.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static char dir[] = "/tmp/test_room.XXXXXX";

static void put(const char *name, const char *text)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    (void)close(fd);
}

static void clear(void)
{
    static const char *const names[] = {"memory.max",
                                        "memory.current",
                                        "memory.stat",
                                        "cpu.max",
                                        "memory/memory.limit_in_bytes",
                                        "memory/memory.usage_in_bytes",
                                        "memory/memory.stat",
                                        "cpu/cpu.cfs_quota_us",
                                        "cpu/cpu.cfs_period_us",
                                        "memory",
                                        "cpu",
                                        ""};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        (void)remove(path);
    }
    memcpy(dir + strlen(dir) - 6, "XXXXXX", 6);
}

static unsigned all_cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

TEST(room_without_groups_is_unlimited)
{
    struct room r;
    room_read("/nonexistent", &r);
    CHECK(r.memory_bytes == UINT64_MAX);
    CHECK(r.cpus == all_cpus());
}

TEST(room_v2)
{
    struct room r;
    CHECK(mkdtemp(dir) != NULL);
    put("memory.max", "1000\n");
    put("memory.current", "700\n");
    put("memory.stat", "anon 300\nfile 400\nshmem 50\ninactive_file 250\nactive_file 100\n");
    put("cpu.max", "100000 100000\n");
    room_read(dir, &r);
    CHECK(r.memory_bytes == 1000 - (700 - 350)); /* shared memory cannot be dropped */
    CHECK(r.cpus == 1);
    put("memory.stat", "inactive_file 5000\nactive_file 0\n"); /* of another moment */
    put("cpu.max", "50000 100000\n");
    room_read(dir, &r);
    CHECK(r.memory_bytes == 1000);
    CHECK(r.cpus == 1);
    put("memory.max", "max\n");
    put("cpu.max", "max 100000\n");
    room_read(dir, &r);
    CHECK(r.memory_bytes == UINT64_MAX);
    CHECK(r.cpus == all_cpus());
    clear();
}

TEST(room_v1)
{
    struct room r;
    char path[128];
    CHECK(mkdtemp(dir) != NULL);
    (void)snprintf(path, sizeof path, "%s/memory", dir);
    CHECK(mkdir(path, 0700) == 0);
    (void)snprintf(path, sizeof path, "%s/cpu", dir);
    CHECK(mkdir(path, 0700) == 0);
    put("memory/memory.limit_in_bytes", "1000\n");
    put("memory/memory.usage_in_bytes", "1200\n");
    put("memory/memory.stat", "inactive_file 900\ntotal_inactive_file 100\ntotal_active_file 50\n");
    put("cpu/cpu.cfs_quota_us", "100000\n");
    put("cpu/cpu.cfs_period_us", "100000\n");
    room_read(dir, &r);
    CHECK(r.memory_bytes == 0); /* over its limit, which was lowered */
    CHECK(r.cpus == 1);
    put("memory/memory.usage_in_bytes", "500\n");
    put("cpu/cpu.cfs_quota_us", "-1\n");
    room_read(dir, &r);
    CHECK(r.memory_bytes == 1000 - 350);
    CHECK(r.cpus == all_cpus());
    put("memory/memory.limit_in_bytes", "nonsense");
    room_read(dir, &r);
    CHECK(r.memory_bytes == UINT64_MAX);
    clear();
}
