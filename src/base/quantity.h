/* SPDX-License-Identifier: Apache-2.0 */
/* quantity.h: the quantities people write: "10m" of time, "512MiB" of bytes, "1.5" of anything. Locale-free
 * and exact: no strtod, no floating point. */
#pragma once

#include "base/util.h"

/* A decimal number at *text, moving *text behind it: its whole part, and millionths. No sign, no exponent, at
 * most six decimals. 0, -EINVAL or -ERANGE. */
int quantity_decimal(const char **text, uint64_t *ret_whole, uint32_t *ret_millionths);

/* "500ms", "10s", "1m30s", "1.5h", "2d"; a bare number counts seconds. 0, -EINVAL or -ERANGE. */
int quantity_duration_ms(const char *text, int64_t *ret);

/* "1048576", "512MiB", "512M", "64k", "1.5 GB": powers of 1024, except with B alone behind the letter ("MB"):
 * of 1000. 0, -EINVAL or -ERANGE (not below 2^53). */
int quantity_bytes(const char *text, uint64_t *ret);
