/* SPDX-License-Identifier: Apache-2.0 */
/* sha1.h: SHA-1 (FIPS 180-4), for the WebSocket handshake only: it proves nothing to anybody. */
#pragma once

#include "base/util.h"

enum { SHA1_BYTES = 20 };

void sha1(const void *data, size_t n, unsigned char out[SHA1_BYTES]);
