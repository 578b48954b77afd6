/* SPDX-License-Identifier: Apache-2.0 */
/* problem.c: see problem.h. */
#include "gateway/problem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static void fill(struct problem *p, int status, const char *code, const char *fmt, va_list ap)
{
    *p = (struct problem){.status = status, .code = code};
    (void)vsnprintf(p->message, sizeof p->message, fmt, ap);
}

int problem_set(struct problem *p, int status, const char *code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(p, status, code, fmt, ap);
    va_end(ap);
    return -EINVAL;
}

int problem_field(struct problem *p, const char *field, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(p, 400, "VALIDATION_FAILED", fmt, ap);
    va_end(ap);
    (void)snprintf(p->field, sizeof p->field, "%s", field);
    return -EINVAL;
}
