/* SPDX-License-Identifier: Apache-2.0 */
/* test_seccomp_kernel.c: the filters at work: children load them and try what they must not do.
 *
 * Most of it needs root to mean anything: without the filter these calls would succeed, or fail otherwise
 * than with EPERM. The arguments are such that little happens when the filter fails. */
#include "base/util.h"
#include "keeper/seccomp_internal.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define NR_CALLED     512
#define PATIENCE_S    60
#define CHILD_BROKEN  99
#define NAMESPACE_ANY 0x7e020000
#define HIGH_BITS     0xdeadbeef00000000u

#define CHECK_FAILS(call, errnum) \
    do {                          \
        errno = 0;                \
        CHECK_INT((call), -1);    \
        CHECK_INT(errno, errnum); \
    } while (0)

/* Runs body in a child under the filter; its failed checks are printed by it and counted here. */
static int run_filtered(enum seccomp_profile profile, void (*body)(void))
{
    struct seccomp_program p;
    struct error e;

    if (seccomp_build(profile, &p, &e) < 0)
        return -1;
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        (void)alarm(PATIENCE_S);
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seccomp_load(&p) < 0)
            _exit(CHILD_BROKEN);
        body();
        (void)fflush(stdout);
        _exit(test_failed);
    }
    seccomp_program_done(&p);

    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1;
    return status;
}

static void sandboxed(void (*body)(void))
{
    CHECK_INT(run_filtered(SECCOMP_PROFILE_SANDBOX, body), 0);
}

/* Waits for a child and says whether it ended by itself with code 0. */
static bool child_ended_well(pid_t pid)
{
    int status;
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(SEC_02_load_needs_no_new_privs_or_root)
{
    struct seccomp_program p;
    struct error e;
    REQUIRE(seccomp_build(SECCOMP_PROFILE_SANDBOX, &p, &e) == 0);

    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0)
            _exit(1);
        if (seccomp_load(&p) != -EACCES)
            _exit(2);
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seccomp_load(&p) != 0)
            _exit(3);
        _exit(0);
    }
    CHECK(child_ended_well(pid));
    seccomp_program_done(&p);
}

static void *unshare_when_told(void *arg)
{
    char c;
    if (read(*(int *)arg, &c, 1) != 1)
        return NULL;
    return unshare(CLONE_NEWUTS) == -1 && errno == EPERM ? arg : NULL;
}

/* A thread which ran before the filter was loaded is under it as well. */
TEST(SEC_02_load_reaches_all_threads)
{
    struct seccomp_program p;
    struct error e;
    REQUIRE(seccomp_build(SECCOMP_PROFILE_SANDBOX, &p, &e) == 0);

    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int go[2];
        pthread_t thread;
        void *refused = NULL;

        (void)alarm(PATIENCE_S);
        if (pipe2(go, O_CLOEXEC) < 0 || pthread_create(&thread, NULL, unshare_when_told, &go[0]) != 0)
            _exit(1);
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seccomp_load(&p) != 0)
            _exit(2);
        if (write(go[1], "x", 1) != 1 || pthread_join(thread, &refused) != 0)
            _exit(3);
        _exit(refused ? 0 : 4);
    }
    CHECK(child_ended_well(pid));
    seccomp_program_done(&p);
}

/* uretprobe and uprobe: made by code which the kernel itself plants; it lets them past every filter, and
 * answers other callers with a signal. */
static bool call_is_the_kernels_own(long nr)
{
#ifdef __x86_64__
    return nr == 335 || nr == 336;
#else
    return false;
#endif
}

/* All ones: no pointer, no descriptor, no length; should the filter fail, the kernel refuses most of them
 * too. */
static void call_refused(void)
{
    static const uint64_t ones[6] = {~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull};

    CHECK(setsid() > 0); /* no terminal for vhangup to hit */
    for (long nr = 0; nr < NR_CALLED; nr++) {
        int expected = seccomp_policy_verdict(SECCOMP_PROFILE_SANDBOX, SECCOMP_ARCH, (uint32_t)nr, ones);
        if (expected == 0 || call_is_the_kernels_own(nr))
            continue;
        errno = 0;
        long r = syscall(nr, -1L, -1L, -1L, -1L, -1L, -1L);
        if (r == -1 && errno == expected)
            continue;
        char m[100];
        (void)snprintf(m, sizeof m, "call %ld: returned %ld, errno %d, expected %d", nr, r, errno, expected);
        test_fail(__FILE__, __LINE__, m);
    }
}

TEST(SEC_02_refused_calls_fail_as_promised)
{
    sandboxed(call_refused);
}

/* Would wait for ever, end the caller, leave something behind or return twice; or would act on the machine,
 * were the policy to allow it by mistake. */
static bool call_is_awkward(long nr)
{
    static const uint16_t awkward[] = {
        SYS_exit,          SYS_exit_group,      SYS_seccomp, SYS_clone,    SYS_rt_sigreturn,
        SYS_rt_sigsuspend, SYS_rt_sigtimedwait, SYS_ppoll,   SYS_pselect6, SYS_msgget,
        SYS_sethostname,   SYS_setdomainname,   SYS_vhangup, SYS_acct,
#ifdef __x86_64__
        SYS_pause,         SYS_select,          SYS_fork,    SYS_vfork,
#endif
    };
    for (size_t i = 0; i < ARRAY_SIZE(awkward); i++)
        if (awkward[i] == nr)
            return true;
    return false;
}

/* The errno of a call with null arguments, made by a process of its own; 0 for success, -1 if the process
 * died. */
static int call_in_child(long nr)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)alarm(PATIENCE_S);
        (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); /* some answers depend on it */
        /* a null argument is also descriptor 0: fchmod(0, 0) by root would hit whatever standard input is */
        if (close_range(0, ~0U, 0) < 0)
            _exit(255);
        long r = syscall(nr, 0, 0, 0, 0, 0, 0);
        int code = r == -1 ? errno : 0;
        /* The C library may stand on ground the call has just removed. */
        for (;;)
            (void)syscall(SYS_exit_group, code);
    }

    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

static int errno_without_filter[NR_CALLED];

static void call_allowed(void)
{
    for (long nr = 0; nr < NR_CALLED; nr++) {
        if (call_is_awkward(nr) ||
            seccomp_policy_verdict(SECCOMP_PROFILE_SANDBOX, SECCOMP_ARCH, (uint32_t)nr, NULL) != 0)
            continue;
        int actual = call_in_child(nr);
        if (actual == errno_without_filter[nr])
            continue;
        char m[100];
        (void)snprintf(m, sizeof m, "call %ld: errno %d, without the filter %d", nr, actual,
                       errno_without_filter[nr]);
        test_fail(__FILE__, __LINE__, m);
    }
}

/* Null arguments give the same answer with and without the filter. */
TEST(SEC_02_allowed_calls_reach_the_kernel)
{
    (void)fflush(stdout);
    for (long nr = 0; nr < NR_CALLED; nr++)
        if (!call_is_awkward(nr) &&
            seccomp_policy_verdict(SECCOMP_PROFILE_SANDBOX, SECCOMP_ARCH, (uint32_t)nr, NULL) == 0)
            errno_without_filter[nr] = call_in_child(nr);
    sandboxed(call_allowed);
}

#ifdef __x86_64__
static long call_32(long nr, long a, long b)
{
    long r;
    /* The 32-bit entry clears r8 to r11. */
    __asm__ volatile("int $0x80"
                     : "=a"(r)
                     : "a"(nr), "b"(a), "c"(b), "d"(0)
                     : "memory", "r8", "r9", "r10", "r11");
    return r;
}

static void use_32_bit_entry(void)
{
    enum { I386_GETPID = 20, I386_MOUNT = 21, I386_SOCKETCALL = 102, I386_IPC = 117 };

    CHECK_INT(call_32(I386_GETPID, 0, 0), -ENOSYS);
    CHECK_INT(call_32(I386_MOUNT, 0, 0), -ENOSYS);
    CHECK_INT(call_32(I386_SOCKETCALL, 1, 0), -ENOSYS);
    CHECK_INT(call_32(I386_IPC, 0, 0), -ENOSYS);
}

TEST(SEC_03_32_bit_entry)
{
    /* A kernel without the entry raises a signal, with or without a filter; then nothing is to be tested. */
    pid_t pid = fork();
    if (pid == 0)
        _exit(call_32(20, 0, 0) == getpid() ? 0 : 1);
    if (!child_ended_well(pid)) {
        test_skip("this kernel has no 32-bit entry");
        return;
    }
    sandboxed(use_32_bit_entry);
}

static void use_x32(void)
{
    for (long nr = 0; nr < NR_CALLED; nr++)
        CHECK_FAILS(syscall((long)SECCOMP_NR_X32 | nr, 0, 0, 0), ENOSYS);
}

TEST(SEC_04_x32_bit)
{
    sandboxed(use_x32);
}
#endif

/* Were it to succeed, the child must not run the test too. */
static long clone_and_exit(uint64_t flags)
{
    long r = syscall(SYS_clone, flags, 0, 0, 0, 0);
    if (r == 0)
        _exit(0);
    return r;
}

static void make_namespaces(void)
{
    static const unsigned flags[] = {CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                                     CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET};
    struct {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
    } args = {.exit_signal = SIGCHLD};

    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        CHECK_FAILS(unshare((int)flags[i]), EPERM);
        CHECK_FAILS(clone_and_exit(flags[i] | SIGCHLD), EPERM);
        CHECK_FAILS(clone_and_exit(flags[i] | SIGCHLD | 1ull << 40), EPERM);
        args.flags = flags[i];
        long r = syscall(SYS_clone3, &args, sizeof args);
        if (r == 0)
            _exit(0);
        CHECK(r == -1 && errno == ENOSYS);
    }
    CHECK_FAILS(clone_and_exit(NAMESPACE_ANY | SIGCHLD), EPERM);
    CHECK(clone_and_exit(SIGCHLD) > 0);
    CHECK_FAILS(unshare(CLONE_FILES), EPERM);

    auto_close int ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    CHECK(ns >= 0);
    CHECK_FAILS(setns(ns, 0), EPERM);
}

TEST(SEC_05_namespaces)
{
    sandboxed(make_namespaces);
}

static void *thread_body(void *arg)
{
    *(int *)arg = 1;
    return NULL;
}

static void run_thread(void)
{
    pthread_t thread;
    int ran = 0;

    CHECK_INT(pthread_create(&thread, NULL, thread_body, &ran), 0);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_INT(ran, 1);
}

/* glibc tries clone3 first and must come back to clone for threads and posix_spawn. */
static void use_threads(void)
{
    run_thread();

    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    CHECK(child_ended_well(pid));
    CHECK_INT(system("exit 7"), 7 << 8);
}

TEST(SEC_06_clone3_fallback)
{
    sandboxed(use_threads);
}

static void use_mount_api(void)
{
    CHECK_FAILS(syscall(SYS_fsopen, "tmpfs", 0), EPERM);
    CHECK_FAILS(syscall(SYS_open_tree, AT_FDCWD, "/", 0), EPERM);
    CHECK_FAILS(syscall(SYS_move_mount, -1, "", -1, "", 0), EPERM);
    CHECK_FAILS(syscall(SYS_mount_setattr, -1, "", 0, NULL, 0), EPERM);
}

TEST(SEC_07_mount_api)
{
    sandboxed(use_mount_api);
}

static void use_kernel_doors(void)
{
    char params[120] = {0};

    CHECK_FAILS(syscall(SYS_io_uring_setup, 1, params), ENOSYS);
    CHECK_FAILS(syscall(SYS_keyctl, 0, -3, 0), ENOSYS);
    CHECK_FAILS(syscall(SYS_add_key, "user", "a", "b", 1, -2), ENOSYS);
    CHECK_FAILS(syscall(SYS_request_key, "user", "a", NULL, -2), ENOSYS);
    CHECK_FAILS(syscall(SYS_bpf, 0, params, sizeof params), EPERM);
    CHECK_FAILS(syscall(SYS_perf_event_open, params, 0, -1, -1, 0), EPERM);
    CHECK_FAILS(syscall(SYS_userfaultfd, O_CLOEXEC), ENOSYS);
    CHECK_FAILS(syscall(SYS_fanotify_init, 0, 0), EPERM);
}

TEST(SEC_08_SEC_09_SEC_10_kernel_doors)
{
    sandboxed(use_kernel_doors);
}

static void try_families(void)
{
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET};

    for (int family = 0; family <= 45; family++)
        for (size_t t = 0; t < ARRAY_SIZE(types); t++) {
            auto_close int fd = socket(family, types[t] | SOCK_CLOEXEC, 0);
            if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK)
                continue;
            CHECK(fd == -1 && errno == EAFNOSUPPORT);
        }

    auto_close int local = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    auto_close int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    auto_close int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP);
    CHECK(local >= 0);
    CHECK(tcp >= 0);
    CHECK(udp >= 0);
    CHECK_FAILS(socket(AF_INET, SOCK_STREAM, 262), EPROTONOSUPPORT);
    CHECK_FAILS(socket(AF_INET, SOCK_STREAM, 132), EPROTONOSUPPORT);
    CHECK_FAILS(socket(AF_INET6, SOCK_SEQPACKET, 132), EPROTONOSUPPORT);

    int pair[2];
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    CHECK_FAILS(socketpair(30 /* TIPC */, SOCK_STREAM, 0, pair), EAFNOSUPPORT);
}

TEST(SEC_11_socket_families)
{
    sandboxed(try_families);
}

static void try_netlink(void)
{
    auto_close int route = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0);
    CHECK(route >= 0);
    for (int protocol = 1; protocol <= 22; protocol++)
        CHECK_FAILS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol), EAFNOSUPPORT);
}

TEST(SEC_12_netlink_protocols)
{
    sandboxed(try_netlink);
}

static void abuse_terminal(void)
{
    auto_close int pty = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    REQUIRE(pty >= 0);
    char c = 'x';

    CHECK_FAILS(ioctl(pty, TIOCSTI, &c), EPERM);
    CHECK_FAILS(syscall(SYS_ioctl, pty, 0x100005412, &c), EPERM);
    CHECK_FAILS(syscall(SYS_ioctl, pty, HIGH_BITS | TIOCLINUX, &c), EPERM);
    CHECK_FAILS(ioctl(pty, TIOCCONS), EPERM);
    for (int discipline = 0; discipline <= 30; discipline++) {
        CHECK_FAILS(ioctl(pty, TIOCSETD, &discipline), EPERM);
        CHECK_FAILS(syscall(SYS_ioctl, pty, HIGH_BITS | TIOCSETD, &discipline), EPERM);
    }

    int unread;
    CHECK_INT(ioctl(pty, FIONREAD, &unread), 0);
}

TEST(SEC_13_SEC_14_terminals)
{
    sandboxed(abuse_terminal);
}

static void open_by_handle(void)
{
    struct {
        unsigned bytes;
        int type;
        unsigned char f[8];
    } root = {.bytes = 8, .type = 1, .f = {2}};
    int mount_id;
    auto_close int here = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    CHECK_FAILS(syscall(SYS_open_by_handle_at, here, &root, O_RDONLY), EPERM);
    CHECK_FAILS(syscall(SYS_name_to_handle_at, here, "", &root, &mount_id, AT_EMPTY_PATH), EPERM);
}

TEST(SEC_17_open_by_handle)
{
    sandboxed(open_by_handle);
}

static void try_personalities(void)
{
    static const unsigned refused[] = {0x400000, 0x40000, 0x200000, 0x100000, 1, 9, 0x20009, 0xfffffffe};
    static const unsigned fine[] = {8, 0x20000, 0x20008, 0, 0xffffffff};

    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        CHECK_FAILS(syscall(SYS_personality, refused[i]), EPERM);
    for (size_t i = 0; i < ARRAY_SIZE(fine); i++)
        CHECK(syscall(SYS_personality, fine[i]) >= 0);
}

TEST(SEC_18_personality)
{
    sandboxed(try_personalities);
}

static void set_time(void)
{
    char timex[256] = {0}; /* no mode bits: the harmless question, refused with the rest */

    CHECK_FAILS(syscall(SYS_clock_settime, CLOCK_REALTIME, NULL), EPERM);
    CHECK_FAILS(syscall(SYS_settimeofday, NULL, NULL), EPERM);
    CHECK_FAILS(syscall(SYS_adjtimex, timex), EPERM);
    CHECK_FAILS(syscall(SYS_clock_adjtime, CLOCK_REALTIME, timex), EPERM);
}

TEST(SEC_19_time)
{
    sandboxed(set_time);
}

static void change_limits(void)
{
    uint64_t limit[2];

    CHECK_INT(syscall(SYS_prlimit64, 0, 7, NULL, limit), 0);
    CHECK_FAILS(syscall(SYS_prlimit64, 1, 7, NULL, limit), EPERM);
    CHECK_FAILS(syscall(SYS_prlimit64, getpid(), 7, NULL, limit), EPERM);
}

TEST(SEC_21_limits_of_others)
{
    sandboxed(change_limits);
}

/* The sandbox's own filter comes on top of ours, never instead of it: allowing everything does not help. */
static void stack_filters(void)
{
    struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_filter own[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpriority, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EXDEV),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog allow_prog = {ARRAY_SIZE(allow), allow}, own_prog = {ARRAY_SIZE(own), own};

    CHECK_INT(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &own_prog), 0);
    CHECK_FAILS(syscall(SYS_getpriority, 0, 0), EXDEV);
    auto_close int listener =
        (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &allow_prog);
    CHECK(listener >= 0);
    CHECK_FAILS(unshare(CLONE_NEWUSER), EPERM);
    CHECK_FAILS(syscall(SYS_clone3, NULL, 0), ENOSYS);
    CHECK_INT(system("exit 9"), 9 << 8);
}

TEST(SEC_23_stacking)
{
    sandboxed(stack_filters);
}

static void do_gateway_work(void)
{
    auto_close int loop = epoll_create1(EPOLL_CLOEXEC);
    auto_close int file = memfd_create("db", MFD_CLOEXEC);
    struct epoll_event event;
    struct timespec now;
    int unread;

    run_thread();
    CHECK(loop >= 0);
    CHECK_INT(epoll_wait(loop, &event, 1, 0), 0);
    CHECK_INT(ftruncate(file, 4096), 0);
    CHECK_INT(pwrite(file, "x", 1, 0), 1);
    CHECK_INT(fsync(file), 0);
    CHECK_INT(ioctl(file, FIONREAD, &unread), 0);
    CHECK_INT(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now), 0);
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(map != MAP_FAILED);
    CHECK_INT(munmap(map, 4096), 0);
    CHECK_FAILS(syscall(SYS_clone3, NULL, 0), ENOSYS);
    CHECK_FAILS(syscall(SECCOMP_NR_END), ENOSYS);
}

TEST(gateway_works_under_its_filter)
{
    CHECK_INT(run_filtered(SECCOMP_PROFILE_GATEWAY, do_gateway_work), 0);
}

static void gateway_opens_socket(void)
{
    CHECK_FAILS(socket(AF_UNIX, SOCK_STREAM, 0), EPERM);
}

static void gateway_maps_code(void)
{
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
}

static void gateway_execs(void)
{
    CHECK_FAILS(syscall(SYS_execve, "/bin/true", NULL, NULL), EPERM);
}

static void gateway_makes_namespace(void)
{
    CHECK_FAILS(unshare(CLONE_NEWUSER), EPERM);
}

TEST(gateway_dies_of_a_surprise)
{
    void (*const surprises[])(void) = {gateway_opens_socket, gateway_maps_code, gateway_execs,
                                       gateway_makes_namespace};

    for (size_t i = 0; i < ARRAY_SIZE(surprises); i++) {
        int status = run_filtered(SECCOMP_PROFILE_GATEWAY, surprises[i]);
        if (seccomp_policy_get(SECCOMP_PROFILE_GATEWAY)->otherwise == SECCOMP_RET_KILL_PROCESS)
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
        else
            CHECK_INT(status, 0);
    }
}
