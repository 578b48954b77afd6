/* SPDX-License-Identifier: Apache-2.0 */
/* test_cli_format.c: sizes, ages, durations, tables and quoting. */
#include "cli/format.h"
#include "cli/values.h"
#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>

static const char *bytes(uint64_t n)
{
    static char out[FORMAT_SIZE];
    format_bytes(n, out);
    return out;
}

static const char *age(int64_t ms)
{
    static char out[FORMAT_SIZE];
    format_age(ms, out);
    return out;
}

static const char *duration(int64_t ms)
{
    static char out[FORMAT_SIZE];
    format_duration(ms, out);
    return out;
}

TEST(format_bytes_in_words)
{
    CHECK_STREQ(bytes(0), "0 B");
    CHECK_STREQ(bytes(1023), "1023 B");
    CHECK_STREQ(bytes(1024), "1 KiB");
    CHECK_STREQ(bytes(1536), "1.5 KiB");
    CHECK_STREQ(bytes(10 * 1024 + 600), "10 KiB");
    CHECK_STREQ(bytes(UINT64_C(1) << 30), "1 GiB");
    CHECK_STREQ(bytes((UINT64_C(1) << 30) - 1), "1023 MiB"); /* never more than there is */
    CHECK_STREQ(bytes(UINT64_MAX), "15 EiB");
}

TEST(format_age_in_words)
{
    CHECK_STREQ(age(-5000), "now");
    CHECK_STREQ(age(999), "now");
    CHECK_STREQ(age(1000), "1 s");
    CHECK_STREQ(age(59999), "59 s");
    CHECK_STREQ(age(60000), "1 min");
    CHECK_STREQ(age(3600 * 1000), "1 h");
    CHECK_STREQ(age(36 * 3600 * 1000), "36 h");
    CHECK_STREQ(age(INT64_C(3) * 86400 * 1000), "3 d");
    CHECK_STREQ(age(INT64_C(800) * 86400 * 1000), "2 y");
    CHECK_STREQ(age(INT64_MAX), "292471208 y");
}

TEST(format_duration_reads_back)
{
    static const int64_t all[] = {1, 500, 1000, 90000, 3600000, 90061001};
    CHECK_STREQ(duration(0), "0s");
    CHECK_STREQ(duration(90000), "1m30s");
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        int64_t back = -1;
        CHECK_INT(value_duration_ms("x", duration(all[i]), &back, NULL), 0);
        CHECK_INT(back, all[i]);
    }
}

TEST(value_duration_accepts_and_refuses)
{
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"10s", 10000}, {"500ms", 500}, {"1m30s", 90000}, {"1.5h", 5400000}, {"2d", 172800000},
                {"3", 3000},    {"0.25", 250},  {"2min", 120000}, {"0", 0},          {"1h1ms", 3600001}};
    static const char *const bad[] = {"",
                                      "s",
                                      "10x",
                                      "1m30",
                                      "-1s",
                                      "1..5s",
                                      "1e3s",
                                      "10 s",
                                      "999999999999999999999s",
                                      "9999999999999d",
                                      "1.5.5s",
                                      "ms"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        int64_t ms = -1;
        CHECK_INT(value_duration_ms("--timeout", good[i].text, &ms, NULL), 0);
        CHECK_INT(ms, good[i].ms);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        int64_t ms = -1;
        CHECK_INT(value_duration_ms("--timeout", bad[i], &ms, NULL), -EINVAL);
        CHECK_INT(ms, -1);
    }
    struct error e;
    int64_t ms;
    (void)value_duration_ms("--timeout", "soon", &ms, &e);
    CHECK_STREQ(e.msg, "--timeout: 'soon' is not a duration; use for example 500ms, 10s, 1m30s or 2h");
}

TEST(value_bytes_accepts_and_refuses)
{
    static const struct {
        const char *text;
        uint64_t n;
    } good[] = {{"0", 0},           {"1000000", 1000000},      {"64k", 65536},         {"512M", 536870912},
                {"2G", 2147483648}, {"1GiB", 1073741824},      {"1.5GiB", 1610612736}, {"1GB", 1000000000},
                {"100b", 100},      {"1Ti", UINT64_C(1) << 40}};
    static const char *const bad[] = {"", "M", "12X", "1GiBs", "-1", "1  G", "1GB ", "1kib"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        uint64_t n = 77;
        CHECK_INT(value_bytes("--memory", good[i].text, &n, NULL), 0);
        CHECK_INT(n, good[i].n);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        uint64_t n = 77;
        CHECK_INT(value_bytes("--memory", bad[i], &n, NULL), -EINVAL);
        CHECK_INT(n, 77);
    }
    uint64_t n;
    CHECK_INT(value_bytes("--memory", "9000000T", &n, NULL), -ERANGE);
}

TEST(value_integer_and_cpu)
{
    int64_t v = 0;
    CHECK_INT(value_integer("--tasks", "16", 16, 100, &v, NULL), 0);
    CHECK_INT(v, 16);
    struct error e;
    CHECK_INT(value_integer("--tasks", "101", 16, 100, &v, &e), -ERANGE);
    CHECK_STREQ(e.msg, "--tasks: 101 is out of range, allowed are 16 to 100");
    CHECK_INT(value_integer("--tasks", "99999999999999999999", 16, 100, &v, NULL), -ERANGE);
    CHECK_INT(value_integer("--tasks", "", 16, 100, &v, NULL), -EINVAL);
    CHECK_INT(value_integer("--tasks", " 17", 16, 100, &v, NULL), -EINVAL);
    CHECK_INT(value_integer("--tasks", "17x", 16, 100, &v, NULL), -EINVAL);

    uint32_t milli = 0;
    CHECK_INT(value_cpu_milli("--cpus", "1.5", &milli, NULL), 0);
    CHECK_INT(milli, 1500);
    CHECK_INT(value_cpu_milli("--cpus", "0", &milli, NULL), -ERANGE);
    CHECK_INT(value_cpu_milli("--cpus", "two", &milli, NULL), -EINVAL);
}

TEST(value_env_names)
{
    CHECK_INT(value_env("-e", "A=1", NULL), 0);
    CHECK_INT(value_env("-e", "_a1=x=y", NULL), 0);
    CHECK_INT(value_env("-e", "A=", NULL), 0);
    CHECK_INT(value_env("-e", "A", NULL), -EINVAL);
    CHECK_INT(value_env("-e", "=1", NULL), -EINVAL);
    CHECK_INT(value_env("-e", "1A=1", NULL), -EINVAL);
    CHECK_INT(value_env("-e", "A-B=1", NULL), -EINVAL);
    CHECK_INT(value_label("--label", "team.name/x=y", NULL), 0);
    CHECK_INT(value_label("--label", "team", NULL), -EINVAL);
    CHECK_INT(value_label("--label", "=y", NULL), -EINVAL);
}

TEST(iso_time_reads_what_the_server_writes)
{
    int64_t ms = -1;
    CHECK(parse_iso_time("1970-01-01T00:00:00.001Z", &ms));
    CHECK_INT(ms, 1);
    CHECK(parse_iso_time("2026-01-02T03:04:05Z", &ms));
    CHECK_INT(ms, INT64_C(1767323045000));
    CHECK(!parse_iso_time("2026-01-02", &ms));
    CHECK(!parse_iso_time("2026-13-02T03:04:05Z", &ms));
    CHECK(!parse_iso_time("2026-01-02T03:04:05.678", &ms));
    CHECK(!parse_iso_time("2026-01-02T03:04:05.678Zx", &ms));
    CHECK(!parse_iso_time("", &ms));
}

/* What a real shell makes of the words, one per line in brackets. */
static void check_shell(const char *const *words, int count, const char *expected)
{
    struct buf b = BUF_INIT(4096);
    CHECK_INT(buf_puts(&b, "printf '[%s]' "), 0);
    for (int i = 0; i < count; i++) {
        CHECK_INT(shell_quote(&b, words[i]), 0);
        CHECK_INT(buf_putc(&b, ' '), 0);
    }
    FILE *f = popen(buf_cstr(&b), "re");
    REQUIRE(f);
    char out[1000];
    size_t n = fread(out, 1, sizeof out - 1, f);
    out[n] = '\0';
    CHECK_INT(pclose(f), 0);
    CHECK_STREQ(out, expected);
    buf_done(&b);
}

TEST(shell_quote_survives_a_shell)
{
    static const char *const words[] = {
        "plain",     "",    "two words", "it's",    "$HOME `id` \\ \"q\" * ? ~ # ;&|<>(){}!",
        "new\nline", "-la", "A=1",       "\xc3\xa4"};
    check_shell(
        words, ARRAY_SIZE(words),
        "[plain][][two words][it's][$HOME `id` \\ \"q\" * ? ~ # ;&|<>(){}!][new\nline][-la][A=1][\xc3\xa4]");
}

TEST(shell_join_one_word_is_text)
{
    struct buf b = BUF_INIT(1000);
    char *one[] = {"cd /workspace && ls"};
    CHECK_INT(shell_join(&b, 1, one), 0);
    CHECK_STREQ(buf_cstr(&b), "cd /workspace && ls");
    buf_clear(&b);
    char *many[] = {"ls", "-la", "a b"};
    CHECK_INT(shell_join(&b, 3, many), 0);
    CHECK_STREQ(buf_cstr(&b), "ls -la 'a b'");
    buf_done(&b);
}

static const struct table_column columns[] = {
    {"ID", false, 6},
    {"STATE", false, 0},
    {"SIZE", true, 0},
};

static char *render(unsigned width)
{
    struct table t = TABLE_INIT(columns);
    const char *const rows[][3] = {{"short", "running", "1 B"},
                                   {"a-rather-long-identifier", "asleep", NULL},
                                   {"\xc3\xa4\xc3\xb6\x1b[31m", "x\ty", "12 GiB"}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        CHECK_INT(table_add(&t, rows[i]), 0);
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return NULL;
    table_print(&t, f, width);
    (void)fclose(f);
    table_done(&t);
    return text;
}

TEST(table_wide_terminal_cuts_nothing)
{
    auto_free char *text = render(80);
    CHECK_STREQ(text, "ID                        STATE      SIZE\n"
                      "short                     running     1 B\n"
                      "a-rather-long-identifier  asleep        -\n"
                      "\xc3\xa4\xc3\xb6?[31m                   x?y      12 GiB\n");
}

TEST(table_narrow_terminal_shortens_ids)
{
    auto_free char *text = render(30);
    CHECK_STREQ(text, "ID             STATE      SIZE\n"
                      "short          running     1 B\n"
                      "a-rather-lon\u2026  asleep        -\n"
                      "\xc3\xa4\xc3\xb6?[31m        x?y      12 GiB\n");
    /* never below what the column keeps, even when the line then is too long */
    auto_free char *tiny = render(5);
    CHECK(strstr(tiny, "a-rat\u2026  asleep"));
}

TEST(table_for_programs_is_tab_separated)
{
    auto_free char *text = render(0);
    CHECK_STREQ(text, "ID\tSTATE\tSIZE\n"
                      "short\trunning\t1 B\n"
                      "a-rather-long-identifier\tasleep\t-\n"
                      "\xc3\xa4\xc3\xb6?[31m\tx?y\t12 GiB\n");
}

TEST(table_without_rows_has_its_titles)
{
    struct table t = TABLE_INIT(columns);
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    REQUIRE(f);
    table_print(&t, f, 80);
    REQUIRE(fclose(f) == 0);
    CHECK_STREQ(text, "ID  STATE  SIZE\n");
    free(text);
    table_done(&t);
}
