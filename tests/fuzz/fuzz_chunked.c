/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_chunked.c (FUZ-02): the chunked decoder in arbitrary cuts against a slow and obvious one, and against
 * llhttp, which must accept whatever we accept, with the same body. */
#include "base/buf.h"
#include "net/http_chunked.h"

#include <llhttp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum result { MORE, END, BAD };

struct outcome {
    enum result result;
    size_t used; /* up to and with the end of the message */
    bool plain;  /* neither extensions nor trailers */
    struct buf body;
};

/* ------------------------------------------------------------------ the slow one: whole lines, written from
 * the rules */

/* The line at data[at..n) without its CRLF; false when it is not complete. *bad: a CR or LF stands where it
 * must not. */
static bool line_at(const char *data, size_t n, size_t at, size_t *len, bool *bad)
{
    for (size_t i = at; i < n; i++) {
        if (data[i] == '\n') {
            *bad = true;
            return false;
        }
        if (data[i] == '\r') {
            if (i + 1 < n && data[i + 1] != '\n')
                *bad = true;
            *len = i - at;
            return i + 1 < n && !*bad;
        }
    }
    *len = n - at;
    return false;
}

static bool text(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if ((c < 32 && c != '\t') || c == 127)
            return false;
    }
    return true;
}

static size_t token(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && s[i] &&
           (strchr("!#$%&'*+-.^_`|~", s[i]) || (s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'z') ||
            (s[i] >= 'A' && s[i] <= 'Z')))
        i++;
    return i;
}

/* Extensions from their first ';' on: MORE when they could go on to be valid, END when they could also stop
 * here. */
static enum result extensions(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        if (s[i++] != ';')
            return BAD;
        size_t name = token(s + i, n - i);
        i += name;
        if (i == n)
            return name ? END : MORE;
        if (!name)
            return BAD;
        if (s[i] != '=')
            continue;
        if (++i == n)
            return MORE;
        if (s[i] != '"') {
            size_t value = token(s + i, n - i);
            if (!value)
                return BAD;
            i += value;
            continue;
        }
        for (i++; i < n && s[i] != '"'; i++)
            if ((s[i] < 32 && s[i] != '\t') || s[i] == 127 ||
                s[i] == '\\') /* char is signed: 8-bit is below 32 */
                return BAD;
        if (i++ == n)
            return MORE;
    }
    return END;
}

/* A size line, complete (its CR is there) or the beginning of one. */
static enum result size_line(const char *s, size_t len, bool complete, uint64_t *size, size_t *ext)
{
    static const char digits[] = "0123456789abcdef";
    size_t i = 0;
    *size = 0;
    for (; i < len && s[i] != ';'; i++) {
        const char *d = s[i] ? strchr(digits, s[i] >= 'A' && s[i] <= 'F' ? s[i] + 32 : s[i]) : NULL;
        if (!d || i == 16)
            return BAD;
        *size = *size * 16 + (uint64_t)(d - digits);
    }
    if (i == 0 && (complete || len))
        return BAD;
    if ((complete || i < len) && *size > INT64_MAX)
        return BAD;
    if (i < len) {
        enum result r = extensions(s + i, len - i);
        *ext += len - i - 1; /* the first ';' is not counted */
        if (*ext > HTTP_CHUNK_EXT_MAX || r == BAD || (r == MORE && complete))
            return BAD;
    }
    return complete ? END : MORE;
}

static enum result trailer_line(const char *s, size_t len, bool complete)
{
    size_t name = token(s, len);
    if (name == len)
        return complete || (len && name == 0) ? BAD : MORE;
    if (name == 0 || s[name] != ':' || !text(s + name, len - name))
        return BAD;
    return complete ? END : MORE;
}

static void reference(const char *data, size_t n, struct outcome *o)
{
    size_t at = 0, len = 0, ext = 0, trailers = 0, trailer_bytes = 0;
    bool bad = false;
    o->result = MORE;
    for (;;) { /* chunks */
        uint64_t size;
        bool complete = line_at(data, n, at, &len, &bad);
        bool cr =
            at + len < n && data[at + len] == '\r'; /* it ends the line, even when its LF is not there yet */
        enum result r = size_line(data + at, len, cr, &size, &ext);
        if (r == BAD || bad) {
            o->result = BAD;
            return;
        }
        if (!complete)
            return;
        at += len + 2;
        if (size == 0)
            break;
        size_t have = n - at < size ? n - at : (size_t)size;
        (void)buf_append(&o->body, data + at, have);
        at += have;
        if (have < size)
            return;
        for (size_t i = 0; i < 2; i++, at++) {
            if (at == n)
                return;
            if (data[at] != "\r\n"[i]) {
                o->result = BAD;
                return;
            }
        }
    }
    for (;;) { /* trailers */
        bool complete = line_at(data, n, at, &len, &bad);
        bool begun = at < n;
        bool cr = at + len < n && data[at + len] == '\r';
        if (len == 0 && (complete || (cr && !bad) || !begun)) {
            if (complete) {
                o->result = END;
                o->used = at + 2;
            }
            return;
        }
        enum result r = trailer_line(data + at, len, complete || cr);
        if (begun && len)
            trailers++;
        /* the bytes that are there, line ends included, but not the last line's */
        trailer_bytes += len + (cr ? 1 : 0) + (complete ? 1 : 0);
        if (bad || r == BAD || trailers > HTTP_TRAILER_COUNT_MAX || trailer_bytes > HTTP_TRAILER_BYTES_MAX) {
            o->result = BAD;
            return;
        }
        if (!complete)
            return;
        at += len + 2;
    }
}

/* ------------------------------------------------------------------ ours */

static void ours(const char *data, size_t n, uint32_t seed, struct outcome *o)
{
    struct http_chunked d = {0};
    size_t from = 0, to = 0;
    o->result = MORE;
    while (to < n) {
        seed = seed * 1103515245 + 12345;
        size_t step = 1 + (seed >> 16) % 7;
        to = n - to < step ? n : to + step;
        while (from < to) {
            const char *piece = NULL;
            size_t used = 0, piece_len = 0;
            switch (http_chunked_next(&d, data + from, to - from, &used, &piece, &piece_len)) {
            case HTTP_CHUNKED_MORE:
                if (used != to - from)
                    abort();
                break;
            case HTTP_CHUNKED_DATA:
                if (piece < data + from || piece + piece_len > data + to || !piece_len)
                    abort();
                (void)buf_append(&o->body, piece, piece_len);
                break;
            case HTTP_CHUNKED_END:
                o->result = END;
                o->used = from + used;
                o->plain = !d.ext_bytes && !d.trailers;
                return;
            case HTTP_CHUNKED_BAD:
                o->result = BAD;
                return;
            }
            from += used;
        }
    }
}

/* ------------------------------------------------------------------ llhttp */

static int on_body(llhttp_t *ll, const char *at, size_t n)
{
    struct outcome *o = ll->data;
    return buf_append(&o->body, at, n) < 0 ? -1 : 0;
}

static int on_complete(llhttp_t *ll)
{
    struct outcome *o = ll->data;
    o->result = END;
    return HPE_PAUSED;
}

static void llhttp_reads(const char *data, size_t n, struct outcome *o)
{
    static const char head[] = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    llhttp_settings_t settings;
    llhttp_t ll;
    llhttp_settings_init(&settings);
    settings.on_body = on_body;
    settings.on_message_complete = on_complete;
    llhttp_init(&ll, HTTP_REQUEST, &settings);
    ll.data = o;
    o->result = MORE;
    if (llhttp_execute(&ll, head, sizeof head - 1) != HPE_OK)
        abort();
    llhttp_errno_t err = llhttp_execute(&ll, data, n);
    if (err == HPE_PAUSED)
        o->used = (size_t)(llhttp_get_error_pos(&ll) - data);
    else if (err != HPE_OK)
        o->result = BAD;
}

/* ------------------------------------------------------------------ */

static void compare(const char *what, const struct outcome *a, const struct outcome *b, const char *data,
                    size_t n)
{
    if (a->result == b->result && a->used == b->used && buf_len(&a->body) == buf_len(&b->body) &&
        (!buf_len(&a->body) || memcmp(buf_data(&a->body), buf_data(&b->body), buf_len(&a->body)) == 0))
        return;
    (void)fprintf(stderr, "%s: ours %d (used %zu, body %zu), theirs %d (used %zu, body %zu): %.*s\n", what,
                  (int)a->result, a->used, buf_len(&a->body), (int)b->result, b->used, buf_len(&b->body),
                  (int)n, data);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy =
        malloc(MAX(size, (size_t)1)); /* of exactly this size, so that reading past its end is noticed */
    if (!copy)
        abort();
    if (size)
        memcpy(copy, data, size);
    struct outcome mine = {.body = BUF_INIT(64 << 20)}, slow = {.body = BUF_INIT(64 << 20)},
                   other = {.body = BUF_INIT(64 << 20)};
    ours(copy, size, (uint32_t)size, &mine);
    reference(copy, size, &slow);
    compare("reference", &mine, &slow, copy, size);
    if (mine.result == END) {
        llhttp_reads(copy, size, &other);
        /* llhttp 8.1 refuses a second extension behind one that has a value, and framing headers in trailers
         */
        if (other.result != BAD || mine.plain)
            compare("llhttp", &mine, &other, copy, size);
    }
    buf_done(&mine.body);
    buf_done(&slow.body);
    buf_done(&other.body);
    free(copy);
    return 0;
}
