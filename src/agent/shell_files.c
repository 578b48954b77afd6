/* SPDX-License-Identifier: Apache-2.0 */
/* shell_files.c: see shell_files.h. */
#include "agent/shell_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* What comes of one build has one time; who puts another bash in the place of the usual one gets that. */
const char *bash_program(void)
{
    static const char fixed[] = "/usr/lib/silica/bash"; /* under this name: ps(1) shows the last part */
    struct stat ours, usual;
    bool same = stat(fixed, &ours) == 0 && S_ISREG(ours.st_mode) && (ours.st_mode & S_IXOTH) &&
                stat(AGENT_BASH, &usual) == 0 && ours.st_mtim.tv_sec == usual.st_mtim.tv_sec &&
                ours.st_mtim.tv_nsec == usual.st_mtim.tv_nsec;
    return same ? fixed : AGENT_BASH;
}

int fifo_make(const char *path)
{
    (void)unlink(path);
    return mkfifo(path, 0600) < 0 ? -errno : 0;
}

int fifo_open(const char *path, int flags)
{
    for (int tries = 0; tries < 2; tries++) {
        struct stat st;
        /* musl's open() asks for O_CLOEXEC a second time, as a call of its own; its openat() does not */
        int fd = openat(AT_FDCWD, path, flags | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0 && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode))
            return fd;
        close_fd(&fd);
        int r = fifo_make(path);
        if (r < 0)
            return r;
    }
    return -EIO;
}

int shell_file_write(const char *path, struct buf *data)
{
    int r = 0;
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    while (r == 0 && buf_len(data)) {
        ssize_t n = write(fd, buf_data(data), buf_len(data));
        if (n < 0 && errno != EINTR)
            r = -errno;
        else if (n > 0)
            buf_consume(data, (size_t)n);
    }
    if (r < 0)
        (void)unlink(path);
    return r;
}

int shell_text_write(const char *path, const struct shell_script *script,
                     int (*build)(struct buf *out, const struct shell_script *s))
{
    struct buf text = BUF_INIT(SHELL_SCRIPT_MAX);
    int r = build(&text, script);
    if (r == 0)
        r = shell_file_write(path, &text);
    buf_done(&text);
    return r;
}

bool process_reads_pipe(pid_t pid, int pipe_fd)
{
    char path[64], text[64], link[32];
    struct stat st;
    int number, fd;
    (void)snprintf(path, sizeof path, "/proc/%d/syscall", (int)pid);
    auto_close int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (n <= 0)
        return false;
    text[n] = '\0';
    if (sscanf(text, "%d %x", &number, (unsigned *)&fd) != 2 || number != SYS_read || fstat(pipe_fd, &st) < 0)
        return false;
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
    (void)snprintf(text, sizeof text, "pipe:[%lu]", (unsigned long)st.st_ino);
    n = readlink(path, link, sizeof link);
    return n == (ssize_t)strlen(text) && memcmp(link, text, (size_t)n) == 0;
}

int process_rest_open(pid_t pid)
{
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

bool process_rest_read(int fd, struct process_rest *ret)
{
    char text[4096];
    unsigned long long caught, naps;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return false;
    text[n] = '\0';
    const char *state = strstr(text, "\nState:\t"), *signals = strstr(text, "\nSigCgt:"),
               *switches = strstr(text, "\nvoluntary_ctxt_switches:");
    if (!state || !signals || sscanf(signals, "\nSigCgt: %llx", &caught) != 1 || !switches ||
        sscanf(switches, "\nvoluntary_ctxt_switches: %llu", &naps) != 1)
        return false;
    *ret = (struct process_rest){.naps = naps + (state[8] != 'S'), .caught = caught};
    return true;
}
