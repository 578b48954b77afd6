/* SPDX-License-Identifier: Apache-2.0 */
/* clock.c: see clock.h. */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

#ifdef SILICA_FAILPOINTS
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

/* The clocks jump as a test says: SILICA_CLOCK names a file with what to add to each, in microseconds. It
 * is mapped at the first look, before a process gives up its rights, and may be rewritten at any time. */
struct clock_shift {
    _Atomic int64_t wall_us, mono_us, boot_us;
};
static const struct clock_shift *shift;

static void shift_map(void)
{
    const char *path = getenv("SILICA_CLOCK");
    auto_close int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
    shift = p == MAP_FAILED ? NULL : p;
}

static int64_t shift_us(clockid_t id)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, shift_map);
    if (!shift)
        return 0;
    return id == CLOCK_REALTIME ? shift->wall_us : id == CLOCK_BOOTTIME ? shift->boot_us : shift->mono_us;
}
#else
static int64_t shift_us(clockid_t id)
{
    (void)id;
    return 0;
}
#endif

static int64_t read_clock_us(clockid_t id)
{
    struct timespec ts;
    (void)clock_gettime(id, &ts); /* cannot fail for these clocks */
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000 + shift_us(id);
}

int64_t clock_mono_us(void)
{
    return read_clock_us(CLOCK_MONOTONIC);
}

int64_t clock_mono_ms(void)
{
    return read_clock_us(CLOCK_MONOTONIC) / 1000;
}

int64_t clock_boot_ms(void)
{
    return read_clock_us(CLOCK_BOOTTIME) / 1000;
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
