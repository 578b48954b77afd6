/* SPDX-License-Identifier: Apache-2.0 */
/* berth.c: see berth.h. The first half of the recipe, a plan of steps that undo themselves in reverse, as in
 * sandbox.c, which has the other half. */
#include "keeper/berth.h"
#include "base/failpoint.h"
#include "keeper/mount_util.h"
#include "keeper/process.h"
#include "keeper/record.h"
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
#include <sys/wait.h>

/* The slot's directory is the intent: from here on a restarted keeper finds and removes whatever was made. */
static int step_slot(struct berth *b, struct error *reterr)
{
    return slot_dir_make(b->env->slots_fd, b->spec.slot, &b->slot_dir, reterr);
}

static void undo_slot(struct berth *b)
{
    close_fd(&b->slot_dir);
    slot_dir_remove(b->env->slots_fd, b->spec.slot);
}

static int step_sockets(struct berth *b, struct error *reterr)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d/agent.sock", b->slot_dir);
    int r = socket_listen_unix(path, SOCK_STREAM, &b->child.http_fd, reterr);
    if (r < 0)
        return r;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d/control.sock", b->slot_dir);
    return socket_listen_unix(path, SOCK_SEQPACKET, &b->child.control_fd, reterr);
}

static void undo_sockets(struct berth *b)
{
    close_fd(&b->child.http_fd);
    close_fd(&b->child.control_fd);
}

static int step_agent(struct berth *b, struct error *reterr)
{
    return host_agent_memfd(&b->env->host, &b->child.agent_fd, reterr);
}

static void undo_agent(struct berth *b)
{
    close_fd(&b->child.agent_fd);
}

static int step_devices(struct berth *b, struct error *reterr)
{
    for (size_t i = 0; i < HOST_DEVICE_COUNT; i++) {
        int r = mount_clone(b->env->host.device_fds[i], MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC,
                            &b->child.device_mounts[i], reterr);
        if (r < 0)
            return r;
    }
    return 0;
}

static void undo_devices(struct berth *b)
{
    for (size_t i = 0; i < HOST_DEVICE_COUNT; i++)
        close_fd(&b->child.device_mounts[i]);
}

static int step_groups(struct berth *b, struct error *reterr)
{
    return cgroup_create(b->env->cgroups, b->spec.slot, &b->spec.limits, 0, &b->cgroup, reterr);
}

static void undo_groups(struct berth *b)
{
    cgroup_end(b->cgroup);
    b->cgroup = NULL;
}

static int step_clone(struct berth *b, struct error *reterr)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, b->sync) < 0)
        return error_sys(reterr, errno, "make the start-up channel");
    b->child.sync_fd = b->sync[1];
    int r = cloner_start(&b->cloner, &b->child, sandbox_uid(b->env, b->spec.slot), cgroup_clone_fd(b->cgroup),
                         b->sync[0], reterr);
    b->pidfd = b->cloner.pidfd;
    if (r < 0)
        return r;
    close_fd(&b->sync[1]);
    b->pid = b->cloner.pid;
    r = process_start_time(b->pid, &b->start_time);
    return r < 0 ? error_sys(reterr, -r, "read the start time") : 0;
}

static void end_child(int pidfd)
{
    if (pidfd < 0)
        return;
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    while (waitid(P_PIDFD, (id_t)pidfd, &(siginfo_t){0}, WEXITED) < 0 && errno == EINTR)
        ;
}

/* A child that is still being born cannot be killed, but hears that nobody is left to talk to, and ends. The
 * thread that waits for that may still use its end of the line. */
static void undo_clone(struct berth *b)
{
    close_fd(&b->sync[0]);
    end_child(b->pidfd);
    cloner_finish(&b->cloner);
    if (b->pidfd < 0) {
        b->pidfd = b->cloner.pidfd;
        end_child(b->pidfd);
    }
    close_fd(&b->pidfd);
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

static int step_ids(struct berth *b, struct error *reterr)
{
    char map[48], path[64];
    (void)snprintf(map, sizeof map, "0 %u %d", sandbox_uid(b->env, b->spec.slot), SANDBOX_IDS);
    int r = write_proc(b->pid, "uid_map", map);
    if (r == 0)
        r = write_proc(b->pid, "gid_map", map);
    if (r < 0)
        return error_sys(reterr, -r, "map the sandbox's ids");
    (void)snprintf(path, sizeof path, "/proc/%d/ns/user", (int)b->pid);
    b->userns = open(path, O_RDONLY | O_CLOEXEC);
    return b->userns < 0 ? error_sys(reterr, errno, "open the user namespace") : 0;
}

static void undo_ids(struct berth *b)
{
    close_fd(&b->userns);
}

static int step_join(struct berth *b, struct error *reterr)
{
    return cgroup_attach(b->cgroup, b->pid, reterr);
}

/* A move of its own for every spawner would be another wait, this time of somebody who wants a sandbox. */
static int step_lower(struct berth *b, struct error *reterr)
{
    if (!b->spec.low)
        return 0;
    struct child_report report;
    struct pollfd p = {.fd = b->sync[0], .events = POLLIN};
    if (socket_send_fd(b->sync[0], &(char){CHILD_GROUPS}, 1, -1) < 0 ||
        poll_patiently(&p, 1, CHILD_TIMEOUT_MS) <= 0 ||
        recv(b->sync[0], &report, sizeof report, MSG_DONTWAIT) != (ssize_t)sizeof report)
        return error_set(reterr, ETIMEDOUT, "the first process does not get on");
    if (report.err)
        return error_sys(reterr, report.err, "inside the sandbox: %s", child_step_name(report.step));
    return cgroup_attach_work(b->cgroup, b->pid, reterr);
}

/* The link is there before the child is let go on, so that it finds its eth0. */
static int step_network(struct berth *b, struct error *reterr)
{
    char path[64];
    const struct network_terms *terms = b->spec.terms;
    if (!terms)
        return 0;
    (void)snprintf(path, sizeof path, "/proc/%d/ns/net", (int)b->pid);
    auto_close int netns = open(path, O_RDONLY | O_CLOEXEC);
    if (netns < 0)
        return error_sys(reterr, errno, "open the network namespace");
    network_eth0(b->env->network, b->spec.slot, &b->eth0);
    b->child.eth0 = &b->eth0;
    int r = network_terms_plain(terms) ? 0 : network_terms_write(b->slot_dir, terms, reterr);
    return r < 0 ? r : network_connect(b->env->network, b->spec.slot, netns, terms, reterr);
}

static void undo_network(struct berth *b)
{
    if (!b->spec.terms)
        return;
    network_disconnect(b->env->network, b->spec.slot, b->spec.terms);
    network_link_delete(b->env->network, b->spec.slot);
}

/* From here on it prepares whatever it can, beside us. */
static int step_place(struct berth *b, struct error *reterr)
{
    static const enum cgroup_controller shown[] = {CGROUP_MEMORY, CGROUP_CPU, CGROUP_PIDS};
    struct child_plan *c = &b->child;
    size_t v1 = 0;
    for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
        if (cgroup_version_of(b->env->cgroups, shown[i]) == CGROUP_V1)
            c->cgroup_v1[v1++] = cgroup_controller_name(shown[i]);
    c->cgroup_v2 = v1 == 0;
    if (socket_send_fd(b->sync[0], &(char){CHILD_PLACE}, 1, -1) < 0)
        return error_sys(reterr, errno, "tell the first process");
    return 0;
}

static const struct step {
    const char *name;
    int (*run)(struct berth *b, struct error *reterr);
    void (*undo)(struct berth *b); /* also called for a step that failed half-way */
} plan[] = {
    {"take the slot", step_slot, undo_slot},
    {"open the agent's sockets", step_sockets, undo_sockets},
    {"copy the agent", step_agent, undo_agent},
    {"copy the device nodes", step_devices, undo_devices},
    {"make the control groups", step_groups, undo_groups},
    {"clone the first process", step_clone, undo_clone},
    {"map its ids", step_ids, undo_ids},
    {"join its control groups", step_join, NULL},
    {"join those of the workload", step_lower, NULL},
    {"connect its network", step_network, undo_network},
    {"let it prepare itself", step_place, NULL},
};

static void undo_from(struct berth *b, size_t step)
{
    for (size_t i = step + 1; i-- > 0;)
        if (plan[i].undo)
            plan[i].undo(b);
    free(b);
}

int berth_make(struct keeper_env *env, const struct berth_spec *spec, struct berth **ret,
               struct error *reterr)
{
    struct error e = {0};
    struct berth *b = calloc(1, sizeof *b);
    if (!b)
        return error_sys(reterr, ENOMEM, "make room for a sandbox");
    *b = (struct berth){
        .env = env, .spec = *spec, .slot_dir = -1, .sync = {-1, -1}, .userns = -1, .pidfd = -1};
    b->child.agent_fd = b->child.http_fd = b->child.control_fd = -1;
    for (size_t i = 0; i < HOST_DEVICE_COUNT; i++)
        b->child.device_mounts[i] = -1;
    for (size_t i = 0; i < ARRAY_SIZE(plan); i++) {
        int r = failpoint_hit("berth", (int)i, &e);
        if (r == 0)
            r = plan[i].run(b, &e);
        if (r < 0) {
            (void)error_prefix(&e, "%s", plan[i].name);
            undo_from(b, i);
            if (reterr)
                *reterr = e;
            return r;
        }
    }
    *ret = b;
    return 0;
}

void berth_remove(struct berth *b)
{
    if (b)
        undo_from(b, ARRAY_SIZE(plan) - 1);
}

void berth_leave(struct berth *b)
{
    cloner_finish(&b->cloner);
    undo_ids(b);
    close_fd(&b->sync[0]);
    undo_devices(b);
    undo_agent(b);
    undo_sockets(b);
    close_fd(&b->slot_dir);
    free(b);
}
