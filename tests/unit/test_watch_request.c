/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch_request.h"
#include "test.h"

#include <errno.h>

TEST(watch_paths)
{
    static const struct {
        const char *path, *expected;
    } rows[] = {
        {"src", "/workspace/src"},
        {".", "/workspace"},
        {"a/./b//c/", "/workspace/a/b/c"},
        {"a/../b", "/workspace/b"},
        {"..", "/"},
        {"../../../x", "/x"},
        {"/workspace/a/..", "/workspace"},
        {"/", "/"},
        {"//a///b", "/a/b"},
        {"...", "/workspace/..."},
        {"..a", "/workspace/..a"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char *out = NULL;
        REQUIRE(watch_path_resolve("/workspace", rows[i].path, &out) == 0);
        CHECK_STREQ(out, rows[i].expected);
        free(out);
    }
    static char large[5000];
    memset(large, 'x', sizeof large - 1);
    char *out = NULL;
    CHECK_INT(watch_path_resolve("/workspace", large, &out), -ENAMETOOLONG);
}

static int parse(const char *text, struct watch_request *q)
{
    struct json_doc *doc = NULL;
    struct error e;
    char *copy = strdup(text);
    int r = copy && json_parse(copy, strlen(copy), 0, &doc, &e) == 0 ? 0 : -ENOTSUP;
    if (r == 0)
        r = watch_request_parse(json_root(doc), q, &e);
    json_free(doc);
    free(copy);
    return r;
}

TEST(watch_request_defaults)
{
    struct watch_request q;
    REQUIRE(parse("{\"path\":\" a \"}", &q) == 0);
    CHECK_STREQ(q.path, "/workspace/a");
    CHECK(q.recursive);
    CHECK_INT(q.include_count, 0);
    REQUIRE(q.exclude_count == 3);
    CHECK_STREQ(q.exclude[1], ".git");
    CHECK_INT(q.events, WATCH_EVENTS_DEFAULT);
    watch_request_done(&q);
}

TEST(watch_request_lists_are_sorted_sets)
{
    struct watch_request q;
    REQUIRE(parse("{\"path\":\"a\",\"include\":[\"c\",\"a\",\"c\",\"b\",\"a\"],\"events\":[\"attrib\"],"
                  "\"recursive\":false}",
                  &q) == 0);
    REQUIRE(q.include_count == 3);
    CHECK_STREQ(q.include[0], "a");
    CHECK_STREQ(q.include[1], "b");
    CHECK_STREQ(q.include[2], "c");
    CHECK_INT(q.exclude_count, 0);
    CHECK_INT(q.events, 1u << WATCH_ATTRIB);
    CHECK(!q.recursive);
    watch_request_done(&q);
}

TEST(watch_request_outside)
{
    struct watch_request q;
    static const char *const paths[] = {"{\"path\":\"/etc\"}", "{\"path\":\"/workspacex\"}",
                                        "{\"path\":\"..\"}"};
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        CHECK_INT(parse(paths[i], &q), -EACCES);
        CHECK(q.path);
        watch_request_done(&q);
    }
}
