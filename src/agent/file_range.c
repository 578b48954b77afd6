/* SPDX-License-Identifier: Apache-2.0 */
/* file_range.c: see file_range.h. */
#include "agent/file_range.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

void file_validators_make(struct file_validators *v, const struct stat *st)
{
    static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    struct tm tm = {0};
    time_t t = st->st_mtim.tv_sec;
    (void)gmtime_r(&t, &tm);
    (void)snprintf(v->etag, sizeof v->etag, "\"%llx-%llx-%llx%08lx\"", (unsigned long long)st->st_ino,
                   (unsigned long long)st->st_size, (unsigned long long)st->st_mtim.tv_sec,
                   (unsigned long)st->st_mtim.tv_nsec);
    (void)snprintf(v->modified, sizeof v->modified, "%s, %02u %s %04u %02u:%02u:%02u GMT",
                   days[tm.tm_wday % 7], (unsigned)tm.tm_mday % 100, months[tm.tm_mon % 12],
                   (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)tm.tm_hour % 100,
                   (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100);
    v->second = t;
}

/* Seconds of "Sun, 06 Nov 1994 08:49:37 GMT"; -1 when it is not of that form. */
static int64_t parse_date(const char *s)
{
    char month[4], zone[4];
    struct tm tm = {0};
    int day, year, hour, minute, second;
    if (sscanf(s, "%*3s, %2d %3s %4d %2d:%2d:%2d %3s", &day, month, &year, &hour, &minute, &second, zone) !=
            7 ||
        strcmp(zone, "GMT") != 0)
        return -1;
    for (tm.tm_mon = 0; tm.tm_mon < 12 && strcmp(months[tm.tm_mon], month) != 0; tm.tm_mon++)
        ;
    if (tm.tm_mon == 12)
        return -1;
    tm.tm_mday = day;
    tm.tm_year = year - 1900;
    tm.tm_hour = hour;
    tm.tm_min = minute;
    tm.tm_sec = second;
    return timegm(&tm);
}

/* Weak comparison with each element of a list of tags, which have no commas when they are ours. */
static bool tag_listed(const char *list, const char *etag)
{
    size_t n = strlen(etag);
    while (*list) {
        list += strspn(list, " \t,");
        if (strncmp(list, "W/", 2) == 0)
            list += 2;
        size_t len = strcspn(list, ", \t");
        if ((len == n && memcmp(list, etag, n) == 0) || (len == 1 && *list == '*'))
            return true;
        list += len;
    }
    return false;
}

bool file_not_modified(const struct http_request *req, const struct file_validators *v)
{
    const char *tags = http_request_header(req, "If-None-Match");
    if (tags)
        return tag_listed(tags, v->etag);
    const char *since = http_request_header(req, "If-Modified-Since");
    int64_t t = since ? parse_date(since) : -1;
    return t >= 0 && v->second <= t;
}

/* Digits from *s on, which moves behind them; false: none, or too many. */
static bool parse_number(const char **s, uint64_t *ret)
{
    size_t n = strspn(*s, "0123456789");
    if (n == 0 || n > 18)
        return false;
    *ret = 0;
    for (size_t i = 0; i < n; i++)
        *ret = *ret * 10 + (uint64_t)((*s)[i] - '0');
    *s += n;
    return true;
}

struct file_range file_range_parse(const char *value, uint64_t size)
{
    static const struct file_range none = {.kind = FILE_RANGE_NONE};
    struct file_range whole = {.kind = FILE_RANGE_WHOLE, .len = size};
    uint64_t first, last;
    if (strncasecmp(value, "bytes=", 6) != 0)
        return whole;
    const char *p = value + 6;
    p += strspn(p, " \t");
    if (*p == '-') { /* the last n bytes */
        p++;
        if (!parse_number(&p, &last) || *p)
            return whole;
        last = MIN(last, size);
        return last ? (struct file_range){FILE_RANGE_PART, size - last, last} : none;
    }
    if (!parse_number(&p, &first) || *p++ != '-')
        return whole;
    last = UINT64_MAX;
    if (*p && (!parse_number(&p, &last) || *p || last < first))
        return whole;
    if (first >= size)
        return none;
    last = MIN(last, size - 1);
    return (struct file_range){FILE_RANGE_PART, first, last - first + 1};
}

struct file_range file_range_of(const struct http_request *req, const struct file_validators *v,
                                uint64_t size)
{
    struct file_range whole = {.kind = FILE_RANGE_WHOLE, .len = size};
    const char *value = http_request_header(req, "Range"), *guard = http_request_header(req, "If-Range");
    if (!value || (guard && strcmp(guard, v->etag) != 0 && strcmp(guard, v->modified) != 0))
        return whole;
    return file_range_parse(value, size);
}
