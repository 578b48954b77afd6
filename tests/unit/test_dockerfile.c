/* SPDX-License-Identifier: Apache-2.0 */
/* test_dockerfile.c: lines, instructions, flags, forms, heredocs and what is refused. */
#include "builder/dockerfile.h"
#include "test.h"

#include <errno.h>

static struct dockerfile d;
static struct error e;

static int parse(const char *text)
{
    dockerfile_done(&d);
    e = (struct error){0};
    return dockerfile_parse(text, strlen(text), &d, &e);
}

TEST(lines_comments_and_continuations)
{
    REQUIRE(parse("\xef\xbb\xbf# a comment\r\n\r\n  from  base AS  b \r\nRUN one && \\\r\n   # "
                  "inside\r\n\r\n\ttwo \\ \r\n three\r\n"
                  "run a\\\\\nRUN tail\\") == 0);
    REQUIRE(d.count == 4);
    CHECK_INT(d.items[0].kind, DOCKERFILE_FROM);
    CHECK_INT(d.items[0].line, 3);
    CHECK_INT(d.items[0].words.count, 3);
    CHECK_STREQ(d.items[0].words.items[2], "b");
    CHECK_STREQ(d.items[1].rest, "one && \ttwo  three");
    CHECK_STREQ(d.items[1].text, "RUN one && two three");
    CHECK_INT(d.items[1].line, 4);
    CHECK_STREQ(d.items[2].rest, "a\\\\"); /* two escape characters join nothing */
    CHECK_STREQ(d.items[3].rest, "tail");
    dockerfile_done(&d);
}

TEST(directives)
{
    REQUIRE(parse("# syntax=docker/dockerfile:1\n# escape = `\nRUN a `\n b\nRUN c\\\nRUN d") == 0);
    REQUIRE(d.count == 3);
    CHECK_INT(d.escape, '`');
    CHECK_STREQ(d.items[0].rest, "a  b");
    CHECK_STREQ(d.items[1].rest, "c\\");
    REQUIRE(parse("# just words\n# escape=`\nRUN a\\\nb") == 0); /* too late: a comment came first */
    CHECK_STREQ(d.items[0].rest, "ab");
    CHECK_INT(parse("# escape=x\nRUN a"), -EINVAL);
    dockerfile_done(&d);
}

TEST(flags)
{
    REQUIRE(parse("COPY --from=build --chown=1:2 --link a b /c/\nCOPY -- --odd /x\nRUN "
                  "--mount=type=cache,target=/x make --fast") == 0);
    REQUIRE(d.count == 3);
    CHECK_STREQ(instruction_flag(&d.items[0], "from"), "build");
    CHECK_STREQ(instruction_flag(&d.items[0], "chown"), "1:2");
    CHECK_STREQ(instruction_flag(&d.items[0], "link"), "");
    CHECK(instruction_flag(&d.items[0], "chmod") == NULL);
    CHECK_INT(d.items[0].words.count, 3);
    CHECK_STREQ(d.items[1].words.items[0], "--odd");
    CHECK_STREQ(d.items[2].rest, "make --fast");
    dockerfile_done(&d);
}

TEST(forms)
{
    REQUIRE(parse("CMD [\"a\", \"b \\\"c\\\"\"]\nCMD [ not json ]\nCMD\nENV A=1 B=\"x y\" C=p\\ q\nENV OLD "
                  "all the rest\n"
                  "COPY [\"with blank\", \"/d/\"]\nEXPOSE 80 443/tcp\nVOLUME /a /b\nWORKDIR /a b\nCMD [1]") ==
            0);
    REQUIRE(d.count == 10);
    CHECK(d.items[0].json);
    CHECK_STREQ(d.items[0].words.items[1], "b \"c\"");
    CHECK(!d.items[1].json);
    CHECK_STREQ(d.items[1].rest, "[ not json ]");
    CHECK_STREQ(d.items[2].rest, "");
    REQUIRE(d.items[3].words.count == 3);
    CHECK_STREQ(d.items[3].words.items[1], "B=\"x y\"");
    CHECK_STREQ(d.items[3].words.items[2], "C=p\\ q");
    CHECK_STREQ(d.items[4].rest, "OLD all the rest");
    CHECK_STREQ(d.items[5].words.items[0], "with blank");
    CHECK_INT(d.items[6].words.count, 2);
    CHECK_INT(d.items[7].words.count, 2);
    CHECK_STREQ(d.items[8].rest, "/a b");
    CHECK(!d.items[9].json);
    dockerfile_done(&d);
}

TEST(heredocs)
{
    REQUIRE(parse("RUN <<EOF\necho a\n# no comment\n\nEOF\nCOPY <<'A' <<-B /x/\n$a\nA\n\t\tb\n\tB\nRUN cat "
                  "<<X > /f && echo $((1 << 2))\n"
                  "in\nX\nRUN [\"echo\", \"<<EOF\"]\nUSER a") == 0);
    REQUIRE(d.count == 5);
    REQUIRE(d.items[0].heredoc_count == 1);
    CHECK_STREQ(d.items[0].heredocs[0].text, "echo a\n# no comment\n\n");
    CHECK(d.items[0].heredocs[0].expand);
    REQUIRE(d.items[1].heredoc_count == 2);
    CHECK_STREQ(d.items[1].heredocs[0].text, "$a\n");
    CHECK(!d.items[1].heredocs[0].expand);
    CHECK_STREQ(d.items[1].heredocs[1].text, "b\n");
    REQUIRE(d.items[2].heredoc_count == 1);
    CHECK_STREQ(d.items[2].heredocs[0].text, "in\n");
    CHECK_INT(d.items[3].heredoc_count, 0);
    CHECK_INT(d.items[4].kind, DOCKERFILE_USER);
    CHECK_INT(parse("FROM a\nRUN <<EOF\nnever ends"), -EINVAL);
    CHECK(strstr(e.msg, "line 2") && strstr(e.msg, "EOF"));
    dockerfile_done(&d);
}

TEST(errors_name_the_line)
{
    CHECK_INT(parse("FROM a\n\nCOPPY b c"), -EINVAL);
    CHECK(strstr(e.msg, "line 3") && strstr(e.msg, "COPPY") && strstr(e.msg, "COPY"));
    CHECK_INT(parse("FROM a\nRUN"), -EINVAL);
    CHECK(strstr(e.msg, "line 2"));
    CHECK_INT(parse("FROM \xff"), -EINVAL);
    CHECK_INT(dockerfile_parse("FROM a\0b", 8, &d, &e), -EINVAL);
    char *big = calloc(1, DOCKERFILE_MAX + 2);
    REQUIRE(big);
    memset(big, ' ', DOCKERFILE_MAX + 1);
    CHECK_INT(dockerfile_parse(big, DOCKERFILE_MAX + 1, &d, &e), -E2BIG);
    free(big);
}

TEST(an_empty_file_is_no_error_here)
{
    CHECK_INT(parse(""), 0);
    CHECK_INT(d.count, 0);
    CHECK_INT(parse("# only\n   \n# comments"), 0);
    CHECK_INT(d.count, 0);
}
