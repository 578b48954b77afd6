/* SPDX-License-Identifier: Apache-2.0 */
/* values.c: see values.h. */
#include "cli/values.h"
#include "base/quantity.h"

#include <errno.h>
#include <string.h>

int value_duration_ms(const char *source, const char *text, int64_t *ret, struct error *reterr)
{
    if (quantity_duration_ms(text, ret) == 0)
        return 0;
    return error_set(reterr, EINVAL, "%s: '%.60s' is not a duration; use for example 500ms, 10s, 1m30s or 2h",
                     source, text);
}

int value_bytes(const char *source, const char *text, uint64_t *ret, struct error *reterr)
{
    int r = quantity_bytes(text, ret);
    if (r == -ERANGE)
        return error_set(reterr, ERANGE, "%s: '%.60s' is too large", source, text);
    if (r < 0)
        return error_set(reterr, EINVAL, "%s: '%.60s' is not a size; use for example 512M, 2G or 1.5GiB",
                         source, text);
    return 0;
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
    uint64_t whole;
    uint32_t millionths;
    if (quantity_decimal(&p, &whole, &millionths) < 0 || *p)
        return error_set(reterr, EINVAL, "%s: '%.60s' is not a number of cores; use for example 0.5 or 2",
                         source, text);
    uint64_t milli = MIN(whole, (uint64_t)UINT32_MAX) * 1000 + millionths / 1000;
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

int value_volume(const char *source, const char *text, struct error *reterr)
{
    const char *path = strchr(text, ':');
    const char *mode = path ? strchr(path + 1, ':') : NULL;
    if (!path || path == text || path[1] != '/' || (mode && strcmp(mode, ":ro") != 0))
        return error_set(reterr, EINVAL, "%s: '%.60s' is not NAME:/PATH or NAME:/PATH:ro, such as data:/data",
                         source, text);
    return 0;
}
