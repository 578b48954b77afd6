/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.h: checking, and lossy decoding of byte streams whose pieces may cut characters. */
#pragma once

#include "base/buf.h"

/* True when data is well-formed UTF-8 (no surrogates, no overlong forms, at most U+10FFFF). */
bool utf8_valid(const void *data, size_t n);

/* State of a stream decoder; zero-initialised is the start. */
struct utf8_stream {
    unsigned char pending[4]; /* bytes of a character that is not complete yet */
    unsigned char pending_len;
};

enum utf8_flags {
    UTF8_DROP_NUL = 1, /* NUL bytes vanish */
    UTF8_JSON = 2,     /* escape for the inside of a JSON string */
    UTF8_ASCII = 4,    /* with UTF8_JSON: everything above 0x7e as \uXXXX */
};

/* Appends data, decoded as WHATWG UTF-8 (U+FFFD per maximal invalid sequence), to out. A character cut by
 * the end of data waits in st for the next piece; with final set it becomes U+FFFD. 0 or the buf's error
 * (then out holds a prefix and st is unspecified). */
int utf8_decode(struct utf8_stream *st, const void *data, size_t n, bool final, unsigned flags,
                struct buf *out);
