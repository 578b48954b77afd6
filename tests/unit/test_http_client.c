/* SPDX-License-Identifier: Apache-2.0 */
/* test_http_client.c: the client against scripted servers, most of them hostile, and against our own server.
 */
#include "http_fixture.h"

#include <signal.h>

static struct http_client *client;
static int heads, ends, drains, idle_closes, last_status, last_end;
static int64_t last_length;
static struct buf body;
static bool free_in_head, free_in_data, free_in_end, pause_in_data, next_in_end, reusable_in_end;
static struct buf rest;
static int taken_fd;
static bool take_in_end;

static void on_head(struct http_client *c, int status, const struct http_header *headers, size_t count,
                    int64_t content_length)
{
    heads++;
    last_status = status;
    last_length = content_length;
    CHECK(count == 0 || headers[0].name[0] != '\0');
    CHECK(http_client_user(c) == &heads);
    if (free_in_head) {
        http_client_free(c);
        client = NULL;
    }
}

static void on_data(struct http_client *c, const char *data, size_t n)
{
    CHECK(n > 0);
    (void)buf_append(&body, data, n);
    if (pause_in_data)
        http_client_pause(c);
    if (free_in_data) {
        http_client_free(c);
        client = NULL;
    }
}

static const struct http_client_ops ops;

static void on_end(struct http_client *c, int err)
{
    ends++;
    last_end = err;
    reusable_in_end = http_client_reusable(c);
    if (take_in_end) {
        taken_fd = http_client_take_fd(c, &rest);
        client = NULL;
    } else if (free_in_end) {
        http_client_free(c);
        client = NULL;
    } else if (next_in_end) {
        next_in_end = false;
        CHECK_INT(http_client_send(c, "GET", "/next", NULL, 0, 0, &ops), 0);
    }
}

static void on_drain(struct http_client *c)
{
    (void)c;
    drains++;
}

static void on_idle_close(struct http_client *c)
{
    idle_closes++;
    http_client_free(c);
    client = NULL;
}

static const struct http_client_ops ops = {on_head, on_data, on_end, on_drain, on_idle_close};
static const struct http_header host[] = {{"Host", "x"}};

static void begin(struct peer *p)
{
    int fds[2];
    struct error e;
    heads = ends = drains = idle_closes = last_status = last_end = 0;
    last_length = -2;
    free_in_head = free_in_data = free_in_end = pause_in_data = next_in_end = take_in_end = reusable_in_end =
        false;
    taken_fd = -1;
    body = BUF_INIT(64 << 20);
    rest = BUF_INIT(1 << 20);
    if (loop_new(&loop, &e) < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 ||
        http_client_new(loop, fds[0], &client, &e) < 0)
        abort();
    http_client_set_user(client, &heads);
    peer_init(p, fds[1]);
}

static void finish(struct peer *p)
{
    http_client_free(client);
    peer_done(p);
    loop_free(loop);
    buf_done(&body);
    buf_done(&rest);
    close_fd(&taken_fd);
}

static void get(struct peer *p, const char *method)
{
    CHECK_INT(http_client_send(client, method, "/a?b", host, 1, 0, &ops), 0);
    STEP_UNTIL(p, strstr(peer_text(p), "\r\n\r\n"));
}

#define OK "HTTP/1.1 200 OK\r\n"

TEST(http_client_exchange)
{
    struct peer p;
    begin(&p);
    CHECK(http_client_reusable(client));
    get(&p, "GET");
    CHECK_STREQ(peer_text(&p), "GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(!http_client_reusable(client));
    CHECK_INT(http_client_send(client, "GET", "/", host, 1, 0, &ops), -EBUSY);
    PEER_SEND(&p, OK "Content-Length: 5\r\n\r\nhello");
    STEP_UNTIL(&p, ends == 1);
    CHECK_INT(last_end, 0);
    CHECK_INT(last_status, 200);
    CHECK_INT(last_length, 5);
    CHECK_STREQ(buf_cstr(&body), "hello");
    CHECK(reusable_in_end);
    /* and again on the same connection */
    buf_clear(&p.got);
    get(&p, "DELETE");
    PEER_SEND(&p, OK "Transfer-Encoding: chunked\r\n\r\n3\r\n, a\r\n4\r\ngain\r\n0\r\n\r\n");
    STEP_UNTIL(&p, ends == 2);
    CHECK_STREQ(buf_cstr(&body), "hello, again");
    CHECK_INT(last_length, -1);
    CHECK(http_client_reusable(client));
    finish(&p);
}

/* A scripted answer, in one piece and byte by byte; the server closes behind it. */
struct row {
    const char *name;
    const char *bytes;
    size_t n;
    int err, status;
    const char *body;
    const char *method;
    bool reusable;
};
#define ROW(name, bytes, ...)                       \
    {                                               \
        name, bytes, sizeof(bytes) - 1, __VA_ARGS__ \
    }

static void run_row(const struct row *row, bool bytewise)
{
    struct peer p;
    char m[300];
    begin(&p);
    get(&p, row->method ? row->method : "GET");
    for (size_t i = 0; i < row->n;) {
        size_t n = bytewise ? 1 : row->n;
        if (!peer_send(&p, row->bytes + i, n))
            break;
        i += n;
        if (bytewise)
            (void)loop_step(loop, 0);
    }
    if (!row->reusable)
        (void)shutdown(p.fd, SHUT_WR);
    STEP_UNTIL(&p, ends > 0);
    loop_settle();
    const char *text = buf_cstr(&body);
    if (ends != 1 || last_end != row->err || last_status != row->status || strcmp(text, row->body) != 0 ||
        (client && !row->reusable && http_client_reusable(client)) || reusable_in_end != row->reusable) {
        (void)snprintf(m, sizeof m, "%s%s: ends %d, error %d, status %d, body \"%.60s\", reusable %d",
                       row->name, bytewise ? ", byte by byte" : "", ends, last_end, last_status, text,
                       reusable_in_end);
        test_fail(__FILE__, __LINE__, m);
    }
    finish(&p);
}

TEST(http_client_answers)
{
    static const struct row rows[] = {
        ROW("length", OK "Content-Length: 2\r\n\r\nhi", 0, 200, "hi", NULL, true),
        ROW("empty", OK "Content-Length: 0\r\n\r\n", 0, 200, "", NULL, true),
        ROW("until close", OK "\r\nhi", 0, 200, "hi", NULL, false),
        ROW("1.0", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", 0, 200, "hi", NULL, false),
        ROW("close", OK "Content-Length: 2\r\nConnection: close\r\n\r\nhi", 0, 200, "hi", NULL, false),
        ROW("204", "HTTP/1.1 204 No\r\n\r\n", 0, 204, "", NULL, true),
        ROW("204 with a length", "HTTP/1.1 204 No\r\nContent-Length: 3\r\n\r\n", 0, 204, "", NULL, true),
        ROW("304 with a length", "HTTP/1.1 304 No\r\nContent-Length: 3\r\n\r\n", 0, 304, "", NULL, true),
        ROW("HEAD", OK "Content-Length: 3\r\n\r\n", 0, 200, "", "HEAD", true),
        ROW("HEAD chunked", OK "Transfer-Encoding: chunked\r\n\r\n", 0, 200, "", "HEAD", true),
        ROW("continue", "HTTP/1.1 100 Continue\r\n\r\n" OK "Content-Length: 2\r\n\r\nhi", 0, 200, "hi", NULL,
            true),
        ROW("trailer", OK "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nA: b\r\n\r\n", 0, 200, "hi",
            NULL, true),
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        for (int bytewise = 0; bytewise < 2; bytewise++)
            run_row(&rows[i], bytewise);
}

TEST(http_client_hostile_answers)
{
#define C "HTTP/1.1 100 Continue\r\n\r\n"
    static const struct row rows[] = {
        ROW("nothing", "", -ECONNRESET, 0, "", NULL, false),
        ROW("garbage", "hello world\r\n\r\n", -EBADMSG, 0, "", NULL, false),
        ROW("0.9", "<html>", -EBADMSG, 0, "", NULL, false),
        ROW("CL+TE", OK "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", -EBADMSG, 0, "",
            NULL, false),
        ROW("two CL", OK "Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi", -EBADMSG, 0, "", NULL, false),
        ROW("list CL", OK "Content-Length: 2, 2\r\n\r\nhi", -EBADMSG, 0, "", NULL, false),
        ROW("huge CL", OK "Content-Length: 99999999999999999999\r\n\r\nhi", -EBADMSG, 0, "", NULL, false),
        ROW("TE", OK "Transfer-Encoding: gzip\r\n\r\nhi", -EBADMSG, 0, "", NULL, false),
        ROW("TE twice", OK "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", -EBADMSG, 0, "", NULL,
            false),
        ROW("chunk size", OK "Transfer-Encoding: chunked\r\n\r\n0x2\r\nhi\r\n0\r\n\r\n", -EBADMSG, 200, "",
            NULL, false),
        ROW("chunk end", OK "Transfer-Encoding: chunked\r\n\r\n2\r\nhiho\r\n", -EBADMSG, 200, "hi", NULL,
            false),
        ROW("chunk cut", OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhi", -ECONNRESET, 200, "hi", NULL, false),
        ROW("last chunk missing", OK "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", -ECONNRESET, 200, "hi",
            NULL, false),
        ROW("body cut", OK "Content-Length: 5\r\n\r\nhi", -ECONNRESET, 200, "hi", NULL, false),
        ROW("head cut", OK "Content-", -ECONNRESET, 0, "", NULL, false),
        ROW("fold", OK "A: b\r\n c\r\nContent-Length: 0\r\n\r\n", -EBADMSG, 0, "", NULL, false),
        ROW("bare LF", "HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", -EBADMSG, 0, "", NULL, false),
        ROW("NUL", OK "A: \0\r\n\r\n", -EBADMSG, 0, "", NULL, false),
        ROW("HTTP/2", "HTTP/2.0 200 OK\r\n\r\n", -EBADMSG, 0, "", NULL, false),
        ROW("eight 1xx", C C C C C C C C OK "Content-Length: 0\r\n\r\n", 0, 200, "", NULL, true),
        ROW("nine 1xx", C C C C C C C C C OK "Content-Length: 0\r\n\r\n", -EBADMSG, 0, "", NULL, false),
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        for (int bytewise = 0; bytewise < 2; bytewise++)
            run_row(&rows[i], bytewise);
}

TEST(http_client_endless_heads)
{
    for (int what = 0; what < 3; what++) {
        struct peer p;
        begin(&p);
        get(&p, "GET");
        PEER_SEND(&p, what == 0 ? "HTTP/1.1 200 " : what == 1 ? OK "A: " : OK);
        for (int i = 0; i < 100000 && !ends; i++) {
            if (send(p.fd, what == 2 ? "A: b\r\n" : "aaaaaa", 6, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
                errno != EAGAIN)
                break;
            if (i % 1000 == 0)
                (void)loop_step(loop, 0);
        }
        STEP_UNTIL(&p, ends == 1);
        CHECK_INT(last_end, -E2BIG);
        CHECK_INT(heads, 0);
        finish(&p);
    }
}

TEST(http_client_bytes_behind_the_answer)
{
    struct peer p;
    begin(&p);
    get(&p, "GET");
    PEER_SEND(&p, OK "Content-Length: 2\r\n\r\nhi" OK "Content-Length: 4\r\n\r\nevil");
    STEP_UNTIL(&p, ends == 1);
    CHECK_INT(last_end, 0);
    CHECK_STREQ(buf_cstr(&body), "hi");
    CHECK(!reusable_in_end);
    CHECK_INT(http_client_send(client, "GET", "/", host, 1, 0, &ops), -ENOTCONN);
    finish(&p);
    /* later, while idle: as good as closed */
    begin(&p);
    get(&p, "GET");
    PEER_SEND(&p, OK "Content-Length: 2\r\n\r\nhi");
    STEP_UNTIL(&p, ends == 1);
    CHECK(http_client_reusable(client));
    PEER_SEND(&p, OK);
    STEP_UNTIL(&p, idle_closes == 1);
    CHECK(client == NULL);
    finish(&p);
}

TEST(http_client_idle_close)
{
    struct peer p;
    begin(&p);
    get(&p, "GET");
    PEER_SEND(&p, OK "Content-Length: 2\r\n\r\nhi");
    STEP_UNTIL(&p, ends == 1);
    close_fd(&p.fd);
    STEP_UNTIL(NULL, idle_closes == 1);
    finish(&p);
}

TEST(http_client_next_request_from_on_end)
{
    struct peer p;
    begin(&p);
    next_in_end = true;
    get(&p, "GET");
    buf_clear(&p.got);
    PEER_SEND(&p, OK "Content-Length: 2\r\n\r\nhi");
    STEP_UNTIL(&p, strstr(peer_text(&p), "GET /next HTTP/1.1\r\n"));
    PEER_SEND(&p, OK "Content-Length: 2\r\n\r\nho");
    STEP_UNTIL(&p, ends == 2);
    CHECK_STREQ(buf_cstr(&body), "hiho");
    finish(&p);
}

TEST(http_client_freed_from_its_callbacks)
{
    for (int what = 0; what < 3; what++) {
        struct peer p;
        begin(&p);
        free_in_head = what == 0;
        free_in_data = what == 1;
        free_in_end = what == 2;
        get(&p, "GET");
        PEER_SEND(&p, OK "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n2\r\nho\r\n0\r\n\r\n");
        STEP_UNTIL(&p, p.eof || p.reset);
        CHECK(client == NULL);
        CHECK_INT(ends, what == 2);
        finish(&p);
    }
}

TEST(http_client_request_bodies)
{
    struct peer p;
    begin(&p);
    CHECK_INT(http_client_send(client, "POST", "/", host, 1, 5, &ops), 0);
    CHECK(http_client_write(client, "he", 2));
    CHECK(http_client_write(client, "llo", 3));
    http_client_finish(client);
    STEP_UNTIL(&p, strstr(peer_text(&p), "hello"));
    CHECK_STREQ(peer_text(&p), "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    PEER_SEND(&p, OK "Content-Length: 0\r\n\r\n");
    STEP_UNTIL(&p, ends == 1);
    buf_clear(&p.got);
    CHECK_INT(http_client_send(client, "POST", "/", host, 1, -1, &ops), 0);
    CHECK(http_client_write(client, "hello", 5));
    CHECK(http_client_write(client, "", 0));
    CHECK(http_client_write(client, "0123456789abcdef", 16));
    http_client_finish(client);
    STEP_UNTIL(&p, strstr(peer_text(&p), "0\r\n\r\n"));
    CHECK_STREQ(
        peer_text(&p),
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n10\r\n0123456789abcdef"
        "\r\n0\r\n\r\n");
    PEER_SEND(&p, OK "Content-Length: 0\r\n\r\n");
    STEP_UNTIL(&p, ends == 2);
    CHECK(reusable_in_end);
    buf_clear(&p.got);
    CHECK_INT(http_client_send(client, "POST", "/", host, 1, 0, &ops), 0);
    STEP_UNTIL(&p, strstr(peer_text(&p), "Content-Length: 0\r\n\r\n"));
    finish(&p);
}

TEST(http_client_wrong_body_length_breaks_the_request)
{
    for (int what = 0; what < 2; what++) {
        struct peer p;
        begin(&p);
        CHECK_INT(http_client_send(client, "POST", "/", host, 1, 5, &ops), 0);
        (void)http_client_write(client, "much too much", what ? 13 : 3);
        http_client_finish(client);
        STEP_UNTIL(&p, p.eof);
        CHECK(strstr(peer_text(&p), "too") == NULL);
        close_fd(&p.fd);
        STEP_UNTIL(NULL, ends == 1);
        CHECK_INT(last_end, -EPIPE);
        finish(&p);
    }
}

TEST(http_client_answer_before_the_request_is_sent)
{
    /* a server that refuses a large body answers and closes; the answer must not be lost */
    struct peer p;
    static char big[1 << 20];
    begin(&p);
    CHECK_INT(http_client_send(client, "PUT", "/", host, 1, 10 << 20, &ops), 0);
    CHECK(!http_client_write(client, big, sizeof big));
    loop_settle();
    PEER_SEND(&p, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
    close_fd(&p.fd);
    STEP_UNTIL(NULL, ends == 1);
    CHECK_INT(last_end, 0);
    CHECK_INT(last_status, 413);
    CHECK_STREQ(buf_cstr(&body), "no");
    CHECK(!reusable_in_end);
    finish(&p);
}

TEST(http_client_back_pressure_of_the_request)
{
    struct peer p;
    static char big[300000];
    size_t total = 0;
    begin(&p);
    CHECK_INT(http_client_send(client, "PUT", "/", host, 1, -1, &ops), 0);
    while (http_client_write(client, big, sizeof big))
        total += sizeof big;
    loop_settle();
    CHECK_INT(drains, 0);
    CHECK(total < 10 * sizeof big);
    STEP_UNTIL(&p, drains == 1);
    http_client_finish(client);
    STEP_UNTIL(&p, buf_len(&p.got) > total + sizeof big &&
                       memcmp(buf_data(&p.got) + buf_len(&p.got) - 5, "0\r\n\r\n", 5) == 0);
    finish(&p);
}

TEST(http_client_paused_reader)
{
    struct peer p;
    static char big[100000];
    size_t sent = 0;
    begin(&p);
    pause_in_data = true;
    get(&p, "GET");
    PEER_SEND(&p, OK "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n2\r\nho\r\n186a0\r\n");
    STEP_UNTIL(&p, buf_len(&body) == 2);
    for (int i = 0; i < 100; i++) {
        ssize_t n = send(p.fd, big, sizeof big, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0)
            sent += (size_t)n;
        loop_settle();
    }
    CHECK_INT(buf_len(&body), 2);
    CHECK(sent < 50 * sizeof big);
    http_client_resume(client);
    STEP_UNTIL(&p, buf_len(&body) == 4);
    loop_settle();
    CHECK_INT(buf_len(&body), 4);
    finish(&p);
}

TEST(http_client_paused_while_the_server_leaves)
{
    /* nothing is lost, and the loop does not spin on the hang-up */
    struct peer p;
    begin(&p);
    pause_in_data = true;
    get(&p, "GET");
    PEER_SEND(&p, OK "Content-Length: 4\r\n\r\nhi");
    STEP_UNTIL(&p, buf_len(&body) == 2);
    PEER_SEND(&p, "ho");
    close_fd(&p.fd);
    int events = 0;
    for (int i = 0; i < 10; i++) {
        int n = loop_step(loop, 1);
        events += MAX(n, 0);
    }
    CHECK(events < 5);
    CHECK_INT(ends, 0);
    pause_in_data = false;
    http_client_resume(client);
    STEP_UNTIL(NULL, ends == 1);
    CHECK_INT(last_end, 0);
    CHECK_STREQ(buf_cstr(&body), "hiho");
    finish(&p);
}

TEST(http_client_upgrade)
{
    struct peer p;
    begin(&p);
    take_in_end = true;
    get(&p, "GET");
    PEER_SEND(&p, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nraw bytes");
    STEP_UNTIL(&p, ends == 1);
    CHECK_INT(last_status, 101);
    CHECK(taken_fd >= 0);
    CHECK_STREQ(buf_cstr(&rest), "raw bytes");
    CHECK(client == NULL);
    finish(&p);
    /* taken later */
    begin(&p);
    get(&p, "CONNECT");
    PEER_SEND(&p, "HTTP/1.1 200 OK\r\n\r\nmore");
    STEP_UNTIL(&p, ends == 1);
    loop_settle();
    taken_fd = http_client_take_fd(client, &rest);
    client = NULL;
    CHECK(taken_fd >= 0);
    CHECK_STREQ(buf_cstr(&rest), "more");
    finish(&p);
}

TEST(http_client_take_fd_without_an_upgrade)
{
    struct peer p;
    begin(&p);
    CHECK_INT(http_client_take_fd(client, &rest), -EPROTO);
    finish(&p);
}

TEST(http_client_refuses_to_send_nonsense)
{
    static const struct http_header bad_value[] = {{"A", "b\r\nC: d"}}, bad_name[] = {{"A: b", "c"}};
    struct peer p;
    begin(&p);
    CHECK_INT(http_client_send(client, "GET", "/a b", host, 1, 0, &ops), -EINVAL);
    CHECK_INT(http_client_send(client, "GET", "/a\r\nX: y", host, 1, 0, &ops), -EINVAL);
    CHECK_INT(http_client_send(client, "GET", "", host, 1, 0, &ops), -EINVAL);
    CHECK_INT(http_client_send(client, "G T", "/", host, 1, 0, &ops), -EINVAL);
    CHECK_INT(http_client_send(client, "GET", "/", bad_value, 1, 0, &ops), -EINVAL);
    CHECK_INT(http_client_send(client, "GET", "/", bad_name, 1, 0, &ops), -EINVAL);
    CHECK(http_client_reusable(client));
    loop_settle();
    (void)peer_read(&p, 100);
    CHECK_INT(buf_len(&p.got), 0);
    finish(&p);
}

TEST(http_client_connection_refused)
{
    struct error e;
    char name[64];
    int listener, fd = -1;
    struct peer p;
    begin(&p);
    http_client_free(client);
    client = NULL;
    /* a port that is certainly closed: bound, then released */
    REQUIRE(socket_listen_tcp("127.0.0.1:0", &listener, &e) == 0);
    struct sockaddr_storage ss;
    socklen_t len = sizeof ss;
    CHECK_INT(getsockname(listener, (struct sockaddr *)&ss, &len), 0);
    CHECK_INT(socket_local_name(listener, name, sizeof name), 0);
    (void)close(listener);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    (void)connect(fd, (struct sockaddr *)&ss, len);
    REQUIRE(http_client_new(loop, fd, &client, &e) == 0);
    http_client_set_user(client, &heads);
    CHECK_INT(http_client_send(client, "GET", "/", host, 1, 0, &ops), 0);
    STEP_UNTIL(NULL, ends == 1);
    CHECK(last_end == -ECONNREFUSED || last_end == -EPIPE || last_end == -ECONNRESET);
    finish(&p);
}

TEST(http_client_reset_is_not_the_end_of_a_body)
{
    struct error e;
    struct peer p;
    char name[64];
    int listener, fd;
    begin(&p);
    http_client_free(client);
    peer_done(&p);
    REQUIRE(socket_listen_tcp("127.0.0.1:0", &listener, &e) == 0);
    CHECK_INT(socket_local_name(listener, name, sizeof name), 0);
    REQUIRE(socket_connect_tcp("127.0.0.1", name + 10, 5000, &fd, &e) == 0);
    REQUIRE(http_client_new(loop, fd, &client, &e) == 0);
    http_client_set_user(client, &heads);
    peer_init(&p, accept4(listener, NULL, NULL, SOCK_CLOEXEC));
    (void)close(listener);
    get(&p, "GET");
    PEER_SEND(&p, OK "\r\nhalf of it");
    STEP_UNTIL(&p, buf_len(&body) == 10);
    struct linger hard = {.l_onoff = 1};
    (void)setsockopt(p.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close_fd(&p.fd);
    STEP_UNTIL(NULL, ends == 1);
    CHECK_INT(last_end, -ECONNRESET);
    finish(&p);
}

TEST(http_client_framing_and_closing_are_told)
{
    static const struct http_header headers[] = {
        {"Host", "x"}, {"Content-Length", "7"}, {"transfer-encoding", "gzip"}, {"Connection", "close"}};
    struct peer p;
    begin(&p);
    CHECK_INT(http_client_send(client, "GET", "/", headers, 4, 0, &ops), 0);
    STEP_UNTIL(&p, strstr(peer_text(&p), "\r\n\r\n"));
    CHECK_STREQ(peer_text(&p), "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    PEER_SEND(&p, OK "Content-Length: 0\r\n\r\n");
    STEP_UNTIL(&p, ends == 1);
    CHECK(!reusable_in_end);
    finish(&p);
}

/* ------------------------------------------------------------------ both ends ours */

static void echo_done(struct http_request *req, struct buf *b, int err)
{
    if (err == 0)
        http_respond(req, 200, "text/plain", buf_len(b) ? buf_data(b) : NULL, buf_len(b));
}

static void echo(struct http_request *req, void *arg)
{
    (void)arg;
    http_request_collect(req, 1 << 24, echo_done);
}

TEST(http_client_and_server)
{
    struct peer p;
    struct error e;
    struct http_server *server;
    static char big[3000000];
    begin(&p);
    struct http_server_config config = {.loop = loop, .limits = http_limits_default, .request = echo};
    REQUIRE(http_server_new(&config, &server, &e) == 0);
    REQUIRE(http_server_adopt(server, take_fd(p.fd), &e) == 0);
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)(i * 7 + i / 251);
    for (int i = 0; i < 3; i++) {
        buf_clear(&body);
        ends = 0;
        CHECK_INT(http_client_send(client, "POST", "/", host, 1, i == 1 ? (int64_t)sizeof big : -1, &ops), 0);
        for (size_t at = 0; at < sizeof big; at += 100000) /* back pressure is not what is tested here */
            (void)http_client_write(client, big + at, 100000);
        http_client_finish(client);
        STEP_UNTIL(NULL, ends == 1);
        CHECK_INT(last_end, 0);
        CHECK_INT(buf_len(&body), sizeof big);
        CHECK(buf_len(&body) == sizeof big && memcmp(buf_data(&body), big, sizeof big) == 0);
        CHECK(http_client_reusable(client));
    }
    http_server_free(server);
    finish(&p);
}

/* A head and more than one read of a body, all there before the client looks, and the end right behind it. */
TEST(http_client_much_at_once_and_the_end_behind_it)
{
    struct peer p;
    static char bytes[100 * 1000];
    begin(&p);
    get(&p, "GET");
    memset(bytes, 'x', sizeof bytes);
    PEER_SEND(&p, "HTTP/1.0 200 OK\r\n\r\n");
    CHECK(peer_send(&p, bytes, sizeof bytes));
    close_fd(&p.fd);
    STEP_UNTIL(NULL, ends == 1);
    CHECK_INT(last_end, 0);
    CHECK_INT(buf_len(&body), sizeof bytes);
    finish(&p);
}

/* What came while nobody wanted it is there when somebody does, with its end. */
TEST(http_client_end_while_paused)
{
    struct peer p;
    begin(&p);
    get(&p, "GET");
    pause_in_data = true;
    PEER_SEND(&p, "HTTP/1.0 200 OK\r\n\r\none");
    STEP_UNTIL(&p, buf_len(&body) == 3);
    PEER_SEND(&p, " two");
    CHECK_INT(shutdown(p.fd, SHUT_WR), 0);
    loop_settle();
    CHECK_INT(ends, 0);
    pause_in_data = false;
    http_client_resume(client);
    STEP_UNTIL(&p, ends == 1);
    CHECK_INT(last_end, 0);
    CHECK_STREQ(buf_cstr(&body), "one two");
    finish(&p);
}
