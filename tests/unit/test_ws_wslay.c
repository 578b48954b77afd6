/* SPDX-License-Identifier: Apache-2.0 */
/* test_ws_wslay.c: our reader of WebSocket frames against wslay's, on the same bytes: conversations made by
 * chance, most of them then damaged a little. Both must see the same messages, pings and ends, and give up
 * with the same code. */
#include "net/ws_frame.h"
#include "test.h"

#include <wslay/wslay.h>

/* wslay reads pieces of 4096 bytes and takes half of a split close code for text, so no close frame may be
 * split. */
enum { WSLAY_PIECE = 3900, CASES = 30000, MESSAGE_MAX = 100000, BYTES_MAX = 400000 };

struct story {
    struct buf log; /* what was seen, in one form for both */
    int code;       /* with which the reader gave up; 0: it did not */
    bool waits;     /* for the rest of a control frame, which we judge as a whole */
};

static uint64_t seed = 88172645463325252ULL;

static uint32_t chance(uint32_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)((seed >> 16) % below);
}

/* ------------------------------------------------------------------ conversations */

static void put_payload(struct buf *b, uint32_t n, bool text)
{
    static const char *const pieces[] = {"a", "word ", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    while (n > 0) {
        const char *p = text ? pieces[chance(ARRAY_SIZE(pieces))] : NULL;
        char byte = (char)chance(256);
        (void)buf_append(b, p ? p : &byte, p ? strlen(p) : 1);
        n--;
    }
}

static void put_frame(struct buf *out, unsigned opcode, bool final, const char *data, size_t n)
{
    unsigned char header[WS_HEADER_MAX], mask[4];
    for (int i = 0; i < 4; i++)
        mask[i] = (unsigned char)chance(256);
    size_t len = ws_header(header, (enum ws_opcode)opcode, final, n, mask);
    (void)buf_append(out, (const char *)header, len);
    size_t at = buf_len(out);
    (void)buf_append(out, data, n);
    ws_mask((char *)buf_data(out) + at, data, n, mask, 0);
}

static void put_control(struct buf *out)
{
    struct buf data = BUF_INIT(1000);
    put_payload(&data, chance(20), false);
    put_frame(out, chance(2) ? WS_PING : WS_PONG, true, buf_data(&data), buf_len(&data));
    buf_done(&data);
}

static void put_message(struct buf *out)
{
    static const uint32_t sizes[] = {0, 1, 5, 124, 125, 126, 127, 400, 3000, 20000};
    struct buf data = BUF_INIT(BYTES_MAX);
    bool text = chance(2);
    put_payload(&data, sizes[chance(chance(8) ? 8 : ARRAY_SIZE(sizes))], text);
    size_t n = buf_len(&data), at = 0;
    unsigned parts = chance(3) ? 1 : 1 + chance(5);
    for (unsigned i = 0; i < parts; i++) {
        size_t end = i + 1 == parts ? n : at + chance((uint32_t)(n - at + 1));
        put_frame(out,
                  i      ? WS_CONTINUATION
                  : text ? WS_TEXT
                         : WS_BINARY,
                  i + 1 == parts, buf_data(&data) + at, end - at);
        at = end;
        if (chance(4) == 0)
            put_control(out);
    }
    buf_done(&data);
}

static void put_close(struct buf *out)
{
    static const int codes[] = {1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007,
                                1011, 999,  0,    1016, 2999, 3000, 4999, 5000};
    struct buf data = BUF_INIT(1000);
    int code = codes[chance(ARRAY_SIZE(codes))];
    unsigned kind = chance(8);
    /* not: one byte alone (wslay takes it for no code), two faults at once (which counts is open) */
    if (kind > 0)
        (void)buf_append(&data, (char[]){(char)(code >> 8), (char)code}, 2);
    if (kind > 4)
        put_payload(&data, chance(30), kind > 5 || !ws_code_valid(code));
    put_frame(out, WS_CLOSE, true, buf_data(&data), buf_len(&data));
    buf_done(&data);
}

static void cut(struct buf *b, size_t n)
{
    struct buf part = BUF_INIT(BYTES_MAX * 8);
    (void)buf_append(&part, buf_data(b), n);
    buf_done(b);
    *b = part;
}

static void damage(struct buf *b)
{
    char *data = (char *)buf_data(b);
    size_t n = buf_len(b), near = n < 16 ? n : 16;
    switch (n ? chance(5) : 4) {
    case 0: /* one bit of the first head */
        data[chance((uint32_t)near)] ^= (char)(1U << chance(8));
        break;
    case 1: /* one bit anywhere */
        data[chance((uint32_t)n)] ^= (char)(1U << chance(8));
        break;
    case 2:
        data[chance((uint32_t)n)] = (char)chance(256);
        break;
    case 3: /* cut off */
        cut(b, chance((uint32_t)n));
        break;
    default: /* as it is */
        break;
    }
}

/* ------------------------------------------------------------------ the two readers */

static void tell(struct story *s, const char *what, const char *data, size_t n)
{
    (void)buf_printf(&s->log, "%s %zu:", what, n);
    (void)buf_append(&s->log, data, n);
    (void)buf_puts(&s->log, "\n");
}

static void read_ours(const struct buf *in, struct story *s)
{
    struct ws_reader r;
    struct ws_found f;
    ws_reader_init(&r, WS_SERVER, MESSAGE_MAX);
    for (size_t at = 0; at < buf_len(in) && !s->code;) {
        size_t piece = 1 + chance(700);
        piece = piece < buf_len(in) - at ? piece : buf_len(in) - at;
        at += ws_reader_feed(&r, buf_data(in) + at, piece, &f);
        switch (f.event) {
        case WS_EVENT_NONE:
            break;
        case WS_EVENT_MESSAGE:
            tell(s, f.text ? "text" : "binary", f.data, f.n);
            break;
        case WS_EVENT_PING:
        case WS_EVENT_PONG:
            tell(s, f.event == WS_EVENT_PING ? "ping" : "pong", f.data, f.n);
            break;
        case WS_EVENT_CLOSE:
            tell(s, "close", f.data, f.n);
            s->code = f.code;
            break;
        case WS_EVENT_BROKEN:
            s->code = -f.code;
            break;
        }
    }
    s->waits = r.in_frame && r.opcode >= WS_CLOSE;
    ws_reader_done(&r);
}

struct feed {
    const struct buf *in;
    size_t at;
    struct story *story;
    bool closed;
    struct buf said; /* by wslay */
};

static ssize_t take_said(wslay_event_context_ptr ctx, const uint8_t *data, size_t len, int flags, void *arg)
{
    struct feed *f = arg;
    (void)ctx;
    (void)flags;
    return buf_append(&f->said, (const char *)data, len) < 0 ? -1 : (ssize_t)len;
}

static ssize_t feed_more(wslay_event_context_ptr ctx, uint8_t *out, size_t len, int flags, void *arg)
{
    struct feed *f = arg;
    size_t left = buf_len(f->in) - f->at;
    (void)flags;
    if (left == 0) {
        wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    len = len < left ? len : left;
    memcpy(out, buf_data(f->in) + f->at, len);
    f->at += len;
    return (ssize_t)len;
}

static void heard(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *m, void *arg)
{
    struct feed *f = arg;
    const char *data = (const char *)m->msg;
    size_t n = m->msg_length;
    (void)ctx;
    if (m->opcode == WS_CLOSE) {
        tell(f->story, "close", n > 2 ? data + 2 : data, n > 2 ? n - 2 : 0);
        f->story->code = m->status_code ? m->status_code : WS_CODE_NONE;
        f->closed = true;
        return;
    }
    tell(f->story,
         m->opcode == WS_TEXT     ? "text"
         : m->opcode == WS_BINARY ? "binary"
         : m->opcode == WS_PING   ? "ping"
                                  : "pong",
         data, n);
}

static void read_theirs(const struct buf *in, struct story *s)
{
    struct wslay_event_callbacks callbacks = {
        .recv_callback = feed_more, .send_callback = take_said, .on_msg_recv_callback = heard};
    struct feed f = {.in = in, .story = s, .said = BUF_INIT(BYTES_MAX)};
    wslay_event_context_ptr ctx;
    REQUIRE(wslay_event_context_server_init(&ctx, &callbacks, &f) == 0);
    wslay_event_config_set_max_recv_msg_length(ctx, MESSAGE_MAX);
    int r = wslay_event_recv(ctx);
    if (!f.closed && (r != 0 || wslay_event_get_read_enabled(ctx) == 0)) {
        /* the close frame it has queued says why; answers to pings come first */
        (void)wslay_event_send(ctx);
        const unsigned char *said = (const unsigned char *)buf_data(&f.said);
        for (size_t i = 0; i + 4 <= buf_len(&f.said); i += 2 + (size_t)(said[i + 1] & 0x7f))
            if ((said[i] & 0x0f) == WS_CLOSE)
                s->code = -(said[i + 2] << 8 | said[i + 3]);
    }
    buf_done(&f.said);
    wslay_event_context_free(ctx);
}

TEST(both_readers_see_the_same)
{
    size_t broken = 0, closed = 0, sooner = 0, twice = 0;
    for (int i = 0; i < CASES; i++) {
        struct buf in = BUF_INIT(BYTES_MAX * 8);
        struct story ours = {.log = BUF_INIT(BYTES_MAX * 8)}, theirs = {.log = BUF_INIT(BYTES_MAX * 8)};
        for (uint32_t n = 1 + chance(4); n > 0; n--)
            put_message(&in);
        if (chance(3) == 0 && buf_len(&in) < WSLAY_PIECE)
            put_close(&in);
        if (chance(4))
            damage(&in);
        read_ours(&in, &ours);
        read_theirs(&in, &theirs);
        bool earlier = ours.code < 0 && theirs.code == 0; /* wslay waits for the rest of the frame */
        bool both =
            ours.code == -WS_CODE_PROTOCOL && theirs.code == -WS_CODE_UTF8; /* one bit can break two rules */
        bool later = ours.code == 0 && theirs.code == -WS_CODE_UTF8 && ours.waits;
        /* a close frame with half a code, made by a flipped bit: wslay takes it for one without */
        bool half = ours.code == -WS_CODE_PROTOCOL && theirs.code == WS_CODE_NONE;
        /* codes that were registered after wslay was written */
        bool newer = ours.code >= 1012 && ours.code <= 1014 && theirs.code == -WS_CODE_PROTOCOL;
        size_t n = buf_len(newer ? &theirs.log : &ours.log);
        bool same = (ours.code == theirs.code || earlier || both || later || half || newer) &&
                    (newer || buf_len(&theirs.log) == n + (half ? strlen("close 0:\n") : 0)) &&
                    (n == 0 || memcmp(buf_data(&ours.log), buf_data(&theirs.log), n) == 0);
        if (!same) {
            char m[120];
            (void)snprintf(m, sizeof m, "case %d: ours says %d after %zu bytes of events, wslay %d after %zu",
                           i, ours.code, buf_len(&ours.log), theirs.code, buf_len(&theirs.log));
            test_fail(__FILE__, __LINE__, m);
        }
        sooner += earlier;
        twice += both;
        broken += ours.code < 0;
        closed += ours.code > 0;
        buf_done(&in);
        buf_done(&ours.log);
        buf_done(&theirs.log);
        if (!same && i > 200)
            break;
    }
    CHECK(broken > CASES / 20 && closed > CASES / 20 && sooner < broken / 4 &&
          twice < broken / 10); /* the cases are not all of one kind */
}
