/* SPDX-License-Identifier: Apache-2.0 */
/* test_http_chaos.c: server and clients whose every step is drawn by lot: whoever frees too early, calls back
 * too late or twice, or forgets a connection, is found by the counts below or by the sanitizers. Same lots in
 * every run. */
#include "http_fixture.h"

enum { SLOTS = 24, ROUNDS = 30000 };

static uint32_t lot = 1;

static uint32_t draw(uint32_t n)
{
    lot = lot * 1664525 + 1013904223;
    return (lot >> 8) % n;
}

/* ------------------------------------------------------------------ a handler without manners */

struct job {
    struct http_request *req; /* NULL: free */
    bool reading, begun;
};
static struct job jobs[256];
static size_t alive, started, finished;
static struct http_server *server;

static struct job *job_of(struct http_request *req)
{
    return req->user;
}

static void job_end(struct job *j)
{
    *j = (struct job){0};
    alive--;
    finished++;
}

static void on_gone(struct http_request *req)
{
    CHECK(job_of(req)->req == req);
    CHECK(req->method[0] != '\0' && req->path[0] != '\0'); /* still readable */
    job_end(job_of(req));
}

static void on_drain(struct http_request *req)
{
    CHECK(job_of(req)->req == req);
    if (draw(2))
        (void)http_response_write(req, "drained", 7);
}

static void act(struct job *j);

static void on_data(struct http_request *req, const char *data, size_t n)
{
    CHECK(n > 0 && data);
    CHECK(job_of(req)->req == req);
    if (draw(4) == 0)
        act(job_of(req));
}

static void on_end(struct http_request *req, int err)
{
    struct job *j = job_of(req);
    CHECK(j->req == req);
    CHECK(err == 0 || err == -EMSGSIZE || err == -EBADMSG || err == -ETIMEDOUT);
    if (draw(2))
        act(j);
}

static void on_collected(struct http_request *req, struct buf *body, int err)
{
    CHECK(buf_len(body) <= 5000);
    on_end(req, err);
}

static void begin_stream(struct job *j)
{
    static const struct http_header good[] = {{"X", "y"}}, bad[] = {{"X", "y\n"}};
    j->begun = true;
    http_response_begin(j->req, draw(10) ? 200 : 204, draw(10) ? good : bad, 1,
                        draw(2) ? -1 : (int64_t)draw(3000));
}

/* One lot for one request. */
static void act(struct job *j)
{
    static const struct http_body_sink sink = {.on_data = on_data, .on_end = on_end};
    static char text[40000];
    struct http_request *req = j->req;
    switch (draw(12)) {
    case 0:
        job_end(j);
        http_respond(req, 200, "text/plain", text, draw(3) ? draw(100) : draw(sizeof text));
        break;
    case 1:
        job_end(j);
        http_response_abort(req);
        break;
    case 2:
        if (!j->reading) {
            j->reading = true;
            http_request_read_start(req, draw(3000), &sink);
        }
        break;
    case 3:
        if (!j->reading) {
            j->reading = true;
            http_request_collect(req, draw(5000), on_collected);
        }
        break;
    case 4:
        http_request_read_pause(req);
        break;
    case 5:
        http_request_read_resume(req);
        break;
    case 6:
        if (!j->begun)
            begin_stream(j);
        break;
    case 7:
    case 8:
        if (j->begun)
            (void)http_response_write(req, text, draw(10) ? draw(200) : draw(sizeof text));
        break;
    case 9:
        if (j->begun) {
            int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
            if (fd >= 0)
                http_response_sendfile(req, fd, 0, draw(200));
        }
        break;
    case 10:
        job_end(j);
        http_response_end(req);
        break;
    case 11:
        if (draw(8) == 0) {
            struct buf rest = BUF_INIT(1 << 20);
            job_end(j);
            int fd = http_hijack(req, &rest);
            if (fd >= 0)
                (void)close(fd);
            buf_done(&rest);
        } else {
            http_response_close_after(req);
        }
        break;
    }
}

static void handler(struct http_request *req, void *arg)
{
    (void)arg;
    started++;
    for (size_t i = 0; i < ARRAY_SIZE(jobs); i++)
        if (!jobs[i].req) {
            jobs[i] = (struct job){.req = req};
            req->user = &jobs[i];
            req->on_gone = on_gone;
            req->on_drain = on_drain;
            alive++;
            if (draw(2))
                act(&jobs[i]);
            return;
        }
    finished++;
    http_respond(req, 503, NULL, NULL, 0);
}

/* ------------------------------------------------------------------ raw peers */

static const char *const texts[] = {
    "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET / HTTP/1.0\r\nHost: x\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789",
    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n0123456789",
    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nbad\r\n",
    "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\nhello",
    "0123456789",
    "nonsense\r\n\r\n",
    "GET / HT",
};

static void peer_act(struct peer *p)
{
    char sink[4096];
    int fds[2];
    struct error e;
    if (p->fd < 0) {
        if (draw(3) == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0) {
            CHECK_INT(http_server_adopt(server, fds[0], &e), 0);
            p->fd = fds[1];
        }
        return;
    }
    const char *text = texts[draw(ARRAY_SIZE(texts))];
    size_t n = strlen(text);
    switch (draw(8)) {
    case 0:
    case 1:
    case 2:
        (void)send(p->fd, text, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
    case 3:
        (void)send(p->fd, text, draw((uint32_t)n), MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
    case 4:
    case 5:
        if (recv(p->fd, sink, sizeof sink, MSG_DONTWAIT) == 0)
            close_fd(&p->fd);
        break;
    case 6:
        if (draw(6) == 0)
            (void)shutdown(p->fd, SHUT_WR);
        break;
    case 7:
        if (draw(6) == 0)
            close_fd(&p->fd);
        break;
    }
}

/* ------------------------------------------------------------------ clients */

static struct http_client *clients[SLOTS];
static bool exchanging[SLOTS];
static size_t exchanges, exchange_ends;
static const struct http_client_ops ops;

static size_t slot_of(struct http_client *c)
{
    return (size_t)((struct http_client **)http_client_user(c) - clients);
}

static void client_gone(struct http_client *c)
{
    clients[slot_of(c)] = NULL;
    http_client_free(c);
}

static void client_head(struct http_client *c, int status, const struct http_header *headers, size_t count,
                        int64_t content_length)
{
    CHECK(status >= 200 && content_length >= -1 && (count == 0 || headers));
    if (draw(20) == 0) {
        exchanging[slot_of(c)] = false;
        exchange_ends++;
        client_gone(c);
    }
}

static void client_data(struct http_client *c, const char *data, size_t n)
{
    CHECK(data && n && exchanging[slot_of(c)]);
    if (draw(4) == 0)
        http_client_pause(c);
}

static void client_end(struct http_client *c, int err)
{
    (void)err;
    CHECK(exchanging[slot_of(c)]);
    exchanging[slot_of(c)] = false;
    exchange_ends++;
    if (!http_client_reusable(c) || draw(3) == 0)
        client_gone(c);
}

static const struct http_client_ops ops = {client_head, client_data, client_end, NULL, client_gone};

static void client_act(size_t i)
{
    static const struct http_header host[] = {{"Host", "x"}};
    static char text[10000];
    struct error e;
    int fds[2];
    if (!clients[i]) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
            return;
        CHECK_INT(http_server_adopt(server, fds[0], &e), 0);
        CHECK_INT(http_client_new(loop, fds[1], &clients[i], &e), 0);
        http_client_set_user(clients[i], &clients[i]);
        return;
    }
    switch (draw(6)) {
    case 0:
    case 1:
        if (!exchanging[i] && http_client_send(clients[i], draw(2) ? "POST" : "GET", "/", host, 1,
                                               draw(3) ? 0 : (int64_t)draw(4000) - 1, &ops) == 0) {
            exchanging[i] = true;
            exchanges++;
        }
        break;
    case 2:
        (void)http_client_write(clients[i], text, draw(2000));
        break;
    case 3:
        http_client_finish(clients[i]);
        break;
    case 4:
        http_client_resume(clients[i]);
        break;
    case 5:
        if (draw(20) == 0) {
            if (exchanging[i])
                exchange_ends++;
            exchanging[i] = false;
            client_gone(clients[i]);
        }
        break;
    }
}

TEST(http_chaos)
{
    static struct peer peers[SLOTS];
    struct error e;
    REQUIRE(loop_new(&loop, &e) == 0);
    struct http_server_config config = {.loop = loop, .limits = http_limits_default, .request = handler};
    config.limits.head_timeout_ms = 20;
    config.limits.idle_timeout_ms = 20;
    config.limits.body_grace_ms = 20;
    REQUIRE(http_server_new(&config, &server, &e) == 0);
    for (size_t i = 0; i < SLOTS; i++)
        peer_init(&peers[i], -1);
    for (int round = 0; round < ROUNDS; round++) {
        peer_act(&peers[draw(SLOTS)]);
        client_act(draw(SLOTS));
        size_t i = draw(ARRAY_SIZE(jobs));
        for (size_t k = 0; k < ARRAY_SIZE(jobs) && alive; k++, i = (i + 1) % ARRAY_SIZE(jobs))
            if (jobs[i].req) {
                act(&jobs[i]);
                break;
            }
        if (draw(3) == 0)
            (void)loop_step(loop, 0);
    }
    http_server_free(server);
    CHECK_INT(alive, 0); /* every request ended exactly once */
    CHECK_INT(started, finished);
    CHECK(started > 1000);
    STEP_UNTIL(NULL, ({
                   for (size_t i = 0; i < SLOTS; i++)
                       if (clients[i])
                           http_client_resume(clients[i]);
                   exchange_ends == exchanges;
               }));
    CHECK(exchanges > 500);
    for (size_t i = 0; i < SLOTS; i++) {
        http_client_free(clients[i]);
        peer_done(&peers[i]);
    }
    loop_free(loop);
}
