/* SPDX-License-Identifier: Apache-2.0 */
/* log.c: see log.h. A line is built in one buffer and written with one write(2), so that lines of
 * several processes sharing stderr never mix. */
#include "base/log.h"
#include "base/clock.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static struct {
    const char *process;
    enum log_level level;
    enum log_format format;
} config = {"silica", LOG_INFO, LOG_TEXT};

static const char *const level_name[] = {
    [LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error"};
static const char *const format_name[] = {[LOG_TEXT] = "text", [LOG_JSON] = "json"};

void log_init(const char *process, enum log_level level, enum log_format format)
{
    config.process = process;
    config.level = level;
    config.format = format;
}

void log_rename(const char *process)
{
    config.process = process;
}

bool log_enabled(enum log_level level)
{
    return level >= config.level;
}

/* Copies text so that it stays one line and valid inside JSON: control characters (C0, DEL and the C1 range,
 * which some terminals obey) become \u00XX or \xXX; what is not UTF-8, such as a character cut in two,
 * becomes '?'. */
static size_t escape(char *out, size_t cap, const char *in)
{
    const char *control = config.format == LOG_JSON ? "\\u00" : "\\x";
    size_t n = 0, left = strlen(in);
    while (left && n + 8 < cap) {
        unsigned char c = (unsigned char)*in;
        size_t len = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
        if (c < 0x20 || c == 0x7f) {
            n += (size_t)snprintf(out + n, cap - n, "%s%02x", control, c);
        } else if (len > left || !utf8_valid(in, len)) {
            out[n++] = '?';
            len = 1;
        } else if (c == 0xc2 && (unsigned char)in[1] < 0xa0) {
            n += (size_t)snprintf(out + n, cap - n, "%s%02x", control, (unsigned char)in[1]);
        } else {
            if (config.format == LOG_JSON && (c == '"' || c == '\\'))
                out[n++] = '\\';
            memcpy(out + n, in, len);
            n += len;
        }
        in += len;
        left -= len;
    }
    out[n] = '\0';
    return n;
}

void log_msg(enum log_level level, const char *fmt, ...)
{
    if (level < config.level)
        return;
    char msg[1024], safe[2048], line[2304], now[CLOCK_ISO_SIZE];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    (void)escape(safe, sizeof safe, msg);
    clock_iso_now(now);

    int n;
    if (config.format == LOG_JSON)
        n = snprintf(line, sizeof line,
                     "{\"time\":\"%s\",\"level\":\"%s\",\"process\":\"%s\",\"message\":\"%s\"}\n", now,
                     level_name[level], config.process, safe);
    else
        n = snprintf(line, sizeof line, "%s %-5s %s: %s\n", now, level_name[level], config.process, safe);
    if (n > 0)
        (void)!write(STDERR_FILENO, line, MIN((size_t)n, sizeof line - 1)); /* nowhere to report it */
}

bool log_level_parse(const char *s, enum log_level *ret)
{
    for (size_t i = 0; i < ARRAY_SIZE(level_name); i++)
        if (strcmp(s, level_name[i]) == 0) {
            *ret = (enum log_level)i;
            return true;
        }
    return false;
}

bool log_format_parse(const char *s, enum log_format *ret)
{
    for (size_t i = 0; i < ARRAY_SIZE(format_name); i++)
        if (strcmp(s, format_name[i]) == 0) {
            *ret = (enum log_format)i;
            return true;
        }
    return false;
}
