/* SPDX-License-Identifier: Apache-2.0 */
/* test_http_line.c: which bytes may stand in the lines of a head, and writing them. */
#include "test.h"
#include "net/http_line.h"

#include <errno.h>

static bool is_text(int c) /* RFC 9110: field-vchar, space, tab */
{
    return c == '\t' || (c >= 0x20 && c <= 0x7e) || c >= 0x80;
}

/* The fast look at eight bytes agrees with the rule for every byte at every place of texts of every length.
 */
TEST(http_text_span_every_byte_everywhere)
{
    char s[40];
    for (size_t n = 1; n <= sizeof s; n++)
        for (size_t at = 0; at < n; at++)
            for (int c = 0; c < 256; c++) {
                memset(s, c & 1 ? 'a' : '\xff', n); /* neighbours with and without the top bit */
                s[at] = (char)c;
                size_t want = is_text(c) ? n : at;
                if (http_text_span(s, n) != want) {
                    CHECK_INT(http_text_span(s, n), want);
                    return;
                }
            }
    CHECK_INT(http_text_span("", 0), 0);
}

TEST(http_text_span_stops_at_the_first)
{
    CHECK_INT(http_text_span("abc\tdef ghi\rjkl\nmno", 19), 11);
    CHECK_INT(http_text_span("\r\n", 2), 0);
    CHECK_INT(http_text_span("\t\t\t\t\t\t\t\t\t\x7f", 10), 9);
}

TEST(http_token_valid)
{
    CHECK(http_token_valid("X-Forwarded-For"));
    CHECK(http_token_valid("!#$%&'*+-.^_`|~09azAZ"));
    CHECK(!http_token_valid(""));
    CHECK(!http_token_valid("a b"));
    CHECK(!http_token_valid("a:"));
    CHECK(!http_token_valid("\xc3\xa9"));
}

TEST(http_put_header_refuses_what_breaks_the_head)
{
    struct buf b = BUF_INIT(64);
    CHECK_INT(http_put_header(&b, "Name", "some\tvalue \xe9"), 0);
    CHECK_INT(http_put_header(&b, "Empty", ""), 0);
    CHECK_STREQ(buf_cstr(&b), "Name: some\tvalue \xe9\r\nEmpty: \r\n");
    static const char *const bad[][2] = {
        {"", "x"},        {"Na me", "x"},           {"Name:", "x"}, {"Name\r\n", "x"}, {"Name", "a\r\nB: c"},
        {"Name", "a\nb"}, {"Name", "12345678\x01"}, {"N\x80", "x"}, {"Name", "\x7f"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK_INT(http_put_header(&b, bad[i][0], bad[i][1]), -EINVAL);
    CHECK_INT(http_put_header(&b, "Long", "0123456789012345678901234567890123456789"), -ENOBUFS);
    CHECK_STREQ(buf_cstr(&b), "Name: some\tvalue \xe9\r\nEmpty: \r\n");
    buf_done(&b);
}

TEST(http_put_length_every_size)
{
    struct buf b = BUF_INIT(256);
    CHECK_INT(http_put_length(&b, 0), 0);
    CHECK_INT(http_put_length(&b, 1024), 0);
    CHECK_INT(http_put_length(&b, UINT64_MAX), 0);
    CHECK_STREQ(buf_cstr(&b),
                "Content-Length: 0\r\nContent-Length: 1024\r\nContent-Length: 18446744073709551615\r\n");
    buf_done(&b);
}
