/* SPDX-License-Identifier: Apache-2.0 */
/* test_duration.c: times that callers of the API may choose. */
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
    CHECK_INT(duration_parse("1d", &ms), 0);
    CHECK_INT(ms, 86400000);
    CHECK_INT(duration_parse("1.5h", &ms), 0);
    CHECK_INT(ms, 5400000);
}

TEST(duration_rejects_other_texts)
{
    static const char *const bad[] = {"",    "s",   "10",  "10 m", " 10m", "10m ", "-1s",
                                      "+1s", "ten", "1m5", "1.s",  ".5s",  "1S",   "1\xc2\xb5s"};
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
