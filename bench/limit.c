/* SPDX-License-Identifier: Apache-2.0 */
/* limit.c: what the kernel alone costs: one command in fresh namespaces with an overlay root and a seccomp
 * filter.
 *
 * usage: limit ROOTFS WORKDIR PROGRAM|@ [ARGUMENT...]
 *
 * Runs PROGRAM of ROOTFS (or, for "@", the program given as $LIMIT_PROGRAM on the host, by descriptor) as
 * mapped root in new user, mount, pid, net, ipc, uts and cgroup namespaces, on an overlay over ROOTFS whose
 * upper layer is a tmpfs put on WORKDIR, with a private /proc, without capabilities, and exits with its
 * status. No control groups, no quota disk, no agent, no server: it is the floor that everything with more
 * comfort is compared to, not a sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ID_BASE = 0x60000000, /* any range nobody else uses */
    ID_COUNT = 65536,
    RULES = 184, /* with the head and tail as long as a real allow-list: 373 instructions */
    CAP_LAST = 40,
};

static void die(const char *what)
{
    perror(what);
    _exit(125);
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        die(path);
    (void)close(fd);
}

/* The root: rootfs below, a tmpfs above, made and entered inside the new mount namespace. */
static void enter_root(const char *rootfs, const char *work)
{
    char options[3 * PATH_MAX];
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        die("make mounts private");
    if (mount("tmpfs", work, "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=755") < 0 || chdir(work) < 0)
        die("mount tmpfs");
    if (mkdir("upper", 0755) < 0 || mkdir("work", 0755) < 0 || mkdir("root", 0755) < 0)
        die("mkdir");
    (void)snprintf(options, sizeof options, "lowerdir=%s,upperdir=upper,workdir=work,userxattr", rootfs);
    if (mount("overlay", "root", "overlay", MS_NODEV, options) < 0 || chdir("root") < 0)
        die("mount overlay");
    if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        die("mount proc");
    if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        die("pivot_root");
}

static void drop_rights(void)
{
    struct sock_filter code[RULES * 2 + 5];
    size_t n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < RULES; i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, i, 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = (unsigned short)n, .filter = code};
    for (int cap = 0; cap <= CAP_LAST; cap++)
        (void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0); /* a kernel with fewer of them says so */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        die("no_new_privs");
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        die("seccomp");
}

static void child(int sync, int program_fd, char **argv)
{
    char byte;
    if (read(sync, &byte, 1) != 1)
        _exit(125);
    if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        die("become root inside");
    (void)setsid();
    if (sethostname("limit", 5) < 0)
        die("sethostname");
    enter_root(argv[1], argv[2]);
    drop_rights();
    static char *const env[] = {"PATH=/usr/bin:/bin", NULL};
    if (program_fd >= 0)
        (void)fexecve(program_fd, argv + 3, env);
    else
        (void)execve(argv[3], argv + 3, env);
    die(argv[3]);
}

int main(int argc, char **argv)
{
    int sync[2], status, program_fd = -1;
    char path[64], map[64];
    if (argc < 4) {
        (void)fprintf(stderr, "usage: limit ROOTFS WORKDIR PROGRAM|@ [ARGUMENT...]\n");
        return 125;
    }
    if (strcmp(argv[3], "@") == 0) {
        const char *program = getenv("LIMIT_PROGRAM");
        program_fd = program ? open(program, O_PATH | O_CLOEXEC) : -1;
        if (program_fd < 0)
            die("LIMIT_PROGRAM");
    }
    if (pipe2(sync, O_CLOEXEC) < 0)
        die("pipe");
    struct clone_args args = {
        .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
                 CLONE_NEWCGROUP,
        .exit_signal = SIGCHLD,
    };
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid < 0)
        die("clone3");
    if (pid == 0)
        child(sync[0], program_fd, argv);
    (void)snprintf(map, sizeof map, "0 %u %d", (unsigned)ID_BASE, ID_COUNT);
    (void)snprintf(path, sizeof path, "/proc/%ld/uid_map", pid);
    write_file(path, map);
    (void)snprintf(path, sizeof path, "/proc/%ld/gid_map", pid);
    write_file(path, map);
    if (write(sync[1], "x", 1) != 1)
        die("pipe");
    while (waitpid((pid_t)pid, &status, 0) < 0)
        if (errno != EINTR)
            die("waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
