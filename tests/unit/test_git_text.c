/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/git_text.h"
#include "agent/shell_quote.h"
#include "test.h"

#include <errno.h>

TEST(git_target_dir_table)
{
    static const struct {
        const char *url, *dir;
    } rows[] = {
        {"https://host/u/r.git", "/workspace/r"},
        {"https://host/u/r", "/workspace/r"},
        {"https://host/u/r/", "/workspace/r"},
        {"https://host/u/r.git?token=a/b", "/workspace/r"},
        {"https://u:p@host/u/r.git#x", "/workspace/r"},
        {"https://host", "/workspace/repository"},
        {"https://host/", "/workspace/repository"},
        {"https://host/.git", "/workspace/repository"},
        {"https://host/..", "/workspace/repository"},
        {"file:///srv/a.b.git", "/workspace/a.b"},
        {"git@host:u/r.git", "/workspace/r"},
        {"git@host:r.git", "/workspace/r"},
        {"/srv/repos/x.git", "/workspace/x"},
        {"../x", "/workspace/x"},
        {"..", "/workspace/repository"},
        {"x", "/workspace/x"},
        {"", "/workspace/repository"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct buf b = BUF_INIT(1 << 16);
        CHECK_INT(git_target_dir(rows[i].url, &b), 0);
        CHECK_STREQ(buf_cstr(&b), rows[i].dir);
        buf_done(&b);
    }
}

static void check_redact(const char *text, const struct git_url *u, const char *expected)
{
    struct buf b = BUF_INIT(1 << 16);
    CHECK_INT(git_redact(text, u, &b), 0);
    CHECK_STREQ(buf_cstr(&b), expected);
    buf_done(&b);
}

TEST(git_redact_patterns)
{
    check_redact("plain text", NULL, "plain text");
    check_redact("see https://u:p@host/x and http://t@h", NULL,
                 "see https://******@host/x and http://******@h");
    check_redact("https://host/a@b user@host", NULL, "https://host/a@b user@host");
    check_redact("'https://u:p@q@host'", NULL, "'https://******@host'");
    check_redact("https://h/?a=1&token=xyz&b=2", NULL, "https://h/?a=1&token=REDACTED&b=2");
    check_redact("?X-Amz-Signature=ab&X-Amz-Credential=cd 'x'", NULL,
                 "?X-Amz-Signature=REDACTED&X-Amz-Credential=REDACTED 'x'");
    check_redact("?X-Amz-Security-Token=a&secret=b&password=c", NULL,
                 "?X-Amz-Security-Token=REDACTED&secret=REDACTED&password=REDACTED");
    check_redact("?notoken=a", NULL, "?notoken=a");
}

TEST(git_redact_own_secrets)
{
    struct git_url u;
    REQUIRE(git_url_parse("https://me:s%40cret@host/r.git", &u) == 0);
    check_redact("me:s%40cret s@cret, not scret", &u, "****** ******, not scret");
    git_url_done(&u);
    REQUIRE(git_url_parse("https://ghp_token@host/r.git", &u) == 0);
    check_redact("Password for 'ghp_token'", &u, "Password for '******'");
    git_url_done(&u);
}

TEST(git_url_takes_credentials_out)
{
    struct git_url u;
    REQUIRE(git_url_parse("https://me:s%40c%zret@host:8443/r.git?x=@", &u) == 0);
    CHECK_STREQ(u.plain, "https://host:8443/r.git?x=@");
    CHECK_STREQ(u.scope, "https://host:8443");
    CHECK_STREQ(u.user, "me");
    CHECK_STREQ(u.password, "s@c%zret");
    git_url_done(&u);
    static const char *const plain[] = {"https://host/r@x", "git@host:u/r.git", "ssh://u:p@host/x", "/srv/x",
                                        "-x"};
    for (size_t i = 0; i < ARRAY_SIZE(plain); i++) {
        REQUIRE(git_url_parse(plain[i], &u) == 0);
        CHECK_STREQ(u.plain, plain[i]);
        CHECK(!u.scope && !u.user && !u.password);
        git_url_done(&u);
    }
    REQUIRE(git_url_parse("https://token@host/", &u) == 0);
    CHECK_STREQ(u.user, "token");
    CHECK(!u.password);
    git_url_done(&u);
    CHECK_INT(git_url_parse("https://a:b%0ahost=evil@host/", &u), -EINVAL);
    CHECK_INT(git_url_parse("https://a:b%00@host/", &u), -EINVAL);
}

TEST(git_command_text)
{
    struct git_checkout c = {"https://me:pass@h/it's.git", "-b", "/w/d", "1", 1500};
    struct git_url u;
    struct buf b = BUF_INIT(1 << 16);
    REQUIRE(git_url_parse(c.url, &u) == 0);
    CHECK_INT(git_command(&c, &u, &b), 0);
    const char *clone = strstr(buf_cstr(&b), "timeout -k 5 1.5 git ");
    REQUIRE(clone);
    CHECK(strstr(
        clone,
        " clone --filter=blob:none --branch '-b' --depth '1' -- 'https://h/it'\\''s.git' '/w/d' || exit\n"));
    CHECK(!strstr(buf_cstr(&b), "pass@") && !strstr(buf_cstr(&b), "'pass'"));
    git_url_done(&u);
    buf_done(&b);
    static const struct {
        int64_t ms;
        const char *text;
    } rows[] = {{600000, " 600 git"}, {1, " 0.001 git"}, {1250, " 1.25 git"}, {10000, " 10 git"}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        c = (struct git_checkout){"x", NULL, "d", NULL, rows[i].ms};
        REQUIRE(git_url_parse(c.url, &u) == 0);
        CHECK_INT(git_command(&c, &u, &b), 0);
        CHECK(strstr(buf_cstr(&b), rows[i].text));
        git_url_done(&u);
        buf_done(&b);
    }
}

TEST(git_error_codes)
{
    static const struct {
        int status;
        const char *errors, *code;
    } rows[] = {
        {124, "", "GIT_NETWORK_ERROR"},
        {128, "remote: Repository not found.", "GIT_REPOSITORY_NOT_FOUND"},
        {128, "Repository not found: not a git repository", "GIT_OPERATION_FAILED"},
        {128, "fatal: Remote branch x not found in upstream origin", "GIT_OPERATION_FAILED"},
        {1, "Permission denied (publickey)", "GIT_AUTH_FAILED"},
        {1, "does not exist", "GIT_REPOSITORY_NOT_FOUND"},
        {1, "destination path already exists", "GIT_CLONE_FAILED"},
        {1, "error: pathspec 'x'", "GIT_BRANCH_NOT_FOUND"},
        {1, "Authentication failed", "GIT_AUTH_FAILED"},
        {1, "invalid CREDENTIALS", "GIT_AUTH_FAILED"},
        {127, "timeout: command is missing", "GIT_CLONE_FAILED"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        CHECK_STREQ(git_error_code(rows[i].status, rows[i].errors), rows[i].code);
}

TEST(shell_quote_words)
{
    struct buf b = BUF_INIT(1 << 10);
    CHECK_INT(shell_quote(&b, "a'b\n$x''"), 0);
    CHECK_STREQ(buf_cstr(&b), "'a'\\''b\n$x'\\'''\\'''");
    buf_done(&b);
}
