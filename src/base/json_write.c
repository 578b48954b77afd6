/* SPDX-License-Identifier: Apache-2.0 */
/* json_write.c: writing JSON into a buffer; see json.h.
 *
 * The first failure (the buffer's, -EOVERFLOW for nesting beyond JSON_MAX_DEPTH, -EINVAL for calls out of
 * order) stays in err and stops all output, so that callers check once, at the end. */
#include "base/json_internal.h"
#include "base/utf8.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void json_writer_init(struct json_writer *w, struct buf *out)
{
    *w = (struct json_writer){.out = out};
}

static void put(struct json_writer *w, const char *s, size_t n)
{
    if (w->err == 0)
        w->err = buf_append(w->out, s, n);
}

static void put_escaped(struct json_writer *w, const void *data, size_t n)
{
    struct utf8_stream st = {0};
    if (w->err == 0)
        w->err = utf8_decode(&st, data, n, true, UTF8_JSON, w->out);
}

/* The comma that belongs before the next key, or the next element of an array. */
static void put_comma(struct json_writer *w)
{
    if (w->after_key) {
        w->after_key = false;
        return;
    }
    if (w->depth == 0)
        return;
    uint64_t *word = &w->comma[(w->depth - 1) / 64], bit = (uint64_t)1 << (w->depth - 1) % 64;
    if (*word & bit)
        put(w, ",", 1);
    *word |= bit;
}

static void put_token(struct json_writer *w, const char *s, size_t n)
{
    put_comma(w);
    put(w, s, n);
}

static void container_begin(struct json_writer *w, char bracket)
{
    if (w->depth == JSON_MAX_DEPTH && w->err == 0)
        w->err = -EOVERFLOW;
    if (w->err < 0)
        return;
    put_token(w, &bracket, 1);
    w->depth++;
    w->comma[(w->depth - 1) / 64] &= ~((uint64_t)1 << (w->depth - 1) % 64);
}

static void container_end(struct json_writer *w, char bracket)
{
    if ((w->depth == 0 || w->after_key) && w->err == 0)
        w->err = -EINVAL;
    if (w->err < 0)
        return;
    w->depth--;
    put(w, &bracket, 1);
}

void json_object_begin(struct json_writer *w)
{
    container_begin(w, '{');
}

void json_object_end(struct json_writer *w)
{
    container_end(w, '}');
}

void json_array_begin(struct json_writer *w)
{
    container_begin(w, '[');
}

void json_array_end(struct json_writer *w)
{
    container_end(w, ']');
}

static void put_key(struct json_writer *w, const char *key, size_t n)
{
    if ((w->depth == 0 || w->after_key) && w->err == 0)
        w->err = -EINVAL;
    put_token(w, "\"", 1);
    put_escaped(w, key, n);
    put(w, "\":", 2);
    w->after_key = true;
}

void json_put_key(struct json_writer *w, const char *key)
{
    put_key(w, key, strlen(key));
}

void json_string_begin(struct json_writer *w)
{
    put_token(w, "\"", 1);
}

void json_string_end(struct json_writer *w)
{
    put(w, "\"", 1);
}

void json_put_bytes(struct json_writer *w, const void *data, size_t n)
{
    json_string_begin(w);
    put_escaped(w, data, n);
    json_string_end(w);
}

void json_put_string(struct json_writer *w, const char *s)
{
    if (s)
        json_put_bytes(w, s, strlen(s));
    else
        json_put_null(w);
}

void json_put_int(struct json_writer *w, int64_t v)
{
    char s[24];
    int n = snprintf(s, sizeof s, "%" PRId64, v);
    put_token(w, s, (size_t)n);
}

/* The fewest digits that read back as v (v is finite and not 0), without sign and trailing zeros. Returns
 * their number; v is 0.DIGITS times ten to the power of *ret_point. */
static int shortest_digits(double v, char digits[20], int *ret_point)
{
    /* Every decimal of 15 digits survives a normal double, so the 15 digits without their trailing zeros
     * are the shortest if they read back at all. Subnormals carry fewer. */
    int precision = fabs(v) < DBL_MIN ? 1 : 15;
    char s[40];
    for (;; precision++) {
        (void)snprintf(s, sizeof s, "%.*e", precision - 1, v);
        if (precision == 17 || strtod(s, NULL) == v)
            break;
    }
    int n = 0;
    const char *p = s;
    for (; *p != 'e'; p++) /* steps over the sign and over whatever the locale uses as a point */
        if (*p >= '0' && *p <= '9' && n < 19)
            digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    *ret_point = (int)strtol(p + 1, NULL, 10) + 1;
    return n;
}

/* Written as JavaScript writes numbers: plain between 1e-6 and 1e21, else with an exponent. */
void json_put_number(struct json_writer *w, double v)
{
    char digits[20], s[64];
    int point, n;

    if (!isfinite(v)) {
        json_put_null(w);
        return;
    }
    if (v == 0) {
        put_token(w, signbit(v) ? "-0" : "0", signbit(v) ? 2 : 1);
        return;
    }
    const char *sign = v < 0 ? "-" : "";
    int count = shortest_digits(v, digits, &point);
    if (point > 0 && point <= 21 && point >= count)
        n = snprintf(s, sizeof s, "%s%.*s%.*s", sign, count, digits, point - count, "00000000000000000000");
    else if (point > 0 && point <= 21)
        n = snprintf(s, sizeof s, "%s%.*s.%.*s", sign, point, digits, count - point, digits + point);
    else if (point > -6 && point <= 0)
        n = snprintf(s, sizeof s, "%s0.%.*s%.*s", sign, -point, "00000", count, digits);
    else
        n = snprintf(s, sizeof s, "%s%c%s%.*se%+d", sign, digits[0], count > 1 ? "." : "", count - 1,
                     digits + 1, point - 1);
    put_token(w, s, (size_t)n);
}

void json_put_bool(struct json_writer *w, bool v)
{
    put_token(w, v ? "true" : "false", v ? 4 : 5);
}

void json_put_null(struct json_writer *w)
{
    put_token(w, "null", 4);
}

void json_put_raw(struct json_writer *w, const char *json, size_t n)
{
    put_token(w, json, n);
}

static void put_scalar(struct json_writer *w, const struct json_value *v)
{
    switch (json_type_of(v)) {
    case JSON_BOOL:
        json_put_bool(w, v->boolean);
        break;
    case JSON_NUMBER:
        json_put_number(w, v->number);
        break;
    case JSON_STRING:
        json_put_bytes(w, v->string, v->len);
        break;
    default:
        json_put_null(w);
        break;
    }
}

static void put_container_end(struct json_writer *w, const struct json_value *v)
{
    container_end(w, json_type_of(v) == JSON_OBJECT ? '}' : ']');
}

void json_put_value(struct json_writer *w, const struct json_value *v)
{
    const struct json_value *open[JSON_MAX_DEPTH];
    unsigned depth = 0;
    enum json_type type;

    for (const struct json_value *at = v; w->err == 0;) {
        if (depth && at->key)
            put_key(w, at->key, at->key_len);
        type = json_type_of(at);
        if (type == JSON_ARRAY || type == JSON_OBJECT) {
            container_begin(w, type == JSON_OBJECT ? '{' : '[');
            if (json_count(at)) { /* cannot overflow: the reader allows no deeper value */
                open[depth++] = at;
                at = json_first(at);
                continue;
            }
            put_container_end(w, at);
        } else {
            put_scalar(w, at);
        }
        while (depth && !json_next(at)) {
            at = open[--depth];
            put_container_end(w, at);
        }
        if (depth == 0)
            return;
        at = json_next(at);
    }
}

void json_member_string(struct json_writer *w, const char *key, const char *value)
{
    json_put_key(w, key);
    json_put_string(w, value);
}

void json_member_int(struct json_writer *w, const char *key, int64_t value)
{
    json_put_key(w, key);
    json_put_int(w, value);
}

void json_member_bool(struct json_writer *w, const char *key, bool value)
{
    json_put_key(w, key);
    json_put_bool(w, value);
}
