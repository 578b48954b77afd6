/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup_host.c: which controllers this host has and where, and the groups above all sandboxes.
 *
 * Theory of operation
 * Each controller is bound to one hierarchy by the host's administrator; we take it where it is. v2 comes
 * first because it offers what v1 needs a hierarchy of its own for: freezing, killing and cpu time work in
 * every v2 group, the devices rule is a BPF program there. A v1 hierarchy is used only for what is still open
 * then, because each one costs a directory and a move per sandbox. The groups hang below the root of each
 * hierarchy and not below the group we run in: whoever ends our service by its group must not end the
 * sandboxes. A hierarchy which refuses us counts as missing; who asks cgroup_version_of decides whether that
 * is fatal. */
#include "keeper/cgroup_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/log.h"

static const char *const names[] = {
    [CGROUP_MEMORY] = "memory", [CGROUP_PIDS] = "pids",       [CGROUP_CPU] = "cpu",
    [CGROUP_IO] = "io",         [CGROUP_DEVICES] = "devices", [CGROUP_FREEZER] = "freezer",
};
_Static_assert(ARRAY_SIZE(names) == CGROUP_CONTROLLER_COUNT, "name every controller");

/* Those which v2 has as controllers; their v2 names are the ones above. */
static const enum cgroup_controller v2_controllers[] = {CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU, CGROUP_IO};

const char *cgroup_controller_name(enum cgroup_controller c)
{
    return c < CGROUP_CONTROLLER_COUNT ? names[c] : "unknown";
}

enum cgroup_version cgroup_version_of(const struct cgroup_host *h, enum cgroup_controller c)
{
    return c < CGROUP_CONTROLLER_COUNT ? h->version[c] : CGROUP_MISSING;
}

static bool prefix_ok(const char *prefix)
{
    size_t n = strspn(prefix, "abcdefghijklmnopqrstuvwxyz0123456789-");
    return n > 0 && n < sizeof((struct cgroup_host *)0)->prefix && prefix[n] == '\0';
}

/* A hierarchy with our prefix group in it. The descriptors are real ones and not O_PATH: bpf(2) wants that.
 */
static int tree_open(struct cgroup_host *h, const struct cgroup_mount *m, struct cgroup_tree **ret)
{
    enum { FLAGS = O_RDONLY | O_DIRECTORY | O_CLOEXEC };
    auto_close int root = open(m->path, FLAGS);
    if (root < 0)
        return -errno;

    /* something else may be mounted on top */
    struct statfs fs;
    if (fstatfs(root, &fs) < 0)
        return -errno;
    if (fs.f_type != (m->version == CGROUP_V2 ? CGROUP2_SUPER_MAGIC : CGROUP_SUPER_MAGIC))
        return -ENODEV;

    if (mkdirat(root, h->prefix, 0755) < 0 && errno != EEXIST)
        return -errno;
    auto_close int prefix = openat(root, h->prefix, FLAGS | O_NOFOLLOW);
    if (prefix < 0)
        return -errno;

    struct cgroup_tree *t = &h->trees[h->tree_count++];
    *t = (struct cgroup_tree){.version = m->version, .root_fd = take_fd(root), .prefix_fd = take_fd(prefix)};
    *ret = t;
    return 0;
}

static void tree_use(struct cgroup_host *h, struct cgroup_tree *t, unsigned controller)
{
    t->controllers |= BIT(controller);
    h->tree_of[controller] = t;
    h->version[controller] = t->version;
}

/* Hands a controller of this group down to its children. */
static int subtree_enable(int group_fd, const char *name)
{
    char text[512];
    int r = cgroup_file_read(group_fd, "cgroup.controllers", text, sizeof text);
    if (r < 0)
        return r;
    if (!cgroup_text_has_word(text, name))
        return -ENOENT;
    r = cgroup_file_read(group_fd, "cgroup.subtree_control", text, sizeof text);
    if (r < 0 || cgroup_text_has_word(text, name))
        return r < 0 ? r : 0;
    (void)snprintf(text, sizeof text, "+%s", name);
    return cgroup_file_write(group_fd, "cgroup.subtree_control", text);
}

static void v2_open(struct cgroup_host *h, const struct cgroup_mount *m)
{
    struct cgroup_tree *t;
    int r = tree_open(h, m, &t);
    if (r < 0) {
        log_warn("cgroup v2 at %s cannot be used: %s", m->path, strerror(-r));
        return;
    }
    h->v2 = t;
    t->dirs = BIT(CGROUP_DIR_SLOT);

    for (size_t i = 0; i < ARRAY_SIZE(v2_controllers); i++) {
        enum cgroup_controller c = v2_controllers[i];
        r = subtree_enable(t->root_fd, names[c]);
        if (r == 0)
            r = subtree_enable(t->prefix_fd, names[c]);
        if (r == 0)
            tree_use(h, t, c);
        else if (r != -ENOENT)
            log_warn("cgroup v2 controller %s cannot be enabled: %s", names[c], strerror(-r));
    }
    /* Only these two differ between PID 1 and the workload. Where they are, the slot's own group may not hold
     * processes, hence agent/. */
    if (t->controllers & (BIT(CGROUP_MEMORY) | BIT(CGROUP_PIDS)))
        t->dirs |= BIT(CGROUP_DIR_AGENT) | BIT(CGROUP_DIR_WORK);

    tree_use(h, t, CGROUP_CPUACCT);
    if (faccessat(t->prefix_fd, "cgroup.freeze", F_OK, 0) == 0)
        tree_use(h, t, CGROUP_FREEZER);
    h->v2_kill = faccessat(t->prefix_fd, "cgroup.kill", F_OK, 0) == 0;

    r = cgroup_devices_attach_v2(t->prefix_fd);
    if (r == 0)
        tree_use(h, t, CGROUP_DEVICES);
    else
        log_debug("no device program on cgroup v2: %s", strerror(-r));
}

/* Kernels before 5.11 count a child's memory for its parents only where this is set before the child is made.
 */
static int memory_hierarchical(int prefix_fd)
{
    uint64_t on = 0;
    int r = cgroup_file_number(prefix_fd, "memory.use_hierarchy", &on);
    if (r == -ENOENT || (r == 0 && on == 1))
        return 0;
    return r < 0 ? r : cgroup_file_write(prefix_fd, "memory.use_hierarchy", "1");
}

static void v1_open(struct cgroup_host *h, const struct cgroup_mount *m)
{
    uint32_t wanted = 0;
    for (unsigned c = 0; c < CGROUP_KNOWN; c++)
        if ((m->controllers & BIT(c)) && h->version[c] == CGROUP_MISSING)
            wanted |= BIT(c);
    if (wanted == 0)
        return;

    struct cgroup_tree *t;
    int r = tree_open(h, m, &t);
    if (r == 0 && (wanted & BIT(CGROUP_MEMORY)))
        r = memory_hierarchical(t->prefix_fd);
    if (r < 0) {
        log_warn("cgroup v1 at %s cannot be used: %s", m->path, strerror(-r));
        return;
    }
    if ((wanted & BIT(CGROUP_DEVICES)) && (r = cgroup_devices_set_v1(t->prefix_fd)) < 0) {
        log_warn("the devices rule cannot be set at %s: %s", m->path, strerror(-r));
        wanted &= ~BIT(CGROUP_DEVICES);
    }
    for (unsigned c = 0; c < CGROUP_KNOWN; c++)
        if (wanted & BIT(c))
            tree_use(h, t, c);

    /* the devices rule is the same for all, so that they can share the prefix group */
    if (wanted & ~BIT(CGROUP_DEVICES))
        t->dirs |= BIT(CGROUP_DIR_SLOT);
    if (wanted & (BIT(CGROUP_MEMORY) | BIT(CGROUP_PIDS)))
        t->dirs |= BIT(CGROUP_DIR_WORK);
}

int cgroup_host_open_from(FILE *mountinfo, const char *prefix, struct cgroup_host **ret, struct error *reterr)
{
    if (!prefix_ok(prefix))
        return error_set(reterr, EINVAL, "'%s' is not a name for control groups", prefix);

    auto_free struct cgroup_mounts *mounts = malloc(sizeof *mounts);
    auto_free struct cgroup_host *h = calloc(1, sizeof *h);
    if (!mounts || !h)
        return error_sys(reterr, ENOMEM, "find control groups");
    int r = cgroup_mounts_read(mountinfo, mounts);
    if (r < 0)
        return error_sys(reterr, -r, "read mountinfo");

    (void)snprintf(h->prefix, sizeof h->prefix, "%s", prefix);
    for (size_t i = 0; i < mounts->count; i++)
        if (mounts->list[i].version == CGROUP_V2)
            v2_open(h, &mounts->list[i]);
    for (size_t i = 0; i < mounts->count; i++)
        if (mounts->list[i].version == CGROUP_V1)
            v1_open(h, &mounts->list[i]);

    *ret = take_ptr(h);
    return 0;
}

int cgroup_host_open(const char *prefix, struct cgroup_host **ret, struct error *reterr)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    if (!f)
        return error_sys(reterr, errno, "open mountinfo");
    int r = cgroup_host_open_from(f, prefix, ret, reterr);
    (void)fclose(f);
    return r;
}

void cgroup_host_free(struct cgroup_host *h)
{
    if (!h)
        return;
    for (size_t i = 0; i < h->tree_count; i++) {
        close_fd(&h->trees[i].prefix_fd);
        close_fd(&h->trees[i].root_fd);
    }
    free(h);
}

int cgroup_host_remove(struct cgroup_host *h)
{
    int r = 0;
    for (size_t i = 0; i < h->tree_count; i++)
        if (unlinkat(h->trees[i].root_fd, h->prefix, AT_REMOVEDIR) < 0 && errno != ENOENT && r == 0)
            r = -errno;
    return r;
}

/* Only names which cgroup_create could have made. */
static bool slot_parse(const char *name, unsigned *ret)
{
    if (*name < '0' || *name > '9' || (*name == '0' && name[1]))
        return false;
    char *end;
    errno = 0;
    unsigned long v = strtoul(name, &end, 10);
    if (errno || *end || v > UINT_MAX)
        return false;
    *ret = (unsigned)v;
    return true;
}

struct slots {
    unsigned *list;
    size_t count, cap;
};

static int slots_add(struct slots *s, unsigned slot)
{
    if (s->count == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        unsigned *list = reallocarray(s->list, cap, sizeof *list);
        if (!list)
            return -ENOMEM;
        s->list = list;
        s->cap = cap;
    }
    s->list[s->count++] = slot;
    return 0;
}

static int slots_read(int prefix_fd, struct slots *s)
{
    auto_close int fd = openat(prefix_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    DIR *d = fdopendir(fd);
    if (!d)
        return -errno;
    (void)take_fd(fd);

    int r = 0;
    unsigned slot;
    for (struct dirent *e; r == 0 && (errno = 0, e = readdir(d));)
        if (e->d_type == DT_DIR && slot_parse(e->d_name, &slot))
            r = slots_add(s, slot);
    if (r == 0)
        r = -errno;
    (void)closedir(d);
    return r;
}

static int slot_compare(const void *a, const void *b)
{
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return (x > y) - (x < y);
}

int cgroup_host_scan(struct cgroup_host *h, void (*found)(unsigned slot, void *arg), void *arg)
{
    struct slots s = {0};
    int r = 0;
    for (size_t i = 0; i < h->tree_count && r == 0; i++)
        if (h->trees[i].dirs)
            r = slots_read(h->trees[i].prefix_fd, &s);

    /* found may remove groups, so it is called only now */
    if (s.count)
        qsort(s.list, s.count, sizeof *s.list, slot_compare);
    for (size_t i = 0; i < s.count; i++)
        if (i == 0 || s.list[i] != s.list[i - 1])
            found(s.list[i], arg);
    free(s.list);
    return r;
}
