/* SPDX-License-Identifier: Apache-2.0 */
/* test_error.c: the small things that end up in front of a human: error sentences, times, log lines. */
#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>

TEST(error_set_fills_and_returns_minus_errno)
{
    struct error e = {0};
    CHECK_INT(error_set(&e, ENOENT, "open layer '%s'", "base"), -ENOENT);
    CHECK_INT(e.code, ENOENT);
    CHECK_STREQ(e.msg, "open layer 'base'");
}

TEST(error_functions_accept_no_error)
{
    CHECK_INT(error_set(NULL, EIO, "x"), -EIO);
    CHECK_INT(error_sys(NULL, EPERM, "x"), -EPERM);
    CHECK(error_prefix(NULL, "x") < 0);
}

TEST(error_sys_adds_the_reason)
{
    struct error e = {0};
    char expected[200];
    (void)snprintf(expected, sizeof expected, "mkdir 'a': %s", strerror(EEXIST));
    CHECK_INT(error_sys(&e, EEXIST, "mkdir '%s'", "a"), -EEXIST);
    CHECK_INT(e.code, EEXIST);
    CHECK_STREQ(e.msg, expected);
}

TEST(error_prefix_keeps_the_code)
{
    struct error e = {0};
    CHECK_INT(error_set(&e, ENOSPC, "disk full"), -ENOSPC);
    CHECK_INT(error_prefix(&e, "sandbox %d", 7), -ENOSPC);
    CHECK_STREQ(e.msg, "sandbox 7: disk full");
    CHECK_INT(e.code, ENOSPC);
}

TEST(error_messages_are_cut_not_overrun)
{
    struct error e = {0};
    char big[2 * sizeof e.msg];
    memset(big, 'b', sizeof big - 1);
    big[sizeof big - 1] = '\0';

    CHECK_INT(error_set(&e, EINVAL, "%s", big), -EINVAL);
    CHECK_INT(strlen(e.msg), sizeof e.msg - 1);
    CHECK_INT(error_sys(&e, EINVAL, "%s", big), -EINVAL);
    CHECK_INT(strlen(e.msg), sizeof e.msg - 1);
    CHECK_INT(error_prefix(&e, "front"), -EINVAL);
    CHECK_INT(strlen(e.msg), sizeof e.msg - 1);
    CHECK(strncmp(e.msg, "front: bbb", 10) == 0);
    CHECK_INT(error_prefix(&e, "%s", big), -EINVAL);
    CHECK_INT(strlen(e.msg), sizeof e.msg - 1);
    CHECK(e.msg[0] == 'b');
}

static const char *iso(int64_t wall_ms)
{
    static char s[CLOCK_ISO_SIZE];
    clock_iso(wall_ms, s);
    return s;
}

TEST(clock_iso_formats_utc)
{
    CHECK_STREQ(iso(0), "1970-01-01T00:00:00.000Z");
    CHECK_STREQ(iso(999), "1970-01-01T00:00:00.999Z");
    CHECK_STREQ(iso(1000), "1970-01-01T00:00:01.000Z");
    CHECK_STREQ(iso(951782399007), "2000-02-28T23:59:59.007Z");
    CHECK_STREQ(iso(951782400000), "2000-02-29T00:00:00.000Z"); /* a leap day */
    CHECK_STREQ(iso(1767323045678), "2026-01-02T03:04:05.678Z");
    CHECK_STREQ(iso(2147483648000), "2038-01-19T03:14:08.000Z"); /* beyond 32 bits */
    CHECK_STREQ(iso(253402300799999), "9999-12-31T23:59:59.999Z");
}

TEST(clock_iso_of_nonsense_is_the_epoch)
{
    CHECK_STREQ(iso(-1), "1970-01-01T00:00:00.000Z");
    CHECK_STREQ(iso(INT64_MIN), "1970-01-01T00:00:00.000Z");
    CHECK_STREQ(iso(253402300800000), "1970-01-01T00:00:00.000Z"); /* the year 10000 */
    CHECK_STREQ(iso(INT64_MAX), "1970-01-01T00:00:00.000Z");
}

TEST(clocks_agree_with_each_other)
{
    int64_t a = clock_mono_us(), b = clock_mono_us();
    CHECK(b >= a);
    CHECK(clock_mono_ms() >= a / 1000);
    int64_t before = clock_wall_ms();
    char now[CLOCK_ISO_SIZE];
    clock_iso_now(now);
    int64_t after = clock_wall_ms();
    CHECK(before > 1577836800000); /* 2020: the clock is in milliseconds */
    char low[CLOCK_ISO_SIZE], high[CLOCK_ISO_SIZE];
    clock_iso(before, low);
    clock_iso(after, high);
    CHECK(strcmp(low, now) <= 0 && strcmp(now, high) <= 0);
}

/* What one log_msg writes to stderr, "" for nothing. */
static char logged[8192];
#define LOGGED(...)                                                        \
    do {                                                                   \
        int pipe_[2], saved_ = dup(STDERR_FILENO);                         \
        REQUIRE(saved_ >= 0 && pipe2(pipe_, O_CLOEXEC | O_NONBLOCK) == 0); \
        REQUIRE(dup2(pipe_[1], STDERR_FILENO) >= 0);                       \
        log_msg(__VA_ARGS__);                                              \
        REQUIRE(dup2(saved_, STDERR_FILENO) >= 0);                         \
        ssize_t n_ = read(pipe_[0], logged, sizeof logged - 1);            \
        logged[n_ > 0 ? n_ : 0] = '\0';                                    \
        close_fd(&saved_);                                                 \
        close_fd(&pipe_[0]);                                               \
        close_fd(&pipe_[1]);                                               \
    } while (0)

/* The parts of a text line behind the time, which is checked for its shape. */
static const char *behind_time(const char *line)
{
    if (strlen(line) < 25 || line[4] != '-' || line[10] != 'T' || line[23] != 'Z' || line[24] != ' ')
        return "(no time)";
    return line + 25;
}

TEST(log_text_is_one_line)
{
    log_init("keeper", LOG_INFO, LOG_TEXT);
    LOGGED(LOG_INFO, "sandbox %s is up", "a1");
    CHECK_STREQ(behind_time(logged), "info  keeper: sandbox a1 is up\n");
    log_rename("agent");
    LOGGED(LOG_ERROR, "lost");
    CHECK_STREQ(behind_time(logged), "error agent: lost\n");
}

TEST(log_level_filters)
{
    log_init("keeper", LOG_WARN, LOG_TEXT);
    LOGGED(LOG_INFO, "quiet");
    CHECK_STREQ(logged, "");
    LOGGED(LOG_WARN, "loud");
    CHECK_STREQ(behind_time(logged), "warn  keeper: loud\n");
    CHECK(!log_enabled(LOG_DEBUG) && !log_enabled(LOG_INFO) && log_enabled(LOG_WARN) &&
          log_enabled(LOG_ERROR));
}

TEST(log_text_hides_control_bytes)
{
    log_init("keeper", LOG_INFO, LOG_TEXT);
    LOGGED(LOG_INFO, "a\nb\x1b[31mc\rd\te\x7f"
                     "f\"g");
    CHECK_STREQ(behind_time(logged), "info  keeper: a\\x0ab\\x1b[31mc\\x0dd\\x09e\\x7ff\"g\n");
}

TEST(log_json_is_valid_json)
{
    const char *nasty = "q\" b\\ n\n e\x1b d\x7f \xc3\xa9";
    log_init("gateway", LOG_INFO, LOG_JSON);
    LOGGED(LOG_WARN, "%s", nasty);
    size_t n = strlen(logged);
    REQUIRE(n > 1 && logged[n - 1] == '\n' && !memchr(logged, '\n', n - 1));

    auto_json struct json_doc *doc = NULL;
    struct error e = {0};
    CHECK_INT(json_parse(logged, n - 1, 0, &doc, &e), 0);
    CHECK_STREQ(e.msg, "");
    REQUIRE(doc);
    CHECK_STREQ(json_string(json_get(json_root(doc), "level"), NULL), "warn");
    CHECK_STREQ(json_string(json_get(json_root(doc), "process"), NULL), "gateway");
    CHECK_STREQ(json_string(json_get(json_root(doc), "message"), NULL), nasty);
    const char *time = json_string(json_get(json_root(doc), "time"), NULL);
    CHECK(time && strlen(time) == CLOCK_ISO_SIZE - 1);
}

TEST(log_lines_are_cut_but_stay_whole)
{
    char big[5000];
    for (int format = LOG_TEXT; format <= LOG_JSON; format++) {
        for (int fill = 0; fill < 2; fill++) {
            memset(big, fill ? 'x' : '\x01', sizeof big - 1);
            big[sizeof big - 1] = '\0';
            log_init("agent", LOG_INFO, (enum log_format)format);
            LOGGED(LOG_INFO, "%s", big);
            size_t n = strlen(logged);
            CHECK(n > 500 && n < 2304);
            CHECK(logged[n - 1] == '\n' && !memchr(logged, '\n', n - 1));
            if (format == LOG_JSON) {
                auto_json struct json_doc *doc = NULL;
                CHECK_INT(json_parse(logged, n - 1, 0, &doc, NULL), 0);
            }
        }
    }
}

TEST(log_names_parse)
{
    enum log_level level = LOG_ERROR;
    enum log_format format = LOG_TEXT;
    CHECK(log_level_parse("debug", &level) && level == LOG_DEBUG);
    CHECK(log_level_parse("error", &level) && level == LOG_ERROR);
    CHECK(!log_level_parse("Debug", &level) && !log_level_parse("", &level) &&
          !log_level_parse("errors", &level));
    CHECK(level == LOG_ERROR);
    CHECK(log_format_parse("json", &format) && format == LOG_JSON);
    CHECK(!log_format_parse("xml", &format) && format == LOG_JSON);
}
