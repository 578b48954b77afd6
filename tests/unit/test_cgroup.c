/* SPDX-License-Identifier: Apache-2.0 */
/* test_cgroup.c: the pure parts of the cgroup module: mountinfo, the plan of limits, the devices program. */
#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/sysmacros.h>

#include "keeper/cgroup_internal.h"

static struct cgroup_mounts mounts;

static void mounts_from(const char *text)
{
    FILE *f = fmemopen((void *)text, strlen(text), "r");
    REQUIRE(f);
    CHECK_INT(cgroup_mounts_read(f, &mounts), 0);
    (void)fclose(f);
}

static const struct cgroup_mount *mount_with(enum cgroup_version version, unsigned controller)
{
    for (size_t i = 0; i < mounts.count; i++)
        if (mounts.list[i].version == version &&
            (version == CGROUP_V2 || (mounts.list[i].controllers & BIT(controller))))
            return &mounts.list[i];
    return NULL;
}

TEST(mountinfo_v1_with_shared_and_named_hierarchies)
{
    mounts_from(
        "25 30 0:23 / /sys rw,nosuid - sysfs sysfs rw\n"
        "30 25 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755\n"
        "31 30 0:27 / /sys/fs/cgroup/systemd rw shared:10 - cgroup cgroup rw,xattr,name=systemd\n"
        "32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:11 master:3 - cgroup cgroup rw,cpu,cpuacct\n"
        "33 30 0:29 / /sys/fs/cgroup/cpuset rw shared:12 - cgroup cgroup rw,cpuset\n"
        "34 30 0:30 / /sys/fs/cgroup/memory rw shared:13 - cgroup cgroup rw,memory\n"
        "35 30 0:31 / /sys/fs/cgroup/blkio rw shared:14 - cgroup cgroup rw,blkio\n");
    CHECK_INT(mounts.count, 3);
    const struct cgroup_mount *m = mount_with(CGROUP_V1, CGROUP_CPU);
    REQUIRE(m);
    CHECK_STREQ(m->path, "/sys/fs/cgroup/cpu,cpuacct");
    CHECK_INT(m->controllers, BIT(CGROUP_CPU) | BIT(CGROUP_CPUACCT));
    CHECK(m->whole);
    m = mount_with(CGROUP_V1, CGROUP_IO);
    REQUIRE(m);
    CHECK_STREQ(m->path, "/sys/fs/cgroup/blkio");
    CHECK(!mount_with(CGROUP_V1, CGROUP_PIDS));
    CHECK(!mount_with(CGROUP_V2, 0));
}

TEST(mountinfo_v2)
{
    mounts_from("28 25 0:24 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 "
                "rw,nsdelegate,memory_recursiveprot\n");
    CHECK_INT(mounts.count, 1);
    CHECK_INT(mounts.list[0].version, CGROUP_V2);
    CHECK_STREQ(mounts.list[0].path, "/sys/fs/cgroup");
}

TEST(mountinfo_hybrid)
{
    mounts_from("32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
                "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
                "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
    CHECK_INT(mounts.count, 3);
    REQUIRE(mount_with(CGROUP_V2, 0));
    CHECK_STREQ(mount_with(CGROUP_V2, 0)->path, "/sys/fs/cgroup/unified");
}

TEST(mountinfo_unescapes)
{
    mounts_from("1 2 0:3 / /a\\040b\\011c\\012d\\134e/\\9\\04 rw - cgroup cgroup rw,pids\n");
    CHECK_INT(mounts.count, 1);
    CHECK_STREQ(mounts.list[0].path, "/a b\tc\nd\\e/\\9\\04");
    /* a NUL would cut the path */
    mounts_from("1 2 0:3 / /a\\000b rw - cgroup cgroup rw,pids\n");
    CHECK_INT(mounts.count, 0);
}

TEST(mountinfo_prefers_the_root_of_a_hierarchy)
{
    mounts_from("1 2 0:3 /docker/x /part rw - cgroup cgroup rw,memory\n"
                "1 2 0:3 / /first rw - cgroup cgroup rw,memory\n"
                "1 2 0:3 / /second rw - cgroup cgroup rw,memory\n");
    CHECK_INT(mounts.count, 1);
    CHECK_STREQ(mounts.list[0].path, "/first");
    mounts_from("1 2 0:3 /docker/x /part rw - cgroup cgroup rw,memory\n");
    CHECK_INT(mounts.count, 1);
    CHECK(!mounts.list[0].whole);
}

TEST(mountinfo_skips_what_it_cannot_use)
{
    mounts_from("1 2 0:3 / /a ro - cgroup cgroup rw,memory\n"
                "1 2 0:3 / /b rw - cgroup cgroup ro,memory\n"
                "1 2 0:3 / /c rw - cgroup2x cgroup rw,memory\n"
                "1 2 0:3 / /d rw - ext4 cgroup rw,memory\n"
                "1 2 0:3 / /e rw - cgroup cgroup rw,memoryx,name=memory\n"
                "1 2 0:3 / /f rw cgroup cgroup rw,memory\n"
                "1 2 0:3 / /g rw - cgroup\n"
                "1 2 0:3\n"
                "\n"
                "-");
    CHECK_INT(mounts.count, 0);
}

/* --- limits --- */

static const struct limits example = {
    .memory_bytes = UINT64_C(1) << 30, .io_bps = 100000000, .io_iops = 2000, .tasks = 512, .cpu_milli = 1500};

static struct cgroup_setting settings[CGROUP_SETTINGS_MAX];

static size_t plan(enum cgroup_version version, const struct limits *l, dev_t dev)
{
    enum cgroup_version all[CGROUP_CONTROLLER_COUNT];
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        all[i] = version;
    return cgroup_settings_plan(all, l, dev, settings);
}

static const char *planned(size_t n, enum cgroup_dir dir, const char *file)
{
    for (size_t i = 0; i < n; i++)
        if (settings[i].dir == dir && strcmp(settings[i].file, file) == 0)
            return settings[i].value;
    return NULL;
}

TEST(limits_v1)
{
    size_t n = plan(CGROUP_V1, &example, makedev(7, 12));
    CHECK_INT(n, 13);
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "memory.limit_in_bytes"), "1073741824");
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "memory.memsw.limit_in_bytes"), "1073741824");
    CHECK_STREQ(planned(n, CGROUP_DIR_WORK, "memory.limit_in_bytes"), "1040187392");
    CHECK_STREQ(planned(n, CGROUP_DIR_WORK, "memory.memsw.limit_in_bytes"), "1040187392");
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "pids.max"), "528");
    CHECK_STREQ(planned(n, CGROUP_DIR_WORK, "pids.max"), "512");
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "cpu.cfs_period_us"), "100000");
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "cpu.cfs_quota_us"), "150000");
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "cpu.shares"), "256");
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "blkio.throttle.read_bps_device"), "7:12 100000000");
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "blkio.throttle.write_bps_device"), "7:12 100000000");
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "blkio.throttle.read_iops_device"), "7:12 2000");
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "blkio.throttle.write_iops_device"), "7:12 2000");
}

TEST(limits_v2)
{
    size_t n = plan(CGROUP_V2, &example, makedev(259, 3));
    CHECK_INT(n, 9);
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "memory.max"), "1073741824");
    CHECK_STREQ(planned(n, CGROUP_DIR_WORK, "memory.max"), "1040187392");
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "memory.swap.max"), "0");
    CHECK(!planned(n, CGROUP_DIR_SLOT, "memory.high"));
    CHECK_STREQ(planned(n, CGROUP_DIR_WORK, "memory.high"), "1023410176"); /* 16 MiB less */
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "pids.max"), "528");
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "cpu.max"), "150000 100000");
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "cpu.weight"), "25");
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "io.max"),
                "259:3 rbps=100000000 wbps=100000000 riops=2000 wiops=2000");
}

TEST(limits_at_the_edges)
{
    struct limits l = example;
    l.memory_bytes = 40 << 20; /* 32 MiB less would leave the workload almost nothing */
    size_t n = plan(CGROUP_V2, &l, 0);
    CHECK_STREQ(planned(n, CGROUP_DIR_WORK, "memory.max"), "20971520");
    CHECK_STREQ(planned(n, CGROUP_DIR_WORK, "memory.high"), "19922944"); /* 95 % */
    CHECK(!planned(n, CGROUP_DIR_SLOT, "io.max"));

    l = (struct limits){.memory_bytes = UINT64_MAX,
                        .io_bps = UINT64_MAX,
                        .io_iops = UINT64_MAX,
                        .tasks = UINT32_MAX,
                        .cpu_milli = UINT32_MAX};
    n = plan(CGROUP_V2, &l, makedev(0xfffff, 0xfffff));
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "pids.max"), "4294967311");
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "cpu.max"), "429496729500 100000");
    CHECK_STREQ(planned(n, CGROUP_DIR_SLOT, "io.max"),
                "1048575:1048575 rbps=18446744073709551615 wbps=18446744073709551615 "
                "riops=18446744073709551615 wiops=18446744073709551615");
    CHECK_INT(plan(CGROUP_MISSING, &example, makedev(7, 0)), 0);
}

TEST(text_lookups)
{
    uint64_t v = 0;
    const char *text = "oom 3\noom_kill 12\nempty \nlast 18446744073709551615";
    CHECK(cgroup_text_key(text, "oom_kill", &v) && v == 12);
    CHECK(cgroup_text_key(text, "oom", &v) && v == 3);
    CHECK(cgroup_text_key(text, "last", &v) && v == UINT64_MAX);
    CHECK(!cgroup_text_key(text, "kill", &v));
    CHECK(!cgroup_text_key(text, "empty", &v));
    CHECK(!cgroup_text_key("a -1\nb 1x\nc 18446744073709551616", "a", &v));
    CHECK(!cgroup_text_key("a -1\nb 1x\nc 18446744073709551616", "b", &v));
    CHECK(!cgroup_text_key("a -1\nb 1x\nc 18446744073709551616", "c", &v));
    CHECK(!cgroup_text_key("", "a", &v));

    CHECK(cgroup_text_has_word("cpuset cpu io\n", "cpu"));
    CHECK(cgroup_text_has_word("cpuset cpu io\n", "io"));
    CHECK(!cgroup_text_has_word("cpuset io\n", "cpu"));
    CHECK(!cgroup_text_has_word("", "cpu"));
    CHECK(!cgroup_text_has_word(" \n", "cpu"));

    char path[CGROUP_PATH_SIZE];
    CHECK_STREQ(cgroup_path(path, 4294967295, CGROUP_DIR_WORK, "blkio.throttle.write_iops_device"),
                "4294967295/work/blkio.throttle.write_iops_device");
    CHECK_STREQ(cgroup_path(path, 0, CGROUP_DIR_SLOT, ""), "0");
}

/* --- devices --- */

/* Runs the program as the kernel would; -1 when it uses what this machine does not know or leaves its bounds.
 */
static int devices_ask(const struct bpf_insn *p, size_t n, const struct bpf_cgroup_dev_ctx *ctx)
{
    uint64_t r[11] = {0};
    for (size_t pc = 0; pc < n; pc++) {
        uint64_t imm = (uint64_t)(int64_t)p[pc].imm, *dst = &r[p[pc].dst_reg];
        switch (p[pc].code) {
        case BPF_LDX | BPF_MEM | BPF_W:
            if (p[pc].src_reg != BPF_REG_1 || (size_t)p[pc].off + 4 > sizeof *ctx)
                return -1;
            uint32_t word;
            memcpy(&word, (const char *)ctx + p[pc].off, sizeof word);
            *dst = word;
            break;
        case BPF_ALU64 | BPF_MOV | BPF_X:
            *dst = r[p[pc].src_reg];
            break;
        case BPF_ALU64 | BPF_MOV | BPF_K:
            *dst = imm;
            break;
        case BPF_ALU64 | BPF_AND | BPF_K:
            *dst &= imm;
            break;
        case BPF_ALU64 | BPF_RSH | BPF_K:
            *dst >>= imm;
            break;
        case BPF_JMP | BPF_JNE | BPF_K:
            pc += *dst != imm ? (size_t)p[pc].off : 0;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            pc += *dst & imm ? (size_t)p[pc].off : 0;
            break;
        case BPF_JMP | BPF_EXIT:
            return (int)r[0];
        default:
            return -1;
        }
    }
    return -1;
}

TEST(devices_program_allows_exactly_the_list)
{
    struct bpf_insn p[CGROUP_DEVICES_INSNS_MAX];
    size_t n = cgroup_devices_program(p);
    REQUIRE(n <= ARRAY_SIZE(p));
    static const struct {
        uint32_t major, minor;
    } expected[] = {{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}, {5, 2}};

    unsigned wrong = 0, allowed = 0;
    for (uint32_t type = 0; type <= 3; type++)
        for (uint32_t access = 0; access <= 7; access++)
            for (uint32_t ma = 0; ma <= 300; ma++)
                for (uint32_t mi = 0; mi <= 300; mi += mi < 20 ? 1 : 70) {
                    struct bpf_cgroup_dev_ctx ctx = {
                        .access_type = access << 16 | type, .major = ma, .minor = mi};
                    bool want = ma == 136;
                    for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
                        want |= ma == expected[i].major && mi == expected[i].minor;
                    want = want && type == BPF_DEVCG_DEV_CHAR && !(access & BPF_DEVCG_ACC_MKNOD);
                    wrong += devices_ask(p, n, &ctx) != want;
                    allowed += want;
                }
    CHECK_INT(wrong, 0);
    CHECK(allowed > 0);
}

TEST(host_rejects_bad_names)
{
    static const char *const bad[] = {
        "", "..", "a/b", "a b", "UPPER", "0123456789012345678901234567890123456789012345678901234567890123"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct cgroup_host *h = NULL;
        struct error e = {0};
        CHECK_INT(cgroup_host_open(bad[i], &h, &e), -EINVAL);
        CHECK(!h && e.code == EINVAL);
    }
}

TEST(host_without_control_groups)
{
    static char text[] = "1 2 0:3 / / rw - ext4 /dev/x rw\n";
    struct limits l = example;
    struct cgroup_host *h = NULL;
    struct cgroup *g = NULL;
    struct error e = {0};
    FILE *f = fmemopen(text, strlen(text), "r");
    REQUIRE(f);
    CHECK_INT(cgroup_host_open_from(f, "silica-test-none", &h, &e), 0);
    (void)fclose(f);
    REQUIRE(h);
    for (unsigned c = 0; c < CGROUP_CONTROLLER_COUNT; c++)
        CHECK_INT(cgroup_version_of(h, c), CGROUP_MISSING);
    CHECK_INT(cgroup_adopt(h, 1, &g, &e), -ENOENT);
    CHECK_INT(cgroup_create(h, 1, &l, 0, &g, &e), 0);
    if (g) {
        struct cgroup_usage u = {.tasks = 9};
        CHECK_INT(cgroup_clone_fd(g), -1);
        CHECK_INT(cgroup_usage_read(g, &u), 0);
        CHECK_INT(u.tasks, 0);
        CHECK_INT(cgroup_freeze(g, true, &e), -EOPNOTSUPP);
        CHECK_INT(cgroup_kill(g, &e), -EOPNOTSUPP);
        CHECK_INT(cgroup_remove(g), 0);
    }
    cgroup_host_free(h);
}
