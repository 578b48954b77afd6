/* SPDX-License-Identifier: Apache-2.0 */
/* test_sandbox_settings.c: user, workdir, hostname and volumes, from JSON to what the keeper and the agent
 * get. */
#include "gateway/sandbox_settings.h"
#include "test.h"

#include <errno.h>
#include <stdlib.h>

static int apply(const char *text, struct sandbox_settings *s, struct problem *p)
{
    auto_free char *copy = strdup(text);
    auto_json struct json_doc *doc = NULL;
    struct error e;
    *p = (struct problem){0};
    if (!copy || json_parse(copy, strlen(copy), 0, &doc, &e) < 0) {
        test_fail(__FILE__, __LINE__, text);
        return -EBADMSG;
    }
    return sandbox_settings_apply(s, json_root(doc), p);
}

TEST(given_changed_and_taken_back)
{
    struct sandbox_settings s = {0}, copy;
    struct problem p;
    CHECK_INT(apply("{\"user\":\"node:1000\",\"workdir\":\"/srv\",\"hostname\":\"web\"}", &s, &p), 0);
    CHECK_STREQ(s.user, "node:1000");
    CHECK_INT(sandbox_settings_copy(&copy, &s), 0);
    CHECK(sandbox_settings_equal(&copy, &s));
    CHECK_INT(apply("{\"user\":null,\"hostname\":\"db\"}", &s, &p), 0);
    CHECK_STREQ(s.user, "node:1000");
    CHECK_STREQ(s.hostname, "db");
    CHECK(!sandbox_settings_equal(&copy, &s));
    CHECK_INT(apply("{\"user\":\"\",\"workdir\":\"\",\"hostname\":\"\"}", &s, &p), 0);
    CHECK(!s.user && !s.workdir && !s.hostname);
    sandbox_settings_done(&s);
    sandbox_settings_done(&copy);
}

TEST(volumes_in_the_order_of_their_paths)
{
    struct sandbox_settings s = {0};
    struct keeper_volume_mount v[KEEPER_VOLUMES_MAX];
    struct problem p;
    CHECK(apply("{\"volumes\":[{\"path\":\"/b/c\",\"name\":\"x\"},"
                "{\"name\":\"y\",\"path\":\"/b\",\"readOnly\":true}]}",
                &s, &p) == 0);
    CHECK_STREQ(s.volumes, "[{\"name\":\"y\",\"path\":\"/b\",\"readOnly\":true},{\"name\":\"x\",\"path\":\"/"
                           "b/c\",\"readOnly\":false}]");
    CHECK_INT(sandbox_settings_volumes(&s, v), 2);
    CHECK_STREQ(v[0].name, "y");
    CHECK_INT(v[0].read_only, 1);
    CHECK_STREQ(v[1].path, "/b/c");
    CHECK_INT(keeper_volumes_count(v, true), 2);
    CHECK_INT(apply("{\"volumes\":[]}", &s, &p), 0);
    CHECK(!s.volumes);
    CHECK_INT(sandbox_settings_volumes(&s, v), 0);
    sandbox_settings_done(&s);
}

TEST(what_the_agent_is_told)
{
    struct sandbox_settings s = {0};
    struct problem p;
    struct buf out = BUF_INIT(4096);
    static const char expected[] = "=user=node\0=workdir=/srv\0=hostname=web\0=volume=/b";
    CHECK(apply("{\"user\":\"node\",\"workdir\":\"/srv\",\"hostname\":\"web\",\"volumes\":"
                "[{\"name\":\"x\",\"path\":\"/b\"},{\"name\":\"x\",\"path\":\"/c\",\"readOnly\":true}]}",
                &s, &p) == 0);
    CHECK_INT(sandbox_settings_put_boot(&out, &s), 0);
    CHECK_INT(buf_len(&out), sizeof expected);
    CHECK(memcmp(buf_data(&out), expected, sizeof expected) == 0);
    buf_done(&out);
    sandbox_settings_done(&s);
}

TEST(refused)
{
    static const char *const bad[][2] = {
        {"user", "\"-a\""},
        {"user", "\"a b\""},
        {"user", "\"a:b:c\""},
        {"user", "\":a\""},
        {"user", "\"a:\""},
        {"user", "\"65536\""},
        {"user", "\"123456\""},
        {"user", "7"},
        {"workdir", "\"a\""},
        {"workdir", "\"/\\u0001\""},
        {"hostname", "\"a_b\""},
        {"hostname", "[]"},
        {"volumes", "{}"},
        {"volumes", "[1]"},
        {"volumes", "[{\"name\":\"a\"}]"},
        {"volumes", "[{\"name\":\"a\",\"path\":\"/proc\"}]"},
        {"volumes", "[{\"name\":\"a\",\"path\":\"/a\",\"readonly\":true}]"},
        {"volumes", "[{\"name\":\"a\",\"path\":\"/a\"},{\"name\":\"b\",\"path\":\"/a\"}]"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct sandbox_settings s = {0};
        struct problem p;
        char text[256];
        (void)snprintf(text, sizeof text, "{\"%s\":%s}", bad[i][0], bad[i][1]);
        if (apply(text, &s, &p) != -EINVAL || strcmp(p.field, bad[i][0]) != 0 || p.status != 400)
            test_fail(__FILE__, __LINE__, text);
        sandbox_settings_done(&s);
    }
}
