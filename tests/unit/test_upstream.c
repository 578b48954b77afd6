/* SPDX-License-Identifier: Apache-2.0 */
/* test_upstream.c: connections that an agent hands over, and what a lying agent hands over instead. */
#include "gateway/upstream.h"
#include "net/socket.h"
#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* A connected pair of TCP sockets. */
static void tcp_pair(int pair[2])
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof to;
    auto_close int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(bind(listener, (struct sockaddr *)&to, sizeof to), 0);
    CHECK_INT(listen(listener, 1), 0);
    CHECK_INT(getsockname(listener, (struct sockaddr *)&to, &n), 0);
    pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(connect(pair[0], (struct sockaddr *)&to, sizeof to), 0);
    pair[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
}

TEST(upstream_takes_connected_tcp_only)
{
    int pair[2], unix_pair[2], pipes[2];
    tcp_pair(pair);
    CHECK_INT(upstream_check_fd(pair[0]), 0);
    CHECK(fcntl(pair[0], F_GETFL) & O_NONBLOCK);

    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, unix_pair), 0);
    CHECK_INT(pipe2(pipes, O_CLOEXEC), 0);
    auto_close int directory = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_close int poller = epoll_create1(EPOLL_CLOEXEC);
    auto_close int datagrams = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    auto_close int lonely = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto_close int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(listen(listener, 1), 0);
    const int strange[] = {unix_pair[0], pipes[0], pipes[1], directory, poller,
                           datagrams,    lonely,   listener, -1};
    for (size_t i = 0; i < ARRAY_SIZE(strange); i++)
        CHECK_INT(upstream_check_fd(strange[i]), -EBADMSG);
    for (size_t i = 0; i < 2; i++) {
        (void)close(pair[i]);
        (void)close(unix_pair[i]);
        (void)close(pipes[i]);
    }
}

/* A pool whose keeper and agent are played by the test. */
struct scene {
    struct loop *loop;
    struct keeper_link *link;
    int keeper; /* our end */
    int agent;  /* likewise, once asked for */
    struct upstream_pool pool;
    struct upstream_want want;
    struct http_client *client;
    int err, calls;
    bool fresh;
};

static void got(struct upstream_want *w, struct http_client *client, bool fresh, int err)
{
    struct scene *s = container_of(w, struct scene, want);
    s->client = client;
    s->fresh = fresh;
    s->err = err;
    s->calls++;
}

static void no_event(void *arg, const struct keeper_reply *event)
{
    (void)arg;
    (void)event;
}

static void gone(void *arg)
{
    (void)arg;
}

static void scene_begin(struct scene *s)
{
    struct error e;
    int pair[2];
    struct keeper_link_ops ops = {.event = no_event, .gone = gone};
    *s = (struct scene){.agent = -1, .want.got = got};
    CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    CHECK_INT(loop_new(&s->loop, &e), 0);
    CHECK_INT(keeper_link_new(s->loop, pair[0], &ops, &s->link, &e), 0);
    s->keeper = pair[1];
    upstream_pool_init(&s->pool, s->loop, s->link, "demo", 8080);
}

static void scene_end(struct scene *s)
{
    upstream_cancel(&s->want);
    upstream_pool_done(&s->pool);
    http_client_free(s->client);
    keeper_link_free(s->link);
    loop_free(s->loop);
    (void)close(s->keeper);
    close_fd(&s->agent);
}

/* Answers the request for a connection; the agent's end is ours. error: instead of one. */
static void keeper_answers(struct scene *s, int error)
{
    struct keeper_request q;
    int fd, pair[2] = {-1, -1};
    while (loop_step(s->loop, 0) > 0)
        ;
    REQUIRE(socket_recv_fd(s->keeper, &q, sizeof q, &fd) == (ssize_t)sizeof q);
    CHECK_INT(q.type, KEEPER_CONNECT);
    CHECK_STREQ(q.id, "demo");
    struct keeper_reply r = {.version = KEEPER_PROTO_VERSION,
                             .type = KEEPER_REPLY,
                             .seq = q.seq,
                             .error = error,
                             .state = KEEPER_STATE_RUNNING,
                             .generation = 1};
    if (!error)
        CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    CHECK_INT(socket_send_fd(s->keeper, &r, sizeof r, pair[0]), sizeof r);
    close_fd(&pair[0]);
    s->agent = pair[1];
    (void)loop_step(s->loop, 1000);
}

static void expect_connect(struct scene *s)
{
    char text[256];
    ssize_t n = recv(s->agent, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    CHECK_STREQ(text, "CONNECT 127.0.0.1:8080 HTTP/1.1\r\n\r\n");
}

TEST(upstream_connection_is_made_and_kept)
{
    struct scene s;
    int pair[2];
    scene_begin(&s);
    tcp_pair(pair);
    upstream_get(&s.pool, &s.want);
    keeper_answers(&s, 0);
    expect_connect(&s);
    CHECK_INT(s.calls, 0);
    CHECK_INT(socket_send_fd(s.agent, "k", 1, pair[0]), 1);
    (void)loop_step(s.loop, 1000);
    CHECK_INT(s.calls, 1);
    CHECK(s.client && s.fresh);

    struct http_client *first = take_ptr(s.client);
    upstream_put(&s.pool, first, s.pool.epoch);
    upstream_get(&s.pool, &s.want);
    CHECK(s.client == first && !s.fresh); /* at once */
    upstream_put(&s.pool, take_ptr(s.client), s.pool.epoch);
    upstream_pool_ended(&s.pool); /* of another life */
    CHECK_INT(s.pool.idle_count, 0);
    (void)close(pair[0]);
    (void)close(pair[1]);
    scene_end(&s);
}

TEST(upstream_refusals_are_told)
{
    static const struct {
        const char *answer;
        int err;
    } cases[] = {
        {"HTTP/1.1 502 Bad Gateway\r\n\r\n", -ECONNREFUSED},
        {"HTTP/1.1 504 Gateway Timeout\r\n\r\n", -ETIMEDOUT},
        {"HTTP/1.1 200 OK\r\n\r\n", -EBADMSG},
        {"HTTP/1.1 5", -EBADMSG},
        {"k", -EBADMSG}, /* without a descriptor */
        {"kk", -EBADMSG},
        {"", -ECONNRESET},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct scene s;
        scene_begin(&s);
        upstream_get(&s.pool, &s.want);
        keeper_answers(&s, 0);
        if (cases[i].answer[0])
            CHECK_INT(send(s.agent, cases[i].answer, strlen(cases[i].answer), 0), strlen(cases[i].answer));
        else
            close_fd(&s.agent);
        (void)loop_step(s.loop, 1000);
        CHECK_INT(s.calls, 1);
        CHECK_INT(s.err, cases[i].err);
        scene_end(&s);
    }
}

static int open_files(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* AGT-07 */
TEST(upstream_strange_descriptors_are_closed)
{
    int before = open_files();
    for (int round = 0; round < 3; round++) {
        struct scene s;
        int pipes[2];
        scene_begin(&s);
        CHECK_INT(pipe2(pipes, O_CLOEXEC), 0);
        upstream_get(&s.pool, &s.want);
        keeper_answers(&s, 0);
        if (round == 0) {
            CHECK_INT(socket_send_fd(s.agent, "k", 1, pipes[0]), 1);
        } else if (round == 1) {
            CHECK_INT(socket_send_fd(s.agent, "HTTP/1.1 502 x", 14, pipes[0]), 14);
        } else { /* 250 at once */
            union {
                char space[CMSG_SPACE(250 * sizeof(int))];
                struct cmsghdr align;
            } control;
            struct iovec iov = {(void *)"k", 1};
            struct msghdr msg = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
            struct cmsghdr *cm = CMSG_FIRSTHDR(&msg);
            *cm = (struct cmsghdr){
                .cmsg_len = CMSG_LEN(250 * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
            for (size_t i = 0; i < 250; i++)
                memcpy(CMSG_DATA(cm) + i * sizeof(int), &pipes[1], sizeof(int));
            CHECK_INT(sendmsg(s.agent, &msg, 0), 1);
        }
        (void)loop_step(s.loop, 1000);
        CHECK_INT(s.calls, 1);
        CHECK(!s.client && s.err == (round == 1 ? -ECONNREFUSED : -EBADMSG));
        (void)close(pipes[0]);
        (void)close(pipes[1]);
        scene_end(&s);
    }
    CHECK_INT(open_files(), before);
}

static int strange_descriptor(int kind)
{
    int fd = -1;
    struct error e;
    switch (kind) {
    case 0:
        return open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    case 1:
        return epoll_create1(EPOLL_CLOEXEC);
    case 2: /* it would be readable, and give away connections */
        return socket_listen_tcp("127.0.0.1:0", &fd, &e) == 0 ? fd : -1;
    case 3:
        return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    default: /* of the right kind, and connected to nobody */
        return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
}

/* AGT-07 */
TEST(upstream_other_kinds_of_descriptors)
{
    int before = open_files();
    for (int kind = 0; kind < 5; kind++) {
        struct scene s;
        scene_begin(&s);
        auto_close int fd = strange_descriptor(kind);
        REQUIRE(fd >= 0);
        upstream_get(&s.pool, &s.want);
        keeper_answers(&s, 0);
        CHECK_INT(socket_send_fd(s.agent, "k", 1, fd), 1);
        (void)loop_step(s.loop, 1000);
        CHECK_INT(s.calls, 1);
        CHECK(!s.client && s.err < 0);
        scene_end(&s);
    }
    CHECK_INT(open_files(), before);
}

TEST(upstream_cancelled_and_refused_by_the_keeper)
{
    struct scene s;
    scene_begin(&s);
    upstream_get(&s.pool, &s.want);
    upstream_cancel(&s.want); /* the keeper's reply comes all the same */
    keeper_answers(&s, 0);
    CHECK_INT(s.calls, 0);
    close_fd(&s.agent);
    upstream_get(&s.pool, &s.want);
    keeper_answers(&s, ENOENT);
    CHECK_INT(s.calls, 1);
    CHECK_INT(s.err, -ENOENT);
    upstream_get(&s.pool, &s.want);
    upstream_pool_ended(&s.pool);
    keeper_answers(&s, 0);
    CHECK_INT(s.calls, 2);
    CHECK_INT(s.err, -ECONNRESET);
    scene_end(&s);
}
