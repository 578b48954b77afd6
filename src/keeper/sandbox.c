/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox.c: the recipe: how a sandbox comes to be, step by step, and how each step is undone.
 *
 * Read the table `plan` first; it can be checked against the threat model line by line. A step that fails
 * undoes all earlier ones in reverse, so a failed start leaves nothing on the host. Its second step is a plan
 * of its own, in berth.c, which may have been carried out before anybody asked. What the first process does
 * on its own side of the clone is in child.c; ending a sandbox is in sandbox_end.c. */
#include "keeper/sandbox.h"
#include "agent/control.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "keeper/berth.h"
#include "keeper/image.h"
#include "keeper/mount_util.h"
#include "keeper/move_in.h"
#include "keeper/process.h"
#include "keeper/record.h"
#include "keeper/rootfs.h"
#include "keeper/sandbox_internal.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { ENV_MAX = IMAGE_ENV_MAX + 8 };

/* Everything that lives during a build only. */
struct build {
    struct keeper_env *env;
    const struct sandbox_spec *spec; /* what is wanted: a bare sandbox has less of it until the end */
    struct sandbox *sb;
    struct image image;
    struct berth *berth;      /* of a sandbox that is made from the beginning */
    struct child_plan *child; /* its, or for a bare sandbox ... */
    struct child_plan move;   /* ... this one */
    int userns;
    int volumes[KEEPER_VOLUMES_MAX];
    struct disk_device disk;
    struct disk_hold hold; /* its mount */
    char *envp[ENV_MAX];
    char *user, *workdir; /* the image's, as settings of the agent (src/agent/settings.h) */
};

uint32_t sandbox_uid(const struct keeper_env *env, unsigned slot)
{
    return env->host.uid_base + slot * SANDBOX_IDS;
}

static int step_image(struct build *b, struct error *reterr)
{
    const struct image *i = &b->image;
    int r = image_open(b->env->images, b->env->images_fd, b->spec->image, &b->image, reterr);
    if (r < 0)
        return r;
    if ((i->user && i->user[0] && asprintf(&b->user, "=user=%s", i->user) < 0) ||
        (i->workdir && i->workdir[0] && asprintf(&b->workdir, "=workdir=%s", i->workdir) < 0))
        return error_sys(reterr, ENOMEM, "read the image's settings");
    return 0;
}

static void undo_image(struct build *b)
{
    free(take_ptr(b->user));
    free(take_ptr(b->workdir));
    image_done(&b->image);
}

static int step_berth(struct build *b, struct error *reterr)
{
    struct sandbox *sb = b->sb;
    struct berth_spec spec = {
        .slot = sb->spec.slot, .limits = sb->spec.limits, .terms = sb->spec.network ? &sb->spec.terms : NULL};
    b->berth = take_ptr(sb->spec.berth);
    if (b->berth && failpoint_hit("orphan", 0, NULL) < 0)
        (void)kill(b->berth->pid, SIGKILL);
    int r = b->berth ? 0 : berth_make(b->env, &spec, &b->berth, reterr);
    if (r < 0)
        return r;
    b->child = &b->berth->child;
    b->userns = b->berth->userns;
    sb->pid = b->berth->pid;
    sb->pidfd = b->berth->pidfd;
    sb->start_time = b->berth->start_time;
    sb->cgroup = b->berth->cgroup;
    sb->low = b->berth->spec.low;
    sb->spec.ipv6 = sb->spec.network; /* if the daemon has any */
    return 0;
}

static void undo_berth(struct build *b)
{
    berth_remove(b->berth);
}

static int step_bare(struct build *b, struct error *reterr)
{
    (void)reterr;
    b->child = &b->move;
    b->userns = b->sb->kit.userns;
    if (failpoint_hit("orphan", 0, NULL) < 0)
        sandbox_kill(b->sb);
    return 0;
}

/* It may be half-way into its new root. What is left of its network goes as with a berth: behind its
 * processes. */
static void undo_bare(struct build *b)
{
    struct sandbox *sb = take_ptr(b->sb);
    const struct sandbox_spec had = sb->spec;
    sandbox_stop(b->env, sb, 0, false, NULL);
    if (!had.network)
        return;
    network_disconnect(b->env->network, had.slot, &had.terms);
    network_link_delete(b->env->network, had.slot);
}

static bool is_held(const struct sandbox_spec *spec)
{
    return spec->held_disk && spec->held_disk->fd >= 0;
}

static int step_disk(struct build *b, struct error *reterr)
{
    const struct sandbox_spec *spec = b->spec;
    if (!spec->fresh_disk || is_held(spec))
        return 0;
    return disk_create(b->env->disks, spec->disk, spec->limits.disk_bytes, spec->limits.disk_inodes, reterr);
}

static void undo_disk(struct build *b)
{
    const struct sandbox_spec *spec = b->spec;
    if (!spec->fresh_disk)
        return;
    (void)disk_remove(b->env->disks, spec->disk, NULL); /* swept at the next start otherwise */
    if (is_held(spec))
        close_fd(&spec->held_disk->fd);
}

static int step_attach_disk(struct build *b, struct error *reterr)
{
    const struct sandbox_spec *spec = b->spec;
    if (spec->bare)
        return 0;
    int r = 0;
    if (is_held(spec))
        b->disk = (struct disk_device){.fd = -1, .dev = disk_device_number(spec->held_disk->index)};
    else if ((r = disk_attach(b->env->disks, spec->disk, spec->fresh_disk, &b->disk, reterr)) < 0)
        return r;
    b->sb->spec.disk = spec->disk;
    return 0;
}

static void undo_attach_disk(struct build *b)
{
    close_fd(&b->disk.fd); /* AUTOCLEAR: the device goes with its last user */
}

/* A berth that waited has the usual limits, and no disk. */
static int step_limits(struct build *b, struct error *reterr)
{
    const struct limits *l = &b->spec->limits;
    if (b->spec->bare)
        return 0;
    bool same = memcmp(l, b->berth ? &b->berth->spec.limits : &b->sb->spec.limits, sizeof *l) == 0;
    return same ? cgroup_limit_io(b->sb->cgroup, l, b->disk.dev, reterr)
                : cgroup_set_limits(b->sb->cgroup, l, b->disk.dev, reterr);
}

/* What the first process needs to know, put where it can read it without allocating: where it is, ... */
static int step_surroundings(struct build *b, struct error *reterr)
{
    const struct sandbox_spec *spec = b->spec;
    struct child_plan *c = b->child;
    (void)reterr;
    c->hostname = spec->hostname && spec->hostname[0] ? spec->hostname : "sandbox";
    c->volumes = spec->volumes;
    while (c->volumes && c->volume_count < KEEPER_VOLUMES_MAX && c->volumes[c->volume_count].name[0])
        c->volume_count++;
    c->sidecar = spec->sidecar;
    if (spec->sidecar)
        c->resolv_conf = "nameserver 127.0.0.1\noptions edns0 timeout:2 attempts:3\n";
    else if (b->env->network) /* without a link it may get one later */
        c->resolv_conf = network_resolv_conf(b->env->network);
    return 0;
}

/* ... and what it will be. */
static int step_program(struct build *b, struct error *reterr)
{
    static char *argv[] = {"silica-agent", "--sandbox", NULL};
    static char *argv_soon[] = {"silica-agent", "--sandbox", "--soon", NULL};
    static char *argv_bare[] = {"silica-agent", "--sandbox", "--bare", NULL};
    static char home[] = "HOME=/root", user[] = "USER=root",
                shell[] = "SHELL=/bin/bash", /* every bash would look it up in the list of users */
        path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    const struct sandbox_spec *spec = b->spec;
    struct child_plan *c = b->child;
    size_t n = 0;
    (void)reterr;
    b->envp[n++] = path; /* the image's own value comes later and wins */
    b->envp[n++] = home;
    b->envp[n++] = user;
    b->envp[n++] = shell;
    for (size_t i = 0; b->image.env[i]; i++)
        b->envp[n++] = b->image.env[i];
    if (b->user)
        b->envp[n++] = b->user;
    if (b->workdir)
        b->envp[n++] = b->workdir;
    b->envp[n] = NULL;
    c->argv = spec->bare                         ? argv_bare
              : spec->owned && !spec->fresh_disk ? argv_soon /* whoever wakes it, uses it */
                                                 : argv;
    c->envp = b->envp;
    c->filter = &b->env->host.filter;
    /* an image of the store may have put things into /tmp and /run, as Dockerfiles do: there they stay on
     * disk */
    bool plain = strcmp(spec->image, b->image.bottom) == 0;
    c->tmp_bytes = plain ? spec->limits.memory_bytes / 4 : 0;
    return 0;
}

static int step_failed(int step, int err, struct error *reterr)
{
    if (child_step_is_volumes(step))
        return error_set(reterr, ENOTBLK, "a volume cannot be mounted at its path: %s",
                         err == ELOOP ? "a part of it is a symbolic link" : strerror(err));
    return error_sys(reterr, err, "inside the sandbox: %s", child_step_name(step));
}

/* The first process has something to say, or is gone: err. Gone with something unread on the channel, it
 * makes the kernel say so before its own last words. */
static int child_failed(struct build *b, int err, struct error *reterr)
{
    struct child_report report;
    ssize_t n = recv(b->berth->sync[0], &report, sizeof report, MSG_DONTWAIT);
    if (n < 0)
        n = recv(b->berth->sync[0], &report, sizeof report, MSG_DONTWAIT);
    if (n != (ssize_t)sizeof report || report.err <= 0)
        return error_sys(reterr, err, "the sandbox's first process failed");
    return step_failed(report.step, report.err, reterr);
}

static int tell_child(struct build *b, char what, int mount_fd, struct error *reterr)
{
    if (socket_send_fd(b->berth->sync[0], &what, 1, mount_fd) < 0)
        return child_failed(b, errno, reterr);
    return 0;
}

/* Each is mounted for this sandbox alone, with its ids; the first process puts them where they belong. */
static int step_volumes(struct build *b, struct error *reterr)
{
    for (size_t i = 0; i < b->child->volume_count; i++) {
        const struct keeper_volume_mount *v = &b->child->volumes[i];
        dev_t dev;
        int r = volume_mount(b->env->volumes, v->name, v->read_only, b->userns, &b->volumes[i], &dev, reterr);
        if (r == 0)
            r = cgroup_limit_io(b->sb->cgroup, &b->spec->limits, dev, reterr);
        if (r == 0 && b->berth)
            r = tell_child(b, CHILD_VOLUME, b->volumes[i], reterr);
        if (r < 0)
            return r;
    }
    return 0;
}

static void undo_volumes(struct build *b)
{
    for (size_t i = 0; i < ARRAY_SIZE(b->volumes); i++)
        close_fd(&b->volumes[i]);
}

/* The image itself, until there is a disk. */
static int bare_root(struct build *b, int *ret, struct error *reterr)
{
    struct sandbox *sb = b->sb;
    if (b->image.root_fd < 0 || b->image.layer_count)
        return error_set(reterr, EOPNOTSUPP, "the image has layers");
    sb->kit.userns = fcntl(b->userns, F_DUPFD_CLOEXEC, 0);
    if (sb->kit.userns < 0)
        return error_sys(reterr, errno, "keep the user namespace");
    int r = rootfs_bare(&b->image, b->userns, &sb->kit.lower, reterr);
    return r < 0 ? r : rootfs_bare(&b->image, b->userns, ret, reterr);
}

/* Programs, libraries and what the dynamic linker adds to them are the image's. No link of the sandbox's is
 * followed. */
static bool is_pristine(int disk)
{
    static const char *const names[] = {"usr",   "bin",    "lib",  "lib32",
                                        "lib64", "libx32", "sbin", "etc/ld.so.preload"};
    auto_close int upper = open_beneath(disk, "upper", O_PATH | O_DIRECTORY);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        auto_close int there = upper < 0 ? upper : open_beneath(upper, names[i], O_PATH);
        if (there != -ENOENT)
            return false;
    }
    return true;
}

static int disk_root(struct build *b, int *ret, struct error *reterr)
{
    auto_close int disk = -1;
    unsigned slot = b->spec->slot;
    uint32_t owner = sandbox_uid(b->env, slot);
    bool young = b->spec->fresh_disk;
    int r = 0;
    if (is_held(b->spec)) {
        b->hold = *b->spec->held_disk;
    } else {
        b->hold.index = b->disk.index;
        r = disk_mount(&b->disk, -1, false, young, &b->hold.fd, reterr);
    }
    if (r == 0)
        r = disk_view(b->env->disks, &b->hold, b->userns, young, &disk, reterr);
    if (r < 0)
        return r;
    b->sb->hold.index = b->hold.index; /* the rest of it at the end */
    if (b->berth)
        return rootfs_make(slot, &b->image, disk, b->userns, owner, ret, reterr);
    b->sb->kit.disk = take_fd(disk);
    b->sb->pristine = is_pristine(b->hold.fd);
    return rootfs_furnish(slot, b->sb->kit.lower, b->sb->kit.disk, owner, ret, reterr);
}

static int step_root(struct build *b, struct error *reterr)
{
    auto_close int root = -1;
    int r = b->spec->bare ? bare_root(b, &root, reterr) : disk_root(b, &root, reterr);
    if (r == 0 && b->berth)
        return tell_child(b, CHILD_ROOT, root, reterr);
    int step = 0;
    if (r == 0 && (r = move_in(b->child, b->sb->pidfd, root, b->volumes, &b->sb->kit.guest, &step)) < 0)
        r = step_failed(step, -r, reterr);
    return r;
}

static void undo_root(struct build *b)
{
    if (b->hold.fd >= 0 && !is_held(b->spec)) {
        if (b->spec->fresh_disk)
            disk_abandon(&b->hold);
        close_fd(&b->hold.fd);
    }
    bare_kit_done(&b->sb->kit);
}

/* End of file on the start-up channel is the exec of the agent; anything else is the step that failed. */
static int step_exec(struct build *b, struct error *reterr)
{
    char c;
    struct pollfd p = {.fd = b->berth->sync[0], .events = POLLIN};
    if (poll_patiently(&p, 1, CHILD_TIMEOUT_MS) <= 0)
        return error_set(reterr, ETIMEDOUT, "the sandbox's first process does not get on");
    ssize_t n = recv(b->berth->sync[0], &c, 1, MSG_DONTWAIT | MSG_PEEK);
    return n == 0 ? 0 : child_failed(b, n < 0 ? errno : EIO, reterr);
}

static int step_control(struct build *b, struct error *reterr)
{
    int r = sandbox_control_connect(b->berth->slot_dir, b->sb, reterr);
    if (r < 0)
        return r;
    struct pollfd p[] = {{.fd = b->sb->control_fd, .events = POLLIN}, {.fd = b->sb->pidfd, .events = POLLIN}};
    if (poll_patiently(p, ARRAY_SIZE(p), CHILD_TIMEOUT_MS) <= 0)
        return error_set(reterr, ETIMEDOUT, "the agent does not answer");
    if (p[1].revents)
        return error_set(reterr, EPIPE, "the sandbox's first process has ended");
    return sandbox_control(b->sb, reterr);
}

static void undo_control(struct build *b)
{
    close_fd(&b->sb->control_fd);
}

static int step_posture(struct build *b, struct error *reterr)
{
    return posture_check(b->sb->pid, sandbox_uid(b->env, b->sb->spec.slot), reterr);
}

static int step_record(struct build *b, struct error *reterr)
{
    return b->sb->spec.owned ? 0 : sandbox_record(b->berth->slot_dir, b->sb, reterr);
}

static const struct step {
    const char *name; /* "": the step names itself */
    int (*run)(struct build *b, struct error *reterr);
    void (*undo)(struct build *b); /* also called for a step that failed half-way; NULL: an earlier one's
                                      covers it */
} plan[] = {
    {"open the image", step_image, undo_image},
    {"", step_berth, undo_berth},
    {"write the disk image", step_disk, undo_disk},
    {"attach the disk", step_attach_disk, undo_attach_disk},
    {"set its limits", step_limits, NULL},
    {"tell its first process", step_surroundings, NULL},
    {"tell its first process", step_program, NULL},
    {"mount its volumes", step_volumes, undo_volumes},
    {"build its root file system", step_root, undo_root},
    {"let it become the agent", step_exec, NULL},
    {"place its spawner", step_control, undo_control},
    {"check its posture", step_posture, NULL},
    {"record it", step_record, NULL},
};

/* A bare one has the rest. */
static const struct step move_plan[] = {
    {"", step_bare, undo_bare},
    {"write the disk image", step_disk, undo_disk},
    {"attach the disk", step_attach_disk, undo_attach_disk},
    {"set its limits", step_limits, NULL},
    {"tell its surroundings", step_surroundings, NULL},
    {"mount its volumes", step_volumes, undo_volumes},
    {"build its root file system", step_root, undo_root},
};

static int carry_out(struct build *b, const struct step *steps, size_t count, struct error *reterr)
{
    struct error e = {0};
    int r = 0;
    size_t i = 0;
    for (; i < count; i++) {
        r = failpoint_hit(steps == plan ? "start" : "move", (int)i, &e);
        if (r == 0)
            r = steps[i].run(b, &e);
        if (r < 0)
            break;
    }
    if (r == 0)
        return 0;
    if (steps[i].name[0])
        (void)error_prefix(&e, "%s", steps[i].name);
    for (size_t k = i + 1; k-- > 0;)
        if (steps[k].undo)
            steps[k].undo(b);
    if (reterr)
        *reterr = e;
    return r;
}

/* What only the build needed; the sandbox itself holds the rest from inside. */
static void build_done(struct build *b)
{
    undo_volumes(b);
    undo_attach_disk(b);
    undo_image(b);
    b->sb->spec.hostname = NULL;
    b->sb->spec.volumes = NULL;
    b->sb->spec.held_disk = NULL;
    b->sb->hold = b->hold;
    if (is_held(b->spec))
        b->spec->held_disk->fd = -1;
}

static void build_init(struct build *b, struct keeper_env *env, const struct sandbox_spec *spec,
                       struct sandbox *sb)
{
    *b = (struct build){
        .env = env, .spec = spec, .sb = sb, .userns = -1, .disk = {.fd = -1}, .hold = {.fd = -1}};
    b->image.root_fd = b->image.layers_fd = -1;
    for (size_t i = 0; i < ARRAY_SIZE(b->volumes); i++)
        b->volumes[i] = -1;
}

int sandbox_start(struct keeper_env *env, const struct sandbox_spec *spec, struct sandbox **ret,
                  struct error *reterr)
{
    struct build b;
    struct sandbox *sb = calloc(1, sizeof *sb);
    if (!sb) {
        berth_remove(spec->berth);
        return error_sys(reterr, ENOMEM, "start a sandbox");
    }
    sb->spec = *spec;
    sb->spec.network = spec->network && env->network;
    sb->pidfd = sb->control_fd = sb->hold.fd = sb->told_exit = -1;
    sb->kit = BARE_KIT_NONE;
    random_bytes(&sb->generation, sizeof sb->generation);
    build_init(&b, env, spec, sb);
    int r = carry_out(&b, plan, ARRAY_SIZE(plan), reterr);
    if (r < 0) { /* maybe before these were taken */
        if (is_held(spec))
            undo_disk(&b);
        berth_remove(sb->spec.berth);
        free(sb);
        return r;
    }
    berth_leave(b.berth);
    build_done(&b);
    *ret = sb;
    return 0;
}

int sandbox_move_in(struct keeper_env *env, struct sandbox *sb, const struct sandbox_spec *spec,
                    struct error *reterr)
{
    struct build b;
    build_init(&b, env, spec, sb);
    int r = carry_out(&b, move_plan, ARRAY_SIZE(move_plan), reterr);
    if (r < 0) { /* its first step is undone in any case, and with it the sandbox */
        if (is_held(spec))
            undo_disk(&b);
        return r;
    }
    bool ipv6 = sb->spec.ipv6;
    sb->spec = *spec;
    sb->spec.ipv6 = ipv6;
    build_done(&b);
    return 0;
}
