/* SPDX-License-Identifier: Apache-2.0 */
/* context_frames.c: see context_frames.h. */
#include "agent/context_frames.h"
#include "base/id.h"

#include <string.h>

enum { KEEP_BYTES = 64 * 1024 };

void frame_parser_init(struct frame_parser *p, const char nonce[FRAME_NONCE + 1])
{
    *p = (struct frame_parser){.line = BUF_INIT(FRAME_LINE_MAX), .message = BUF_INIT(FRAME_MESSAGE_MAX)};
    memcpy(p->nonce, nonce, FRAME_NONCE + 1);
}

void frame_parser_done(struct frame_parser *p)
{
    buf_done(&p->line);
    buf_done(&p->message);
}

static void message_clear(struct frame_parser *p)
{
    if (p->message.cap > KEEP_BYTES)
        buf_done(&p->message);
    else
        buf_clear(&p->message);
    p->open = p->delivered = false;
}

/* True when the line ended a message. */
static bool take_line(struct frame_parser *p)
{
    const char *line = buf_data(&p->line);
    size_t n = buf_len(&p->line);
    if (n <= FRAME_NONCE || !equal_constant_time(line, p->nonce, FRAME_NONCE))
        return false;
    char mark = line[FRAME_NONCE];
    if (mark == '=' || mark == '<') {
        message_clear(p);
        p->open = true;
    } else if ((mark != '+' && mark != '>') || !p->open) {
        return false;
    }
    if (buf_append(&p->message, line + FRAME_NONCE + 1, n - FRAME_NONCE - 1) < 0) {
        message_clear(p); /* too long: what follows of it finds nothing open */
        return false;
    }
    return mark == '=' || mark == '>';
}

static bool read_message(struct frame_parser *p, struct frame *ret)
{
    p->open = false;
    p->delivered = true;
    if (!buf_cstr(&p->message))
        return false;
    char *s = buf_data(&p->message), *end = s + buf_len(&p->message);
    if (s == end || *s < 'a' || *s > 'z')
        return false;
    ret->kind = *s++;
    ret->run = 0;
    int digits = 0;
    for (; *s >= '0' && *s <= '9' && digits < 16; s++, digits++)
        ret->run = ret->run * 10 + (uint64_t)(*s - '0');
    if (!digits || *s != ' ')
        return false;
    ret->json = s + 1;
    ret->len = (size_t)(end - ret->json);
    return true;
}

size_t frame_parse(struct frame_parser *p, const char *data, size_t n, struct frame *ret, bool *ret_complete)
{
    size_t used = 0;
    *ret_complete = false;
    if (p->delivered)
        message_clear(p);
    while (used < n) {
        const char *nl = memchr(data + used, '\n', n - used);
        size_t len = nl ? (size_t)(nl - (data + used)) : n - used;
        if (!p->skip && buf_append(&p->line, data + used, len) < 0)
            p->skip = true;
        used += len;
        if (!nl)
            break;
        used++;
        bool ended = !p->skip && take_line(p);
        p->skip = false;
        buf_clear(&p->line);
        if (ended && read_message(p, ret)) {
            *ret_complete = true;
            break;
        }
    }
    return used;
}
