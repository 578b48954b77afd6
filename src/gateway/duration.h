/* SPDX-License-Identifier: Apache-2.0 */
/* duration.h: the quantities people write: "10m" of time, "512MiB" of bytes. */
#pragma once

#include "base/util.h"

#define DURATION_MIN_MS INT64_C(100)
#define DURATION_MAX_MS (INT64_C(365) * 24 * 3600 * 1000)

/* "30s", "10m", "1h" (a whole number and one unit). 0, -EINVAL (not of this form) or -ERANGE. */
int duration_parse(const char *s, int64_t *ret_ms);
/* A number of seconds, fractions allowed. 0 or -ERANGE. */
int duration_from_seconds(double seconds, int64_t *ret_ms);

/* "1048576", "512MiB", "512M", "1.5GB": units B, KB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (1024),
 * and the bare letters K, M, G, T as the latter. 0, -EINVAL or -ERANGE (not below 2^53). */
int byte_size_parse(const char *s, uint64_t *ret);
