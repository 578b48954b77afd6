/* SPDX-License-Identifier: Apache-2.0 */
/* error.h: a negative errno for the program, a sentence for the human.
 *
 * Functions return 0 (or a count) on success and -errno on failure; on failure they also fill the
 * caller's struct error. Only the edge (a request handler, main) logs or answers, once. */
#pragma once

#include "base/util.h"

struct error {
    int code;      /* positive errno, 0 = no error */
    char msg[320]; /* one sentence without a trailing full stop */
};

/* Both fill *e (NULL is fine) and return -errnum. error_sys appends ": <strerror(errnum)>". */
int error_set(struct error *e, int errnum, const char *fmt, ...) PRINTF_LIKE(3, 4);
int error_sys(struct error *e, int errnum, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Puts "<prefix>: " in front of the message already in *e; returns -e->code. */
int error_prefix(struct error *e, const char *fmt, ...) PRINTF_LIKE(2, 3);
