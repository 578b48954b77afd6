/* SPDX-License-Identifier: Apache-2.0 */
/* http_chunked.c: see http_chunked.h. */
#include "net/http_chunked.h"
#include "net/http_parse.h"

/* SIZE_FIRST  the first digit of a chunk's size
 * SIZE        further digits, or what ends them
 * EXT         the first byte of an extension's name
 * EXT_NAME    further bytes of the name, or what ends it
 * EXT_VALUE   the first byte of its value
 * EXT_TOKEN   further bytes of a plain value, or what ends it
 * EXT_QUOTED  inside a quoted value
 * EXT_END     behind a quoted value
 * SIZE_LF     the LF behind a size line
 * DATA        inside a chunk
 * DATA_CR/LF  the line end behind a chunk
 * TRAILER     the first byte of a trailer line, or the CR of the last line
 * NAME/VALUE  inside a trailer line
 * VALUE_LF    the LF behind a trailer line
 * LAST_LF     the LF that ends the message
 * OVER        ended or broken: nothing is taken any more */
enum state {
    SIZE_FIRST,
    SIZE,
    EXT,
    EXT_NAME,
    EXT_VALUE,
    EXT_TOKEN,
    EXT_QUOTED,
    EXT_END,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER,
    NAME,
    VALUE,
    VALUE_LF,
    LAST_LF,
    OVER,
};

static int hex_digit(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool size_add(struct http_chunked *d, unsigned char c)
{
    int digit = hex_digit(c);
    if (digit < 0 || d->digits == 16)
        return false;
    d->digits++;
    d->left = d->left << 4 | (unsigned)digit;
    return true;
}

/* One byte of ";name", ";name=value" or ";name="quoted value"", where no blanks stand around anything. */
static bool take_extension(struct http_chunked *d, unsigned char c)
{
    bool token = http_is_token(c),
         may_end = d->state == EXT_NAME || d->state == EXT_TOKEN || d->state == EXT_END;
    if (c == '\r') {
        d->state = SIZE_LF;
        return may_end;
    }
    if (++d->ext_bytes > HTTP_CHUNK_EXT_MAX)
        return false;
    if (c == ';' && may_end) {
        d->state = EXT;
        return true;
    }
    switch ((enum state)d->state) {
    case EXT:
        d->state = EXT_NAME;
        return token;
    case EXT_NAME:
        if (c == '=')
            d->state = EXT_VALUE;
        return token || c == '=';
    case EXT_VALUE:
        d->state = c == '"' ? EXT_QUOTED : EXT_TOKEN;
        return token || c == '"';
    case EXT_TOKEN:
        return token;
    case EXT_QUOTED:
        if (c == '"')
            d->state = EXT_END;
        return http_is_text(c) && c != '\\' && c < 0x80;
    default:
        return false;
    }
}

/* One byte that is not chunk data; false when it must not be there. */
static bool take(struct http_chunked *d, unsigned char c)
{
    switch ((enum state)d->state) {
    case SIZE_FIRST:
        d->left = 0;
        d->digits = 0;
        d->state = SIZE;
        return size_add(d, c);
    case SIZE:
        if (c != '\r' && c != ';')
            return size_add(d, c);
        if (d->left > INT64_MAX)
            return false;
        d->state = c == '\r' ? SIZE_LF : EXT;
        return true;
    case EXT:
    case EXT_NAME:
    case EXT_VALUE:
    case EXT_TOKEN:
    case EXT_QUOTED:
    case EXT_END:
        return take_extension(d, c);
    case SIZE_LF:
        d->state = d->left ? DATA : TRAILER;
        return c == '\n';
    case DATA_CR:
        d->state = DATA_LF;
        return c == '\r';
    case DATA_LF:
        d->state = SIZE_FIRST;
        return c == '\n';
    case TRAILER:
        if (c == '\r') {
            d->state = LAST_LF;
            return true;
        }
        d->state = NAME;
        return http_is_token(c) && ++d->trailers <= HTTP_TRAILER_COUNT_MAX;
    case NAME:
        if (c == ':') {
            d->state = VALUE;
            return true;
        }
        return http_is_token(c);
    case VALUE:
        if (c == '\r') {
            d->state = VALUE_LF;
            return true;
        }
        return http_is_text(c);
    case VALUE_LF:
        d->state = TRAILER;
        return c == '\n';
    case LAST_LF:
        d->state = OVER;
        return c == '\n';
    case DATA:
    case OVER:
        break;
    }
    return false;
}

static bool in_trailer(const struct http_chunked *d)
{
    return d->state >= TRAILER && d->state <= VALUE_LF;
}

enum http_chunked_event http_chunked_next(struct http_chunked *d, const char *data, size_t n, size_t *used,
                                          const char **piece, size_t *piece_len)
{
    size_t i = 0;
    while (i < n) {
        if (d->state == DATA) {
            size_t len = d->left < n - i ? (size_t)d->left : n - i;
            *piece = data + i;
            *piece_len = len;
            *used = i + len;
            d->left -= len;
            if (!d->left)
                d->state = DATA_CR;
            return HTTP_CHUNKED_DATA;
        }
        if (!take(d, (unsigned char)data[i]) ||
            (in_trailer(d) && ++d->trailer_bytes > HTTP_TRAILER_BYTES_MAX)) {
            d->state = OVER;
            *used = i;
            return HTTP_CHUNKED_BAD;
        }
        i++;
        if (d->state == OVER) {
            *used = i;
            return HTTP_CHUNKED_END;
        }
    }
    *used = i;
    return HTTP_CHUNKED_MORE;
}
