/* SPDX-License-Identifier: Apache-2.0 */
/* report.h: what people see of a build while it runs. */
#pragma once

#include "builder/plan.h"
#include "client/silica.h"

#include <stdio.h>

enum { REPORT_LINE_MAX = 4096 };

struct report {
    FILE *out;                  /* NULL: nobody looks */
    char line[REPORT_LINE_MAX]; /* of a command's output, up to now */
    size_t line_len;
    bool carriage; /* the line ended with \r: what follows replaces it */
    enum { REPORT_TEXT, REPORT_ESCAPE, REPORT_SEQUENCE } state; /* inside "ESC [ ... letter" */
    int64_t started_ms;
};

void report_note(struct report *r, const char *text);
/* "[build 2/5] RUN make": name may be NULL; cached adds a mark. */
void report_step(struct report *r, const char *stage, size_t number, size_t count, const char *text,
                 bool cached);
int report_output(enum silica_stream stream, const char *data, size_t n, void *report); /* a silica_output */
void report_flush(struct report *r); /* the last line of a command that did not end it */
void report_line(struct report *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
