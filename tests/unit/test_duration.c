/* SPDX-License-Identifier: Apache-2.0 */
/* test_duration.c: times and sizes as people write them. */
#include "gateway/duration.h"
#include "test.h"

#include <errno.h>
#include <math.h>

TEST(duration_reads_the_documented_forms)
{
    int64_t ms = 0;
    CHECK_INT(duration_parse("30s", &ms), 0);
    CHECK_INT(ms, 30000);
    CHECK_INT(duration_parse("10m", &ms), 0);
    CHECK_INT(ms, 600000);
    CHECK_INT(duration_parse("1h", &ms), 0);
    CHECK_INT(ms, 3600000);
    CHECK_INT(duration_parse("8760h", &ms), 0);
    CHECK_INT(ms, DURATION_MAX_MS);
}

TEST(duration_rejects_other_texts)
{
    static const char *const bad[] = {"",   "s",   "10",   "10 m", " 10m", "10m ", "-1s",       "+1s",
                                      "1d", "1ms", "1.5h", "1h1m", "ten",  "1S",   "1\xc2\xb5s"};
    int64_t ms = 7;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CHECK_INT(duration_parse(bad[i], &ms), -EINVAL);
        CHECK_INT(ms, 7);
    }
}

TEST(duration_has_a_range)
{
    static const char *const bad[] = {"0s", "0h", "8761h", "99999999999999999999s", "18446744073709551616s"};
    int64_t ms = 7;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK_INT(duration_parse(bad[i], &ms), -ERANGE);
    CHECK_INT(ms, 7);
}

TEST(duration_from_numbers)
{
    static const double bad[] = {-1, -0.0, 0, 0.01, 1e9, 1e308};
    int64_t ms = 7;
    CHECK_INT(duration_from_seconds(600, &ms), 0);
    CHECK_INT(ms, 600000);
    CHECK_INT(duration_from_seconds(0.25, &ms), 0);
    CHECK_INT(ms, 250);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK_INT(duration_from_seconds(bad[i], &ms), -ERANGE);
    CHECK_INT(duration_from_seconds(NAN, &ms), -ERANGE);
    CHECK_INT(duration_from_seconds(INFINITY, &ms), -ERANGE);
    CHECK_INT(ms, 250);
}

TEST(byte_size_knows_its_units)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"1048576", 1048576},
        {"512MiB", 512ULL << 20},
        {"512M", 512ULL << 20},
        {"512 MiB", 512ULL << 20},
        {"512MB", 512000000},
        {"1.5GiB", 3ULL << 29},
        {"0.5K", 512},
        {"2T", 2ULL << 40},
        {"9007199254740991", (1ULL << 53) - 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        uint64_t bytes = 7;
        CHECK_INT(byte_size_parse(good[i].text, &bytes), 0);
        CHECK_INT(bytes, good[i].bytes);
    }
}

TEST(byte_size_rejects_the_rest)
{
    static const char *const bad[] = {"",      "MiB", "-1",   "+1",     "1.", ".5",
                                      "1.5.5", "1e3", "0x10", "512mib", "1 ", "1  M"};
    static const char *const large[] = {"9007199254740992", "18446744073709551616", "9000000T", "8192TiB"};
    uint64_t bytes = 7;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK_INT(byte_size_parse(bad[i], &bytes), -EINVAL);
    for (size_t i = 0; i < ARRAY_SIZE(large); i++)
        CHECK_INT(byte_size_parse(large[i], &bytes), -ERANGE);
    CHECK_INT(bytes, 7);
}
