/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_websocket.c (FUZ-04): the frame reader in arbitrary cuts must find what it finds in one piece, and
 * text that it gives out must be UTF-8. The first byte of the input chooses the role and the cut. */
#include "base/utf8.h"
#include "net/ws_frame.h"

#include <stdlib.h>
#include <string.h>

enum { MESSAGE_MAX = 4096 };

struct outcome {
    struct buf seen; /* events with what they carry */
    bool broken;
};

static void note(struct outcome *o, const struct ws_found *f)
{
    if (f->event == WS_EVENT_MESSAGE && (f->n > MESSAGE_MAX || (f->text && !utf8_valid(f->data, f->n))))
        abort();
    if (f->event == WS_EVENT_CLOSE && f->code != WS_CODE_NONE && !ws_code_valid(f->code))
        abort();
    if (f->event == WS_EVENT_BROKEN && (!f->why || !ws_code_valid(f->code)))
        abort();
    if (f->event == WS_EVENT_NONE)
        return;
    (void)buf_printf(&o->seen, "%d %d %d %zu ", (int)f->event, (int)f->text, f->code, f->n);
    if (f->n)
        (void)buf_append(&o->seen, f->data, f->n);
    o->broken = f->event == WS_EVENT_BROKEN;
}

static struct outcome read_all(enum ws_role role, const char *data, size_t n, size_t step)
{
    struct outcome o = {.seen = BUF_INIT(16 << 20)};
    struct ws_reader r;
    ws_reader_init(&r, role, MESSAGE_MAX);
    for (size_t at = 0; at < n && !o.broken;) {
        struct ws_found f;
        size_t piece = MIN(step, n - at), used = ws_reader_feed(&r, data + at, piece, &f);
        if (used == 0 || used > piece)
            abort();
        at += used;
        note(&o, &f);
    }
    ws_reader_done(&r);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    enum ws_role role = data[0] & 1 ? WS_CLIENT : WS_SERVER;
    size_t step = 1 + (data[0] >> 1) % 64;
    struct outcome whole = read_all(role, (const char *)data + 1, size - 1, size);
    struct outcome cut = read_all(role, (const char *)data + 1, size - 1, step);
    if (whole.broken != cut.broken || buf_len(&whole.seen) != buf_len(&cut.seen) ||
        (buf_len(&whole.seen) &&
         memcmp(buf_data(&whole.seen), buf_data(&cut.seen), buf_len(&whole.seen)) != 0))
        abort();
    buf_done(&whole.seen);
    buf_done(&cut.seen);
    return 0;
}
