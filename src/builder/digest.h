/* SPDX-License-Identifier: Apache-2.0 */
/* digest.h: SHA-256 over a sequence of fields: each goes in with its length, so that no two sequences look
 * the same. */
#pragma once

#include "image/sha256.h"

enum { DIGEST_HEX = SHA256_HEX };

void digest_field(struct sha256 *d, const char *text); /* NULL differs from "" */
void digest_number(struct sha256 *d, uint64_t v);
void digest_end(struct sha256 *d, char out[DIGEST_HEX + 1]); /* frees d */
