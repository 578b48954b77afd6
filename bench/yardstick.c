/* SPDX-License-Identifier: Apache-2.0 */
/* yardstick.c: how fast the machine is just now, by three things that only the kernel has a part in.
 *
 * usage: yardstick STATIC-PROGRAM
 *
 * Prints the median time, in microseconds, of starting a static program and waiting for its end, and of one
 * byte to another process and back through a unix socket, on the same processor and on another one: "exec N",
 * "same N", "other N". Without a second processor there is no last line. */
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STARTS = 300, TRIPS = 3000, WARM = 20 };

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void tell(const char *name, int64_t *ns, size_t n)
{
    qsort(ns, n, sizeof *ns, by_value);
    printf("%s %.1f\n", name, (double)ns[n / 2] / 1000);
}

static void starts(char *program)
{
    static int64_t ns[STARTS];
    char *argv[] = {program, NULL}, *envp[] = {NULL};
    for (int i = -WARM; i < STARTS; i++) {
        int64_t begun = now_ns();
        pid_t pid = vfork();
        if (pid == 0) {
            (void)execve(program, argv, envp);
            _exit(127);
        }
        int status;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            die(program);
        if (i >= 0)
            ns[i] = now_ns() - begun;
    }
    tell("exec", ns, STARTS);
}

/* 0, or -errno: there is no such processor for us. */
static int stay_on(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set) < 0 ? -errno : 0;
}

static void echo(int fd)
{
    char c;
    while (read(fd, &c, 1) == 1 && write(fd, &c, 1) == 1)
        ;
    _exit(0);
}

static void trips(const char *name, int mine, int others)
{
    static int64_t ns[TRIPS];
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        die("socketpair");
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        (void)close(pair[0]);
        if (stay_on(others) < 0)
            _exit(0); /* seen as the end of the other side */
        echo(pair[1]);
    }
    (void)close(pair[1]);
    int i = stay_on(mine) < 0 ? TRIPS : -WARM;
    for (char c = 0; i < TRIPS; i++) {
        int64_t begun = now_ns();
        if (write(pair[0], &c, 1) != 1 || read(pair[0], &c, 1) != 1)
            break;
        if (i >= 0)
            ns[i] = now_ns() - begun;
        if (i == TRIPS - 1)
            tell(name, ns, TRIPS);
    }
    (void)close(pair[0]);
    (void)waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: yardstick STATIC-PROGRAM\n");
        return 2;
    }
    cpu_set_t set;
    int cpus[2] = {-1, -1}, n = 0;
    if (sched_getaffinity(0, sizeof set, &set) < 0)
        die("sched_getaffinity");
    for (int cpu = 0; cpu < CPU_SETSIZE && n < 2; cpu++)
        if (CPU_ISSET(cpu, &set))
            cpus[n++] = cpu;
    starts(argv[1]);
    (void)fflush(stdout);
    trips("same", cpus[0], cpus[0]);
    (void)fflush(stdout);
    if (n == 2)
        trips("other", cpus[0], cpus[1]);
    return 0;
}
