/* SPDX-License-Identifier: Apache-2.0 */
/* test_options.c: the option parser and its suggestions. */
#include "cli/options.h"
#include "cli/suggest.h"
#include "test.h"

#include <errno.h>
#include <stdlib.h>

enum { KEY_VERBOSE = OPTION_KEY_FIRST, KEY_URL, KEY_DRY };

static const struct option own[] = {
    {'e', "env", 'e', "NAME=VALUE", NULL, "set a variable"},
    {KEY_VERBOSE, "verbose", 'v', NULL, NULL, "say more"},
    {KEY_DRY, "dry-run", 0, NULL, "TEST_OPTIONS_DRY", "only say what would be done"},
    {0, NULL, 0, NULL, NULL, NULL},
};
static const struct option shared[] = {
    {KEY_URL, "url", 0, "URL", "TEST_OPTIONS_URL", "where the server is"},
    {0, NULL, 0, NULL, NULL, NULL},
};

/* Everything options_next says about `line` (words separated by blanks), as "key=value key ..." */
static const char *walk(const char *line)
{
    static char out[1000];
    char copy[300];
    char *argv[20];
    int argc = 0;
    argv[argc++] = "verb";
    (void)snprintf(copy, sizeof copy, "%s", line);
    char *state = NULL;
    for (char *word = strtok_r(copy, " ", &state); word && argc < 20; word = strtok_r(NULL, " ", &state))
        argv[argc++] = word;

    struct options o = OPTIONS_INIT(own, shared, argc, argv);
    struct error e = {0};
    const char *value;
    int key;
    size_t n = 0;
    out[0] = '\0';
    while ((key = options_next(&o, &value, &e)) > 0)
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%s:%s%s", n ? " " : "",
                              key == OPTION_OPERAND ? "operand"
                              : key == OPTION_HELP  ? "help"
                                                    : options_source(&o),
                              value ? value : "", value ? "" : "!");
    if (key < 0)
        (void)snprintf(out + n, sizeof out - n, "%s(%s)", n ? " " : "", e.msg);
    return out;
}

TEST(options_mix_with_operands)
{
    CHECK_STREQ(walk(""), "");
    CHECK_STREQ(walk("demo -v --url http://x --env=A=1 more"),
                "operand:demo -v:! --url:http://x --env:A=1 operand:more");
    CHECK_STREQ(walk("-"), "operand:-");
    CHECK_STREQ(walk("--url="), "--url:");
}

TEST(options_short_forms_bundle)
{
    CHECK_STREQ(walk("-veA=1 x"), "-v:! -e:A=1 operand:x");
    CHECK_STREQ(walk("-vve B=2"), "-v:! -v:! -e:B=2");
    CHECK_STREQ(walk("-vx"), "-v:! (unknown option '-x')");
    CHECK_STREQ(walk("-e"), "(option '-e' needs a value (NAME=VALUE))");
    CHECK_STREQ(walk("-h"), "help:!");
}

TEST(options_end_at_two_dashes)
{
    CHECK_STREQ(walk("a -- -v --nope -- b"), "operand:a operand:-v operand:--nope operand:-- operand:b");
    CHECK_STREQ(walk("--"), "");
    CHECK_STREQ(walk("-e -- x"), "-e:-- operand:x"); /* a value is a value */
}

TEST(options_refuse_with_a_hint)
{
    CHECK_STREQ(walk("--ulr x"), "(unknown option '--ulr' (did you mean '--url'?))");
    CHECK_STREQ(walk("--verb"), "(unknown option '--verb' (did you mean '--verbose'?))");
    CHECK_STREQ(walk("--hlep"), "(unknown option '--hlep' (did you mean '--help'?))");
    CHECK_STREQ(walk("--frobnicate=3"), "(unknown option '--frobnicate')");
    CHECK_STREQ(walk("--url"), "(option '--url' needs a value (URL))");
    CHECK_STREQ(walk("--verbose=yes"), "(option '--verbose' takes no value)");
    CHECK_STREQ(walk("--=x"), "(unknown option '--')");
}

TEST(options_environment_comes_first)
{
    REQUIRE(setenv("TEST_OPTIONS_URL", "http://env", 1) == 0);
    CHECK_STREQ(walk("--url http://flag"), "TEST_OPTIONS_URL:http://env --url:http://flag");
    REQUIRE(setenv("TEST_OPTIONS_URL", "", 1) == 0);
    CHECK_STREQ(walk("x"), "operand:x");
    REQUIRE(unsetenv("TEST_OPTIONS_URL") == 0);

    REQUIRE(setenv("TEST_OPTIONS_DRY", "1", 1) == 0);
    CHECK_STREQ(walk(""), "TEST_OPTIONS_DRY:!");
    REQUIRE(setenv("TEST_OPTIONS_DRY", "No", 1) == 0);
    CHECK_STREQ(walk(""), "");
    REQUIRE(setenv("TEST_OPTIONS_DRY", "perhaps", 1) == 0);
    CHECK_STREQ(walk(""), "(environment variable TEST_OPTIONS_DRY is 'perhaps'; use 1 or 0)");
    REQUIRE(unsetenv("TEST_OPTIONS_DRY") == 0);
}

TEST(options_rest_is_untouched)
{
    char *argv[] = {"exec", "demo", "ls", "--nope", "--", "-v"};
    struct options o = OPTIONS_INIT(own, shared, 6, argv);
    struct error e = {0};
    const char *value;
    REQUIRE(options_next(&o, &value, &e) == OPTION_OPERAND);
    REQUIRE(options_next(&o, &value, &e) == OPTION_OPERAND);
    int count;
    char **rest = options_rest(&o, &count);
    CHECK_INT(count, 4);
    CHECK_STREQ(rest[0], "ls");
    CHECK_STREQ(rest[3], "-v");
    CHECK_INT(options_next(&o, &value, &e), OPTION_DONE);
}

TEST(options_help_is_wrapped)
{
    static const struct option rows[] = {
        {'l', "listen", 'l', "ADDR", "X_LISTEN", "one two three four five six seven"},
        {'x', "a-very-long-option-name", 0, "VALUE", NULL, "short"},
        {0, NULL, 0, NULL, NULL, NULL},
    };
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    REQUIRE(f);
    options_print(f, rows, 50);
    REQUIRE(fclose(f) == 0);
    CHECK_STREQ(text, "  -l, --listen ADDR         one two three four\n"
                      "                            five six seven\n"
                      "                            [X_LISTEN]\n"
                      "      --a-very-long-option-name VALUE\n"
                      "                            short\n");
    free(text);
}

TEST(suggest_counts_edits)
{
    CHECK_INT(edit_distance("", ""), 0);
    CHECK_INT(edit_distance("abc", ""), 3);
    CHECK_INT(edit_distance("exec", "exce"), 1);
    CHECK_INT(edit_distance("kitten", "sitting"), 3);
    CHECK_INT(edit_distance("ca", "abc"), 3);
}

TEST(suggest_only_what_is_near)
{
    struct suggestion s = SUGGESTION_INIT("exce");
    suggestion_offer(&s, "serve");
    CHECK(s.best == NULL);
    suggestion_offer(&s, "exec");
    CHECK_STREQ(s.best, "exec");

    s = SUGGESTION_INIT("x");
    suggestion_offer(&s, "l");
    CHECK(s.best == NULL);
}
