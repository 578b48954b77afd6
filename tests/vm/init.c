/* SPDX-License-Identifier: Apache-2.0 */
/* init.c: PID 1 of the test machine: mounts what tests need, runs /test and hands its exit status to QEMU. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum { EXIT_PORT = 0xf4 }; /* the isa-debug-exit device; see run */

static void die(const char *what)
{
    fprintf(stderr, "init: %s: %s\n", what, strerror(errno));
    (void)reboot(RB_POWER_OFF);
    _exit(1);
}

static void mount_at(const char *type, const char *path, const char *options)
{
    if ((mkdir(path, 0755) < 0 && errno != EEXIST) || mount(type, path, type, 0, options) < 0)
        die(path);
}

static void write_to(const char *path, const char *value)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, value, strlen(value)) < 0)
        die(path);
    (void)close(fd);
}

/* mode: "v2", "v1" or "hybrid" (controllers on v1 beside an empty v2) */
static void mount_cgroups(const char *mode)
{
    static const char *const controllers[] = {"cpu,cpuacct", "memory", "pids", "blkio", "devices", "freezer"};

    if (strcmp(mode, "v2") == 0) {
        mount_at("cgroup2", "/sys/fs/cgroup", NULL);
        /* a service manager gives its services a group each, and so a group of its own to the test */
        if (mkdir("/sys/fs/cgroup/services", 0755) < 0 || mkdir("/sys/fs/cgroup/services/test", 0755) < 0)
            die("make groups");
        write_to("/sys/fs/cgroup/services/test/cgroup.procs", "0");
        return;
    }
    mount_at("tmpfs", "/sys/fs/cgroup", "mode=755");
    for (size_t i = 0; i < sizeof controllers / sizeof *controllers; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "/sys/fs/cgroup/%s", controllers[i]);
        mount_at("cgroup", path, controllers[i]);
    }
    if (strcmp(mode, "hybrid") == 0)
        mount_at("cgroup2", "/sys/fs/cgroup/unified", NULL);
}

static void load_modules(void)
{
    static const char *const modules[] = {"/loop.ko"};
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        int fd = open(modules[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue; /* built in, or the tests do without */
        if (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST)
            die(modules[i]);
        (void)close(fd);
    }
}

/* The serial line would add carriage returns. */
static void console_raw(void)
{
    struct termios t;
    if (tcgetattr(STDOUT_FILENO, &t) == 0) {
        t.c_oflag &= ~(tcflag_t)OPOST;
        (void)tcsetattr(STDOUT_FILENO, TCSANOW, &t);
    }
}

int main(int argc, char **argv)
{
    const char *mode = getenv("CGROUPS");
    (void)argc;

    mount_at("devtmpfs", "/dev", "mode=755");
    mount_at("proc", "/proc", NULL);
    mount_at("sysfs", "/sys", NULL);
    mount_at("tmpfs", "/tmp", "mode=1777");
    mount_at("tmpfs", "/run", "mode=755");
    load_modules();
    mount_cgroups(mode ? mode : "v2");
    console_raw();

    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        argv[0] = "/test";
        execv("/test", argv);
        die("run /test");
    }
    int status = 0;
    for (pid_t p; (p = wait(&status)) != pid;)
        if (p < 0 && errno != EINTR)
            die("wait");
    if (WIFSIGNALED(status))
        printf("init: /test ended by signal %d\n", WTERMSIG(status));
    (void)fflush(stdout);
    (void)tcdrain(STDOUT_FILENO);

    if (ioperm(EXIT_PORT, 4, 1) < 0)
        die("ioperm");
    outb((unsigned char)(WIFEXITED(status) ? WEXITSTATUS(status) & 0x7f : 126), EXIT_PORT);
    die("the machine did not end");
}
