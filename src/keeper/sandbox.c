/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox.c: the recipe: how a sandbox comes to be, step by step, and how each step is undone.
 *
 * Read the table `plan` first; it can be checked against the threat model line by line. A step that fails
 * undoes all earlier ones in reverse, so a failed start leaves nothing on the host. What the first process
 * does on its own side of the clone is in child.c; ending a sandbox is in sandbox_end.c. */
#include "keeper/sandbox.h"
#include "agent/control.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "keeper/child.h"
#include "keeper/cloner.h"
#include "keeper/image.h"
#include "keeper/mount_util.h"
#include "keeper/process.h"
#include "keeper/record.h"
#include "keeper/rootfs.h"
#include "keeper/sandbox_internal.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { START_TIMEOUT_MS = 10000, RANGE = 65536, ENV_MAX = IMAGE_ENV_MAX + 8 };

/* Everything that lives during a build only. */
struct build {
    struct keeper_env *env;
    struct sandbox *sb;
    struct image image;
    struct disk_device disk;
    struct child_plan child;
    struct cloner cloner;
    struct eth0 eth0;
    char *envp[ENV_MAX];
    char *user, *workdir; /* the image's, as settings of the agent (src/agent/settings.h) */
    int slot_dir;
    int sync[2]; /* ours, the child's */
    int userns;
};

uint32_t sandbox_uid(const struct keeper_env *env, unsigned slot)
{
    return env->host.uid_base + slot * RANGE;
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

/* The slot's directory is the intent: from here on a restarted keeper finds and removes whatever was made. */
static int step_slot(struct build *b, struct error *reterr)
{
    return slot_dir_make(b->env->slots_fd, b->sb->spec.slot, &b->slot_dir, reterr);
}

static void undo_slot(struct build *b)
{
    close_fd(&b->slot_dir);
    slot_dir_remove(b->env->slots_fd, b->sb->spec.slot);
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

static int step_sockets(struct build *b, struct error *reterr)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d/agent.sock", b->slot_dir);
    int r = socket_listen_unix(path, SOCK_STREAM, &b->child.http_fd, reterr);
    if (r < 0)
        return r;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d/control.sock", b->slot_dir);
    return socket_listen_unix(path, SOCK_SEQPACKET, &b->child.control_fd, reterr);
}

static void undo_sockets(struct build *b)
{
    close_fd(&b->child.http_fd);
    close_fd(&b->child.control_fd);
}

static int step_agent(struct build *b, struct error *reterr)
{
    return host_agent_memfd(&b->env->host, &b->child.agent_fd, reterr);
}

static void undo_agent(struct build *b)
{
    close_fd(&b->child.agent_fd);
}

static int step_devices(struct build *b, struct error *reterr)
{
    for (size_t i = 0; i < HOST_DEVICE_COUNT; i++) {
        int r = mount_clone(b->env->host.device_fds[i], MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC,
                            &b->child.device_mounts[i], reterr);
        if (r < 0)
            return r;
    }
    return 0;
}

static void undo_devices(struct build *b)
{
    for (size_t i = 0; i < HOST_DEVICE_COUNT; i++)
        close_fd(&b->child.device_mounts[i]);
}

static int step_cgroup(struct build *b, struct error *reterr)
{
    return cgroup_create(b->env->cgroups, b->sb->spec.slot, &b->sb->spec.limits, b->disk.dev, &b->sb->cgroup,
                         reterr);
}

static void undo_cgroup(struct build *b)
{
    cgroup_end(b->sb->cgroup);
    b->sb->cgroup = NULL;
}

/* What the first process needs to know, put where it can read it without allocating. */
static void prepare_child(struct build *b)
{
    static char *argv[] = {"silica-agent", "--sandbox", NULL};
    static char home[] = "HOME=/root", user[] = "USER=root",
                path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    struct child_plan *c = &b->child;
    size_t n = 0;
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
    c->argv = argv;
    c->envp = b->envp;
    c->hostname = b->sb->spec.hostname && b->sb->spec.hostname[0] ? b->sb->spec.hostname : "sandbox";
    c->volumes = b->sb->spec.volumes;
    while (c->volumes && c->volume_count < KEEPER_VOLUMES_MAX && c->volumes[c->volume_count].name[0])
        c->volume_count++;
    if (b->sb->spec.network) {
        c->resolv_conf = network_resolv_conf(b->env->network);
        network_eth0(b->env->network, b->sb->spec.slot, &b->eth0);
        c->eth0 = &b->eth0;
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
    size_t v1 = 0;
    static const enum cgroup_controller shown[] = {CGROUP_MEMORY, CGROUP_CPU, CGROUP_PIDS};
    for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
        if (cgroup_version_of(b->env->cgroups, shown[i]) == CGROUP_V1)
            c->cgroup_v1[v1++] = cgroup_controller_name(shown[i]);
    c->cgroup_v2 = v1 == 0;
}

static int step_clone(struct build *b, struct error *reterr)
{
    struct sandbox *sb = b->sb;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, b->sync) < 0)
        return error_sys(reterr, errno, "make the start-up channel");
    b->child.sync_fd = b->sync[1];
    prepare_child(b);

    int r = cloner_start(&b->cloner, &b->child, sandbox_uid(b->env, sb->spec.slot),
                         cgroup_clone_fd(sb->cgroup), b->sync[0], reterr);
    sb->pidfd = b->cloner.pidfd;
    if (r < 0)
        return r;
    close_fd(&b->sync[1]);
    sb->pid = b->cloner.pid;
    r = process_start_time(sb->pid, &sb->start_time);
    return r < 0 ? error_sys(reterr, -r, "read the start time") : 0;
}

static void undo_clone(struct build *b)
{
    if (b->sb->pidfd >= 0) {
        (void)syscall(SYS_pidfd_send_signal, b->sb->pidfd, SIGKILL, NULL, 0);
        while (waitid(P_PIDFD, (id_t)b->sb->pidfd, &(siginfo_t){0}, WEXITED) < 0 && errno == EINTR)
            ;
    }
    cloner_finish(&b->cloner);
    close_fd(&b->sb->pidfd);
    close_fd(&b->sync[0]);
    close_fd(&b->sync[1]);
}

static int write_proc(pid_t pid, const char *name, const char *text)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        return -errno;
    return 0;
}

static int step_ids(struct build *b, struct error *reterr)
{
    char map[48], path[64];
    (void)snprintf(map, sizeof map, "0 %u %d", sandbox_uid(b->env, b->sb->spec.slot), RANGE);
    int r = write_proc(b->sb->pid, "uid_map", map);
    if (r == 0)
        r = write_proc(b->sb->pid, "gid_map", map);
    if (r < 0)
        return error_sys(reterr, -r, "map the sandbox's ids");
    (void)snprintf(path, sizeof path, "/proc/%d/ns/user", (int)b->sb->pid);
    b->userns = open(path, O_RDONLY | O_CLOEXEC);
    return b->userns < 0 ? error_sys(reterr, errno, "open the user namespace") : 0;
}

static void undo_ids(struct build *b)
{
    close_fd(&b->userns);
}

static int step_groups(struct build *b, struct error *reterr)
{
    return cgroup_attach(b->sb->cgroup, b->sb->pid, reterr);
}

/* The link is there before the child is let go on, so that it finds its eth0. */
static int step_network(struct build *b, struct error *reterr)
{
    char path[64];
    if (!b->sb->spec.network)
        return 0;
    (void)snprintf(path, sizeof path, "/proc/%d/ns/net", (int)b->sb->pid);
    auto_close int netns = open(path, O_RDONLY | O_CLOEXEC);
    if (netns < 0)
        return error_sys(reterr, errno, "open the network namespace");
    const struct network_terms *terms = &b->sb->spec.terms;
    b->sb->spec.ipv6 = true; /* if the daemon has any */
    bool plain = !terms->listed && keeper_policy_empty(&terms->policy);
    int r = plain ? 0 : network_terms_write(b->slot_dir, terms, reterr);
    return r < 0 ? r : network_connect(b->env->network, b->sb->spec.slot, netns, terms, reterr);
}

static void undo_network(struct build *b)
{
    if (!b->sb->spec.network)
        return;
    network_disconnect(b->env->network, b->sb->spec.slot, &b->sb->spec.terms);
    network_link_delete(b->env->network, b->sb->spec.slot);
}

/* Each is mounted for this sandbox alone, with its ids; the first process puts them where they belong. */
static int step_volumes(struct build *b, struct error *reterr)
{
    for (size_t i = 0; i < b->child.volume_count; i++) {
        const struct keeper_volume_mount *v = &b->child.volumes[i];
        auto_close int mnt = -1;
        dev_t dev;
        int r = volume_mount(b->env->volumes, v->name, v->read_only, b->userns, &mnt, &dev, reterr);
        if (r == 0)
            r = cgroup_set_limits(b->sb->cgroup, &b->sb->spec.limits, dev, reterr); /* of I/O there, too */
        if (r < 0)
            return r;
        if (socket_send_fd(b->sync[0], &(char){CHILD_MOUNT_VOLUME}, 1, mnt) < 0)
            return error_sys(reterr, errno, "hand over a volume");
    }
    return 0;
}

static int step_root(struct build *b, struct error *reterr)
{
    auto_close int disk = -1;
    auto_close int root = -1;
    int r = disk_mount(&b->disk, b->userns, false, b->sb->spec.fresh_disk, &disk, reterr);
    if (r == 0 && (b->sb->disk_fd = openat(disk, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        r = error_sys(reterr, errno, "open the disk");
    if (r == 0)
        r = rootfs_make(b->sb->spec.slot, &b->image, disk, b->userns, sandbox_uid(b->env, b->sb->spec.slot),
                        &root, reterr);
    if (r < 0)
        return r;
    if (socket_send_fd(b->sync[0], &(char){CHILD_MOUNT_ROOT}, 1, root) < 0)
        return error_sys(reterr, errno, "hand over the root file system");
    return 0;
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
    struct child_report report;
    struct pollfd p = {.fd = b->sync[0], .events = POLLIN};
    if (poll(&p, 1, START_TIMEOUT_MS) <= 0)
        return error_set(reterr, ETIMEDOUT, "the sandbox's first process does not get on");
    ssize_t n = recv(b->sync[0], &report, sizeof report, MSG_DONTWAIT);
    if (n == 0)
        return 0;
    if (n != (ssize_t)sizeof report || report.err <= 0)
        return error_set(reterr, EIO, "the sandbox's first process failed");
    if (child_step_is_volumes(report.step))
        return error_set(reterr, ENOTBLK, "a volume cannot be mounted at its path: %s",
                         report.err == ELOOP ? "a part of it is a symbolic link" : strerror(report.err));
    return error_sys(reterr, report.err, "inside the sandbox: %s", child_step_name(report.step));
}

static int step_control(struct build *b, struct error *reterr)
{
    int r = sandbox_control_connect(b->slot_dir, b->sb, reterr);
    if (r < 0)
        return r;
    struct pollfd p = {.fd = b->sb->control_fd, .events = POLLIN};
    if (poll(&p, 1, START_TIMEOUT_MS) <= 0)
        return error_set(reterr, ETIMEDOUT, "the agent does not answer");
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
    return sandbox_record(b->slot_dir, b->sb, reterr);
}

struct step {
    const char *name;
    int (*run)(struct build *b, struct error *reterr);
    void (*undo)(struct build *b); /* also called for a step that failed half-way; NULL: the next one's undo
                                      covers it */
};

static const struct step plan[] = {
    {"open the image", step_image, undo_image},
    {"take the slot", step_slot, undo_slot},
    {"write the disk image", step_disk, undo_disk},
    {"attach the disk", step_attach_disk, undo_attach_disk},
    {"open the agent's sockets", step_sockets, undo_sockets},
    {"copy the agent", step_agent, undo_agent},
    {"copy the device nodes", step_devices, undo_devices},
    {"make the control groups", step_cgroup, undo_cgroup},
    {"clone the first process", step_clone, undo_clone},
    {"map its ids", step_ids, undo_ids},
    {"join its control groups", step_groups, NULL},
    {"connect its network", step_network, undo_network},
    {"mount its volumes", step_volumes, NULL},
    {"build its root file system", step_root, undo_root},
    {"let it become the agent", step_exec, NULL},
    {"place its spawner", step_control, undo_control},
    {"check its posture", step_posture, NULL},
    {"record it", step_record, NULL},
};

static void build_init(struct build *b, struct keeper_env *env, struct sandbox *sb)
{
    *b = (struct build){.env = env, .sb = sb, .slot_dir = -1, .sync = {-1, -1}, .userns = -1};
    b->image.root_fd = b->image.layers_fd = b->disk.fd = -1;
    b->child.agent_fd = b->child.http_fd = b->child.control_fd = -1;
    for (size_t i = 0; i < HOST_DEVICE_COUNT; i++)
        b->child.device_mounts[i] = -1;
}

/* What only the build needed; the sandbox itself holds the rest from inside. */
static void build_done(struct build *b)
{
    cloner_finish(&b->cloner);
    undo_ids(b);
    close_fd(&b->sync[0]);
    undo_devices(b);
    undo_agent(b);
    undo_sockets(b);
    undo_attach_disk(b);
    close_fd(&b->slot_dir);
    undo_image(b);
}

int sandbox_start(struct keeper_env *env, const struct sandbox_spec *spec, struct sandbox **ret,
                  struct error *reterr)
{
    struct error e = {0};
    struct build b;
    struct sandbox *sb = calloc(1, sizeof *sb);
    if (!sb)
        return error_sys(reterr, ENOMEM, "start a sandbox");
    sb->spec = *spec;
    sb->spec.network = spec->network && env->network;
    sb->pidfd = sb->control_fd = sb->disk_fd = sb->told_exit = -1;
    random_bytes(&sb->generation, sizeof sb->generation);
    build_init(&b, env, sb);

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
        (void)error_prefix(&e, "%s", plan[i].name);
        for (size_t k = i + 1; k-- > 0;)
            if (plan[k].undo)
                plan[k].undo(&b);
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
