/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.c: see utf8.h.
 *
 * Theory of operation
 * Output is collected in a small stage on the stack and appended to the caller's buffer when the stage is
 * full: the loop over the bytes then needs no limit check per byte, and a worst case (a control byte becomes
 * six) never reserves memory that the text does not need. Eight bytes that need no change cost one load, one
 * test and one store; everything else goes one character at a time through stage_ascii or
 * stage_wide. */
#include "base/utf8.h"
#include "base/utf8_internal.h"

enum {
    STAGE_SIZE = 4096,
    STAGE_CHAR_MAX = 12, /* the longest output of one character: a surrogate pair as \uXXXX\uXXXX */
};

struct stage {
    char bytes[STAGE_SIZE];
    size_t used;
    unsigned flags;
    struct buf *out;
};

bool utf8_valid(const void *data, size_t n)
{
    const unsigned char *p = data;
    while (n) {
        while (n >= 32) {
            uint64_t all = swar_load(p) | swar_load(p + 8) | swar_load(p + 16) | swar_load(p + 24);
            if (all & SWAR_HIGHS)
                break;
            p += 32;
            n -= 32;
        }
        /* Not back to the blocks before 32 bytes are done: mixed text would test each block over and over. */
        for (size_t done = 0; n && done < 32;) {
            uint32_t code = 0;
            int len = utf8_step(p, n, &code);
            if (len <= 0)
                return false;
            p += len;
            n -= (size_t)len;
            done += (size_t)len;
        }
    }
    return true;
}

static int stage_flush(struct stage *s)
{
    int r = buf_append(s->out, s->bytes, s->used);
    s->used = 0;
    return r;
}

/* The caller has made sure of STAGE_CHAR_MAX bytes. */
static void stage_unit(struct stage *s, unsigned unit)
{
    static const char hex[] = "0123456789abcdef";
    char *o = s->bytes + s->used;
    o[0] = '\\';
    o[1] = 'u';
    o[2] = hex[unit >> 12 & 15];
    o[3] = hex[unit >> 8 & 15];
    o[4] = hex[unit >> 4 & 15];
    o[5] = hex[unit & 15];
    s->used += 6;
}

static void stage_ascii(struct stage *s, unsigned char c)
{
    static const char short_escape[128] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't', ['"'] = '"', ['\\'] = '\\',
    };

    if (c == 0 && s->flags & UTF8_DROP_NUL)
        return;
    if (!(s->flags & UTF8_JSON)) {
        s->bytes[s->used++] = (char)c;
    } else if (short_escape[c]) {
        s->bytes[s->used++] = '\\';
        s->bytes[s->used++] = short_escape[c];
    } else if (c < 0x20 || (c == 0x7f && s->flags & UTF8_ASCII)) {
        stage_unit(s, c);
    } else {
        s->bytes[s->used++] = (char)c;
    }
}

/* A character above U+007F whose well-formed bytes are given. */
static void stage_wide(struct stage *s, uint32_t code, const unsigned char *bytes, size_t n)
{
    if ((s->flags & (UTF8_JSON | UTF8_ASCII)) != (UTF8_JSON | UTF8_ASCII)) {
        for (size_t i = 0; i < n; i++)
            s->bytes[s->used++] = (char)bytes[i];
    } else if (code < 0x10000) {
        stage_unit(s, code);
    } else {
        stage_unit(s, 0xd800 + ((code - 0x10000) >> 10));
        stage_unit(s, 0xdc00 + ((code - 0x10000) & 0x3ff));
    }
}

static void stage_replacement(struct stage *s)
{
    stage_wide(s, 0xfffd, (const unsigned char *)"\xef\xbf\xbd", 3);
}

/* Copies bytes that need no change until one does, or fewer than eight are left, or the stage is nearly full.
 * Always leaves STAGE_CHAR_MAX bytes of room when it found them. Returns how many bytes were taken. */
static size_t stage_plain(struct stage *s, const unsigned char *p, size_t n)
{
    bool json = s->flags & UTF8_JSON;
    bool del = json && s->flags & UTF8_ASCII;
    unsigned char below = json ? 0x20 : 0x01; /* NUL always takes the slow way: it may vanish */
    uint64_t quote = SWAR_EVERY(json ? '"' : 0);
    uint64_t backslash = SWAR_EVERY(json ? '\\' : 0);
    uint64_t delete = SWAR_EVERY(del ? 0x7f : 0);
    size_t room = STAGE_SIZE - STAGE_CHAR_MAX - s->used;
    size_t words = MIN(n, room) / 8;
    char *o = s->bytes + s->used;
    size_t taken = 0;

    for (; words; words--, taken += 8) {
        uint64_t w = swar_load(p + taken);
        uint64_t special =
            swar_below(w, below) | swar_equal(w, quote) | swar_equal(w, backslash) | swar_equal(w, delete);
        swar_store(o + taken, w); /* what lies behind a special byte is overwritten */
        if (special & SWAR_HIGHS) {
            taken += SWAR_INDEX(special & SWAR_HIGHS);
            break;
        }
    }
    s->used += taken;
    return taken;
}

/* Finishes the character that an earlier piece began. Returns how many bytes of the new piece it took. */
static size_t stage_pending(struct stage *s, struct utf8_stream *st, const unsigned char *p, size_t n)
{
    unsigned char all[sizeof st->pending];
    size_t have = st->pending_len, more = MIN(sizeof all - have, n);
    memcpy(all, st->pending, have);
    memcpy(all + have, p, more);

    uint32_t code = 0;
    int len = utf8_step(all, have + more, &code);
    if (len == 0) { /* only when the piece is used up: four bytes decide every character */
        memcpy(st->pending, all, have + more);
        st->pending_len = (unsigned char)(have + more);
        return more;
    }
    st->pending_len = 0;
    if (len > 0)
        stage_wide(s, code, all, (size_t)len);
    else
        stage_replacement(s);
    /* What waited was a good beginning, so the character or its maximal subpart covers all of it. */
    return (size_t)(len > 0 ? len : -len) - have;
}

int utf8_decode(struct utf8_stream *st, const void *data, size_t n, bool final, unsigned flags,
                struct buf *out)
{
    struct stage s; /* not initialised as a whole: 4 KiB of zeros would cost more than a short string */
    s.used = 0;
    s.flags = flags;
    s.out = out;

    const unsigned char *p = data;
    if (st->pending_len && n) {
        size_t taken = stage_pending(&s, st, p, n);
        p += taken;
        n -= taken;
    }
    while (n) {
        if (s.used > STAGE_SIZE - STAGE_CHAR_MAX - 8) {
            int r = stage_flush(&s);
            if (r < 0)
                return r;
        }
        if (*p < 0x80) {
            size_t taken = stage_plain(&s, p, n);
            p += taken;
            n -= taken;
            if (!n)
                break;
        }
        if (*p < 0x80) {
            stage_ascii(&s, *p);
            p++;
            n--;
            continue;
        }
        uint32_t code = 0;
        int len = utf8_step(p, n, &code);
        if (len == 0) {
            memcpy(st->pending, p, n);
            st->pending_len = (unsigned char)n;
            break;
        }
        if (len > 0)
            stage_wide(&s, code, p, (size_t)len);
        else
            stage_replacement(&s);
        len = len > 0 ? len : -len;
        p += len;
        n -= (size_t)len;
    }
    if (final && st->pending_len) {
        st->pending_len = 0;
        if (s.used > STAGE_SIZE - STAGE_CHAR_MAX) {
            int r = stage_flush(&s);
            if (r < 0)
                return r;
        }
        stage_replacement(&s);
    }
    return stage_flush(&s);
}
