/* SPDX-License-Identifier: Apache-2.0 */
/* process_kill.c: see process_kill.h.
 *
 * Theory of operation
 * A round reads /proc once, takes every process that belongs to the tree and is not known yet, opens a pidfd
 * for it and sends it the signal. The pidfds are followed by the loop; when all are ready another round looks
 * for those who were forked meanwhile. A round without a find is the end. When the grace is over the signal
 * becomes SIGKILL for everybody known and found later; when that time is over as well the rest is given up.
 *
 * In a sandbox /proc hides the processes of other users, also from the agent. Their pids are in the lists of
 * children of their parents: so those are found whose parent is visible and a member. */
#include "agent/process_kill.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

/* Beyond TARGETS_MAX the rest waits for the next round. */
enum { TARGETS_MAX = 4096, SCAN_MAX = 65536 };

struct target {           /* a process that has been signalled and lives */
    struct source source; /* its pidfd */
    struct killing *killing;
    struct list link;
    pid_t pid;
};

struct killing {
    struct agent *agent;
    struct killing_config config;
    pid_t *roots; /* sorted */
    struct process_tag *tags;
    struct list targets;
    size_t alive;
    struct timer timer;
    struct deferred round;
    int signal;
};

struct entry { /* one line of the process table */
    pid_t pid, parent, group, session;
    bool zombie, member, known;
};

static bool read_stat(const char *name, struct entry *e)
{
    char path[48], text[512];
    (void)snprintf(path, sizeof path, "/proc/%.20s/stat", name);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return false;
    text[n] = '\0';
    char state;
    const char *p = strrchr(text, ')'); /* the name may contain anything */
    if (!p || sscanf(p + 1, " %c %d %d %d", &state, &e->parent, &e->group, &e->session) != 4)
        return false;
    e->pid = (pid_t)strtol(name, NULL, 10);
    e->zombie = state == 'Z' || state == 'X';
    e->member = e->known = false;
    return true;
}

static size_t read_table(struct entry **ret)
{
    DIR *dir = opendir("/proc");
    size_t count = 0, cap = 0;
    struct entry *table = NULL;
    for (struct dirent *d; dir && (d = readdir(dir)) && count < SCAN_MAX;) {
        if (d->d_name[0] < '1' || d->d_name[0] > '9')
            continue;
        if (count == cap) {
            struct entry *more = realloc(table, (cap ? cap * 2 : 64) * sizeof *table);
            if (!more)
                break;
            table = more;
            cap = cap ? cap * 2 : 64;
        }
        if (read_stat(d->d_name, &table[count]))
            count++;
    }
    if (dir)
        (void)closedir(dir);
    *ret = table;
    return count;
}

static int compare_pids(const void *a, const void *b)
{
    pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;
    return x < y ? -1 : x > y;
}

static bool is_root(const struct killing *k, pid_t pid)
{
    return bsearch(&pid, k->roots, k->config.count, sizeof pid, compare_pids) != NULL;
}

static bool has_tag(const struct killing *k, pid_t pid)
{
    bool any = false;
    for (size_t i = 0; i < k->config.tag_count && !any; i++)
        any = k->tags[i].last != 0;
    uint64_t tag = any ? process_tag_read(pid) : 0;
    for (size_t i = 0; i < k->config.tag_count && tag; i++)
        if (tag >= k->tags[i].first && tag <= k->tags[i].last)
            return true;
    return false;
}

/* The table is in the order of the pids, as /proc is. The pid is the first member of an entry. */
static struct entry *find_entry(struct entry *table, size_t count, pid_t pid)
{
    return bsearch(&pid, table, count, sizeof *table, compare_pids);
}

/* Marks the members of the tree: seeds, then children of members until nothing changes. */
static void mark(const struct killing *k, struct entry *table, size_t count)
{
    pid_t self = getpid();
    list_for_each(i, &k->targets)
    {
        struct entry *e = find_entry(table, count, list_entry(i, struct target, link)->pid);
        if (e)
            e->member = e->known = true;
    }
    for (size_t i = 0; i < count; i++) {
        struct entry *e = &table[i];
        if (e->pid != self && !e->member)
            e->member = is_root(k, e->pid) || is_root(k, e->group) ||
                        (k->config.sessions && is_root(k, e->session)) || has_tag(k, e->pid);
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < count; i++) {
            struct entry *e = &table[i];
            const struct entry *parent =
                e->member || e->pid == self ? NULL : find_entry(table, count, e->parent);
            if (parent && parent->member)
                e->member = changed = true;
        }
    }
}

static void target_free(struct target *t)
{
    int fd = t->source.fd;
    list_remove(&t->link);
    t->killing->alive--;
    loop_del(t->killing->agent->loop, &t->source);
    close_fd(&fd);
    free(t);
}

static void finish(struct killing *k, bool gone)
{
    struct agent *a = k->agent;
    void (*done)(void *, bool) = k->config.done;
    void *arg = k->config.arg;
    loop_timer_stop(a->loop, &k->timer);
    loop_undefer(a->loop, &k->round);
    list_for_each(i, &k->targets) target_free(list_entry(i, struct target, link));
    free(k->roots);
    free(k->tags);
    free(k);
    done(arg, gone);
}

static void run_round(struct deferred *d);

static void target_ready(struct source *s, uint32_t events)
{
    struct target *t = container_of(s, struct target, source);
    struct killing *k = t->killing;
    (void)events;
    target_free(t);
    if (!k->alive)
        loop_defer(k->agent->loop, &k->round, run_round);
}

static void send_signal(const struct killing *k, const struct target *t)
{
    (void)syscall(SYS_pidfd_send_signal, t->source.fd, k->signal, NULL, 0U); /* ESRCH: the better */
}

static void signal_one(struct killing *k, pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0U);
    if (fd < 0)
        return; /* gone */
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    struct target *t = calloc(1, sizeof *t);
    if (!t || loop_add(k->agent->loop, &t->source, fd, EPOLLIN, target_ready) < 0) {
        (void)close(fd);
        free(t);
        return;
    }
    t->killing = k;
    t->pid = pid;
    list_append(&k->targets, &t->link);
    k->alive++;
    send_signal(k, t);
}

static bool is_target(const struct killing *k, pid_t pid)
{
    list_for_each(i, &k->targets)
    {
        if (list_entry(i, struct target, link)->pid == pid)
            return true;
    }
    return false;
}

/* The children of a member that are not in the table. */
static void signal_hidden(struct killing *k, pid_t parent, struct entry *table, size_t count)
{
    char path[64], text[4096];
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return;
    text[n] = '\0';
    char *end;
    for (char *p = text; *p && k->alive < TARGETS_MAX; p = end) {
        pid_t pid = (pid_t)strtol(p, &end, 10);
        if (end == p || *end != ' ')
            return; /* the end, or a number that is cut off */
        end++;
        if (pid > 1 && !find_entry(table, count, pid) && !is_target(k, pid))
            signal_one(k, pid);
    }
}

/* In the order of the table, which is that of the pids: parents before their children, as long as pids grow.
 * A shell whose command is ended first would go on with the next one. */
static void signal_new(struct killing *k)
{
    struct entry *table;
    size_t count = read_table(&table);
    mark(k, table, count);
    for (size_t i = 0; i < count && k->alive < TARGETS_MAX; i++)
        if (table[i].member && !table[i].zombie) {
            signal_hidden(k, table[i].pid, table, count); /* while the parent can be asked */
            if (!table[i].known)
                signal_one(k, table[i].pid);
        }
    free(table);
}

static void run_round(struct deferred *d)
{
    struct killing *k = container_of(d, struct killing, round);
    signal_new(k);
    if (!k->alive)
        finish(k, true);
}

static void time_over(struct timer *timer)
{
    struct killing *k = container_of(timer, struct killing, timer);
    if (k->signal == SIGKILL) {
        finish(k, false);
        return;
    }
    k->signal = SIGKILL;
    list_for_each(i, &k->targets) send_signal(k, list_entry(i, struct target, link));
    loop_timer_start(k->agent->loop, &k->timer, KILL_WAIT_MS, time_over);
    loop_defer(k->agent->loop, &k->round, run_round);
}

struct killing *killing_start(struct agent *a, const struct killing_config *config)
{
    struct killing *k = calloc(1, sizeof *k);
    pid_t *roots = calloc(config->count + 1, sizeof *roots);
    struct process_tag *tags = calloc(config->tag_count + 1, sizeof *tags);
    if (!k || !roots || !tags) {
        free(k);
        free(roots);
        free(tags);
        return NULL;
    }
    for (size_t i = 0; i < config->count; i++)
        roots[i] = config->roots[i];
    for (size_t i = 0; i < config->tag_count; i++)
        tags[i] = config->tags[i];
    qsort(roots, config->count, sizeof *roots, compare_pids);
    list_init(&k->targets);
    k->agent = a;
    k->config = *config;
    k->roots = roots;
    k->tags = tags;
    k->signal = config->signal;
    loop_timer_start(a->loop, &k->timer, config->signal == SIGKILL ? KILL_WAIT_MS : config->grace_ms,
                     time_over);
    signal_new(k); /* before the caller does anything that could scatter the tree */
    if (!k->alive)
        loop_defer(a->loop, &k->round, run_round);
    return k;
}
