/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch_glob.h"
#include "base/clock.h"
#include "test.h"

#include <errno.h>

static bool match(const char *pattern, const char *path)
{
    struct watch_glob *g = NULL;
    if (watch_glob_new(&pattern, 1, &g) != 0) {
        test_fail(__FILE__, __LINE__, pattern);
        return false;
    }
    bool found = watch_glob_match(g, path);
    watch_glob_free(g);
    return found;
}

TEST(glob_table)
{
    static const struct {
        const char *pattern, *path;
        bool found;
    } rows[] = {
        /* whole components, anywhere in the path */
        {".git", "/workspace/.git", true},
        {".git", "/workspace/.git/config", true},
        {".git", "/workspace/a/.git/x", true},
        {".git", "/workspace/.github", false},
        {".git", "/workspace/x.git", false},
        {"workspace", "/workspace/a", true},
        {"work", "/workspace/a", false},
        {"a/b", "/workspace/a/b/c", true},
        {"a/b", "/workspace/aa/b", false},
        {"/workspace/a", "/workspace/a/b", true},
        {"/workspace/a", "/x/workspace/a/b", false},
        {"/a", "/workspace//a", true},
        /* a star stays inside its component */
        {"*.ts", "/workspace/src/a.ts", true},
        {"*.ts", "/workspace/src/a.tsx", false},
        {"*.ts", "/workspace/src.ts/a", true},
        {"*.ts", "/workspace/.ts", true},
        {"src/*.ts", "/workspace/src/a.ts", true},
        {"src/*.ts", "/workspace/src/lib/a.ts", false},
        {"a*b*c", "/w/axxbyyc", true},
        {"a*b*c", "/w/axxbyy", false},
        {"a*b", "/w/a/b", false},
        {"*", "/", true},
        {"*", "", true},
        /* two stars do not */
        {"src/**/x", "/workspace/src/a/b/x", true},
        {"src/**/x", "/workspace/src/x", false}, /* the two slashes are both meant */
        {"src/**", "/workspace/src/a/b", true},
        {"src/**", "/workspace/src", false},
        {"**/a.ts", "/workspace/a.ts", true},
        {"a**b", "/w/a/x/b", true},
        {"a***b", "/w/a/x/b", true},
        /* one character, not one byte */
        {"?", "/w/a", true},
        {"???", "/ab/c", false},
        {"a?c", "/w/abc", true},
        {"a?c", "/w/a/c", false},
        {"a?c",
         "/w/a\xc3\xa9"
         "c",
         true},
        {"a?c",
         "/w/a\xe2\x82\xac"
         "c",
         true},
        {"a??c",
         "/w/a\xe2\x82\xac"
         "c",
         false},
        {"a?c",
         "/w/a\xff"
         "c",
         true},
        {"\xc3\xa9*", "/w/\xc3\xa9t\xc3\xa9", true},
        {"\xc3\xa9", "/w/\xc3\xa8", false},
        /* regular expression characters are plain */
        {"a.b", "/w/axb", false},
        {"a+", "/w/aa", false},
        {"a+(b)|^$\\", "/w/a+(b)|^$\\/x", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (match(rows[i].pattern, rows[i].path) != rows[i].found) {
            char what[200];
            (void)snprintf(what, sizeof what, "%s in %s", rows[i].pattern, rows[i].path);
            test_fail(__FILE__, __LINE__, what);
        }
}

TEST(glob_list_is_an_alternative)
{
    const char *patterns[] = {"*.c", "build", "docs/**/*.md"};
    struct watch_glob *g = NULL;
    REQUIRE(watch_glob_new(patterns, ARRAY_SIZE(patterns), &g) == 0);
    CHECK(watch_glob_match(g, "/workspace/a.c"));
    CHECK(watch_glob_match(g, "/workspace/build/x"));
    CHECK(watch_glob_match(g, "/workspace/docs/a/b.md"));
    CHECK(!watch_glob_match(g, "/workspace/a.h"));
    watch_glob_free(g);
    REQUIRE(watch_glob_new(NULL, 0, &g) == 0);
    CHECK(!watch_glob_match(g, "/workspace/a.c"));
    watch_glob_free(g);
    CHECK(!watch_glob_match(NULL, "/workspace/a.c"));
}

TEST(glob_limits)
{
    static char text[WATCH_GLOB_TOKENS_MAX + 2];
    const char *p = text;
    struct watch_glob *g = NULL;
    memset(text, 'a', WATCH_GLOB_TOKENS_MAX + 1);
    CHECK_INT(watch_glob_new(&p, 1, &g), -E2BIG);
    text[WATCH_GLOB_TOKENS_MAX] = '\0';
    REQUIRE(watch_glob_new(&p, 1, &g) == 0);
    CHECK(watch_glob_match(g, text));
    watch_glob_free(g);
    static const char *many[WATCH_GLOB_PATTERNS_MAX + 1];
    for (size_t i = 0; i < ARRAY_SIZE(many); i++)
        many[i] = "a";
    CHECK_INT(watch_glob_new(many, ARRAY_SIZE(many), &g), -E2BIG);
}

/* A backtracking matcher would need more steps here than there are atoms in the world. */
TEST(glob_never_explodes)
{
    static char pattern[2001], path[4096];
    const char *p = pattern;
    struct watch_glob *g = NULL;
    for (size_t i = 0; i + 1 < sizeof pattern; i += 2)
        memcpy(pattern + i, "*a", 2);
    pattern[sizeof pattern - 1] = '\0';
    pattern[sizeof pattern - 2] = 'b';
    memset(path, 'a', sizeof path - 1);
    REQUIRE(watch_glob_new(&p, 1, &g) == 0);
    int64_t before = clock_mono_ms();
    CHECK(!watch_glob_match(g, path));
    CHECK(clock_mono_ms() - before < 30000); /* 0.05 s under the sanitizers */
    watch_glob_free(g);
}
