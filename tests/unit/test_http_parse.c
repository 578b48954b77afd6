/* SPDX-License-Identifier: Apache-2.0 */
/* test_http_parse.c: the parser without sockets: what is refused, what is understood, and that cuts do not
 * matter. */
#include "test.h"
#include "base/buf.h"
#include "net/http_parse.h"

#include <errno.h>

/* Everything the parser says about some bytes, as text: "head GET / 1.1", "<body>", "end", "bad 400". */
struct story {
    char text[16384];
    size_t len;
};

static void tell(struct story *s, const char *text, size_t n)
{
    n = MIN(n, sizeof s->text - 1 - s->len);
    memcpy(s->text + s->len, text, n);
    s->len += n;
    s->text[s->len] = '\0';
}

static void tell_str(struct story *s, const char *text)
{
    tell(s, text, strlen(text));
}

static void tell_head(struct story *s, const struct http_head *h)
{
    char line[12000];
    (void)snprintf(
        line, sizeof line, "head %s %s path=%s query=%s status=%d minor=%u framing=%d length=%lld%s%s%s\n",
        h->method ? h->method : "-", h->target ? h->target : "-", h->path ? h->path : "-",
        h->query ? h->query : "-", h->status, h->minor, h->framing, (long long)h->content_length,
        h->keep_alive ? " keep" : "", h->upgrade ? " upgrade" : "", h->expect_continue ? " expect" : "");
    tell_str(s, line);
    for (size_t i = 0; i < h->header_count; i++) {
        (void)snprintf(line, sizeof line, "%s=%s\n", h->headers[i].name, h->headers[i].value);
        tell_str(s, line);
    }
}

static const struct http_limits *use_limits = &http_limits_default;
static const char *answers; /* the method a response answers */

/* Parses as the server does: what is not used is offered again with the next `step` bytes. */
static void parse(enum http_kind kind, const char *data, size_t n, size_t step, struct story *s)
{
    struct http_parser p;
    struct buf in = BUF_INIT(1 << 20);
    bool in_body = false;
    s->len = 0;
    s->text[0] = '\0';
    http_parser_init(&p, kind, use_limits);
    if (answers)
        http_parser_expect(&p, answers);
    for (size_t at = 0; at <= n; at += step) {
        size_t len = at < n ? MIN(step, n - at) : 0;
        (void)buf_append(&in, data + at, len);
        for (bool more = true; more;) {
            size_t used = 0;
            enum http_event e = http_parser_next(&p, buf_len(&in) ? buf_data(&in) : "", buf_len(&in), &used);
            switch (e) {
            case HTTP_EVENT_MORE:
                more = false;
                break;
            case HTTP_EVENT_HEAD:
                tell_head(s, p.head);
                free(take_ptr(p.head));
                break;
            case HTTP_EVENT_DATA: /* pieces are joined: how a body is cut is not a part of the story */
                tell_str(s, in_body ? "" : "body ");
                tell(s, p.piece, p.piece_len);
                break;
            case HTTP_EVENT_END:
                tell_str(s, in_body ? "\nend\n" : "end\n");
                http_parser_reset(&p);
                more = buf_len(&in) > used;
                break;
            case HTTP_EVENT_BAD: {
                char line[32];
                (void)snprintf(line, sizeof line, "%sbad %d", in_body ? "\n" : "", p.status);
                tell_str(s, line);
                buf_done(&in);
                http_parser_reset(&p);
                return;
            }
            }
            in_body = e == HTTP_EVENT_DATA || (in_body && e == HTTP_EVENT_MORE);
            buf_consume(&in, used);
        }
    }
    enum http_event e = http_parser_eof(&p);
    tell_str(s, in_body ? "\neof " : "eof ");
    tell_str(s, e == HTTP_EVENT_END ? "end" : e == HTTP_EVENT_MORE ? "clean" : "cut");
    buf_done(&in);
    http_parser_reset(&p);
}

/* Parses in one piece, byte by byte and in pieces of seven; all must tell the same story. */
static const char *story_of(enum http_kind kind, const char *data, size_t n)
{
    static struct story whole, cut;
    parse(kind, data, n, n ? n : 1, &whole);
    for (size_t step = 1; step <= 7; step += 6) {
        parse(kind, data, n, step, &cut);
        if (strcmp(whole.text, cut.text) != 0) {
            test_fail(__FILE__, __LINE__, "cutting the bytes changes the story:");
            printf("    whole: %s\n    cut:   %s\n", whole.text, cut.text);
        }
    }
    return whole.text;
}

#define REQUEST(bytes)  story_of(HTTP_KIND_REQUEST, bytes, sizeof(bytes) - 1)
#define RESPONSE(bytes) story_of(HTTP_KIND_RESPONSE, bytes, sizeof(bytes) - 1)

struct row {
    const char *id;
    const char *bytes;
    size_t n;
    const char *expected; /* how the story ends */
};
#define ROW(id, bytes, expected)               \
    {                                          \
        id, bytes, sizeof(bytes) - 1, expected \
    }

static void check_rows(enum http_kind kind, const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *s = story_of(kind, rows[i].bytes, rows[i].n);
        size_t n = strlen(s), k = strlen(rows[i].expected);
        if (n < k || strcmp(s + n - k, rows[i].expected) != 0) {
            char m[400];
            (void)snprintf(m, sizeof m, "%s, row %zu: the story ends with \"%.150s\", expected \"%s\"",
                           rows[i].id, i, n > 150 ? s + n - 150 : s, rows[i].expected);
            test_fail(__FILE__, __LINE__, m);
        }
    }
}

#define GET     "GET / HTTP/1.1\r\nHost: x\r\n"
#define POST    "POST / HTTP/1.1\r\nHost: x\r\n"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"
#define BAD     "bad 400"
#define CLEAN   "end\neof clean"
#define TEXT_64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

TEST(http_parse_a_plain_request)
{
    CHECK_STREQ(
        REQUEST(
            "GET /a/b?c=d HTTP/1.1\r\nHost: x:80\r\nAccept:*/*\r\nEmpty:\r\nBlank:   \r\nX:  a b \t\r\n\r\n"),
        "head GET /a/b?c=d path=/a/b query=c=d status=0 minor=1 framing=0 length=-1 keep\n"
        "Host=x:80\nAccept=*/*\nEmpty=\nBlank=\nX=a b\nend\neof clean");
}

TEST(http_parse_bodies)
{
    CHECK(strstr(REQUEST(POST "Content-Length: 5\r\n\r\nhello"), "body hello\nend\neof clean"));
    CHECK(strstr(REQUEST(CHUNKED "5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\n"),
                 "body hello world\nend\neof clean"));
    CHECK(strstr(REQUEST(POST "Content-Length: 5\r\n\r\nhell"), "body hell\neof cut"));
    CHECK(strstr(REQUEST(CHUNKED "5\r\nhello\r\n0\r\n"), "body hello\neof cut"));
}

TEST(http_parse_pipelined_requests)
{
    const char *s = REQUEST(POST "Content-Length: 2\r\n\r\nabGET /2 HTTP/1.1\r\nHost: y\r\n\r\n" CHUNKED
                                 "1\r\nc\r\n0\r\n\r\n" GET "\r\n");
    int ends = 0;
    for (const char *p = s; (p = strstr(p, "end\n")); p++)
        ends++;
    CHECK_INT(ends, 4);
    CHECK(strstr(s, "path=/2"));
}

TEST(http_01_content_length_and_transfer_encoding)
{
    static const struct row rows[] = {
        ROW("HTTP-01", POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", BAD),
        ROW("HTTP-01", POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", BAD),
        ROW("HTTP-01", POST "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n", BAD),
    };
    check_rows(HTTP_KIND_REQUEST, rows, ARRAY_SIZE(rows));
}

TEST(http_02_content_length)
{
#define CL(value) POST "Content-Length:" value "\r\n\r\nhello"
    static const struct row rows[] = {
        ROW("HTTP-02", POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", BAD),
        ROW("HTTP-02", POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", BAD),
        ROW("HTTP-02", POST "Content-Length: 5\r\ncontent-length:\r\n\r\nhello", BAD),
        ROW("HTTP-02", CL(" 5, 5"), BAD),
        ROW("HTTP-02", CL(" 5,5"), BAD),
        ROW("HTTP-02", CL(" +5"), BAD),
        ROW("HTTP-02", CL(" -1"), BAD),
        ROW("HTTP-02", CL(" 0x5"), BAD),
        ROW("HTTP-02", CL("  5 5"), BAD),
        ROW("HTTP-02", CL(" 5."), BAD),
        ROW("HTTP-02", CL(" five"), BAD),
        ROW("HTTP-02", CL(" 18446744073709551617"), BAD),
        ROW("HTTP-02", CL(" 18446744073709551615"), BAD),
        ROW("HTTP-02", CL(" 9223372036854775808"), BAD),
        ROW("HTTP-02", CL(""), BAD),
        ROW("HTTP-02", CL(" "), BAD),
        ROW("HTTP-02", CL("\t5"), BAD),
        ROW("HTTP-02", CL(" 5\t"), BAD),
        ROW("HTTP-02", CL(" \v5"), BAD),
        ROW("HTTP-02", CL(" 5"), "body hello\n" CLEAN),
        ROW("HTTP-02", CL("5  "), "body hello\n" CLEAN),
        ROW("HTTP-02", CL(" 0000005"), "body hello\n" CLEAN),
        ROW("HTTP-02", POST "Content-Length: 0\r\n\r\n", CLEAN),
    };
    check_rows(HTTP_KIND_REQUEST, rows, ARRAY_SIZE(rows));
}

TEST(http_03_transfer_encoding)
{
#define TE(line) POST line "\r\n\r\n0\r\n\r\n"
    static const struct row rows[] = {
        ROW("HTTP-03", TE("Transfer-Encoding: xchunked"), BAD),
        ROW("HTTP-03", TE("Transfer-Encoding: chunkedx"), BAD),
        ROW("HTTP-03", TE("Transfer-Encoding: chunked, identity"), BAD),
        ROW("HTTP-03", TE("Transfer-Encoding: identity, chunked"), BAD),
        ROW("HTTP-03", TE("Transfer-Encoding: gzip, chunked"), BAD),
        ROW("HTTP-03", TE("Transfer-Encoding: identity"), BAD),
        ROW("HTTP-03", TE("Transfer-Encoding:"), BAD),
        ROW("HTTP-03", TE("Transfer-Encoding:\tchunked"), BAD),
        ROW("HTTP-03", TE("Transfer-Encoding: \tchunked"), BAD),
        ROW("HTTP-03", TE("Transfer-Encoding: chunked\t"), BAD),
        ROW("HTTP-03", TE("Transfer-Encoding\t: chunked"), BAD),
        ROW("HTTP-03", TE("Transfer-Encoding:\vchunked"), BAD),
        ROW("HTTP-03",
            TE("Transfer-Encoding: \x0c"
               "chunked"),
            BAD),
        ROW("HTTP-03", TE("Transfer-Encoding: chunked,"), BAD),
        ROW("HTTP-03", TE("Transfer-Encoding: ,chunked"), BAD),
        ROW("HTTP-03", TE("Transfer-Encoding: \"chunked\""), BAD),
        ROW("HTTP-03", TE("Transfer-Encoding: chunked;q=1"), BAD),
        ROW("HTTP-03", TE("Transfer-Encoding : chunked"), BAD),
        ROW("HTTP-03", TE("Transfer-Encoding:\r\n chunked"), BAD),
        ROW("HTTP-03", TE("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), BAD),
        ROW("HTTP-03", TE("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"), BAD),
        ROW("HTTP-03", "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", BAD),
        ROW("HTTP-03", TE("Transfer-Encoding: chunked"), CLEAN),
        ROW("HTTP-03", TE("transfer-encoding:CHUNKED"), CLEAN),
        ROW("HTTP-03", TE("Transfer-Encoding: Chunked "), CLEAN),
    };
    check_rows(HTTP_KIND_REQUEST, rows, ARRAY_SIZE(rows));
}

TEST(http_04_chunks)
{
#define CHUNKS(bytes) CHUNKED bytes
    static const struct row rows[] = {
        ROW("HTTP-04", CHUNKS("0x1\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("-1\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("+1\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS(" 1\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1 \r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1\t\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1 ;a\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("00000000000000001\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("10000000000000000\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("ffffffffffffffff\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("8000000000000000\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS(";a\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1\r\nab\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1\r\na0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1\r\na\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1\r\na\r\n0\r\n\n"), BAD),
        ROW("HTTP-04", CHUNKS("1\r\na\r\n0\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1\ra\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1\r\ra\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1;a=\n\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1;a=\rb\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1;a=\0\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1g\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1;\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1;a=\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1;a=\"b\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1;a=\"b\"c\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1;a=\"\\\"\"\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1;a b\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1;" TEXT_64 TEXT_64 TEXT_64 TEXT_64 "x\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1;" TEXT_64 TEXT_64 "\r\na\r\n1;" TEXT_64 TEXT_64 "x\r\na\r\n0\r\n\r\n"), BAD),
        ROW("HTTP-04", CHUNKS("1;" TEXT_64 TEXT_64 TEXT_64 TEXT_64 "\r\na\r\n0\r\n\r\n"), "body a\n" CLEAN),
        ROW("HTTP-04", CHUNKS("0000000000000001;a=\"b c\";d;e=f\r\na\r\n0;x\r\n\r\n"), "body a\n" CLEAN),
        ROW("HTTP-04", CHUNKS("A\r\n0123456789\r\na\r\n0123456789\r\n000\r\n\r\n"),
            "body 01234567890123456789\n" CLEAN),
    };
    check_rows(HTTP_KIND_REQUEST, rows, ARRAY_SIZE(rows));
}

TEST(http_05_trailers_are_dropped)
{
    static const struct row rows[] = {
        ROW("HTTP-05", CHUNKED "0\r\nContent-Length: 5\r\nHost: evil\r\nAuthorization: x\r\n\r\n",
            "=chunked\n" CLEAN),
        ROW("HTTP-05", CHUNKED "0\r\nX:\r\n\r\n", CLEAN),
        ROW("HTTP-05", CHUNKED "0\r\nno colon\r\n\r\n", BAD),
        ROW("HTTP-05", CHUNKED "0\r\n: empty\r\n\r\n", BAD),
        ROW("HTTP-05", CHUNKED "0\r\nA: b\r\n fold\r\n\r\n", BAD),
        ROW("HTTP-05", CHUNKED "0\r\nA: b\n\r\n", BAD),
        ROW("HTTP-05", CHUNKED "0\r\nA : b\r\n\r\n", BAD),
        ROW("HTTP-05", CHUNKED "0\r\nA: \0\r\n\r\n", BAD),
    };
    check_rows(HTTP_KIND_REQUEST, rows, ARRAY_SIZE(rows));
}

TEST(http_05_trailers_are_bounded)
{
    struct buf b = BUF_INIT(1 << 20);
    (void)buf_puts(&b, CHUNKED "0\r\n");
    for (int i = 0; i < HTTP_TRAILER_COUNT_MAX + 1; i++)
        (void)buf_puts(&b, "a: b\r\n");
    (void)buf_puts(&b, "\r\n");
    CHECK(strstr(story_of(HTTP_KIND_REQUEST, buf_data(&b), buf_len(&b)), BAD));
    buf_clear(&b);
    (void)buf_puts(&b, CHUNKED "0\r\na: ");
    for (int i = 0; i < HTTP_TRAILER_BYTES_MAX; i++)
        (void)buf_putc(&b, 'x');
    CHECK(strstr(story_of(HTTP_KIND_REQUEST, buf_data(&b), buf_len(&b)), BAD));
    buf_done(&b);
}

TEST(http_06_line_ends)
{
    static const struct row rows[] = {
        ROW("HTTP-06", "GET / HTTP/1.1\nHost: x\n\n", BAD),
        ROW("HTTP-06", "GET / HTTP/1.1\r\nHost: x\n\r\n", BAD),
        ROW("HTTP-06", "GET / HTTP/1.1\r\nHost: x\r\n\n", BAD),
        ROW("HTTP-06", "GET / HTTP/1.1\rHost: x\r\r", BAD),
        ROW("HTTP-06", "GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n", BAD),
        ROW("HTTP-06", "GET / HTTP/1.1\r\nHost: x\r\n\rA: b\r\n\r\n", BAD),
        ROW("HTTP-06", "GET / HTTP/1.1\r\r\nHost: x\r\n\r\n", BAD),
        ROW("HTTP-06", "GET / HTTP/1.1\r\nHost: x\r\r\n\r\n", BAD),
        ROW("HTTP-06", "GET / HTTP/1.1\r\nHost: x\r\n\r\r\n", BAD),
        ROW("HTTP-06", "\r\n" GET "\r\n", CLEAN),
        ROW("HTTP-06", "\r\n\r\n" GET "\r\n", BAD),
        ROW("HTTP-06", "\n" GET "\r\n", BAD),
        ROW("HTTP-06", "\r" GET "\r\n", BAD),
        ROW("HTTP-06", " \r\n" GET "\r\n", BAD),
        ROW("HTTP-06", "\r\n", "eof clean"),
        ROW("HTTP-06", "", "eof clean"),
    };
    check_rows(HTTP_KIND_REQUEST, rows, ARRAY_SIZE(rows));
}

TEST(http_07_header_lines)
{
    static const struct row rows[] = {
        ROW("HTTP-07", GET "no colon\r\n\r\n", BAD),
        ROW("HTTP-07", GET "nocolon\r\n\r\n", BAD),
        ROW("HTTP-07", GET ": empty\r\n\r\n", BAD),
        ROW("HTTP-07", GET ":\r\n\r\n", BAD),
        ROW("HTTP-07", GET "A B: c\r\n\r\n", BAD),
        ROW("HTTP-07", GET "A : c\r\n\r\n", BAD),
        ROW("HTTP-07", GET "A\t: c\r\n\r\n", BAD),
        ROW("HTTP-07", GET "A: b\0c\r\n\r\n", BAD),
        ROW("HTTP-07", GET "A\0: b\r\n\r\n", BAD),
        ROW("HTTP-07", GET "A: b\x7f\r\n\r\n", BAD),
        ROW("HTTP-07", GET "A: b\x1b[0m\r\n\r\n", BAD),
        ROW("HTTP-07", GET "A: b\r\n c\r\n\r\n", BAD),
        ROW("HTTP-07", GET "A: b\r\n\tc\r\n\r\n", BAD),
        ROW("HTTP-07", GET " A: b\r\n\r\n", BAD),
        ROW("HTTP-07", GET "A: b\r\n \r\n\r\n", BAD),
        ROW("HTTP-07", GET "A(b): c\r\n\r\n", BAD),
        ROW("HTTP-07", GET "\xc3\xa4: c\r\n\r\n", BAD),
        ROW("HTTP-07", GET "A: \xc3\xa4\r\n\r\n",
            "A=\xc3\xa4\n" CLEAN), /* 8-bit values are taken as they are */
        ROW("HTTP-07", GET "A: b\tc\r\n\r\n", "A=b\tc\n" CLEAN),
        ROW("HTTP-07", GET "!#$%&'*+-.^_`|~09aZ: :x:\r\n\r\n", "=:x:\n" CLEAN),
    };
    check_rows(HTTP_KIND_REQUEST, rows, ARRAY_SIZE(rows));
}

TEST(http_08_host)
{
    static const struct row rows[] = {
        ROW("HTTP-08", "GET / HTTP/1.1\r\n\r\n", BAD),
        ROW("HTTP-08", "GET / HTTP/1.0\r\n\r\n", BAD),
        ROW("HTTP-08", GET "Host: y\r\n\r\n", BAD),
        ROW("HTTP-08", GET "host: x\r\n\r\n", BAD),
        ROW("HTTP-08", "GET / HTTP/1.1\r\nHost:\r\n\r\n", BAD),
        ROW("HTTP-08", "GET / HTTP/1.1\r\nHost: \r\n\r\n", BAD),
        ROW("HTTP-08", "GET / HTTP/1.1\r\nHost: x/y\r\n\r\n", BAD),
        ROW("HTTP-08", "GET / HTTP/1.1\r\nHost: x y\r\n\r\n", BAD),
        ROW("HTTP-08", "GET / HTTP/1.1\r\nHost: a@x\r\n\r\n", BAD),
        ROW("HTTP-08", "GET / HTTP/1.1\r\nHost: x,y\r\n\r\n", BAD),
        ROW("HTTP-08", "GET / HTTP/1.1\r\nHost: x\\y\r\n\r\n", BAD),
        ROW("HTTP-08", "GET / HTTP/1.1\r\nHost: \xc3\xa4\r\n\r\n", BAD),
        ROW("HTTP-08", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", CLEAN),
        ROW("HTTP-08", "GET / HTTP/1.1\r\nHost: %2Frun%2Fx.sock\r\n\r\n", CLEAN),
        ROW("HTTP-08", "CONNECT a:1 HTTP/1.1\r\n\r\n", CLEAN),
        ROW("HTTP-08", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", BAD),
    };
    check_rows(HTTP_KIND_REQUEST, rows, ARRAY_SIZE(rows));
}

TEST(http_09_request_line)
{
#define LINE(line) line "\r\nHost: x\r\n\r\n"
    static const struct row rows[] = {
        ROW("HTTP-09", LINE("GET /"), BAD),
        ROW("HTTP-09", LINE("GET"), BAD),
        ROW("HTTP-09", LINE("GET / HTTP"), BAD),
        ROW("HTTP-09", LINE("GET / HTTP/1"), BAD),
        ROW("HTTP-09", LINE("GET / HTTP/1."), BAD),
        ROW("HTTP-09", LINE("GET / HTTP/1.10"), BAD),
        ROW("HTTP-09", LINE("GET / HTTP/01.1"), BAD),
        ROW("HTTP-09", LINE("GET / HTTP/11"), BAD),
        ROW("HTTP-09", LINE("GET / http/1.1"), BAD),
        ROW("HTTP-09", LINE("GET / HTTP/1.1 "), BAD),
        ROW("HTTP-09", LINE("GET / HTTP/1.1x"), BAD),
        ROW("HTTP-09", LINE("GET / XTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("GET / HTTP/0.9"), "bad 505"),
        ROW("HTTP-09", LINE("GET / HTTP/1.2"), "bad 505"),
        ROW("HTTP-09", LINE("GET / HTTP/2.0"), "bad 505"),
        ROW("HTTP-09", LINE("GET / HTTP/9.9"), "bad 505"),
        ROW("HTTP-09", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "bad 505"),
        ROW("HTTP-09", LINE("get / HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("Get / HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("BREW / HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("GETX / HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("PRI * HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("PLAY / HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("GET\t/ HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("GET /\tHTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("GET  / HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("GET /  HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("GET /a b HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE(" GET / HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("GET /\x80 HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("GET /#frag HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("GET x HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("GET x:80 HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("GET * HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("GET ?a HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("GET http:/x/ HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("GET http://evil/ HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("GET http://xy/ HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("GET http://u@x/ HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("GET ftp://x/ HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("CONNECT / HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("CONNECT x HTTP/1.1"), BAD),
        ROW("HTTP-09", LINE("CONNECT http://x:1/ HTTP/1.1"), BAD),
        ROW("HTTP-09", "EHLO example.com\r\n", BAD),
        ROW("HTTP-09", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", BAD),
        ROW("HTTP-09", "\0\0\0\0", BAD),
        ROW("HTTP-09", LINE("OPTIONS * HTTP/1.1"), CLEAN),
        ROW("HTTP-09", LINE("M-SEARCH / HTTP/1.1"), CLEAN),
        ROW("HTTP-09", LINE("TRACE / HTTP/1.1"), CLEAN), /* refused by the routes, not by the parser */
        ROW("HTTP-09", LINE("GET // HTTP/1.1"), CLEAN),
    };
    check_rows(HTTP_KIND_REQUEST, rows, ARRAY_SIZE(rows));
}

TEST(http_09_absolute_form)
{
    CHECK(strstr(REQUEST(LINE("GET http://x/a?b HTTP/1.1")), "head GET http://x/a?b path=/a query=b "));
    CHECK(strstr(REQUEST(LINE("GET HTTPS://X HTTP/1.1")), "head GET HTTPS://X path=/ query= "));
    CHECK(strstr(REQUEST(LINE("GET http://x?b?c HTTP/1.1")), "path=/ query=b?c "));
    CHECK(strstr(REQUEST(LINE("GET /http://y/?u=http://z/ HTTP/1.1")), "path=/http://y/ query=u=http://z/ "));
}

TEST(http_10_sizes)
{
    static const struct http_limits small = {.line_bytes = 64, .head_bytes = 256, .header_count = 4};
    static const struct row rows[] = {
        ROW("HTTP-10", "GET /" TEXT_64 " HTTP/1.1\r\nHost: x\r\n\r\n", "bad 414"),
        ROW("HTTP-10", "GETGETGETGET" TEXT_64, "bad 414"),
        ROW("HTTP-10", "GET /0123456789abcdef0123456789abcdef0123456789abcdef01 HTTP/1.1\r\nHost: x\r\n\r\n",
            CLEAN), /* 64 */
        ROW("HTTP-10", "GET /0123456789abcdef0123456789abcdef0123456789abcdef012 HTTP/1.1\r\nHost: x\r\n\r\n",
            "bad 414"),
        ROW("HTTP-10", GET "A: " TEXT_64 TEXT_64 TEXT_64 TEXT_64 "\r\n\r\n", "bad 431"),
        ROW("HTTP-10", GET "A: b\r\nA: b\r\nA: b\r\n\r\n", CLEAN),
        ROW("HTTP-10", GET "A: b\r\nA: b\r\nA: b\r\nA: b\r\n\r\n", "bad 431"),
    };
    use_limits = &small;
    check_rows(HTTP_KIND_REQUEST, rows, ARRAY_SIZE(rows));

    /* a head of exactly head_bytes passes, one byte more does not */
    for (int extra = 0; extra <= 1; extra++) {
        char head[300];
        int n = snprintf(head, sizeof head, GET "A: ");
        while (n < 256 - 4 + extra)
            head[n++] = 'a';
        memcpy(head + n, "\r\n\r\n", 4);
        const char *s = story_of(HTTP_KIND_REQUEST, head, (size_t)n + 4);
        CHECK(strstr(s, extra ? "bad 431" : CLEAN));
    }
    use_limits = &http_limits_default;
}

TEST(http_18_expect)
{
    static const struct row rows[] = {
        ROW("HTTP-18", POST "Content-Length: 1\r\nExpect: 100-Continue\r\n\r\na", "body a\n" CLEAN),
        ROW("HTTP-18", POST "Content-Length: 1\r\nExpect: 200-ok\r\n\r\na", "bad 417"),
        ROW("HTTP-18", POST "Content-Length: 1\r\nExpect:\r\n\r\na", "bad 417"),
        ROW("HTTP-18", POST "Content-Length: 1\r\nExpect: 100-continue\r\nExpect: 100-continue\r\n\r\na",
            "bad 417"),
        ROW("HTTP-18", "GET / HTTP/1.0\r\nHost: x\r\nExpect: x\r\n\r\n", CLEAN),
    };
    check_rows(HTTP_KIND_REQUEST, rows, ARRAY_SIZE(rows));
    CHECK(strstr(REQUEST(POST "Content-Length: 1\r\nExpect: 100-continue\r\n\r\na"), " expect"));
}

TEST(http_parse_connection_wishes)
{
    CHECK(strstr(REQUEST(GET "Connection: close\r\n\r\n"), " keep") == NULL);
    CHECK(strstr(REQUEST(GET "Connection: foo , CLOSE\r\n\r\n"), " keep") == NULL);
    CHECK(strstr(REQUEST(GET "Connection: closed\r\n\r\n"), " keep"));
    CHECK(strstr(REQUEST(GET "Connection: a\r\nConnection: close\r\n\r\n"), " keep") == NULL);
    CHECK(strstr(REQUEST("GET / HTTP/1.0\r\nHost: x\r\n\r\n"), " keep") == NULL);
    CHECK(strstr(REQUEST("GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n"), " keep"));
    CHECK(strstr(REQUEST(GET "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"), " upgrade"));
    CHECK(strstr(REQUEST(GET "Connection: upgrade\r\n\r\n"), " upgrade") == NULL);
    CHECK(strstr(REQUEST(GET "Upgrade: websocket\r\n\r\n"), " upgrade") == NULL);
    CHECK(strstr(REQUEST("CONNECT a:1 HTTP/1.1\r\n\r\n"), " upgrade"));
}

/* ------------------------------------------------------------------ responses */

#define OK "HTTP/1.1 200 OK\r\n"

TEST(http_parse_responses)
{
    static const struct row rows[] = {
        ROW("plain", OK "Content-Length: 2\r\n\r\nhi", "body hi\n" CLEAN),
        ROW("chunked", OK "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "body hi\n" CLEAN),
        ROW("until close", OK "\r\nhi there", "body hi there\neof end"),
        ROW("until close, empty", OK "\r\n", "eof end"),
        ROW("no reason", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", CLEAN),
        ROW("empty reason", "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", CLEAN),
        ROW("204", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", CLEAN),
        ROW("304", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", CLEAN),
        ROW("100", "HTTP/1.1 100 Continue\r\n\r\n", CLEAN),
        ROW("CL+TE", OK "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", BAD),
        ROW("two CL", OK "Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi", BAD),
        ROW("list CL", OK "Content-Length: 2, 2\r\n\r\nhi", BAD),
        ROW("negative CL", OK "Content-Length: -2\r\n\r\nhi", BAD),
        ROW("TE gzip", OK "Transfer-Encoding: gzip, chunked\r\n\r\n", BAD),
        ROW("TE on 1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", BAD),
        ROW("fold", OK "A: b\r\n c\r\n\r\n", BAD),
        ROW("bare LF", "HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", BAD),
        ROW("bad chunk", OK "Transfer-Encoding: chunked\r\n\r\nx\r\n", BAD),
        ROW("cut", OK "Content-Length: 5\r\n\r\nhi", "body hi\neof cut"),
        ROW("cut chunk", OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhi", "body hi\neof cut"),
        ROW("cut head", OK "Content-Le", "eof cut"),
        ROW("leading CRLF", "\r\n" OK "\r\n", BAD),
        ROW("two digits", "HTTP/1.1 20 OK\r\n\r\n", BAD),
        ROW("four digits", "HTTP/1.1 2000 OK\r\n\r\n", BAD),
        ROW("zero", "HTTP/1.1 000 OK\r\n\r\n", BAD),
        ROW("0.9", "hello", "eof cut"),
        ROW("ICY", "ICY 200 OK\r\n\r\n", BAD),
        ROW("2.0", "HTTP/2.0 200 OK\r\n\r\n", BAD),
        ROW("NUL in reason", "HTTP/1.1 200 O\0K\r\n\r\n", BAD),
        ROW("request", GET "\r\n", BAD),
    };
    check_rows(HTTP_KIND_RESPONSE, rows, ARRAY_SIZE(rows));
}

TEST(http_parse_response_to_head_and_connect)
{
    answers = "HEAD";
    CHECK(
        strstr(RESPONSE(OK "Content-Length: 2\r\n\r\n"), "length=2 keep\nContent-Length=2\nend\neof clean"));
    CHECK(strstr(RESPONSE(OK "\r\n"), "end\neof clean"));
    answers = "CONNECT";
    CHECK(strstr(RESPONSE(OK "\r\n"), " upgrade"));
    CHECK(strstr(RESPONSE("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"), " upgrade") == NULL);
    answers = NULL;
    CHECK(strstr(RESPONSE("HTTP/1.1 101 Switching Protocols\r\n\r\n"), " upgrade"));
}

/* ------------------------------------------------------------------ helpers */

TEST(http_list_elements)
{
    CHECK(http_list_has("a, b ,c", "B"));
    CHECK(http_list_has("a", "a"));
    CHECK(http_list_has(",, a", "a"));
    CHECK(!http_list_has("ab", "a"));
    CHECK(!http_list_has("a b", "a"));
    CHECK(!http_list_has("", "a"));
    CHECK(!http_list_has(NULL, "a"));
}

TEST(http_header_lookup)
{
    static const struct http_header h[] = {{"A", "1"}, {"b", "2"}, {"a", "3"}};
    CHECK_STREQ(http_header_find(h, 3, "a"), "1");
    CHECK_STREQ(http_header_find(h, 3, "B"), "2");
    CHECK(http_header_find(h, 3, "c") == NULL);
    CHECK_INT(http_header_occurs(h, 3, "a"), 2);
    CHECK_INT(http_header_occurs(h, 0, "a"), 0);
}

TEST(http_query_values)
{
    char out[16];
    CHECK(http_query_get("a=1&b=two+words&c=%41%2f&d", "b", out, sizeof out));
    CHECK_STREQ(out, "two words");
    CHECK(http_query_get("a=1&c=%41%2F", "c", out, sizeof out));
    CHECK_STREQ(out, "A/");
    CHECK(http_query_get("a=1&d", "d", out, sizeof out));
    CHECK_STREQ(out, "");
    CHECK(http_query_get("x%62=1=2", "xb", out, sizeof out));
    CHECK_STREQ(out, "1=2");
    CHECK(http_query_get("a=%C3%A4", "a", out, sizeof out));
    CHECK_STREQ(out, "\xc3\xa4");
    CHECK(!http_query_get("a=1", "b", out, sizeof out));
    CHECK(!http_query_get("", "a", out, sizeof out));
    CHECK(!http_query_get("a=%", "a", out, sizeof out));
    CHECK(!http_query_get("a=%4", "a", out, sizeof out));
    CHECK(!http_query_get("a=%4&b", "a", out, sizeof out));
    CHECK(!http_query_get("a=%zz", "a", out, sizeof out));
    CHECK(!http_query_get("a=%00", "a", out, sizeof out));
    CHECK(!http_query_get("a=%ff", "a", out, sizeof out));
    CHECK(http_query_get("a=123456789012345", "a", out, sizeof out));
    CHECK(!http_query_get("a=1234567890123456", "a", out, sizeof out));
    CHECK(!http_query_get("ab=1", "a", out, sizeof out));
    CHECK(!http_query_get("a=1", "ab", out, sizeof out));
    CHECK(http_query_get("&&a=1", "a", out, sizeof out));
}

TEST(http_status_texts)
{
    CHECK_STREQ(http_status_text(200), "OK");
    CHECK_STREQ(http_status_text(431), "Request Header Fields Too Large");
    CHECK(http_status_text(999) != NULL);
}

TEST(http_tokens_and_texts)
{
    CHECK(http_token_valid("X-A"));
    CHECK(!http_token_valid(""));
    CHECK(!http_token_valid("a b"));
    CHECK(!http_token_valid("a\r\nb"));
    CHECK(http_text_valid("a b\tc"));
    CHECK(http_text_valid(""));
    CHECK(!http_text_valid("a\rb"));
    CHECK(!http_text_valid("a\nb"));
    CHECK(!http_text_valid("a\x7f"));
}
