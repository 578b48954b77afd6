/* SPDX-License-Identifier: Apache-2.0 */
/* test_outq.c: bytes on their way to a socket: order, refusals, files, departures. */
#include "test.h"
#include "net/outq.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>

static int ends[2];
static struct outq q;

static bool begin(void)
{
    outq_init(&q);
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0;
}

static void finish(void)
{
    outq_done(&q);
    close_fd(&ends[0]);
    close_fd(&ends[1]);
}

static struct iovec text(const char *s)
{
    return (struct iovec){(void *)s, strlen(s)};
}

static int file_with(const char *content)
{
    char name[] = "/tmp/outq-test-XXXXXX";
    int fd = mkostemp(name, O_CLOEXEC);
    (void)unlink(name);
    return fd >= 0 && write(fd, content, strlen(content)) == (ssize_t)strlen(content) ? fd : -1;
}

/* What the other end has received, up to 255 bytes. */
static const char *received(void)
{
    static char buffer[256];
    ssize_t n = recv(ends[1], buffer, sizeof buffer - 1, MSG_DONTWAIT);
    buffer[MAX(n, (ssize_t)0)] = '\0';
    return buffer;
}

TEST(outq_sends_at_once)
{
    REQUIRE(begin());
    struct iovec iov[] = {text("one "), text(""), text("two")};
    CHECK_INT(outq_send(&q, ends[0], iov, 3), 0);
    CHECK(outq_empty(&q));
    CHECK_STREQ(received(), "one two");
    CHECK(q.first.base == NULL); /* and keeps no memory */
    finish();
}

TEST(outq_put_waits_for_the_next_send)
{
    REQUIRE(begin());
    struct iovec a = text("a"), b = text("b");
    CHECK_INT(outq_put(&q, &a, 1), 0);
    CHECK_INT(outq_len(&q), 1);
    CHECK_STREQ(received(), "");
    CHECK_INT(outq_send(&q, ends[0], &b, 1), 0);
    CHECK_STREQ(received(), "ab");
    finish();
}

TEST(outq_keeps_what_the_socket_refuses)
{
    REQUIRE(begin());
    enum { N = 3000000 };
    static char big[N], got[N + 10];
    for (size_t i = 0; i < N; i++)
        big[i] = (char)(i * 31 + i / 777);
    struct iovec iov[] = {{big, 10}, {big + 10, N - 10}}, last = text("end");
    CHECK_INT(outq_send(&q, ends[0], iov, 2), 0);
    CHECK(q.blocked);
    CHECK(outq_len(&q) > 0 && outq_len(&q) < N);
    uint64_t before = outq_len(&q);
    CHECK_INT(outq_send(&q, ends[0], &last, 1), 0); /* does not overtake */
    CHECK_INT(outq_len(&q), before + 3);
    size_t n = 0;
    while (n < N + 3) {
        ssize_t r = recv(ends[1], got + n, sizeof got - n, MSG_DONTWAIT);
        if (r > 0)
            n += (size_t)r;
        REQUIRE(r != 0);
        CHECK_INT(outq_flush(&q, ends[0]), 0);
    }
    CHECK(memcmp(got, big, N) == 0);
    CHECK(memcmp(got + N, "end", 3) == 0);
    CHECK(outq_empty(&q));
    finish();
}

TEST(outq_file_between_bytes)
{
    REQUIRE(begin());
    struct iovec a = text("<"), b = text(">"), c = text("!");
    CHECK_INT(outq_put(&q, &a, 1), 0);
    CHECK_INT(outq_put_file(&q, file_with("0123456789"), 2, 5), 0);
    CHECK_INT(outq_put(&q, &b, 1), 0);
    CHECK_INT(outq_send(&q, ends[0], &c, 1), 0); /* waits for the file, too */
    CHECK_INT(outq_len(&q), 8);
    CHECK_INT(outq_put_file(&q, file_with("x"), 0, 1), -EBUSY);
    CHECK_INT(outq_flush(&q, ends[0]), 0);
    CHECK(outq_empty(&q));
    CHECK_INT(q.file_fd, -1);
    CHECK_STREQ(received(), "<23456>!");
    CHECK_INT(outq_put_file(&q, file_with("x"), 0, 0), 0); /* nothing to send of it */
    CHECK(outq_empty(&q));
    finish();
}

TEST(outq_file_that_sendfile_cannot_read)
{
    REQUIRE(begin());
    /* a pipe-like pseudo file: read by pread only */
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0);
    CHECK_INT(outq_put_file(&q, fd, 0, 5), 0);
    CHECK_INT(outq_flush(&q, ends[0]), 0);
    CHECK_STREQ(received(), "Name:");
    finish();
}

TEST(outq_file_shorter_than_promised)
{
    REQUIRE(begin());
    CHECK_INT(outq_put_file(&q, file_with("abc"), 0, 4), 0);
    CHECK_INT(outq_flush(&q, ends[0]), -ENODATA);
    finish();
}

TEST(outq_file_larger_than_the_socket)
{
    REQUIRE(begin());
    enum { N = 2000000 };
    int fd = file_with("");
    REQUIRE(fd >= 0 && ftruncate(fd, N) == 0);
    struct iovec last = text("end");
    CHECK_INT(outq_put_file(&q, fd, 0, N), 0);
    CHECK_INT(outq_put(&q, &last, 1), 0);
    size_t n = 0;
    static char got[N + 10];
    for (int i = 0; i < 10000 && n < N + 3; i++) {
        CHECK_INT(outq_flush(&q, ends[0]), 0);
        ssize_t r = recv(ends[1], got + n, sizeof got - n, MSG_DONTWAIT);
        n += (size_t)MAX(r, (ssize_t)0);
    }
    CHECK_INT(n, N + 3);
    CHECK(memcmp(got + N, "end", 3) == 0);
    finish();
}

TEST(outq_departed_reader_is_an_error_and_no_signal)
{
    REQUIRE(begin());
    struct iovec a = text("a");
    close_fd(&ends[1]);
    CHECK_INT(outq_send(&q, ends[0], &a, 1), -EPIPE);
    finish();
    REQUIRE(begin());
    CHECK_INT(outq_put_file(&q, file_with("abc"), 0, 3), 0);
    close_fd(&ends[1]);
    CHECK_INT(outq_flush(&q, ends[0]), -EPIPE); /* sendfile raises SIGPIPE, which must not get through */
    finish();
}

TEST(outq_one_flush_is_bounded_and_says_so)
{
    enum { N = 4 << 20 };
    auto_close int out = open("/dev/null", O_WRONLY | O_CLOEXEC);
    REQUIRE(begin());
    struct iovec a = text("a");
    CHECK_INT(outq_put(&q, &a, 1), 0);
    CHECK_INT(outq_flush(&q, ends[0]), 0);
    CHECK(!q.blocked && !q.spent);
    /* a reader that always takes more: only the bound ends the flush */
    int fd = file_with("");
    REQUIRE(out >= 0 && fd >= 0 && ftruncate(fd, N) == 0);
    CHECK_INT(outq_put_file(&q, fd, 0, N), 0);
    CHECK_INT(outq_flush(&q, out), 0);
    CHECK(q.blocked && q.spent && !outq_empty(&q));
    for (int i = 0; i < 100 && !outq_empty(&q); i++)
        CHECK_INT(outq_flush(&q, out), 0);
    CHECK(outq_empty(&q) && !q.blocked && !q.spent);
    /* one that takes nothing: the descriptor tells when that changes */
    fd = file_with("");
    REQUIRE(fd >= 0 && ftruncate(fd, N) == 0);
    CHECK_INT(outq_put_file(&q, fd, 0, N), 0);
    for (int i = 0; i < 100 && (!q.blocked || q.spent); i++)
        CHECK_INT(outq_flush(&q, ends[0]), 0);
    CHECK(q.blocked && !q.spent);
    finish();
}
