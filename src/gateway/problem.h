/* SPDX-License-Identifier: Apache-2.0 */
/* problem.h: why a request is refused, in the words the caller will see. */
#pragma once

#include "base/util.h"

struct problem {
    int status;        /* HTTP */
    const char *code;  /* a constant such as "HOST_FULL" */
    int retry_after_s; /* 0: none */
    char field[64];    /* which field of the body is wrong, "" when none */
    char message[320]; /* one sentence; no host paths, no memory contents */
};

/* Fills *p and returns -EINVAL, so that parsers can return it directly. */
int problem_set(struct problem *p, int status, const char *code, const char *fmt, ...) PRINTF_LIKE(4, 5);
/* 400 VALIDATION_FAILED that names the field. */
int problem_field(struct problem *p, const char *field, const char *fmt, ...) PRINTF_LIKE(3, 4);
