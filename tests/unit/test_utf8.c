/* SPDX-License-Identifier: Apache-2.0 */
/* test_utf8.c: checking and lossy decoding, against cases from the standard and against a plain decoder. */
#include "base/utf8.h"
#include "test.h"

#include <errno.h>

/* Decodes the whole text in pieces of `piece` bytes (0 = at once). Free the result's memory with buf_done. */
static struct buf decode_bytes(const void *data, size_t n, size_t piece, unsigned flags)
{
    struct buf out = BUF_INIT(1 << 20);
    struct utf8_stream st = {0};
    const char *p = data;
    while (piece && n > piece) {
        CHECK_INT(utf8_decode(&st, p, piece, false, flags, &out), 0);
        p += piece;
        n -= piece;
    }
    CHECK_INT(utf8_decode(&st, p, n, true, flags, &out), 0);
    CHECK_INT(st.pending_len, 0);
    return out;
}

static const char *decode(const char *s, size_t piece, unsigned flags)
{
    static char result[4096];
    struct buf out = decode_bytes(s, strlen(s), piece, flags);
    const char *text = buf_cstr(&out);
    (void)snprintf(result, sizeof result, "%s", text ? text : "(no memory)");
    buf_done(&out);
    return result;
}

#define R "\xef\xbf\xbd"

static const struct {
    const char *in, *out;
} cases[] = {
    {"", ""},
    {"plain", "plain"},
    {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
    {"\xef\xbb\xbf"
     "a",
     "\xef\xbb\xbf"
     "a"},                                                    /* a BOM is content */
    {"\xef\xbf\xbe\xef\xbf\xbf", "\xef\xbf\xbe\xef\xbf\xbf"}, /* noncharacters are characters */
    {"\x80", R},
    {"\xbf\x80", R R},
    {"\xff\xfe", R R},
    {"\xc0\xaf", R R}, /* overlong / */
    {"\xc1\xbf", R R},
    {"\xe0\x80\xaf", R R R},
    {"\xe0\x9f\xbf", R R R},
    {"\xf0\x80\x80\xaf", R R R R},
    {"\xf0\x8f\xbf\xbf", R R R R},
    {"\xed\xa0\x80", R R R}, /* U+D800 */
    {"\xed\xbf\xbf", R R R}, /* U+DFFF */
    {"\xed\x9f\xbf", "\xed\x9f\xbf"},
    {"\xee\x80\x80", "\xee\x80\x80"},
    {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
    {"\xf4\x90\x80\x80", R R R R}, /* above U+10FFFF */
    {"\xf5\x80\x80\x80", R R R R},
    {"\xf8\x88\x80\x80\x80", R R R R R},
    {"\xc3", R},
    {"\xc3"
     "a",
     R "a"},
    {"\xe2\x82", R}, /* cut: one for the maximal subpart */
    {"\xe2\x82"
     "a",
     R "a"},
    {"\xe2\x82\xe2\x82\xac", R "\xe2\x82\xac"},
    {"\xf0\x9f\x98", R},
    {"\xf0\x9f\x98"
     "a",
     R "a"},
    {"\xf0\x9f\xc3\xa9", R "\xc3\xa9"},
    {"\xf0\x9f\x98\xf0\x9f\x98\x80", R "\xf0\x9f\x98\x80"},
    /* the example of the Unicode standard, table 3-11 */
    {"\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64", "a" R R R "b" R "c" R R "d"},
};

TEST(utf8_decode_replaces_maximal_subparts)
{
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        for (size_t piece = 0; piece < 6; piece++)
            CHECK_STREQ(decode(cases[i].in, piece, 0), cases[i].out);
}

TEST(utf8_valid_agrees_with_decode)
{
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CHECK_INT(utf8_valid(cases[i].in, strlen(cases[i].in)), strcmp(cases[i].in, cases[i].out) == 0);
        CHECK(utf8_valid(cases[i].out, strlen(cases[i].out)));
    }
    CHECK(utf8_valid(NULL, 0));
    CHECK(utf8_valid("a\0b", 3));
}

/* The decoder as the WHATWG standard words it, byte by byte with "lower" and "upper boundary": slow, and
 * written from the text of the standard and not from utf8.c. */
static size_t reference_decode(const unsigned char *in, size_t n, unsigned char *out, bool *ret_valid)
{
    unsigned seen = 0, needed = 0, lower = 0x80, upper = 0xbf;
    size_t o = 0, start = 0;
    *ret_valid = true;
    for (size_t i = 0; i <= n;) {
        bool end = i == n, bad = false;
        if (end && !needed)
            break;
        if (needed == 0) {
            unsigned char b = in[i];
            start = i++;
            if (b <= 0x7f) {
                out[o++] = b;
            } else if (b >= 0xc2 && b <= 0xdf) {
                needed = 1;
            } else if (b >= 0xe0 && b <= 0xef) {
                if (b == 0xe0)
                    lower = 0xa0;
                if (b == 0xed)
                    upper = 0x9f;
                needed = 2;
            } else if (b >= 0xf0 && b <= 0xf4) {
                if (b == 0xf0)
                    lower = 0x90;
                if (b == 0xf4)
                    upper = 0x8f;
                needed = 3;
            } else {
                bad = true;
            }
        } else if (end || in[i] < lower || in[i] > upper) {
            bad = true; /* the byte is looked at again, as the start of something */
            needed = seen = 0;
            lower = 0x80;
            upper = 0xbf;
        } else {
            lower = 0x80;
            upper = 0xbf;
            i++;
            if (++seen == needed) {
                memcpy(out + o, in + start, needed + 1);
                o += needed + 1;
                needed = seen = 0;
            }
        }
        if (bad) {
            memcpy(out + o, R, 3);
            o += 3;
            *ret_valid = false;
        }
    }
    return o;
}

/* True when decoding in[0..n) at once and cut at every place gives what the reference gives. */
static bool like_reference(const unsigned char *in, size_t n)
{
    unsigned char expected[256];
    bool valid;
    size_t len = reference_decode(in, n, expected, &valid);
    if (utf8_valid(in, n) != valid)
        return false;
    struct buf out = BUF_INIT(256);
    bool same = true;
    for (size_t cut = 0; cut <= n && same; cut++) {
        struct utf8_stream st = {0};
        buf_clear(&out);
        same = utf8_decode(&st, in, cut, false, 0, &out) == 0 &&
               utf8_decode(&st, in + cut, n - cut, true, 0, &out) == 0 && buf_len(&out) == len &&
               memcmp(buf_data(&out), expected, len) == 0;
    }
    buf_done(&out);
    return same;
}

TEST(utf8_all_short_sequences_match_the_standard)
{
    /* every first and last byte of every range in the standard's table */
    static const unsigned char edge[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0,
                                         0xc2, 0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf4, 0xf5, 0xff};
    unsigned differences = 0;
    for (unsigned i = 0; i < 65536; i++) {
        unsigned char two[2] = {(unsigned char)(i >> 8), (unsigned char)i};
        differences += !like_reference(two, 2);
    }
    for (size_t a = 0; a < ARRAY_SIZE(edge); a++)
        for (size_t b = 0; b < ARRAY_SIZE(edge); b++)
            for (size_t c = 0; c < ARRAY_SIZE(edge); c++) {
                differences += !like_reference((unsigned char[]){edge[a], edge[b], edge[c]}, 3);
                if (edge[a] >= 0xe0) /* elsewhere the fourth byte starts something new */
                    for (size_t d = 0; d < ARRAY_SIZE(edge); d++)
                        differences +=
                            !like_reference((unsigned char[]){edge[a], edge[b], edge[c], edge[d]}, 4);
            }
    CHECK_INT(differences, 0);
}

TEST(utf8_special_bytes_are_seen_at_every_offset)
{
    /* the code works on 8 and 32 bytes at a time: each byte at each place of longer texts */
    unsigned differences = 0;
    for (size_t len = 1; len <= 70; len++)
        for (size_t at = 0; at < len; at++) {
            unsigned char text[70];
            memset(text, 'a', sizeof text);
            text[at] = 0xff;
            differences += utf8_valid(text, len);
            text[at] = 0x7f;
            differences += !utf8_valid(text, len);
            if (at + 1 < len) {
                memcpy(text + at, "\xc3\xa9", 2);
                differences += !utf8_valid(text, len);
            }
            differences += utf8_valid(text, at + 1) != (at + 1 == len);
        }
    CHECK_INT(differences, 0);
}

TEST(utf8_json_escapes_every_byte_at_every_offset)
{
    static const char *const named[128] = {['\b'] = "\\b", ['\t'] = "\\t", ['\n'] = "\\n", ['\f'] = "\\f",
                                           ['\r'] = "\\r", ['"'] = "\\\"", ['\\'] = "\\\\"};
    unsigned differences = 0;
    for (unsigned c = 0; c < 128; c++)
        for (unsigned ascii = 0; ascii < 2; ascii++)
            for (size_t at = 0; at < 20; at++) {
                char text[20], expected[64], escape[8];
                if (named[c])
                    (void)snprintf(escape, sizeof escape, "%s", named[c]);
                else if (c < 0x20 || (c == 0x7f && ascii))
                    (void)snprintf(escape, sizeof escape, "\\u%04x", c);
                else
                    (void)snprintf(escape, sizeof escape, "%c", (char)c);
                memset(text, 'a', sizeof text);
                text[at] = (char)c;
                (void)snprintf(expected, sizeof expected, "%.*s%s%.*s", (int)at, "aaaaaaaaaaaaaaaaaaaa",
                               escape, (int)(19 - at), "aaaaaaaaaaaaaaaaaaaa");
                struct buf out = decode_bytes(text, sizeof text, 0, UTF8_JSON | (ascii ? UTF8_ASCII : 0));
                const char *s = buf_cstr(&out);
                differences += !s || strcmp(s, expected) != 0;
                buf_done(&out);
            }
    CHECK_INT(differences, 0);
}

TEST(utf8_ascii_writes_surrogate_pairs)
{
    for (size_t piece = 0; piece < 5; piece++) {
        CHECK_STREQ(decode("\xc3\xa9|\xe2\x82\xac|\xf0\x9f\x98\x80|\xf4\x8f\xbf\xbf|\xff|\x7f", piece,
                           UTF8_JSON | UTF8_ASCII),
                    "\\u00e9|\\u20ac|\\ud83d\\ude00|\\udbff\\udfff|\\ufffd|\\u007f");
        CHECK_STREQ(decode("\xc2\x80\xe2\x80\xa8", piece, UTF8_JSON), "\xc2\x80\xe2\x80\xa8");
        CHECK_STREQ(decode("\xc3\xa9\x7f", piece, UTF8_ASCII), "\xc3\xa9\x7f"); /* means nothing alone */
    }
}

TEST(utf8_nul_stays_or_vanishes)
{
    static const char text[] = "\0a\0\0b12345678\0\xe2\0\x82\0";
    struct buf out = decode_bytes(text, sizeof text - 1, 0, 0);
    CHECK_INT(buf_len(&out), 22);
    CHECK(memcmp(buf_data(&out), "\0a\0\0b12345678\0" R "\0" R "\0", 22) == 0);
    buf_done(&out);

    for (size_t piece = 0; piece < 4; piece++) {
        /* a NUL still ends the character it cuts: the bytes around it do not grow together */
        out = decode_bytes(text, sizeof text - 1, piece, UTF8_DROP_NUL);
        CHECK_STREQ(buf_cstr(&out), "ab12345678" R R);
        CHECK_INT(buf_len(&out), 16);
        buf_done(&out);
        out = decode_bytes(text, 3, piece, UTF8_JSON);
        CHECK_STREQ(buf_cstr(&out), "\\u0000a\\u0000");
        buf_done(&out);
        out = decode_bytes(text, 3, piece, UTF8_JSON | UTF8_DROP_NUL);
        CHECK_STREQ(buf_cstr(&out), "a");
        buf_done(&out);
    }
}

TEST(utf8_waits_for_the_rest_of_a_character)
{
    struct utf8_stream st = {0};
    struct buf out = BUF_INIT(100);
    CHECK_INT(utf8_decode(&st, "a\xf0\x9f", 3, false, 0, &out), 0);
    CHECK_STREQ(buf_cstr(&out), "a");
    CHECK_INT(utf8_decode(&st, NULL, 0, false, 0, &out), 0);
    CHECK_INT(utf8_decode(&st, "\x98", 1, false, 0, &out), 0);
    CHECK_STREQ(buf_cstr(&out), "a");
    CHECK_INT(utf8_decode(&st,
                          "\x80"
                          "b",
                          2, false, 0, &out),
              0);
    CHECK_STREQ(buf_cstr(&out), "a\xf0\x9f\x98\x80"
                                "b");
    CHECK_INT(utf8_decode(&st, "\xe2", 1, false, 0, &out), 0);
    CHECK_INT(utf8_decode(&st, NULL, 0, true, 0, &out), 0);
    CHECK_STREQ(buf_cstr(&out), "a\xf0\x9f\x98\x80"
                                "b" R);
    CHECK_INT(utf8_decode(&st, "\x82", 1, true, 0, &out), 0); /* the end forgot what came before */
    CHECK_STREQ(buf_cstr(&out), "a\xf0\x9f\x98\x80"
                                "b" R R);
    buf_done(&out);
}

TEST(utf8_long_texts_cross_the_stage)
{
    /* plain bytes up to the stage's end, then characters of every output length */
    static const char *const unit[] = {"a",    "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                       "\x01", "\n",       "\xff"};
    for (size_t u = 0; u < ARRAY_SIZE(unit); u++)
        for (size_t shift = 4070; shift < 4100; shift++) {
            struct buf in = BUF_INIT(1 << 20), expected = BUF_INIT(1 << 20);
            for (size_t i = 0; i < shift; i++) {
                CHECK_INT(buf_putc(&in, 'x'), 0);
                CHECK_INT(buf_putc(&expected, 'x'), 0);
            }
            const char *one = decode(unit[u], 0, UTF8_JSON | UTF8_ASCII);
            for (size_t i = 0; i < 1500; i++) {
                CHECK_INT(buf_puts(&in, unit[u]), 0);
                CHECK_INT(buf_puts(&expected, one), 0);
            }
            struct buf out = decode_bytes(buf_data(&in), buf_len(&in), 0, UTF8_JSON | UTF8_ASCII);
            CHECK_INT(buf_len(&out), buf_len(&expected));
            CHECK(buf_len(&out) == buf_len(&expected) &&
                  memcmp(buf_data(&out), buf_data(&expected), buf_len(&out)) == 0);
            buf_done(&out);
            buf_done(&in);
            buf_done(&expected);
        }
}

TEST(utf8_reports_a_full_buffer)
{
    char text[10000];
    memset(text, 'a', sizeof text);
    for (size_t limit = 0; limit < sizeof text; limit += 997) {
        struct utf8_stream st = {0};
        struct buf out = BUF_INIT(limit);
        CHECK_INT(utf8_decode(&st, text, sizeof text, true, 0, &out), -ENOBUFS);
        CHECK(buf_len(&out) <= limit);
        CHECK(buf_len(&out) == 0 || memcmp(buf_data(&out), text, buf_len(&out)) == 0);
        buf_done(&out);
    }
    struct utf8_stream st = {0};
    struct buf out = BUF_INIT(sizeof text); /* exactly enough is enough */
    CHECK_INT(utf8_decode(&st, text, sizeof text, true, UTF8_JSON, &out), 0);
    CHECK_INT(buf_len(&out), sizeof text);
    buf_done(&out);
}
