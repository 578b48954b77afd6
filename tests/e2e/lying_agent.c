/* SPDX-License-Identifier: Apache-2.0 */
/* lying_agent.c: takes the agent's place in a real sandbox and breaks its promises (AGT-06 to AGT-08). What
 * it does is told by the variable LIE of the sandbox's environment; without one it answers every request with
 * "ok". Built statically by test_lying_agent.py. */
#include "agent/control.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char lie[64];

/* ------------------------------------------------------------------ the keeper's line */

static void say(int fd, const void *data, size_t n)
{
    if (send(fd, data, n, MSG_NOSIGNAL) < 0)
        for (;;)
            pause(); /* the line was cut: nothing more to say */
}

static void say_type(int fd, uint32_t type)
{
    const struct control_message m = {.version = CONTROL_VERSION, .type = type};
    say(fd, &m, sizeof m);
}

/* A proper message with as many descriptors as one message can have. */
static void say_with_descriptors(int fd)
{
    enum { COUNT = 250 };
    struct control_message m = {.version = CONTROL_VERSION, .type = CONTROL_BOOTED};
    union {
        char space[CMSG_SPACE(COUNT * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {&m, sizeof m};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(COUNT * sizeof(int));
    int pipes[2];
    if (pipe(pipes) < 0)
        return;
    for (size_t i = 0; i < COUNT; i++)
        memcpy(CMSG_DATA(c) + i * sizeof(int), &pipes[i % 2], sizeof(int));
    (void)sendmsg(fd, &msg, MSG_NOSIGNAL);
}

/* Waits for BOOT and takes LIE=... out of the attached environment. */
static void learn(int fd)
{
    struct control_message m;
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {&m, sizeof m};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    static char env[1 << 16];
    if (recvmsg(fd, &msg, 0) != sizeof m || m.type != CONTROL_BOOT)
        _exit(1);
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    if (!c)
        return;
    int memfd;
    memcpy(&memfd, CMSG_DATA(c), sizeof memfd);
    ssize_t n = pread(memfd, env, sizeof env - 1, 0);
    for (char *p = env; n > 0 && p < env + n; p += strlen(p) + 1)
        if (strncmp(p, "LIE=", 4) == 0)
            (void)snprintf(lie, sizeof lie, "%s", p + 4);
    (void)close(memfd);
}

static void lie_to_the_keeper(int fd)
{
    static const char large[60000];
    if (strcmp(lie, "control-short") == 0)
        say(fd, large, 4);
    else if (strcmp(lie, "control-huge") == 0)
        say(fd, large, sizeof large);
    else if (strcmp(lie, "control-unknown") == 0)
        say_type(fd, 77);
    else if (strcmp(lie, "control-descriptors") == 0)
        say_with_descriptors(fd);
    else if (strcmp(lie, "control-flood") == 0)
        for (;;)
            say_type(fd, CONTROL_BOOTED);
    else if (strcmp(lie, "control-place-flood") == 0)
        for (;;) /* and the answers are not read */
            say_type(fd, CONTROL_PLACE);
    else if (strcmp(lie, "control-exit-flood") == 0)
        for (;;)
            say_type(fd, CONTROL_EXIT | 7);
}

/* ------------------------------------------------------------------ HTTP */

static int put(int fd, const char *text)
{
    return send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text);
}

static const char ok[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/* 0: this connection has ended */
static int answer(int fd)
{
    if (strcmp(lie, "http-garbage") == 0)
        return put(fd, "\x01\x02 this is not HTTP\r\n\r\n");
    if (strcmp(lie, "http-lengths") == 0)
        return put(fd, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!");
    if (strcmp(lie, "http-huge-head") == 0) {
        if (!put(fd, "HTTP/1.1 200 OK\r\n"))
            return 0;
        while (put(fd, "X-Filler: ................................................\r\n"))
            ;
        return 0;
    }
    if (strcmp(lie, "http-flood") == 0) { /* as many answers as there is room for */
        while (put(fd, "HTTP/1.1 103 Early Hints\r\n\r\n"))
            ;
        return 0;
    }
    if (strcmp(lie, "http-nobody") == 0) /* one answer to the question, a hundred to nobody */
        for (int i = 0; i < 100; i++)
            if (!put(fd, ok))
                return 0;
    if (strcmp(lie, "http-drip") == 0) {
        for (const char *p = ok; *p; p++) {
            if (send(fd, p, 1, MSG_NOSIGNAL) != 1)
                return 0;
            (void)sleep(1);
        }
        return 1;
    }
    return put(fd, ok);
}

static void *serve(void *arg)
{
    int fd = *(int *)arg;
    char head[65536];
    size_t have = 0;
    free(arg);
    for (;;) {
        ssize_t n = recv(fd, head + have, sizeof head - 1 - have, 0);
        if (n <= 0)
            break;
        have += (size_t)n;
        head[have] = '\0';
        if (!strstr(head, "\r\n\r\n"))
            continue;
        have = 0;
        if (!answer(fd))
            break;
    }
    (void)close(fd);
    return NULL;
}

static void *listen_to_clients(void *arg)
{
    (void)arg;
    if (strcmp(lie, "http-deaf") == 0) {
        (void)listen(AGENT_HTTP_FD, 0); /* a queue of one, and nobody is ever let in */
        return NULL;
    }
    for (;;) {
        pthread_t thread;
        int *fd = malloc(sizeof *fd);
        if (!fd || (*fd = accept(AGENT_HTTP_FD, NULL, NULL)) < 0) {
            free(fd);
            (void)usleep(1000);
            continue;
        }
        if (pthread_create(&thread, NULL, serve, fd) == 0)
            (void)pthread_detach(thread);
    }
}

int main(void)
{
    (void)fcntl(AGENT_HTTP_FD, F_SETFL, 0);
    (void)fcntl(AGENT_CONTROL_FD, F_SETFL, 0);
    int keeper = accept(AGENT_CONTROL_FD, NULL, NULL);
    if (keeper < 0)
        return 1;
    say_type(keeper, CONTROL_BOOTED); /* the first word, which the keeper waits for */
    learn(keeper);
    pthread_t thread;
    if (pthread_create(&thread, NULL, listen_to_clients, NULL) != 0)
        return 1;
    lie_to_the_keeper(keeper);
    for (;;)
        pause();
}
