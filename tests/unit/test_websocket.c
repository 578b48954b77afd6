/* SPDX-License-Identifier: Apache-2.0 */
/* test_websocket.c: frames by the groups of the Autobahn suite (framing, pings, reserved bits, opcodes,
 * fragmentation, UTF-8, closing, limits), the handshake's key, and two connections talking to each other. */
#include "net/websocket.h"
#include "test.h"

#include <errno.h>
#include <sys/socket.h>

/* ------------------------------------------------------------------ one reader */

struct story {
    struct buf log; /* what was found, one line each */
    int code;       /* of a broken rule or a close; 0: none */
};

static void note(struct story *s, const struct ws_found *f)
{
    static const char *const names[] = {"", "message", "ping", "pong", "close", "broken"};
    s->code = f->event >= WS_EVENT_CLOSE ? f->code : s->code;
    if (f->event == WS_EVENT_MESSAGE)
        (void)buf_printf(&s->log, "%s %zu %.*s\n", f->text ? "text" : "binary", f->n,
                         (int)(f->n < 20 ? f->n : 20), f->n ? f->data : "");
    else if (f->event == WS_EVENT_PING || f->event == WS_EVENT_PONG)
        (void)buf_printf(&s->log, "%s %zu\n", names[f->event], f->n);
    else if (f->event != WS_EVENT_NONE)
        (void)buf_printf(&s->log, "%s %d\n", names[f->event], f->code);
}

/* Feeds the bytes in pieces of `step` and tells what came of it. */
static struct story tell(enum ws_role role, size_t max, const struct buf *bytes, size_t step)
{
    struct story s = {.log = BUF_INIT(1 << 20)};
    struct ws_reader r;
    struct ws_found f = {0};
    ws_reader_init(&r, role, max);
    for (size_t at = 0; at < buf_len(bytes) && f.event != WS_EVENT_BROKEN;) {
        size_t n = MIN(step, buf_len(bytes) - at);
        size_t used = ws_reader_feed(&r, buf_data(bytes) + at, n, &f);
        CHECK(used > 0 && used <= n);
        at += used;
        note(&s, &f);
    }
    ws_reader_done(&r);
    return s;
}

static void put(struct buf *b, unsigned first, const void *data, size_t n)
{
    static const unsigned char mask[4] = {0x11, 0x82, 0x93, 0xf4};
    unsigned char header[WS_HEADER_MAX];
    size_t head = ws_header(header, WS_TEXT, true, n, mask);
    header[0] = (unsigned char)first;
    (void)buf_append(b, header, head);
    char *to = buf_reserve(b, n ? n : 1);
    if (n)
        ws_mask(to, data, n, mask, 0);
    buf_commit(b, n);
}

enum { FIN = 0x80 };

/* The story is the same however the bytes are cut. */
static void expect(const struct buf *bytes, const char *log)
{
    static const size_t steps[] = {1, 2, 3, 7, 64, 1 << 24};
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        struct story s = tell(WS_SERVER, 1 << 24, bytes, steps[i]);
        CHECK_STREQ(buf_len(&s.log) ? buf_cstr(&s.log) : "", log);
        buf_done(&s.log);
    }
}

#define STORY(log, ...)                              \
    do {                                             \
        struct buf b_ = BUF_INIT(1 << 25), *b = &b_; \
        __VA_ARGS__;                                 \
        expect(b, log);                              \
        buf_done(b);                                 \
    } while (0)

TEST(sizes)
{
    static const size_t sizes[] = {0, 1, 125, 126, 127, 128, 65535, 65536};
    static char data[65536];
    char log[64];
    memset(data, '*', sizeof data);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        size_t n = sizes[i];
        (void)snprintf(log, sizeof log, "text %zu %.*s\n", n, (int)(n < 20 ? n : 20), data);
        STORY(log, put(b, FIN | WS_TEXT, data, n));
        (void)snprintf(log, sizeof log, "binary %zu %.*s\n", n, (int)(n < 20 ? n : 20), data);
        STORY(log, put(b, FIN | WS_BINARY, data, n));
    }
}

TEST(pings_and_pongs)
{
    static char long_one[126];
    STORY("ping 0\n", put(b, FIN | WS_PING, "", 0));
    STORY("ping 125\n", put(b, FIN | WS_PING, long_one, 125));
    STORY("broken 1002\n", put(b, FIN | WS_PING, long_one, 126));
    STORY("broken 1002\n", put(b, WS_PING, "x", 1));
    STORY("pong 3\nping 1\n", put(b, FIN | WS_PONG, "abc", 3); put(b, FIN | WS_PING, "x", 1));
}

TEST(reserved_bits_and_opcodes)
{
    for (unsigned bits = 1; bits < 8; bits++)
        STORY("broken 1002\n", put(b, FIN | bits << 4 | WS_TEXT, "x", 1));
    for (unsigned opcode = 3; opcode < 16; opcode++)
        if (opcode < WS_CLOSE || opcode > WS_PONG)
            STORY("text 1 a\nbroken 1002\n", put(b, FIN | WS_TEXT, "a", 1); put(b, FIN | opcode, "", 0));
}

TEST(fragmentation)
{
    STORY("text 6 foobar\n", put(b, WS_TEXT, "foo", 3); put(b, FIN | WS_CONTINUATION, "bar", 3));
    STORY("ping 1\nbinary 6 foobar\n", put(b, WS_BINARY, "foo", 3); put(b, FIN | WS_PING, "x", 1);
          put(b, FIN | WS_CONTINUATION, "bar", 3));
    STORY("text 0 \n", put(b, WS_TEXT, "", 0); put(b, WS_CONTINUATION, "", 0);
          put(b, FIN | WS_CONTINUATION, "", 0));
    STORY("broken 1002\n", put(b, FIN | WS_CONTINUATION, "x", 1));
    STORY("broken 1002\n", put(b, WS_CONTINUATION, "x", 1));
    STORY("text 1 a\nbroken 1002\n", put(b, FIN | WS_TEXT, "a", 1); put(b, FIN | WS_CONTINUATION, "x", 1));
    STORY("broken 1002\n", put(b, WS_TEXT, "a", 1); put(b, FIN | WS_BINARY, "x", 1));
    STORY("text 2 ab\ntext 2 cd\n", put(b, WS_TEXT, "a", 1); put(b, FIN | WS_CONTINUATION, "b", 1);
          put(b, WS_TEXT, "c", 1); put(b, FIN | WS_CONTINUATION, "d", 1));
}

TEST(empty_pieces_are_counted)
{
    struct buf b = BUF_INIT(1 << 20);
    put(&b, WS_TEXT, "", 0);
    for (int i = 1; i < WS_EMPTY_MAX; i++)
        put(&b, WS_CONTINUATION, "", 0);
    struct story s = tell(WS_SERVER, 1 << 20, &b, 4096);
    CHECK_INT(s.code, 0);
    buf_done(&s.log);
    put(&b, WS_CONTINUATION, "", 0);
    s = tell(WS_SERVER, 1 << 20, &b, 4096);
    CHECK_INT(s.code, WS_CODE_POLICY);
    buf_done(&s.log);
    buf_done(&b);
}

TEST(many_small_pieces_are_fine)
{
    struct buf b = BUF_INIT(1 << 24);
    char piece[64];
    memset(piece, 'p', sizeof piece);
    put(&b, WS_TEXT, piece, sizeof piece);
    for (int i = 0; i < 65534; i++)
        put(&b, WS_CONTINUATION, piece, sizeof piece);
    put(&b, FIN | WS_CONTINUATION, piece, sizeof piece);
    struct story s = tell(WS_SERVER, 4 << 20, &b, 65536);
    CHECK_STREQ(buf_cstr(&s.log), "text 4194304 pppppppppppppppppppp\n");
    buf_done(&s.log);
    buf_done(&b);
}

TEST(masks)
{
    struct buf plain = BUF_INIT(64);
    CHECK_INT(buf_append(&plain, "\x81\x05Hello", 7), 0);
    struct story s = tell(WS_SERVER, 100, &plain, 100);
    CHECK_INT(s.code, WS_CODE_PROTOCOL);
    buf_done(&s.log);
    s = tell(WS_CLIENT, 100, &plain, 1);
    CHECK_STREQ(buf_cstr(&s.log), "text 5 Hello\n");
    buf_done(&s.log);
    buf_done(&plain);
    struct buf masked = BUF_INIT(64); /* the example of RFC 6455 section 5.7 */
    CHECK_INT(buf_append(&masked, "\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", 11), 0);
    s = tell(WS_SERVER, 100, &masked, 3);
    CHECK_STREQ(buf_cstr(&s.log), "text 5 Hello\n");
    buf_done(&s.log);
    s = tell(WS_CLIENT, 100, &masked, 3);
    CHECK_INT(s.code, WS_CODE_PROTOCOL);
    buf_done(&s.log);
    buf_done(&masked);
}

TEST(lengths)
{
    static const struct {
        const char *bytes;
        size_t n;
        int code;
    } cases[] = {
        {"\x82\xfe\x00\x7d\0\0\0\0", 8, WS_CODE_PROTOCOL},              /* 125 in 16 bits */
        {"\x82\xff\0\0\0\0\0\0\0\x7d\0\0\0\0", 14, WS_CODE_PROTOCOL},   /* 125 in 64 bits */
        {"\x82\xff\0\0\0\0\0\0\xff\xff\0\0\0\0", 14, WS_CODE_PROTOCOL}, /* 65535 in 64 bits */
        {"\x82\xff\x80\0\0\0\0\0\0\0\0\0\0\0", 14, WS_CODE_TOO_LARGE},  /* 2^63 */
        {"\x82\xff\x40\0\0\0\0\0\0\0\0\0\0\0", 14, WS_CODE_TOO_LARGE},  /* 2^62 */
        {"\x82\xff\0\0\0\x02\0\0\0\0\0\0\0\0", 14, WS_CODE_TOO_LARGE},  /* 8 GiB */
        {"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", 14, WS_CODE_TOO_LARGE},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct buf b = BUF_INIT(64);
        CHECK_INT(buf_append(&b, cases[i].bytes, cases[i].n), 0);
        struct story s = tell(WS_SERVER, 1 << 20, &b, 5);
        CHECK_INT(s.code, cases[i].code);
        buf_done(&s.log);
        buf_done(&b);
    }
}

TEST(message_limit)
{
    static char data[2000];
    struct buf b = BUF_INIT(1 << 16);
    put(&b, WS_BINARY, data, 600);
    put(&b, FIN | WS_CONTINUATION, data, 400);
    struct story s = tell(WS_SERVER, 1000, &b, 77);
    CHECK_INT(s.code, 0);
    buf_done(&s.log);
    s = tell(WS_SERVER, 999, &b, 77);
    CHECK_INT(s.code, WS_CODE_TOO_LARGE);
    buf_done(&s.log);
    put(&b, FIN | WS_BINARY, data, 1000); /* each message counts for itself */
    s = tell(WS_SERVER, 1000, &b, 4096);
    CHECK_INT(s.code, 0);
    buf_done(&s.log);
    buf_done(&b);
}

static void expect_text(const char *text, size_t n)
{
    struct buf log = BUF_INIT(64);
    CHECK_INT(buf_printf(&log, "text %zu ", n), 0);
    CHECK_INT(buf_append(&log, text, n), 0);
    CHECK_INT(buf_putc(&log, '\n'), 0);
    STORY(buf_cstr(&log), put(b, FIN | WS_TEXT, text, n));
    buf_done(&log);
}

TEST(utf8)
{
    static const char *const good[] = {
        "κόσμε",        "\x7f",         "\xc2\x80",     "\xdf\xbf",         "\xe0\xa0\x80",
        "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\x80",
                                      "\xbf",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xed\xbf\xbf",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "\xfe",
                                      "\xce",
                                      "\xe2\x82",
                                      "\xf0\x9d\x84",
                                      "a\xce"
                                      "b"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        expect_text(good[i], strlen(good[i]));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        STORY("broken 1007\n", put(b, FIN | WS_TEXT, bad[i], strlen(bad[i])));
        STORY("broken 1007\n", put(b, WS_TEXT, "ok", 2);
              put(b, FIN | WS_CONTINUATION, bad[i], strlen(bad[i])));
    }
    STORY("text 4 \xf0\x9d\x84\x9e\n", put(b, WS_TEXT, "\xf0\x9d", 2);
          put(b, FIN | WS_CONTINUATION, "\x84\x9e", 2));
    /* at once, not at the end of the message */
    STORY("broken 1007\n", put(b, WS_TEXT, "\xf4", 1); put(b, WS_CONTINUATION, "\x90", 1));
}

TEST(closing)
{
    static const int good[] = {1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010,
                               1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999};
    static const int bad[] = {0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535};
    char log[64];
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        (void)snprintf(log, sizeof log, "close %d\n", good[i]);
        STORY(log, put(b, FIN | WS_CLOSE, (char[]){(char)(good[i] >> 8), (char)good[i], 'x'}, 3));
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        STORY("broken 1002\n", put(b, FIN | WS_CLOSE, (char[]){(char)(bad[i] >> 8), (char)bad[i]}, 2));
    STORY("close 1005\n", put(b, FIN | WS_CLOSE, "", 0));
    STORY("broken 1002\n", put(b, FIN | WS_CLOSE, "\x03", 1));
    STORY("broken 1007\n", put(b, FIN | WS_CLOSE, "\x03\xe8\xff", 3));
    STORY("broken 1007\n", put(b, FIN | WS_CLOSE, "\x03\xe8\xe2\x82", 4));
}

TEST(accept_key)
{
    char out[WS_ACCEPT_SIZE];
    ws_accept_of("dGhlIHNhbXBsZSBub25jZQ==", out);
    CHECK_STREQ(out, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

/* ------------------------------------------------------------------ two connections */

struct end {
    struct ws *ws;
    struct buf got;
    size_t messages;
    int closed; /* the code; 0: not yet */
    char reason[128];
    size_t drained;
    bool echo, pause;
    int close_with;
};

struct pair {
    struct loop *loop;
    struct ws_group group;
    struct end server, client;
    int raw; /* the client's socket when it is not a connection but a test */
};

static void on_message(struct ws *w, bool text, char *data, size_t n)
{
    struct end *e = ws_user(w);
    e->messages++;
    (void)buf_append(&e->got, data, n);
    if (e->echo)
        (void)ws_send(w, text ? WS_TEXT : WS_BINARY, data, n);
    if (e->pause)
        ws_pause(w);
    if (e->close_with) {
        ws_close(w, e->close_with, "enough");
        e->ws = NULL;
    }
}

static void on_drain(struct ws *w)
{
    struct end *e = ws_user(w);
    e->drained++;
}

static void on_closed(struct ws *w, int code, const char *reason)
{
    struct end *e = ws_user(w);
    CHECK_INT(e->closed, 0);
    e->closed = code;
    e->ws = NULL;
    (void)snprintf(e->reason, sizeof e->reason, "%s", reason);
}

static const struct ws_ops ops = {.message = on_message, .drain = on_drain, .closed = on_closed};

static void pair_open(struct pair *p, bool raw)
{
    struct error e;
    struct buf none = BUF_INIT(1);
    int fds[2];
    *p = (struct pair){.raw = -1};
    CHECK_INT(loop_new(&p->loop, &e), 0);
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    p->server.got = p->client.got = BUF_INIT(64 << 20);
    struct ws_config config = {.loop = p->loop, .group = &p->group, .ops = &ops, .message_max = 16 << 20};
    config.user = &p->server;
    config.role = WS_SERVER;
    CHECK_INT(ws_new(&config, fds[0], &none, &p->server.ws), 0);
    config.user = &p->client;
    config.role = WS_CLIENT;
    if (raw)
        p->raw = fds[1];
    else
        CHECK_INT(ws_new(&config, fds[1], &none, &p->client.ws), 0);
}

static void pair_close(struct pair *p)
{
    ws_group_free(&p->group);
    close_fd(&p->raw);
    buf_done(&p->server.got);
    buf_done(&p->client.got);
    loop_free(p->loop);
}

#define RUN_UNTIL(p, cond)                            \
    for (int left_ = 2000; left_ && !(cond); left_--) \
        (void)loop_step((p)->loop, 5);                \
    CHECK(cond)

TEST(echo_of_all_sizes)
{
    struct pair p;
    pair_open(&p, false);
    p.server.echo = true;
    static char data[100000];
    size_t total = 0;
    for (size_t n = 0; n < sizeof data; n = n * 3 + 1) {
        memset(data, (int)(n % 26) + 'a', n);
        (void)ws_send(p.client.ws, WS_TEXT, data, n);
        total += n;
        RUN_UNTIL(&p, buf_len(&p.client.got) == total);
        CHECK(n == 0 || memcmp(buf_data(&p.client.got) + total - n, data, n) == 0);
    }
    pair_close(&p);
}

TEST(back_pressure_both_ways)
{
    struct pair p;
    pair_open(&p, false);
    static char data[65536];
    p.server.pause = true;
    size_t sent = 0;
    while (ws_send(p.client.ws, WS_BINARY, data, sizeof data) && sent < 1000)
        sent++;
    CHECK(sent < 1000);
    for (int i = 0; i < 50; i++)
        (void)loop_step(p.loop, 1);
    CHECK_INT(p.server.messages, 1); /* not one more after the pause */
    CHECK_INT(p.client.drained, 0);
    p.server.pause = false;
    ws_resume(p.server.ws);
    RUN_UNTIL(&p, p.server.messages == sent + 1);
    CHECK_INT(p.client.drained, 1);
    pair_close(&p);
}

/* How many of the smallest messages the server takes until it has no room; at most `max`. */
static size_t send_small(struct pair *p, size_t max)
{
    size_t n = 0;
    while (n < max && ws_send(p->server.ws, WS_BINARY, "x", 1))
        n++;
    return n;
}

TEST(a_pong_that_takes_the_last_room_is_waited_for)
{
    struct pair p;
    pair_open(&p, true);
    size_t all = send_small(&p, SIZE_MAX);
    pair_close(&p);
    pair_open(&p, true);
    CHECK_INT(send_small(&p, all), all); /* the next one would be too many */
    CHECK(ws_has_room(p.server.ws));
    unsigned char ping[WS_HEADER_MAX + 100], mask[4] = {1, 2, 3, 4};
    size_t head = ws_header(ping, WS_PING, true, 100, mask);
    ws_mask((char *)ping + head, (char[100]){0}, 100, mask, 0);
    CHECK_INT(write(p.raw, ping, head + 100), head + 100);
    RUN_UNTIL(&p, !ws_has_room(p.server.ws));
    CHECK_INT(p.server.drained, 0);
    char rest[65536];
    RUN_UNTIL(&p, read(p.raw, rest, sizeof rest) != 0 && p.server.drained);
    pair_close(&p);
}

TEST(closing_handshake)
{
    struct pair p;
    pair_open(&p, false);
    ws_close(p.client.ws, 3001, "bye");
    RUN_UNTIL(&p, p.server.closed);
    CHECK_INT(p.server.closed, 3001);
    CHECK_STREQ(p.server.reason, "bye");
    RUN_UNTIL(&p, !p.group.first); /* both are gone, well before any limit */
    CHECK_INT(p.client.closed, 0); /* who closes is not called back */
    pair_close(&p);
}

TEST(close_comes_behind_what_is_queued)
{
    struct pair p;
    pair_open(&p, false);
    static char data[300000];
    for (int i = 0; i < 10; i++)
        (void)ws_send(p.client.ws, WS_BINARY, data, sizeof data);
    ws_close(p.client.ws, 1000, "");
    RUN_UNTIL(&p, p.server.closed);
    CHECK_INT(p.server.messages, 10);
    RUN_UNTIL(&p, !p.group.first);
    pair_close(&p);
}

TEST(both_close_at_once)
{
    struct pair p;
    pair_open(&p, false);
    ws_close(p.client.ws, 1000, "");
    ws_close(p.server.ws, 1001, "");
    RUN_UNTIL(&p, !p.group.first);
    pair_close(&p);
}

TEST(close_from_inside_a_message)
{
    struct pair p;
    pair_open(&p, false);
    p.server.close_with = 4000;
    for (int i = 0; i < 5; i++)
        (void)ws_send(p.client.ws, WS_TEXT, "x", 1);
    RUN_UNTIL(&p, p.client.closed == 4000);
    CHECK_INT(p.server.messages, 1);
    RUN_UNTIL(&p, !p.group.first);
    pair_close(&p);
}

TEST(a_peer_that_vanishes)
{
    struct pair p;
    pair_open(&p, true);
    close_fd(&p.raw);
    RUN_UNTIL(&p, p.server.closed == WS_CODE_LOST);
    CHECK(!p.group.first);
    pair_close(&p);
}

/* What the server sends back after these bytes, up to its end. */
static size_t answer_to(struct pair *p, const struct buf *bytes, char *out, size_t cap)
{
    size_t have = 0;
    CHECK_INT(write(p->raw, buf_data(bytes), buf_len(bytes)), buf_len(bytes));
    for (int i = 0; i < 2000; i++) {
        (void)loop_step(p->loop, 2);
        ssize_t n = read(p->raw, out + have, cap - have);
        if (n == 0)
            return have;
        have += n > 0 ? (size_t)n : 0;
    }
    CHECK(!"the end came");
    return have;
}

TEST(a_silent_peer_is_asked_and_then_dropped)
{
    struct pair p;
    char out[16];
    pair_open(&p, true);
    ws_free(p.server.ws);
    int fds[2];
    ssize_t n = 0;
    struct buf none = BUF_INIT(1);
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    struct ws_config config = {.loop = p.loop,
                               .group = &p.group,
                               .ops = &ops,
                               .user = &p.server,
                               .message_max = 100,
                               .ping_ms = 20,
                               .drop_ms = 1500}; /* longer than any machine stands still */
    CHECK_INT(ws_new(&config, fds[0], &none, &p.server.ws), 0);
    RUN_UNTIL(&p, n == 2 || (n = read(fds[1], out, sizeof out)) == 2);
    CHECK(memcmp(out, "\x89\x00", 2) == 0);
    struct buf pong = BUF_INIT(64);
    put(&pong, FIN | WS_PONG, "", 0);
    CHECK_INT(write(fds[1], buf_data(&pong), buf_len(&pong)), buf_len(&pong)); /* alive after all ... */
    n = 0;
    RUN_UNTIL(&p, n == 2 || (n = read(fds[1], out, sizeof out)) == 2);
    CHECK_INT(p.server.closed, 0); /* ... so it is asked again, and only then given up */
    RUN_UNTIL(&p, p.server.closed == WS_CODE_LOST);
    buf_done(&pong);
    (void)close(fds[1]);
    pair_close(&p);
}

TEST(broken_rules_are_told)
{
    struct pair p;
    struct buf b = BUF_INIT(1 << 16);
    char out[256];
    pair_open(&p, true);
    put(&b, FIN | WS_TEXT, "\xff", 1);
    size_t n = answer_to(&p, &b, out, sizeof out);
    CHECK(n > 4 && memcmp(out, "\x88", 1) == 0 && (unsigned char)out[2] == 0x03 &&
          (unsigned char)out[3] == 0xef);
    CHECK_INT(p.server.closed, WS_CODE_UTF8);
    pair_close(&p);
    buf_done(&b);
}

TEST(data_behind_a_close_is_ignored)
{
    struct pair p;
    struct buf b = BUF_INIT(1 << 16);
    char out[256];
    pair_open(&p, true);
    put(&b, FIN | WS_CLOSE, "\x03\xe8", 2);
    put(&b, FIN | WS_TEXT, "late", 4);
    CHECK_INT(buf_append(&b, "\xff\xff\xff", 3), 0);
    CHECK_INT(answer_to(&p, &b, out, sizeof out), 4);
    CHECK(memcmp(out, "\x88\x02\x03\xe8", 4) == 0);
    CHECK_INT(p.server.closed, 1000);
    CHECK_INT(p.server.messages, 0);
    pair_close(&p);
    buf_done(&b);
}

TEST(ping_flood_costs_little)
{
    struct pair p;
    struct buf b = BUF_INIT(8 << 20);
    static char payload[125];
    pair_open(&p, true);
    for (int i = 0; i < 20000; i++)
        put(&b, FIN | WS_PING, payload, sizeof payload);
    put(&b, FIN | WS_PING, "last", 4);
    /* nobody reads the answers while the questions are written */
    for (size_t at = 0; at < buf_len(&b);) {
        ssize_t n = write(p.raw, buf_data(&b) + at, buf_len(&b) - at);
        if (n < 0) {
            REQUIRE(errno == EAGAIN);
            (void)loop_step(p.loop, 1);
        } else {
            at += (size_t)n;
        }
    }
    for (int i = 0; i < 20; i++)
        (void)loop_step(p.loop, 1);
    static char out[1 << 20];
    size_t total = 0;
    bool last = false;
    for (int i = 0; i < 2000 && !last; i++) {
        ssize_t n = read(p.raw, out, sizeof out);
        if (n >= 4)
            last = memcmp(out + n - 4, "last", 4) == 0;
        total += n > 0 ? (size_t)n : 0;
        (void)loop_step(p.loop, 1);
    }
    CHECK(last);                        /* the latest question is answered */
    CHECK(total < (size_t)20001 * 127); /* not all the others are */
    pair_close(&p);
    buf_done(&b);
}

TEST(reason_is_cut_between_characters)
{
    struct pair p;
    char text[200];
    pair_open(&p, false);
    for (size_t i = 0; i + 3 < sizeof text; i += 3)
        memcpy(text + i, "\xe2\x82\xac", 4);
    ws_close(p.server.ws, 1011, text);
    RUN_UNTIL(&p, p.client.closed == 1011);
    CHECK_INT(strlen(p.client.reason), 123); /* 41 of three bytes */
    RUN_UNTIL(&p, !p.group.first);
    pair_close(&p);
}
