/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/backup_excludes.h"
#include "test.h"

#include <errno.h>

static const char *lines(struct backup_excludes *x)
{
    const char *s = buf_cstr(&x->lines);
    return s ? s : "(no memory)";
}

TEST(excludes_normalize)
{
    static const struct {
        const char *pattern, *expected;
    } rows[] = {
        {"node_modules", "node_modules\n... node_modules\n"},
        {"**/node_modules", "node_modules\n... node_modules\n"},
        {"**/**/a", "a\n... a\n"},
        {"dist/**", "dist\n... dist\n"},
        {"dist/**/**", "dist\n... dist\n"},
        {"dist/", "dist\n... dist\n"},
        {"/dist", "/dist\n"},
        {"*.log", "*.log\n... *.log\n"},
        {"**", ""},
        {"**/**", ""},
        {"", ""},
        {"#x", "\\#x\n... \\#x\n"},
        {" x", "\\ x\n... \\ x\n"},
        {"x\\", "x?\n... x?\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct backup_excludes x;
        backup_excludes_init(&x);
        CHECK_INT(backup_excludes_pattern(&x, rows[i].pattern), 0);
        CHECK_STREQ(lines(&x), rows[i].expected);
        backup_excludes_done(&x);
    }
}

TEST(excludes_paths_at_any_depth)
{
    static const char *const patterns[] = {"a/b", "a/**/b", "**/a/**/**/b/**"};
    for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
        struct backup_excludes x;
        backup_excludes_init(&x);
        CHECK_INT(backup_excludes_pattern(&x, patterns[i]), 0);
        CHECK(strncmp(lines(&x), "a/b\n*/a/b\n*/*/a/b\n*/*/*/a/b\n", 28) == 0);
        CHECK(!strstr(lines(&x), "...")); /* which would leave out all of a */
        backup_excludes_done(&x);
    }
}

TEST(excludes_each_once)
{
    struct backup_excludes x;
    backup_excludes_init(&x);
    CHECK_INT(backup_excludes_pattern(&x, "a"), 0);
    CHECK_INT(backup_excludes_pattern(&x, "**/a"), 0);
    CHECK_INT(backup_excludes_pattern(&x, "b"), 0);
    CHECK_INT(backup_excludes_pattern(&x, "a/**"), 0);
    CHECK_STREQ(lines(&x), "a\n... a\nb\n... b\n");
    backup_excludes_done(&x);
}

TEST(excludes_paths_are_literal)
{
    struct backup_excludes x;
    backup_excludes_init(&x);
    CHECK_INT(backup_excludes_path(&x, "a[1]*?.o", 8), 0);
    CHECK_INT(backup_excludes_path(&x, "x\ny", 3), 0);
    CHECK_INT(backup_excludes_path(&x, "", 0), 0);
    CHECK_STREQ(lines(&x), "a\\[1\\]\\*\\?.o\nx?y\n");
    buf_clear(&x.lines);
    CHECK_INT(backup_excludes_path(&x, "end\\", 4), 0);
    CHECK_STREQ(lines(&x), "end?\n");
    backup_excludes_done(&x);
}

TEST(excludes_refuse)
{
    struct backup_excludes x;
    backup_excludes_init(&x);
    CHECK_INT(backup_excludes_pattern(&x, "a\nb"), -EINVAL);
    char name[16];
    for (int i = 0; i < BACKUP_EXCLUDES_MAX; i++) {
        (void)snprintf(name, sizeof name, "%d", i);
        REQUIRE(backup_excludes_pattern(&x, name) == 0);
    }
    CHECK_INT(backup_excludes_pattern(&x, "one more"), -E2BIG);
    CHECK_INT(backup_excludes_pattern(&x, "17"), 0);
    backup_excludes_done(&x);
}
