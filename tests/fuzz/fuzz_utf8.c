/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_utf8.c: whatever comes in, valid UTF-8 comes out, the same however the input is cut into pieces.
 *
 * The first byte of the input chooses where it is cut, the rest is the text. */
#include "base/json.h"
#include "base/utf8.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void decode(const uint8_t *data, size_t size, size_t first, size_t piece, unsigned flags,
                   struct buf *out)
{
    struct utf8_stream st = {0};
    size_t at = MIN(first, size);
    buf_clear(out);
    require(utf8_decode(&st, data, at, false, flags, out) == 0);
    while (size - at > piece) {
        require(utf8_decode(&st, data + at, piece, false, flags, out) == 0);
        at += piece;
    }
    require(utf8_decode(&st, data + at, size - at, true, flags, out) == 0);
    require(st.pending_len == 0);
}

static bool same(const struct buf *a, const struct buf *b)
{
    return buf_len(a) == buf_len(b) && (buf_len(a) == 0 || memcmp(buf_data(a), buf_data(b), buf_len(a)) == 0);
}

/* What was escaped for the inside of a JSON string reads back as what was not escaped. */
static void check_json(const struct buf *escaped, const struct buf *plain)
{
    size_t n = buf_len(escaped) + 2, len = 0;
    char *text = malloc(n);
    struct json_doc *doc = NULL;
    require(text);
    text[0] = text[n - 1] = '"';
    if (n > 2)
        memcpy(text + 1, buf_data(escaped), n - 2);
    require(json_parse(text, n, JSON_ALLOW_NUL, &doc, NULL) == 0);
    const char *s = json_string(json_root(doc), &len);
    require(s && len == buf_len(plain) && (len == 0 || memcmp(s, buf_data(plain), len) == 0));
    json_free(doc);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    uint8_t choice = data[0];
    data++;
    size--;
    struct buf plain = BUF_INIT(1 << 24), whole = BUF_INIT(1 << 24), pieces = BUF_INIT(1 << 24);
    for (unsigned flags = 0; flags < 8; flags++) {
        decode(data, size, 0, size + 1, flags & UTF8_DROP_NUL, &plain);
        decode(data, size, 0, size + 1, flags, &whole);
        require(buf_len(&whole) == 0 || utf8_valid(buf_data(&whole), buf_len(&whole)));
        if (flags & UTF8_DROP_NUL)
            require(buf_len(&plain) == 0 || !memchr(buf_data(&plain), 0, buf_len(&plain)));
        else
            require(utf8_valid(data, size) ==
                    (buf_len(&plain) == size && (size == 0 || memcmp(buf_data(&plain), data, size) == 0)));
        if (flags & UTF8_JSON)
            check_json(&whole, &plain);
        else
            require(same(&whole, &plain));
        if ((flags & (UTF8_JSON | UTF8_ASCII)) == (UTF8_JSON | UTF8_ASCII))
            for (size_t i = 0; i < buf_len(&whole); i++)
                require(buf_data(&whole)[i] >= 0x20 && buf_data(&whole)[i] < 0x7f);

        decode(data, size, choice, choice % 7 + 1 + size / 64, flags, &pieces); /* not thousands of pieces */
        require(same(&whole, &pieces));
        for (size_t cut = 0; size <= 32 && cut <= size; cut++) {
            decode(data, size, cut, size + 1, flags, &pieces);
            require(same(&whole, &pieces));
        }
    }
    buf_done(&plain);
    buf_done(&whole);
    buf_done(&pieces);
    return 0;
}
