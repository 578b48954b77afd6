/* SPDX-License-Identifier: Apache-2.0 */
/* test_http_server.c: the server over real sockets: strictness, framing, order, limits, back pressure,
 * departures. */
#include "http_fixture.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/un.h>

static struct http_server *server;
static struct http_request *held; /* of /hold and /stream */
static int requests, gones, drains, ends, last_end;
static struct buf seen; /* body pieces, each followed by '|' */
static size_t flow_left;
static int taken_fd;
static struct buf taken_rest;

static void on_gone(struct http_request *req)
{
    gones++;
    if (req == held)
        held = NULL;
}

static void on_data(struct http_request *req, const char *data, size_t n)
{
    (void)buf_append(&seen, data, n);
    (void)buf_putc(&seen, '|');
    if (strcmp(req->path, "/paused") == 0)
        http_request_read_pause(req);
    else if (strcmp(req->path, "/enough") == 0)
        http_respond(req, 200, NULL, "enough", 6);
}

static void on_end(struct http_request *req, int err)
{
    ends++;
    last_end = err;
    if (err == -EMSGSIZE)
        http_respond(req, 413, NULL, NULL, 0);
    else if (err == 0)
        http_respond(req, 200, "text/plain", "read", 4);
}

static const struct http_body_sink sink = {.on_data = on_data, .on_end = on_end};

static void on_collected(struct http_request *req, struct buf *body, int err)
{
    ends++;
    last_end = err;
    if (err == -EMSGSIZE)
        http_respond(req, 413, NULL, NULL, 0);
    else if (err == 0)
        http_respond(req, 200, "application/octet-stream", buf_len(body) ? buf_data(body) : NULL,
                     buf_len(body));
}

static void flow(struct http_request *req)
{
    static char piece[40000];
    memset(piece, 'f', sizeof piece);
    while (flow_left) {
        size_t n = MIN(flow_left, sizeof piece);
        flow_left -= n;
        if (!http_response_write(req, piece, n))
            return;
    }
    http_response_end(req);
}

static void on_drain(struct http_request *req)
{
    drains++;
    flow(req);
}

static int file_of(size_t n)
{
    char name[] = "/tmp/http-test-XXXXXX";
    int fd = mkostemp(name, O_CLOEXEC);
    (void)unlink(name);
    for (size_t i = 0; i < n; i++) {
        char c = (char)('a' + i % 26);
        if (pwrite(fd, &c, 1, (off_t)i) != 1)
            return -1;
    }
    return fd;
}

static void serve_file(struct http_request *req)
{
    char n[16] = "", mode[16] = "";
    (void)http_query_get(req->query, "n", n, sizeof n);
    (void)http_query_get(req->query, "mode", mode, sizeof mode);
    uint64_t len = strtoull(n, NULL, 10);
    bool chunked = strcmp(mode, "chunked") == 0;
    int fd = strcmp(mode, "proc") == 0 ? open("/proc/self/status", O_RDONLY | O_CLOEXEC) : file_of(1000);
    http_response_begin(req, 200, NULL, 0, chunked ? -1 : (int64_t)len + 8);
    (void)http_response_write(req, "<<<<", 4);
    http_response_sendfile(req, fd, 0, len);
    (void)http_response_write(req, ">>>>", 4);
    http_response_end(req);
}

static void bad_header(struct http_request *req)
{
    static const struct http_header split[] = {{"X-Name", "a\r\nSet-Cookie: evil=1"}};
    static const struct http_header name[] = {{"X: y\r\nZ", "a"}};
    bool in_name = strcmp(req->query, "name") == 0;
    if (strcmp(req->query, "stream") == 0) {
        http_response_begin(req, 200, split, 1, -1);
        (void)http_response_write(req, "secret", 6);
        http_response_end(req);
    } else {
        http_respond_headers(req, 200, in_name ? name : split, 1, "secret", 6);
    }
}

static void handler(struct http_request *req, void *arg)
{
    static const struct http_header framing[] = {
        {"Content-Length", "999"}, {"Transfer-Encoding", "gzip"}, {"X-Kept", "yes"}};
    char text[200];
    const char *path = req->path;
    (void)arg;
    requests++;
    req->on_gone = on_gone;
    req->on_drain = on_drain;
    if (strcmp(path, "/ping") == 0) {
        (void)snprintf(text, sizeof text, "pong %s", req->query);
        http_respond(req, 200, "text/plain", text, strlen(text));
    } else if (strcmp(path, "/echo") == 0) {
        http_request_collect(req, 100000, on_collected);
    } else if (strcmp(path, "/read") == 0) {
        http_request_read_start(req, 100000, &sink);
    } else if (strcmp(path, "/enough") == 0) {
        http_request_read_start(req, 10000000, &sink);
    } else if (strcmp(path, "/own-date") == 0) {
        static const struct http_header own[] = {{"date", "today"}, {"X-COMMON", "mine"}};
        http_respond_headers(req, 200, own, 2, "ok", 2);
    } else if (strcmp(path, "/bad-stream") == 0) {
        static const struct http_header bad[] = {{"A", "b\n"}};
        held = req;
        http_response_begin(req, 200, bad, 1, -1);
    } else if (strcmp(path, "/paused") == 0) {
        held = req;
        http_request_read_start(req, 10000000, &sink);
    } else if (strcmp(path, "/hold") == 0) {
        held = req;
    } else if (strcmp(path, "/stream") == 0) {
        held = req;
        http_response_begin(req, 200, NULL, 0, -1);
        (void)http_response_write(req, "first", 5);
    } else if (strcmp(path, "/sse") == 0) {
        sse_begin(req);
        (void)sse_event(req, NULL, "{\"a\":1}", 7);
        (void)sse_event(req, "7", "{\n\"b\":\r2}", 9);
        http_response_end(req);
    } else if (strcmp(path, "/chunks") == 0) {
        http_response_begin(req, 200, NULL, 0, -1);
        (void)http_response_write(req, "hello", 5);
        (void)http_response_write(req, "", 0);
        (void)http_response_write(req, " world, again", 13);
        http_response_end(req);
    } else if (strcmp(path, "/flow") == 0) {
        held = req;
        http_response_begin(req, 200, NULL, 0, (int64_t)flow_left);
        flow(req);
    } else if (strcmp(path, "/file") == 0) {
        serve_file(req);
    } else if (strcmp(path, "/status") == 0) {
        http_respond(req, (int)strtol(req->query, NULL, 10), "text/plain", "body", 4);
    } else if (strcmp(path, "/framing") == 0) {
        http_respond_headers(req, 200, framing, 3, "ok", 2);
    } else if (strcmp(path, "/bad-header") == 0) {
        bad_header(req);
    } else if (strcmp(path, "/short") == 0) {
        http_response_begin(req, 200, NULL, 0, 10);
        (void)http_response_write(req, "short", 5);
        http_response_end(req);
    } else if (strcmp(path, "/long") == 0) {
        http_response_begin(req, 200, NULL, 0, 5);
        (void)http_response_write(req, "much too long", 13);
        http_response_end(req);
    } else if (strcmp(path, "/abort") == 0) {
        http_response_abort(req);
    } else if (strcmp(path, "/abort-stream") == 0) {
        http_response_begin(req, 200, NULL, 0, -1);
        (void)http_response_write(req, "half", 4);
        http_response_abort(req);
    } else if (strcmp(path, "/hijack") == 0) {
        taken_fd = http_hijack(req, &taken_rest);
    } else if (strcmp(path, "/close") == 0) {
        http_response_close_after(req);
        http_respond(req, 200, NULL, "bye", 3);
    } else {
        http_respond(req, 404, NULL, NULL, 0);
    }
}

static void error_body(int status, const char *reason, struct buf *out, void *arg)
{
    (void)arg;
    (void)buf_printf(out, "{\"code\":%d,\"message\":\"%s\"}", status, reason);
}

static struct http_limits limits;

static void begin(void)
{
    struct error e;
    requests = gones = drains = ends = last_end = 0;
    held = NULL;
    taken_fd = -1;
    seen = BUF_INIT(16 << 20);
    taken_rest = BUF_INIT(1 << 20);
    limits = http_limits_default;
    if (loop_new(&loop, &e) < 0)
        abort();
}

static void serve(void)
{
    static const struct http_header common[] = {{"X-Common", "c"}};
    struct error e;
    struct http_server_config config = {.loop = loop,
                                        .limits = limits,
                                        .request = handler,
                                        .error_body = error_body,
                                        .common_headers = common,
                                        .common_count = 1,
                                        .send_date = true};
    if (http_server_new(&config, &server, &e) < 0)
        abort();
}

static void finish(void)
{
    http_server_free(server);
    loop_free(loop);
    buf_done(&seen);
    buf_done(&taken_rest);
    close_fd(&taken_fd);
}

static void adopt(struct peer *p)
{
    int fds[2];
    struct error e;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 ||
        http_server_adopt(server, fds[0], &e) < 0)
        abort();
    peer_init(p, fds[1]);
}

/* A TCP listener of the server's; its address in name. */
static void listen_tcp(char name[64])
{
    struct error e;
    int fd;
    if (socket_listen_tcp("127.0.0.1:0", &fd, &e) < 0 || socket_local_name(fd, name, 64) < 0 ||
        http_server_listen(server, fd, &e) < 0)
        abort();
}

static void connect_tcp(struct peer *p, const char *name)
{
    char host[64];
    int fd = -1;
    struct error e;
    (void)snprintf(host, sizeof host, "%s", name);
    char *colon = strrchr(host, ':');
    *colon = '\0';
    CHECK_INT(socket_connect_tcp(host, colon + 1, 5000, &fd, &e), 0);
    peer_init(p, fd);
}

static void open_one(struct peer *p)
{
    begin();
    serve();
    adopt(p);
}

/* The same with a TCP peer, whose departures look different. */
static void open_tcp(struct peer *p)
{
    char name[64];
    begin();
    serve();
    listen_tcp(name);
    connect_tcp(p, name);
}

static void close_one(struct peer *p)
{
    peer_done(p);
    finish();
}

static int status_of(struct peer *p)
{
    const char *s = peer_text(p);
    return strncmp(s, "HTTP/1.1 ", 9) == 0 ? (int)strtol(s + 9, NULL, 10) : 0;
}

static bool ends_with(struct peer *p, const char *end)
{
    const char *s = peer_text(p);
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

#define GET(path)  "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"
#define POST(path) "POST " path " HTTP/1.1\r\nHost: x\r\n"

/* ------------------------------------------------------------------ answers */

TEST(http_server_answers)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, GET("/ping?1"));
    STEP_UNTIL(&p, ends_with(&p, "pong 1"));
    const char *s = peer_text(&p);
    CHECK(strncmp(s, "HTTP/1.1 200 OK\r\nX-Common: c\r\nDate: ", 36) == 0);
    CHECK(strstr(s, "\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\npong 1"));
    CHECK(strstr(s, "Connection:") == NULL);
    const char *date = strstr(s, "Date: ") + 6;
    CHECK_INT(strcspn(date, "\r"), 29);
    CHECK_STREQ(held ? "held" : "", "");
    close_one(&p);
}

/* Every row on a connection of its own, in one piece and byte by byte: the status, one answer only, then the
 * end. */
struct row {
    const char *id;
    const char *bytes;
    size_t n;
    int status;
};
#define ROW(id, bytes, status)               \
    {                                        \
        id, bytes, sizeof(bytes) - 1, status \
    }

static int run_row(const struct row *row, bool bytewise)
{
    struct peer p;
    adopt(&p);
    for (size_t i = 0; i < row->n;) {
        size_t n = bytewise ? 1 : row->n;
        if (!peer_send(&p, row->bytes + i, n)) /* refused already */
            break;
        i += n;
        if (bytewise)
            (void)loop_step(loop, 0);
    }
    STEP_UNTIL(&p, p.eof || p.reset);
    int status = status_of(&p);
    if (count_of(peer_text(&p), "\r\nConnection: close\r\n") != 1 || count_of(peer_text(&p), "X-Common") != 1)
        status = -status;
    peer_done(&p);
    return status;
}

TEST(http_server_refuses_and_closes)
{
#define HOST "\r\nHost: x\r\n"
#define P    "POST /echo HTTP/1.1\r\nHost: x\r\n"
    static const struct row rows[] = {
        ROW("HTTP-01", P "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ROW("HTTP-01", P "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
        ROW("HTTP-02", P "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", 400),
        ROW("HTTP-02", P "Content-Length: 5, 5\r\n\r\nhello", 400),
        ROW("HTTP-02", P "Content-Length: +5\r\n\r\nhello", 400),
        ROW("HTTP-02", P "Content-Length: 18446744073709551617\r\n\r\nh", 400),
        ROW("HTTP-03", P "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
        ROW("HTTP-03", P "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400),
        ROW("HTTP-03", P "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
        ROW("HTTP-03", "POST /echo HTTP/1.0" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ROW("HTTP-04", P "Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n", 400),
        ROW("HTTP-04", P "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", 400),
        ROW("HTTP-04", P "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\na\r\n0\r\n\r\n", 400),
        ROW("HTTP-06", "GET /ping HTTP/1.1\nHost: x\n\n", 400),
        ROW("HTTP-06", "GET /ping HTTP/1.1\rHost: x\r\r", 400),
        ROW("HTTP-06", "\r\n\r\n" GET("/ping"), 400),
        ROW("HTTP-07", "GET /ping HTTP/1.1" HOST "no colon\r\n\r\n", 400),
        ROW("HTTP-07", "GET /ping HTTP/1.1" HOST "A: b\0c\r\n\r\n", 400),
        ROW("HTTP-07", "GET /ping HTTP/1.1" HOST "A: b\r\n c\r\n\r\n", 400),
        ROW("HTTP-08", "GET /ping HTTP/1.1\r\n\r\n", 400),
        ROW("HTTP-08", "GET /ping HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        ROW("HTTP-09", "GET /ping HTTP/2.0" HOST "\r\n", 505),
        ROW("HTTP-09", "GET /ping HTTP/1.10" HOST "\r\n", 400),
        ROW("HTTP-09", "GET /ping\r\n", 400),
        ROW("HTTP-09", "get /ping HTTP/1.1" HOST "\r\n", 400),
        ROW("HTTP-09", "GET http://other/ping HTTP/1.1" HOST "\r\n", 400),
        ROW("HTTP-18", P "Content-Length: 1\r\nExpect: coffee\r\n\r\n", 417),
        ROW("HTTP-19", "BREW /ping HTTP/1.1" HOST "\r\n", 400),
        ROW("HTTP-20", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ROW("HTTP-20", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        ROW("HTTP-20", "EHLO example.com\r\n", 400),
        ROW("HTTP-20", "\xff\xfe\x00\x01\x02", 400),
    };
    begin();
    serve();
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        for (int bytewise = 0; bytewise < 2; bytewise++) {
            int status = run_row(&rows[i], bytewise);
            if (status != rows[i].status) {
                char m[100];
                (void)snprintf(m, sizeof m, "%s, row %zu%s: %d, expected %d", rows[i].id, i,
                               bytewise ? ", byte by byte" : "", status, rows[i].status);
                test_fail(__FILE__, __LINE__, m);
            }
        }
    STEP_UNTIL(NULL, http_server_connections(server) == 0);
    finish();
}

TEST(http_server_refusal_has_the_callers_body)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, "GET / HTTP/1.1\r\n\r\n");
    STEP_UNTIL(&p, p.eof);
    CHECK(strstr(peer_text(&p), "Content-Type: application/json\r\n"));
    CHECK(strstr(peer_text(&p), "{\"code\":400,\"message\":\"a request needs exactly one valid Host\"}"));
    CHECK(strstr(peer_text(&p), "X-Common: c\r\n"));
    CHECK_INT(requests, 0);
    close_one(&p);
}

TEST(http_10_sizes)
{
    struct buf b = BUF_INIT(4 << 20);
    struct peer p;
    int expected[] = {414, 431, 431, 414};
    for (int what = 0; what < 4; what++) {
        buf_clear(&b);
        if (what == 0) {
            (void)buf_puts(&b, "GET /");
            while (buf_len(&b) < 65536)
                (void)buf_puts(&b, "aaaaaaaaaaaaaaaa");
        } else if (what == 1) {
            (void)buf_puts(&b, "GET / HTTP/1.1\r\nHost: x\r\nA: ");
            while (buf_len(&b) < 100000)
                (void)buf_puts(&b, "aaaaaaaaaaaaaaaa");
        } else if (what == 2) {
            (void)buf_puts(&b, "GET / HTTP/1.1\r\nHost: x\r\n");
            for (int i = 0; i < 200; i++)
                (void)buf_puts(&b, "A: b\r\n");
        } else {
            while (buf_len(&b) < 100000)
                (void)buf_puts(&b, "GETGETGETGET");
        }
        open_one(&p);
        CHECK(peer_send(&p, buf_data(&b), buf_len(&b)));
        STEP_UNTIL(&p, p.eof || p.reset);
        CHECK_INT(status_of(&p), expected[what]);
        close_one(&p);
    }
    buf_done(&b);
}

/* ------------------------------------------------------------------ order and cuts */

TEST(http_11_fifty_pipelined_requests)
{
    struct peer p;
    char text[50 * 64] = "";
    size_t n = 0;
    for (int i = 0; i < 50; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "GET /ping?%02d HTTP/1.1\r\nHost: x\r\n\r\n", i);
    for (int bytewise = 0; bytewise < 2; bytewise++) {
        open_one(&p);
        for (size_t i = 0; i < n; i += bytewise ? 1 : n) {
            CHECK(peer_send(&p, text + i, bytewise ? 1 : n));
            if (bytewise)
                (void)loop_step(loop, 0);
        }
        STEP_UNTIL(&p, ends_with(&p, "pong 49"));
        const char *s = peer_text(&p);
        for (int i = 0; i < 50; i++) {
            char pong[32];
            (void)snprintf(pong, sizeof pong, "pong %02d", i);
            s = strstr(s, pong);
            REQUIRE(s);
        }
        CHECK_INT(requests, 50);
        close_one(&p);
    }
}

TEST(http_11_pipelined_bodies_and_late_answers)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p,
              GET("/hold") POST("/echo") "Content-Length: 3\r\n\r\nabc" POST(
                  "/echo") "Transfer-Encoding: chunked\r\n\r\n2\r\nde\r\n1\r\nf\r\n0\r\n\r\n" GET("/ping?z"));
    STEP_UNTIL(&p, held);
    loop_settle();
    CHECK_INT(requests, 1); /* the others wait */
    CHECK_INT(buf_len(&p.got), 0);
    http_respond(held, 200, NULL, "held", 4);
    STEP_UNTIL(&p, ends_with(&p, "pong z"));
    const char *s = peer_text(&p);
    CHECK_INT(count_of(s, "HTTP/1.1 200"), 4);
    const char *a = strstr(s, "held"), *b = strstr(s, "abc"), *c = strstr(s, "def");
    CHECK(a && b && c && a < b && b < c);
    close_one(&p);
}

TEST(http_12_cut_at_every_byte)
{
    static const char text[] =
        POST("/echo") "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\nT: x\r\n\r\n";
    struct peer p;
    open_one(&p);
    for (size_t cut = 1; cut < sizeof text - 1; cut++) {
        buf_clear(&p.got);
        CHECK(peer_send(&p, text, cut));
        loop_settle();
        CHECK(peer_send(&p, text + cut, sizeof text - 1 - cut));
        STEP_UNTIL(&p, ends_with(&p, "hello!"));
        CHECK_INT(count_of(peer_text(&p), "HTTP/1.1 200"), 1);
    }
    CHECK_INT(requests, sizeof text - 2);
    close_one(&p);
}

/* ------------------------------------------------------------------ framing of answers */

TEST(http_21_head_204_304_have_no_body)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, "HEAD /ping?h HTTP/1.1\r\nHost: x\r\n\r\n");
    STEP_UNTIL(&p, ends_with(&p, "\r\n\r\n"));
    CHECK(strstr(peer_text(&p), "Content-Length: 6\r\n"));
    CHECK(strstr(peer_text(&p), "pong") == NULL);
    static const char *const status[] = {"204", "304"};
    for (int i = 0; i < 2; i++) {
        char text[100];
        (void)snprintf(text, sizeof text, "GET /status?%s HTTP/1.1\r\nHost: x\r\n\r\n", status[i]);
        buf_clear(&p.got);
        PEER_SEND(&p, text);
        STEP_UNTIL(&p, ends_with(&p, "\r\n\r\n"));
        CHECK(strstr(peer_text(&p), "Content-Length") == NULL);
        CHECK(strstr(peer_text(&p), "Transfer-Encoding") == NULL);
    }
    buf_clear(&p.got);
    PEER_SEND(&p, "HEAD /chunks HTTP/1.1\r\nHost: x\r\n\r\n" GET("/ping?after"));
    STEP_UNTIL(&p, ends_with(&p, "pong after"));
    CHECK(strstr(peer_text(&p), "hello") == NULL);
    CHECK_INT(count_of(peer_text(&p), "HTTP/1.1 200"), 2);
    close_one(&p);
}

TEST(http_server_chunked_answer)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, GET("/chunks"));
    STEP_UNTIL(&p, ends_with(&p, "0\r\n\r\n"));
    CHECK(strstr(peer_text(&p),
                 "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nd\r\n world, again\r\n0\r\n\r\n"));
    close_one(&p);
}

TEST(http_server_http_1_0)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, "GET /ping?0 HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n");
    STEP_UNTIL(&p, ends_with(&p, "pong 0"));
    CHECK(strstr(peer_text(&p), "Connection: keep-alive\r\n"));
    buf_clear(&p.got);
    PEER_SEND(&p, "GET /chunks HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n");
    STEP_UNTIL(&p, p.eof); /* without chunks only the end of the connection can end the body */
    CHECK(ends_with(&p, "Connection: close\r\n\r\nhello world, again"));
    close_one(&p);
}

TEST(http_server_framing_belongs_to_the_server)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, GET("/framing"));
    STEP_UNTIL(&p, ends_with(&p, "ok"));
    CHECK_INT(count_of(peer_text(&p), "Content-Length: "), 1);
    CHECK(strstr(peer_text(&p), "Content-Length: 2\r\n"));
    CHECK(strstr(peer_text(&p), "gzip") == NULL);
    CHECK(strstr(peer_text(&p), "X-Kept: yes\r\n"));
    close_one(&p);
}

TEST(http_24_no_response_splitting)
{
    static const char *const targets[] = {GET("/bad-header"), GET("/bad-header?name"),
                                          GET("/bad-header?stream"), GET("/status?99"), GET("/status?600")};
    for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
        struct peer p;
        open_one(&p);
        PEER_SEND(&p, targets[i]);
        STEP_UNTIL(&p, p.eof || p.reset);
        CHECK_INT(status_of(&p), 500);
        CHECK_INT(count_of(peer_text(&p), "HTTP/1.1"), 1);
        CHECK(strstr(peer_text(&p), "evil") == NULL);
        CHECK(strstr(peer_text(&p), "secret") == NULL);
        close_one(&p);
    }
}

TEST(http_24_a_bad_stream_lives_until_its_handler_ends_it)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, GET("/bad-stream"));
    STEP_UNTIL(&p, status_of(&p) == 500);
    loop_settle();
    REQUIRE(held);
    CHECK(http_response_write(held, "secret", 6));
    loop_settle();
    http_response_end(held);
    STEP_UNTIL(&p, p.eof);
    CHECK(strstr(peer_text(&p), "secret") == NULL);
    CHECK_INT(gones, 0);
    close_one(&p);
    /* or until the peer leaves */
    open_one(&p);
    PEER_SEND(&p, GET("/bad-stream"));
    STEP_UNTIL(&p, status_of(&p) == 500);
    close_fd(&p.fd);
    STEP_UNTIL(NULL, gones == 1);
    close_one(&p);
}

TEST(http_server_own_headers_give_way)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, GET("/own-date"));
    STEP_UNTIL(&p, ends_with(&p, "ok"));
    CHECK(strstr(peer_text(&p), "date: today\r\nX-COMMON: mine\r\n"));
    CHECK(strstr(peer_text(&p), "Date: ") == NULL);
    CHECK(strstr(peer_text(&p), "X-Common: ") == NULL);
    close_one(&p);
}

TEST(http_server_answer_in_the_middle_of_a_body)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, POST("/enough") "Content-Length: 10\r\n\r\nabc");
    STEP_UNTIL(&p, ends_with(&p, "enough"));
    CHECK(strstr(peer_text(&p), "Connection") == NULL); /* the rest is small */
    PEER_SEND(&p, "defghij" GET("/ping?next"));
    STEP_UNTIL(&p, ends_with(&p, "pong next"));
    CHECK_STREQ(buf_cstr(&seen), "abc|");
    buf_clear(&p.got);
    PEER_SEND(&p, POST("/enough") "Content-Length: 1000000\r\n\r\nabc");
    STEP_UNTIL(&p, p.eof);
    CHECK(strstr(peer_text(&p), "Connection: close\r\n"));
    CHECK_INT(ends, 0);
    close_one(&p);
}

TEST(http_server_promised_length_is_kept_or_the_connection_breaks)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, GET("/short"));
    STEP_UNTIL(&p, p.eof || p.reset);
    CHECK(count_of(peer_text(&p), "HTTP/1.1") <= 1);
    close_one(&p);
    open_one(&p);
    PEER_SEND(&p, GET("/long"));
    STEP_UNTIL(&p, p.eof || p.reset);
    CHECK(strstr(peer_text(&p), "much") == NULL);
    CHECK_INT(gones, 0);
    close_one(&p);
}

TEST(http_server_sse)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, GET("/sse"));
    STEP_UNTIL(&p, ends_with(&p, "0\r\n\r\n"));
    CHECK(strstr(peer_text(&p), "Content-Type: text/event-stream\r\nCache-Control: no-cache\r\n"));
    CHECK(strstr(peer_text(&p), "Connection: keep-alive\r\n"));
    CHECK(strstr(peer_text(&p), "\r\ndata: {\"a\":1}\n\n\r\n"));
    CHECK(strstr(peer_text(&p), "\r\nid: 7\ndata: { \"b\": 2}\n\n\r\n"));
    close_one(&p);
}

TEST(http_server_close_after)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, GET("/close") GET("/ping"));
    STEP_UNTIL(&p, p.eof);
    CHECK(ends_with(&p, "Connection: close\r\n\r\nbye"));
    CHECK_INT(requests, 1);
    close_one(&p);
}

TEST(http_server_abort)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, GET("/abort"));
    STEP_UNTIL(&p, p.eof || p.reset);
    CHECK_INT(buf_len(&p.got), 0);
    CHECK_INT(gones, 0);
    CHECK_INT(http_server_connections(server), 0);
    close_one(&p);
    open_one(&p);
    PEER_SEND(&p, GET("/abort-stream"));
    STEP_UNTIL(&p, p.eof || p.reset);
    CHECK(!ends_with(&p, "0\r\n\r\n"));
    CHECK_INT(gones, 0);
    close_one(&p);
}

/* ------------------------------------------------------------------ request bodies */

TEST(http_server_body_is_delivered)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, POST("/read") "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    STEP_UNTIL(&p, ends_with(&p, "read"));
    CHECK_STREQ(buf_cstr(&seen), "abc|de|");
    CHECK_INT(ends, 1);
    CHECK_INT(last_end, 0);
    CHECK_INT(gones, 0);
    close_one(&p);
}

TEST(http_server_empty_body_ends_too)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, GET("/read") POST("/echo") "Content-Length: 0\r\n\r\n" POST(
                      "/echo") "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" GET("/ping?e"));
    STEP_UNTIL(&p, ends_with(&p, "pong e"));
    CHECK_INT(ends, 3);
    CHECK_INT(count_of(peer_text(&p), "HTTP/1.1 200"), 4);
    close_one(&p);
}

TEST(http_server_large_body)
{
    struct peer p;
    static char body[100000];
    open_one(&p);
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (char)('a' + i % 26);
    PEER_SEND(&p, POST("/echo") "Content-Length: 100000\r\n\r\n");
    CHECK(peer_send(&p, body, sizeof body));
    STEP_UNTIL(&p, buf_len(&p.got) > sizeof body &&
                       memcmp(buf_data(&p.got) + buf_len(&p.got) - sizeof body, body, sizeof body) == 0);
    close_one(&p);
}

TEST(http_server_body_beyond_its_limit)
{
    static const char *const heads[] = {
        POST("/echo") "Content-Length: 100001\r\n\r\n",
        POST("/read") "Content-Length: 9000000000\r\n\r\n",
        POST("/read") "Content-Length: 100001\r\nExpect: 100-continue\r\n\r\n",
        POST("/read") "Transfer-Encoding: chunked\r\n\r\n186a0\r\n",
    };
    static char body[100010];
    memset(body, 'x', sizeof body);
    memcpy(body + 100000, "\r\n1\r\ny\r\n", 8);
    for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
        struct peer p;
        open_one(&p);
        PEER_SEND(&p, heads[i]);
        if (i == 3)
            CHECK(peer_send(&p, body, 100008));
        STEP_UNTIL(&p, p.eof || p.reset);
        CHECK_INT(status_of(&p), 413);
        CHECK(strstr(peer_text(&p), "Connection: close\r\n"));
        CHECK(strstr(peer_text(&p), "100 Continue") == NULL);
        CHECK_INT(last_end, -EMSGSIZE);
        CHECK_INT(ends, 1);
        CHECK_INT(gones, 0);
        close_one(&p);
    }
}

TEST(http_server_bad_chunk_ends_the_request)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, POST("/read") "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nnonsense\r\n");
    STEP_UNTIL(&p, p.eof);
    CHECK_INT(status_of(&p), 400);
    CHECK_INT(ends, 1);
    CHECK_INT(last_end, -EBADMSG);
    CHECK_INT(gones, 1);
    close_one(&p);
}

TEST(http_server_unread_bodies)
{
    struct peer p;
    static char body[70000];
    memset(body, 'x', sizeof body);
    open_one(&p);
    /* small ones are skipped, the connection lives on */
    PEER_SEND(&p, POST("/ping?1") "Content-Length: 5\r\n\r\nhello" POST(
                      "/ping?2") "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" GET("/ping?3"));
    STEP_UNTIL(&p, ends_with(&p, "pong 3"));
    CHECK_INT(count_of(peer_text(&p), "HTTP/1.1 200"), 3);
    /* a small one that comes later, too */
    buf_clear(&p.got);
    PEER_SEND(&p, POST("/ping?4") "Content-Length: 5\r\n\r\n");
    STEP_UNTIL(&p, ends_with(&p, "pong 4"));
    PEER_SEND(&p, "hello" GET("/ping?5"));
    STEP_UNTIL(&p, ends_with(&p, "pong 5"));
    /* a large one costs the connection, but not the answer */
    buf_clear(&p.got);
    PEER_SEND(&p, POST("/ping?6") "Content-Length: 70000\r\n\r\n");
    CHECK(peer_send(&p, body, sizeof body));
    STEP_UNTIL(&p, p.eof);
    CHECK(strstr(peer_text(&p), "Connection: close\r\n"));
    CHECK(ends_with(&p, "pong 6"));
    close_one(&p);
    /* one of unknown length: at the limit */
    open_one(&p);
    PEER_SEND(&p, POST("/ping?7") "Transfer-Encoding: chunked\r\n\r\nfffff\r\n");
    CHECK(peer_send(&p, body, sizeof body));
    STEP_UNTIL(&p, p.eof);
    CHECK(ends_with(&p, "pong 7"));
    close_one(&p);
}

TEST(http_18_expect_continue)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, POST("/echo") "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    STEP_UNTIL(&p, ends_with(&p, "HTTP/1.1 100 Continue\r\n\r\n"));
    PEER_SEND(&p, "hello");
    STEP_UNTIL(&p, ends_with(&p, "\r\n\r\nhello"));
    CHECK_INT(count_of(peer_text(&p), "HTTP/1.1 "), 2);
    /* the body is there already: nobody waits for a 100 */
    buf_clear(&p.got);
    PEER_SEND(&p, POST("/echo") "Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhello");
    STEP_UNTIL(&p, ends_with(&p, "\r\n\r\nhello"));
    CHECK_INT(count_of(peer_text(&p), "HTTP/1.1 "), 1);
    /* without a body there is nothing to continue */
    buf_clear(&p.got);
    PEER_SEND(&p, "GET /ping?e HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n");
    STEP_UNTIL(&p, ends_with(&p, "pong e"));
    CHECK_INT(count_of(peer_text(&p), "HTTP/1.1 "), 1);
    /* a handler that does not want the body: nobody knows if it still comes */
    buf_clear(&p.got);
    PEER_SEND(&p, POST("/ping?n") "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    STEP_UNTIL(&p, p.eof);
    CHECK(strstr(peer_text(&p), "Connection: close\r\n"));
    CHECK(ends_with(&p, "pong n"));
    close_one(&p);
}

TEST(http_server_paused_reader)
{
    struct peer p;
    static char body[200000];
    size_t sent = 0;
    memset(body, 'x', sizeof body);
    open_one(&p);
    PEER_SEND(&p, POST("/paused") "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n61a80\r\n");
    STEP_UNTIL(&p, buf_len(&seen));
    loop_settle();
    CHECK_STREQ(buf_cstr(&seen), "abc|"); /* not one piece more */
    for (int i = 0; i < 100; i++) {       /* the sender is stopped by the socket, not by our memory */
        ssize_t n = send(p.fd, body, sizeof body, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0)
            sent += (size_t)n;
        loop_settle();
    }
    CHECK(sent < sizeof body * 4);
    CHECK_STREQ(buf_cstr(&seen), "abc|");
    http_request_read_resume(held);
    STEP_UNTIL(&p, buf_len(&seen) > 4);
    loop_settle();
    CHECK_STREQ(buf_cstr(&seen), "abc|def|");
    close_one(&p);
    CHECK_INT(gones, 1);
}

/* ------------------------------------------------------------------ time */

TEST(http_13_slow_head_is_408)
{
    struct peer p;
    begin();
    limits.head_timeout_ms = 30;
    serve();
    adopt(&p);
    PEER_SEND(&p, "GET /ping HTTP/1.1\r\n");
    STEP_UNTIL(&p, p.eof);
    CHECK_INT(status_of(&p), 408);
    CHECK_INT(requests, 0);
    close_one(&p);
}

TEST(http_14_idle_connection_is_closed)
{
    struct peer p;
    begin();
    limits.idle_timeout_ms = 30;
    serve();
    adopt(&p);
    PEER_SEND(&p, GET("/ping"));
    STEP_UNTIL(&p, p.eof);
    CHECK_INT(count_of(peer_text(&p), "HTTP/1.1 "), 1); /* the answer, then silently the end */
    close_one(&p);
}

TEST(http_server_busy_connection_outlives_the_idle_time)
{
    struct peer p;
    begin();
    limits.idle_timeout_ms = 2000; /* longer than any machine stands still */
    serve();
    adopt(&p);
    int64_t end = clock_mono_ms() + 2500;
    while (clock_mono_ms() < end) {
        buf_clear(&p.got);
        PEER_SEND(&p, GET("/ping?again"));
        STEP_UNTIL(&p, ends_with(&p, "pong again"));
        (void)loop_step(loop, 20);
    }
    CHECK(!p.eof);
    close_one(&p);
}

TEST(http_13_slow_body_is_408)
{
    struct peer p;
    begin();
    limits.body_grace_ms = 30;
    limits.body_min_bps = 1000;
    serve();
    adopt(&p);
    PEER_SEND(&p, POST("/read") "Content-Length: 100\r\n\r\nabc");
    STEP_UNTIL(&p, p.eof);
    CHECK_INT(status_of(&p), 408);
    CHECK_INT(last_end, -ETIMEDOUT);
    CHECK_INT(ends, 1);
    CHECK_INT(gones, 1);
    close_one(&p);
}

TEST(http_server_fast_body_outlives_the_grace)
{
    struct peer p;
    char piece[100];
    memset(piece, 'x', sizeof piece);
    begin();
    limits.body_grace_ms = 1000;
    limits.body_min_bps = 100; /* a hundred bytes per window */
    serve();
    adopt(&p);
    PEER_SEND(&p, POST("/read") "Content-Length: 10000\r\n\r\n");
    int64_t start = clock_mono_ms();
    for (int i = 0; i < 100; i++) { /* three windows long */
        CHECK(peer_send(&p, piece, sizeof piece));
        while (clock_mono_ms() < start + 33 * i)
            (void)loop_step(loop, 1);
    }
    STEP_UNTIL(&p, ends_with(&p, "read"));
    CHECK_INT(last_end, 0);
    close_one(&p);
}

TEST(http_server_paused_time_does_not_count)
{
    struct peer p;
    begin();
    limits.body_grace_ms = 300;
    limits.body_min_bps = 100000;
    serve();
    adopt(&p);
    PEER_SEND(&p, POST("/paused") "Content-Length: 6\r\n\r\nabc");
    STEP_UNTIL(&p, buf_len(&seen));
    int64_t end = clock_mono_ms() + 900;
    while (clock_mono_ms() < end)
        (void)loop_step(loop, 5);
    CHECK_INT(ends, 0);
    PEER_SEND(&p, "def");
    http_request_read_resume(held);
    STEP_UNTIL(&p, count_of(buf_cstr(&seen), "|") == 2);
    http_request_read_resume(held);
    STEP_UNTIL(&p, ends_with(&p, "read"));
    close_one(&p);
}

/* ------------------------------------------------------------------ back pressure */

TEST(http_server_reader_that_stops)
{
    struct peer p;
    size_t total = 20 << 20;
    open_one(&p);
    flow_left = total;
    PEER_SEND(&p, GET("/flow"));
    STEP_UNTIL(NULL, held);
    loop_settle();
    CHECK(flow_left > total / 2); /* the handler was told to stop */
    CHECK(http_response_queued(held) <= limits.send_high + 40000);
    CHECK(http_response_queued(held) > limits.send_high);
    CHECK_INT(drains, 0);
    STEP_UNTIL(&p, buf_len(&p.got) > total);
    CHECK(drains > 10);
    CHECK_INT(flow_left, 0);
    const char *body = strstr(peer_text(&p), "\r\n\r\n") + 4;
    CHECK_INT(strspn(body, "f"), total);
    CHECK_INT(strlen(body), total);
    buf_clear(&p.got);
    PEER_SEND(&p, GET("/ping?next"));
    STEP_UNTIL(&p, ends_with(&p, "pong next"));
    close_one(&p);
}

TEST(http_server_pipelining_without_reading_stops)
{
    /* answers that nobody reads must not pile up: requests wait instead */
    struct peer p;
    size_t sent = 0;
    open_one(&p);
    static const char text[] = GET("/file?n=900");
    for (int i = 0; i < 20000; i++) {
        ssize_t n = send(p.fd, text, sizeof text - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n != (ssize_t)sizeof text - 1)
            break;
        sent++;
        if (i % 16 == 0)
            loop_settle();
    }
    loop_settle();
    CHECK(sent > 100);
    CHECK(requests < (int)sent);
    int before = requests;
    loop_settle();
    CHECK_INT(requests, before);
    STEP_UNTIL(&p, requests == (int)sent);
    STEP_UNTIL(&p, count_of(peer_text(&p), ">>>>") == sent);
    close_one(&p);
}

TEST(http_server_sendfile)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, GET("/file?n=1000") GET("/file?n=52&mode=chunked") GET("/file?n=10&mode=proc"));
    STEP_UNTIL(&p, count_of(peer_text(&p), ">>>>") == 3);
    const char *s = peer_text(&p);
    CHECK(strstr(s, "\r\n\r\n<<<<abcdefghijklmnopqrstuvwxyzabc"));
    CHECK(strstr(s,
                 "\r\n\r\n4\r\n<<<<\r\n34\r\nabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\r\n4\r\n>>"
                 ">>\r\n0\r\n\r\n"));
    CHECK(strstr(s, "\r\n\r\n<<<<Name:"));
    CHECK_INT(count_of(s, "HTTP/1.1 200"), 3);
    /* a file that is shorter than promised breaks the connection */
    buf_clear(&p.got);
    PEER_SEND(&p, GET("/file?n=1001"));
    STEP_UNTIL(&p, p.eof || p.reset);
    CHECK(strstr(peer_text(&p), ">>>>") == NULL);
    close_one(&p);
}

TEST(http_server_sendfile_for_head)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, "HEAD /file?n=1000 HTTP/1.1\r\nHost: x\r\n\r\n" GET("/ping?1"));
    STEP_UNTIL(&p, ends_with(&p, "pong 1"));
    CHECK(strstr(peer_text(&p), "Content-Length: 1008\r\n"));
    CHECK(strstr(peer_text(&p), "<<<<") == NULL);
    close_one(&p);
}

/* ------------------------------------------------------------------ departures */

TEST(http_16_half_close_gets_its_answer)
{
    struct peer p;
    open_tcp(&p);
    PEER_SEND(&p, GET("/hold") GET("/ping?2"));
    (void)shutdown(p.fd, SHUT_WR);
    STEP_UNTIL(NULL, held);
    loop_settle();
    CHECK_INT(gones, 0);
    http_respond(held, 200, NULL, "still", 5);
    STEP_UNTIL(&p, p.eof);
    CHECK(strstr(peer_text(&p), "still"));
    CHECK(ends_with(&p, "pong 2"));
    STEP_UNTIL(NULL, http_server_connections(server) == 0);
    close_one(&p);
}

TEST(http_16_cut_off_requests)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, "GET /ping HT");
    (void)shutdown(p.fd, SHUT_WR);
    STEP_UNTIL(&p, p.eof);
    CHECK_INT(status_of(&p), 400);
    close_one(&p);
    open_one(&p);
    PEER_SEND(&p, POST("/read") "Content-Length: 5\r\n\r\nab");
    (void)shutdown(p.fd, SHUT_WR);
    STEP_UNTIL(&p, p.eof);
    CHECK_INT(status_of(&p), 400);
    CHECK_INT(last_end, -EBADMSG);
    CHECK_INT(gones, 1);
    close_one(&p);
}

TEST(http_16_reset_in_the_middle_of_a_body)
{
    struct peer p;
    open_tcp(&p);
    PEER_SEND(&p, POST("/read") "Content-Length: 5\r\n\r\nab");
    STEP_UNTIL(NULL, buf_len(&seen));
    struct linger hard = {.l_onoff = 1};
    (void)setsockopt(p.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close_fd(&p.fd);
    STEP_UNTIL(NULL, gones == 1);
    CHECK_INT(http_server_connections(server), 0);
    close_one(&p);
}

TEST(http_server_notices_a_departure_while_it_works)
{
    /* a unix peer that closes is gone at once; a TCP peer that closes looks like a half-close until we write
     */
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, GET("/hold"));
    STEP_UNTIL(NULL, held);
    close_fd(&p.fd);
    STEP_UNTIL(NULL, gones == 1);
    CHECK_INT(http_server_connections(server), 0);
    close_one(&p);
}

TEST(http_server_notices_a_departure_while_it_streams)
{
    struct peer p;
    open_tcp(&p);
    PEER_SEND(&p, GET("/stream"));
    STEP_UNTIL(&p, ends_with(&p, "first\r\n"));
    (void)shutdown(p.fd, SHUT_WR);
    STEP_UNTIL(NULL, gones == 1);
    CHECK_INT(http_server_connections(server), 0);
    close_one(&p);
}

TEST(http_server_half_close_before_the_stream)
{
    struct peer p;
    open_tcp(&p);
    PEER_SEND(&p, GET("/hold"));
    (void)shutdown(p.fd, SHUT_WR);
    STEP_UNTIL(NULL, held);
    loop_settle();
    http_response_begin(held, 200, NULL, 0, -1);
    (void)http_response_write(held, "one", 3);
    STEP_UNTIL(&p, ends_with(&p, "one\r\n"));
    CHECK_INT(gones, 0);
    http_response_end(held);
    STEP_UNTIL(&p, p.eof);
    CHECK(ends_with(&p, "0\r\n\r\n"));
    close_one(&p);
}

TEST(http_17_departures_in_the_middle_of_large_answers)
{
    begin();
    serve();
    for (int i = 0; i < 200; i++) {
        struct peer p;
        adopt(&p);
        flow_left = 4 << 20;
        held = NULL;
        PEER_SEND(&p, i % 2 ? GET("/flow") : GET("/file?n=1000"));
        STEP_UNTIL(NULL, i % 2 ? held != NULL : requests > i);
        (void)peer_read(&p, 1000);
        peer_done(&p);
        STEP_UNTIL(NULL, http_server_connections(server) == 0);
    }
    CHECK_INT(gones, 100);
    finish();
}

TEST(http_server_write_failure_calls_on_gone_later_not_at_once)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, GET("/stream"));
    STEP_UNTIL(&p, ends_with(&p, "first\r\n"));
    static char big[100000];
    close_fd(&p.fd);
    (void)http_response_write(held, big, sizeof big); /* fails inside */
    CHECK_INT(gones, 0);
    STEP_UNTIL(NULL, gones == 1);
    close_one(&p);
}

TEST(http_server_freed_with_requests_in_flight)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(&p, GET("/hold"));
    STEP_UNTIL(NULL, held);
    http_server_free(server);
    CHECK_INT(gones, 1);
    server = NULL;
    STEP_UNTIL(&p, p.eof || p.reset);
    close_one(&p);
}

static void free_the_server(struct http_request *req, void *arg)
{
    (void)arg;
    req->on_gone = on_gone;
    http_server_free(server);
    server = NULL;
}

TEST(http_server_freed_by_its_own_handler)
{
    struct peer p;
    struct error e;
    begin();
    struct http_server_config config = {.loop = loop, .limits = limits, .request = free_the_server};
    CHECK_INT(http_server_new(&config, &server, &e), 0);
    adopt(&p);
    PEER_SEND(&p, GET("/") GET("/"));
    STEP_UNTIL(&p, p.eof || p.reset);
    CHECK_INT(gones, 1);
    close_one(&p);
}

TEST(http_server_stop_listening)
{
    struct peer idle, busy;
    begin();
    serve();
    adopt(&idle);
    adopt(&busy);
    PEER_SEND(&idle, GET("/ping"));
    PEER_SEND(&busy, GET("/hold"));
    STEP_UNTIL(&idle, held && ends_with(&idle, "pong "));
    http_server_stop_listening(server);
    STEP_UNTIL(&idle, idle.eof);
    CHECK_INT(http_server_connections(server), 1);
    http_respond(held, 200, NULL, "last", 4);
    STEP_UNTIL(&busy, busy.eof);
    CHECK(ends_with(&busy, "Connection: close\r\n\r\nlast"));
    peer_done(&idle);
    close_one(&busy);
}

TEST(http_server_stop_listening_behind_the_last_answer)
{
    struct peer p;
    open_one(&p);
    flow_left = 4 << 20;
    PEER_SEND(&p, GET("/flow"));
    STEP_UNTIL(NULL, held);
    STEP_UNTIL(&p, flow_left == 0);
    http_server_stop_listening(server);
    STEP_UNTIL(&p, p.eof);
    CHECK(buf_len(&p.got) > 4 << 20);
    CHECK_INT(gones, 0);
    close_one(&p);
}

TEST(http_server_answer_that_nobody_takes)
{
    struct peer p;
    begin();
    limits.idle_timeout_ms = 30;
    serve();
    adopt(&p);
    flow_left = 8 << 20;
    PEER_SEND(&p, GET("/flow"));
    STEP_UNTIL(NULL, held);
    loop_settle();
    /* while the handler still streams it is the handler's affair */
    int64_t end = clock_mono_ms() + 80;
    while (clock_mono_ms() < end)
        (void)loop_step(loop, 10);
    CHECK_INT(http_server_connections(server), 1);
    while (flow_left)
        flow(held); /* does not care */
    http_response_end(held);
    STEP_UNTIL(NULL, http_server_connections(server) == 0);
    CHECK_INT(gones, 0);
    close_one(&p);
}

/* ------------------------------------------------------------------ upgrades */

TEST(http_server_hijack)
{
    struct peer p;
    open_one(&p);
    PEER_SEND(
        &p,
        GET("/ping?1") "GET /hijack HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nrest");
    STEP_UNTIL(&p, taken_fd >= 0);
    CHECK_STREQ(buf_cstr(&taken_rest), "rest");
    CHECK_INT(http_server_connections(server), 0);
    CHECK_INT(send(taken_fd, "raw", 3, MSG_NOSIGNAL), 3);
    STEP_UNTIL(&p, ends_with(&p, "pong 1raw"));
    CHECK_INT(gones, 0);
    close_one(&p);
}

TEST(http_server_hijack_waits_for_what_is_still_to_be_sent)
{
    struct peer p;
    open_one(&p);
    flow_left = 4 << 20;
    PEER_SEND(&p,
              GET("/flow") "GET /hijack HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
    STEP_UNTIL(NULL, held);
    loop_settle();
    CHECK_INT(taken_fd, -1);
    STEP_UNTIL(&p, taken_fd >= 0);
    CHECK_INT(send(taken_fd, "raw", 3, MSG_NOSIGNAL), 3);
    STEP_UNTIL(&p, ends_with(&p, "fraw"));
    close_one(&p);
}

/* ------------------------------------------------------------------ admission */

TEST(http_server_connection_limit)
{
    struct peer a, b;
    char name[64];
    begin();
    limits.connections_max = 1;
    serve();
    listen_tcp(name);
    connect_tcp(&a, name);
    PEER_SEND(&a, GET("/hold")); /* who waits for an answer stays */
    STEP_UNTIL(&a, held);
    connect_tcp(&b, name);
    STEP_UNTIL(&b, b.eof);
    CHECK_INT(status_of(&b), 503);
    CHECK(!a.eof);
    http_respond(take_ptr(held), 200, NULL, "at last", 7);
    STEP_UNTIL(&a, ends_with(&a, "at last"));
    peer_done(&a);
    STEP_UNTIL(NULL, http_server_connections(server) == 0);
    connect_tcp(&a, name);
    PEER_SEND(&a, GET("/ping?again"));
    STEP_UNTIL(&a, ends_with(&a, "pong again"));
    peer_done(&b);
    close_one(&a);
}

/* Of those who ask for nothing, or not to the end (HTTP-13), the oldest makes room for the newcomer. */
TEST(http_14_the_longest_idle_makes_room)
{
    struct peer asked, silent, slow, late;
    char name[64];
    begin();
    limits.connections_max = 3;
    serve();
    listen_tcp(name);
    connect_tcp(&silent, name);
    STEP_UNTIL(NULL, http_server_connections(server) == 1);
    connect_tcp(&slow, name);
    PEER_SEND(&slow, "GET / HTTP/1.1\r\nHost:");
    STEP_UNTIL(NULL, http_server_connections(server) == 2);
    connect_tcp(&asked, name);
    PEER_SEND(&asked, GET("/ping?first"));
    STEP_UNTIL(&asked, ends_with(&asked, "pong first"));

    connect_tcp(&late, name);
    PEER_SEND(&late, GET("/ping?late"));
    STEP_UNTIL(&late, ends_with(&late, "pong late"));
    STEP_UNTIL(&silent, silent.eof);
    CHECK_INT(http_server_connections(server), 3);
    peer_done(&silent);

    connect_tcp(&silent, name);
    PEER_SEND(&silent, GET("/ping?again"));
    STEP_UNTIL(&silent, ends_with(&silent, "pong again"));
    STEP_UNTIL(&slow, slow.eof);
    CHECK_INT(buf_len(&slow.got), 0);
    buf_clear(&asked.got);
    PEER_SEND(&asked, GET("/ping?still"));
    STEP_UNTIL(&asked, ends_with(&asked, "pong still"));
    peer_done(&silent);
    peer_done(&slow);
    peer_done(&late);
    close_one(&asked);
}

TEST(http_server_limit_per_peer)
{
    struct peer a, b, u;
    char name[64];
    begin();
    limits.per_peer_max = 1;
    serve();
    listen_tcp(name);
    connect_tcp(&a, name);
    STEP_UNTIL(&a, http_server_connections(server) == 1);
    connect_tcp(&b, name);
    STEP_UNTIL(&b, b.eof);
    CHECK_INT(status_of(&b), 503);
    adopt(&u); /* unix peers have no address and do not count */
    PEER_SEND(&u, GET("/ping?u"));
    STEP_UNTIL(&u, ends_with(&u, "pong u"));
    peer_done(&a);
    peer_done(&b);
    STEP_UNTIL(NULL, http_server_connections(server) == 1);
    connect_tcp(&a, name);
    PEER_SEND(&a, GET("/ping?again"));
    STEP_UNTIL(&a, ends_with(&a, "pong again"));
    peer_done(&u);
    close_one(&a);
}

TEST(http_server_two_per_peer)
{
    struct peer p[3];
    char name[64];
    begin();
    limits.per_peer_max = 2;
    serve();
    listen_tcp(name);
    for (size_t i = 0; i < 3; i++)
        connect_tcp(&p[i], name);
    STEP_UNTIL(&p[2], p[2].eof);
    CHECK_INT(status_of(&p[2]), 503);
    CHECK_INT(http_server_connections(server), 2);
    for (size_t i = 0; i < 3; i++)
        peer_done(&p[i]);
    STEP_UNTIL(NULL, http_server_connections(server) == 0);
    finish();
}

TEST(http_server_peer_names_v6)
{
    struct peer p;
    struct error e;
    char name[64], expected[64];
    int fd;
    begin();
    serve();
    if (socket_listen_tcp("[::1]:0", &fd, &e) < 0) {
        test_skip("no IPv6 here");
        finish();
        return;
    }
    CHECK_INT(socket_local_name(fd, name, sizeof name), 0);
    CHECK_INT(http_server_listen(server, fd, &e), 0);
    connect_tcp(&p, name);
    CHECK_INT(socket_local_name(p.fd, expected, sizeof expected), 0);
    PEER_SEND(&p, GET("/hold"));
    STEP_UNTIL(NULL, held);
    CHECK_STREQ(held->peer, expected);
    CHECK_STREQ(http_request_header(held, "HOST"), "x");
    CHECK(http_request_header(held, "Nope") == NULL);
    close_one(&p);
}

TEST(http_server_refuses_bad_common_headers)
{
    static const struct http_header bad[] = {{"A", "b\r\n"}};
    struct error e;
    begin();
    struct http_server_config config = {
        .loop = loop, .limits = limits, .request = handler, .common_headers = bad, .common_count = 1};
    server = NULL;
    CHECK_INT(http_server_new(&config, &server, &e), -EINVAL);
    finish();
}

TEST(http_server_peer_names)
{
    struct peer p, u;
    char name[64], expected[64];
    begin();
    serve();
    listen_tcp(name);
    connect_tcp(&p, name);
    CHECK_INT(socket_local_name(p.fd, expected, sizeof expected), 0);
    PEER_SEND(&p, GET("/hold"));
    STEP_UNTIL(NULL, held);
    CHECK_STREQ(held->peer, expected);
    held = NULL;
    adopt(&u);
    PEER_SEND(&u, GET("/hold"));
    STEP_UNTIL(NULL, held);
    CHECK_STREQ(held->peer, "unix");
    peer_done(&u);
    close_one(&p);
}

TEST(http_15_out_of_descriptors)
{
    struct peer p[40];
    char name[64];
    struct rlimit old, low;
    size_t open_now = 0;
    begin();
    serve();
    listen_tcp(name);
    for (size_t i = 0; i < ARRAY_SIZE(p); i++)
        connect_tcp(&p[i], name);
    /* leave room for ten more descriptors only: the rest of the connections wait in the backlog */
    int probe = dup(0);
    (void)close(probe);
    (void)getrlimit(RLIMIT_NOFILE, &old);
    low = old;
    low.rlim_cur = (rlim_t)probe + 10;
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &low), 0);
    STEP_UNTIL(NULL, http_server_connections(server) == 10);
    int64_t start = clock_mono_ms();
    int events = 0;
    while (clock_mono_ms() - start < 50) {
        int n = loop_step(loop, 10);
        events += MAX(n, 0);
    }
    CHECK(events < 20); /* no spinning on the listener */
    for (size_t i = 0; i < ARRAY_SIZE(p); i++)
        open_now += peer_read(&p[i], 1000) == 0 && !p[i].eof && !p[i].reset;
    CHECK(open_now < ARRAY_SIZE(p)); /* one at least was told */
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &old), 0);
    STEP_UNTIL(NULL, http_server_connections(server) > 30);
    PEER_SEND(&p[39], GET("/ping?last"));
    STEP_UNTIL(&p[39], ends_with(&p[39], "pong last"));
    for (size_t i = 0; i < ARRAY_SIZE(p); i++)
        peer_done(&p[i]);
    finish();
}
