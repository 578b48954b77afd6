/* SPDX-License-Identifier: Apache-2.0 */
/* spawner_child.c: the spawner process itself: gets confined, then creates one process per message.
 *
 * Theory of operation
 * A new process is cloned with CLONE_PARENT, so its parent is the agent, and with CLONE_VM and CLONE_VFORK,
 * so nothing is copied and the spawner sleeps until the exec has happened; a failure is seen in shared
 * memory. It asks for its placement first and becomes dumpable and equal to the workload only after it has
 * let go of the keeper's line. */
#include "agent/spawner_internal.h"
#include "agent/control.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { STACK_BYTES = 64 * 1024, SOCK_FD = 3, CAP_SETPCAP_BIT = 8 };

struct job {
    const char *path, *cwd;
    char **argv, **env;
    int fds[3];
    bool terminal;
    uint64_t tag;
    const struct spawn_message *account; /* whose process it will be */
    volatile int err;
    volatile enum spawn_stage stage;
};

/* Raw calls: the C library's would speak to threads that are not there. What was root's to do is given up by
 * the kernel with the id. */
static int become(const struct spawn_message *m)
{
    if (!m->uid && !m->gid && !m->group_count)
        return 0;
    if (syscall(SYS_setgroups, MIN(m->group_count, (uint32_t)ACCOUNT_GROUPS_MAX), m->groups) < 0 ||
        syscall(SYS_setresgid, m->gid, m->gid, m->gid) < 0 ||
        syscall(SYS_setresuid, m->uid, m->uid, m->uid) < 0)
        return -1;
    return 0;
}

/* Runs on its own stack in the spawner's memory: system calls only. */
static int new_process(void *arg)
{
    struct job *j = arg;
    (void)setsid();
    (void)umask(022);
    if (j->tag)
        (void)setrlimit(RLIMIT_LOCKS, &(struct rlimit){j->tag, j->tag}); /* lowering never fails */
    j->stage = SPAWN_STAGE_FORK;
    if (become(j->account) < 0)
        goto fail;
    j->stage = SPAWN_STAGE_CWD;
    if (chdir(j->cwd) < 0)
        goto fail;
    j->stage = SPAWN_STAGE_EXEC;
    for (int i = 0; i < 3; i++)
        if (j->fds[i] >= 0 && dup2(j->fds[i], i) < 0)
            goto fail;
    if (j->terminal && ioctl(0, TIOCSCTTY, 0) < 0)
        goto fail;
    (void)execve(j->path, j->argv, j->env);
fail:
    j->err = errno;
    _exit(127);
}

static void reset_signals(void)
{
    struct sigaction sa = {.sa_handler = SIG_DFL};
    sigset_t none;
    for (int sig = 1; sig < _NSIG; sig++)
        (void)sigaction(sig, &sa, NULL); /* SIGKILL, SIGSTOP and libc's own refuse */
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static void close_all_but(int *sock, int *control_fd)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3 && null >= 0; i++)
        (void)dup2(null, i);
    int high = fcntl(*control_fd, F_DUPFD_CLOEXEC, 16); /* out of the way; -1 stays -1 */
    (void)dup3(*sock, SOCK_FD, O_CLOEXEC);
    *sock = SOCK_FD;
    *control_fd = high < 0 ? -1 : dup3(high, SOCK_FD + 1, O_CLOEXEC);
    (void)syscall(SYS_close_range, *control_fd < 0 ? SOCK_FD + 1U : SOCK_FD + 2U, ~0U, 0U);
}

static void limit(int resource, rlim_t soft, rlim_t hard)
{
    struct rlimit now;
    if (getrlimit(resource, &now) < 0)
        return;
    struct rlimit want = {.rlim_max = MIN(hard, now.rlim_max)};
    want.rlim_cur = MIN(soft, want.rlim_max);
    (void)setrlimit(resource, &want); /* lowering never fails */
}

static void drop_setpcap(void)
{
    struct {
        uint32_t version;
        int pid;
    } head = {.version = 0x20080522};
    struct {
        uint32_t effective, permitted, inheritable;
    } caps[2] = {0};
    (void)prctl(PR_CAPBSET_DROP, CAP_SETPCAP_BIT, 0, 0, 0);
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capget, &head, caps) < 0)
        _exit(1);
    caps[0].effective &= ~(1U << CAP_SETPCAP_BIT);
    caps[0].permitted &= ~(1U << CAP_SETPCAP_BIT);
    caps[0].inheritable = caps[1].inheritable = 0;
    if (syscall(SYS_capset, &head, caps) < 0)
        _exit(1); /* never serve with more than the workload may have */
}

static void confine_self(void)
{
    (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* otherwise /proc/self belongs to somebody else */
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (write(fd, "500", 3) < 0) {
            /* the kernel's choice of victim is a help, not a promise */
        }
        (void)close(fd);
    }
    limit(RLIMIT_NOFILE, 4096, 16384);
    limit(RLIMIT_CORE, 0, 0);
    limit(RLIMIT_MEMLOCK, 8 << 20, 8 << 20);
    limit(RLIMIT_MSGQUEUE, 800 << 10, 800 << 10);
    limit(RLIMIT_RTPRIO, 0, 0);
    limit(RLIMIT_NICE, 0, 0);
    limit(RLIMIT_SIGPENDING, 4096, 4096);
    drop_setpcap();
}

/* Splits the blob into j and vectors (one allocation, the caller frees *ret_vector). */
static int parse_blob(struct job *j, const struct spawn_message *m, char *blob, size_t n, char ***ret_vector)
{
    size_t strings = (size_t)m->argc + m->envc + 2;
    if (!n || blob[n - 1] != '\0' || m->argc == 0 || strings > n)
        return EBADMSG;
    char **v = calloc(strings + 2, sizeof *v);
    if (!v)
        return ENOMEM;
    *ret_vector = v;
    j->path = blob;
    char *p = blob, *end = blob + n;
    for (size_t i = 0; i < strings; i++) {
        if (p >= end)
            return EBADMSG;
        if (i == 1)
            j->cwd = p;
        else if (i >= 2)
            v[i - 2 + (i - 2 >= m->argc)] = p; /* the slot behind argv stays NULL */
        p += strlen(p) + 1;
    }
    j->argv = v;
    j->env = v + m->argc + 1;
    return 0;
}

static void run(struct job *j, char *stack, struct spawn_answer *a)
{
    int pid = clone(new_process, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | CLONE_PARENT | SIGCHLD, j);
    /* the new process shared our memory when it changed its ids, which makes memory undumpable */
    if (j->account->uid || j->account->gid)
        (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    if (pid < 0) {
        a->err = errno;
        a->stage = SPAWN_STAGE_FORK;
    } else if (j->err) {
        a->err = j->err;
        a->stage = j->stage;
    } else {
        a->pid = pid;
    }
}

/* One message: 0 when the agent is gone. */
static int serve_one(int sock, char *in, char *stack)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * SPAWN_FDS_MAX)];
    } control;
    struct iovec iov = {.iov_base = in, .iov_len = sizeof(struct spawn_message) + SPAWN_INLINE_MAX};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR)
        return 1;
    if (n < (ssize_t)sizeof(struct spawn_message))
        return 0;

    struct spawn_message *m = (struct spawn_message *)in;
    struct spawn_answer a = {.magic = SPAWN_MAGIC, .seq = m->seq};
    int fds[SPAWN_FDS_MAX], fd_count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            fd_count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(fds, CMSG_DATA(c), sizeof(int) * (size_t)fd_count);
        }
    struct job j = {.fds = {-1, -1, -1}, .tag = m->tag, .terminal = m->flags & SPAWN_TERMINAL, .account = m};
    int next = 0;
    for (int i = 0; i < 3; i++)
        if (m->flags & (1U << i) && next < fd_count)
            j.fds[i] = fds[next++];
    char *blob = in + sizeof *m, *map = NULL;
    size_t blob_len = (size_t)n - sizeof *m;
    if (m->flags & SPAWN_HAS_MEMFD && next < fd_count && m->blob_len <= SPAWN_BLOB_MAX) {
        blob_len = m->blob_len;
        map = mmap(NULL, blob_len, PROT_READ | PROT_WRITE, MAP_PRIVATE, fds[next], 0);
        blob = map;
    }
    char **vector = NULL;
    a.stage = SPAWN_STAGE_FORK;
    a.err = map == MAP_FAILED ? ENOMEM : parse_blob(&j, m, blob, blob_len, &vector);
    if (!a.err) {
        a.stage = SPAWN_STAGE_NONE;
        run(&j, stack, &a);
    }
    free(vector);
    if (map && map != MAP_FAILED)
        (void)munmap(map, blob_len);
    for (int i = 0; i < fd_count; i++)
        (void)close(fds[i]);
    return send(sock, &a, sizeof a, MSG_NOSIGNAL) == (ssize_t)sizeof a;
}

_Noreturn void spawner_main(int sock, int control_fd, const struct spawner_config *config)
{
    reset_signals();
    /* an agent whose files are a user's starts us, too */
    (void)syscall(SYS_setfsuid, 0);
    (void)syscall(SYS_setfsgid, 0);
    (void)prctl(PR_SET_NAME, "silica-spawner", 0, 0, 0);
    close_all_but(&sock, &control_fd);
    if (control_fd >= 0) {
        const struct control_message place = {.version = CONTROL_VERSION, .type = CONTROL_PLACE};
        if (send(control_fd, &place, sizeof place, MSG_NOSIGNAL) != (ssize_t)sizeof place)
            _exit(1);
        (void)close(control_fd);
    }
    struct spawn_message go;
    ssize_t n;
    do
        n = recv(sock, &go, sizeof go, 0);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof go)
        _exit(0);
    if (config->confine)
        confine_self();
    else
        (void)setrlimit(RLIMIT_NOFILE, &config->nofile);

    char *in = malloc(sizeof(struct spawn_message) + SPAWN_INLINE_MAX);
    char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!in || stack == MAP_FAILED)
        _exit(1);
    while (serve_one(sock, in, stack))
        ;
    _exit(0);
}
