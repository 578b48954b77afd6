/* SPDX-License-Identifier: Apache-2.0 */
/* ws_frame.c: see ws_frame.h. */
#include "net/ws_frame.h"

#include <errno.h>
#include <string.h>

enum { KEEP_BYTES = 64 * 1024 }; /* memory of a message that is kept for the next one */

/* ------------------------------------------------------------------ text */

/* The bytes that may follow a first byte (Unicode table 3-7); false when it cannot be first. */
static bool utf8_lead(struct ws_utf8 *u, unsigned char c)
{
    u->low = 0x80;
    u->high = 0xbf;
    if (c < 0x80) {
        u->need = 0;
    } else if (c >= 0xc2 && c <= 0xdf) {
        u->need = 1;
    } else if (c >= 0xe0 && c <= 0xef) {
        u->need = 2;
        u->low = c == 0xe0 ? 0xa0 : 0x80;
        u->high = c == 0xed ? 0x9f : 0xbf;
    } else if (c >= 0xf0 && c <= 0xf4) {
        u->need = 3;
        u->low = c == 0xf0 ? 0x90 : 0x80;
        u->high = c == 0xf4 ? 0x8f : 0xbf;
    } else {
        return false;
    }
    return true;
}

bool ws_utf8_check(struct ws_utf8 *u, const char *data, size_t n)
{
    const unsigned char *p = (const unsigned char *)data, *end = p + n;
    while (p < end) {
        uint64_t eight;
        if (!u->need && end - p >= 8 && (memcpy(&eight, p, sizeof eight), !(eight & 0x8080808080808080ULL))) {
            p += 8;
        } else if (!u->need) {
            if (!utf8_lead(u, *p++))
                return false;
        } else {
            if (*p < u->low || *p > u->high)
                return false;
            u->low = 0x80;
            u->high = 0xbf;
            u->need--;
            p++;
        }
    }
    return true;
}

/* ------------------------------------------------------------------ writing */

bool ws_code_valid(int code)
{
    return (code >= 1000 && code <= 1014 && code != 1004 && code != WS_CODE_NONE && code != WS_CODE_LOST) ||
           (code >= 3000 && code <= 4999);
}

size_t ws_header(unsigned char out[WS_HEADER_MAX], enum ws_opcode opcode, bool final, uint64_t n,
                 const unsigned char mask[4])
{
    size_t len = 2;
    int bytes = n < 126 ? 0 : n <= UINT16_MAX ? 2 : 8;
    out[0] = (unsigned char)(opcode | (final ? 0x80 : 0));
    out[1] = (unsigned char)(bytes == 0 ? n : bytes == 2 ? 126 : 127);
    for (int i = bytes - 1; i >= 0; i--)
        out[len++] = (unsigned char)(n >> (8 * i));
    if (mask) {
        out[1] |= 0x80;
        memcpy(out + len, mask, 4);
        len += 4;
    }
    return len;
}

void ws_mask(char *out, const char *in, size_t n, const unsigned char mask[4], size_t at)
{
    unsigned char turned[8];
    uint64_t key, word;
    size_t i = 0;
    for (size_t k = 0; k < sizeof turned; k++)
        turned[k] = mask[(at + k) & 3];
    memcpy(&key, turned, sizeof key);
    for (; n - i >= sizeof word; i += sizeof word) {
        memcpy(&word, in + i, sizeof word);
        word ^= key;
        memcpy(out + i, &word, sizeof word);
    }
    for (; i < n; i++)
        out[i] = (char)(in[i] ^ (char)mask[(at + i) & 3]);
}

/* ------------------------------------------------------------------ reading */

void ws_reader_init(struct ws_reader *r, enum ws_role role, size_t message_max)
{
    *r = (struct ws_reader){.role = role, .message_max = message_max, .data = BUF_INIT(message_max)};
}

void ws_reader_done(struct ws_reader *r)
{
    buf_done(&r->data);
}

static bool is_control(unsigned opcode)
{
    return opcode & 8;
}

static bool broken(struct ws_found *f, int code, const char *why)
{
    f->event = WS_EVENT_BROKEN;
    f->code = code;
    f->why = why;
    return false;
}

/* What the first two bytes alone tell. */
static bool check_start(const struct ws_reader *r, struct ws_found *f)
{
    unsigned opcode = r->header[0] & 15;
    bool final = r->header[0] & 0x80, masked = r->header[1] & 0x80;
    unsigned length = r->header[1] & 0x7f;
    if (r->header[0] & 0x70)
        return broken(f, WS_CODE_PROTOCOL, "a reserved bit is set");
    if ((opcode > WS_BINARY && opcode < WS_CLOSE) || opcode > WS_PONG)
        return broken(f, WS_CODE_PROTOCOL, "the opcode is reserved");
    if (masked != (r->role == WS_SERVER))
        return broken(f, WS_CODE_PROTOCOL, masked ? "the frame is masked" : "the frame is not masked");
    if (is_control(opcode) && (!final || length > WS_CONTROL_MAX))
        return broken(f, WS_CODE_PROTOCOL, "a control frame is in pieces or too long");
    if (opcode == WS_CONTINUATION && !r->message)
        return broken(f, WS_CODE_PROTOCOL, "there is nothing to continue");
    if ((opcode == WS_TEXT || opcode == WS_BINARY) && r->message)
        return broken(f, WS_CODE_PROTOCOL, "a message begins inside another one");
    return true;
}

static unsigned header_size(const struct ws_reader *r)
{
    unsigned length = r->header[1] & 0x7f;
    return 2 + (length == 126 ? 2 : length == 127 ? 8 : 0) + (r->header[1] & 0x80 ? 4 : 0);
}

/* A complete header. */
static bool begin_frame(struct ws_reader *r, struct ws_found *f)
{
    unsigned length = r->header[1] & 0x7f, at = 2;
    uint64_t n = length;
    if (length >= 126) {
        unsigned bytes = length == 126 ? 2 : 8;
        for (n = 0; bytes; bytes--)
            n = n << 8 | r->header[at++];
        if (n < 126 || (length == 127 && n <= UINT16_MAX))
            return broken(f, WS_CODE_PROTOCOL, "the length is not in its shortest form");
    }
    memcpy(r->mask, r->header + at, 4);
    r->opcode = r->header[0] & 15;
    r->final = r->header[0] & 0x80;
    r->left = n;
    r->mask_at = 0;
    r->in_frame = true;
    r->control_have = 0;
    if (is_control(r->opcode))
        return true;
    if (r->opcode != WS_CONTINUATION) {
        r->message = r->opcode;
        r->utf8 = (struct ws_utf8){0};
        r->empty = 0;
    }
    if (n > r->message_max - buf_len(&r->data))
        return broken(f, WS_CODE_TOO_LARGE, "the message is too large");
    if (!n && !r->final && ++r->empty > WS_EMPTY_MAX)
        return broken(f, WS_CODE_POLICY, "there are too many empty pieces");
    return true;
}

static bool take_payload(struct ws_reader *r, const char *data, size_t n, struct ws_found *f)
{
    char *to = is_control(r->opcode) ? r->control + r->control_have : buf_reserve(&r->data, n);
    if (!to)
        return broken(f, WS_CODE_INTERNAL, "out of memory");
    if (r->role == WS_SERVER)
        ws_mask(to, data, n, r->mask, r->mask_at);
    else
        memcpy(to, data, n);
    r->mask_at = (r->mask_at + n) & 3;
    r->left -= n;
    if (is_control(r->opcode)) {
        r->control_have += n;
        return true;
    }
    buf_commit(&r->data, n);
    if (r->message == WS_TEXT && !ws_utf8_check(&r->utf8, to, n))
        return broken(f, WS_CODE_UTF8, "the text is not UTF-8");
    return true;
}

static void end_close(struct ws_reader *r, struct ws_found *f)
{
    struct ws_utf8 utf8 = {0};
    f->event = WS_EVENT_CLOSE;
    f->code = WS_CODE_NONE;
    f->data = r->control + MIN(r->control_have, (size_t)2);
    f->n = r->control_have < 2 ? 0 : r->control_have - 2;
    if (!r->control_have)
        return;
    f->code = (unsigned char)r->control[0] << 8 | (unsigned char)r->control[1];
    if (r->control_have == 1 || !ws_code_valid(f->code))
        (void)broken(f, WS_CODE_PROTOCOL, "the close code is not valid");
    else if (!ws_utf8_check(&utf8, f->data, f->n) || utf8.need)
        (void)broken(f, WS_CODE_UTF8, "the reason is not UTF-8");
}

/* All of the frame is here. */
static void end_frame(struct ws_reader *r, struct ws_found *f)
{
    r->in_frame = false;
    r->header_have = 0;
    if (is_control(r->opcode)) {
        r->control[r->control_have] = '\0';
        f->data = r->control;
        f->n = r->control_have;
        if (r->opcode == WS_CLOSE)
            end_close(r, f);
        else
            f->event = r->opcode == WS_PING ? WS_EVENT_PING : WS_EVENT_PONG;
        return;
    }
    if (!r->final)
        return;
    if (r->message == WS_TEXT && r->utf8.need) {
        (void)broken(f, WS_CODE_UTF8, "the text ends inside a character");
        return;
    }
    f->event = WS_EVENT_MESSAGE;
    f->text = r->message == WS_TEXT;
    f->data = buf_data(&r->data);
    f->n = buf_len(&r->data);
    r->message = 0;
    r->told = true;
}

/* The memory of a message goes with the next byte, so that the receiver can use it meanwhile. */
static void forget_message(struct ws_reader *r)
{
    if (!r->told)
        return;
    r->told = false;
    if (r->data.cap > KEEP_BYTES)
        buf_done(&r->data);
    else
        buf_clear(&r->data);
}

static size_t take_header(struct ws_reader *r, const char *data, size_t n, struct ws_found *f)
{
    size_t used = 0;
    while (used < n && f->event == WS_EVENT_NONE) {
        r->header[r->header_have++] = (unsigned char)data[used++];
        if (r->header_have == 2 && !check_start(r, f))
            break;
        if (r->header_have >= 2 && r->header_have == header_size(r)) {
            (void)begin_frame(r, f);
            break;
        }
    }
    return used;
}

size_t ws_reader_feed(struct ws_reader *r, const char *data, size_t n, struct ws_found *ret)
{
    size_t used = 0;
    *ret = (struct ws_found){.event = WS_EVENT_NONE};
    if (n)
        forget_message(r);
    while (ret->event == WS_EVENT_NONE && used < n) {
        if (!r->in_frame)
            used += take_header(r, data + used, n - used, ret);
        if (ret->event != WS_EVENT_NONE || !r->in_frame)
            continue;
        size_t piece = (size_t)MIN((uint64_t)(n - used), r->left);
        used += piece;
        if (piece && !take_payload(r, data + used - piece, piece, ret))
            break;
        if (!r->left)
            end_frame(r, ret);
    }
    return used;
}
