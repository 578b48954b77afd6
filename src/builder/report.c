/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: see report.h. */
#include "builder/report.h"

#include <stdarg.h>
#include <string.h>

enum { TEXT_MAX = 200 };

void report_flush(struct report *r)
{
    if (r->out && r->line_len > 0)
        (void)fprintf(r->out, "    %.*s\n", (int)r->line_len, r->line);
    r->line_len = 0;
    r->carriage = false;
    r->state = REPORT_TEXT;
}

/* Whether a byte belongs to a sequence that is meant for a terminal: colours, places, titles. */
static bool is_steering(struct report *r, unsigned char c)
{
    if (c == 0x1b) {
        r->state = REPORT_ESCAPE;
        return true;
    }
    if (r->state == REPORT_TEXT)
        return (c < 0x20 && c != '\t') || c == 0x7f;
    bool more = r->state == REPORT_ESCAPE ? c == '[' : c < 0x40 || c > 0x7e;
    r->state = more ? REPORT_SEQUENCE : REPORT_TEXT;
    return true;
}

void report_line(struct report *r, const char *fmt, ...)
{
    va_list ap;
    if (!r->out)
        return;
    report_flush(r);
    va_start(ap, fmt);
    (void)vfprintf(r->out, fmt, ap);
    va_end(ap);
    (void)fputc('\n', r->out);
    (void)fflush(r->out);
}

void report_note(struct report *r, const char *text)
{
    report_line(r, "NOTE %s", text);
}

void report_step(struct report *r, const char *stage, size_t number, size_t count, const char *text,
                 bool cached)
{
    bool cut = strlen(text) > TEXT_MAX;
    report_line(r, "[%s%s%zu/%zu] %s%.*s%s", stage ? stage : "", stage ? " " : "", number, count,
                cached ? "CACHED " : "", TEXT_MAX, text, cut ? "..." : "");
}

/* Whole lines, indented. Of a progress bar, which writes its line again and again, only the last state is
 * shown; bytes that could steer the terminal are left out. */
int report_output(enum silica_stream stream, const char *data, size_t n, void *report)
{
    (void)stream;
    struct report *r = report;
    if (!r->out)
        return 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)data[i];
        if (c == '\n') {
            report_flush(r);
        } else if (c == '\r') {
            r->carriage = true;
        } else if (!is_steering(r, c)) {
            if (r->carriage)
                r->line_len = 0;
            r->carriage = false;
            if (r->line_len == sizeof r->line)
                report_flush(r);
            r->line[r->line_len++] = (char)c;
        }
    }
    (void)fflush(r->out);
    return 0;
}
