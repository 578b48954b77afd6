/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"
#include "test.h"

#include <errno.h>

static void check_pair(const char *plain, size_t n, const char *text)
{
    char out[64];
    size_t len = base64_encode(out, plain, n);
    out[len] = '\0';
    CHECK_STREQ(out, text);
    CHECK_INT(len, base64_encoded_len(n));
    CHECK_INT(base64_decode(out, text, strlen(text)), n);
    CHECK(memcmp(out, plain, n) == 0);
}

TEST(base64_vectors_of_rfc_4648)
{
    check_pair("", 0, "");
    check_pair("f", 1, "Zg==");
    check_pair("fo", 2, "Zm8=");
    check_pair("foo", 3, "Zm9v");
    check_pair("foob", 4, "Zm9vYg==");
    check_pair("fooba", 5, "Zm9vYmE=");
    check_pair("foobar", 6, "Zm9vYmFy");
    check_pair("\xff\xfe\xfd\0", 4, "//79AA==");
    check_pair("\xfb\xef\xbe", 3, "++++");
}

TEST(base64_every_byte_and_length_comes_back)
{
    unsigned char data[256 + 5], back[sizeof data + 8];
    char text[400];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 7 + i / 256);
    for (size_t n = 0; n <= sizeof data; n++) {
        size_t len = base64_encode(text, data, n);
        CHECK_INT(base64_decode(back, text, len), n);
        CHECK(memcmp(back, data, n) == 0);
        CHECK_INT(base64_decode(text, text, len), n); /* in place */
        CHECK(memcmp(text, data, n) == 0);
    }
}

TEST(base64_pieces_of_three_make_the_whole)
{
    const char data[] = "0123456789abcdefghij";
    char whole[64], pieces[64];
    size_t n = base64_encode(whole, data, 20);
    size_t at = base64_encode(pieces, data, 9);
    at += base64_encode(pieces + at, data + 9, 6);
    at += base64_encode(pieces + at, data + 15, 5);
    CHECK_INT(at, n);
    CHECK(memcmp(whole, pieces, n) == 0);
}

TEST(base64_padding_may_be_missing)
{
    char out[16];
    CHECK_INT(base64_decode(out, "Zg", 2), 1);
    CHECK_INT(base64_decode(out, "Zg=", 3), 1);
    CHECK_INT(base64_decode(out, "Zm8", 3), 2);
    CHECK(memcmp(out, "fo", 2) == 0);
}

TEST(base64_refuses_everything_else)
{
    static const char *const bad[] = {"=",     "==",       "A",          "A=",   "A==",      "AAAAA",
                                      "Zg===", "Zm8==",    "Zm9v=",      "Z=g=", "Zg==Zg==", "Zm9v\n",
                                      "Zm 9v", "Zm9v-_==", "\xc3\xa4==", "Zm9*"};
    char out[16];
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (base64_decode(out, bad[i], strlen(bad[i])) != -EBADMSG)
            test_fail(__FILE__, __LINE__, bad[i]);
    CHECK_INT(base64_decode(out, "Zg\0=", 4), -EBADMSG);
}
