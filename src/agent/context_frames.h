/* SPDX-License-Identifier: Apache-2.0 */
/* context_frames.h: the messages of an interpreter, found among whatever else arrives on its channel.
 *
 * A piece is a line "<nonce><mark><bytes>"; the mark is '=' (a whole message), '<' (its beginning), '+' (a
 * middle) or '>' (its end). Lines that do not begin with the nonce were not written by the interpreter's
 * runtime and are skipped. A message is
 * "<kind><run> <json>": a lower-case letter, a decimal number, a JSON text. */
#pragma once

#include "base/buf.h"

enum {
    FRAME_NONCE = 32,             /* hexadecimal digits */
    FRAME_LINE_MAX = 48 * 1024,   /* a longer line is no piece */
    FRAME_MESSAGE_MAX = 12 << 20, /* a longer message is dropped */
};

struct frame_parser {
    char nonce[FRAME_NONCE + 1];
    struct buf line, message;
    bool skip;      /* the rest of the current line is of no interest */
    bool open;      /* message has a beginning and waits for its end */
    bool delivered; /* message was handed out */
};

struct frame {
    char kind;
    uint64_t run;
    char *json; /* NUL-terminated, may be changed in place; valid until the next call */
    size_t len;
};

void frame_parser_init(struct frame_parser *p, const char nonce[FRAME_NONCE + 1]);
void frame_parser_done(struct frame_parser *p);
/* Takes bytes up to the end of the next message; returns how many, and whether *ret holds one. */
size_t frame_parse(struct frame_parser *p, const char *data, size_t n, struct frame *ret, bool *ret_complete);
