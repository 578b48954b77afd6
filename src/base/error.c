/* SPDX-License-Identifier: Apache-2.0 */
/* error.c: building the sentence that travels with an errno. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int error_set(struct error *e, int errnum, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        e->code = errnum;
        va_start(ap, fmt);
        (void)vsnprintf(e->msg, sizeof e->msg, fmt, ap);
        va_end(ap);
    }
    return -errnum;
}

int error_sys(struct error *e, int errnum, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        e->code = errnum;
        va_start(ap, fmt);
        int n = vsnprintf(e->msg, sizeof e->msg, fmt, ap);
        va_end(ap);
        if (n >= 0 && (size_t)n < sizeof e->msg)
            (void)snprintf(e->msg + n, sizeof e->msg - (size_t)n, ": %s", strerror(errnum));
    }
    return -errnum;
}

int error_prefix(struct error *e, const char *fmt, ...)
{
    if (!e)
        return -EINVAL;
    char old[sizeof e->msg];
    memcpy(old, e->msg, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof e->msg)
        (void)snprintf(e->msg + n, sizeof e->msg - (size_t)n, ": %.*s", (int)sizeof e->msg - n, old);
    return -e->code;
}
