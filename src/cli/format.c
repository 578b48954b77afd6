/* SPDX-License-Identifier: Apache-2.0 */
/* format.c: sizes, ages and words for a shell; see format.h. */
#include "cli/format.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

void format_bytes(uint64_t bytes, char out[FORMAT_SIZE])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    uint64_t rest = 0;

    while (bytes >= 1024 && unit + 1 < ARRAY_SIZE(units)) {
        rest = bytes % 1024;
        bytes /= 1024;
        unit++;
    }
    uint64_t tenths = rest * 10 / 1024; /* cut, not rounded: never more than there is */
    if (bytes < 10 && tenths)
        (void)snprintf(out, FORMAT_SIZE, "%u.%u %s", (unsigned)bytes, (unsigned)tenths, units[unit]);
    else
        (void)snprintf(out, FORMAT_SIZE, "%u %s", (unsigned)bytes, units[unit]);
}

void format_age(int64_t age_ms, char out[FORMAT_SIZE])
{
    int64_t s = age_ms / 1000;
    if (s < 1) /* also a server whose clock is ahead of ours */
        (void)snprintf(out, FORMAT_SIZE, "now");
    else if (s < 60)
        (void)snprintf(out, FORMAT_SIZE, "%d s", (int)s);
    else if (s < 3600)
        (void)snprintf(out, FORMAT_SIZE, "%d min", (int)(s / 60));
    else if (s < 2 * 86400) /* "36 h" says more than "1 d" */
        (void)snprintf(out, FORMAT_SIZE, "%d h", (int)(s / 3600));
    else if (s < 2 * 365 * (int64_t)86400)
        (void)snprintf(out, FORMAT_SIZE, "%d d", (int)(s / 86400));
    else
        (void)snprintf(out, FORMAT_SIZE, "%lld y", (long long)(s / (365 * (int64_t)86400)));
}

void format_duration(int64_t ms, char out[FORMAT_SIZE])
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
    size_t n = 0;

    out[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        int64_t count = ms / units[i].ms;
        ms %= units[i].ms;
        if (count > 0 && n < FORMAT_SIZE)
            n += (size_t)snprintf(out + n, FORMAT_SIZE - n, "%lld%s", (long long)count, units[i].name);
    }
    if (n == 0)
        (void)snprintf(out, FORMAT_SIZE, "0s");
}

/* `n` digits at *p, moving it behind them. */
static bool read_digits(const char **p, int n, int min, int max, int *ret)
{
    int v = 0;
    for (int i = 0; i < n; i++, (*p)++) {
        if (**p < '0' || **p > '9')
            return false;
        v = v * 10 + (**p - '0');
    }
    *ret = v;
    return v >= min && v <= max;
}

static bool read_char(const char **p, char c)
{
    if (**p != c)
        return false;
    (*p)++;
    return true;
}

bool parse_iso_time(const char *text, int64_t *ret_wall_ms)
{
    struct tm tm = {0};
    int ms = 0;
    if (!read_digits(&text, 4, 1970, 9999, &tm.tm_year) || !read_char(&text, '-') ||
        !read_digits(&text, 2, 1, 12, &tm.tm_mon) || !read_char(&text, '-') ||
        !read_digits(&text, 2, 1, 31, &tm.tm_mday) || !read_char(&text, 'T') ||
        !read_digits(&text, 2, 0, 23, &tm.tm_hour) || !read_char(&text, ':') ||
        !read_digits(&text, 2, 0, 59, &tm.tm_min) || !read_char(&text, ':') ||
        !read_digits(&text, 2, 0, 60, &tm.tm_sec))
        return false;
    if (read_char(&text, '.') && !read_digits(&text, 3, 0, 999, &ms))
        return false;
    if (!read_char(&text, 'Z') || *text)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *ret_wall_ms = (int64_t)timegm(&tm) * 1000 + ms;
    return true;
}

void format_age_since(const char *iso_time, char out[FORMAT_SIZE])
{
    int64_t at;
    if (iso_time && parse_iso_time(iso_time, &at))
        format_age(clock_wall_ms() - at, out);
    else
        (void)snprintf(out, FORMAT_SIZE, "-");
}

int shell_quote(struct buf *out, const char *word)
{
    static const char harmless[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+:,./-";
    size_t n = strlen(word);
    /* a word with '=' stays quoted: in front it would be an assignment */
    if (n > 0 && strspn(word, harmless) == n)
        return buf_append(out, word, n);

    int r = buf_putc(out, '\'');
    for (const char *p = word; r == 0 && *p; p++)
        r = *p == '\'' ? buf_puts(out, "'\\''") : buf_putc(out, *p);
    return r < 0 ? r : buf_putc(out, '\'');
}

int shell_join(struct buf *out, int count, char *const *words)
{
    if (count == 1)
        return buf_puts(out, words[0]);
    for (int i = 0; i < count; i++) {
        int r = i > 0 ? buf_putc(out, ' ') : 0;
        if (r == 0)
            r = shell_quote(out, words[i]);
        if (r < 0)
            return r;
    }
    return 0;
}

unsigned terminal_width(int fd)
{
    if (!isatty(fd))
        return 0;
    const char *columns = getenv("COLUMNS");
    unsigned long v = columns ? strtoul(columns, NULL, 10) : 0;
    if (v >= 20 && v <= 10000)
        return (unsigned)v;
    struct winsize size;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20)
        return size.ws_col;
    return 80;
}
