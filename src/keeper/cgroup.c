/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup.c: the groups of one sandbox, from making to removing.
 *
 * Moving a process into a group makes the kernel wait for all CPUs (about 10 ms when the last move is a while
 * ago), making a v2 process in its group by CLONE_INTO_CGROUP does not. So there are as few groups as the
 * limits need, and a process that is already in its v2 group is not moved there again. */
#include "keeper/cgroup_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"

enum {
    FREEZE_TIMEOUT_MS = 200,
    KILL_ROUNDS = 50, /* a fork bomb without cgroup.kill and freezer: each round catches most of it */
};

struct cgroup {
    const struct cgroup_host *host;
    unsigned slot;
    int clone_fd;                   /* the v2 group PID 1 lives in */
    uint32_t made[CGROUP_TREE_MAX]; /* BIT(dir) to remove */
};

static const char *dir_name(enum cgroup_dir dir)
{
    return dir == CGROUP_DIR_WORK ? "work group" : dir == CGROUP_DIR_AGENT ? "agent group" : "group";
}

/* Where PID 1 lives in this hierarchy. */
static enum cgroup_dir agent_dir(const struct cgroup_tree *t)
{
    return t->dirs & BIT(CGROUP_DIR_AGENT) ? CGROUP_DIR_AGENT : CGROUP_DIR_SLOT;
}

static void group_free(struct cgroup *g)
{
    close_fd(&g->clone_fd);
    free(g);
}

static struct cgroup *group_new(const struct cgroup_host *h, unsigned slot)
{
    struct cgroup *g = calloc(1, sizeof *g);
    if (g) {
        g->host = h;
        g->slot = slot;
        g->clone_fd = -1;
    }
    return g;
}

static int group_open_clone_fd(struct cgroup *g)
{
    char path[CGROUP_PATH_SIZE];
    const struct cgroup_tree *t = g->host->v2;
    if (!t)
        return 0;
    g->clone_fd = openat(t->prefix_fd, cgroup_path(path, g->slot, agent_dir(t), ""),
                         O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return g->clone_fd < 0 ? -errno : 0;
}

/* Lets agent/ and work/ have limits of their own. */
static int subtree_enable(const struct cgroup_tree *t, unsigned slot)
{
    char path[CGROUP_PATH_SIZE];
    bool memory = t->controllers & BIT(CGROUP_MEMORY), pids = t->controllers & BIT(CGROUP_PIDS);
    return cgroup_file_write(t->prefix_fd, cgroup_path(path, slot, CGROUP_DIR_SLOT, "cgroup.subtree_control"),
                             memory && pids ? "+memory +pids"
                             : memory       ? "+memory"
                                            : "+pids");
}

static int group_mkdir(struct cgroup *g, struct error *reterr)
{
    char path[CGROUP_PATH_SIZE];

    for (size_t i = 0; i < g->host->tree_count; i++) {
        const struct cgroup_tree *t = &g->host->trees[i];
        for (unsigned dir = 0; dir < CGROUP_DIR_COUNT; dir++) {
            if (!(t->dirs & BIT(dir)))
                continue;
            if (mkdirat(t->prefix_fd, cgroup_path(path, g->slot, dir, ""), 0755) < 0)
                return error_sys(reterr, errno, "make the %s of slot %u", dir_name(dir), g->slot);
            g->made[i] |= BIT(dir);
        }
        if (t->dirs & BIT(CGROUP_DIR_AGENT)) {
            int r = subtree_enable(t, g->slot);
            if (r < 0)
                return error_sys(reterr, -r, "enable controllers below slot %u", g->slot);
        }
    }
    return 0;
}

static int group_rmdir(struct cgroup *g)
{
    char path[CGROUP_PATH_SIZE];

    for (size_t i = 0; i < g->host->tree_count; i++) {
        for (unsigned dir = CGROUP_DIR_COUNT; dir-- > 0;) {
            if (!(g->made[i] & BIT(dir)))
                continue;
            if (unlinkat(g->host->trees[i].prefix_fd, cgroup_path(path, g->slot, dir, ""), AT_REMOVEDIR) <
                    0 &&
                errno != ENOENT)
                return -errno;
            g->made[i] &= ~BIT(dir);
        }
    }
    return 0;
}

int cgroup_create(struct cgroup_host *h, unsigned slot, const struct limits *l, dev_t io_dev,
                  struct cgroup **ret, struct error *reterr)
{
    struct cgroup *g = group_new(h, slot);
    if (!g)
        return error_sys(reterr, ENOMEM, "make the groups of slot %u", slot);

    int r = group_mkdir(g, reterr);
    if (r == 0)
        r = cgroup_limits_apply(h, slot, l, io_dev, reterr);
    if (r == 0) {
        r = group_open_clone_fd(g);
        if (r < 0)
            (void)error_sys(reterr, -r, "open the group of slot %u", slot);
    }
    if (r < 0) {
        (void)group_rmdir(g); /* nobody is inside yet: this does not fail */
        group_free(g);
        return r;
    }
    *ret = g;
    return 0;
}

int cgroup_adopt(struct cgroup_host *h, unsigned slot, struct cgroup **ret, struct error *reterr)
{
    char path[CGROUP_PATH_SIZE];
    bool found = false;

    struct cgroup *g = group_new(h, slot);
    if (!g)
        return error_sys(reterr, ENOMEM, "adopt the groups of slot %u", slot);
    for (size_t i = 0; i < h->tree_count; i++) {
        /* all of them, made or not: a keeper that was killed while making them may have left a part */
        g->made[i] = h->trees[i].dirs;
        struct stat st;
        if (h->trees[i].dirs && fstatat(h->trees[i].prefix_fd, cgroup_path(path, slot, CGROUP_DIR_SLOT, ""),
                                        &st, AT_SYMLINK_NOFOLLOW) == 0)
            found = true;
    }
    if (!found) {
        group_free(g);
        return error_set(reterr, ENOENT, "slot %u has no groups", slot);
    }
    int r = group_open_clone_fd(g);
    if (r < 0 && r != -ENOENT) {
        group_free(g);
        return error_sys(reterr, -r, "open the group of slot %u", slot);
    }
    *ret = g;
    return 0;
}

int cgroup_set_limits(struct cgroup *g, const struct limits *l, dev_t io_dev, struct error *reterr)
{
    return cgroup_limits_apply(g->host, g->slot, l, io_dev, reterr);
}

int cgroup_limit_io(struct cgroup *g, const struct limits *l, dev_t io_dev, struct error *reterr)
{
    return cgroup_io_apply(g->host, g->slot, l, io_dev, reterr);
}

int cgroup_clone_fd(const struct cgroup *g)
{
    return g->clone_fd;
}

/* Calls each(pid) for every process listed; each may stop the walk by returning false. Returns how many or
 * -errno. */
static int procs_walk(int dir_fd, const char *path, bool (*each)(pid_t pid, void *arg), void *arg)
{
    auto_close int fd = openat(dir_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    FILE *f = fdopen(fd, "r");
    if (!f)
        return -errno;
    (void)take_fd(fd);

    char line[32];
    int n = 0;
    while (fgets(line, sizeof line, f)) {
        char *end;
        long pid = strtol(line, &end, 10);
        /* 0 stands for a process of a pid namespace we do not see; negative never happens, but kill(2) would
         * take it for a process group */
        if (pid <= 0 || pid > INT_MAX || *end != '\n')
            continue;
        n++;
        if (!each((pid_t)pid, arg))
            break;
    }
    (void)fclose(f);
    return n;
}

static bool pid_differs(pid_t pid, void *arg)
{
    pid_t *wanted = arg;
    if (pid != *wanted)
        return true;
    *wanted = 0;
    return false;
}

static int tree_attach(const struct cgroup *g, const struct cgroup_tree *t, enum cgroup_dir dir, pid_t pid)
{
    char path[CGROUP_PATH_SIZE], value[16];
    const char *procs = t->dirs ? cgroup_path(path, g->slot, dir, "cgroup.procs") : "cgroup.procs";

    if (t->version == CGROUP_V2) {
        pid_t wanted = pid;
        int r = procs_walk(t->prefix_fd, procs, pid_differs, &wanted);
        if (r < 0 || wanted == 0)
            return r < 0 ? r : 0;
    }
    (void)snprintf(value, sizeof value, "%d", pid);
    return cgroup_file_write(t->prefix_fd, procs, value);
}

int cgroup_attach(struct cgroup *g, pid_t pid, struct error *reterr)
{
    if (pid <= 0) /* the kernel would take 0 for the keeper itself */
        return error_set(reterr, EINVAL, "%d is not a process", pid);
    for (size_t i = 0; i < g->host->tree_count; i++) {
        const struct cgroup_tree *t = &g->host->trees[i];
        int r = t->controllers ? tree_attach(g, t, agent_dir(t), pid) : 0;
        if (r < 0)
            return error_sys(reterr, -r, "move process %d into slot %u", pid, g->slot);
    }
    return 0;
}

/* Within the hierarchies that tell the workload from the agent. */
static int attach_divided(struct cgroup *g, pid_t pid, bool work, struct error *reterr)
{
    if (pid <= 0)
        return error_set(reterr, EINVAL, "%d is not a process", pid);
    for (size_t i = 0; i < g->host->tree_count; i++) {
        const struct cgroup_tree *t = &g->host->trees[i];
        enum cgroup_dir dir = work ? CGROUP_DIR_WORK : agent_dir(t);
        int r = t->dirs & BIT(CGROUP_DIR_WORK) ? tree_attach(g, t, dir, pid) : 0;
        if (r < 0)
            return error_sys(reterr, -r, "move process %d into the %s of slot %u", pid, dir_name(dir),
                             g->slot);
    }
    return 0;
}

int cgroup_attach_work(struct cgroup *g, pid_t pid, struct error *reterr)
{
    return attach_divided(g, pid, true, reterr);
}

int cgroup_lift(struct cgroup *g, pid_t pid, struct error *reterr)
{
    return attach_divided(g, pid, false, reterr);
}

int cgroup_usage_read(struct cgroup *g, struct cgroup_usage *ret)
{
    return cgroup_usage_of(g->host, g->slot, ret);
}

/* The kernel wakes who polls cgroup.events when a line of it changes. */
static int freeze_v2(int dir_fd, unsigned slot, bool frozen)
{
    char path[CGROUP_PATH_SIZE], text[128];
    int64_t deadline = clock_mono_ms() + FREEZE_TIMEOUT_MS;

    auto_close int events = openat(dir_fd, cgroup_path(path, slot, CGROUP_DIR_SLOT, "cgroup.events"),
                                   O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (events < 0)
        return -errno;
    int r = cgroup_file_write(dir_fd, cgroup_path(path, slot, CGROUP_DIR_SLOT, "cgroup.freeze"),
                              frozen ? "1" : "0");
    if (r < 0)
        return r;

    for (;;) {
        uint64_t state;
        ssize_t n = pread(events, text, sizeof text - 1, 0);
        if (n < 0)
            return -errno;
        text[n] = '\0';
        if (cgroup_text_key(text, "frozen", &state) && state == frozen)
            return 0;
        int64_t left = deadline - clock_mono_ms();
        if (left <= 0)
            return -ETIMEDOUT;
        struct pollfd p = {.fd = events, .events = POLLPRI};
        if (poll(&p, 1, (int)left) < 0 && errno != EINTR)
            return -errno;
    }
}

static void pause_1ms(void)
{
    const struct timespec t = {.tv_nsec = 1000000};
    (void)nanosleep(&t, NULL);
}

/* v1 tells nobody; reading the state is also what makes the kernel look again. */
static int freeze_v1(int dir_fd, unsigned slot, bool frozen)
{
    char path[CGROUP_PATH_SIZE], text[32];
    int64_t deadline = clock_mono_ms() + FREEZE_TIMEOUT_MS;

    cgroup_path(path, slot, CGROUP_DIR_SLOT, "freezer.state");
    int r = cgroup_file_write(dir_fd, path, frozen ? "FROZEN" : "THAWED");
    while (r == 0) {
        r = cgroup_file_read(dir_fd, path, text, sizeof text);
        if (r < 0 || strcmp(text, frozen ? "FROZEN\n" : "THAWED\n") == 0)
            return MIN(r, 0);
        if (clock_mono_ms() >= deadline)
            return -ETIMEDOUT;
        pause_1ms();
        r = 0;
    }
    return r;
}

int cgroup_freeze(struct cgroup *g, bool frozen, struct error *reterr)
{
    const struct cgroup_tree *t = g->host->tree_of[CGROUP_FREEZER];
    if (!t)
        return error_set(reterr, EOPNOTSUPP, "this host cannot freeze control groups");

    int r = (t->version == CGROUP_V2 ? freeze_v2 : freeze_v1)(t->prefix_fd, g->slot, frozen);
    if (r < 0)
        return error_sys(reterr, -r, "%s slot %u", frozen ? "freeze" : "thaw", g->slot);
    return 0;
}

/* The hierarchy that tells best who is inside; NULL when no hierarchy has a group of the sandbox. */
static const struct cgroup_tree *tree_counting(const struct cgroup_host *h)
{
    if (h->v2)
        return h->v2;
    if (h->tree_of[CGROUP_FREEZER])
        return h->tree_of[CGROUP_FREEZER];
    for (size_t i = 0; i < h->tree_count; i++)
        if (h->trees[i].dirs)
            return &h->trees[i];
    return NULL;
}

static int group_walk(const struct cgroup *g, bool (*each)(pid_t pid, void *arg), void *arg)
{
    char path[CGROUP_PATH_SIZE];
    const struct cgroup_tree *t = tree_counting(g->host);
    int count = 0;

    for (unsigned dir = 0; t && dir < CGROUP_DIR_COUNT; dir++) {
        if (!(t->dirs & BIT(dir)))
            continue;
        int n = procs_walk(t->prefix_fd, cgroup_path(path, g->slot, dir, "cgroup.procs"), each, arg);
        if (n < 0 && n != -ENOENT && n != -ENODEV)
            return n;
        count += MAX(n, 0);
    }
    return count;
}

static bool pid_kill(pid_t pid, void *arg)
{
    (void)arg;
    (void)kill(pid, SIGKILL); /* may have ended by itself */
    return true;
}

/* While all are frozen nobody forks or ends, so that one walk meets everybody and nobody else. Frozen v1
 * processes die when thawed. */
static int kill_each(struct cgroup *g)
{
    for (int round = 0; round < KILL_ROUNDS; round++) {
        bool frozen = cgroup_freeze(g, true, NULL) == 0;
        int n = group_walk(g, pid_kill, NULL);
        if (g->host->tree_of[CGROUP_FREEZER])
            (void)cgroup_freeze(g, false, NULL); /* who got the signal leaves anyway */
        if (n <= 0 || frozen)
            return MIN(n, 0);
        pause_1ms();
    }
    return -EBUSY;
}

int cgroup_kill(struct cgroup *g, struct error *reterr)
{
    char path[CGROUP_PATH_SIZE];
    int r;

    if (g->host->v2_kill)
        r = cgroup_file_write(g->host->v2->prefix_fd,
                              cgroup_path(path, g->slot, CGROUP_DIR_SLOT, "cgroup.kill"), "1");
    else if (tree_counting(g->host))
        r = kill_each(g);
    else
        return error_set(reterr, EOPNOTSUPP, "this host has no control groups to kill by");
    if (r == -ENOENT)
        return 0; /* a part of the groups was never made, or is removed already */
    return r < 0 ? error_sys(reterr, -r, "kill slot %u", g->slot) : 0;
}

static bool stop_walk(pid_t pid, void *arg)
{
    (void)pid;
    (void)arg;
    return false;
}

bool cgroup_empty(const struct cgroup *g)
{
    char path[CGROUP_PATH_SIZE];

    if (g->host->v2) {
        uint64_t populated = 1;
        int r = cgroup_file_key(g->host->v2->prefix_fd,
                                cgroup_path(path, g->slot, CGROUP_DIR_SLOT, "cgroup.events"), "populated",
                                &populated);
        return r == -ENOENT || (r == 0 && populated == 0);
    }
    return group_walk(g, stop_walk, NULL) == 0;
}

int cgroup_remove(struct cgroup *g)
{
    int r = group_rmdir(g);
    if (r == 0)
        group_free(g);
    return r;
}

void cgroup_forget(struct cgroup *g)
{
    if (g)
        group_free(g);
}
