/* SPDX-License-Identifier: Apache-2.0 */
/* format.h: how things look: sizes, ages, tables, and words quoted for a shell. */
#pragma once

#include "base/buf.h"

#include <stdio.h>

enum { FORMAT_SIZE = 24 };
void format_bytes(uint64_t bytes, char out[FORMAT_SIZE]); /* "812 B", "1.5 MiB", "24 GiB" */
void format_age(int64_t age_ms, char out[FORMAT_SIZE]);   /* "now", "12 s", "5 min", "3 h", "4 d", "2 y" */
void format_duration(int64_t ms, char out[FORMAT_SIZE]);  /* exact: "500ms", "10s", "1m30s", "2h" */
/* How long ago that time was (parse_iso_time); "-" for NULL and what is no time. */
void format_age_since(const char *iso_time, char out[FORMAT_SIZE]);
/* Milliseconds since 1970 of "2026-01-02T03:04:05[.678]Z"; false when text is anything else. */
bool parse_iso_time(const char *text, int64_t *ret_wall_ms);

/* One word that a POSIX shell reads back as exactly `word`; bare when it is harmless. */
int shell_quote(struct buf *out, const char *word);
/* One word: as it is (it is shell text). Several: each quoted, joined with spaces. */
int shell_join(struct buf *out, int count, char *const *words);

/* Columns of the terminal behind fd, or 0 when it is none. COLUMNS wins over what the terminal says. */
unsigned terminal_width(int fd);

struct table_column {
    const char *title;
    bool right;         /* numbers */
    unsigned shrink_to; /* may be cut down to this many characters when the terminal is narrow; 0: never */
};

struct table {
    const struct table_column *columns;
    size_t column_count;
    char **cells; /* row by row */
    size_t cell_count;
    size_t cell_cap;
};

#define TABLE_INIT(columns_array)                                             \
    (struct table)                                                            \
    {                                                                         \
        .columns = (columns_array), .column_count = ARRAY_SIZE(columns_array) \
    }

/* Copies one row; NULL cells are "-". Control characters become '?', so that a name cannot steer the
 * terminal. */
int table_add(struct table *t, const char *const *cells);
/* width 0: tab-separated and complete, for programs. */
void table_print(const struct table *t, FILE *out, unsigned width);
void table_done(struct table *t);
