/* SPDX-License-Identifier: Apache-2.0 */
/* duration.c: see duration.h. Locale-free and exact: no strtod, no floating point in texts. */
#include "gateway/duration.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Leading digits of *s; false when there are none or they exceed max. Moves *s behind them. */
static bool take_digits(const char **s, uint64_t max, uint64_t *ret)
{
    const char *p = *s;
    uint64_t v = 0;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        unsigned digit = (unsigned)(*p - '0');
        if (v > (max - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *s = p;
    *ret = v;
    return true;
}

static int in_range(int64_t ms, int64_t *ret_ms)
{
    if (ms < DURATION_MIN_MS || ms > DURATION_MAX_MS)
        return -ERANGE;
    *ret_ms = ms;
    return 0;
}

int duration_parse(const char *s, int64_t *ret_ms)
{
    size_t digits = strspn(s, "0123456789");
    if (digits == 0 || s[digits] == '\0' || s[digits + 1] != '\0')
        return -EINVAL;
    int64_t unit_ms;
    switch (s[digits]) {
    case 's':
        unit_ms = 1000;
        break;
    case 'm':
        unit_ms = 60 * 1000;
        break;
    case 'h':
        unit_ms = 3600 * 1000;
        break;
    default:
        return -EINVAL;
    }
    uint64_t count;
    if (!take_digits(&s, (uint64_t)(DURATION_MAX_MS / unit_ms), &count))
        return -ERANGE;
    return in_range((int64_t)count * unit_ms, ret_ms);
}

int duration_from_seconds(double seconds, int64_t *ret_ms)
{
    if (!(seconds >= 0) || seconds > (double)(DURATION_MAX_MS / 1000))
        return -ERANGE;
    return in_range((int64_t)llround(seconds * 1000), ret_ms);
}

static const struct {
    const char *name;
    uint64_t bytes;
} units[] = {
    {"", 1},
    {"B", 1},
    {"K", 1ULL << 10},
    {"KiB", 1ULL << 10},
    {"KB", 1000},
    {"M", 1ULL << 20},
    {"MiB", 1ULL << 20},
    {"MB", 1000000},
    {"G", 1ULL << 30},
    {"GiB", 1ULL << 30},
    {"GB", 1000000000},
    {"T", 1ULL << 40},
    {"TiB", 1ULL << 40},
    {"TB", 1000000000000},
};

enum { FRACTION_DIGITS_MAX = 6 };

int byte_size_parse(const char *s, uint64_t *ret)
{
    const uint64_t max = (1ULL << 53) - 1;
    uint64_t whole, fraction = 0, scale = 1;

    if (*s < '0' || *s > '9')
        return -EINVAL;
    if (!take_digits(&s, max, &whole))
        return -ERANGE;
    if (*s == '.') {
        size_t digits = strspn(++s, "0123456789");
        if (digits == 0 || digits > FRACTION_DIGITS_MAX)
            return -EINVAL;
        for (size_t i = 0; i < digits; i++)
            scale *= 10;
        (void)take_digits(&s, scale, &fraction); /* cannot fail: fewer digits than scale has */
    }
    if (*s == ' ' && s[1])
        s++;
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (strcmp(s, units[i].name) != 0)
            continue;
        uint64_t bytes;
        if (__builtin_mul_overflow(whole, units[i].bytes, &bytes) || bytes > max)
            return -ERANGE;
        bytes += fraction * units[i].bytes / scale; /* at most 10^6 * 2^40 < 2^60 */
        if (bytes > max)
            return -ERANGE;
        *ret = bytes;
        return 0;
    }
    return -EINVAL;
}
