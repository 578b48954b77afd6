/* SPDX-License-Identifier: Apache-2.0 */
/* test_sandbox_config.c: the body of PUT /v1/sandbox/{id}, good and bad. */
#include "gateway/sandbox_config.h"
#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

static struct sandbox_config defaults(void)
{
    struct sandbox_config c = {.image = "base", .instance_type = "lite", .sleep_after_ms = 600000};
    c.limits = instance_type_find("lite")->limits;
    return c;
}

/* Lays text over the defaults. The caller calls sandbox_config_done. */
static int apply(const char *text, struct sandbox_config *c, struct problem *p)
{
    auto_free char *copy = strdup(text);
    auto_json struct json_doc *doc = NULL;
    struct error e;
    *c = defaults();
    *p = (struct problem){0};
    if (!copy || json_parse(copy, strlen(copy), 0, &doc, &e) < 0) {
        test_fail(__FILE__, __LINE__, text);
        return -EBADMSG;
    }
    return sandbox_config_apply(c, json_root(doc), p);
}

static void check_refused(const char *text, const char *field)
{
    struct sandbox_config c;
    struct problem p;
    char what[400];
    if (apply(text, &c, &p) != -EINVAL || strcmp(p.field, field) != 0 || p.status != 400 ||
        strcmp(p.code, "VALIDATION_FAILED") != 0 || !p.message[0]) {
        (void)snprintf(what, sizeof what, "%.200s: field \"%s\", \"%s\" expected", text, p.field, field);
        test_fail(__FILE__, __LINE__, what);
    }
    sandbox_config_done(&c);
}

TEST(config_of_an_empty_body_is_the_default)
{
    struct sandbox_config c, d = defaults();
    struct problem p;
    CHECK_INT(apply("{}", &c, &p), 0);
    CHECK(sandbox_config_equal(&c, &d));
    sandbox_config_done(&c);
    CHECK(apply("{\"image\":null,\"limits\":null,\"env\":null,\"labels\":null,\"sleepAfter\":null,"
                "\"keepAlive\":null,\"ephemeral\":null,\"instanceType\":null,\"later\":[1]}",
                &c, &p) == 0);
    CHECK(sandbox_config_equal(&c, &d));
    sandbox_config_done(&c);
}

TEST(config_network)
{
    struct sandbox_config c, d = defaults();
    struct problem p;
    CHECK_INT(apply("{\"network\":{\"mode\":\"none\"}}", &c, &p), 0);
    CHECK(c.reach.network == KEEPER_NETWORK_NONE);
    CHECK(sandbox_config_same_machine(&c, &d) && !sandbox_config_equal(&c, &d));
    sandbox_config_done(&c);
    CHECK_INT(apply("{\"network\":{\"mode\":\"public\"}}", &c, &p), 0);
    CHECK(c.reach.network == KEEPER_NETWORK_PUBLIC);
    sandbox_config_done(&c);
    CHECK_INT(apply("{\"network\":null}", &c, &p), 0);
    CHECK(c.reach.network == KEEPER_NETWORK_DEFAULT);
    sandbox_config_done(&c);
    CHECK_INT(apply("{\"network\":\"none\"}", &c, &p), 0);
    CHECK(c.reach.network == KEEPER_NETWORK_NONE);
    sandbox_config_done(&c);
    int r = apply("{\"network\":{\"mode\":\"allowlist\",\"allow\":[\"Example.org:443\",\"*.example.org\","
                  "\"example.org:443\"]},\"limits\":{\"networkBytesPerSecond\":\"1MiB\",\"connections\":20}}",
                  &c, &p);
    CHECK_INT(r, 0);
    CHECK(c.reach.network == KEEPER_NETWORK_ALLOWLIST && c.reach.bytes_per_second == 1 << 20 &&
          c.reach.connections == 20);
    CHECK_STREQ(c.reach.allow, "example.org:443\n*.example.org");
    CHECK(sandbox_config_same_machine(&c, &d));
    sandbox_config_done(&c);
    check_refused("{\"network\":\"open\"}", "network.mode");
    check_refused("{\"network\":7}", "network");
    check_refused("{\"network\":{\"mode\":\"public\",\"allow\":[]}}", "network.allow");
    check_refused("{\"network\":{\"mode\":\"allowlist\",\"allow\":\"x\"}}", "network.allow");
    check_refused("{\"network\":{\"mode\":\"allowlist\",\"allow\":[1]}}", "network.allow");
    check_refused("{\"network\":{\"mode\":\"allowlist\",\"allow\":[\"127.0.0.1\"]}}", "network.allow");
    check_refused("{\"limits\":{\"networkBytesPerSecond\":1}}", "limits.networkBytesPerSecond");
    check_refused("{\"limits\":{\"connections\":0}}", "limits.connections");
    check_refused("{\"limits\":{\"connections\":65536}}", "limits.connections");
    check_refused("{\"network\":{\"mode\":\"none\",\"alow\":1}}", "network");
    check_refused("{\"network\":{}}", "network.mode");
    check_refused("{\"network\":{\"mode\":\"None\"}}", "network.mode");
    check_refused("{\"network\":{\"mode\":1}}", "network.mode");
    CHECK_INT(apply("{\"network\":{\"mode\":\"allowlist\"}}", &c, &p), 0);
    CHECK(c.reach.network == KEEPER_NETWORK_ALLOWLIST && !c.reach.allow);
    sandbox_config_done(&c);
}

TEST(config_takes_every_field)
{
    struct sandbox_config c;
    struct problem p;
    REQUIRE(
        apply("{\"image\":\"python-3.11\",\"instanceType\":\"standard-1\",\"limits\":{\"memory\":\"512MiB\","
              "\"cpu\":0.25,\"diskBytes\":1073741824,\"tasks\":64,\"inodes\":5000,\"ioBytesPerSecond\":"
              "\"10MB\","
              "\"ioOperationsPerSecond\":100},\"env\":{\"A\":\"1\",\"B\":\"\"},\"labels\":{\"team\":\"x\"},"
              "\"sleepAfter\":\"30s\",\"keepAlive\":true,\"ephemeral\":true}",
              &c, &p) == 0);
    CHECK_STREQ(c.image, "python-3.11");
    CHECK_STREQ(c.instance_type, "");
    CHECK_INT(c.limits.memory_bytes, 512 << 20);
    CHECK_INT(c.limits.cpu_milli, 250);
    CHECK_INT(c.limits.disk_bytes, 1 << 30);
    CHECK_INT(c.limits.tasks, 64);
    CHECK_INT(c.limits.disk_inodes, 5000);
    CHECK_INT(c.limits.io_bps, 10000000);
    CHECK_INT(c.limits.io_iops, 100);
    CHECK_STREQ(c.env, "{\"A\":\"1\",\"B\":\"\"}");
    CHECK_STREQ(c.labels, "{\"team\":\"x\"}");
    CHECK_INT(c.sleep_after_ms, 30000);
    CHECK(c.keep_alive && c.ephemeral);
    CHECK(sandbox_config_has_label(&c, "team", "x"));
    CHECK(!sandbox_config_has_label(&c, "team", "y"));
    CHECK(!sandbox_config_has_label(&c, "tea", "x"));
    sandbox_config_done(&c);
}

TEST(config_instance_type_sets_the_limits)
{
    struct sandbox_config c;
    struct problem p;
    REQUIRE(apply("{\"instanceType\":\"standard-2\"}", &c, &p) == 0);
    CHECK_INT(c.limits.memory_bytes, instance_type_find("standard-2")->limits.memory_bytes);
    CHECK_STREQ(c.instance_type, "standard-2");
    CHECK(!sandbox_config_same_machine(
        &c, &(struct sandbox_config){.image = "base", .limits = defaults().limits}));
    sandbox_config_done(&c);
}

/* each field with each wrong type: the table is made, not written */
TEST(config_refuses_wrong_types)
{
    static const char *const values[] = {"true", "0",       "-1", "1.5", "1e300",
                                         "\"\"", "\"x y\"", "[]", "{}",  "[null]"};
    static const struct {
        const char *field, *path, *allowed; /* allowed: values that are right, separated by '|' */
    } fields[] = {
        {"image", "image", "|"},
        {"instanceType", "instanceType", "|"},
        {"limits", "limits", "|{}|"},
        {"env", "env", "|{}|"},
        {"labels", "labels", "|{}|"},
        {"sleepAfter", "sleepAfter", "|1.5|"},
        {"keepAlive", "keepAlive", "|true|"},
        {"ephemeral", "ephemeral", "|true|"},
    };
    for (size_t f = 0; f < ARRAY_SIZE(fields); f++)
        for (size_t v = 0; v < ARRAY_SIZE(values); v++) {
            char text[128], key[32];
            (void)snprintf(key, sizeof key, "|%s|", values[v]);
            (void)snprintf(text, sizeof text, "{\"%s\":%s}", fields[f].field, values[v]);
            if (!strstr(fields[f].allowed, key))
                check_refused(text, fields[f].path);
        }
}

TEST(config_refuses_bad_limits)
{
    static const char *const names[] = {"memoryBytes", "memory", "diskBytes",        "disk",
                                        "inodes",      "tasks",  "ioBytesPerSecond", "ioOperationsPerSecond",
                                        "cpu"};
    static const char *const values[] = {"true",
                                         "0",
                                         "-1",
                                         "\"\"",
                                         "\"x\"",
                                         "[]",
                                         "{}",
                                         "1e300",
                                         "9007199254740993",
                                         "18446744073709551616",
                                         "4294967296000000"};
    for (size_t n = 0; n < ARRAY_SIZE(names); n++)
        for (size_t v = 0; v < ARRAY_SIZE(values); v++) {
            char text[128], field[64];
            (void)snprintf(text, sizeof text, "{\"limits\":{\"%s\":%s}}", names[n], values[v]);
            (void)snprintf(field, sizeof field, "limits.%s", names[n]);
            check_refused(text, field);
        }
    check_refused("{\"limits\":{\"memoryBytes\":1.5e8,\"tasks\":1.5}}", "limits.tasks");
    check_refused("{\"limits\":{\"memroy\":\"1GiB\"}}", "limits.memroy"); /* a misspelt limit is no limit */
    check_refused("{\"limits\":{\"tasks\":4294967297}}", "limits.tasks"); /* 2^32 + 1 is not 1 */
}

TEST(config_refuses_bad_names)
{
    static const char *const images[] = {"../x",
                                         "A/b",
                                         ".hidden",
                                         "-x",
                                         "a b",
                                         "\\u00e4",
                                         "A123456789012345678901234567890123456789012345678901234567890123x"};
    char text[256];
    for (size_t i = 0; i < ARRAY_SIZE(images); i++) {
        (void)snprintf(text, sizeof text, "{\"image\":\"%s\"}", images[i]);
        check_refused(text, "image");
    }
    check_refused("{\"env\":{\"\":\"1\"}}", "env");
    check_refused("{\"env\":{\"A=B\":\"1\"}}", "env");
    check_refused("{\"env\":{\"A\\n\":\"1\"}}", "env");
    check_refused("{\"env\":{\"A\":1}}", "env");
    check_refused("{\"env\":{\"A\":null}}", "env");
    check_refused("{\"labels\":{\"\":\"1\"}}", "labels");
    check_refused("{\"labels\":{\"a b\":\"1\"}}", "labels");
    check_refused("{\"labels\":{\"a\":1}}", "labels");
    check_refused("[]", "body");
    check_refused("\"x\"", "body");
}

TEST(config_bounds_the_environment)
{
    size_t size = CONFIG_ENV_VALUE + 64;
    auto_free char *text = malloc(size);
    REQUIRE(text);
    size_t n = (size_t)snprintf(text, size, "{\"env\":{\"A\":\"");
    memset(text + n, 'x', CONFIG_ENV_VALUE + 1);
    (void)snprintf(text + n + CONFIG_ENV_VALUE + 1, size - n - CONFIG_ENV_VALUE - 1, "\"}}");
    check_refused(text, "env");
}

TEST(config_last_of_repeated_names_wins)
{
    struct sandbox_config c;
    struct problem p;
    REQUIRE(apply("{\"env\":{\"A\":\"1\",\"B\":\"2\",\"A\":\"3\"},\"image\":\"x\",\"image\":\"y\"}", &c,
                  &p) == 0);
    CHECK_STREQ(c.env, "{\"B\":\"2\",\"A\":\"3\"}");
    CHECK_STREQ(c.image, "y");
    sandbox_config_done(&c);
}

TEST(config_env_becomes_a_sealed_file)
{
    struct sandbox_config c;
    struct problem p;
    struct error e;
    char data[64] = "";
    int fd = -1;
    REQUIRE(apply("{\"env\":{\"A\":\"1\\n2\",\"B\":\"\"}}", &c, &p) == 0);
    REQUIRE(sandbox_config_boot_fd(&c, NULL, 0, &fd, &e) == 0 && fd >= 0);
    ssize_t n = pread(fd, data, sizeof data, 0);
    CHECK_INT(n, 9);
    CHECK(memcmp(data, "A=1\n2\0B=\0", 9) == 0);
    CHECK(pwrite(fd, "x", 1, 0) < 0 && errno == EPERM);
    CHECK(ftruncate(fd, 0) < 0 && errno == EPERM);
    close_fd(&fd);
    sandbox_config_done(&c);

    c = defaults();
    CHECK_INT(sandbox_config_boot_fd(&c, NULL, 0, &fd, &e), 0);
    CHECK_INT(fd, -1);
}

TEST(config_comes_behind_what_all_sandboxes_get)
{
    static const char shared[] = "A=all\0=ca=PEM", expected[] = "A=all\0=ca=PEM\0A=own\0=user=node";
    struct sandbox_config c;
    struct problem p;
    struct error e;
    char data[64] = "";
    int fd = -1;
    REQUIRE(apply("{\"env\":{\"A\":\"own\"},\"user\":\"node\"}", &c, &p) == 0);
    REQUIRE(sandbox_config_boot_fd(&c, shared, sizeof shared, &fd, &e) == 0 && fd >= 0);
    CHECK_INT(pread(fd, data, sizeof data, 0), sizeof expected);
    CHECK(memcmp(data, expected, sizeof expected) == 0);
    close_fd(&fd);
    sandbox_config_done(&c);
}

TEST(config_copies_are_independent)
{
    struct sandbox_config a, b;
    struct problem p;
    REQUIRE(apply("{\"env\":{\"A\":\"1\"},\"labels\":{\"l\":\"v\"}}", &a, &p) == 0);
    REQUIRE(sandbox_config_copy(&b, &a) == 0);
    CHECK(sandbox_config_equal(&a, &b));
    sandbox_config_done(&a);
    CHECK_STREQ(b.env, "{\"A\":\"1\"}");
    b.keep_alive = true;
    CHECK(!sandbox_config_equal(&a, &b));
    sandbox_config_done(&b);
}
