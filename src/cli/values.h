/* SPDX-License-Identifier: Apache-2.0 */
/* values.h: the values people type behind options: durations, sizes, numbers, K=V pairs.
 *
 * All return 0, or -EINVAL or -ERANGE with a sentence that begins with `source` (options_source) and shows a
 * valid value. */
#pragma once

#include "base/error.h"

/* These two as base/quantity.h reads them. */
int value_duration_ms(const char *source, const char *text, int64_t *ret, struct error *reterr);
int value_bytes(const char *source, const char *text, uint64_t *ret, struct error *reterr);
int value_integer(const char *source, const char *text, int64_t min, int64_t max, int64_t *ret,
                  struct error *reterr);
/* "1.5" cores as 1500. */
int value_cpu_milli(const char *source, const char *text, uint32_t *ret, struct error *reterr);
/* "NAME=VALUE" with a name that a shell accepts. */
int value_env(const char *source, const char *text, struct error *reterr);
/* "NAME:/PATH" or "NAME:/PATH:ro". */
int value_volume(const char *source, const char *text, struct error *reterr);
/* "KEY=VALUE" with any non-empty key. */
int value_label(const char *source, const char *text, struct error *reterr);
