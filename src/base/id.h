/* SPDX-License-Identifier: Apache-2.0 */
/* id.h: sandbox ids and random names. */
#pragma once

#include "base/error.h"

enum { SANDBOX_ID_MAX = 63 };

/* 1-63 of [A-Za-z0-9._-], not starting or ending with '-' or '.', not a reserved word; else -EINVAL with a
 * sentence. */
int sandbox_id_check(const char *id, struct error *reterr);

/* Random lower-case letters and digits (from getrandom); out has n + 1 bytes. */
void random_name(char *out, size_t n);
void random_bytes(void *out, size_t n);
void hex_encode(char *out, const void *data, size_t n); /* out has 2n + 1 bytes */
/* Same time whatever differs. */
bool equal_constant_time(const void *a, const void *b, size_t n);
