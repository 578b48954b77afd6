/* SPDX-License-Identifier: Apache-2.0 */
/* test_pattern.c: patterns and .dockerignore files, against tables of what is documented for them. */
#include "builder/pattern.h"
#include "test.h"

#include <errno.h>
#include <stdlib.h>

static const struct match {
    const char *pattern, *path;
    bool deep, matches;
} matches[] = {
    {"a", "a", true, true},
    {"a", "b", true, false},
    {"a", "a/b", true, false},
    {"*", "a", true, true},
    {"*", "a/b", true, false},
    {"*.md", "README.md", true, true},
    {"*.md", "docs/README.md", true, false},
    {"*/temp*", "somedir/temporary.txt", true, true},
    {"*/temp*", "temporary.txt", true, false},
    {"*/*/temp*", "somedir/subdir/temporary.txt", true, true},
    {"temp?", "tempa", true, true},
    {"temp?", "temp", true, false},
    {"temp?", "temp/", true, false},
    {"temp?", "temp\xc3\xa4", true, true},
    {"**", "a/b/c", true, true},
    {"**/*.go", "x.go", true, true},
    {"**/*.go", "a/b/x.go", true, true},
    {"**/*.go", "a/b/x.gob", true, false},
    {"a/**", "a/b", true, true},
    {"a/**", "a/b/c", true, true},
    {"a/**", "a", true, false},
    {"a/**/z", "a/z", true, true},
    {"a/**/z", "a/b/c/z", true, true},
    {"a/**/z", "a/bz", true, false},
    {"**/a/**/b", "x/a/y/b", true, true},
    {"**/**/**/x", "x", true, true},
    {"[a-c]x", "bx", true, true},
    {"[a-c]x", "dx", true, false},
    {"[^a-c]x", "dx", true, true},
    {"[^a-c]x", "ax", true, false},
    {"[]]x", "]x", true, true},
    {"[\\]]x", "]x", true, true},
    {"a\\*", "a*", true, true},
    {"a\\*", "ab", true, false},
    {"[a]", "/", true, false},
    {"**/x", "a/x", false, true}, /* shallow: two stars are one */
    {"**/x", "a/b/x", false, false},
    {"", "", true, true},
    {"*", "", true, true},
};

TEST(patterns)
{
    for (size_t i = 0; i < sizeof matches / sizeof *matches; i++) {
        const struct match *m = &matches[i];
        struct pattern *p = NULL;
        REQUIRE(pattern_compile(m->pattern, m->deep, &p, NULL) == 0);
        if (pattern_match(p, m->path) != m->matches) {
            printf("    '%s' and '%s'\n", m->pattern, m->path);
            CHECK(!"as in the table");
        }
        pattern_free(p);
    }
}

TEST(broken_patterns)
{
    struct pattern *p = NULL;
    CHECK_INT(pattern_compile("a[b", true, &p, NULL), -EINVAL);
    CHECK_INT(pattern_compile("a[b\\", true, &p, NULL), -EINVAL);
    CHECK_INT(pattern_compile("[", true, &p, NULL), -EINVAL);
}

TEST(time_is_bounded)
{
    char pattern[201] = "", path[3001] = "";
    for (int i = 0; i < 60; i++)
        strcat(pattern, "*a");
    memset(path, 'a', 3000);
    path[2999] = 'b';
    struct pattern *p = NULL;
    REQUIRE(pattern_compile(pattern, true, &p, NULL) == 0);
    CHECK(!pattern_match(p, path)); /* with backtracking this would not end */
    pattern_free(p);
}

TEST(paths)
{
    static const char *const rows[][2] = {
        {"", ""},          {".", ""},       {"/", ""},        {"a", "a"},      {"./a/", "a"}, {"a//b", "a/b"},
        {"/a/./b", "a/b"}, {"a/../b", "b"}, {"../../x", "x"}, {"a/b/..", "a"}, {"...", "..."}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *out = path_clean(rows[i][0]);
        CHECK_STREQ(out, rows[i][1]);
        free(out);
    }
}

static const struct ignored {
    const char *file, *path;
    bool excluded;
} ignored[] = {
    {"", "a", false},
    {"# comment\n*/temp*\n", "somedir/temporary.txt", true},
    {"*/temp*\n", "somedir/temp", true},
    {"*/temp*\n", "somedir/temp/deep/file", true}, /* what is below an excluded directory is, too */
    {"*/temp*\n", "temporary", false},
    {"temp?\n", "tempb", true},
    {"*.md\n!README.md\n", "README.md", false},
    {"*.md\n!README.md\n", "OTHER.md", true},
    {"*.md\n!README*.md\nREADME-secret.md\n", "README-secret.md", true},
    {"*.md\n!README*.md\nREADME-secret.md\n", "README-more.md", false},
    {"*.md\nREADME-secret.md\n!README*.md\n", "README-secret.md", false}, /* the last one decides */
    {"node_modules\n", "node_modules/x/y.js", true},
    {"node_modules\n", "app/node_modules/x", false}, /* patterns begin at the top */
    {"**/node_modules\n", "app/node_modules/x", true},
    {"/foo/bar\n", "foo/bar", true},
    {"foo/bar/\n", "foo/bar/x", true},
    {"  spaced  \r\n", "spaced", true},
    {" #name\n", "#name", true}, /* a comment begins in the first column */
    {"#name\n", "#name", false},
    {"*\n!src\n!package.json\n", "src/main.ts", false},
    {"*\n!src\n!package.json\n", "package.json", false},
    {"*\n!src\n!package.json\n", ".env", true},
    {"*\n!src/**\nsrc/secret\n", "src/secret/key", true},
    {"*\n!src/**\n", "src/a/b", false},
    {".\n", "a", false},
    {"a/../b\n", "b", true},
    {"\xef\xbb\xbf"
     "a\n",
     "a", true},
    {"! a\n", "b", false},
};

TEST(ignore_files)
{
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
        struct ignore *ig = NULL;
        REQUIRE(ignore_parse(ignored[i].file, strlen(ignored[i].file), &ig, NULL) == 0);
        if (ignore_excludes(ig, ignored[i].path) != ignored[i].excluded) {
            printf("    '%s' and '%s'\n", ignored[i].file, ignored[i].path);
            CHECK(!"as in the table");
        }
        ignore_free(ig);
    }
    CHECK(!ignore_excludes(NULL, "a"));
}

TEST(ignore_errors)
{
    struct ignore *ig = NULL;
    struct error e = {0};
    CHECK_INT(ignore_parse("a\nb[\n", 5, &ig, &e), -EINVAL);
    CHECK(strstr(e.msg, "line 2"));
    CHECK_INT(ignore_parse("!\n", 2, &ig, &e), -EINVAL);
}
