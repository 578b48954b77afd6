/* SPDX-License-Identifier: Apache-2.0 */
/* seccomp_policy.c: which system calls a sandbox and the gateway may make, as tables.
 *
 * The sandbox list is an allow-list: what container engines commonly allow, less what reaches beyond the
 * sandbox. A refused call gets the answer which hurts honest programs least:
 *
 *   EPERM   the call exists and is not for you; programs report it and go on
 *   ENOSYS  the kernel might be older than the call; libraries fall back (glibc from clone3 to clone, libuv
 * from io_uring to threads). Also for every number newer than these tables, and for the 32-bit and x32
 * entries, whose multiplexers (socketcall, ipc) would go round the argument rules.
 *
 * The gateway does little and does it always the same way, so that a call beyond its list means that somebody
 * else is driving: the process is killed.
 *
 * seccomp_build.c turns the tables into BPF. */
#include "keeper/seccomp_internal.h"

#include <asm/ioctls.h>
#include <assert.h>
#include <errno.h>
#include <linux/sched.h>
#include <linux/prctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* Calls newer than the oldest kernel headers we build with; from 424 on all architectures share their
 * numbers. */
#ifndef __NR_cachestat
#define __NR_cachestat 451
#endif
#ifndef __NR_fchmodat2
#define __NR_fchmodat2 452
#endif
#ifndef __NR_map_shadow_stack
#define __NR_map_shadow_stack 453
#endif
#ifndef __NR_futex_wake
#define __NR_futex_wake    454
#define __NR_futex_wait    455
#define __NR_futex_requeue 456
#endif
#ifndef __NR_statmount
#define __NR_statmount 457
#define __NR_listmount 458
#endif
#ifndef __NR_lsm_get_self_attr
#define __NR_lsm_get_self_attr 459
#define __NR_lsm_set_self_attr 460
#define __NR_lsm_list_modules  461
#endif
#ifndef __NR_mseal
#define __NR_mseal 462
#endif
#ifndef __NR_setxattrat
#define __NR_setxattrat    463
#define __NR_getxattrat    464
#define __NR_listxattrat   465
#define __NR_removexattrat 466
#endif
#ifndef __NR_open_tree_attr
#define __NR_open_tree_attr 467
#endif
#ifndef __NR_file_getattr
#define __NR_file_getattr 468
#define __NR_file_setattr 469
#endif

/* Protocols and families the C library's headers may not name. */
#define PROTO_DCCP  33
#define PROTO_L2TP  115
#define PROTO_SCTP  132
#define PROTO_SMC   256
#define PROTO_MPTCP 262
#define TYPE_MASK   0xf /* below SOCK_NONBLOCK and SOCK_CLOEXEC */

#define NAMESPACE_FLAGS                                                                           \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | \
     CLONE_NEWNET)

/* CLONE_NEWTIME (0x80) lies in clone's signal number and can only be asked of clone3 and unshare. */
static_assert(NAMESPACE_FLAGS == 0x7e020000, "the namespace flags of clone");

/* The tables read best in rows. */
/* clang-format off */

#define CALL(call)       { #call, __NR_##call }
#define WHEN(call, list) { #call, __NR_##call, list }

#define ARG_IS(n, v)              { .arg = (n), .mask = UINT32_MAX, .value = (v) }
#define ARG_BITS_ARE(n, m, v)     { .arg = (n), .mask = (m), .value = (v) }
#define ARG_BITS_ARE_NOT(n, m, v) { .arg = (n), .differs = true, .mask = (m), .value = (v) }
#define IF(test, then)            { { test }, (then) }
#define ELSE(then)                { .action = (then) }

#define ALLOW   SECCOMP_RET_ALLOW
#define DENY    SECCOMP_FAIL(EPERM)
#define ABSENT  SECCOMP_FAIL(ENOSYS)
#define PRETEND SECCOMP_FAIL(0) /* the caller hears of success, nothing happens */

static const struct seccomp_call sandbox_allowed[] = {
    /* reading and writing */
    CALL(read), CALL(write), CALL(readv), CALL(writev), CALL(pread64), CALL(pwrite64), CALL(preadv),
    CALL(pwritev), CALL(preadv2), CALL(pwritev2), CALL(lseek), CALL(sendfile), CALL(splice), CALL(tee),
    CALL(copy_file_range), CALL(readahead), CALL(fadvise64), CALL(fsync), CALL(fdatasync), CALL(syncfs),
    CALL(sync_file_range), CALL(truncate), CALL(ftruncate), CALL(fallocate), CALL(cachestat),

    /* descriptors */
    CALL(openat), CALL(openat2), CALL(close), CALL(close_range), CALL(dup), CALL(dup3), CALL(fcntl),
    CALL(flock), CALL(pipe2), CALL(memfd_create), CALL(memfd_secret), CALL(eventfd2), CALL(signalfd4),
    CALL(timerfd_create), CALL(timerfd_settime), CALL(timerfd_gettime), CALL(epoll_create1),
    CALL(epoll_ctl), CALL(epoll_pwait), CALL(epoll_pwait2), CALL(ppoll), CALL(pselect6),
    CALL(inotify_init1), CALL(inotify_add_watch), CALL(inotify_rm_watch),

    /* names, attributes; mknod makes FIFOs, a device needs a capability nobody here has */
    CALL(fstat), CALL(newfstatat), CALL(statx), CALL(statfs), CALL(fstatfs), CALL(faccessat),
    CALL(faccessat2), CALL(getcwd), CALL(chdir), CALL(fchdir), CALL(getdents64), CALL(mkdirat),
    CALL(mknodat), CALL(unlinkat), CALL(linkat), CALL(symlinkat), CALL(readlinkat), CALL(renameat2),
    CALL(fchmod), CALL(fchmodat), CALL(fchmodat2), CALL(fchown), CALL(fchownat), CALL(umask),
    CALL(utimensat), CALL(setxattr), CALL(lsetxattr), CALL(fsetxattr), CALL(setxattrat), CALL(getxattr),
    CALL(lgetxattr), CALL(fgetxattr), CALL(getxattrat), CALL(listxattr), CALL(llistxattr),
    CALL(flistxattr), CALL(listxattrat), CALL(removexattr), CALL(lremovexattr), CALL(fremovexattr),
    CALL(removexattrat),

    /* memory */
    CALL(brk), CALL(mmap), CALL(munmap), CALL(mremap), CALL(mprotect), CALL(madvise), CALL(mincore),
    CALL(msync), CALL(mlock), CALL(mlock2), CALL(munlock), CALL(mlockall), CALL(munlockall),
    CALL(remap_file_pages), CALL(pkey_alloc), CALL(pkey_free), CALL(pkey_mprotect), CALL(mseal),
    CALL(map_shadow_stack), CALL(membarrier),

    /* processes and threads; ptrace and its relatives are for debuggers, the agent guards itself */
    CALL(execve), CALL(execveat), CALL(exit), CALL(exit_group), CALL(wait4), CALL(waitid), CALL(getpid),
    CALL(getppid), CALL(gettid), CALL(getpgid), CALL(setpgid), CALL(getsid), CALL(setsid),
    CALL(set_tid_address), CALL(set_robust_list), CALL(get_robust_list), CALL(rseq), CALL(futex),
    CALL(futex_waitv), CALL(futex_wake), CALL(futex_wait), CALL(futex_requeue), CALL(prctl), CALL(ptrace),
    CALL(process_vm_readv), CALL(process_vm_writev), CALL(process_mrelease), CALL(pidfd_open),
    CALL(pidfd_send_signal), CALL(restart_syscall), CALL(seccomp), CALL(landlock_create_ruleset),
    CALL(landlock_add_rule), CALL(landlock_restrict_self),

    /* signals */
    CALL(rt_sigaction), CALL(rt_sigprocmask), CALL(rt_sigreturn), CALL(rt_sigpending),
    CALL(rt_sigsuspend), CALL(rt_sigtimedwait), CALL(rt_sigqueueinfo), CALL(rt_tgsigqueueinfo),
    CALL(sigaltstack), CALL(kill), CALL(tkill), CALL(tgkill),

    /* identity: the user namespace and the capabilities bound it */
    CALL(getuid), CALL(geteuid), CALL(getgid), CALL(getegid), CALL(getgroups), CALL(getresuid),
    CALL(getresgid), CALL(setuid), CALL(setgid), CALL(setreuid), CALL(setregid), CALL(setresuid),
    CALL(setresgid), CALL(setfsuid), CALL(setfsgid), CALL(setgroups), CALL(capget), CALL(capset),

    /* scheduling and limits: capabilities and rlimits bound it */
    CALL(sched_yield), CALL(sched_getaffinity), CALL(sched_setaffinity), CALL(sched_getattr),
    CALL(sched_setattr), CALL(sched_getparam), CALL(sched_setparam), CALL(sched_getscheduler),
    CALL(sched_setscheduler), CALL(sched_get_priority_max), CALL(sched_get_priority_min),
    CALL(sched_rr_get_interval), CALL(getpriority), CALL(setpriority), CALL(ioprio_get), CALL(ioprio_set),
    CALL(getrlimit), CALL(setrlimit), CALL(getrusage), CALL(getcpu),

    /* time */
    CALL(clock_gettime), CALL(clock_getres), CALL(clock_nanosleep), CALL(nanosleep), CALL(gettimeofday),
    CALL(times), CALL(getitimer), CALL(setitimer), CALL(timer_create), CALL(timer_settime),
    CALL(timer_gettime), CALL(timer_getoverrun), CALL(timer_delete),

    /* sockets that exist already, and System V and POSIX messages of the sandbox's own namespace */
    CALL(bind), CALL(listen), CALL(accept), CALL(accept4), CALL(connect), CALL(shutdown),
    CALL(getsockname), CALL(getpeername), CALL(getsockopt), CALL(setsockopt), CALL(sendto),
    CALL(recvfrom), CALL(sendmsg), CALL(recvmsg), CALL(sendmmsg), CALL(recvmmsg), CALL(shmget),
    CALL(shmat), CALL(shmdt), CALL(shmctl), CALL(semget), CALL(semop), CALL(semtimedop), CALL(semctl),
    CALL(msgget), CALL(msgsnd), CALL(msgrcv), CALL(msgctl), CALL(mq_open), CALL(mq_unlink),
    CALL(mq_timedsend), CALL(mq_timedreceive), CALL(mq_notify), CALL(mq_getsetattr),

    /* the machine */
    CALL(uname), CALL(sysinfo), CALL(getrandom),

    /* forms older than aarch64 */
#ifdef __NR_open
    CALL(open), CALL(creat), CALL(stat), CALL(lstat), CALL(access), CALL(mkdir), CALL(rmdir), CALL(mknod),
    CALL(link), CALL(unlink), CALL(symlink), CALL(readlink), CALL(rename), CALL(chmod), CALL(chown),
    CALL(lchown), CALL(utime), CALL(utimes), CALL(futimesat), CALL(getdents), CALL(pipe), CALL(dup2),
    CALL(poll), CALL(select), CALL(eventfd), CALL(signalfd), CALL(inotify_init), CALL(epoll_create),
    CALL(epoll_wait), CALL(fork), CALL(vfork), CALL(getpgrp), CALL(alarm), CALL(pause), CALL(time),
    CALL(arch_prctl),
#endif
#ifdef __NR_renameat
    CALL(renameat),
#endif
};

static const struct seccomp_call sandbox_denied[] = {
    /* mounts and namespaces: made once, from outside */
    CALL(mount), CALL(umount2), CALL(pivot_root), CALL(chroot), CALL(move_mount), CALL(open_tree),
    CALL(open_tree_attr), CALL(fsopen), CALL(fsconfig), CALL(fsmount), CALL(fspick), CALL(mount_setattr),
    CALL(setns), CALL(unshare),

    /* large doors into the kernel */
    CALL(bpf), CALL(perf_event_open), CALL(fanotify_init), CALL(fanotify_mark), CALL(vmsplice),

    /* the machine as a whole. adjtimex also reads, but its mode is behind a pointer where a filter cannot
       look */
    CALL(kexec_load), CALL(init_module), CALL(finit_module), CALL(delete_module), CALL(reboot),
    CALL(swapon), CALL(swapoff), CALL(acct), CALL(quotactl), CALL(quotactl_fd), CALL(syslog),
    CALL(settimeofday), CALL(clock_settime), CALL(clock_adjtime), CALL(adjtimex), CALL(sethostname),
    CALL(setdomainname), CALL(vhangup), CALL(lsm_set_self_attr),

    /* round the file permissions, round the process boundary */
    CALL(open_by_handle_at), CALL(name_to_handle_at), CALL(lookup_dcookie), CALL(kcmp), CALL(pidfd_getfd),
    CALL(process_madvise),

    /* placement of memory */
    CALL(move_pages), CALL(migrate_pages), CALL(mbind), CALL(get_mempolicy), CALL(set_mempolicy),
    CALL(set_mempolicy_home_node),

    /* dead or obsolete */
    CALL(nfsservctl),
#ifdef __NR_kexec_file_load
    CALL(kexec_file_load),
#endif
#ifdef __NR_open
    CALL(create_module), CALL(query_module), CALL(get_kernel_syms), CALL(iopl), CALL(ioperm),
    CALL(modify_ldt), CALL(uselib), CALL(ustat), CALL(sysfs), CALL(_sysctl),
#endif
};

static const struct seccomp_call sandbox_absent[] = {
    /* clone3 keeps its flags behind a pointer: no filter can tell a thread from a namespace */
    CALL(clone3),

    /* rings go round the filter; the older interface has one pool for the whole machine */
    CALL(io_uring_setup), CALL(io_uring_enter), CALL(io_uring_register), CALL(io_setup), CALL(io_destroy),
    CALL(io_submit), CALL(io_cancel), CALL(io_getevents), CALL(io_pgetevents),

    /* keyrings belong to a user and not to a namespace; userfaultfd makes kernel races winnable */
    CALL(keyctl), CALL(add_key), CALL(request_key), CALL(userfaultfd),

    /* libmount and others ask these first and read /proc when they are missing */
    CALL(statmount), CALL(listmount), CALL(lsm_get_self_attr), CALL(lsm_list_modules), CALL(file_getattr),
    CALL(file_setattr),

    /* never implemented, or no longer */
#ifdef __NR_open
    CALL(getpmsg), CALL(putpmsg), CALL(afs_syscall), CALL(tuxcall), CALL(security), CALL(vserver),
    CALL(epoll_ctl_old), CALL(epoll_wait_old), CALL(set_thread_area), CALL(get_thread_area),
#endif
};

/* sync would write out every disk of the host; what a sandbox writes it can fsync or syncfs. */
static const struct seccomp_call sandbox_pretended[] = {CALL(sync)};

static const struct seccomp_rule no_namespaces[] = {
    IF(ARG_BITS_ARE_NOT(0, NAMESPACE_FLAGS, 0), DENY),
    ELSE(ALLOW),
};

/* Everything but unix, IPv4, IPv6 and rtnetlink is kernel code which strangers need not reach, and AF_VSOCK
 * leads to the hypervisor past every network namespace. The type is tested because SOCK_SEQPACKET and
 * SOCK_DCCP with protocol 0 find SCTP and DCCP when the host has them loaded. */
static const struct seccomp_rule families[] = {
    IF(ARG_IS(0, AF_UNIX), ALLOW),
    {{ARG_IS(0, AF_NETLINK), ARG_IS(2, 0)}, ALLOW},
    IF(ARG_BITS_ARE_NOT(0, ~(uint32_t)(AF_INET ^ AF_INET6), AF_INET & AF_INET6), SECCOMP_FAIL(EAFNOSUPPORT)),
    IF(ARG_IS(2, PROTO_MPTCP), SECCOMP_FAIL(EPROTONOSUPPORT)),
    IF(ARG_IS(2, PROTO_SCTP), SECCOMP_FAIL(EPROTONOSUPPORT)),
    IF(ARG_IS(2, PROTO_DCCP), SECCOMP_FAIL(EPROTONOSUPPORT)),
    IF(ARG_IS(2, PROTO_L2TP), SECCOMP_FAIL(EPROTONOSUPPORT)),
    IF(ARG_IS(2, PROTO_SMC), SECCOMP_FAIL(EPROTONOSUPPORT)),
    IF(ARG_BITS_ARE(1, TYPE_MASK, SOCK_SEQPACKET), SECCOMP_FAIL(ESOCKTNOSUPPORT)),
    IF(ARG_BITS_ARE(1, TYPE_MASK, SOCK_DCCP), SECCOMP_FAIL(ESOCKTNOSUPPORT)),
    ELSE(ALLOW),
};

/* The mask above lets exactly two families pass only while they differ in one bit. */
static_assert(AF_INET == 2 && AF_INET6 == 10, "one mask for both internet families");

/* Typing into another's terminal, and line disciplines, which load modules. */
static const struct seccomp_rule terminals[] = {
    IF(ARG_IS(1, TIOCSTI), DENY),
    IF(ARG_IS(1, TIOCLINUX), DENY),
    IF(ARG_IS(1, TIOCSETD), DENY),
    IF(ARG_IS(1, TIOCCONS), DENY),
    ELSE(ALLOW),
};

/* PER_LINUX and PER_LINUX32, each with UNAME26, and the question which is on. */
static const struct seccomp_rule personalities[] = {
    IF(ARG_IS(0, PER_LINUX), ALLOW),
    IF(ARG_IS(0, PER_LINUX32), ALLOW),
    IF(ARG_IS(0, PER_LINUX | UNAME26), ALLOW),
    IF(ARG_IS(0, PER_LINUX32 | UNAME26), ALLOW),
    IF(ARG_IS(0, UINT32_MAX), ALLOW),
    ELSE(DENY),
};

/* Same uid suffices to change another's limits, and the agent has the uid of the sandbox's root. */
static const struct seccomp_rule own_limits[] = {
    IF(ARG_IS(0, 0), ALLOW),
    ELSE(DENY),
};

static const struct seccomp_condition sandbox_conditions[] = {
    WHEN(clone, no_namespaces),
    WHEN(socket, families),
    WHEN(socketpair, families),
    WHEN(ioctl, terminals),
    WHEN(personality, personalities),
    WHEN(prlimit64, own_limits),
};

/* A sanitizer's runtime makes calls of its own, when it likes; there a surprise is refused and not deadly. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#define SURPRISE  DENY
#else
#define SANITIZED 0
#define SURPRISE  SECCOMP_RET_KILL_PROCESS
#endif

/* No socket, connect, bind, exec, fork: connected sockets come from the keeper. Files are those below its own
 * root. */
static const struct seccomp_call gateway_allowed[] = {
    /* streams and the loop */
    CALL(read), CALL(write), CALL(readv), CALL(writev), CALL(sendto), CALL(recvfrom), CALL(sendmsg),
    CALL(recvmsg), CALL(accept4), CALL(shutdown), CALL(getsockopt), CALL(setsockopt), CALL(getsockname),
    CALL(getpeername), CALL(epoll_create1), CALL(epoll_ctl), CALL(epoll_pwait), CALL(epoll_pwait2),
    CALL(eventfd2), CALL(timerfd_create), CALL(timerfd_settime), CALL(timerfd_gettime), CALL(signalfd4),
    CALL(pipe2), CALL(splice), CALL(sendfile), CALL(fcntl), CALL(close), CALL(close_range), CALL(dup),
    CALL(dup3), CALL(memfd_create),

    /* files: the database */
    CALL(openat), CALL(pread64), CALL(pwrite64), CALL(preadv), CALL(pwritev), CALL(lseek), CALL(fstat),
    CALL(newfstatat), CALL(statx), CALL(faccessat), CALL(faccessat2), CALL(fsync), CALL(fdatasync),
    CALL(ftruncate), CALL(fallocate), CALL(flock), CALL(fchmod), CALL(mkdirat), CALL(unlinkat),
    CALL(renameat2), CALL(readlinkat), CALL(getcwd), CALL(umask),

    /* memory and threads; tgkill is how abort() dies, and the gateway's uid owns nothing else to hit */
    CALL(munmap), CALL(mremap), CALL(madvise), CALL(brk), CALL(membarrier), CALL(futex),
    CALL(futex_waitv), CALL(rseq), CALL(set_robust_list), CALL(sched_yield), CALL(sched_getaffinity),
    CALL(exit), CALL(exit_group), CALL(restart_syscall), CALL(rt_sigaction), CALL(rt_sigprocmask),
    CALL(rt_sigreturn), CALL(sigaltstack), CALL(tgkill),

    /* questions */
    CALL(getpid), CALL(gettid), CALL(getuid), CALL(geteuid), CALL(getgid), CALL(getegid), CALL(getrusage),
    CALL(clock_gettime), CALL(clock_nanosleep), CALL(nanosleep), CALL(gettimeofday), CALL(getrandom),
    CALL(uname), CALL(sysinfo),

#ifdef __NR_open
    CALL(open), CALL(stat), CALL(lstat), CALL(access), CALL(unlink), CALL(rename), CALL(readlink),
    CALL(mkdir), CALL(dup2), CALL(epoll_create), CALL(epoll_wait), CALL(time),
#endif
#ifdef __NR_renameat
    CALL(renameat),
#endif
#if SANITIZED
    /* reading its own maps; the leak check stops all threads from a helper and walks them */
    CALL(getdents64), CALL(getppid), CALL(wait4), CALL(ptrace), CALL(kill), CALL(tkill), CALL(prctl),
    CALL(clone), CALL(mincore), CALL(msync), CALL(personality), CALL(getrlimit), CALL(setrlimit),
    CALL(clock_getres), CALL(process_vm_readv),
#ifdef __NR_pipe
    CALL(pipe),
#endif
#endif
};

/* The C library falls back to clone, whose flags can be read. */
static const struct seccomp_call gateway_absent[] = {CALL(clone3)};

static const struct seccomp_rule no_new_code[] = {
    IF(ARG_BITS_ARE_NOT(2, PROT_EXEC, 0), SURPRISE),
    ELSE(ALLOW),
};

/* Pairs reach nobody: between TLS and the HTTP server. */
static const struct seccomp_rule stream_pairs[] = {
    IF(ARG_IS(0, AF_UNIX), ALLOW),
    ELSE(SURPRISE),
};

static const struct seccomp_rule own_limits_only[] = {
    IF(ARG_IS(0, 0), ALLOW),
    ELSE(SURPRISE),
};

/* TCGETS is stdio asking whether it writes to a terminal: never. */
static const struct seccomp_rule stream_ioctls[] = {
    IF(ARG_IS(1, FIONREAD), ALLOW),
    IF(ARG_IS(1, FIONBIO), ALLOW),
    IF(ARG_IS(1, TCGETS), SECCOMP_FAIL(ENOTTY)),
    ELSE(SURPRISE),
};

#if !SANITIZED
static const struct seccomp_rule threads_only[] = {
    IF(ARG_BITS_ARE(0, NAMESPACE_FLAGS | CLONE_THREAD, CLONE_THREAD), ALLOW),
    ELSE(SURPRISE),
};

static const struct seccomp_rule own_name[] = {
    IF(ARG_IS(0, PR_SET_NAME), ALLOW),
    IF(ARG_IS(0, PR_SET_VMA), ALLOW),
    ELSE(SURPRISE),
};
#endif

static const struct seccomp_condition gateway_conditions[] = {
    WHEN(mmap, no_new_code),
    WHEN(mprotect, no_new_code),
    WHEN(prlimit64, own_limits_only),
    WHEN(socketpair, stream_pairs),
    WHEN(ioctl, stream_ioctls),
#if !SANITIZED
    WHEN(clone, threads_only),
    WHEN(prctl, own_name),
#endif
};

/* The image worker: files by descriptor, one socket, nothing else. */
static const struct seccomp_call imager_allowed[] = {
    CALL(read), CALL(write), CALL(pread64), CALL(pwrite64), CALL(lseek), CALL(ftruncate), CALL(close), CALL(fcntl),
    CALL(openat), CALL(openat2), CALL(mkdirat), CALL(mknodat), CALL(symlinkat), CALL(linkat), CALL(unlinkat),
    CALL(readlinkat), CALL(getdents64), CALL(fstat), CALL(newfstatat), CALL(statx), CALL(fchown), CALL(fchownat),
    CALL(fchmod), CALL(fchmodat), CALL(utimensat), CALL(fsetxattr), CALL(fgetxattr), CALL(flistxattr),
    CALL(sendmsg), CALL(recvmsg), CALL(recvfrom), CALL(fadvise64),
    CALL(munmap), CALL(mremap), CALL(madvise), CALL(brk), CALL(futex), CALL(exit), CALL(exit_group),
    CALL(rt_sigaction), CALL(rt_sigprocmask), CALL(rt_sigreturn), CALL(sigaltstack), CALL(restart_syscall),
    CALL(getpid), CALL(gettid), CALL(tgkill), CALL(clock_gettime), CALL(getrandom), CALL(sched_yield), CALL(getcwd),
    CALL(sysinfo), /* qsort asks how much memory there is */
#ifdef __NR_open
    CALL(open), CALL(stat), CALL(lstat), CALL(unlink), CALL(mkdir),
#endif
#if SANITIZED
    CALL(sched_getaffinity), CALL(getrlimit), CALL(getuid), CALL(readlink), CALL(dup2), CALL(dup), CALL(prctl),
#endif
};

static const struct seccomp_condition imager_conditions[] = {
    WHEN(mmap, no_new_code),
    WHEN(mprotect, no_new_code),
    WHEN(prlimit64, own_limits_only),
    WHEN(ioctl, stream_ioctls),
};

#define GROUP(table, then) { (table), ARRAY_SIZE(table), (then) }

/* clang-format on */

static const struct seccomp_policy policies[] = {
    [SECCOMP_PROFILE_SANDBOX] =
        {
            .groups =
                {
                    GROUP(sandbox_allowed, ALLOW),
                    GROUP(sandbox_denied, DENY),
                    GROUP(sandbox_absent, ABSENT),
                    GROUP(sandbox_pretended, PRETEND),
                },
            .conditions = sandbox_conditions,
            .condition_count = ARRAY_SIZE(sandbox_conditions),
            .otherwise = ABSENT,
            .newer = ABSENT,
            .wrong_arch = ABSENT,
        },
    [SECCOMP_PROFILE_GATEWAY] =
        {
            .groups = {GROUP(gateway_allowed, ALLOW), GROUP(gateway_absent, ABSENT)},
            .conditions = gateway_conditions,
            .condition_count = ARRAY_SIZE(gateway_conditions),
            .otherwise = SURPRISE,
            /* A newer C library may probe for a call of a newer kernel; that is no attack. */
            .newer = ABSENT,
            .wrong_arch = SURPRISE,
        },
    [SECCOMP_PROFILE_IMAGER] =
        {
            .groups = {GROUP(imager_allowed, ALLOW), GROUP(gateway_absent, ABSENT)},
            .conditions = imager_conditions,
            .condition_count = ARRAY_SIZE(imager_conditions),
            .otherwise = SURPRISE,
            .newer = ABSENT,
            .wrong_arch = SURPRISE,
        },
};

const struct seccomp_policy *seccomp_policy_get(enum seccomp_profile profile)
{
    return &policies[profile];
}

struct seccomp_decision seccomp_policy_decide(const struct seccomp_policy *p, uint32_t nr)
{
    if (nr >= SECCOMP_NR_X32)
        return (struct seccomp_decision){.action = p->wrong_arch};
    if (nr >= SECCOMP_NR_END)
        return (struct seccomp_decision){.action = p->newer};

    for (size_t i = 0; i < p->condition_count; i++)
        if (p->conditions[i].nr == nr)
            return (struct seccomp_decision){.rules = p->conditions[i].rules};

    for (size_t g = 0; g < ARRAY_SIZE(p->groups); g++)
        for (size_t i = 0; i < p->groups[g].n; i++)
            if (p->groups[g].calls[i].nr == nr)
                return (struct seccomp_decision){.action = p->groups[g].action};

    return (struct seccomp_decision){.action = p->otherwise};
}

static bool rule_holds(const struct seccomp_rule *rule, const uint64_t args[6])
{
    for (size_t i = 0; i < SECCOMP_RULE_TESTS; i++) {
        const struct seccomp_test *t = &rule->tests[i];
        if (t->mask == 0)
            break;
        bool equal = ((uint32_t)args[t->arg] & t->mask) == t->value;
        if (equal == t->differs)
            return false;
    }
    return true;
}

int seccomp_policy_verdict(enum seccomp_profile profile, uint32_t arch, uint32_t nr, const uint64_t args[6])
{
    static const uint64_t zeros[6];
    const struct seccomp_policy *p = seccomp_policy_get(profile);
    struct seccomp_decision d = {.action = p->wrong_arch};

    if (arch == SECCOMP_ARCH)
        d = seccomp_policy_decide(p, nr);
    if (d.rules) {
        const struct seccomp_rule *rule = d.rules;
        while (!rule_holds(rule, args ? args : zeros))
            rule++;
        d.action = rule->action;
    }

    switch (d.action & SECCOMP_RET_ACTION_FULL) {
    case SECCOMP_RET_ALLOW:
        return 0;
    case SECCOMP_RET_ERRNO:
        return (int)(d.action & SECCOMP_RET_DATA);
    default: /* killed: nobody is left to see an errno */
        return EPERM;
    }
}
