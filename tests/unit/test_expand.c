/* SPDX-License-Identifier: Apache-2.0 */
/* test_expand.c: variables and quotes, as a table. */
#include "builder/expand.h"
#include "test.h"

#include <errno.h>
#include <stdlib.h>

static const char *lookup(const char *name, size_t n, void *user)
{
    (void)user;
    static const struct {
        const char *name, *value;
    } rows[] = {
        {"a", "1"}, {"name", "app"}, {"empty", ""}, {"path", "/usr/local/lib"}, {"version", "v1.2.3"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strlen(rows[i].name) == n && strncmp(rows[i].name, name, n) == 0)
            return rows[i].value;
    return NULL;
}

static const struct row {
    const char *word, *result; /* NULL: an error */
} rows[] = {
    {"plain", "plain"},
    {"", ""},
    {"$a", "1"},
    {"${a}", "1"},
    {"$a$name", "1app"},
    {"$nameless", ""},
    {"${name}less", "appless"},
    {"x$", "x$"},
    {"$ x", "$ x"},
    {"\\$a", "$a"},
    {"a\\b", "ab"},
    {"end\\", "end\\"},
    {"'$a'", "$a"},
    {"\"$a\"", "1"},
    {"\"\\$a \\\" \\n\"", "$a \" \\n"},
    {"'it''s'", "its"},
    {"\"it's\"", "it's"},
    {"${none:-word}", "word"},
    {"${empty:-word}", "word"},
    {"${empty-word}", ""},
    {"${none-word}", "word"},
    {"${a:-word}", "1"},
    {"${a:+word}", "word"},
    {"${empty:+word}", ""},
    {"${empty+word}", "word"},
    {"${none+word}", ""},
    {"${none:-${name:-x}-$a}", "app-1"},
    {"${none:-a b}", "a b"},
    {"${none:-\"}\"}", "}"},
    {"${a:?must}", "1"},
    {"${none:?must}", NULL},
    {"${none?must}", NULL},
    {"${path#*/}", "usr/local/lib"},
    {"${path##*/}", "lib"},
    {"${path%/*}", "/usr/local"},
    {"${path%%/*}", ""},
    {"${version#v}", "1.2.3"},
    {"${none#v}", ""},
    {"$1", ""},
    {"${", NULL},
    {"${}", NULL},
    {"${a", NULL},
    {"${a:-", NULL},
    {"${a:=b}", NULL},
    {"${a/1/2}", NULL},
    {"'open", NULL},
    {"\"open", NULL},
};

TEST(words)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *out = NULL;
        struct error e = {0};
        int r = expand_word(rows[i].word, '\\', lookup, NULL, &out, &e);
        if (rows[i].result ? r != 0 || strcmp(out, rows[i].result) != 0 : r != -EINVAL) {
            printf("    word %s: %d '%s' (%s)\n", rows[i].word, r, out ? out : "", e.msg);
            CHECK(!"as in the table");
        }
        free(out);
    }
}

TEST(text_keeps_quotes)
{
    char *out = NULL;
    CHECK_INT(expand_text("say \"$a\" '$name' \\$a \\n\n", '\\', lookup, NULL, &out, NULL), 0);
    CHECK_STREQ(out, "say \"1\" 'app' $a \\n\n");
    free(out);
}

TEST(another_escape_character)
{
    char *out = NULL;
    CHECK_INT(expand_word("c:\\dir`$a", '`', lookup, NULL, &out, NULL), 0);
    CHECK_STREQ(out, "c:\\dir$a");
    free(out);
}

TEST(nesting_has_an_end)
{
    char text[400] = "", *out = NULL;
    for (int i = 0; i < 40; i++)
        strcat(text, "${x:-");
    CHECK_INT(expand_word(text, '\\', lookup, NULL, &out, NULL), -E2BIG);
    CHECK(!out);
}
