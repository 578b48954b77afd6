/* SPDX-License-Identifier: Apache-2.0 */
/* test_proto_volume.c: names and paths of volumes, names of machines, and the requests that carry them. */
#include "keeper/proto.h"
#include "test.h"

#include <errno.h>

TEST(volume_names)
{
    static const char *const good[] = {"a", "data", "A.b_c-9", "0", "x..y"};
    static const char *const bad[] = {"", ".", "..", ".a", "-a", "a/b", "a b", "a\n", "ä", "a:b", "a,b"};
    char longest[VOLUME_NAME_MAX + 2];
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        CHECK(volume_name_ok(good[i]));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK(!volume_name_ok(bad[i]));
    memset(longest, 'x', sizeof longest);
    longest[VOLUME_NAME_MAX + 1] = '\0';
    CHECK(!volume_name_ok(longest));
    longest[VOLUME_NAME_MAX] = '\0';
    CHECK(volume_name_ok(longest));
}

TEST(volume_paths)
{
    static const char *const good[] = {"/a",       "/data/x", "/.hidden",      "/a/..b",   "/procfs",
                                       "/devices", "/tmp/x",  "/opt/silicate", "/home/ä ö"};
    static const char *const bad[] = {
        "",     "a",         "/",    "//",       "/a/",         "/a//b",
        "/a/.", "/./a",      "/..",  "/a/..",    "/proc",       "/proc/1",
        "/sys", "/sys/fs/x", "/dev", "/dev/shm", "/opt/silica", "/opt/silica/runtime",
        "/a\n", "/a\x7f"};
    struct error e;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        CHECK_INT(volume_path_check(good[i], &e), 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        e.msg[0] = '\0';
        CHECK_INT(volume_path_check(bad[i], &e), -EINVAL);
        CHECK(e.msg[0]);
    }
    char longest[VOLUME_PATH_MAX + 2];
    memset(longest, 'x', sizeof longest);
    longest[0] = '/';
    longest[VOLUME_PATH_MAX + 1] = '\0';
    CHECK_INT(volume_path_check(longest, &e), -EINVAL);
    longest[VOLUME_PATH_MAX] = '\0';
    CHECK_INT(volume_path_check(longest, &e), 0);
}

TEST(machine_names)
{
    static const char *const good[] = {"a", "web-1", "Web1.example", "1", "a-b.c-d"};
    static const char *const bad[] = {"",     "-",    ".",    "-a",  "a-",  "a.", ".a",
                                      "a..b", "a.-b", "a-.b", "a_b", "a b", "ä"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        CHECK(machine_name_ok(good[i]));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK(!machine_name_ok(bad[i]));
    char longest[MACHINE_NAME_MAX + 2];
    memset(longest, 'x', sizeof longest);
    longest[MACHINE_NAME_MAX + 1] = '\0';
    CHECK(!machine_name_ok(longest));
    longest[MACHINE_NAME_MAX] = '\0';
    CHECK(machine_name_ok(longest));
}

static struct keeper_request start_request(void)
{
    struct keeper_request r = {.version = KEEPER_PROTO_VERSION,
                               .type = KEEPER_START,
                               .seq = 1,
                               .id = "a",
                               .image = "base",
                               .hostname = "web"};
    r.limits = instance_types[0].limits;
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX; i++) {
        (void)snprintf(r.volumes[i].name, sizeof r.volumes[i].name, "v%zu", i);
        (void)snprintf(r.volumes[i].path, sizeof r.volumes[i].path, "/v/%zu", i);
        r.volumes[i].read_only = i % 2;
    }
    return r;
}

static int check(const struct keeper_request *r)
{
    return keeper_request_check(r, sizeof *r);
}

TEST(start_with_volumes)
{
    struct keeper_request r = start_request();
    CHECK_INT(check(&r), 0);
    CHECK_INT(keeper_volumes_count(r.volumes, true), KEEPER_VOLUMES_MAX);
    r.volumes[3] = (struct keeper_volume_mount){0}; /* a hole */
    CHECK_INT(check(&r), -EBADMSG);
    r = start_request();
    memset(r.volumes[7].name, 'x', sizeof r.volumes[7].name); /* not terminated */
    CHECK_INT(check(&r), -EBADMSG);
    r = start_request();
    memset(r.volumes[7].path + 1, 'x', sizeof r.volumes[7].path - 1);
    CHECK_INT(check(&r), -EBADMSG);
    r = start_request();
    r.volumes[0].read_only = 2;
    CHECK_INT(check(&r), -EBADMSG);
    r = start_request();
    r.volumes[0].reserved = 1;
    CHECK_INT(check(&r), -EBADMSG);
    r = start_request();
    (void)snprintf(r.volumes[0].path, sizeof r.volumes[0].path, "/a/../../etc");
    CHECK_INT(check(&r), -EBADMSG);
    r = start_request();
    (void)snprintf(r.volumes[0].name, sizeof r.volumes[0].name, "../x");
    CHECK_INT(check(&r), -EBADMSG);
    r = start_request();
    memset(r.hostname, 'x', sizeof r.hostname);
    CHECK_INT(check(&r), -EBADMSG);
    r = start_request();
    (void)snprintf(r.hostname, sizeof r.hostname, "a b");
    CHECK_INT(check(&r), -EBADMSG);
    r = start_request();
    r.volume_bytes = VOLUME_BYTES_MIN;
    CHECK_INT(check(&r), -EBADMSG);
    r = start_request();
    r.type = KEEPER_STOP;
    r.image[0] = r.hostname[0] = '\0';
    r.limits = (struct limits){0};
    CHECK_INT(check(&r), -EBADMSG);
    memset(r.volumes, 0, sizeof r.volumes);
    CHECK_INT(check(&r), 0);
}

TEST(requests_about_a_volume)
{
    struct keeper_request r = {.version = KEEPER_PROTO_VERSION,
                               .type = KEEPER_VOLUME_CREATE,
                               .seq = 1,
                               .volume_bytes = VOLUME_BYTES_MIN,
                               .volumes = {{.name = "data"}}};
    CHECK_INT(check(&r), 0);
    r.volume_bytes = VOLUME_BYTES_MIN - 1;
    CHECK_INT(check(&r), -EBADMSG);
    r.volume_bytes = VOLUME_BYTES_MAX + 1;
    CHECK_INT(check(&r), -EBADMSG);
    r.volume_bytes = VOLUME_BYTES_MAX;
    CHECK_INT(check(&r), 0);
    (void)snprintf(r.id, sizeof r.id, "a");
    CHECK_INT(check(&r), -EBADMSG);
    r.id[0] = '\0';
    (void)snprintf(r.volumes[0].path, sizeof r.volumes[0].path, "/a");
    CHECK_INT(check(&r), -EBADMSG);
    r.volumes[0].path[0] = '\0';
    memset(&r.volumes[0], 0, sizeof r.volumes[0]);
    CHECK_INT(check(&r), -EBADMSG);
    r.volume_bytes = 0;
    r.type = KEEPER_VOLUME_REMOVE;
    CHECK_INT(check(&r), -EBADMSG);
    r.type = KEEPER_VOLUME_LIST; /* all of them */
    CHECK_INT(check(&r), 0);
    (void)snprintf(r.volumes[0].name, sizeof r.volumes[0].name, "data");
    CHECK_INT(check(&r), 0);
    (void)snprintf(r.volumes[1].name, sizeof r.volumes[1].name, "more");
    CHECK_INT(check(&r), -EBADMSG);
}

TEST(replies_about_a_volume)
{
    struct keeper_reply r = {
        .version = KEEPER_PROTO_VERSION, .type = KEEPER_ITEM, .seq = 1, .volume = {.name = "data"}};
    CHECK_INT(keeper_reply_check(&r, sizeof r), 0);
    (void)snprintf(r.volume.name, sizeof r.volume.name, "a/b");
    CHECK_INT(keeper_reply_check(&r, sizeof r), -EBADMSG);
    memset(r.volume.name, 'x', sizeof r.volume.name);
    CHECK_INT(keeper_reply_check(&r, sizeof r), -EBADMSG);
}
