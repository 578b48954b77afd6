/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.h: SHA-256, the names of layers and images. */
#pragma once

#include "base/error.h"

enum { SHA256_BYTES = 32, SHA256_HEX = 64 };

struct sha256; /* a running sum */

int sha256_new(struct sha256 **ret, struct error *reterr);
void sha256_free(struct sha256 *d); /* NULL is fine */
void sha256_add(struct sha256 *d, const void *data, size_t n);
void sha256_take(struct sha256 *d, unsigned char ret[SHA256_BYTES]); /* and begins anew */

void sha256_hex(const unsigned char sum[SHA256_BYTES], char ret[SHA256_HEX + 1]);
/* "sha256:<64 lower-case digits>" with nothing behind it. */
bool sha256_parse(const char *text, unsigned char ret[SHA256_BYTES]);
