/* SPDX-License-Identifier: Apache-2.0 */
/* print.c: see print.h. */
#include "cli/print.h"

#include "cli/format.h"

#include "base/clock.h"
#include "base/json.h"

#include <errno.h>
#include <string.h>

enum { NAME_MAX_BYTES = 200, DEPTH_MAX = 4, VALUE_COLUMN = 22 };

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), t = strlen(tail);
    return n >= t && strcmp(s + n - t, tail) == 0;
}

static void print_text(FILE *out, const char *s)
{
    for (; *s; s++)
        (void)fputc((unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s, out);
}

/* What a person wants to know about the value besides its digits; "" when nothing. */
static void in_words(const char *name, const struct json_value *v, char out[FORMAT_SIZE + 8])
{
    char words[FORMAT_SIZE];
    int64_t n;
    const char *s = json_string(v, NULL);
    out[0] = '\0';
    if (s && ends_with(name, "At") && parse_iso_time(s, &n)) {
        format_age(clock_wall_ms() - n, words);
        (void)snprintf(out, FORMAT_SIZE + 8, " (%s%s)", words, strcmp(words, "now") == 0 ? "" : " ago");
    } else if (ends_with(name, "Bytes") && json_integer(v, 1024, INT64_MAX, &n)) {
        format_bytes((uint64_t)n, words);
        (void)snprintf(out, FORMAT_SIZE + 8, " (%s)", words);
    } else if (ends_with(name, "Ms") && json_integer(v, 1000, INT64_MAX, &n)) {
        format_duration(n, words);
        (void)snprintf(out, FORMAT_SIZE + 8, " (%s)", words);
    }
}

static int print_member(FILE *out, const char *name, const struct json_value *v)
{
    char words[FORMAT_SIZE + 8];
    in_words(name, v, words);
    int padding = VALUE_COLUMN - (int)strlen(name) - 1;
    print_text(out, name);
    (void)fprintf(out, ":%*s ", MAX(padding, 0), "");

    const char *s = json_string(v, NULL);
    if (s) {
        print_text(out, s);
    } else {
        struct buf text = BUF_INIT((size_t)64 << 20);
        struct json_writer w;
        json_writer_init(&w, &text);
        json_put_value(&w, v);
        if (w.err < 0 || !buf_cstr(&text)) {
            buf_done(&text);
            return -ENOMEM;
        }
        (void)fputs(buf_cstr(&text), out);
        buf_done(&text);
    }
    (void)fprintf(out, "%s\n", words);
    return 0;
}

/* Walks nested objects without recursion; what is deeper than DEPTH_MAX is printed as JSON. */
static int print_object(FILE *out, const struct json_value *root)
{
    const struct json_value *next[DEPTH_MAX] = {json_first(root)};
    size_t prefix[DEPTH_MAX] = {0};
    char name[NAME_MAX_BYTES] = "";
    int depth = 0;
    while (depth >= 0) {
        const struct json_value *v = next[depth];
        if (!v) {
            depth--;
            continue;
        }
        next[depth] = json_next(v);
        (void)snprintf(name + prefix[depth], sizeof name - prefix[depth], "%s", json_key(v));
        size_t n = strlen(name);
        if (json_type_of(v) == JSON_OBJECT && depth + 1 < DEPTH_MAX && n + 2 < sizeof name) {
            name[n] = '.';
            depth++;
            next[depth] = json_first(v);
            prefix[depth] = n + 1;
            continue;
        }
        int r = print_member(out, name, v);
        if (r < 0)
            return r;
    }
    return 0;
}

int print_members(FILE *out, const char *json)
{
    auto_free char *text = strdup(json);
    auto_json struct json_doc *doc = NULL;
    if (!text)
        return -ENOMEM;
    int r = json_parse(text, strlen(text), JSON_ALLOW_NUL, &doc, NULL);
    if (r < 0)
        return r;
    return json_type_of(json_root(doc)) == JSON_OBJECT ? print_object(out, json_root(doc)) : -EBADMSG;
}

void print_cell(const char *s, int width)
{
    int n = 0;
    for (; s && *s; s++, n++)
        (void)putchar((unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s);
    printf("%*s", n < width ? width - n : 0, "");
}
