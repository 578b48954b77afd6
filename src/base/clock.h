/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h: monotonic time for deadlines, wall time for display only.
 *
 * While the host is suspended, monotonic time stands still and boot time goes on: what measures idleness uses
 * the former (nobody could use a sandbox meanwhile), what ends at a promised time uses the latter. */
#pragma once

#include "base/util.h"

int64_t clock_mono_ms(void);
int64_t clock_mono_us(void);
int64_t clock_boot_ms(void);
int64_t clock_wall_ms(void); /* since 1970 */

#define CLOCK_ISO_SIZE 25
/* "2026-01-02T03:04:05.678Z" of a wall time, NUL-terminated. */
void clock_iso(int64_t wall_ms, char out[CLOCK_ISO_SIZE]);
void clock_iso_now(char out[CLOCK_ISO_SIZE]);
