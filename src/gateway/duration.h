/* SPDX-License-Identifier: Apache-2.0 */
/* duration.h: times that callers of the API may choose; see base/quantity.h for how they are written. */
#pragma once

#include "base/util.h"

#define DURATION_MIN_MS INT64_C(100)
#define DURATION_MAX_MS (INT64_C(365) * 24 * 3600 * 1000)

/* "30s", "10m", "1h30m", "1d": always with a unit. 0, -EINVAL (not of this form) or -ERANGE. */
int duration_parse(const char *s, int64_t *ret_ms);
/* A number of seconds, fractions allowed. 0 or -ERANGE. */
int duration_from_seconds(double seconds, int64_t *ret_ms);
