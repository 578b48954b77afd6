/* SPDX-License-Identifier: Apache-2.0 */
/* cloner.c: see cloner.h.
 *
 * Theory of operation
 * A forked keeper is dear: its page tables are copied, and then every page that it or its child writes, with
 * an interrupt to the other cpus each time. vfork copies nothing, but stops whoever calls it until the child
 * has become another program, and this child waits for a root file system that its caller has yet to build.
 * So a thread of its own calls it, and sleeps on while the caller goes on.
 *
 * Until then the child has the keeper's memory, and only what is on the thread's stack and in its thread
 * variables (errno) is safe to write: child.c makes system calls and nothing else. Whoever it may have to
 * fear is not in its namespaces yet. A plan that is changed while the child waits is changed for the child,
 * too. */
#include "keeper/cloner.h"
#include "net/socket.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { STACK_BYTES = 256 << 10 };

/* The C library's syscall() will not do: the child would overwrite the address that the parent returns to. */
__attribute__((noinline)) long clone_and_run(struct clone_args *args, void (*run)(void *arg), void *arg)
{
#if defined(__x86_64__)
    long pid;
    __asm__ volatile("syscall"
                     : "=a"(pid)
                     : "0"((long)SYS_clone3), "D"(args), "S"(sizeof *args)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long number __asm__("x8") = SYS_clone3;
    register long pid __asm__("x0") = (long)args;
    register long size __asm__("x1") = (long)sizeof *args;
    __asm__ volatile("svc 0" : "+r"(pid) : "r"(size), "r"(number) : "memory");
#else
#error "how does a process of this machine make a system call?"
#endif
    if (pid == 0)
        run(arg);
    return pid;
}

static void run_child(void *arg)
{
    const struct cloner *c = arg;
    child_run(c->plan);
}

static void *thread_main(void *arg)
{
    struct cloner *c = arg;
    /* cloned with the range's own id, the user namespace belongs to that id and has kernel pools of its own;
     * the thread ends with that id, it is nobody else's */
    long r = host_become(c->uid);
    if (r == 0)
        r = clone_and_run(&c->args, run_child, c);
    if (r < 0) {
        struct child_report report = {CHILD_STEP_CLONE, (int32_t)-r};
        (void)send(c->plan->sync_fd, &report, sizeof report, MSG_NOSIGNAL); /* the caller reads it */
    }
    return NULL;
}

static int thread_start(struct cloner *c)
{
    pthread_attr_t attr;
    int r = pthread_attr_init(&attr);
    if (r)
        return -r;
    r = pthread_attr_setstacksize(&attr, STACK_BYTES);
    if (r == 0)
        r = pthread_create(&c->thread, &attr, thread_main, c);
    (void)pthread_attr_destroy(&attr);
    c->running = r == 0;
    return -r;
}

int cloner_start(struct cloner *c, const struct child_plan *plan, uint32_t uid, int group, int line,
                 struct error *reterr)
{
    *c = (struct cloner){.plan = plan, .uid = uid, .pid = -1, .pidfd = -1};
    c->args = (struct clone_args){
        .flags = CLONE_VM | CLONE_VFORK | CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
                 CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD | CLONE_PARENT_SETTID |
                 (group >= 0 ? CLONE_INTO_CGROUP : 0),
        .pidfd = (uint64_t)(uintptr_t)&c->pidfd,
        .parent_tid = (uint64_t)(uintptr_t)&c->pid,
        .exit_signal = SIGCHLD,
        .cgroup = group >= 0 ? (uint64_t)group : 0,
    };
    int r = thread_start(c);
    if (r < 0)
        return error_sys(reterr, -r, "start the thread that clones");
    struct child_report report;
    struct pollfd p = {.fd = line, .events = POLLIN};
    if (poll_patiently(&p, 1, CHILD_TIMEOUT_MS) <= 0 || recv(line, &report, sizeof report, MSG_DONTWAIT) < 0)
        return error_set(reterr, ETIMEDOUT, "the first process does not get on");
    return report.err ? error_sys(reterr, report.err, "clone into new namespaces") : 0;
}

void cloner_finish(struct cloner *c)
{
    if (c->running)
        (void)pthread_join(c->thread, NULL);
    c->running = false;
}
