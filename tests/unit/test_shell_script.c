/* SPDX-License-Identifier: Apache-2.0 */
/* test_shell_script.c: the exact texts that a session's bash gets to read, and its notes. */
#include "agent/shell_script.h"
#include "test.h"

#include <errno.h>

static struct buf out;

static const char *foreground(struct shell_script s)
{
    out = BUF_INIT(1 << 20);
    s.dir = "/d";
    s.shell = 7;
    s.len = strlen(s.text);
    CHECK_INT(shell_script_foreground(&out, &s), 0);
    return buf_cstr(&out);
}

static const char *background(struct shell_script s)
{
    out = BUF_INIT(1 << 20);
    s.dir = "/d";
    s.shell = 7;
    s.process = 3;
    s.len = strlen(s.text);
    CHECK_INT(shell_script_background(&out, &s), 0);
    return buf_cstr(&out);
}

TEST(a_plain_command_and_its_end)
{
    CHECK_STREQ(foreground((struct shell_script){.text = "ls"}),
                "\\builtin eval '{\nls\n\n}\n! 2>/d/7c >\"$?\"/' </dev/null >/d/7o 2>/d/7e\n");
    buf_clear(&out);
    CHECK_INT(shell_script_end(&out, &(struct shell_script){.dir = "/d", .shell = 7}), 0);
    CHECK_STREQ(buf_cstr(&out), "! 2>/d/7c >e\"$?\"/\n");
    buf_clear(&out);
    CHECK_INT(shell_script_from_file(&out, &(struct shell_script){.dir = "/d", .shell = 7}), 0);
    CHECK_STREQ(buf_cstr(&out), "\\builtin eval \"$(</d/7w)\"\n");
    buf_done(&out);
}

TEST(quotes_in_the_command_are_escaped_once)
{
    const char *text = foreground((struct shell_script){.text = "echo 'a'"});
    CHECK(strstr(text, "echo '\\''a'\\''\n"));
    buf_done(&out);
}

TEST(quotes_inside_the_outer_eval_are_escaped_twice)
{
    const char *text = foreground((struct shell_script){.text = "echo 'a'", .cwd = "/x"});
    CHECK(strstr(text, "echo '\\''\\'\\'''\\''a'\\''\\'\\'''\\''\n"));
    buf_done(&out);
}

TEST(blank_and_comment_texts_become_a_null_command)
{
    const char *const blank[] = {"", " \n\t", "# x", "  # a\n\n# b\n"};
    for (size_t i = 0; i < ARRAY_SIZE(blank); i++) {
        CHECK(strstr(foreground((struct shell_script){.text = blank[i]}), "{\n>/dev/null\n\n}"));
        buf_done(&out);
    }
    CHECK(strstr(foreground((struct shell_script){.text = "# a\nls"}), "{\n# a\nls\n\n}"));
    buf_done(&out);
}

TEST(relative_directories_are_not_looked_up_in_cdpath)
{
    CHECK(strstr(foreground((struct shell_script){.text = "ls", .cwd = "-"}), "cd -- '\\''./-'\\''; then"));
    buf_done(&out);
    CHECK(strstr(foreground((struct shell_script){.text = "ls", .cwd = "/a"}), "cd -- '\\''/a'\\''; then"));
    buf_done(&out);
}

TEST(variables_are_set_and_restored_by_text)
{
    struct env_list env = {0};
    CHECK_INT(env_set(&env, "A", "x'y"), 0);
    const char *text = foreground((struct shell_script){.text = "ls", .env = &env});
    CHECK(strstr(text, "\\builtin export A='\\''x'\\''\\'\\'''\\''y'\\''||! 2>/d/7c >v0/\n"));
    CHECK(strstr(text, "'\"${A+#}\"'\\builtin unset -v A||>/dev/null\n"));
    CHECK(strstr(text, "'\"${A+\\builtin declare -g${A@a} A=${A@Q}||>/dev/null}\"'\n"));
    CHECK(!strstr(text, "OLDPWD")); /* no cwd: the directory is nobody's business */
    buf_done(&out);
    env_done(&env);
}

TEST(long_texts_come_from_a_file)
{
    const char *text = foreground((struct shell_script){.text = "ls", .text_in_file = true});
    CHECK(strstr(text, "\\builtin eval \"$(</d/7t)\"'\n! 2>/d/7c >\"$?\"/' </dev/null >/d/7o 2>/d/7e\n"));
    CHECK(!strstr(text, "ls"));
    buf_done(&out);
    text = background((struct shell_script){.text = "ls", .text_in_file = true});
    CHECK(strstr(text, "{ \\builtin eval \"$(</d/p3t)\"\n} >/d/p3o\n"));
    CHECK(!strstr(text, "ls"));
    buf_done(&out);
}

TEST(the_body_in_a_file_is_not_quoted)
{
    struct shell_script s = {.dir = "/d", .shell = 7, .text = "echo 'a'", .len = 8};
    out = BUF_INIT(1 << 20);
    CHECK_INT(shell_script_body(&out, &s), 0);
    CHECK_STREQ(buf_cstr(&out), "{\necho 'a'\n\n}");
    buf_done(&out);
}

TEST(texts_with_substitutions_are_parsed_by_a_subshell_first)
{
    const char *const texts[] = {"echo $(ls)", "cat <(ls)", "ls >(cat)"};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct shell_script s = {.text = texts[i], .len = strlen(texts[i])};
        CHECK(shell_script_needs_file(&s));
    }
    struct shell_script plain = {.text = "echo `ls` ${x}", .len = 14};
    CHECK(!shell_script_needs_file(&plain));
    const char *text = foreground((struct shell_script){.text = "echo $(ls)", .text_in_file = true});
    CHECK(strncmp(text, "if ( \\builtin eval '\\builtin set -n\n'\"$(</d/7t)\" ); then\n", 57) == 0);
    CHECK(strstr(text, " >/d/7o 2>/d/7e||! 2>/d/7c >2/\nfi\n"));
    buf_done(&out);
}

TEST(background_announces_itself_before_it_opens_its_output)
{
    const char *text = background((struct shell_script){.text = "ls"});
    CHECK_STREQ(text, "( \\builtin set -m\n( \\builtin set +m\n! 2>/d/7c >p\"$BASHPID\"/\n"
                      "{ \\builtin eval '{\nls\n\n}' </dev/null 2>/d/p3e\n} >/d/p3o\n) & )\n");
    buf_done(&out);
}

TEST(an_errand_is_the_same_in_a_file)
{
    struct env_list env = {0};
    CHECK_INT(env_set(&env, "A", "x'y"), 0);
    struct shell_script s = {
        .dir = "/d", .shell = 7, .process = 3, .text = "ls", .len = 2, .cwd = "it's", .env = &env};
    out = BUF_INIT(1 << 20);
    CHECK_INT(shell_script_errand(&out, &s), 0);
    CHECK_STREQ(buf_cstr(&out),
                "if \\builtin cd -- './it'\\''s'; then\n"
                "\\builtin export A='x'\\''y'||>/dev/null\n"
                "\\builtin eval '{\nls\n\n}' </dev/null 2>/d/p3e\n"
                "else \\builtin printf 'Failed to change directory to '\\''%s'\\''\\n' 'it'\\''s' >/d/p3e\n"
                "! >/dev/null\nfi\n");
    auto_free char *errand = strdup(buf_cstr(&out));
    buf_done(&out);
    CHECK(strstr(background((struct shell_script){.text = "ls", .cwd = "it's", .env = &env}), errand));
    buf_done(&out);
    env_done(&env);
}

TEST(a_background_process_lowers_its_tag_before_anything_else)
{
    const char *text = background((struct shell_script){.text = "ls", .tag = (1ULL << 62) + 5});
    const char *tag = strstr(text, "\\builtin ulimit -x 4611686018427387909||>/dev/null\n");
    CHECK(tag != NULL);
    CHECK(tag && tag < strstr(text, "BASHPID"));
    buf_done(&out);
    CHECK(!strstr(background((struct shell_script){.text = "ls"}), "ulimit"));
    buf_done(&out);
}

TEST(the_other_guard_word_replaces_builtin_everywhere)
{
    struct env_list env = {0};
    CHECK_INT(env_set(&env, "A", "1"), 0);
    const char *text =
        foreground((struct shell_script){.text = "ls", .cwd = "/x", .env = &env, .plain_command = true});
    CHECK(!strstr(text, "builtin"));
    CHECK(strstr(text, "\\command eval"));
    buf_done(&out);
    env_done(&env);
}

TEST(a_buffer_that_is_too_small_is_reported)
{
    struct shell_script s = {.dir = "/d", .shell = 7, .text = "ls", .len = 2};
    struct buf small = BUF_INIT(10);
    CHECK_INT(shell_script_foreground(&small, &s), -ENOBUFS);
    buf_done(&small);
}

static struct shell_note parse(const char *line)
{
    return shell_note_parse(line, strlen(line));
}

TEST(notes_are_read_whatever_bash_calls_itself)
{
    struct shell_note n = parse("bash: line 4: 13/: Is a directory");
    CHECK_INT(n.kind, SHELL_NOTE_STATUS);
    CHECK_INT(n.value, 13);
    n = parse("renamed 7/: line 1: e0/: Ist ein Verzeichnis");
    CHECK_INT(n.kind, SHELL_NOTE_END);
    CHECK_INT(n.value, 0);
    CHECK_INT(parse("x: s2/: y").kind, SHELL_NOTE_EVAL);
    CHECK_INT(parse("x: v1/: y").kind, SHELL_NOTE_BAD_VAR);
    CHECK_INT(parse("x: d/: y").kind, SHELL_NOTE_BAD_CWD);
    n = parse("x: p4321/: y");
    CHECK_INT(n.kind, SHELL_NOTE_PID);
    CHECK_INT(n.value, 4321);
}

TEST(other_lines_are_no_notes)
{
    static const char *const lines[] = {
        "",
        "+ echo",
        "bash: line 4: 0: Is a directory",
        "bash: /: Is a directory",
        "/: ",
        "d/: x",
        "1/: x",
        "bash: e/: x",
        "bash: x1/: y",
        "bash: ee1/: x",
        "bash: 9999999999/: x",
        "bash: 1/",
        "bash: 1/:",
    };
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
        CHECK_INT(parse(lines[i]).kind, SHELL_NOTE_NONE);
}

TEST(directories_that_would_need_quotes_are_refused)
{
    CHECK(shell_dir_valid("/dev/.s"));
    CHECK(!shell_dir_valid("dev"));
    CHECK(!shell_dir_valid("/a b"));
    CHECK(!shell_dir_valid("/a'b"));
    CHECK(!shell_dir_valid("/0123456789012345678901234567890123456789"));
}
