/* SPDX-License-Identifier: Apache-2.0 */
/* child.c: see child.h.
 *
 * Theory of operation
 * The keeper clones this process into its namespaces and then, from outside, maps its ids, moves it into its
 * control groups and gives it a link. When it is told that all of this is there, the child prepares whatever
 * does not depend on the sandbox it will be: kernel file systems with their masks, addresses and routes. Then
 * it waits for a root file system on sync_fd, puts the two together, gives up what is left of its rights and
 * becomes the agent. It runs in the keeper's own memory (cloner.c), so it allocates nothing, takes no lock
 * and changes nothing: system calls only. A failing step is reported by number; success is the end of file
 * that exec causes. */
#include "keeper/child.h"
#include "agent/control.h"
#include "keeper/child_mounts.h"
#include "keeper/child_network.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define BIT(cap) (UINT64_C(1) << (cap))

const uint64_t child_workload_caps = BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) |
                                     BIT(CAP_FSETID) | BIT(CAP_KILL) | BIT(CAP_SETGID) | BIT(CAP_SETUID) |
                                     BIT(CAP_NET_BIND_SERVICE);
/* one capability more than the workload: that alone keeps ptrace and /proc/1 out of the workload's reach */
const uint64_t child_agent_caps = BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_FSETID) |
                                  BIT(CAP_KILL) | BIT(CAP_SETGID) | BIT(CAP_SETUID) |
                                  BIT(CAP_NET_BIND_SERVICE) | BIT(CAP_SETPCAP);

enum { FD_AGENT = 5, FD_SYNC = 6 }; /* behind AGENT_HTTP_FD and AGENT_CONTROL_FD; both closed by exec */

enum step {
    STEP_CLOSE,
    STEP_PLACE,
    STEP_CGROUP_NAMESPACE,
    STEP_IDS,
    STEP_STAGE,
    STEP_LOOPBACK,
    STEP_LINK,
    STEP_MASKS,
    STEP_SEAL,
    STEP_KEYRING,
    STEP_SIGNALS,
    STEP_ROOT,
    STEP_MOUNTS,
    STEP_NETWORK,
    STEP_LIMITS,
    STEP_VOLUMES,
    STEP_PIVOT,
    STEP_HOSTNAME,
    STEP_DESCRIPTORS,
    STEP_CAPABILITIES,
    STEP_NO_NEW_PRIVS,
    STEP_SECCOMP,
    STEP_EXEC,
    STEP_COUNT,
};

static const char *const step_name[] = {
    [STEP_CLOSE] = "close the keeper's descriptors",
    [STEP_PLACE] = "hear that its place is ready",
    [STEP_CGROUP_NAMESPACE] = "enter a control group namespace",
    [STEP_IDS] = "become root inside",
    [STEP_STAGE] = "mount the kernel's file systems",
    [STEP_LOOPBACK] = "bring up the loopback interface",
    [STEP_LINK] = "configure its network link",
    [STEP_MASKS] = "mask kernel files",
    [STEP_SEAL] = "make kernel files read-only",
    [STEP_KEYRING] = "take a new session keyring",
    [STEP_SIGNALS] = "reset signals",
    [STEP_ROOT] = "receive the root file system",
    [STEP_MOUNTS] = "mount the file systems",
    [STEP_NETWORK] = "write where names are asked for",
    [STEP_LIMITS] = "write the namespaces' limits",
    [STEP_VOLUMES] = "mount its volumes",
    [STEP_PIVOT] = "change the root directory",
    [STEP_HOSTNAME] = "set the host name",
    [STEP_DESCRIPTORS] = "arrange descriptors",
    [STEP_CAPABILITIES] = "drop capabilities",
    [STEP_NO_NEW_PRIVS] = "set no_new_privs",
    [STEP_SECCOMP] = "load the seccomp filter",
    [STEP_EXEC] = "execute the agent",
};
_Static_assert(ARRAY_SIZE(step_name) == STEP_COUNT, "name every step");

/* Closes every descriptor but those of the plan, first of all: the copies of the keeper's own would keep its
 * sockets alive after it died, its end of our start-up channel among them. */
static int close_foreign(const struct child_plan *p)
{
    int keep[HOST_DEVICE_COUNT + 4];
    size_t n = 0;
    const int plan[] = {p->sync_fd, p->agent_fd, p->http_fd, p->control_fd};
    for (size_t i = 0; i < ARRAY_SIZE(plan) + HOST_DEVICE_COUNT; i++) {
        int fd = i < ARRAY_SIZE(plan) ? plan[i] : p->device_mounts[i - ARRAY_SIZE(plan)];
        size_t k = n++;
        for (; k > 0 && keep[k - 1] > fd; k--)
            keep[k] = keep[k - 1];
        keep[k] = fd;
    }
    unsigned from = 3;
    for (size_t i = 0; i < n; i++) {
        if ((unsigned)keep[i] > from && close_range(from, (unsigned)keep[i] - 1, 0) < 0)
            return -errno;
        from = (unsigned)keep[i] + 1;
    }
    return close_range(from, ~0U, 0) < 0 ? -errno : 0;
}

struct mounts {
    bool own_cgroups;
    int stage, settings;                   /* ours: child_mounts.h */
    int root, volumes[KEEPER_VOLUMES_MAX]; /* the keeper's */
};

static int say(const struct child_plan *p, int step, int err)
{
    struct child_report report = {step, err};
    return send(p->sync_fd, &report, sizeof report, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* After the move into the groups: earlier, /proc/self/cgroup would show the host's names. */
static int enter_cgroup_namespace(struct mounts *m)
{
    if (!m->own_cgroups && unshare(CLONE_NEWCGROUP) < 0)
        return -errno;
    m->own_cgroups = true;
    return 0;
}

/* The next thing the keeper says, and the descriptor that came with it. */
static int hear(const struct child_plan *p, char *what, int *fd)
{
    ssize_t n = socket_recv_fd(p->sync_fd, what, sizeof *what, fd);
    return n > 0 ? 0 : n < 0 ? (int)n : -EPIPE; /* the keeper gave up or is gone */
}

static int wait_for_place(const struct child_plan *p, struct mounts *m)
{
    for (;;) {
        char what;
        int fd, r = hear(p, &what, &fd);
        if (r < 0 || what == CHILD_PLACE)
            return r;
        if (what != CHILD_GROUPS)
            return -EBADMSG;
        if ((r = enter_cgroup_namespace(m)) < 0 || (r = say(p, STEP_CGROUP_NAMESPACE, 0)) < 0)
            return r;
    }
}

static int wait_for_root(const struct child_plan *p, struct mounts *m)
{
    for (size_t volumes = 0;;) {
        char what;
        int fd, r = hear(p, &what, &fd);
        if (r < 0)
            return r;
        if (what == CHILD_VOLUME && fd >= 0 && volumes < ARRAY_SIZE(m->volumes)) {
            m->volumes[volumes++] = fd;
        } else {
            m->root = fd;
            return what == CHILD_ROOT && fd >= 0 ? 0 : -EBADMSG;
        }
    }
}

static int become_root_inside(void)
{
    /* never the C library's: it would tell the threads of the keeper, which are not here to answer */
    if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, 0, 0, 0) < 0 ||
        syscall(SYS_setresuid, 0, 0, 0) < 0)
        return -errno;
    return 0;
}

static int loopback_up(void)
{
    auto_close int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq req = {.ifr_flags = IFF_UP | IFF_RUNNING};
    if (s < 0)
        return -errno;
    (void)strncpy(req.ifr_name, "lo", sizeof req.ifr_name - 1);
    return ioctl(s, SIOCSIFFLAGS, &req) < 0 ? -errno : 0;
}

static int reset_signals(void)
{
    sigset_t none;
    (void)sigemptyset(&none);
    for (int sig = 1; sig < NSIG; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            (void)signal(sig,
                         SIG_DFL); /* the two the C library keeps for itself fail; they are default anyway */
    return sigprocmask(SIG_SETMASK, &none, NULL) < 0 ? -errno : 0;
}

/* 0-2 null, 3 http, 4 control, 5 the agent's program, 6 the line to the keeper; everything else is closed. */
static int arrange_descriptors(const struct child_plan *p)
{
    int from[] = {p->http_fd, p->control_fd, p->agent_fd, p->sync_fd};
    int to[] = {AGENT_HTTP_FD, AGENT_CONTROL_FD, FD_AGENT, FD_SYNC};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return -errno;
    for (size_t i = 0; i < ARRAY_SIZE(from); i++) { /* out of the way first: targets may be occupied */
        from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 64);
        if (from[i] < 0)
            return -errno;
    }
    for (int fd = 0; fd < 3; fd++)
        if (dup2(null, fd) < 0)
            return -errno;
    for (size_t i = 0; i < ARRAY_SIZE(from); i++)
        if (dup3(from[i], to[i], to[i] >= FD_AGENT ? O_CLOEXEC : 0) < 0)
            return -errno;
    return close_range(FD_SYNC + 1, ~0U, 0) < 0 ? -errno : 0;
}

static int drop_capabilities(void)
{
    for (int cap = 0; cap < 64; cap++)
        if (!(child_agent_caps & BIT(cap)) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL)
            return -errno; /* EINVAL: behind the kernel's last capability */
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return -errno;
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {
        {.effective = (uint32_t)child_agent_caps, .permitted = (uint32_t)child_agent_caps},
        {.effective = (uint32_t)(child_agent_caps >> 32), .permitted = (uint32_t)(child_agent_caps >> 32)},
    };
    return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

const char *child_step_name(int step)
{
    return step >= 0 && step < STEP_COUNT ? step_name[step] : "start";
}

bool child_step_is_volumes(int step)
{
    return step == STEP_VOLUMES;
}

static int run_step(const struct child_plan *p, enum step step, struct mounts *m)
{
    switch (step) {
    case STEP_CLOSE:
        return close_foreign(p);
    case STEP_PLACE:
        return wait_for_place(p, m);
    case STEP_CGROUP_NAMESPACE:
        return enter_cgroup_namespace(m);
    case STEP_IDS:
        return become_root_inside();
    case STEP_STAGE:
        return child_mounts_stage(p, &m->stage);
    case STEP_LOOPBACK:
        return loopback_up();
    case STEP_LINK: /* while /proc/sys can be written */
        return child_network_link(p, m->stage);
    case STEP_MASKS:
        return child_mounts_mask();
    case STEP_SEAL:
        return child_mounts_seal(&m->settings);
    case STEP_KEYRING: /* kernels without keys have nothing to hide */
        return syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS ? -errno : 0;
    case STEP_SIGNALS:
        (void)umask(022);
        return reset_signals();
    case STEP_ROOT:
        return wait_for_root(p, m);
    case STEP_MOUNTS:
        return child_mounts_place(p, m->stage, m->root);
    case STEP_NETWORK:
        return child_network_make(p, m->root);
    case STEP_LIMITS:
        return child_mounts_limit(m->settings);
    case STEP_VOLUMES:
        return child_mounts_volumes(p, m->root, m->volumes);
    case STEP_PIVOT:
        return child_mounts_pivot(m->root, 2); /* the host's, and the stage */
    case STEP_HOSTNAME:
        return sethostname(p->hostname, strlen(p->hostname)) < 0 ? -errno : 0;
    case STEP_DESCRIPTORS:
        return arrange_descriptors(p);
    case STEP_CAPABILITIES:
        return drop_capabilities();
    case STEP_NO_NEW_PRIVS:
        return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
    case STEP_SECCOMP:
        return seccomp_load(p->filter);
    case STEP_EXEC:
        (void)syscall(SYS_execveat, FD_AGENT, "", p->argv, p->envp, AT_EMPTY_PATH);
        return -errno;
    case STEP_COUNT:
        break;
    }
    return -EINVAL;
}

static int move_in_step(const struct child_plan *p, enum step step, struct mounts *m, int pidfd)
{
    switch (step) {
    case STEP_PLACE:
        (void)umask(022);
        return setns(pidfd, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS) < 0 ? -errno : 0;
    case STEP_MOUNTS: {
        auto_close int old = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        return old < 0 ? -errno : child_mounts_move(old, m->root);
    }
    case STEP_PIVOT: /* the agent and who else is at the old root or in it is at the new one from now on */
        return child_mounts_pivot(m->root, 1);
    default:
        return run_step(p, step, m);
    }
}

int child_move_in(const struct child_plan *p, int pidfd, int root, const int *volumes, int *ret_step)
{
    static const enum step steps[] = {STEP_PLACE,   STEP_IDS,   STEP_MOUNTS,  STEP_NETWORK,
                                      STEP_VOLUMES, STEP_PIVOT, STEP_HOSTNAME};
    struct mounts mounts = {.root = root};
    memcpy(mounts.volumes, volumes, sizeof mounts.volumes);
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(steps) && r == 0; i++) {
        *ret_step = steps[i];
        r = move_in_step(p, steps[i], &mounts, pidfd);
    }
    return r;
}

_Noreturn void child_run(const struct child_plan *p)
{
    struct mounts mounts = {.stage = -1, .settings = -1, .root = -1};
    (void)prctl(PR_SET_NAME, "silica-berth", 0, 0, 0); /* for who looks from the host */
    (void)say(p, CHILD_STEP_CLONE, 0);                 /* a keeper that is gone is noticed later */
    for (int step = 0; step < STEP_COUNT; step++) {
        int r = run_step(p, (enum step)step, &mounts);
        if (r < 0) {
            struct child_report report = {step, -r};
            int fd = step > STEP_DESCRIPTORS ? FD_SYNC : p->sync_fd;
            (void)send(fd, &report, sizeof report,
                       MSG_NOSIGNAL); /* the keeper may be gone; nothing else to do */
            _exit(1);
        }
    }
    _exit(1);
}
