/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h: monotonic time for deadlines, wall time for display only. */
#pragma once

#include "base/util.h"

int64_t clock_mono_ms(void);
int64_t clock_mono_us(void);
int64_t clock_wall_ms(void); /* since 1970 */

#define CLOCK_ISO_SIZE 25
/* "2026-01-02T03:04:05.678Z" of a wall time, NUL-terminated. */
void clock_iso(int64_t wall_ms, char out[CLOCK_ISO_SIZE]);
void clock_iso_now(char out[CLOCK_ISO_SIZE]);
