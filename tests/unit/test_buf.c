/* SPDX-License-Identifier: Apache-2.0 */
/* test_buf.c: the byte buffer: limits, the gap at the front, and that failures change nothing. */
#include "base/buf.h"
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static bool holds(const struct buf *b, const char *expected)
{
    return buf_len(b) == strlen(expected) && memcmp(buf_data(b), expected, strlen(expected)) == 0;
}

/* True when f(b) ends the process by abort(). */
static bool aborts(void (*f)(struct buf *b), struct buf *b)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        (void)signal(SIGABRT, SIG_DFL);
        f(b);
        _exit(0);
    }
    int status = 0;
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

TEST(buf_appends_in_order)
{
    struct buf b = BUF_INIT(100);
    CHECK_INT(buf_len(&b), 0);
    CHECK_INT(buf_append(&b, "ab\0c", 4), 0);
    CHECK_INT(buf_puts(&b, "de"), 0);
    CHECK_INT(buf_putc(&b, 'f'), 0);
    CHECK_INT(buf_printf(&b, "%d-%s", 7, "x"), 0);
    CHECK_INT(buf_len(&b), 10);
    CHECK(memcmp(buf_data(&b), "ab\0cdef7-x", 10) == 0);
    buf_done(&b);
}

TEST(buf_appending_nothing_is_fine)
{
    struct buf b = BUF_INIT(0);
    CHECK_INT(buf_append(&b, NULL, 0), 0);
    CHECK_INT(buf_puts(&b, ""), 0);
    CHECK_INT(buf_len(&b), 0);
    buf_done(&b);
}

TEST(buf_stops_at_its_limit_and_keeps_its_content)
{
    struct buf b = BUF_INIT(5);
    CHECK_INT(buf_puts(&b, "abc"), 0);
    CHECK_INT(buf_puts(&b, "def"), -ENOBUFS);
    CHECK(holds(&b, "abc"));
    CHECK_INT(buf_printf(&b, "%s", "def"), -ENOBUFS);
    CHECK(!buf_reserve(&b, 3));
    CHECK(holds(&b, "abc"));
    CHECK_INT(buf_puts(&b, "de"), 0);
    CHECK_INT(buf_putc(&b, 'f'), -ENOBUFS);
    CHECK(holds(&b, "abcde"));
    CHECK_INT(buf_append(&b, "x", SIZE_MAX), -ENOBUFS);
    CHECK(holds(&b, "abcde"));
    buf_done(&b);
}

TEST(buf_limit_counts_unread_bytes_only)
{
    struct buf b = BUF_INIT(4);
    for (int i = 0; i < 1000; i++) {
        CHECK_INT(buf_puts(&b, "wxyz"), 0);
        CHECK_INT(buf_putc(&b, '!'), -ENOBUFS);
        buf_consume(&b, 3);
        CHECK_INT(buf_puts(&b, "abc"), 0);
        CHECK(holds(&b, "zabc"));
        buf_consume(&b, 4);
    }
    CHECK_INT(b.cap, 256); /* bytes passed through do not make it grow */
    buf_done(&b);
}

TEST(buf_as_a_queue_keeps_order_and_stays_small)
{
    struct buf b = BUF_INIT(1000);
    unsigned char in = 0, out = 0;
    for (int i = 0; i < 20000; i++) {
        size_t n = (size_t)(i * 7 % 61), m;
        for (size_t k = 0; k < n; k++)
            CHECK_INT(buf_putc(&b, (char)in++), 0);
        m = MIN(buf_len(&b), (size_t)(i * 13 % 59 + 2));
        for (size_t k = 0; k < m; k++)
            CHECK((unsigned char)buf_data(&b)[k] == out++);
        buf_consume(&b, m);
    }
    CHECK(b.cap <= 2048);
    buf_done(&b);
}

TEST(buf_reserve_then_commit_part)
{
    struct buf b = BUF_INIT(1000);
    char *p = buf_reserve(&b, 600);
    REQUIRE(p);
    memset(p, 'r', 600);
    buf_commit(&b, 2);
    CHECK(holds(&b, "rr"));
    p = buf_reserve(&b, 998);
    REQUIRE(p);
    memset(p, 's', 998);
    buf_commit(&b, 998);
    CHECK_INT(buf_len(&b), 1000);
    CHECK(!buf_reserve(&b, 1));
    buf_done(&b);
}

static void commit_too_much(struct buf *b)
{
    buf_commit(b, b->cap - b->end + 1);
}

static void consume_too_much(struct buf *b)
{
    buf_consume(b, buf_len(b) + 1);
}

TEST(buf_refuses_to_overrun)
{
    struct buf b = BUF_INIT(10);
    CHECK_INT(buf_puts(&b, "abc"), 0);
    CHECK(aborts(commit_too_much, &b));
    CHECK(aborts(consume_too_much, &b));
    buf_done(&b);
}

TEST(buf_printf_longer_than_its_stack_buffer)
{
    struct buf b = BUF_INIT(5000);
    CHECK_INT(buf_printf(&b, "<%0511d>", 1), 0);
    CHECK_INT(buf_len(&b), 513);
    CHECK_INT(buf_printf(&b, "[%04000d]", 2), 0);
    CHECK_INT(buf_len(&b), 513 + 4002);
    CHECK(memcmp(buf_data(&b) + 511, "1>[0", 4) == 0);
    CHECK(memcmp(buf_data(&b) + 513 + 4000, "2]", 2) == 0);
    CHECK_INT(buf_printf(&b, "%0600d", 3), -ENOBUFS);
    CHECK_INT(buf_len(&b), 513 + 4002);
    buf_done(&b);
}

TEST(buf_cstr_adds_a_nul_that_does_not_count)
{
    struct buf b = BUF_INIT(256);
    CHECK_STREQ(buf_cstr(&b), "");
    for (int i = 0; i < 256; i++) /* exactly the first allocation, exactly the limit */
        CHECK_INT(buf_putc(&b, 'x'), 0);
    const char *s = buf_cstr(&b);
    REQUIRE(s);
    CHECK_INT(strlen(s), 256);
    CHECK_INT(buf_len(&b), 256);
    CHECK_INT(buf_putc(&b, 'y'), -ENOBUFS);
    buf_consume(&b, 255);
    CHECK_STREQ(buf_cstr(&b), "x");
    buf_done(&b);
}

TEST(buf_is_usable_after_clear_and_done)
{
    struct buf b = BUF_INIT(8);
    CHECK_INT(buf_puts(&b, "12345678"), 0);
    buf_clear(&b);
    CHECK_INT(buf_len(&b), 0);
    CHECK_INT(buf_puts(&b, "abcdefgh"), 0);
    buf_done(&b);
    CHECK_INT(buf_len(&b), 0);
    CHECK_INT(buf_puts(&b, "again"), 0);
    CHECK(holds(&b, "again"));
    CHECK_INT(buf_puts(&b, "more"), -ENOBUFS); /* the limit stays */
    buf_done(&b);
}
