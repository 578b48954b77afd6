/* SPDX-License-Identifier: Apache-2.0 */
/* test_account.c: users of an image, found in its passwd and group. */
#include "agent/account.h"
#include "test.h"

#include <errno.h>

static const char passwd[] = "root:x:0:0:root:/root:/bin/bash\n"
                             "broken line\n"
                             "short:x:5:5\n"
                             "far:x:70000:70000::/far:/bin/sh\n"
                             "www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n"
                             "1234:x:99:98:a name of digits:/digits:/bin/sh\n"
                             "relative:x:50:51::home:/bin/sh\n"
                             "node:x:1000:1000::/home/node:/bin/bash"; /* without a newline */
static const char group[] = "root:x:0:\n"
                            "www-data:x:33:\n"
                            "friends:x:777:other,node,www-data\n"
                            "nodes:x:778:nodejs,xnode\n"
                            "node:x:1000:\n"
                            "last:x:779:node";

static struct account found(const char *text)
{
    struct account a = {0};
    struct error e;
    CHECK_INT(account_find(text, passwd, group, &a, &e), 0);
    return a;
}

TEST(by_name)
{
    struct account a = found("node");
    CHECK_INT(a.uid, 1000);
    CHECK_INT(a.gid, 1000);
    CHECK_STREQ(a.name, "node");
    CHECK_STREQ(a.home, "/home/node");
    CHECK_INT(a.group_count, 2);
    CHECK_INT(a.groups[0], 777);
    CHECK_INT(a.groups[1], 779);
    a = found("www-data");
    CHECK_INT(a.uid, 33);
    CHECK_INT(a.group_count, 1);
    a = found("root");
    CHECK_INT(a.uid, 0);
    CHECK_STREQ(a.home, "/root");
    a = found("relative"); /* a home that is no path is none */
    CHECK_STREQ(a.home, "/");
}

TEST(by_number)
{
    struct account a = found("1000");
    CHECK_STREQ(a.name, "node");
    CHECK_INT(a.gid, 1000);
    CHECK_INT(a.group_count, 2);
    a = found("4242"); /* nobody's */
    CHECK_INT(a.uid, 4242);
    CHECK_INT(a.gid, 0);
    CHECK_STREQ(a.name, "4242");
    CHECK_STREQ(a.home, "/");
    a = found("1234"); /* a number is a number, whoever is called so */
    CHECK_INT(a.uid, 1234);
    CHECK_INT(a.gid, 0);
}

TEST(with_a_group)
{
    struct account a = found("node:friends");
    CHECK_INT(a.uid, 1000);
    CHECK_INT(a.gid, 777);
    CHECK_INT(a.group_count, 0);
    a = found("7:8");
    CHECK_INT(a.uid, 7);
    CHECK_INT(a.gid, 8);
    CHECK_STREQ(a.home, "/");
}

TEST(not_found)
{
    static const char *const bad[] = {"nobody",     "",      ":",           "node:", "node:nothing",
                                      "far",        "short", "broken line", "65536", "99999999999",
                                      "node:70000", "-1",    "nod"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct account a;
        struct error e = {0};
        CHECK_INT(account_find(bad[i], passwd, group, &a, &e), -ENOENT);
        CHECK(e.msg[0]);
    }
}

TEST(without_files)
{
    struct account a;
    struct error e;
    CHECK_INT(account_find("5:6", NULL, NULL, &a, &e), 0);
    CHECK_INT(a.uid, 5);
    CHECK_INT(a.gid, 6);
    CHECK_INT(account_find("root", NULL, NULL, &a, &e), -ENOENT);
}
