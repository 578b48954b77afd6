/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/byte_tunnel.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

struct scene {
    struct loop *loop;
    struct byte_tunnel *tunnel;
    int ends[2]; /* ours */
    int done;
};

static void tunnel_done(void *arg)
{
    struct scene *s = arg;
    s->tunnel = NULL;
    s->done++;
}

static void scene_begin(struct scene *s, const char *first0, const char *first1)
{
    struct error e;
    int a[2], b[2];
    struct buf firsts[2] = {BUF_INIT(1024), BUF_INIT(1024)};
    *s = (struct scene){0};
    CHECK_INT(loop_new(&s->loop, &e), 0);
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, a), 0);
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, b), 0);
    CHECK_INT(buf_puts(&firsts[0], first0), 0);
    CHECK_INT(buf_puts(&firsts[1], first1), 0);
    struct byte_tunnel_config config = {
        .loop = s->loop, .fds = {a[1], b[1]}, .firsts = firsts, .done = tunnel_done, .arg = s};
    s->ends[0] = a[0];
    s->ends[1] = b[0];
    s->tunnel = byte_tunnel_new(&config);
    CHECK(s->tunnel != NULL);
}

static void scene_end(struct scene *s)
{
    byte_tunnel_free(s->tunnel);
    loop_free(s->loop);
    close_fd(&s->ends[0]);
    close_fd(&s->ends[1]);
}

static void run(struct scene *s)
{
    for (int i = 0; i < 100 && loop_step(s->loop, 0) > 0; i++)
        ;
}

static void expect(int fd, const char *text)
{
    char got[256];
    ssize_t n = recv(fd, got, sizeof got - 1, 0);
    got[n > 0 ? n : 0] = '\0';
    CHECK_STREQ(got, text);
}

TEST(byte_tunnel_passes_both_ways_after_the_first_bytes)
{
    struct scene s;
    scene_begin(&s, "to a ", "to b ");
    CHECK_INT(send(s.ends[0], "from a", 6, 0), 6);
    CHECK_INT(send(s.ends[1], "from b", 6, 0), 6);
    run(&s);
    expect(s.ends[0], "to a from b");
    expect(s.ends[1], "to b from a");
    scene_end(&s);
}

TEST(byte_tunnel_half_close)
{
    struct scene s;
    char c;
    scene_begin(&s, "", "");
    CHECK_INT(send(s.ends[0], "last", 4, 0), 4);
    CHECK_INT(shutdown(s.ends[0], SHUT_WR), 0);
    run(&s);
    expect(s.ends[1], "last");
    CHECK_INT(recv(s.ends[1], &c, 1, 0), 0);
    CHECK_INT(s.done, 0);
    CHECK_INT(send(s.ends[1], "answer", 6, 0), 6); /* the other direction goes on */
    run(&s);
    expect(s.ends[0], "answer");
    CHECK_INT(shutdown(s.ends[1], SHUT_WR), 0);
    run(&s);
    CHECK_INT(s.done, 1);
    CHECK_INT(recv(s.ends[0], &c, 1, 0), 0);
    scene_end(&s);
}

TEST(byte_tunnel_slow_reader_stops_the_writer)
{
    static char piece[64 * 1024];
    struct scene s;
    size_t sent = 0, got = 0;
    scene_begin(&s, "", "");
    memset(piece, 'x', sizeof piece);
    for (int i = 0; i < 1000; i++) {
        ssize_t n = send(s.ends[0], piece, sizeof piece, 0);
        run(&s);
        if (n < 0)
            break;
        sent += (size_t)n;
    }
    CHECK(sent < (size_t)8 << 20); /* the sockets' own queues and one piece */
    CHECK_INT(send(s.ends[1], "other way", 9, 0), 9);
    run(&s);
    expect(s.ends[0], "other way");
    CHECK_INT(shutdown(s.ends[0], SHUT_WR), 0);
    for (ssize_t n; got < sent && (n = recv(s.ends[1], piece, sizeof piece, 0)) != 0;) {
        got += n > 0 ? (size_t)n : 0;
        run(&s);
    }
    CHECK_INT(got, sent);
    run(&s);
    CHECK_INT(recv(s.ends[1], piece, 1, 0), 0); /* the end comes behind everything */
    scene_end(&s);
}

TEST(byte_tunnel_ends_when_nobody_takes_what_waits)
{
    static char piece[1 << 20];
    struct scene s;
    scene_begin(&s, "", "");
    for (int i = 0; i < 16; i++) {
        (void)send(s.ends[0], piece, sizeof piece, 0);
        run(&s);
    }
    close_fd(&s.ends[1]);
    run(&s);
    CHECK_INT(s.done, 1);
    scene_end(&s);
}

/* More than one event may take, and the end behind it, all there before the tunnel looks for the first time.
 */
TEST(byte_tunnel_much_at_once_and_the_end_behind_it)
{
    enum { N = 100 * 1000 };
    struct scene s;
    static char sent[N], got[N];
    size_t there = 0, n = 0;
    scene_begin(&s, "", "");
    for (size_t i = 0; i < N; i++)
        sent[i] = (char)(i * 7 + i / 251);
    while (there < N) {
        ssize_t r = send(s.ends[0], sent + there, N - there, 0);
        if (r <= 0)
            break;
        there += (size_t)r;
    }
    CHECK(there > 64 * 1024);
    CHECK_INT(shutdown(s.ends[0], SHUT_WR), 0);
    bool end = false;
    for (int i = 0; i < 1000 && !end; i++) {
        run(&s);
        ssize_t r = recv(s.ends[1], got + n, MIN(sizeof got - n, (size_t)10000), 0);
        end = r == 0;
        n += (size_t)MAX(r, (ssize_t)0);
    }
    CHECK(end);
    CHECK_INT(n, there);
    CHECK(memcmp(got, sent, n) == 0);
    scene_end(&s);
}
