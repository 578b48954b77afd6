/* SPDX-License-Identifier: Apache-2.0 */
/* test_id_limits.c: sandbox ids, random names, named sizes and their ranges. */
#include "test.h"
#include "base/id.h"
#include "base/limits.h"

#include <errno.h>

TEST(id_accepts)
{
    static const char *const good[] = {
        "a",       "A1",   "my-sandbox",
        "a.b_c-d", "_x_",  "0",
        "www1",    "apis", "123456789012345678901234567890123456789012345678901234567890123"};
    struct error e;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        CHECK_INT(sandbox_id_check(good[i], &e), 0);
}

TEST(id_refuses)
{
    static const char *const bad[] = {
        "",        ".",          "..",
        "-a",      "a-",         ".a",
        "a.",      "a/b",        "a b",
        "a\n",     "\xc3\xa4",   "a%2f",
        "www",     "API",        "Admin",
        "root",    "system",     "a\\b",
        "a:b",     "a*",         "a\x7f",
        "workers", "cloudflare", "1234567890123456789012345678901234567890123456789012345678901234"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct error e = {0};
        CHECK_INT(sandbox_id_check(bad[i], &e), -EINVAL);
        CHECK_INT(e.code, EINVAL);
        CHECK(e.msg[0] != '\0');
    }
}

TEST(id_sentences)
{
    struct error e;
    (void)sandbox_id_check("-x", &e);
    CHECK_STREQ(e.msg, "a sandbox id must not start or end with '-'");
    (void)sandbox_id_check("Root", &e);
    CHECK_STREQ(e.msg, "'Root' is a reserved word and no sandbox id");
}

TEST(random_names_are_of_the_alphabet_and_differ)
{
    char a[33], b[33];
    bool seen[256] = {false};
    size_t kinds = 0;
    random_name(a, 32);
    random_name(b, 32);
    CHECK_INT(strlen(a), 32);
    CHECK(strcmp(a, b) != 0);
    for (int round = 0; round < 100; round++) {
        random_name(a, 32);
        CHECK_INT(strspn(a, "abcdefghijklmnopqrstuvwxyz0123456789"), 32);
        for (size_t i = 0; i < 32; i++)
            seen[(unsigned char)a[i]] = true;
    }
    for (size_t i = 0; i < 256; i++)
        kinds += seen[i];
    CHECK_INT(kinds, 36); /* 3200 draws: missing one has a chance of 36 * (35/36)^3200 = 10^-38 */
    random_name(a, 0);
    CHECK_STREQ(a, "");
}

TEST(random_bytes_fill_everything)
{
    unsigned char a[1000] = {0};
    size_t zeros = 0;
    random_bytes(a, sizeof a);
    for (size_t i = 0; i < sizeof a; i++)
        zeros += a[i] == 0;
    CHECK(zeros < 100);
}

TEST(hex_of_bytes)
{
    char out[9];
    hex_encode(out, "\x00\x0f\xa5\xff", 4);
    CHECK_STREQ(out, "000fa5ff");
    hex_encode(out, "", 0);
    CHECK_STREQ(out, "");
}

TEST(equal_in_constant_time)
{
    CHECK(equal_constant_time("abc", "abc", 3));
    CHECK(!equal_constant_time("abc", "abd", 3));
    CHECK(!equal_constant_time("abc", "bbc", 3));
    CHECK(equal_constant_time("abc", "xyz", 0));
}

/* ------------------------------------------------------------------ limits */

TEST(limits_of_every_instance_type_are_valid_and_grow)
{
    struct error e;
    const struct limits *last = NULL;
    size_t n = 0;
    for (const struct instance_type *t = instance_types; t->name; t++, n++) {
        CHECK_INT(limits_check(&t->limits, &e), 0);
        CHECK(instance_type_find(t->name) == t);
        if (last) {
            CHECK(t->limits.memory_bytes >= last->memory_bytes);
            CHECK(t->limits.disk_bytes >= last->disk_bytes);
            CHECK(t->limits.cpu_milli >= last->cpu_milli);
        }
        last = &t->limits;
    }
    CHECK(n >= 1);
    CHECK(instance_type_find("enormous") == NULL);
    CHECK(instance_type_find("") == NULL);
}

struct range {
    size_t offset;
    bool is_64;
    uint64_t min, max;
    const char *name;
};

static void set(struct limits *l, const struct range *r, uint64_t v)
{
    uint32_t narrow = (uint32_t)v;
    if (r->is_64)
        memcpy((char *)l + r->offset, &v, sizeof v);
    else
        memcpy((char *)l + r->offset, &narrow, sizeof narrow);
}

TEST(limits_ranges)
{
#define FIELD(f) offsetof(struct limits, f), sizeof(((struct limits *)0)->f) == 8
    static const struct range ranges[] = {
        {FIELD(memory_bytes), UINT64_C(64) << 20, UINT64_C(1) << 40, "memory"},
        {FIELD(disk_bytes), UINT64_C(64) << 20, UINT64_C(1) << 40, "disk"},
        {FIELD(disk_inodes), 1024, 1 << 28, "inodes"},
        {FIELD(io_bps), 1 << 20, UINT64_C(1) << 40, "ioBytesPerSecond"},
        {FIELD(io_iops), 50, 10000000, "ioOperationsPerSecond"},
        {FIELD(tasks), 16, 32768, "tasks"},
        {FIELD(cpu_milli), 10, 1024000, "cpuMilli"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
        struct limits l = instance_types[0].limits;
        struct error e = {0};
        set(&l, &ranges[i], ranges[i].min);
        CHECK_INT(limits_check(&l, &e), 0);
        set(&l, &ranges[i], ranges[i].max);
        CHECK_INT(limits_check(&l, &e), 0);
        set(&l, &ranges[i], ranges[i].min - 1);
        CHECK_INT(limits_check(&l, &e), -ERANGE);
        CHECK(strncmp(e.msg, ranges[i].name, strlen(ranges[i].name)) == 0);
        set(&l, &ranges[i], ranges[i].max + 1);
        CHECK_INT(limits_check(&l, &e), -ERANGE);
        set(&l, &ranges[i], 0);
        CHECK_INT(limits_check(&l, &e), -ERANGE);
    }
}
