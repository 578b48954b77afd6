/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/file_path.h"
#include "agent/file_error.h"
#include "agent/file_range.h"
#include "test.h"

#include <errno.h>

TEST(file_path_problems)
{
    char text[4 * 4100];
    memset(text, 'x', sizeof text);
    CHECK_INT(file_path_problems(NULL, 0), FILE_PATH_EMPTY);
    CHECK_INT(file_path_problems("", 0), FILE_PATH_EMPTY);
    CHECK_INT(file_path_problems("a", 1), 0);
    CHECK_INT(file_path_problems("../..//a", 8), 0);
    CHECK_INT(file_path_problems("a\0b", 3), FILE_PATH_NUL);
    CHECK_INT(file_path_problems(text, 4096), 0);
    CHECK_INT(file_path_problems(text, 4097), FILE_PATH_LONG);
    text[7] = '\0';
    CHECK_INT(file_path_problems(text, 4097), FILE_PATH_NUL | FILE_PATH_LONG);
}

TEST(file_path_length_counts_utf16_units)
{
    char text[4 * 4100];
    for (size_t i = 0; i < 4096; i++)
        memcpy(text + i * 3, "\xe2\x82\xac", 3); /* one unit */
    CHECK_INT(file_path_problems(text, 4096 * 3), 0);
    for (size_t i = 0; i < 2049; i++)
        memcpy(text + i * 4, "\xf0\x9f\x98\x80", 4); /* two */
    CHECK_INT(file_path_problems(text, 2048 * 4), 0);
    CHECK_INT(file_path_problems(text, 2049 * 4), FILE_PATH_LONG);
}

TEST(file_path_join)
{
    char out[PATH_MAX], longest[PATH_MAX];
    CHECK_INT(file_path_join(out, "/w", "a/b"), 0);
    CHECK_STREQ(out, "/w/a/b");
    CHECK_INT(file_path_join(out, "/", "a"), 0);
    CHECK_STREQ(out, "/a");
    CHECK_INT(file_path_join(out, "/w", "/a"), 0);
    CHECK_STREQ(out, "/a");
    CHECK_INT(file_path_join(out, "/w", ".."), 0);
    CHECK_STREQ(out, "/w/..");
    memset(longest, 'x', sizeof longest);
    longest[0] = '/';
    longest[PATH_MAX - 1] = '\0';
    CHECK_INT(file_path_join(out, "/w", longest), 0);
    CHECK_INT(file_path_join(out, "/w", longest + 1), -ENAMETOOLONG);
}

TEST(file_path_decode)
{
    static const char *const bad[] = {"", "%", "%2", "%zz", "a%0", "%00", "a%00b", "%%41"};
    char out[PATH_MAX], text[PATH_MAX + 8];
    CHECK_INT(file_path_decode(out, "work/a%20b%2Fc"), 0);
    CHECK_STREQ(out, "/work/a b/c");
    CHECK_INT(file_path_decode(out, "%252e+%ff"), 0); /* once, and + is itself */
    CHECK_STREQ(out, "/%2e+\xff");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (file_path_decode(out, bad[i]) != -EINVAL)
            test_fail(__FILE__, __LINE__, bad[i]);
    memset(text, 'x', sizeof text);
    text[PATH_MAX - 2] = '\0';
    CHECK_INT(file_path_decode(out, text), 0);
    text[PATH_MAX - 2] = 'x';
    text[PATH_MAX - 1] = '\0';
    CHECK_INT(file_path_decode(out, text), -ENAMETOOLONG);
}

static void check_last(const char *path, const char *expected)
{
    char name[64];
    size_t n;
    const char *last = file_path_last(path, &n);
    (void)snprintf(name, sizeof name, "%.*s", (int)n, last);
    CHECK_STREQ(name, expected);
}

TEST(file_path_last)
{
    check_last("/a/b", "b");
    check_last("/a/b///", "b");
    check_last("b", "b");
    check_last("/", "");
    check_last("", "");
    check_last("/a/..", "..");
}

TEST(file_error_codes)
{
    char text[64];
    CHECK_STREQ(file_error_code(-ENOSPC), "NO_SPACE");
    CHECK_STREQ(file_error_code(EDQUOT), "NO_SPACE");
    CHECK_STREQ(file_error_code(-EROFS), "READ_ONLY");
    CHECK_STREQ(file_error_code(-EIO), "FILESYSTEM_ERROR");
    CHECK_STREQ(file_error_code(-4095), "FILESYSTEM_ERROR");
    file_error_text(text, sizeof text, -EISDIR, "write", "/x");
    CHECK_STREQ(text, "EISDIR: Is a directory, write '/x'");
    file_error_text(text, 8, -EISDIR, "write", "/x");
    CHECK_STREQ(text, "EISDIR:");
    CHECK(file_error_absent(-ENOENT) && file_error_absent(ENOTDIR) && !file_error_absent(-EACCES));
}

static void check_range(const char *value, uint64_t size, enum file_range_kind kind, uint64_t first,
                        uint64_t len)
{
    struct file_range r = file_range_parse(value, size);
    if (r.kind != kind || r.first != first || r.len != len)
        test_fail(__FILE__, __LINE__, value);
}

TEST(file_range_parse)
{
    check_range("bytes=0-0", 10, FILE_RANGE_PART, 0, 1);
    check_range("bytes=3-", 10, FILE_RANGE_PART, 3, 7);
    check_range("bytes=-4", 10, FILE_RANGE_PART, 6, 4);
    check_range("bytes=-40", 10, FILE_RANGE_PART, 0, 10);
    check_range("BYTES= 2-999999999999999999", 10, FILE_RANGE_PART, 2, 8);
    check_range("bytes=10-", 10, FILE_RANGE_NONE, 0, 0);
    check_range("bytes=-0", 10, FILE_RANGE_NONE, 0, 0);
    check_range("bytes=0-", 0, FILE_RANGE_NONE, 0, 0);
    static const char *const ignored[] = {"",           "bytes",
                                          "bytes=",     "bytes=-",
                                          "bytes=a-b",  "bytes=1-2,4-5",
                                          "items=0-1",  "bytes=5-4",
                                          "bytes=1-2 ", "bytes=9999999999999999999-",
                                          "bytes=--1"};
    for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
        check_range(ignored[i], 10, FILE_RANGE_WHOLE, 0, 10);
}
