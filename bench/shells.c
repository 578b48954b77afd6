/* SPDX-License-Identifier: Apache-2.0 */
/* shells.c: what commands cost that nobody can save: a server that has a bash for each connection and hands
 * `true` to it for each request, whatever the request says.
 *
 * shells SOCKET      serves on a unix socket until it is ended
 *
 * No sessions, no output, no time limits, no checks: HTTP/1.1 with a length, a pipe to bash, a pipe from it.
 */
#include "base/util.h"
#include "net/write_all.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { REQUEST_MAX = 4096, EVENTS = 64, STATUS_FD = 3 };

extern char **environ;

static const char script[] = "true\necho $? >&3\n";
static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n"
                             "{\"exitCode\":0}";

struct client {
    int socket, input, status; /* of the client; to and from its bash */
    size_t len;
    char request[REQUEST_MAX + 1];
};

static _Noreturn void die(const char *what)
{
    (void)fprintf(stderr, "shells: %s: %s\n", what, strerror(errno));
    _exit(1);
}

static void start_bash(struct client *c)
{
    static char *const argv[] = {"bash", "--norc", NULL};
    posix_spawn_file_actions_t actions;
    int input[2], status[2];
    pid_t pid;
    if (pipe2(input, O_CLOEXEC) < 0 || pipe2(status, O_CLOEXEC) < 0)
        die("pipe");
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, input[0], 0);
    (void)posix_spawn_file_actions_adddup2(&actions, status[1], STATUS_FD);
    int r = posix_spawn(&pid, "/bin/bash", &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(input[0]);
    (void)close(status[1]);
    if (r) {
        errno = r;
        die("bash");
    }
    c->input = input[1];
    c->status = status[0];
}

/* Bytes of a whole request, or 0. */
static size_t request_size(struct client *c)
{
    c->request[c->len] = '\0';
    const char *end = strstr(c->request, "\r\n\r\n"), *length = strcasestr(c->request, "\r\ncontent-length:");
    if (!end)
        return 0;
    size_t size =
        (size_t)(end + 4 - c->request) + (length && length < end ? strtoul(length + 17, NULL, 10) : 0);
    return c->len >= size ? size : 0;
}

/* false: the client is gone. */
static bool hear_client(struct client *c)
{
    ssize_t n = recv(c->socket, c->request + c->len, REQUEST_MAX - c->len, 0);
    if (n <= 0)
        return false;
    c->len += (size_t)n;
    size_t size = request_size(c);
    if (size) {
        c->len -= size;
        memmove(c->request, c->request + size, c->len);
        (void)write_all(c->input, script, sizeof script - 1); /* on failure the reader sees the end */
    }
    return true;
}

static bool hear_bash(struct client *c)
{
    char note[16];
    if (read(c->status, note, sizeof note) != 2) /* "0\n" */
        return false;
    (void)write_all(c->socket, answer, sizeof answer - 1);
    return true;
}

/* The tag tells which of a client's descriptors is ready: the pointer itself is even. */
static void watch(int loop, int fd, struct client *c, unsigned tag)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = (uint64_t)(uintptr_t)c | tag};
    if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &e) < 0)
        die("epoll");
}

static void let_in(int loop, int listener)
{
    struct client *c = calloc(1, sizeof *c);
    if (!c || (c->socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0)
        die("accept");
    start_bash(c);
    watch(loop, c->socket, c, 0);
    watch(loop, c->status, c, 1);
}

/* Its bash reads the end of its input. The memory stays: an event for the other descriptor may be under way,
 * and there are no more clients than a measurement has. */
static void let_go(struct client *c)
{
    close_fd(&c->socket);
    close_fd(&c->input);
    close_fd(&c->status);
}

int main(int argc, char **argv)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct epoll_event events[EVENTS];
    if (argc != 2 || strlen(argv[1]) >= sizeof at.sun_path)
        return 2;
    memcpy(at.sun_path, argv[1], strlen(argv[1]) + 1);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGCHLD, SIG_IGN);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), loop = epoll_create1(EPOLL_CLOEXEC);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) < 0 || listen(listener, 1024) < 0)
        die("listen");
    watch(loop, listener, NULL, 0);
    for (;;) {
        int n = epoll_wait(loop, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            struct client *c = (struct client *)(uintptr_t)(events[i].data.u64 & ~UINT64_C(1));
            if (!c)
                let_in(loop, listener);
            else if (c->socket >= 0 && !(events[i].data.u64 & 1 ? hear_bash(c) : hear_client(c)))
                let_go(c);
        }
    }
}
