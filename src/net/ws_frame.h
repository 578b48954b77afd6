/* SPDX-License-Identifier: Apache-2.0 */
/* ws_frame.h: WebSocket frames (RFC 6455 section 5): reading them strictly, writing their headers. No I/O.
 *
 * Refused with the code the RFC asks for: frames masked (or not) against their sender's role, reserved bits
 * and opcodes, lengths not in their shortest form, control frames in pieces or longer than 125 bytes,
 * continuations of nothing, a new message inside another one, text that is not UTF-8 (noticed at the first
 * wrong byte), close codes nobody may send. A message's memory grows with what has arrived, never with what
 * was announced. */
#pragma once

#include "base/buf.h"

enum ws_role { WS_SERVER, WS_CLIENT }; /* of the reader or writer itself */

enum ws_opcode { WS_CONTINUATION = 0, WS_TEXT = 1, WS_BINARY = 2, WS_CLOSE = 8, WS_PING = 9, WS_PONG = 10 };

enum {
    WS_HEADER_MAX = 14,
    WS_CONTROL_MAX = 125,
    WS_EMPTY_MAX = 1024, /* empty pieces in one message: more have no purpose */
    WS_CODE_NORMAL = 1000,
    WS_CODE_GOING_AWAY = 1001,
    WS_CODE_PROTOCOL = 1002,
    WS_CODE_NONE = 1005, /* a close frame without a code; never sent */
    WS_CODE_LOST = 1006, /* no close frame at all; never sent */
    WS_CODE_UTF8 = 1007,
    WS_CODE_POLICY = 1008,
    WS_CODE_TOO_LARGE = 1009,
    WS_CODE_INTERNAL = 1011,
    WS_CODE_TRY_AGAIN = 1013,
};

/* State of a UTF-8 check over pieces; zero-initialised is the start, and the end when `need` is 0 again. */
struct ws_utf8 {
    unsigned char need;      /* bytes the present character still wants */
    unsigned char low, high; /* what the next of them may be */
};
bool ws_utf8_check(struct ws_utf8 *u, const char *data, size_t n);

struct ws_reader {
    enum ws_role role;
    size_t message_max;

    /* private */
    unsigned char header[WS_HEADER_MAX];
    unsigned header_have;
    bool in_frame; /* the header is complete, left bytes of payload are not here yet */
    uint64_t left;
    unsigned mask_at;
    unsigned char mask[4];
    unsigned opcode;  /* of the frame */
    bool final;       /* of the frame */
    unsigned message; /* WS_TEXT, WS_BINARY, 0: between messages */
    unsigned empty;   /* pieces */
    bool told;        /* the message in `data` was given out */
    struct ws_utf8 utf8;
    struct buf data;
    char control[WS_CONTROL_MAX + 1];
    size_t control_have;
};

enum ws_event {
    WS_EVENT_NONE,    /* all bytes are used, nothing is complete */
    WS_EVENT_MESSAGE, /* data, n, text */
    WS_EVENT_PING,    /* data, n */
    WS_EVENT_PONG,    /* data, n */
    WS_EVENT_CLOSE,   /* code; data is the reason, NUL-terminated */
    WS_EVENT_BROKEN,  /* code to close with, why: a sentence; the reader is of no more use */
};

struct ws_found {
    enum ws_event event;
    bool text;
    int code;
    const char *why;
    char *data; /* may be changed in place; valid until the next call */
    size_t n;
};

void ws_reader_init(struct ws_reader *r, enum ws_role role, size_t message_max);
void ws_reader_done(struct ws_reader *r);
/* Takes bytes until something is found; returns how many were taken. */
size_t ws_reader_feed(struct ws_reader *r, const char *data, size_t n, struct ws_found *ret);

bool ws_code_valid(int code); /* may stand in a close frame */

/* Writes the header of a frame with n bytes of payload; mask is for WS_CLIENT, NULL otherwise. Returns its
 * length. */
size_t ws_header(unsigned char out[WS_HEADER_MAX], enum ws_opcode opcode, bool final, uint64_t n,
                 const unsigned char mask[4]);
/* XORs n bytes that begin at position `at` of the payload; out may be in. */
void ws_mask(char *out, const char *in, size_t n, const unsigned char mask[4], size_t at);
