/* SPDX-License-Identifier: Apache-2.0 */
/* socket.c: see socket.h. */
#include "net/socket.h"
#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

enum { BACKLOG = 4096, FDS_MAX = 4 };

/* ------------------------------------------------------------------ TCP */

static int parse_port(const char *s)
{
    int port = 0;
    if (!*s || strlen(s) > 5)
        return -1;
    for (; *s; s++) {
        if (*s < '0' || *s > '9')
            return -1;
        port = port * 10 + (*s - '0');
    }
    return port <= 65535 ? port : -1;
}

static int parse_address(const char *address, struct sockaddr_storage *ss, socklen_t *ret_len,
                         struct error *reterr)
{
    struct sockaddr_in *in = (struct sockaddr_in *)ss;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;
    char host[INET6_ADDRSTRLEN + 1];
    const char *colon = strrchr(address, ':');
    int port = colon ? parse_port(colon + 1) : -1;
    size_t n = colon ? (size_t)(colon - address) : 0;
    bool bracketed = n > 2 && address[0] == '[' && address[n - 1] == ']';

    if (port < 0 || n == 0 || n - (bracketed ? 2 : 0) >= sizeof host)
        return error_set(reterr, EINVAL, "'%s' is not an address such as 127.0.0.1:8787 or [::1]:8787",
                         address);
    memcpy(host, address + bracketed, n - (bracketed ? 2 : 0));
    host[n - (bracketed ? 2 : 0)] = '\0';
    memset(ss, 0, sizeof *ss);
    if (!bracketed && inet_pton(AF_INET, host, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        in->sin_port = htons((uint16_t)port);
        *ret_len = sizeof *in;
        return 0;
    }
    if (bracketed && inet_pton(AF_INET6, host, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons((uint16_t)port);
        *ret_len = sizeof *in6;
        return 0;
    }
    return error_set(reterr, EINVAL, "'%s' is not an address such as 127.0.0.1:8787 or [::1]:8787", address);
}

int socket_listen_tcp(const char *address, int *ret_fd, struct error *reterr)
{
    struct sockaddr_storage ss;
    socklen_t len = 0;
    int r = parse_address(address, &ss, &len, reterr);
    if (r < 0)
        return r;
    auto_close int fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_sys(reterr, errno, "listen on %s", address);
    /* a restarted server must not wait for its old connections to expire */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) < 0)
        return error_sys(reterr, errno, "listen on %s", address);
    /* [::] means IPv6 on every host, whatever its sysctl says */
    if (ss.ss_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){1}, sizeof(int)) < 0)
        return error_sys(reterr, errno, "listen on %s", address);
    if (bind(fd, (struct sockaddr *)&ss, len) < 0 || listen(fd, BACKLOG) < 0)
        return error_sys(reterr, errno, "listen on %s", address);
    *ret_fd = take_fd(fd);
    return 0;
}

int poll_patiently(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    int64_t deadline_ms = clock_mono_ms() + timeout_ms;
    for (;;) {
        int64_t left = deadline_ms - clock_mono_ms();
        int r = poll(fds, n, (int)MAX(left, (int64_t)0));
        if (r >= 0 || errno != EINTR)
            return r;
    }
}

/* Waits for a non-blocking connect; 0 or -errno. */
static int connect_wait(int fd, int64_t deadline_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int err = 0;
    socklen_t len = sizeof err;
    int r = poll_patiently(&p, 1, (int)MAX(deadline_ms - clock_mono_ms(), (int64_t)0));
    if (r == 0)
        return -ETIMEDOUT;
    if (r < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
        return -errno;
    return -err;
}

int socket_connect_tcp(const char *host, const char *port, int timeout_ms, int *ret_fd, struct error *reterr)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    char bare[256];
    size_t n = strlen(host);
    int64_t deadline_ms = clock_mono_ms() + timeout_ms;

    if (n > 2 && host[0] == '[' && host[n - 1] == ']' && n - 2 < sizeof bare) { /* as in URLs */
        memcpy(bare, host + 1, n - 2);
        bare[n - 2] = '\0';
        host = bare;
    }
    int g = getaddrinfo(host, port, &hints, &list);
    if (g)
        return error_set(reterr, g == EAI_MEMORY ? ENOMEM : ENOENT, "look up %s: %s", host, gai_strerror(g));
    int err = -ENOENT;
    for (struct addrinfo *a = list; a; a = a->ai_next) {
        auto_close int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            err = -errno;
            continue;
        }
        err = connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : -errno;
        if (err == -EINPROGRESS)
            err = connect_wait(fd, deadline_ms);
        if (err == 0) {
            (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* only slower without */
            *ret_fd = take_fd(fd);
            break;
        }
    }
    freeaddrinfo(list);
    return err == 0 ? 0 : error_sys(reterr, -err, "connect to %s:%s", host, port);
}

/* ------------------------------------------------------------------ unix */

static int unix_address(const char *path, struct sockaddr_un *un, struct error *reterr)
{
    *un = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof un->sun_path)
        return error_set(reterr, ENAMETOOLONG, "a socket path has 1 to %zu bytes: '%s'",
                         sizeof un->sun_path - 1, path);
    memcpy(un->sun_path, path, n);
    return 0;
}

/* Never waits: to a listener whose queue is full it is -EAGAIN. */
static int unix_connect(const struct sockaddr_un *un, int type, int *ret_fd)
{
    auto_close int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)un, sizeof *un) < 0)
        return -errno;
    *ret_fd = take_fd(fd);
    return 0;
}

/* A socket file whose listener has died; anything else stays. */
static bool is_stale(const struct sockaddr_un *un, int type)
{
    struct stat st;
    auto_close int fd = -1;
    return lstat(un->sun_path, &st) == 0 && S_ISSOCK(st.st_mode) &&
           unix_connect(un, type, &fd) == -ECONNREFUSED;
}

int socket_listen_unix(const char *path, int type, int *ret_fd, struct error *reterr)
{
    struct sockaddr_un un;
    int r = unix_address(path, &un, reterr);
    if (r < 0)
        return r;
    auto_close int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_sys(reterr, errno, "listen on %s", path);
    if (fchmod(fd, 0600) <
        0) /* the mode the file is born with: there is no moment at which others may connect */
        return error_sys(reterr, errno, "listen on %s", path);
    r = bind(fd, (struct sockaddr *)&un, sizeof un);
    if (r < 0 && errno == EADDRINUSE) {
        if (!is_stale(&un, type))
            return error_sys(reterr, EADDRINUSE, "listen on %s", path);
        (void)unlink(path); /* bind tells if it is still there */
        r = bind(fd, (struct sockaddr *)&un, sizeof un);
    }
    if (r < 0 || listen(fd, BACKLOG) < 0)
        return error_sys(reterr, errno, "listen on %s", path);
    *ret_fd = take_fd(fd);
    return 0;
}

int socket_listen_patiently(const char *where, int *ret_fd, struct error *reterr)
{
    enum { PATIENCE_MS = 2000, PAUSE_MS = 10 };
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    int64_t deadline_ms = clock_mono_ms() + PATIENCE_MS;
    for (;;) {
        int r = strncmp(where, "unix:", 5) == 0 ? socket_listen_unix(where + 5, SOCK_STREAM, ret_fd, reterr)
                                                : socket_listen_tcp(where, ret_fd, reterr);
        if (r != -EADDRINUSE || clock_mono_ms() >= deadline_ms)
            return r;
        (void)nanosleep(&pause, NULL);
    }
}

int socket_connect_unix(const char *path, int type, int *ret_fd, struct error *reterr)
{
    struct sockaddr_un un;
    int r = unix_address(path, &un, reterr);
    if (r < 0)
        return r;
    r = unix_connect(&un, type, ret_fd);
    return r < 0 ? error_sys(reterr, -r, "connect to %s", path) : 0;
}

/* ------------------------------------------------------------------ names */

int socket_local_name(int fd, char *out, size_t cap)
{
    struct sockaddr_storage ss = {0};
    socklen_t len = sizeof ss;
    char host[INET6_ADDRSTRLEN];
    int n = -1;

    if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
        return -errno;
    if (ss.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&ss;
        if (inet_ntop(AF_INET, &in->sin_addr, host, sizeof host))
            n = snprintf(out, cap, "%s:%u", host, ntohs(in->sin_port));
    } else if (ss.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&ss;
        if (inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host))
            n = snprintf(out, cap, "[%s]:%u", host, ntohs(in6->sin6_port));
    } else if (ss.ss_family == AF_UNIX) {
        const struct sockaddr_un *un = (const struct sockaddr_un *)&ss;
        n = snprintf(out, cap, "%s", len > offsetof(struct sockaddr_un, sun_path) ? un->sun_path : "unix");
    }
    if (n < 0)
        return -EAFNOSUPPORT;
    return (size_t)n < cap ? 0 : -ENOBUFS;
}

bool socket_is_loopback(int fd)
{
    struct sockaddr_storage ss = {0};
    socklen_t len = sizeof ss;
    if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
        return false;
    if (ss.ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)&ss)->sin_addr.s_addr) >> 24 == 127;
    if (ss.ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)&ss)->sin6_addr);
    return ss.ss_family == AF_UNIX;
}

/* ------------------------------------------------------------------ descriptors */

ssize_t socket_send_fd(int sock, const void *data, size_t n, int fd)
{
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {(void *)data, n};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd >= 0) {
        msg.msg_control = control.space;
        msg.msg_controllen = sizeof control.space;
        struct cmsghdr *cm = CMSG_FIRSTHDR(&msg);
        cm->cmsg_level = SOL_SOCKET;
        cm->cmsg_type = SCM_RIGHTS;
        cm->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(cm), &fd, sizeof fd);
    }
    for (;;) {
        ssize_t sent = sendmsg(sock, &msg, MSG_NOSIGNAL);
        if (sent >= 0)
            return sent;
        if (errno != EINTR)
            return -errno;
    }
}

ssize_t socket_recv_fd(int sock, void *data, size_t n, int *ret_fd)
{
    union {
        /* room for more than one descriptor, to see them, and for credentials, which a socket may have
         * switched on */
        char space[CMSG_SPACE(FDS_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {data, n};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = sizeof control.space};
    ssize_t got;
    int fds[sizeof control.space / sizeof(int)]; /* as many as the kernel can put there: none may leak */
    size_t count = 0;

    *ret_fd = -1;
    do
        got = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    for (struct cmsghdr *cm = CMSG_FIRSTHDR(&msg); cm; cm = CMSG_NXTHDR(&msg, cm)) {
        if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
            continue;
        size_t k = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < k && count < ARRAY_SIZE(fds); i++)
            memcpy(&fds[count++], CMSG_DATA(cm) + i * sizeof(int), sizeof(int));
    }
    if (count == 1 && !(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        *ret_fd = fds[0];
        return got;
    }
    for (size_t i = 0; i < count; i++)
        (void)close(fds[i]);
    if (msg.msg_flags & MSG_TRUNC)
        return -EMSGSIZE;
    return count > 1 || msg.msg_flags & MSG_CTRUNC ? -EBADMSG : got;
}
