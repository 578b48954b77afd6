/* SPDX-License-Identifier: Apache-2.0 */
/* util.h: ownership macros and the few helpers that every file needs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define ARRAY_SIZE(a)                   (sizeof(a) / sizeof((a)[0]))

#define MIN(a, b)                          \
    ({                                     \
        __typeof__(a) min_a_ = (a);        \
        __typeof__(b) min_b_ = (b);        \
        min_a_ < min_b_ ? min_a_ : min_b_; \
    })
#define MAX(a, b)                          \
    ({                                     \
        __typeof__(a) max_a_ = (a);        \
        __typeof__(b) max_b_ = (b);        \
        max_a_ > max_b_ ? max_a_ : max_b_; \
    })

static inline void close_p(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}

static inline void free_p(void *p)
{
    free(*(void **)p);
}

/* Released on every path out of the scope; take_fd and take_ptr are the only way to keep the value. */
#define auto_close __attribute__((cleanup(close_p)))
#define auto_free  __attribute__((cleanup(free_p)))

#define take_fd(fd)             \
    ({                          \
        int *take_p_ = &(fd);   \
        int take_v_ = *take_p_; \
        *take_p_ = -1;          \
        take_v_;                \
    })
#define take_ptr(ptr)                       \
    ({                                      \
        __typeof__(ptr) *take_p_ = &(ptr);  \
        __typeof__(ptr) take_v_ = *take_p_; \
        *take_p_ = NULL;                    \
        take_v_;                            \
    })

/* Closes *fd and marks it closed; -1 is fine. */
static inline void close_fd(int *fd)
{
    close_p(fd);
    *fd = -1;
}

#define PRINTF_LIKE(fmt_arg, first_arg) __attribute__((format(printf, fmt_arg, first_arg)))
