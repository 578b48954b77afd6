/* SPDX-License-Identifier: Apache-2.0 */
/* base64.h: base64 with the standard alphabet: padded without line breaks when writing, strict when reading.
 */
#pragma once

#include "base/util.h"

/* Bytes base64_encode writes for n bytes of data. */
static inline size_t base64_encoded_len(size_t n)
{
    return (n / 3 + (n % 3 != 0)) * 4;
}

/* Writes base64_encoded_len(n) characters, no NUL, and returns their number. Pieces whose lengths are
 * multiples of three may be encoded one by one: their texts together are the text of the whole. */
size_t base64_encode(char *out, const void *data, size_t n);

/* Decodes into out, which has room for n / 4 * 3 + 2 bytes and may be text itself. Padding may be missing,
 * but must be right when it is there; anything else outside the alphabet (line breaks too) is refused. The
 * number of bytes, or -EBADMSG (out is unspecified then). */
ssize_t base64_decode(void *out, const char *text, size_t n);
