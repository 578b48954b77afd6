/* SPDX-License-Identifier: Apache-2.0 */
/* test_sha1.c: the vectors of RFC 3174 and FIPS 180, and every length around a block. */
#include "base/sha1.h"
#include "test.h"

#include <stdlib.h>

static const char *hex_of(const void *data, size_t n)
{
    static char hex[2 * SHA1_BYTES + 1];
    unsigned char out[SHA1_BYTES];
    sha1(data, n, out);
    for (int i = 0; i < SHA1_BYTES; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", out[i]);
    return hex;
}

TEST(sha1_vectors)
{
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    CHECK_STREQ(hex_of("", 0), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    CHECK_STREQ(hex_of("abc", 3), "a9993e364706816aba3e25717850c26c9cd0d89d");
    CHECK_STREQ(hex_of(two, strlen(two)), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
}

TEST(sha1_a_million)
{
    char *a = malloc(1000000);
    REQUIRE(a);
    memset(a, 'a', 1000000);
    CHECK_STREQ(hex_of(a, 1000000), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    free(a);
}

TEST(sha1_around_a_block)
{
    static const struct {
        size_t n;
        const char *hex;
    } lengths[] = {
        {55, "c1c8bbdc22796e28c0e15163d20899b65621d65a"}, {56, "c2db330f6083854c99d4b5bfb6e8f29f201be699"},
        {63, "03f09f5b158a7a8cdad920bddc29b81c18a551f5"}, {64, "0098ba824b5c16427bd7a1122a5a442a25ec644d"},
        {65, "11655326c708d70319be2610e8a57d9a5b959d3b"},
    };
    char a[65];
    memset(a, 'a', sizeof a);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        CHECK_STREQ(hex_of(a, lengths[i].n), lengths[i].hex);
}
