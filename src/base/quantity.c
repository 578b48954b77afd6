/* SPDX-License-Identifier: Apache-2.0 */
/* quantity.c: see quantity.h. */
#include "base/quantity.h"

#include <errno.h>
#include <string.h>

enum { DECIMALS_MAX = 6, MILLION = 1000000 };

static const char digits[] = "0123456789";
static const uint64_t bytes_max = (UINT64_C(1) << 53) - 1; /* beyond, JSON's numbers are not exact */

int quantity_decimal(const char **text, uint64_t *ret_whole, uint32_t *ret_millionths)
{
    const char *p = *text;
    size_t whole = strspn(p, digits);
    size_t decimals = p[whole] == '.' ? strspn(p + whole + 1, digits) : 0;
    if (!whole || (p[whole] == '.' && !decimals) || decimals > DECIMALS_MAX)
        return -EINVAL;
    uint64_t v = 0;
    uint32_t fraction = 0;
    for (size_t i = 0; i < whole; i++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(p[i] - '0'), &v))
            return -ERANGE;
    for (size_t i = 0; i < DECIMALS_MAX; i++)
        fraction = fraction * 10 + (i < decimals ? (uint32_t)(p[whole + 1 + i] - '0') : 0);
    *text = p + whole + (decimals ? decimals + 1 : 0);
    *ret_whole = v;
    *ret_millionths = fraction;
    return 0;
}

/* whole and its millionths, of a unit, rounded down; saturates. */
static uint64_t times(uint64_t whole, uint32_t millionths, uint64_t unit)
{
    uint64_t v;
    if (__builtin_mul_overflow(whole, unit, &v) || __builtin_add_overflow(v, millionths * unit / MILLION, &v))
        return UINT64_MAX;
    return v;
}

int quantity_duration_ms(const char *text, int64_t *ret)
{
    static const struct {
        const char *name;
        uint64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"min", 60000}, {"h", 3600000}, {"d", 86400000}};
    const char *p = text;
    uint64_t total = 0;
    do {
        uint64_t whole, unit = 0;
        uint32_t millionths;
        int r = quantity_decimal(&p, &whole, &millionths);
        if (r < 0)
            return r;
        size_t n = strcspn(p, "0123456789.");
        if (!n && p != text + strlen(text))
            return -EINVAL;
        if (!n && total)
            return -EINVAL; /* "1m30": seconds or a typing mistake? */
        if (!n)
            unit = 1000;
        for (size_t i = 0; !unit && i < ARRAY_SIZE(units); i++)
            if (strlen(units[i].name) == n && memcmp(units[i].name, p, n) == 0)
                unit = units[i].ms;
        if (!unit)
            return -EINVAL;
        p += n;
        if (__builtin_add_overflow(total, times(whole, millionths, unit), &total) || total > INT64_MAX)
            return -ERANGE;
    } while (*p);
    *ret = (int64_t)total;
    return 0;
}

/* What one of a unit is; 0: there is no such unit. */
static uint64_t unit_bytes(const char *unit)
{
    static const char letters[] = "kmgt";
    if (!*unit || strcmp(unit, "B") == 0 || strcmp(unit, "b") == 0)
        return 1;
    const char *at = strchr(letters, *unit | 0x20);
    bool decimal = strcmp(unit + 1, "B") == 0;
    if (!at || (!decimal && unit[1] && strcmp(unit + 1, "iB") != 0 && strcmp(unit + 1, "i") != 0))
        return 0;
    uint64_t factor = 1;
    for (const char *l = letters; l <= at; l++)
        factor *= decimal ? 1000 : 1024;
    return factor;
}

int quantity_bytes(const char *text, uint64_t *ret)
{
    uint64_t whole;
    uint32_t millionths;
    int r = quantity_decimal(&text, &whole, &millionths);
    if (r < 0)
        return r;
    if (*text == ' ' && text[1] && text[1] != ' ')
        text++;
    uint64_t factor = unit_bytes(text);
    if (!factor)
        return -EINVAL;
    uint64_t bytes = times(whole, millionths, factor);
    if (bytes > bytes_max)
        return -ERANGE;
    *ret = bytes;
    return 0;
}
