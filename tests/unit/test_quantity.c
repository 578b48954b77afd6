/* SPDX-License-Identifier: Apache-2.0 */
/* test_quantity.c: times and sizes as people write them. (Durations are also in test_duration.c and
 * test_cli_format.c.) */
#include "base/quantity.h"
#include "base/util.h"
#include "test.h"

#include <errno.h>

TEST(decimals)
{
    static const struct {
        const char *text;
        uint64_t whole;
        uint32_t millionths;
        const char *rest;
    } good[] = {{"0", 0, 0, ""},
                {"12.5x", 12, 500000, "x"},
                {"1.000001", 1, 1, ""},
                {"007.10", 7, 100000, ""},
                {"18446744073709551615 ", UINT64_MAX, 0, " "}};
    static const char *const bad[] = {"", ".5", "1.", "-1", "+1", "x", "1.1234567", " 1"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        const char *p = good[i].text;
        uint64_t whole = 7;
        uint32_t millionths = 7;
        CHECK_INT(quantity_decimal(&p, &whole, &millionths), 0);
        CHECK(whole == good[i].whole && millionths == good[i].millionths);
        CHECK_STREQ(p, good[i].rest);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        const char *p = bad[i];
        uint64_t whole;
        uint32_t millionths;
        CHECK_INT(quantity_decimal(&p, &whole, &millionths), -EINVAL);
        CHECK(p == bad[i]);
    }
    const char *p = "18446744073709551616";
    CHECK_INT(quantity_decimal(&p, &(uint64_t){0}, &(uint32_t){0}), -ERANGE);
}

TEST(durations_have_an_end)
{
    int64_t ms = 7;
    CHECK_INT(quantity_duration_ms("9223372036854775807ms", &ms), 0);
    CHECK_INT(ms, INT64_MAX);
    ms = 7;
    CHECK_INT(quantity_duration_ms("9223372036854775808ms", &ms), -ERANGE);
    CHECK_INT(quantity_duration_ms("9223372036854775807ms1ms", &ms), -ERANGE);
    CHECK_INT(quantity_duration_ms("18446744073709551615d", &ms), -ERANGE);
    CHECK_INT(quantity_duration_ms("1.5.5s", &ms), -EINVAL);
    CHECK_INT(ms, 7);
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
        CHECK_INT(quantity_bytes(good[i].text, &bytes), 0);
        CHECK_INT(bytes, good[i].bytes);
    }
}

TEST(byte_size_rejects_the_rest)
{
    static const char *const bad[] = {"",    "MiB",  "-1",     "+1",     "1.", ".5",  "1.5.5",
                                      "1e3", "0x10", "512mib", "512mB ", "1 ", "1  M"};
    static const char *const large[] = {"9007199254740992", "18446744073709551616", "9000000T", "8192TiB"};
    uint64_t bytes = 7;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK_INT(quantity_bytes(bad[i], &bytes), -EINVAL);
    for (size_t i = 0; i < ARRAY_SIZE(large); i++)
        CHECK_INT(quantity_bytes(large[i], &bytes), -ERANGE);
    CHECK_INT(bytes, 7);
}
