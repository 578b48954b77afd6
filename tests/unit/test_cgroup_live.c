/* SPDX-License-Identifier: Apache-2.0 */
/* test_cgroup_live.c: the cgroup module on the kernel's real control groups (OPS-02); needs root.
 *
 * Every test runs with all hierarchies of the host, with v1 only and with v2 only (by hiding lines of
 * mountinfo), each time below a prefix group of its own, which is emptied and removed whatever the outcome.
 * What a host lacks is skipped; tests/vm/run says how to run this on a machine of another kind. */
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "keeper/cgroup_internal.h"

#define MiB (UINT64_C(1) << 20)

enum flavour { WHOLE, ONLY_V1, ONLY_V2, ONLY_PIDS_V1 };
enum { WAIT_MS = 60000 };

struct fixture {
    struct cgroup_host *host;
    enum flavour flavour;
    char prefix[48];
    struct error e;
    pid_t children[32];
    size_t child_count;
};

static const struct limits normal = {
    .memory_bytes = 256 * MiB, .io_bps = 10000000, .io_iops = 500, .tasks = 64, .cpu_milli = 1000};

static void pause_ms(long ms)
{
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&t, NULL);
}

/* Waits for a condition; false after WAIT_MS. */
#define EVENTUALLY(cond)                                    \
    ({                                                      \
        int64_t until_ = clock_mono_ms() + WAIT_MS;         \
        bool ok_;                                           \
        while (!(ok_ = (cond)) && clock_mono_ms() < until_) \
            pause_ms(1);                                    \
        ok_;                                                \
    })

/* --- fixture --- */

static int host_open(enum flavour flavour, const char *prefix, struct cgroup_host **ret, struct error *e)
{
    if (flavour == WHOLE)
        return cgroup_host_open(prefix, ret, e);

    char *text = NULL, *line = NULL;
    size_t size = 0, cap = 0;
    FILE *in = fopen("/proc/self/mountinfo", "re"), *out = open_memstream(&text, &size);
    while (in && out && getline(&line, &cap, in) >= 0)
        if (strstr(line, flavour == ONLY_V2 ? " - cgroup2 " : " - cgroup ") &&
            (flavour != ONLY_PIDS_V1 || strstr(line, ",pids")))
            (void)fputs(line, out);
    if (out)
        (void)fputs("0 0 0:0 / / rw - none none rw\n", out); /* fmemopen refuses an empty text */
    if (in)
        (void)fclose(in);
    if (out)
        (void)fclose(out);
    in = text ? fmemopen(text, size, "r") : NULL;
    int r = in ? cgroup_host_open_from(in, prefix, ret, e) : -ENOMEM;
    if (in)
        (void)fclose(in);
    free(line);
    free(text);
    return r;
}

static void slot_sweep(unsigned slot, void *arg)
{
    struct fixture *f = arg;
    struct cgroup *g = NULL;
    if (cgroup_adopt(f->host, slot, &g, NULL) < 0)
        return;
    if (cgroup_version_of(f->host, CGROUP_FREEZER) != CGROUP_MISSING)
        (void)cgroup_freeze(g, false, NULL);
    (void)cgroup_kill(g, NULL);
    int r = -EBUSY;
    if (!EVENTUALLY((r = cgroup_remove(g)) == 0)) {
        CHECK_INT(r, 0);
        cgroup_forget(g);
    }
}

static void fixture_done(struct fixture *f)
{
    if (!f->host)
        return;
    for (size_t i = 0; i < f->child_count; i++)
        if (f->children[i] > 0)
            (void)kill(f->children[i], SIGKILL);
    CHECK_INT(cgroup_host_scan(f->host, slot_sweep, f), 0);
    for (size_t i = 0; i < f->child_count; i++)
        if (f->children[i] > 0)
            (void)waitpid(f->children[i], NULL, 0);
    int r = 0;
    (void)EVENTUALLY((r = cgroup_host_remove(f->host)) == 0);
    CHECK_INT(r, 0);
    cgroup_host_free(f->host);
}

static bool fixture_open(struct fixture *f, enum flavour flavour)
{
    static unsigned serial;
    if (geteuid() != 0) {
        test_skip("needs root");
        return false;
    }
    f->flavour = flavour;
    (void)snprintf(f->prefix, sizeof f->prefix, "silica-test-%d-%u", getpid(), serial++);
    int r = host_open(flavour, f->prefix, &f->host, &f->e);
    if (r < 0) {
        CHECK_STREQ(f->e.msg, "");
        return false;
    }
    if (f->host->tree_count == 0) {
        test_skip("no such control groups here");
        fixture_done(f);
        return false;
    }
    return true;
}

#define LIVE_TEST(name)                              \
    static void live_##name(struct fixture *f);      \
    static void flavour_##name(enum flavour flavour) \
    {                                                \
        struct fixture f = {0};                      \
        if (fixture_open(&f, flavour)) {             \
            live_##name(&f);                         \
            fixture_done(&f);                        \
        }                                            \
    }                                                \
    TEST(name)                                       \
    {                                                \
        flavour_##name(WHOLE);                       \
    }                                                \
    TEST(name##_only_v1)                             \
    {                                                \
        flavour_##name(ONLY_V1);                     \
    }                                                \
    TEST(name##_only_v2)                             \
    {                                                \
        flavour_##name(ONLY_V2);                     \
    }                                                \
    static void live_##name(struct fixture *f)

#define NEED(f, controller)                                               \
    do {                                                                  \
        if (cgroup_version_of((f)->host, controller) == CGROUP_MISSING) { \
            test_skip("controller missing: " #controller);                \
            return;                                                       \
        }                                                                 \
    } while (0)

/* --- children --- */

/* Waits for one byte on the socket, then runs main; what that returns is the exit status. */
struct child {
    pid_t pid;
    int sock;
};

static bool child_go(const struct child *c)
{
    return write(c->sock, "g", 1) == 1;
}

static struct child child_start(struct fixture *f, int clone_fd, int (*main)(int sock, void *arg), void *arg)
{
    int pair[2];
    struct child c = {.pid = -1, .sock = -1};
    if (f->child_count == ARRAY_SIZE(f->children) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return c;
    if (clone_fd >= 0) {
        struct clone_args a = {
            .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)clone_fd};
        c.pid = (pid_t)syscall(SYS_clone3, &a, sizeof a);
    } else {
        c.pid = fork();
    }
    if (c.pid == 0) {
        char byte;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)close(pair[0]);
        _exit(read(pair[1], &byte, 1) == 1 ? main(pair[1], arg) : 99);
    }
    (void)close(pair[1]);
    c.sock = pair[0];
    if (c.pid > 0)
        f->children[f->child_count++] = c.pid;
    return c;
}

/* The wait status; the child is forgotten. */
static int child_wait(struct fixture *f, struct child *c)
{
    int status = -1;
    if (!EVENTUALLY(waitpid(c->pid, &status, WNOHANG) != 0)) {
        test_fail(__FILE__, __LINE__, "a child does not end");
        (void)kill(c->pid, SIGKILL);
        (void)waitpid(c->pid, NULL, 0);
    }
    for (size_t i = 0; i < f->child_count; i++)
        if (f->children[i] == c->pid)
            f->children[i] = 0;
    close_fd(&c->sock);
    return status;
}

static int main_idle(int sock, void *arg)
{
    (void)arg;
    char byte;
    (void)!read(sock, &byte, 1);
    return 0;
}

static struct cgroup *group_make(struct fixture *f, unsigned slot, const struct limits *l)
{
    struct cgroup *g = NULL;
    if (cgroup_create(f->host, slot, l, 0, &g, &f->e) < 0) {
        test_fail(__FILE__, __LINE__, f->e.msg);
        return NULL;
    }
    return g;
}

/* A child inside the sandbox (or in its work group), as the keeper makes it. */
static struct child child_in(struct fixture *f, struct cgroup *g, bool work, int (*main)(int, void *),
                             void *arg)
{
    struct child c = child_start(f, cgroup_clone_fd(g), main, arg);
    if (cgroup_attach(g, c.pid, &f->e) < 0 || (work && cgroup_attach_work(g, c.pid, &f->e) < 0))
        test_fail(__FILE__, __LINE__, f->e.msg);
    return c;
}

static void group_end(struct fixture *f, struct cgroup *g)
{
    CHECK_INT(cgroup_kill(g, &f->e), 0);
    CHECK(EVENTUALLY(cgroup_empty(g)));
    int r = -EBUSY;
    if (!EVENTUALLY((r = cgroup_remove(g)) == 0)) {
        CHECK_INT(r, 0);
        cgroup_forget(g);
    }
}

static bool dir_exists(const struct cgroup_tree *t, unsigned slot)
{
    char path[CGROUP_PATH_SIZE];
    struct stat st;
    return fstatat(t->prefix_fd, cgroup_path(path, slot, CGROUP_DIR_SLOT, ""), &st, 0) == 0;
}

static bool slot_exists(struct fixture *f, unsigned slot)
{
    for (size_t i = 0; i < f->host->tree_count; i++)
        if (f->host->trees[i].dirs && dir_exists(&f->host->trees[i], slot))
            return true;
    return false;
}

/* --- limits --- */

static dev_t some_disk(void)
{
    unsigned ma, mi;
    dev_t dev = 0;
    DIR *d = opendir("/sys/block");
    for (struct dirent *e; d && !dev && (e = readdir(d));) {
        char path[PATH_MAX];
        (void)snprintf(path, sizeof path, "/sys/block/%s/dev", e->d_name);
        FILE *f = fopen(path, "re");
        if (f && fscanf(f, "%u:%u", &ma, &mi) == 2)
            dev = makedev(ma, mi);
        if (f)
            (void)fclose(f);
    }
    if (d)
        (void)closedir(d);
    return dev;
}

/* Every planned value is what the kernel tells (which rounds memory down to pages). */
static void settings_check(struct fixture *f, unsigned slot, const struct limits *l, dev_t dev)
{
    struct cgroup_setting s[CGROUP_SETTINGS_MAX];
    size_t n = cgroup_settings_plan(f->host->version, l, dev, s);

    for (size_t i = 0; i < n; i++) {
        char path[CGROUP_PATH_SIZE], have[512], want[160];
        int r = cgroup_file_read(f->host->tree_of[s[i].controller]->prefix_fd,
                                 cgroup_path(path, slot, s[i].dir, s[i].file), have, sizeof have);
        if (r == -ENOENT && s[i].optional)
            continue;
        REQUIRE(r > 0);
        if (s[i].controller == CGROUP_MEMORY)
            (void)snprintf(want, sizeof want, "%llu\n", strtoull(s[i].value, NULL, 10) / 4096 * 4096);
        else
            (void)snprintf(want, sizeof want, "%s\n", s[i].value);
        CHECK_STREQ(have, want);
    }
}

LIVE_TEST(limits_are_read_back)
{
    dev_t dev = some_disk();
    struct cgroup *g = NULL;
    CHECK_INT(cgroup_create(f->host, 5, &normal, dev, &g, &f->e), 0);
    REQUIRE(g);
    settings_check(f, 5, &normal, dev);

    /* up, down, and to the smallest */
    struct limits l = normal;
    static const unsigned mib[] = {512, 300, 64, 256};
    for (size_t i = 0; i < ARRAY_SIZE(mib); i++) {
        l.memory_bytes = mib[i] * MiB;
        l.tasks = mib[i];
        l.cpu_milli = mib[i];
        l.io_bps = mib[i] * MiB;
        CHECK_INT(cgroup_set_limits(g, &l, dev, &f->e), 0);
        settings_check(f, 5, &l, dev);
    }
    CHECK_INT(cgroup_remove(g), 0);
    CHECK(!slot_exists(f, 5));
}

LIVE_TEST(create_undoes_itself)
{
    struct cgroup *g = NULL;
    NEED(f, CGROUP_IO);
    CHECK(cgroup_create(f->host, 6, &normal, makedev(4000, 99), &g, &f->e) < 0);
    CHECK(strstr(f->e.msg, "slot 6") && strstr(f->e.msg, "4000:99"));
    CHECK(!g && !slot_exists(f, 6));
}

LIVE_TEST(create_leaves_a_strangers_groups_alone)
{
    struct cgroup *g = group_make(f, 6, &normal), *again = NULL;
    REQUIRE(g);
    struct child c = child_in(f, g, true, main_idle, NULL);
    CHECK_INT(cgroup_create(f->host, 6, &normal, 0, &again, &f->e), -EEXIST);
    CHECK(!again);
    settings_check(f, 6, &normal, 0);
    CHECK(!cgroup_empty(g));
    CHECK_INT(cgroup_remove(g), -EBUSY);
    group_end(f, g);
    CHECK(WIFSIGNALED(child_wait(f, &c)));
}

/* --- processes --- */

/* The lines of /proc/<pid>/cgroup which end with the slot (or something below it). */
static unsigned memberships(struct fixture *f, pid_t pid, const char *suffix)
{
    char path[64], line[4096], want[96];
    unsigned n = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/cgroup", pid);
    (void)snprintf(want, sizeof want, "/%s%s\n", f->prefix, suffix);
    FILE *in = fopen(path, "re");
    while (in && fgets(line, sizeof line, in)) {
        size_t a = strlen(line), b = strlen(want);
        n += a >= b && strcmp(line + a - b, want) == 0;
    }
    if (in)
        (void)fclose(in);
    return n;
}

LIVE_TEST(attach_reaches_every_group)
{
    unsigned slots = 0, agents = 0, works = 0, shared = 0;
    for (size_t i = 0; i < f->host->tree_count; i++) {
        uint32_t dirs = f->host->trees[i].dirs;
        shared += dirs == 0;
        slots += dirs != 0;
        works += (dirs & BIT(CGROUP_DIR_WORK)) != 0;
        agents += (dirs & BIT(CGROUP_DIR_AGENT)) != 0;
    }
    struct cgroup *g = group_make(f, 9, &normal);
    REQUIRE(g);
    CHECK(cgroup_empty(g));
    CHECK((cgroup_clone_fd(g) >= 0) == (f->host->v2 != NULL));

    /* moved, and made in its group */
    for (int cloned = 0; cloned < 2; cloned++) {
        struct child c = child_start(f, cloned ? cgroup_clone_fd(g) : -1, main_idle, NULL);
        REQUIRE(c.pid > 0);
        CHECK_INT(cgroup_attach(g, c.pid, &f->e), 0);
        CHECK_INT(memberships(f, c.pid, "/9"), slots - agents);
        CHECK_INT(memberships(f, c.pid, "/9/agent"), agents);
        CHECK_INT(memberships(f, c.pid, ""), shared);
        CHECK_INT(cgroup_attach_work(g, c.pid, &f->e), 0);
        CHECK_INT(memberships(f, c.pid, "/9"), slots - works);
        CHECK_INT(memberships(f, c.pid, "/9/work"), works);
        CHECK(!cgroup_empty(g));

        struct cgroup_usage u = {0};
        CHECK_INT(cgroup_usage_read(g, &u), 0);
        if (cgroup_version_of(f->host, CGROUP_PIDS) != CGROUP_MISSING)
            CHECK_INT(u.tasks, 1);
        CHECK(child_go(&c) && child_go(&c));
        CHECK_INT(child_wait(f, &c), 0);
        CHECK(EVENTUALLY(cgroup_empty(g)));
    }
    CHECK_INT(cgroup_attach(g, 0, &f->e), -EINVAL);
    CHECK_INT(cgroup_attach_work(g, -1, &f->e), -EINVAL);
    CHECK_INT(cgroup_remove(g), 0);
}

static int main_fork(int sock, void *arg)
{
    int made = 0, error = 0;
    (void)sock;
    (void)arg;
    while (made < 100) {
        pid_t pid = fork();
        if (pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                (void)pause();
        }
        if (pid < 0) {
            error = errno;
            break;
        }
        made++;
    }
    return error == EAGAIN ? made : 100;
}

LIVE_TEST(tasks_are_limited)
{
    NEED(f, CGROUP_PIDS);
    struct limits l = normal;
    l.tasks = 6;
    struct cgroup *g = group_make(f, 1, &l);
    REQUIRE(g);
    struct child work = child_in(f, g, true, main_fork, NULL);
    CHECK(child_go(&work));
    int status = child_wait(f, &work);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 5); /* and itself */
    group_end(f, g);

    g = group_make(f, 1, &l);
    REQUIRE(g);
    struct child agent = child_in(f, g, false, main_fork, NULL);
    CHECK(child_go(&agent));
    status = child_wait(f, &agent);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 21);
    group_end(f, g);
}

static int main_touch(int sock, void *arg)
{
    (void)sock;
    size_t n = *(size_t *)arg;
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return 1;
    for (size_t i = 0; i < n; i += 4096)
        p[i] = 1;
    return 0;
}

LIVE_TEST(memory_is_limited)
{
    NEED(f, CGROUP_MEMORY);
    struct limits l = normal;
    l.memory_bytes = 128 * MiB;
    struct cgroup *g = group_make(f, 1, &l);
    REQUIRE(g);
    size_t fits = 48 * MiB, too_much = 160 * MiB;
    struct child agent = child_in(f, g, false, main_idle, NULL);
    struct child small = child_in(f, g, true, main_touch, &fits);
    struct child large = child_in(f, g, true, main_touch, &too_much);

    CHECK(child_go(&small));
    CHECK_INT(child_wait(f, &small), 0);
    struct cgroup_usage u = {0};
    CHECK_INT(cgroup_usage_read(g, &u), 0);
    CHECK_INT(u.oom_kills, 0);
    CHECK(u.memory_peak_bytes >= fits && u.memory_peak_bytes <= l.memory_bytes);

    CHECK(child_go(&large));
    int status = child_wait(f, &large);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK(EVENTUALLY(cgroup_usage_read(g, &u) == 0 && u.oom_kills == 1));
    CHECK(u.memory_peak_bytes > 64 * MiB && u.memory_peak_bytes <= l.memory_bytes);

    CHECK(child_go(&agent) && child_go(&agent));
    CHECK_INT(child_wait(f, &agent), 0);
    group_end(f, g);
}

static int main_burn(int sock, void *arg)
{
    (void)sock;
    for (;;)
        atomic_fetch_add((_Atomic uint64_t *)arg, 1);
    return 0;
}

static _Atomic uint64_t *counter_new(void)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

LIVE_TEST(freeze_stops_and_thaw_resumes)
{
    NEED(f, CGROUP_FREEZER);
    _Atomic uint64_t *count = counter_new();
    struct cgroup *g = group_make(f, 2, &normal);
    REQUIRE(g && count);
    struct child c = child_in(f, g, true, main_burn, count);
    CHECK(child_go(&c));
    CHECK(EVENTUALLY(atomic_load(count) > 0));

    for (int i = 0; i < 3; i++) {
        CHECK_INT(cgroup_freeze(g, true, &f->e), 0);
        CHECK_INT(cgroup_freeze(g, true, &f->e), 0);
        uint64_t at = atomic_load(count);
        pause_ms(20); /* nothing may happen: there is no condition to wait for */
        CHECK(atomic_load(count) == at);
        CHECK_INT(cgroup_freeze(g, false, &f->e), 0);
        CHECK(EVENTUALLY(atomic_load(count) > at));
    }
    struct cgroup_usage u = {0};
    if (f->host->tree_of[CGROUP_CPUACCT])
        CHECK(EVENTUALLY(cgroup_usage_read(g, &u) == 0 && u.cpu_us > 1000));

    /* the frozen die, too */
    CHECK_INT(cgroup_freeze(g, true, &f->e), 0);
    group_end(f, g);
    CHECK(WIFSIGNALED(child_wait(f, &c)));
    (void)munmap((void *)count, 4096);
}

static int main_breed(int sock, void *arg)
{
    (void)sock;
    (void)arg;
    /* whoever is killed is replaced by the others, each in a session of its own */
    for (;;) {
        pid_t pid = fork();
        if (pid == 0)
            (void)setsid();
        if (pid < 0)
            pause_ms(1);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
    return 0;
}

LIVE_TEST(kill_ends_a_fork_bomb)
{
    NEED(f, CGROUP_PIDS);
    struct limits l = normal;
    l.tasks = 24;
    struct cgroup *g = group_make(f, 3, &l);
    REQUIRE(g);
    struct child c = child_in(f, g, true, main_breed, NULL);
    struct cgroup_usage u = {0};
    CHECK(child_go(&c));
    CHECK(EVENTUALLY(cgroup_usage_read(g, &u) == 0 && u.tasks == 24));
    group_end(f, g);
    CHECK(WIFSIGNALED(child_wait(f, &c)));
    CHECK(!slot_exists(f, 3));
}

/* without cgroup.kill and freezer, there is only the race against it */
TEST(kill_ends_a_fork_bomb_only_pids_v1)
{
    flavour_kill_ends_a_fork_bomb(ONLY_PIDS_V1);
}

LIVE_TEST(two_sandboxes_do_not_touch_each_other)
{
    struct cgroup *a = group_make(f, 0, &normal), *b = group_make(f, 4000000000, &normal);
    REQUIRE(a && b);
    struct child ca = child_in(f, a, true, main_idle, NULL), cb = child_in(f, b, true, main_idle, NULL);
    group_end(f, a);
    CHECK(WIFSIGNALED(child_wait(f, &ca)));
    CHECK(!slot_exists(f, 0) && slot_exists(f, 4000000000));
    CHECK(!cgroup_empty(b));
    CHECK(child_go(&cb) && child_go(&cb));
    CHECK_INT(child_wait(f, &cb), 0);
    group_end(f, b);
}

/* --- restart --- */

struct seen {
    unsigned slots[8];
    size_t count;
};

static void slot_seen(unsigned slot, void *arg)
{
    struct seen *s = arg;
    if (s->count < ARRAY_SIZE(s->slots))
        s->slots[s->count++] = slot;
}

LIVE_TEST(a_new_keeper_finds_and_adopts)
{
    struct cgroup *g = NULL;
    struct seen seen = {0};
    CHECK_INT(cgroup_host_scan(f->host, slot_seen, &seen), 0);
    CHECK_INT(seen.count, 0);
    CHECK_INT(cgroup_adopt(f->host, 3, &g, &f->e), -ENOENT);

    struct cgroup *three = group_make(f, 3, &normal), *eleven = group_make(f, 11, &normal);
    REQUIRE(three && eleven);
    struct child c = child_in(f, three, true, main_idle, NULL);
    cgroup_forget(three);
    cgroup_forget(eleven);
    cgroup_host_free(f->host);
    f->host = NULL;
    REQUIRE(host_open(f->flavour, f->prefix, &f->host, &f->e) == 0);

    /* what a keeper leaves that is killed while making groups, and what is none of ours */
    const struct cgroup_tree *last = NULL;
    for (size_t i = 0; i < f->host->tree_count; i++)
        if (f->host->trees[i].dirs)
            last = &f->host->trees[i];
    REQUIRE(last);
    CHECK_INT(mkdirat(last->prefix_fd, "7", 0755), 0);
    static const char *const foreign[] = {"x", "08", "99999999999"};
    for (size_t i = 0; i < ARRAY_SIZE(foreign); i++)
        CHECK_INT(mkdirat(last->prefix_fd, foreign[i], 0755), 0);

    CHECK_INT(cgroup_host_scan(f->host, slot_seen, &seen), 0);
    CHECK_INT(seen.count, 3);
    CHECK(seen.slots[0] == 3 && seen.slots[1] == 7 && seen.slots[2] == 11);
    for (size_t i = 0; i < ARRAY_SIZE(foreign); i++)
        CHECK_INT(unlinkat(last->prefix_fd, foreign[i], AT_REMOVEDIR), 0);

    for (size_t i = 0; i < seen.count; i++) {
        REQUIRE(cgroup_adopt(f->host, seen.slots[i], &g, &f->e) == 0);
        CHECK_INT(cgroup_empty(g), seen.slots[i] != 3);
        if (seen.slots[i] == 3) {
            CHECK_INT(cgroup_clone_fd(g) >= 0, f->host->v2 != NULL);
            settings_check(f, 3, &normal, 0);
        }
        group_end(f, g);
        CHECK(!slot_exists(f, seen.slots[i]));
    }
    CHECK(WIFSIGNALED(child_wait(f, &c)));
}

/* --- devices --- */

static int main_open(int sock, void *arg)
{
    (void)sock;
    int fd = open(arg, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? errno : 0;
}

static int main_mknod(int sock, void *arg)
{
    (void)sock;
    return mknod(arg, S_IFCHR | 0600, makedev(1, 3)) < 0 ? errno : 0;
}

static int device_answer(struct fixture *f, struct cgroup *g, int (*main)(int, void *), const char *path)
{
    struct child c = child_in(f, g, false, main, (void *)path);
    CHECK(child_go(&c));
    int status = child_wait(f, &c);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

LIVE_TEST(only_listed_devices_open)
{
    NEED(f, CGROUP_DEVICES);
    struct cgroup *g = group_make(f, 8, &normal);
    REQUIRE(g);
    static const char *const allowed[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random",
                                          "/dev/urandom"};
    for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
        CHECK_INT(device_answer(f, g, main_open, allowed[i]), 0);

    static const char *const denied[] = {"/dev/fuse", "/dev/kvm",  "/dev/loop-control", "/dev/kmsg",
                                         "/dev/vda",  "/dev/sda",  "/dev/loop0",        "/dev/net/tun",
                                         "/dev/mem",  "/dev/vcs1", "/dev/hwrng"};
    unsigned tried = 0;
    for (size_t i = 0; i < ARRAY_SIZE(denied); i++) {
        int fd = open(denied[i], O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
            continue; /* proves nothing */
        (void)close(fd);
        tried++;
        CHECK_INT(device_answer(f, g, main_open, denied[i]), EPERM);
    }
    CHECK(tried > 0);

    char dir[] = "/tmp/silica-test-XXXXXX", node[64];
    REQUIRE(mkdtemp(dir));
    (void)snprintf(node, sizeof node, "%s/null", dir);
    CHECK_INT(device_answer(f, g, main_mknod, node), EPERM);
    (void)unlink(node);
    (void)rmdir(dir);
    group_end(f, g);
}

static int programs_attached(int group_fd)
{
    uint32_t ids[64];
    union bpf_attr q = {.query = {.target_fd = (uint32_t)group_fd,
                                  .attach_type = BPF_CGROUP_DEVICE,
                                  .prog_ids = (uintptr_t)ids,
                                  .prog_cnt = ARRAY_SIZE(ids)}};
    return syscall(SYS_bpf, BPF_PROG_QUERY, &q, sizeof q) < 0 ? -errno : (int)q.query.prog_cnt;
}

TEST(restarts_do_not_pile_up_device_programs)
{
    struct fixture f = {0};
    if (!fixture_open(&f, WHOLE))
        return;
    if (cgroup_version_of(f.host, CGROUP_DEVICES) == CGROUP_V2) {
        CHECK_INT(programs_attached(f.host->v2->prefix_fd), 1);
        CHECK_INT(cgroup_devices_attach_v2(f.host->v2->prefix_fd), 0);
        CHECK_INT(programs_attached(f.host->v2->prefix_fd), 1);
    } else {
        test_skip("no device program here");
    }
    fixture_done(&f);
}

/* --- threads --- */

struct builder {
    struct fixture f;
    unsigned slot;
    int failed;
};

static void *builder_run(void *arg)
{
    struct builder *b = arg;
    for (int i = 0; i < 10 && !b->failed; i++) {
        struct cgroup *g = NULL;
        if (cgroup_create(b->f.host, b->slot, &normal, 0, &g, &b->f.e) < 0) {
            b->failed = __LINE__;
            break;
        }
        struct child c = child_start(&b->f, cgroup_clone_fd(g), main_idle, NULL);
        struct cgroup_usage u;
        if (cgroup_attach(g, c.pid, &b->f.e) < 0 || cgroup_attach_work(g, c.pid, &b->f.e) < 0 ||
            cgroup_usage_read(g, &u) < 0 || cgroup_kill(g, &b->f.e) < 0)
            b->failed = __LINE__;
        (void)kill(c.pid, SIGKILL);
        (void)child_wait(&b->f, &c);
        if (!EVENTUALLY(cgroup_remove(g) == 0)) {
            cgroup_forget(g);
            b->failed = __LINE__;
        }
    }
    return NULL;
}

LIVE_TEST(two_builders_at_once)
{
    struct builder b[2] = {{.slot = 21}, {.slot = 22}};
    pthread_t threads[2];
    for (size_t i = 0; i < ARRAY_SIZE(b); i++) {
        b[i].f.host = f->host;
        REQUIRE(pthread_create(&threads[i], NULL, builder_run, &b[i]) == 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(b); i++) {
        (void)pthread_join(threads[i], NULL);
        CHECK_INT(b[i].failed, 0);
        CHECK_STREQ(b[i].f.e.msg, "");
    }
}
