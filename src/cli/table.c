/* SPDX-License-Identifier: Apache-2.0 */
/* table.c: tables that fit the terminal; see format.h. */
#include "cli/format.h"

#include <errno.h>
#include <string.h>

enum { TABLE_COLUMNS_MAX = 12, GAP = 2 };

int table_add(struct table *t, const char *const *cells)
{
    if (t->cell_count + t->column_count > t->cell_cap) {
        size_t cap = t->cell_cap ? t->cell_cap * 2 : 16 * t->column_count;
        char **more = realloc(t->cells, cap * sizeof *more);
        if (!more)
            return -ENOMEM;
        t->cells = more;
        t->cell_cap = cap;
    }
    for (size_t i = 0; i < t->column_count; i++) {
        char *copy = strdup(cells[i] ? cells[i] : "-");
        if (!copy) {
            while (i-- > 0)
                free(t->cells[t->cell_count + i]);
            return -ENOMEM;
        }
        for (char *p = copy; *p; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7f)
                *p = '?';
        t->cells[t->cell_count + i] = copy;
    }
    t->cell_count += t->column_count;
    return 0;
}

/* Characters, not bytes: continuation bytes of UTF-8 take no column. */
static unsigned text_width(const char *s)
{
    unsigned n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* Bytes of the first `columns` characters. */
static int text_prefix(const char *s, unsigned columns)
{
    const char *p = s;
    while (*p) {
        if (((unsigned char)*p & 0xc0) != 0x80 && columns-- == 0)
            break;
        p++;
    }
    return (int)(p - s);
}

static unsigned total_width(const struct table *t, const unsigned *widths)
{
    unsigned total = (unsigned)(t->column_count - 1) * GAP;
    for (size_t i = 0; i < t->column_count; i++)
        total += widths[i];
    return total;
}

/* Takes columns, one character at a time, from the widest of those that may shrink. */
static void fit(const struct table *t, unsigned *widths, unsigned width)
{
    while (total_width(t, widths) > width) {
        size_t widest = t->column_count;
        for (size_t i = 0; i < t->column_count; i++) {
            unsigned least = t->columns[i].shrink_to;
            if (least && widths[i] > least && (widest == t->column_count || widths[i] > widths[widest]))
                widest = i;
        }
        if (widest == t->column_count)
            return; /* nothing left to give: long lines then */
        widths[widest]--;
    }
}

static void print_cell(FILE *out, const char *text, unsigned width, bool right, bool last)
{
    unsigned n = text_width(text);
    if (n > width) { /* at least one character and a mark that something is missing */
        (void)fprintf(out, "%.*s\u2026", text_prefix(text, width - 1), text);
        n = width;
    } else {
        if (right)
            (void)fprintf(out, "%*s", (int)(width - n), "");
        (void)fputs(text, out);
    }
    if (!last)
        (void)fprintf(out, "%*s", (int)(right ? GAP : width - n + GAP), "");
}

static void print_plain(const struct table *t, FILE *out)
{
    for (size_t i = 0; i < t->column_count; i++)
        (void)fprintf(out, "%s%s", i ? "\t" : "", t->columns[i].title);
    (void)fputc('\n', out);
    for (size_t i = 0; i < t->cell_count; i++)
        (void)fprintf(out, "%s%c", t->cells[i], (i + 1) % t->column_count ? '\t' : '\n');
}

void table_print(const struct table *t, FILE *out, unsigned width)
{
    unsigned widths[TABLE_COLUMNS_MAX] = {0};
    if (width == 0 || t->column_count > TABLE_COLUMNS_MAX) {
        print_plain(t, out);
        return;
    }
    for (size_t i = 0; i < t->column_count; i++)
        widths[i] = text_width(t->columns[i].title);
    for (size_t i = 0; i < t->cell_count; i++) {
        unsigned n = text_width(t->cells[i]);
        widths[i % t->column_count] = MAX(widths[i % t->column_count], n);
    }
    fit(t, widths, width);

    for (size_t i = 0; i < t->cell_count + t->column_count; i++) {
        size_t column = i % t->column_count;
        const char *text = i < t->column_count ? t->columns[column].title : t->cells[i - t->column_count];
        bool last = column + 1 == t->column_count;
        print_cell(out, text, widths[column], t->columns[column].right, last);
        if (last)
            (void)fputc('\n', out);
    }
}

void table_done(struct table *t)
{
    for (size_t i = 0; i < t->cell_count; i++)
        free(t->cells[i]);
    free(t->cells);
    t->cells = NULL;
    t->cell_count = t->cell_cap = 0;
}
