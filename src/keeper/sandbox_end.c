/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_end.c: a sandbox's life after its start: claim, connect, control messages, adoption, end. */
#include "agent/control.h"
#include "base/clock.h"
#include "base/log.h"
#include "keeper/process.h"
#include "keeper/record.h"
#include "keeper/sandbox_internal.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

enum {
    END_TIMEOUT_MS = 5000,
    ROOT_TIMEOUT_MS = 2000,
    LAST_WORDS = 16,
    CONTROL_PER_SECOND = 1000,
    AGENT_SEND_BYTES = 512 * 1024
};

static void pause_ms(int ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

int sandbox_control_connect(int slot_dir_fd, struct sandbox *sb, struct error *reterr)
{
    int on = 1;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/control.sock", slot_dir_fd);
    /* an agent that lets its queue fill up must not stop the keeper */
    auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* the kernel tells who sends: a spawner asks for itself. Set before the connection exists, because a
     * spawner that waits on the other side sends at once, and a message sent earlier carries no credentials
     */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0 ||
        connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        return error_sys(reterr, errno, "reach the agent's control socket");
    sb->control_fd = take_fd(fd);
    return 0;
}

int sandbox_record(int slot_dir_fd, const struct sandbox *sb, struct error *reterr)
{
    struct record r = {.generation = sb->generation,
                       .disk = sb->spec.disk,
                       .start_time = sb->start_time,
                       .limits = sb->spec.limits,
                       .pid = sb->pid,
                       .loop_index = sb->hold.index,
                       .sidecar = sb->spec.sidecar};
    memcpy(r.id, sb->id, sizeof r.id);
    memcpy(r.image, sb->spec.image, sizeof r.image);
    return record_write(slot_dir_fd, &r, reterr);
}

static int control_send(struct sandbox *sb, enum control_type type, int fd, struct error *reterr)
{
    struct control_message m = {CONTROL_VERSION, type};
    ssize_t n = socket_send_fd(sb->control_fd, &m, sizeof m, fd);
    return n < 0 ? error_sys(reterr, (int)-n, "speak to the agent") : 0;
}

/* Who may be placed: only a process of this very sandbox, whatever the message says. -ESRCH: it is gone. */
static int place(struct sandbox *sb, pid_t pid, struct error *reterr)
{
    ino_t ours, theirs = 0;
    int r = pid > 0 ? process_namespace(pid, "pid", &theirs) : 0;
    if (r == -ENOENT || r == -ESRCH)
        return error_sys(reterr, ESRCH, "place a process");
    if (r < 0 || process_namespace(sb->pid, "pid", &ours) < 0 || ours != theirs)
        return error_set(reterr, EBADMSG, "a process that is not of this sandbox asked to be placed");
    /* who is started by a process of these groups is there already */
    return sb->low ? 0 : cgroup_attach_work(sb->cgroup, pid, reterr);
}

/* An agent has little to say: its start, its end, a spawner now and then. */
static bool talks_too_much(struct sandbox *sb)
{
    int64_t now_ms = clock_mono_ms();
    if (now_ms - sb->control_since_ms >= 1000) {
        sb->control_since_ms = now_ms;
        sb->control_count = 0;
    }
    return ++sb->control_count > CONTROL_PER_SECOND;
}

int sandbox_control(struct sandbox *sb, struct error *reterr)
{
    struct control_message m;
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(8 * sizeof(int))];
    } control;
    struct iovec iov = {&m, sizeof m};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(sb->control_fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return error_sys(reterr, errno, "listen to the agent");
    pid_t sender = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level != SOL_SOCKET)
            continue;
        if (c->cmsg_type == SCM_CREDENTIALS) {
            struct ucred cred;
            memcpy(&cred, CMSG_DATA(c), sizeof cred);
            sender = cred.pid;
        } else if (c->cmsg_type == SCM_RIGHTS) { /* nobody asked for descriptors */
            for (size_t i = 0; i + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); i += sizeof(int)) {
                int fd;
                memcpy(&fd, CMSG_DATA(c) + i, sizeof fd);
                (void)close(fd);
            }
        }
    }
    if (n == 0)
        return error_set(reterr, EPIPE, "the agent closed its control line");
    if (n != (ssize_t)sizeof m || m.version != CONTROL_VERSION || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        return error_set(reterr, EBADMSG, "the agent sent a message of the wrong shape");
    if (talks_too_much(sb))
        return error_set(reterr, EBADMSG, "the agent sent more than %d messages in a second",
                         CONTROL_PER_SECOND);
    if ((m.type & ~0xffu) == CONTROL_EXIT) {
        sb->told_exit = (int)(m.type & 0xff);
        return 0;
    }
    switch (m.type) {
    case CONTROL_PLACE: {
        int r = place(sb, sender, reterr);
        if (r == -ESRCH)
            return 0; /* killed while it waited: the agent starts another one, which asks for itself */
        if (r == 0)
            r = control_send(sb, CONTROL_PLACED, -1, reterr);
        return r == -EAGAIN ? error_set(reterr, EBADMSG, "the agent asks and does not read the answers") : r;
    }
    case CONTROL_BOOTED:
        return 0;
    default:
        return error_set(reterr, EBADMSG, "the agent sent an unknown message");
    }
}

uint32_t sandbox_exit_code(struct sandbox *sb)
{
    siginfo_t si = {0};
    /* only a look: sandbox_stop reaps it */
    if (!sb->adopted && waitid(P_PIDFD, (id_t)sb->pidfd, &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid)
        return (uint32_t)(si.si_code == CLD_EXITED ? si.si_status : 128 + si.si_status) & 0xff;
    for (int i = 0; i < LAST_WORDS && sb->told_exit < 0 && sb->control_fd >= 0; i++)
        if (sandbox_control(sb, NULL) < 0)
            break;
    return sb->told_exit >= 0 ? (uint32_t)sb->told_exit
                              : 128 + SIGKILL; /* who cannot say goodbye was killed */
}

int sandbox_claim(struct keeper_env *env, struct sandbox *sb, const char *id, int env_fd,
                  struct error *reterr)
{
    auto_close int dir = -1;
    int r = slot_dir_open(env->slots_fd, sb->spec.slot, &dir, reterr);
    if (r < 0)
        return r;
    (void)snprintf(sb->id, sizeof sb->id, "%s", id);
    r = control_send(sb, sb->pristine ? CONTROL_BOOT_PRISTINE : CONTROL_BOOT, env_fd,
                     reterr); /* first: it has something to do meanwhile */
    return r < 0 ? r : sandbox_record(dir, sb, reterr);
}

int sandbox_connect(struct keeper_env *env, const struct sandbox *sb, int *ret_fd, struct error *reterr)
{
    char path[64];
    auto_close int dir = -1;
    int r = slot_dir_open(env->slots_fd, sb->spec.slot, &dir, reterr);
    if (r < 0)
        return r;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d/agent.sock", dir);
    r = socket_connect_unix(path, SOCK_STREAM, ret_fd, reterr);
    /* the kernel's default is full after three pieces of an upload, and gateway and agent take turns instead
     * of working side by side; on failure that is how it stays */
    if (r == 0)
        (void)setsockopt(*ret_fd, SOL_SOCKET, SO_SNDBUFFORCE, &(int){AGENT_SEND_BYTES}, sizeof(int));
    return r;
}

void cgroup_end(struct cgroup *g)
{
    struct error e;
    if (!g)
        return;
    for (int waited = 0;; waited++) {
        if (!cgroup_empty(g))
            (void)cgroup_kill(g,
                              NULL); /* repeated: what forks while it is being killed is caught next time */
        if (cgroup_empty(g) && cgroup_remove(g) == 0)
            return;
        if (waited >= END_TIMEOUT_MS) {
            (void)error_set(&e, EBUSY, "control groups cannot be removed yet");
            log_warn("%s; the next start sweeps them", e.msg);
            cgroup_forget(g);
            return;
        }
        pause_ms(1);
    }
}

static bool wait_exit(int pidfd, int timeout_ms)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    return poll_patiently(&p, 1, timeout_ms) > 0;
}

void sandbox_kill(const struct sandbox *sb)
{
    (void)syscall(SYS_pidfd_send_signal, sb->pidfd, SIGKILL, NULL, 0);
    (void)wait_exit(sb->pidfd, END_TIMEOUT_MS);
}

/* Tells when the kernel has unmounted the sandbox's root. To be asked while its first process lives; -1: it
 * cannot be told. */
static int root_watch(const struct sandbox *sb)
{
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/%d/root", (int)sb->pid);
    auto_close int fd = inotify_init1(IN_CLOEXEC);
    if (fd < 0 || inotify_add_watch(fd, path, IN_DELETE_SELF | IN_ONLYDIR) < 0)
        return -1;
    return take_fd(fd);
}

/* The watch goes with the file system, and nothing else ends it. */
static bool root_wait(int watch)
{
    struct pollfd p = {.fd = watch, .events = POLLIN};
    return watch >= 0 && poll_patiently(&p, 1, ROOT_TIMEOUT_MS) > 0;
}

/* Two overlays must never have the same disk, not even while the first is being taken down: only when that is
 * seen to be over the disk may stay mounted. Meanwhile it is written: nobody is left who could change it. */
static bool disk_stays(struct keeper_env *env, struct sandbox *sb, bool keep, int watch,
                       struct disk_hold *ret)
{
    struct error e = {0};
    int r = keep ? disk_sync(env->disks, sb->spec.disk, &sb->hold, sb->young, &e) : 0;
    if (r == 0 && !root_wait(watch))
        r = error_set(&e, EBUSY, "its last sandbox's root is still there");
    if (r == 0 && !keep && !disk_has_little(&sb->hold))
        return false; /* not any more: it went on writing until its end */
    if (r == 0 && !keep)
        r = disk_renew(&sb->hold, &e);
    if (r == 0) {
        *ret = (struct disk_hold){take_fd(sb->hold.fd), sb->hold.index};
        return true;
    }
    log_warn("disk %" PRIu64 " does not stay mounted: %s", sb->spec.disk, e.msg);
    return false;
}

void bare_kit_done(struct bare_kit *kit)
{
    while (kit->guest >= 0 && waitid(P_PIDFD, (id_t)kit->guest, &(siginfo_t){0}, WEXITED) < 0 &&
           errno == EINTR)
        ;
    close_fd(&kit->guest);
    close_fd(&kit->disk);
    close_fd(&kit->lower);
    close_fd(&kit->userns);
}

void sandbox_stop(struct keeper_env *env, struct sandbox *sb, int polite_ms, bool keep_disk,
                  struct disk_hold *ret_hold)
{
    bool stays = ret_hold && sb->hold.fd >= 0 && (keep_disk || (sb->young && disk_has_little(&sb->hold)));
    auto_close int watch = stays ? root_watch(sb) : -1;
    bool polite = polite_ms > 0 && syscall(SYS_pidfd_send_signal, sb->pidfd, SIGTERM, NULL, 0) == 0;
    if (polite) {
        (void)cgroup_freeze(sb->cgroup, false, NULL); /* a frozen process hears no signal */
        (void)wait_exit(sb->pidfd, polite_ms);
    }
    (void)syscall(SYS_pidfd_send_signal, sb->pidfd, SIGKILL, NULL,
                  0); /* fine when it is gone: the rest follows PID 1 */
    if (!polite)
        (void)cgroup_freeze(sb->cgroup, false, NULL); /* not before: it would go on with what it has to do */
    if (!wait_exit(sb->pidfd, END_TIMEOUT_MS))
        log_warn("the first process of slot %u does not end", sb->spec.slot);
    close_fd(&sb->control_fd);
    bare_kit_done(&sb->kit);
    stays = watch >= 0 && disk_stays(env, sb, keep_disk, watch, ret_hold);
    if (!stays && !keep_disk && sb->hold.fd >= 0)
        disk_abandon(&sb->hold);
    close_fd(&sb->hold.fd);
    cgroup_end(sb->cgroup);
    while (!sb->adopted && /* behind everything that could still end it */
           waitid(P_PIDFD, (id_t)sb->pidfd, &(siginfo_t){0}, WEXITED | WNOHANG) < 0 && errno == EINTR)
        ;
    if (keep_disk && sb->spec.disk && !stays) {
        struct error e = {0};
        disk_wait_unused(env->disks, sb->hold.index);
        if (disk_flush(env->disks, sb->spec.disk, &e) < 0) /* it may still be young */
            log_warn("disk %" PRIu64 ": %s", sb->spec.disk, e.msg);
    }
    close_fd(&sb->pidfd);
    slot_dir_remove(env->slots_fd, sb->spec.slot);
    free(sb);
}

void sandbox_sweep(struct keeper_env *env, unsigned slot)
{
    struct cgroup *g;
    if (env->network) {
        network_disconnect(env->network, slot, NULL);
        network_link_delete(env->network, slot);
    }
    if (cgroup_adopt(env->cgroups, slot, &g, NULL) == 0)
        cgroup_end(g);
    slot_dir_remove(env->slots_fd, slot);
}

int sandbox_adopt(struct keeper_env *env, unsigned slot, struct sandbox **ret, struct error *reterr)
{
    struct record rec;
    uint64_t start;
    auto_close int dir = -1;
    int r = slot_dir_open(env->slots_fd, slot, &dir, reterr);
    if (r == 0)
        r = record_read(dir, &rec, reterr);
    if (r < 0)
        return r;
    auto_close int pidfd = (int)syscall(SYS_pidfd_open, rec.pid, 0);
    if (pidfd < 0 || process_start_time(rec.pid, &start) < 0 || start != rec.start_time)
        return error_set(reterr, ENOENT, "the sandbox of slot %u has ended", slot);
    struct sandbox *sb = calloc(1, sizeof *sb);
    if (!sb)
        return error_sys(reterr, ENOMEM, "adopt a sandbox");
    sb->control_fd = sb->hold.fd = sb->told_exit = -1;
    sb->kit = BARE_KIT_NONE;
    r = cgroup_adopt(env->cgroups, slot, &sb->cgroup, reterr);
    if (r < 0) {
        free(sb);
        return r;
    }
    sb->spec = (struct sandbox_spec){.slot = slot, .disk = rec.disk, .limits = rec.limits};
    memcpy(sb->spec.image, rec.image, sizeof sb->spec.image);
    memcpy(sb->id, rec.id, sizeof sb->id);
    sb->generation = rec.generation;
    sb->pid = rec.pid;
    sb->start_time = rec.start_time;
    sb->hold.index = rec.loop_index;
    disk_device_known(env->disks, rec.loop_index);
    sb->adopted = true;
    sb->spec.network = env->network && network_has_link(env->network, slot);
    if (sb->spec.network) {
        network_terms_read(env->slots_fd, slot, &sb->spec.terms);
        sb->spec.ipv6 = network_link_has_ipv6(env->network, slot);
    }
    sb->spec.sidecar = rec.sidecar;
    sb->pidfd = take_fd(pidfd);
    (void)cgroup_lift(sb->cgroup, sb->pid, NULL); /* if that keeper had no time for it */
    if (sandbox_control_connect(dir, sb, reterr) <
        0) /* it can do without: only a new spawner would have to wait */
        log_warn("slot %u: %s", slot, reterr ? reterr->msg : "no control line");
    *ret = sb;
    return 0;
}
