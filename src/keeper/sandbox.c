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
    struct sandbox *sb;
    struct image image;
    struct berth *berth;
    struct disk_device disk;
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
    int r = image_open(b->env->images, b->env->images_fd, b->sb->spec.image, &b->image, reterr);
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

static int step_disk(struct build *b, struct error *reterr)
{
    const struct sandbox_spec *spec = &b->sb->spec;
    if (!spec->fresh_disk)
        return 0;
    return disk_create(b->env->disks, spec->disk, spec->limits.disk_bytes, spec->limits.disk_inodes, reterr);
}

static void undo_disk(struct build *b)
{
    if (b->sb->spec.fresh_disk)
        (void)disk_remove(b->env->disks, b->sb->spec.disk, NULL); /* swept at the next start otherwise */
}

static int step_attach_disk(struct build *b, struct error *reterr)
{
    const struct sandbox_spec *spec = &b->sb->spec;
    int r = spec->held_disk && spec->held_disk->fd >= 0
                ? disk_attach_held(b->env->disks, spec->held_disk, &b->disk, reterr)
                : disk_attach(b->env->disks, spec->disk, spec->fresh_disk, &b->disk, reterr);
    b->sb->loop_index = b->disk.index;
    return r;
}

static void undo_attach_disk(struct build *b)
{
    close_fd(&b->disk.fd); /* AUTOCLEAR: the device goes with its last user */
}

/* A berth that waited has the usual limits, and no disk. */
static int step_limits(struct build *b, struct error *reterr)
{
    const struct limits *l = &b->sb->spec.limits;
    bool same = memcmp(l, &b->berth->spec.limits, sizeof *l) == 0;
    return same ? cgroup_limit_io(b->sb->cgroup, l, b->disk.dev, reterr)
                : cgroup_set_limits(b->sb->cgroup, l, b->disk.dev, reterr);
}

/* What the first process needs to know, put where it can read it without allocating. */
static int step_child(struct build *b, struct error *reterr)
{
    static char *argv[] = {"silica-agent", "--sandbox", NULL};
    static char *argv_soon[] = {"silica-agent", "--sandbox", "--soon", NULL};
    static char home[] = "HOME=/root", user[] = "USER=root",
                path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    struct child_plan *c = &b->berth->child;
    size_t n = 0;
    (void)reterr;
    b->envp[n++] = path; /* the image's own value comes later and wins */
    b->envp[n++] = home;
    b->envp[n++] = user;
    for (size_t i = 0; b->image.env[i]; i++)
        b->envp[n++] = b->image.env[i];
    if (b->user)
        b->envp[n++] = b->user;
    if (b->workdir)
        b->envp[n++] = b->workdir;
    b->envp[n] = NULL;
    c->argv = b->sb->spec.owned && !b->sb->spec.fresh_disk ? argv_soon : argv; /* whoever wakes it, uses it */
    c->envp = b->envp;
    c->hostname = b->sb->spec.hostname && b->sb->spec.hostname[0] ? b->sb->spec.hostname : "sandbox";
    c->volumes = b->sb->spec.volumes;
    while (c->volumes && c->volume_count < KEEPER_VOLUMES_MAX && c->volumes[c->volume_count].name[0])
        c->volume_count++;
    if (b->sb->spec.network) {
        c->resolv_conf = network_resolv_conf(b->env->network);
    } else if (b->env->network && !b->sb->spec.sidecar) {
        c->resolv_conf = network_resolv_conf(b->env->network); /* it may get its link later */
    } else if (b->sb->spec.sidecar) {
        c->sidecar = true;
        c->resolv_conf = "nameserver 127.0.0.1\noptions edns0 timeout:2 attempts:3\n";
    }
    c->filter = &b->env->host.filter;
    /* an image of the store may have put things into /tmp and /run, as Dockerfiles do: there they stay on
     * disk */
    bool plain = strcmp(b->sb->spec.image, b->image.bottom) == 0;
    c->tmp_bytes = plain ? b->sb->spec.limits.memory_bytes / 4 : 0;
    return 0;
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
    if (child_step_is_volumes(report.step))
        return error_set(reterr, ENOTBLK, "a volume cannot be mounted at its path: %s",
                         report.err == ELOOP ? "a part of it is a symbolic link" : strerror(report.err));
    return error_sys(reterr, report.err, "inside the sandbox: %s", child_step_name(report.step));
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
    for (size_t i = 0; i < b->berth->child.volume_count; i++) {
        const struct keeper_volume_mount *v = &b->berth->child.volumes[i];
        auto_close int mnt = -1;
        dev_t dev;
        int r = volume_mount(b->env->volumes, v->name, v->read_only, b->berth->userns, &mnt, &dev, reterr);
        if (r == 0)
            r = cgroup_limit_io(b->sb->cgroup, &b->sb->spec.limits, dev, reterr);
        if (r == 0)
            r = tell_child(b, CHILD_VOLUME, mnt, reterr);
        if (r < 0)
            return r;
    }
    return 0;
}

static int step_root(struct build *b, struct error *reterr)
{
    auto_close int disk = -1;
    auto_close int root = -1;
    int r = disk_mount(&b->disk, b->berth->userns, false, b->sb->spec.fresh_disk, &disk, reterr);
    if (r == 0 && (b->sb->disk_fd = openat(disk, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        r = error_sys(reterr, errno, "open the disk");
    if (r == 0)
        r = rootfs_make(b->sb->spec.slot, &b->image, disk, b->berth->userns,
                        sandbox_uid(b->env, b->sb->spec.slot), &root, reterr);
    return r < 0 ? r : tell_child(b, CHILD_ROOT, root, reterr);
}

static void undo_root(struct build *b)
{
    if (b->sb->disk_fd >= 0 && b->sb->spec.fresh_disk)
        disk_abandon(b->sb->disk_fd);
    close_fd(&b->sb->disk_fd);
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
    {"open the image", step_image, undo_image},     {"", step_berth, undo_berth},
    {"write the disk image", step_disk, undo_disk}, {"attach the disk", step_attach_disk, undo_attach_disk},
    {"set its limits", step_limits, NULL},          {"tell its first process", step_child, NULL},
    {"mount its volumes", step_volumes, NULL},      {"build its root file system", step_root, undo_root},
    {"let it become the agent", step_exec, NULL},   {"place its spawner", step_control, undo_control},
    {"check its posture", step_posture, NULL},      {"record it", step_record, NULL},
};

/* What only the build needed; the sandbox itself holds the rest from inside. */
static void build_done(struct build *b)
{
    berth_leave(b->berth);
    undo_attach_disk(b);
    undo_image(b);
}

int sandbox_start(struct keeper_env *env, const struct sandbox_spec *spec, struct sandbox **ret,
                  struct error *reterr)
{
    struct error e = {0};
    struct sandbox *sb = calloc(1, sizeof *sb);
    if (!sb) {
        berth_remove(spec->berth);
        return error_sys(reterr, ENOMEM, "start a sandbox");
    }
    sb->spec = *spec;
    sb->spec.network = spec->network && env->network;
    sb->pidfd = sb->control_fd = sb->disk_fd = sb->told_exit = -1;
    random_bytes(&sb->generation, sizeof sb->generation);
    struct build b = {.env = env, .sb = sb, .disk = {.fd = -1}};
    b.image.root_fd = b.image.layers_fd = -1;

    int r = 0;
    size_t i = 0;
    for (; i < ARRAY_SIZE(plan); i++) {
        r = failpoint_hit("start", (int)i, &e);
        if (r == 0)
            r = plan[i].run(&b, &e);
        if (r < 0)
            break;
    }
    if (r < 0) {
        if (plan[i].name[0])
            (void)error_prefix(&e, "%s", plan[i].name);
        for (size_t k = i + 1; k-- > 0;)
            if (plan[k].undo)
                plan[k].undo(&b);
        berth_remove(sb->spec.berth); /* it failed before that was taken */
        free(sb);
        if (reterr)
            *reterr = e;
        return r;
    }
    build_done(&b);
    sb->spec.hostname = NULL;
    sb->spec.volumes = NULL;
    sb->spec.held_disk = NULL;
    *ret = sb;
    return 0;
}
