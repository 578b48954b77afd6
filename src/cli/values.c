/* SPDX-License-Identifier: Apache-2.0 */
/* values.c: see values.h. */
#include "cli/values.h"

#include <errno.h>
#include <string.h>

enum { DECIMALS_MAX = 6 };

/* A decimal number at *text as millionths, moving *text behind it. No sign, no exponent, no locale. */
static bool read_decimal(const char **text, uint64_t *ret_millionths)
{
    const char *p = *text;
    uint64_t v = 0;
    unsigned digits = 0, decimals = 0;
    bool point = false;

    for (;; p++) {
        if (*p == '.' && !point) {
            point = true;
            continue;
        }
        if (*p < '0' || *p > '9')
            break;
        if (decimals == DECIMALS_MAX)
            return false;
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
            return false;
        digits++;
        decimals += point;
    }
    if (!digits)
        return false;
    for (; decimals < DECIMALS_MAX; decimals++)
        if (__builtin_mul_overflow(v, 10, &v))
            return false;
    *text = p;
    *ret_millionths = v;
    return true;
}

static int bad_duration(const char *source, const char *text, struct error *reterr)
{
    return error_set(reterr, EINVAL, "%s: '%.60s' is not a duration; use for example 500ms, 10s, 1m30s or 2h",
                     source, text);
}

int value_duration_ms(const char *source, const char *text, int64_t *ret, struct error *reterr)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"min", 60000}, {"h", 3600000}, {"d", 86400000}};

    const char *p = text;
    int64_t total = 0;
    do {
        uint64_t millionths;
        if (!read_decimal(&p, &millionths))
            return bad_duration(source, text, reterr);
        size_t n = strcspn(p, "0123456789.");
        int64_t unit = p == text + strlen(text) ? 1000 : 0; /* a bare number, or the end of one: seconds */
        if (unit && total)
            return bad_duration(source, text, reterr); /* "1m30": seconds or a typing mistake? */
        for (size_t i = 0; !unit && i < ARRAY_SIZE(units); i++)
            if (strlen(units[i].name) == n && memcmp(units[i].name, p, n) == 0)
                unit = units[i].ms;
        p += n;
        uint64_t part;
        if (!unit || __builtin_mul_overflow(millionths, (uint64_t)unit, &part) ||
            __builtin_add_overflow(total, (int64_t)(part / 1000000), &total))
            return bad_duration(source, text, reterr);
    } while (*p);
    *ret = total;
    return 0;
}

int value_bytes(const char *source, const char *text, uint64_t *ret, struct error *reterr)
{
    static const char letters[] = "kmgt";
    const char *p = text;
    uint64_t millionths, factor = 1;
    if (!read_decimal(&p, &millionths))
        goto bad;

    if (*p) {
        char letter = (char)(*p | 0x20);
        const char *at = strchr(letters, letter);
        bool bytes_only = letter == 'b' && p[1] == '\0';
        if (!at && !bytes_only)
            goto bad;
        if (at) {
            const char *rest = p + 1;
            bool decimal = strcmp(rest, "B") == 0;
            if (!decimal && *rest && strcmp(rest, "iB") != 0 && strcmp(rest, "i") != 0)
                goto bad;
            for (const char *l = letters; l <= at; l++)
                factor *= decimal ? 1000 : 1024;
        }
    }
    unsigned __int128 bytes = (unsigned __int128)millionths * factor / 1000000;
    if (bytes > INT64_MAX)
        return error_set(reterr, ERANGE, "%s: '%.60s' is too large", source, text);
    *ret = (uint64_t)bytes;
    return 0;
bad:
    return error_set(reterr, EINVAL, "%s: '%.60s' is not a size; use for example 512M, 2G or 1.5GiB", source,
                     text);
}

int value_integer(const char *source, const char *text, int64_t min, int64_t max, int64_t *ret,
                  struct error *reterr)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno == ERANGE || (end != text && !*end && (v < min || v > max)))
        return error_set(reterr, ERANGE, "%s: %.60s is out of range, allowed are %lld to %lld", source, text,
                         (long long)min, (long long)max);
    if (end == text || *end || strchr(" \t\n\v\f\r+", *text))
        return error_set(reterr, EINVAL, "%s: '%.60s' is not a whole number", source, text);
    *ret = v;
    return 0;
}

int value_cpu_milli(const char *source, const char *text, uint32_t *ret, struct error *reterr)
{
    const char *p = text;
    uint64_t millionths;
    if (!read_decimal(&p, &millionths) || *p)
        return error_set(reterr, EINVAL, "%s: '%.60s' is not a number of cores; use for example 0.5 or 2",
                         source, text);
    uint64_t milli = millionths / 1000;
    if (milli == 0 || milli > UINT32_MAX)
        return error_set(reterr, ERANGE, "%s: %.60s cores are out of range", source, text);
    *ret = (uint32_t)milli;
    return 0;
}

int value_env(const char *source, const char *text, struct error *reterr)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
    size_t n = strcspn(text, "=");
    if (!text[n])
        return error_set(reterr, EINVAL, "%s: '%.60s' has no value; write NAME=VALUE", source, text);
    if (n == 0 || !strchr(letters, text[0]) ||
        strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
                     "0123456789") != n)
        return error_set(reterr, EINVAL,
                         "%s: '%.*s' cannot be the name of a variable; use letters, digits and _", source,
                         (int)MIN(n, (size_t)60), text);
    return 0;
}

int value_label(const char *source, const char *text, struct error *reterr)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return error_set(reterr, EINVAL, "%s: '%.60s' is not a label; write KEY=VALUE", source, text);
    return 0;
}
