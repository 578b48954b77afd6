/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/probe.h"
#include "test.h"

TEST(probe_redirects)
{
    static const struct {
        const char *location, *base, *path; /* path NULL: not followed */
        int port;
    } rows[] = {
        {"/login", "/", "/login", 8080},
        {"/a?b=1#frag", "/", "/a?b=1", 8080},
        {"next", "/a/b?q", "/a/next", 8080},
        {"next", "/", "/next", 8080},
        {"?x=1", "/a/b?q", "/a/b?x=1", 8080},
        {"http://localhost:9000/x", "/", "/x", 9000},
        {"http://LOCALHOST", "/", "/", 80},
        {"http://127.0.0.1:81?x", "/", "/?x", 81},
        {"http://[::1]:82/x", "/", "/x", 82},
        {"//localhost:83/y", "/", "/y", 83},
        {"https://localhost/x", "/", NULL, 0},
        {"http://example.com/", "/", NULL, 0},
        {"http://localhost.example.com/", "/", NULL, 0},
        {"http://localhost@example.com/", "/", NULL, 0},
        {"http://localhost:0/", "/", NULL, 0},
        {"http://localhost:99999/", "/", NULL, 0},
        {"http://localhost:80x/", "/", NULL, 0},
        {"http://[::1", "/", NULL, 0},
        {"mailto:x", "/", NULL, 0},
        {"/a b", "/", NULL, 0},
        {"/a\r\nX: y", "/", NULL, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char path[256] = "";
        int port = 8080;
        bool followed = probe_redirect(rows[i].location, rows[i].base, &port, path, sizeof path);
        if (followed != (rows[i].path != NULL)) {
            test_fail(__FILE__, __LINE__, rows[i].location);
        } else if (followed) {
            CHECK_STREQ(path, rows[i].path);
            CHECK_INT(port, rows[i].port);
        } else {
            CHECK_INT(port, 8080);
        }
    }
    char path[8];
    int port = 1;
    CHECK(!probe_redirect("/1234567", "/", &port, path, sizeof path));
    CHECK(probe_redirect("/123456", "/", &port, path, sizeof path));
}
