/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cloudflared.h"
#include "agent/rpc_methods.h"
#include "test.h"

#include <errno.h>

/* A parsed text; the document lives until the next call but one. */
static const struct json_value *parse(const char *text)
{
    static char texts[2][65536];
    static struct json_doc *docs[2];
    static int turn;
    struct error e;
    turn = !turn;
    json_free(docs[turn]);
    docs[turn] = NULL;
    (void)snprintf(texts[turn], sizeof texts[turn], "%s", text);
    if (json_parse(texts[turn], strlen(texts[turn]), JSON_ALLOW_NUL, &docs[turn], &e) < 0)
        test_fail(__FILE__, __LINE__, text);
    return docs[turn] ? json_root(docs[turn]) : NULL;
}

static const char *text_of(struct buf *b)
{
    static char out[65536];
    (void)snprintf(out, sizeof out, "%s", buf_cstr(b));
    buf_done(b);
    return out;
}

TEST(rpc_messages)
{
    static const struct {
        const char *text;
        int result;
        enum rpc_kind kind;
        int64_t id, count;
    } rows[] = {
        {"[\"push\",[\"pipeline\",0,[\"a\",\"b\"],[]]]", 0, RPC_PUSH, 0, 0},
        {"[\"pull\",7]", 0, RPC_PULL, 7, 0},
        {"[\"resolve\",-2,null]", 0, RPC_RESOLVE, -2, 0},
        {"[\"reject\",3,[\"error\",\"Error\",\"x\"]]", 0, RPC_REJECT, 3, 0},
        {"[\"release\",-1,2]", 0, RPC_RELEASE, -1, 2},
        {"[\"stream\",1]", 0, RPC_STREAM, 0, 0},
        {"[\"pipe\"]", 0, RPC_PIPE, 0, 0},
        {"[\"abort\"]", 0, RPC_ABORT, 0, 0},
        {"[\"pull\"]", -EBADMSG, 0, 0, 0},
        {"[\"pull\",1.5]", -EBADMSG, 0, 0, 0},
        {"[\"pull\",\"1\"]", -EBADMSG, 0, 0, 0},
        {"[\"push\"]", -EBADMSG, 0, 0, 0},
        {"[\"resolve\",1]", -EBADMSG, 0, 0, 0},
        {"[\"release\",1]", -EBADMSG, 0, 0, 0},
        {"[\"release\",1,0]", -EBADMSG, 0, 0, 0},
        {"[\"pushy\",1]", -EBADMSG, 0, 0, 0},
        {"[]", -EBADMSG, 0, 0, 0},
        {"{}", -EBADMSG, 0, 0, 0},
        {"null", -EBADMSG, 0, 0, 0},
        {"\"push\"", -EBADMSG, 0, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct rpc_message m;
        int r = rpc_message_read(parse(rows[i].text), &m);
        if (r != rows[i].result ||
            (r == 0 && (m.kind != rows[i].kind || m.id != rows[i].id || m.count != rows[i].count)))
            test_fail(__FILE__, __LINE__, rows[i].text);
    }
}

TEST(rpc_forms)
{
    static const struct {
        const char *text;
        enum rpc_form form;
    } rows[] = {
        {"null", RPC_FORM_VALUE},
        {"{\"a\":[\"nonsense\"]}", RPC_FORM_VALUE},
        {"[[]]", RPC_FORM_ARRAY},
        {"[[1,2]]", RPC_FORM_ARRAY},
        {"[[1],[2]]", RPC_FORM_UNKNOWN},
        {"[]", RPC_FORM_UNKNOWN},
        {"[1]", RPC_FORM_UNKNOWN},
        {"[\"undefined\"]", RPC_FORM_UNDEFINED},
        {"[\"undefined\",1]", RPC_FORM_UNKNOWN},
        {"[\"date\",null]", RPC_FORM_DATE},
        {"[\"date\"]", RPC_FORM_UNKNOWN},
        {"[\"bytes\",\"AA\"]", RPC_FORM_BYTES},
        {"[\"bytes\",1]", RPC_FORM_UNKNOWN},
        {"[\"error\",\"Error\",\"x\"]", RPC_FORM_ERROR},
        {"[\"error\",\"Error\",\"x\",null,[]]", RPC_FORM_UNKNOWN},
        {"[\"export\",-1]", RPC_FORM_EXPORT},
        {"[\"promise\",-1]", RPC_FORM_EXPORT},
        {"[\"writable\",-1]", RPC_FORM_EXPORT},
        {"[\"readable\",1]", RPC_FORM_READABLE},
        {"[\"import\",1]", RPC_FORM_REFERENCE},
        {"[\"pipeline\",1,[\"a\",0],[[\"b\"]]]", RPC_FORM_REFERENCE},
        {"[\"pipeline\",1,[[\"a\"]]]", RPC_FORM_UNKNOWN},
        {"[\"pipeline\",1,[],{}]", RPC_FORM_UNKNOWN},
        {"[\"pipeline\",\"1\"]", RPC_FORM_UNKNOWN},
        {"[\"pipeline\",1,[],[],[]]", RPC_FORM_UNKNOWN},
        {"[\"inf\"]", RPC_FORM_NOT_FINITE},
        {"[\"remap\",1,[],[],[]]", RPC_FORM_FOREIGN},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (rpc_form_of(parse(rows[i].text)) != rows[i].form)
            test_fail(__FILE__, __LINE__, rows[i].text);
}

static int count_forms(void *arg, enum rpc_form form, const struct json_value *at)
{
    (void)at;
    ((int *)arg)[form]++;
    return 0;
}

TEST(rpc_walk_sees_everything)
{
    int seen[RPC_FORM_UNKNOWN + 1] = {0};
    const struct json_value *expr =
        parse("[\"pipeline\",0,[\"a\"],[{\"f\":[\"export\",-1],\"g\":[[[\"export\",-2],1]]},"
              "[\"error\",\"E\",\"m\",null,{\"p\":[\"export\",-3]}],[\"readable\",4],"
              "[\"remap\",0,[],[[\"export\",-4]],[]]]]");
    CHECK_INT(rpc_walk(expr, count_forms, seen), 0);
    CHECK_INT(seen[RPC_FORM_EXPORT], 4);
    CHECK_INT(seen[RPC_FORM_READABLE], 1);
    CHECK_INT(rpc_walk(parse("{\"a\":[[[\"what\"]]]}"), count_forms, seen), -EBADMSG);
}

static int resolve_to_seven(void *arg, const struct rpc_reference *ref, struct json_writer *w)
{
    (void)arg;
    json_put_int(w, ref->id * 10 + 7);
    return w->err;
}

static int to_json(const char *expr, struct buf *out)
{
    struct json_writer w;
    *out = BUF_INIT(65536);
    json_writer_init(&w, out);
    return rpc_to_json(parse(expr), &w, resolve_to_seven, NULL);
}

TEST(rpc_values)
{
    static const struct {
        const char *expr, *json;
    } rows[] = {
        {"1", "1"},
        {"[[]]", "[]"},
        {"[[1,[[2]],[[]]]]", "[1,[2],[]]"},
        {"{\"a\":[\"undefined\"],\"b\":1,\"c\":[\"export\",-1]}", "{\"b\":1}"},
        {"{\"a\":[\"undefined\"]}", "{}"},
        {"[[[\"undefined\"],2]]", "[null,2]"},
        {"[\"undefined\"]", "null"},
        {"[\"date\",1767323045678]", "\"2026-01-02T03:04:05.678Z\""},
        {"[\"date\",null]", "null"},
        {"[\"date\",1e300]", "null"},
        {"[\"bigint\",\"-12345678901234567890\"]", "-12345678901234567890"},
        {"[\"bigint\",\"1e5\"]", "null"},
        {"[\"bigint\",\"007\"]", "null"},
        {"[\"nan\"]", "null"},
        {"{\"x\":[\"pipeline\",3,[\"y\"]]}", "{\"x\":37}"},
    };
    struct buf out;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        CHECK_INT(to_json(rows[i].expr, &out), 0);
        CHECK_STREQ(text_of(&out), rows[i].json);
    }
    static const char *const refused[] = {"[\"bytes\",\"AA\"]", "{\"a\":[\"readable\",1]}",
                                          "[\"error\",\"E\",\"m\"]", "[\"pipeline\",0,[\"a\"],[]]",
                                          "[\"remap\",0,[],[],[]]"};
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        CHECK_INT(to_json(refused[i], &out), -ENOTSUP);
        buf_done(&out);
    }
}

TEST(rpc_arrays_are_escaped)
{
    static const struct {
        const char *json, *expr;
    } rows[] = {
        {"[]", "[[]]"},
        {"{\"a\":[1,[\"x]\"],{}]}", "{\"a\":[[1,[[\"x]\"]],{}]]}"},
        {"\"[\\\"[\"", "\"[\\\"[\""},
        {"\"\\\\\"", "\"\\\\\""},
        {"null", "null"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct buf out = BUF_INIT(1024);
        CHECK_INT(rpc_put_json(&out, rows[i].json, strlen(rows[i].json)), 0);
        CHECK_STREQ(text_of(&out), rows[i].expr);
    }
}

TEST(rpc_members_of_an_object)
{
    static const char json[] = " { \"a\" : [1,{\"b\":2}] , \"c\\\"\":\"},\",\"d\":{}}";
    struct rpc_member m[8];
    size_t n = rpc_members(json, strlen(json), m, 8);
    CHECK_INT(n, 3);
    CHECK(m[0].value_len >= 11 && memcmp(m[0].value, "[1,{\"b\":2}]", 11) == 0);
    CHECK(rpc_member_find(m, n, "d") == &m[2]);
    CHECK(rpc_member_find(m, n, "b") == NULL);
    CHECK_INT(rpc_members(json, strlen(json), m, 1), 1);
    CHECK_INT(rpc_members("[1]", 3, m, 8), 0);
    CHECK_INT(rpc_members("{}", 2, m, 8), 0);
    CHECK_INT(rpc_members("", 0, m, 8), 0);
}

static const struct rpc_method *method(const char *area, const char *name)
{
    char path[100];
    (void)snprintf(path, sizeof path, "[\"%s\",\"%s\"]", area, name);
    return rpc_method_find("", parse(path));
}

static void check_request(const struct rpc_method *m, const char *args, const char *target, const char *body)
{
    struct buf b = BUF_INIT(65536), t = BUF_INIT(4096);
    CHECK(m != NULL);
    CHECK_INT(rpc_request_build(m, parse(args), &b, &t, resolve_to_seven, NULL), 0);
    CHECK_STREQ(text_of(&t), target);
    CHECK_STREQ(text_of(&b), body);
}

TEST(rpc_requests)
{
    check_request(
        method("commands", "execute"),
        "[\"ls\",\"s\",{\"timeoutMs\":5,\"env\":{\"A\":\"1\",\"B\":[\"undefined\"]},\"background\":true}]",
        "/api/execute", "{\"command\":\"ls\",\"sessionId\":\"s\",\"timeoutMs\":5,\"env\":{\"A\":\"1\"}}");
    check_request(method("commands", "execute"), "[\"ls\",[\"undefined\"],[\"undefined\"]]", "/api/execute",
                  "{\"command\":\"ls\"}");
    check_request(method("processes", "getProcess"), "[\"a b/\\u00fc?\"]",
                  "/api/process/-?param=a%20b%2F%C3%BC%3F", "");
    check_request(method("processes", "streamProcessLogs"), "[\"x\"]", "/api/process/-/stream?rpc&param=x",
                  "");
    check_request(method("processes", "getProcess"), "[]", "/api/process/-?param=", "");
    check_request(method("watch", "watch"),
                  "[{\"path\":\"/a\",\"include\":[[\"*.ts\"]],\"events\":[[\"x\"]]}]", "/api/watch?rpc",
                  "{\"path\":\"/a\",\"include\":[\"*.ts\"]}");
    check_request(method("files", "writeFile"), "[\"/a\",[\"pipeline\",1,[\"content\"]]]", "/api/write",
                  "{\"path\":\"/a\",\"content\":17}");
    CHECK(rpc_method_find("", parse("[\"files\"]")) == NULL);
    CHECK(rpc_method_find("files", parse("[\"exists\"]")) == method("files", "exists"));
    CHECK(rpc_method_find("", parse("[\"files.exists\"]")) == NULL);
    CHECK_STREQ(rpc_part_find("", parse("[\"git\"]")), "git");
    CHECK_STREQ(rpc_part_find("git", parse("[\"checkout\"]")), "git.checkout");
    CHECK(rpc_part_find("", parse("[\"gi\"]")) == NULL);
    CHECK_STREQ(rpc_part_find("", NULL), "");
}

static void check_result(const struct rpc_method *m, const char *json, const char *expected)
{
    struct buf out = BUF_INIT(65536);
    struct rpc_result_extra extra = {.path = "as/sent", .content_len = 3};
    CHECK_INT(rpc_result_build(m, json, strlen(json), &extra, &out), 0);
    CHECK_STREQ(text_of(&out), expected);
}

TEST(rpc_results)
{
    check_result(method("utils", "ping"), "{\"success\":true,\"status\":\"healthy\"}", "\"healthy\"");
    check_result(method("utils", "getCommands"), "{\"availableCommands\":[]}", "[[]]");
    check_result(method("interpreter", "deleteCodeContext"), "{\"success\":true}", "[\"undefined\"]");
    check_result(method("files", "renameFile"), "{\"path\":\"a\",\"newPath\":\"b\",\"exitCode\":0}",
                 "{\"path\":\"a\",\"oldPath\":\"a\",\"newPath\":\"b\"}");
    check_result(method("files", "writeFile"), "{\"success\":true,\"path\":\"x\"}",
                 "{\"success\":true,\"path\":\"x\",\"bytesWritten\":3}");
    check_result(method("files", "writeFileStream"), "{\"success\":true,\"path\":\"/abs\",\"size\":9}",
                 "{\"success\":true,\"path\":\"as/sent\",\"bytesWritten\":9}");
    check_result(
        method("interpreter", "listCodeContexts"),
        "{\"contexts\":[{\"cwd\":\"/\\\"createdAt\\\":\\\"\",\"createdAt\":\"2026-01-02T03:04:05.678Z\","
        "\"lastUsed\":\"never\"}]}",
        "[[{\"cwd\":\"/\\\"createdAt\\\":\\\"\",\"createdAt\":[\"date\",1767323045678],"
        "\"lastUsed\":\"never\"}]]");
    struct buf out = BUF_INIT(1024);
    CHECK_INT(rpc_result_build(method("utils", "ping"), "{}", 2, NULL, &out), -EBADMSG);
    buf_done(&out);
}

TEST(rpc_failures)
{
    static const char json[] = "{\"code\":\"X\",\"message\":\"m\\n\",\"context\":{\"l\":[1]}}";
    struct buf out = BUF_INIT(1024);
    CHECK_INT(rpc_failure_build(404, json, strlen(json), &out), 0);
    CHECK_STREQ(text_of(&out),
                "[\"error\",\"Error\",\"m\\n\",null,{\"code\":\"X\",\"details\":{\"l\":[[1]]}}]");
    out = BUF_INIT(1024);
    CHECK_INT(rpc_failure_build(413, "", 0, &out), 0);
    CHECK_STREQ(text_of(&out), "[\"error\",\"Error\",\"The request was refused with status 413\",null,"
                               "{\"code\":\"INTERNAL_ERROR\",\"details\":{}}]");
}

TEST(cloudflared_lines)
{
    char url[64];
    CHECK_INT(cloudflared_metrics_port("INF Starting metrics server on 127.0.0.1:20241/metrics"), 20241);
    CHECK_INT(cloudflared_metrics_port("metrics server on 127.0.0.1:"), 0);
    CHECK_INT(cloudflared_metrics_port("metrics server on 127.0.0.1:99999"), 0);
    CHECK(cloudflared_url("{\"message\":\"|  https://a-b.trycloudflare.com  |\"}", url, sizeof url));
    CHECK_STREQ(url, "https://a-b.trycloudflare.com");
    CHECK(!cloudflared_url("Post \"https://api.trycloudflare.com/tunnel\": no route", url, sizeof url));
    CHECK(cloudflared_url("https://developers.example https://x.trycloudflare.com", url, sizeof url));
    CHECK(!cloudflared_url("https://.trycloudflare.com", url, sizeof url));
    CHECK(!cloudflared_url("https://a.trycloudflare.com.evil.example", url, sizeof url));
    CHECK(!cloudflared_url("https://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.trycloudflare.com", url,
                           sizeof url));
}
