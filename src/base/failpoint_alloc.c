/* SPDX-License-Identifier: Apache-2.0 */
/* failpoint_alloc.c: allocations that fail when a test says so; only in builds with failpoints, where the
 * linker sends our calls of malloc and its like here (meson.build).
 *
 * SILICA_ALLOC names a file with a number: so many allocations from now on the next one fails, once. It is
 * counted down in the file itself: 1 the next one fails, 0 it has failed, -1 nothing is to fail. */
#ifdef SILICA_FAILPOINTS
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static _Atomic int64_t *countdown;

static void countdown_map(void)
{
    const char *path = getenv("SILICA_ALLOC");
    auto_close int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *countdown, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    countdown = p == MAP_FAILED ? NULL : p;
}

static bool fails(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, countdown_map);
    int64_t n = countdown ? *countdown : -1;
    while (n > 0 && !atomic_compare_exchange_weak(countdown, &n, n - 1))
        ;
    if (n == 1)
        errno = ENOMEM;
    return n == 1;
}

/* The names are the linker's. */
void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t n);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
int __wrap_asprintf(char **ret, const char *fmt, ...) PRINTF_LIKE(2, 3);

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t count, size_t n)
{
    return fails() ? NULL : __real_calloc(count, n);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
    return fails() ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n)
{
    return fails() ? NULL : __real_strndup(s, n);
}

int __wrap_asprintf(char **ret, const char *fmt, ...)
{
    va_list ap;
    if (fails())
        return -1;
    va_start(ap, fmt);
    int n = vasprintf(ret, fmt, ap);
    va_end(ap);
    return n;
}
#endif
