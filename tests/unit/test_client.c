/* SPDX-License-Identifier: Apache-2.0 */
/* test_client.c: the parts of libsilica that need no server: URLs, tokens, events, errors. */
#include "client/client_internal.h"
#include "client/sse_reader.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

static const char *parse(const char *text)
{
    static char out[600];
    struct client_url u;
    struct silica_error e;
    if (client_url_parse(text, &u, &e) < 0) {
        (void)snprintf(out, sizeof out, "%s", e.message);
        return out;
    }
    (void)snprintf(out, sizeof out, "%s|%s|%s|%s|%s|%s", u.socket ? u.socket : "", u.host, u.port,
                   u.authority, u.base, u.local ? "local" : "remote");
    client_url_done(&u);
    return out;
}

TEST(client_url_forms)
{
    CHECK_STREQ(parse("http://127.0.0.1:8787"), "|127.0.0.1|8787|127.0.0.1:8787||local");
    CHECK_STREQ(parse("http://localhost:1/"), "|localhost|1|localhost:1||local");
    CHECK_STREQ(parse("HTTP://[::1]:80/a/b//"), "|::1|80|[::1]:80|/a/b|local");
    CHECK_STREQ(parse("http://example.org"), "|example.org|80|example.org||remote");
    CHECK_STREQ(parse("http://127.evil.example:1"), "|127.evil.example|1|127.evil.example:1||remote");
    CHECK_STREQ(parse("unix:/run/silica/api.sock"), "/run/silica/api.sock|||localhost||local");
    CHECK_STREQ(parse("unix:///run/x"), "/run/x|||localhost||local");
}

TEST(client_url_refusals)
{
    static const char *const bad[] = {"",           "127.0.0.1:8787", "http://",          "http://:80",
                                      "http://h:",  "http://h:0",     "http://h:65536",   "http://h:8x",
                                      "http://h?x", "http://h/ x",    "http://u:p@h:1",   "http://[::1",
                                      "unix:x",     "ftp://h",        "http://[::1]x:80", "http://h:1#f"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (!strstr(parse(bad[i]), "is not the URL of a server: "))
            test_fail(__FILE__, __LINE__, bad[i]);
    CHECK(strstr(parse("https://h:1"), "https is not supported yet"));
    CHECK(!strstr(parse("http://name:secret@h:1"), "secret"));
}

struct seen {
    char text[400];
    int stop_after; /* fail at this event, 0: never */
    int count;
};

static int on_event(char *data, size_t n, void *user)
{
    struct seen *s = user;
    size_t at = strlen(s->text);
    (void)snprintf(s->text + at, sizeof s->text - at, "[%.*s]", (int)n, data);
    return ++s->count == s->stop_after ? -ECANCELED : 0;
}

/* Feeds text in pieces of every size from 1 byte up: the cuts must not matter. */
static void check_events(const char *text, const char *expected)
{
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        struct seen seen = {0};
        struct sse_reader reader;
        sse_reader_init(&reader, 1000, on_event, &seen);
        for (size_t at = 0; at < strlen(text); at += piece)
            CHECK_INT(sse_reader_feed(&reader, text + at, MIN(piece, strlen(text) - at)), 0);
        sse_reader_done(&reader);
        CHECK_STREQ(seen.text, expected);
    }
}

TEST(sse_reader_splits_anywhere)
{
    check_events("data: {\"a\":1}\n\ndata: 2\n\n", "[{\"a\":1}][2]");
    check_events("data:1\r\n\r\ndata: 2\r\rdata:  3\n\n", "[1][2][ 3]");
    check_events(": comment\nevent: x\nid: 7\nretry: 1\ndata: a\ndata: b\ndata\n\n\n\n", "[a\nb\n]");
    check_events("datax: no\n\ndata: cut off", "");
}

TEST(sse_reader_is_bounded_and_stoppable)
{
    struct seen seen = {.stop_after = 2};
    struct sse_reader reader;
    sse_reader_init(&reader, 10, on_event, &seen);
    static const char three[] = "data:1\n\ndata:2\n\ndata:3\n\n";
    CHECK_INT(sse_reader_feed(&reader, three, strlen(three)), -ECANCELED);
    CHECK_STREQ(seen.text, "[1][2]");
    sse_reader_done(&reader);

    sse_reader_init(&reader, 10, on_event, &seen);
    CHECK_INT(sse_reader_feed(&reader, "data: 123456789", 15), -ENOBUFS);
    sse_reader_done(&reader);
}

TEST(client_error_from_an_envelope)
{
    static const char body[] =
        "{\"code\":\"SESSION_TERMINATED\",\"message\":\"gone\",\"context\":{\"exitCode\":7},"
        "\"httpStatus\":410,\"suggestion\":\"again\"}";
    struct silica_error e;
    CHECK_INT(client_fail_answer(&e, 410, body, strlen(body)), -ESHUTDOWN);
    CHECK_INT(e.kind, SILICA_ERROR_SERVER);
    CHECK_STREQ(e.code, "SESSION_TERMINATED");
    CHECK_STREQ(e.message, "gone");
    CHECK_STREQ(e.suggestion, "again");
    CHECK_INT(e.http_status, 410);
    CHECK_INT(e.exit_code, 7);

    CHECK_INT(client_fail_answer(&e, 502, "<html>", 6), -EREMOTEIO);
    CHECK_STREQ(e.message, "the server answered with HTTP status 502 (Bad Gateway)");
    CHECK_INT(e.exit_code, -1);
    CHECK_INT(client_fail_answer(&e, 404, "{\"error\":\"no\"}", 14), -ENOENT);
    CHECK_STREQ(e.message, "no");
    CHECK_INT(client_fail_answer(NULL, 404, "{}", 2), -ENOENT);
}

TEST(client_path_is_encoded)
{
    struct buf b = BUF_INIT(1000);
    CHECK_INT(client_sandbox_path(&b, "a/..?b \xc3\xa4", "/api"), 0);
    CHECK_STREQ(buf_cstr(&b), "/v1/sandbox/a%2F..%3Fb%20%C3%A4/api");
    buf_done(&b);
}

TEST(client_settings_are_checked)
{
    struct silica_client *c = NULL;
    struct silica_error e;
    struct silica_options o = {.url = "http://127.0.0.1:1", .token = "a b"};
    CHECK_INT(silica_client_new(&o, &c, &e), -EINVAL);
    CHECK_INT(e.kind, SILICA_ERROR_ARGUMENT);
    CHECK(!strstr(e.message, "a b")); /* a token is a secret, even a bad one */

    o = (struct silica_options){.url = "http://127.0.0.1:1", .token_file = "/nonexistent/token"};
    CHECK_INT(silica_client_new(&o, &c, &e), -ENOENT);
    CHECK(strstr(e.message, "/nonexistent/token"));

    o = (struct silica_options){.url = "http://127.0.0.1:1", .data_dir = "/nonexistent"};
    REQUIRE(unsetenv("SILICA_TOKEN") == 0);
    REQUIRE(silica_client_new(&o, &c, &e) == 0);
    CHECK(strstr(silica_client_token_problem(c), "'/nonexistent/admin.token' cannot be read: No such file"));
    CHECK_STREQ(silica_client_url(c), "http://127.0.0.1:1");
    silica_client_free(c);
    silica_client_free(NULL);
}

TEST(client_pairs_are_checked)
{
    static const char *const good[] = {"A=1", "B=", "C=x=y", NULL}, *const bad[] = {"A=1", "B", NULL};
    CHECK_INT(client_check_pairs(NULL, NULL), 0);
    CHECK_INT(client_check_pairs(good, NULL), 0);
    CHECK_INT(client_check_pairs(bad, NULL), -EINVAL);
    struct buf b = BUF_INIT(1000);
    struct json_writer w;
    json_writer_init(&w, &b);
    client_put_pairs(&w, good);
    CHECK_INT(w.err, 0);
    CHECK_STREQ(buf_cstr(&b), "{\"A\":\"1\",\"B\":\"\",\"C\":\"x=y\"}");
    buf_done(&b);
}
