/* SPDX-License-Identifier: Apache-2.0 */
/* clock.c: see clock.h. */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t read_clock_us(clockid_t id)
{
    struct timespec ts;
    (void)clock_gettime(id, &ts); /* cannot fail for these clocks */
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t clock_mono_us(void)
{
    return read_clock_us(CLOCK_MONOTONIC);
}

int64_t clock_mono_ms(void)
{
    return read_clock_us(CLOCK_MONOTONIC) / 1000;
}

int64_t clock_wall_ms(void)
{
    return read_clock_us(CLOCK_REALTIME) / 1000;
}

void clock_iso(int64_t wall_ms, char out[CLOCK_ISO_SIZE])
{
    time_t s = (time_t)(wall_ms / 1000);
    struct tm tm;
    if (wall_ms < 0 || !gmtime_r(&s, &tm) || tm.tm_year > 8099) { /* years of four digits only */
        s = 0;
        wall_ms = 0;
        (void)gmtime_r(&s, &tm);
    }
    char tmp[80]; /* room for what the compiler thinks an int may print */
    (void)snprintf(tmp, sizeof tmp, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900, tm.tm_mon + 1,
                   tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(wall_ms % 1000));
    (void)snprintf(out, CLOCK_ISO_SIZE, "%.24s", tmp);
}

void clock_iso_now(char out[CLOCK_ISO_SIZE])
{
    clock_iso(clock_wall_ms(), out);
}
