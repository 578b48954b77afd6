/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_context_frames.c (FUZ-06): the same messages come out however the input is cut, within the limits, and
 * none without the nonce.
 *
 * The first byte of the input chooses where it is cut. In the rest, '@' stands for the nonce. */
#include "agent/context_frames.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char nonce[] = "00112233445566778899aabbccddeeff";

static void require(bool ok)
{
    if (!ok)
        abort();
}

/* Appends what was found, in a form that can be compared. */
static size_t parse(const char *data, size_t n, size_t piece, const char *key, struct buf *found)
{
    struct frame_parser p;
    size_t count = 0;
    frame_parser_init(&p, key);
    buf_clear(found);
    for (size_t at = 0; at < n;) {
        size_t end = MIN(at + piece, n);
        while (at < end) {
            struct frame f;
            bool complete;
            size_t used = frame_parse(&p, data + at, end - at, &f, &complete);
            require(used > 0 && used <= end - at);
            require(buf_len(&p.line) <= FRAME_LINE_MAX && buf_len(&p.message) <= FRAME_MESSAGE_MAX);
            at += used;
            if (!complete)
                continue;
            require(f.kind >= 'a' && f.kind <= 'z' && f.json[f.len] == '\0');
            require(!memchr(f.json, '\n', f.len));
            count++;
            require(buf_printf(found, "%c%llu ", f.kind, (unsigned long long)f.run) == 0);
            require(buf_append(found, f.json, f.len) == 0 && buf_putc(found, '\n') == 0);
        }
    }
    frame_parser_done(&p);
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    struct buf text = BUF_INIT(1 << 26), whole = BUF_INIT(1 << 26), pieces = BUF_INIT(1 << 26);
    for (size_t i = 1; i < size; i++)
        require(data[i] == '@' ? buf_puts(&text, nonce) == 0 : buf_putc(&text, (char)data[i]) == 0);
    size_t n = buf_len(&text);
    size_t count = parse(buf_data(&text), n, n + 1, nonce, &whole);
    require(parse(buf_data(&text), n, data[0] % 61 + 1, nonce, &pieces) == count);
    require(buf_len(&whole) == buf_len(&pieces) &&
            (!count || memcmp(buf_data(&whole), buf_data(&pieces), buf_len(&whole)) == 0));
    require(parse(buf_data(&text), n, n + 1, "ffeeddccbbaa99887766554433221100", &pieces) == 0 ||
            memmem(buf_data(&text), n, "ffeeddccbbaa99887766554433221100", FRAME_NONCE));
    buf_done(&text);
    buf_done(&whole);
    buf_done(&pieces);
    return 0;
}
