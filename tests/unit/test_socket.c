/* SPDX-License-Identifier: Apache-2.0 */
/* test_socket.c: listening and connecting by name, descriptors over unix sockets. */
#include "test.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>

static char dir[64], path[96];

static bool make_dir(void)
{
    (void)snprintf(dir, sizeof dir, "/tmp/socket-test-XXXXXX");
    if (!mkdtemp(dir))
        return false;
    (void)snprintf(path, sizeof path, "%s/s", dir);
    return true;
}

static void remove_dir(void)
{
    (void)unlink(path);
    (void)rmdir(dir);
}

TEST(socket_tcp_round_trip)
{
    struct error e;
    char name[64], host[64];
    auto_close int listener = -1;
    auto_close int a = -1;
    REQUIRE(socket_listen_tcp("127.0.0.1:0", &listener, &e) == 0);
    REQUIRE(socket_local_name(listener, name, sizeof name) == 0);
    CHECK(strncmp(name, "127.0.0.1:", 10) == 0);
    CHECK(strcmp(name, "127.0.0.1:0") != 0);
    CHECK(socket_is_loopback(listener));
    CHECK(fcntl(listener, F_GETFL) & O_NONBLOCK);
    CHECK(fcntl(listener, F_GETFD) & FD_CLOEXEC);
    (void)snprintf(host, sizeof host, "%s", name);
    host[9] = '\0';
    REQUIRE(socket_connect_tcp(host, name + 10, 5000, &a, &e) == 0);
    CHECK(fcntl(a, F_GETFD) & FD_CLOEXEC);
    auto_close int b = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(b >= 0);
    CHECK_INT(send(a, "x", 1, MSG_NOSIGNAL), 1);
    char c;
    CHECK_INT(recv(b, &c, 1, 0), 1);
    CHECK_INT(socket_local_name(listener, name, 5), -ENOBUFS);
}

TEST(socket_tcp_v6)
{
    struct error e;
    char name[64];
    auto_close int listener = -1;
    auto_close int a = -1;
    if (socket_listen_tcp("[::1]:0", &listener, &e) < 0) {
        test_skip("no IPv6 here");
        return;
    }
    REQUIRE(socket_local_name(listener, name, sizeof name) == 0);
    CHECK(strncmp(name, "[::1]:", 6) == 0);
    CHECK(socket_is_loopback(listener));
    CHECK_INT(socket_connect_tcp("[::1]", name + 6, 5000, &a, &e), 0);
}

TEST(socket_tcp_addresses)
{
    static const char *const bad[] = {
        "",           "127.0.0.1",   "127.0.0.1:",  "127.0.0.1:65536", "127.0.0.1:-1",
        ":80",        "localhost:1", "::1:80",      "[::1:80",         "[127.0.0.1]:80",
        "1.2.3:80",   "[]:80",       "127.0.0.1:x", "127.0.0.1:80 ",   "127.0.0.1:000080",
        "1.2.3.4.5:1"};
    struct error e;
    int fd = -1;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CHECK_INT(socket_listen_tcp(bad[i], &fd, &e), -EINVAL);
        CHECK_INT(fd, -1);
        CHECK(strstr(e.msg, "127.0.0.1:8787"));
    }
    auto_close int any = -1;
    REQUIRE(socket_listen_tcp("0.0.0.0:0", &any, &e) == 0);
    CHECK(!socket_is_loopback(any));
}

TEST(socket_tcp_refused)
{
    struct error e;
    char name[64];
    int fd = -1;
    REQUIRE(socket_listen_tcp("127.0.0.1:0", &fd, &e) == 0);
    CHECK_INT(socket_local_name(fd, name, sizeof name), 0);
    (void)close(fd);
    fd = -1;
    CHECK_INT(socket_connect_tcp("127.0.0.1", name + 10, 5000, &fd, &e), -ECONNREFUSED);
    CHECK_INT(fd, -1);
    CHECK(strstr(e.msg, name));
}

TEST(socket_unix_listens_with_mode_0600)
{
    struct error e;
    struct stat st;
    auto_close int listener = -1;
    auto_close int a = -1;
    REQUIRE(make_dir());
    mode_t old = umask(0);
    CHECK_INT(socket_listen_unix(path, SOCK_STREAM, &listener, &e), 0);
    (void)umask(old);
    CHECK_INT(stat(path, &st), 0);
    CHECK_INT(st.st_mode & 07777, 0600);
    CHECK(socket_is_loopback(listener));
    CHECK_INT(socket_connect_unix(path, SOCK_STREAM, &a, &e), 0);
    CHECK(fcntl(a, F_GETFL) & O_NONBLOCK);
    char name[108];
    CHECK_INT(socket_local_name(listener, name, sizeof name), 0);
    CHECK_STREQ(name, path);
    remove_dir();
}

TEST(socket_unix_replaces_only_what_nobody_listens_on)
{
    struct error e;
    int first = -1, second = -1;
    REQUIRE(make_dir());
    CHECK_INT(socket_listen_unix(path, SOCK_SEQPACKET, &first, &e), 0);
    CHECK_INT(socket_listen_unix(path, SOCK_SEQPACKET, &second, &e), -EADDRINUSE);
    CHECK_INT(socket_listen_unix(path, SOCK_STREAM, &second, &e), -EADDRINUSE);
    (void)close(first);
    CHECK_INT(socket_connect_unix(path, SOCK_SEQPACKET, &second, &e), -ECONNREFUSED);
    CHECK_INT(socket_listen_unix(path, SOCK_SEQPACKET, &second, &e), 0);
    (void)close(second);
    (void)unlink(path);
    /* a file that is no socket stays */
    int file = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(file >= 0);
    (void)close(file);
    CHECK_INT(socket_listen_unix(path, SOCK_STREAM, &second, &e), -EADDRINUSE);
    CHECK_INT(access(path, F_OK), 0);
    remove_dir();
}

/* AGT-06: who owns the listener can make its queue as short as he likes, and let nobody in */
TEST(socket_unix_connect_never_waits)
{
    struct error e;
    auto_close int listener = -1, first = -1, second = -1;
    REQUIRE(make_dir());
    REQUIRE(socket_listen_unix(path, SOCK_STREAM, &listener, &e) == 0);
    REQUIRE(listen(listener, 0) == 0);
    CHECK_INT(socket_connect_unix(path, SOCK_STREAM, &first, &e), 0);
    CHECK(fcntl(first, F_GETFL) & O_NONBLOCK);
    CHECK_INT(socket_connect_unix(path, SOCK_STREAM, &second, &e), -EAGAIN);
    remove_dir();
}

TEST(socket_unix_path_length)
{
    struct error e;
    char longer[200];
    int fd = -1;
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    CHECK_INT(socket_listen_unix(longer, SOCK_STREAM, &fd, &e), -ENAMETOOLONG);
    CHECK_INT(socket_connect_unix("", SOCK_STREAM, &fd, &e), -ENAMETOOLONG);
}

/* ------------------------------------------------------------------ descriptors */

static size_t open_descriptors(void)
{
    size_t n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static bool pair(int type, int fds[2])
{
    return socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) == 0;
}

TEST(socket_passes_a_descriptor)
{
    int s[2], got = -2;
    char data[8];
    REQUIRE(pair(SOCK_SEQPACKET, s));
    CHECK_INT(socket_send_fd(s[0], "ab", 2, s[0]), 2);
    CHECK_INT(socket_recv_fd(s[1], data, sizeof data, &got), 2);
    CHECK(got >= 0 && got != s[0]);
    CHECK(fcntl(got, F_GETFD) & FD_CLOEXEC);
    (void)close(got);
    CHECK_INT(socket_send_fd(s[0], "abc", 3, -1), 3);
    CHECK_INT(socket_recv_fd(s[1], data, sizeof data, &got), 3);
    CHECK_INT(got, -1);
    (void)close(s[0]);
    CHECK_INT(socket_recv_fd(s[1], data, sizeof data, &got), 0);
    CHECK_INT(socket_send_fd(s[1], "x", 1, -1), -EPIPE); /* and no signal */
    (void)close(s[1]);
}

/* Sends `count` descriptors, in one message. */
static void send_many(int sock, int fd, size_t count)
{
    union {
        char space[CMSG_SPACE(16 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {(void *)"x", 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr *cm = CMSG_FIRSTHDR(&msg);
    cm->cmsg_level = SOL_SOCKET;
    cm->cmsg_type = SCM_RIGHTS;
    cm->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (size_t i = 0; i < count; i++)
        memcpy(CMSG_DATA(cm) + i * sizeof(int), &fd, sizeof fd);
    CHECK_INT(sendmsg(sock, &msg, MSG_NOSIGNAL), 1);
}

TEST(socket_refuses_more_than_one_descriptor)
{
    int s[2], got;
    char data[8];
    REQUIRE(pair(SOCK_SEQPACKET, s));
    size_t before = open_descriptors();
    for (size_t count = 2; count <= 16; count += 7) {
        send_many(s[0], s[0], count);
        CHECK_INT(socket_recv_fd(s[1], data, sizeof data, &got), -EBADMSG);
        CHECK_INT(got, -1);
        CHECK_INT(open_descriptors(), before);
    }
    (void)close(s[0]);
    (void)close(s[1]);
}

TEST(socket_refuses_a_truncated_message)
{
    int s[2], got;
    char data[4];
    REQUIRE(pair(SOCK_SEQPACKET, s));
    size_t before = open_descriptors();
    CHECK_INT(socket_send_fd(s[0], "abcdefgh", 8, s[0]), 8);
    CHECK_INT(socket_recv_fd(s[1], data, sizeof data, &got), -EMSGSIZE);
    CHECK_INT(got, -1);
    CHECK_INT(open_descriptors(), before);
    (void)close(s[0]);
    (void)close(s[1]);
}

TEST(socket_ignores_credentials)
{
    int s[2], got;
    char data[4];
    REQUIRE(pair(SOCK_SEQPACKET, s));
    CHECK_INT(setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int)), 0);
    CHECK_INT(socket_send_fd(s[0], "a", 1, s[0]), 1);
    CHECK_INT(socket_recv_fd(s[1], data, sizeof data, &got), 1);
    CHECK(got >= 0);
    (void)close(got);
    (void)close(s[0]);
    (void)close(s[1]);
}
