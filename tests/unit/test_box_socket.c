/* SPDX-License-Identifier: Apache-2.0 */
/* test_box_socket.c: sockets inside another network namespace, and the one rule inside a sidecar's. */
#include "keeper/box_socket.h"
#include "keeper/netlink.h"
#include "keeper/nft_redirect.h"
#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netfilter_ipv4.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { PATIENCE_MS = 60000 };

static uint16_t catcher; /* a port that nobody has on the host */

static void choose_port(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof any;
    auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(fd, (struct sockaddr *)&any, len) == 0 && getsockname(fd, (struct sockaddr *)&any, &len) == 0);
    catcher = ntohs(any.sin_port);
}

/* A process in a network namespace of its own, as the sandbox of a sidecar. It connects to `to` for every
 * byte that comes, says 'y' or 'n', and then what the other side sends. */
struct fake {
    struct sandbox sb;
    int line; /* to it */
};

static void inside(int line)
{
    unsigned lo = if_nametoindex("lo");
    if (nl_link_up(lo) < 0 || nl_local_route_add(lo) < 0 || nft_redirect_add(catcher) < 0) {
        (void)!write(line, "e", 1);
        _exit(1);
    }
    (void)!write(line, "r", 1);
    for (struct sockaddr_in to; read(line, &to, sizeof to) == (ssize_t)sizeof to;) {
        auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        char c = 'n';
        if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 && read(fd, &c, 1) != 1)
            c = 'y';
        (void)!write(line, &c, 1);
    }
    _exit(0);
}

static int heard(const struct fake *f)
{
    struct pollfd p = {.fd = f->line, .events = POLLIN};
    char c;
    return poll(&p, 1, PATIENCE_MS) == 1 && read(f->line, &c, 1) == 1 ? c : -1;
}

static bool fake_start(struct fake *f)
{
    int pair[2];
    *f = (struct fake){.line = -1, .sb.pidfd = -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return false;
    choose_port();
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(pair[0]);
        if (unshare(CLONE_NEWNET) < 0)
            _exit(1);
        inside(pair[1]);
    }
    (void)close(pair[1]);
    f->line = pair[0];
    f->sb.pid = pid;
    f->sb.pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    return f->sb.pidfd >= 0 && heard(f) == 'r';
}

static void fake_stop(struct fake *f)
{
    close_fd(&f->line);
    if (f->sb.pid > 0) {
        (void)kill(f->sb.pid, SIGKILL);
        (void)waitpid(f->sb.pid, NULL, 0);
    }
    close_fd(&f->sb.pidfd);
}

static struct keeper_request ask(uint32_t kind, uint32_t address, uint32_t port)
{
    return (struct keeper_request){.type = KEEPER_SOCKET,
                                   .socket = {.kind = kind, .address = address, .port = port}};
}

static int make(struct fake *f, uint32_t kind, uint32_t address, uint32_t port, int *ret_fd)
{
    struct keeper_request q = ask(kind, address, port);
    struct error e = {0};
    *ret_fd = -1;
    return box_socket_make(&q, f ? &f->sb : NULL, NULL, NULL, 0, ret_fd, &e);
}

static bool can_connect_here(int port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return connect(fd, (struct sockaddr *)&to, sizeof to) == 0;
}

static int accept_soon(int listener)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};
    return poll(&p, 1, PATIENCE_MS) == 1 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
}

TEST(a_listener_lies_inside_and_catches_everything)
{
    struct fake f;
    auto_close int listener = -1;
    if (!fake_start(&f)) {
        fake_stop(&f);
        test_skip("no network namespaces, or no packet filter with nat");
        return;
    }
    CHECK_INT(make(&f, KEEPER_SOCKET_LISTEN, KEEPER_ADDRESS_LOOPBACK, catcher, &listener), 0);
    CHECK(!can_connect_here(catcher));
    CHECK_INT(fcntl(listener, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    CHECK_INT(fcntl(listener, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    int twice;
    CHECK_INT(make(&f, KEEPER_SOCKET_LISTEN, KEEPER_ADDRESS_ANY, catcher, &twice), -EADDRINUSE);

    static const char *const places[] = {"93.184.216.34", "10.0.0.1", "169.254.169.254", "8.8.8.8"};
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(443)}, meant;
        socklen_t len = sizeof meant;
        (void)inet_pton(AF_INET, places[i], &to.sin_addr);
        REQUIRE(write(f.line, &to, sizeof to) == (ssize_t)sizeof to);
        auto_close int conn = accept_soon(listener);
        REQUIRE(conn >= 0);
        CHECK_INT(getsockopt(conn, IPPROTO_IP, SO_ORIGINAL_DST, &meant, &len), 0);
        CHECK(meant.sin_addr.s_addr == to.sin_addr.s_addr && meant.sin_port == to.sin_port);
        CHECK(write(conn, "h", 1) == 1);
        CHECK_INT(heard(&f), 'h');
    }
    /* what is really local stays local: nobody listens there */
    struct sockaddr_in here = {
        .sin_family = AF_INET, .sin_port = htons(443), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    REQUIRE(write(f.line, &here, sizeof here) == (ssize_t)sizeof here);
    CHECK_INT(heard(&f), 'n');
    fake_stop(&f);
}

TEST(a_udp_socket_lies_inside)
{
    struct fake f;
    auto_close int udp = -1;
    auto_close int again = -1;
    int on = 0;
    socklen_t len = sizeof on;
    if (!fake_start(&f)) {
        fake_stop(&f);
        test_skip("no network namespaces, or no packet filter with nat");
        return;
    }
    CHECK_INT(make(&f, KEEPER_SOCKET_UDP, KEEPER_ADDRESS_ANY, 53, &udp), 0);
    CHECK_INT(getsockopt(udp, IPPROTO_IP, IP_PKTINFO, &on, &len), 0);
    CHECK_INT(on, 1);
    CHECK_INT(make(&f, KEEPER_SOCKET_UDP, KEEPER_ADDRESS_ANY, 53, &again), -EADDRINUSE);
    fake_stop(&f);
}

TEST(sockets_that_are_refused)
{
    struct fake f = {.sb.pidfd = -1, .line = -1};
    int fd;
    CHECK_INT(make(NULL, KEEPER_SOCKET_LISTEN, KEEPER_ADDRESS_ANY, 53, &fd), -ENOENT);
    CHECK_INT(make(NULL, KEEPER_SOCKET_DIAL, 0, 53, &fd), -ENOENT);
    CHECK_INT(make(&f, KEEPER_SOCKET_DIAL, 0, 53, &fd), -EPERM);                    /* not a sidecar's */
    CHECK_INT(make(&f, KEEPER_SOCKET_LISTEN, KEEPER_ADDRESS_ANY, 53, &fd), -EBADF); /* it is gone */
    CHECK_INT(fd, -1);
}

TEST(sockets_on_the_host)
{
    struct fake f = {.sb = {.pidfd = -1, .spec.sidecar = true}, .line = -1};
    auto_close int listener = -1;
    auto_close int dialed = -1;
    struct sockaddr_in bound = {0};
    socklen_t len = sizeof bound;
    REQUIRE(make(NULL, KEEPER_SOCKET_PUBLISH, 0, 0, &listener) == 0);
    REQUIRE(getsockname(listener, (struct sockaddr *)&bound, &len) == 0);
    CHECK(bound.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    CHECK_INT(make(&f, KEEPER_SOCKET_DIAL, 0, ntohs(bound.sin_port), &dialed), 0);
    auto_close int conn = accept_soon(listener);
    CHECK(conn >= 0);
}

TEST(resolvers_of_the_settings)
{
    struct fake f = {.sb.pidfd = -1, .line = -1};
    const uint32_t resolvers[] = {htonl(INADDR_LOOPBACK)};
    struct keeper_request q = ask(KEEPER_SOCKET_RESOLVE_UDP, 0, 0);
    struct sockaddr_in peer = {0};
    socklen_t len = sizeof peer;
    struct error e = {0};
    auto_close int fd = -1;
    REQUIRE(box_socket_make(&q, &f.sb, NULL, resolvers, 1, &fd, &e) == 0);
    REQUIRE(getpeername(fd, (struct sockaddr *)&peer, &len) == 0);
    CHECK(peer.sin_addr.s_addr == resolvers[0] && peer.sin_port == htons(53));
    q.socket.port = 1;
    CHECK_INT(box_socket_make(&q, &f.sb, NULL, resolvers, 1, &fd, &e), -ENOENT);
}
