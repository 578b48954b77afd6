/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup_limits.c: a sandbox's limits as files of control groups, and its use read back.
 *
 * The limits become a list of settings first (pure, the same for every sandbox of a host), which is then
 * written in order. */
#include "keeper/cgroup_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/sysmacros.h>

enum {
    AGENT_TASKS = 16, /* PID 1 and its threads beside a workload that used up its own */
    CPU_PERIOD_US = 100000,
    CPU_SHARES = 256, /* of 1024: a busy sandbox yields to the host's own services */
    CPU_WEIGHT = 25,  /* the same share in the words of v2 (of 100) */
};
#define AGENT_MEMORY (UINT64_C(32) << 20)

/* On v2 the workload (never PID 1, which has to tell about it) is slowed down when it is within 5 % of its
 * end, but not earlier than this: the kernel's pauses grow with the square of the way gone, so that with 5 %
 * of 1 GiB a runaway program hangs for 12 s before it is killed, with 5 % of 3 GiB for more than 30 s. */
#define THROTTLE_MAX (UINT64_C(16) << 20)

struct plan {
    struct cgroup_setting *out;
    size_t count;
};

static void PRINTF_LIKE(6, 7) plan_add(struct plan *p, enum cgroup_controller c, enum cgroup_dir dir,
                                       const char *file, bool optional, const char *fmt, ...)
{
    struct cgroup_setting *s = &p->out[p->count++];
    *s = (struct cgroup_setting){.controller = c, .dir = dir, .file = file, .optional = optional};
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(s->value, sizeof s->value, fmt, ap);
    va_end(ap);
}

#define ULL(v) ((unsigned long long)(v))

static void plan_memory(struct plan *p, enum cgroup_version version, uint64_t limit)
{
    uint64_t work = limit / 2 > AGENT_MEMORY ? limit - AGENT_MEMORY : limit - limit / 2;
    const struct {
        enum cgroup_dir dir;
        uint64_t bytes;
    } groups[] = {{CGROUP_DIR_SLOT, limit}, {CGROUP_DIR_WORK, work}};

    for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
        if (version == CGROUP_V2) {
            plan_add(p, CGROUP_MEMORY, groups[i].dir, "memory.max", false, "%llu", ULL(groups[i].bytes));
            continue;
        }
        plan_add(p, CGROUP_MEMORY, groups[i].dir, "memory.limit_in_bytes", false, "%llu",
                 ULL(groups[i].bytes));
        /* memory and swap together; absent where swap is not accounted */
        plan_add(p, CGROUP_MEMORY, groups[i].dir, "memory.memsw.limit_in_bytes", true, "%llu",
                 ULL(groups[i].bytes));
    }
    if (version == CGROUP_V2) {
        plan_add(p, CGROUP_MEMORY, CGROUP_DIR_SLOT, "memory.swap.max", true, "0");
        plan_add(p, CGROUP_MEMORY, CGROUP_DIR_WORK, "memory.high", false, "%llu",
                 ULL(work - MIN(work / 20, THROTTLE_MAX)));
    }
}

static void plan_cpu(struct plan *p, enum cgroup_version version, uint32_t milli)
{
    uint64_t quota_us = (uint64_t)milli * CPU_PERIOD_US / 1000;

    if (version == CGROUP_V2) {
        plan_add(p, CGROUP_CPU, CGROUP_DIR_SLOT, "cpu.max", false, "%llu %d", ULL(quota_us), CPU_PERIOD_US);
        plan_add(p, CGROUP_CPU, CGROUP_DIR_SLOT, "cpu.weight", false, "%d", CPU_WEIGHT);
        return;
    }
    /* kernels may be built with shares and without quotas */
    plan_add(p, CGROUP_CPU, CGROUP_DIR_SLOT, "cpu.cfs_period_us", true, "%d", CPU_PERIOD_US);
    plan_add(p, CGROUP_CPU, CGROUP_DIR_SLOT, "cpu.cfs_quota_us", true, "%llu", ULL(quota_us));
    plan_add(p, CGROUP_CPU, CGROUP_DIR_SLOT, "cpu.shares", false, "%d", CPU_SHARES);
}

static void plan_io(struct plan *p, enum cgroup_version version, const struct limits *l, dev_t dev)
{
    unsigned ma = major(dev), mi = minor(dev);

    if (version == CGROUP_V2) {
        plan_add(p, CGROUP_IO, CGROUP_DIR_SLOT, "io.max", false,
                 "%u:%u rbps=%llu wbps=%llu riops=%llu wiops=%llu", ma, mi, ULL(l->io_bps), ULL(l->io_bps),
                 ULL(l->io_iops), ULL(l->io_iops));
        return;
    }
    static const char *const bps[] = {"blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"};
    static const char *const iops[] = {"blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device"};
    for (size_t i = 0; i < ARRAY_SIZE(bps); i++) {
        plan_add(p, CGROUP_IO, CGROUP_DIR_SLOT, bps[i], false, "%u:%u %llu", ma, mi, ULL(l->io_bps));
        plan_add(p, CGROUP_IO, CGROUP_DIR_SLOT, iops[i], false, "%u:%u %llu", ma, mi, ULL(l->io_iops));
    }
}

size_t cgroup_settings_plan(const enum cgroup_version version[], const struct limits *l, dev_t io_dev,
                            struct cgroup_setting out[CGROUP_SETTINGS_MAX])
{
    struct plan p = {.out = out};

    if (version[CGROUP_MEMORY] != CGROUP_MISSING)
        plan_memory(&p, version[CGROUP_MEMORY], l->memory_bytes);
    if (version[CGROUP_PIDS] != CGROUP_MISSING) {
        plan_add(&p, CGROUP_PIDS, CGROUP_DIR_SLOT, "pids.max", false, "%llu", ULL(l->tasks) + AGENT_TASKS);
        plan_add(&p, CGROUP_PIDS, CGROUP_DIR_WORK, "pids.max", false, "%u", l->tasks);
    }
    if (version[CGROUP_CPU] != CGROUP_MISSING)
        plan_cpu(&p, version[CGROUP_CPU], l->cpu_milli);
    if (version[CGROUP_IO] != CGROUP_MISSING && io_dev != 0)
        plan_io(&p, version[CGROUP_IO], l, io_dev);
    return p.count;
}

static int setting_write(const struct cgroup_host *h, unsigned slot, const struct cgroup_setting *s)
{
    char path[CGROUP_PATH_SIZE];
    int r = cgroup_file_write(h->tree_of[s->controller]->prefix_fd, cgroup_path(path, slot, s->dir, s->file),
                              s->value);
    return r == -ENOENT && s->optional ? 0 : r;
}

static int settings_write(const struct cgroup_host *h, unsigned slot, const struct cgroup_setting *settings,
                          size_t n, struct error *reterr)
{
    for (size_t i = 0; i < n; i++) {
        int r = setting_write(h, slot, &settings[i]);
        /* v1 refuses a memory limit above memory and swap together: when raising, the next setting goes first
         * (and is written a second time in its turn) */
        if (r == -EINVAL && i + 1 < n && strcmp(settings[i].file, "memory.limit_in_bytes") == 0) {
            r = setting_write(h, slot, &settings[i + 1]);
            if (r == 0)
                r = setting_write(h, slot, &settings[i]);
        }
        if (r < 0)
            return error_sys(reterr, -r, "slot %u: set %s%s to '%s'", slot,
                             settings[i].dir == CGROUP_DIR_WORK ? "work/" : "", settings[i].file,
                             settings[i].value);
    }
    return 0;
}

int cgroup_limits_apply(const struct cgroup_host *h, unsigned slot, const struct limits *l, dev_t io_dev,
                        struct error *reterr)
{
    struct cgroup_setting settings[CGROUP_SETTINGS_MAX];
    size_t n = cgroup_settings_plan(h->version, l, io_dev, settings);
    return settings_write(h, slot, settings, n, reterr);
}

int cgroup_io_apply(const struct cgroup_host *h, unsigned slot, const struct limits *l, dev_t io_dev,
                    struct error *reterr)
{
    struct cgroup_setting settings[CGROUP_SETTINGS_MAX];
    const enum cgroup_version io_alone[CGROUP_CONTROLLER_COUNT] = {[CGROUP_IO] = h->version[CGROUP_IO]};
    size_t n = cgroup_settings_plan(io_alone, l, io_dev, settings);
    return settings_write(h, slot, settings, n, reterr);
}

static int memory_usage(const struct cgroup_tree *t, unsigned slot, struct cgroup_usage *u)
{
    char path[CGROUP_PATH_SIZE];
    bool v2 = t->version == CGROUP_V2;

    int r = cgroup_file_number(
        t->prefix_fd,
        cgroup_path(path, slot, CGROUP_DIR_SLOT, v2 ? "memory.current" : "memory.usage_in_bytes"),
        &u->memory_bytes);
    if (r < 0)
        return r;
    /* v2 remembers its peak since 5.19 */
    if (cgroup_file_number(
            t->prefix_fd,
            cgroup_path(path, slot, CGROUP_DIR_SLOT, v2 ? "memory.peak" : "memory.max_usage_in_bytes"),
            &u->memory_peak_bytes) < 0)
        u->memory_peak_bytes = u->memory_bytes;

    if (v2) {
        (void)cgroup_file_key(t->prefix_fd, cgroup_path(path, slot, CGROUP_DIR_SLOT, "memory.events"),
                              "oom_kill", &u->oom_kills); /* 0 before 4.13 */
        return 0;
    }
    /* v1 counts a kill only in the victim's own group */
    static const enum cgroup_dir dirs[] = {CGROUP_DIR_SLOT, CGROUP_DIR_WORK};
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        uint64_t kills;
        if (cgroup_file_key(t->prefix_fd, cgroup_path(path, slot, dirs[i], "memory.oom_control"), "oom_kill",
                            &kills) == 0)
            u->oom_kills += kills;
    }
    return 0;
}

static int cpu_usage(const struct cgroup_tree *t, unsigned slot, struct cgroup_usage *u)
{
    char path[CGROUP_PATH_SIZE];

    if (t->version == CGROUP_V2)
        return cgroup_file_key(t->prefix_fd, cgroup_path(path, slot, CGROUP_DIR_SLOT, "cpu.stat"),
                               "usage_usec", &u->cpu_us);
    uint64_t ns;
    int r = cgroup_file_number(t->prefix_fd, cgroup_path(path, slot, CGROUP_DIR_SLOT, "cpuacct.usage"), &ns);
    if (r == 0)
        u->cpu_us = ns / 1000;
    return r;
}

int cgroup_usage_of(const struct cgroup_host *h, unsigned slot, struct cgroup_usage *ret)
{
    struct cgroup_usage u = {0};
    int r = 0;

    if (h->tree_of[CGROUP_MEMORY])
        r = memory_usage(h->tree_of[CGROUP_MEMORY], slot, &u);
    if (r == 0 && h->tree_of[CGROUP_CPUACCT])
        r = cpu_usage(h->tree_of[CGROUP_CPUACCT], slot, &u);
    if (r == 0 && h->tree_of[CGROUP_PIDS]) {
        char path[CGROUP_PATH_SIZE];
        uint64_t tasks;
        r = cgroup_file_number(h->tree_of[CGROUP_PIDS]->prefix_fd,
                               cgroup_path(path, slot, CGROUP_DIR_SLOT, "pids.current"), &tasks);
        if (r == 0)
            u.tasks = (uint32_t)tasks;
    }
    if (r == 0)
        *ret = u;
    return r;
}
