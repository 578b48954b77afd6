/* SPDX-License-Identifier: Apache-2.0 */
/* http_chunked.h: a strict decoder of the chunked transfer coding.
 *
 * Accepted: a size of 1 to 16 hexadecimal digits without anything around them and at most 2^63 - 1;
 * extensions (;name, ;name=value, ;name="quoted") without blanks and backslashes, HTTP_CHUNK_EXT_MAX bytes of
 * them in the whole message; CRLF and nothing else as line end; trailer lines "token: value", which are
 * checked, counted and dropped. Everything else is an error. llhttp could do this too, but it takes a bare LF
 * as the last line end, any number of zeros in front of a size, and knows no limit for extensions;
 * fuzz_chunked.c holds the two against each other. */
#pragma once

#include "base/util.h"

enum { HTTP_CHUNK_EXT_MAX = 256, HTTP_TRAILER_BYTES_MAX = 8192, HTTP_TRAILER_COUNT_MAX = 100 };

enum http_chunked_event {
    HTTP_CHUNKED_MORE, /* everything was used, more is needed */
    HTTP_CHUNKED_DATA, /* a piece of the body */
    HTTP_CHUNKED_END,  /* the message is over; bytes behind it are not used */
    HTTP_CHUNKED_BAD,
};

/* Zero-initialised is the start. */
struct http_chunked {
    uint64_t left; /* of the current chunk */
    uint16_t ext_bytes, trailer_bytes;
    uint8_t trailers, digits, state;
};

/* Looks at data until the next event; *used says how many bytes it took. For HTTP_CHUNKED_DATA, *piece and
 * *piece_len point into data. */
enum http_chunked_event http_chunked_next(struct http_chunked *d, const char *data, size_t n, size_t *used,
                                          const char **piece, size_t *piece_len);
