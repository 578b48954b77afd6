/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/preview_host.h"
#include "gateway/preview.h"
#include "test.h"

#include <errno.h>

static enum preview_host_kind parse(const char *host, struct preview_host *ret)
{
    return preview_host_parse(host, "localhost", ret);
}

TEST(preview_host_names)
{
    struct preview_host h;
    CHECK_INT(parse("8080-demo-abc.localhost", &h), PREVIEW_HOST_NAMED);
    CHECK_INT(h.port, 8080);
    CHECK_STREQ(h.id, "demo");
    CHECK_STREQ(h.token, "abc");
    CHECK_INT(parse("65535-a-b-c_d-0123456789abcdef.LOCALHOST:8787", &h), PREVIEW_HOST_NAMED);
    CHECK_INT(h.port, 65535);
    CHECK_STREQ(h.id, "a-b-c_d");
    CHECK_STREQ(h.token, "0123456789abcdef");
    CHECK_INT(parse("1024-X-Y.localhost:", &h), PREVIEW_HOST_NAMED);
    CHECK_STREQ(h.id, "x");
    CHECK_INT(preview_host_parse("8080-a-b.box.example.com", "box.example.com", &h), PREVIEW_HOST_NAMED);
}

TEST(preview_host_the_api_has_the_other_names)
{
    static const char *const names[] = {"",
                                        "localhost",
                                        "localhost:8787",
                                        "127.0.0.1",
                                        "[::1]:8787",
                                        "example.com",
                                        "xlocalhost",
                                        "8080-a-b.localhostx",
                                        "8080-a-b.localhost.evil.example",
                                        "8080-a-b",
                                        "8080-a-b.localhost:x",
                                        "8080-a-b.localhost:123456",
                                        "8080-a-b.localhost:80:80"};
    struct preview_host h;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        CHECK_INT(parse(names[i], &h), PREVIEW_HOST_OTHER);
    CHECK_INT(preview_host_parse("8080-a-b.localhost", "example.com", &h), PREVIEW_HOST_OTHER);
}

TEST(preview_host_below_the_domain_everything_is_exact)
{
    static const char *const names[] = {
        ".localhost",
        "x.localhost",
        "8080-a-b.localhost.",
        "8080-a-b.localhost.:1",
        "x.8080-a-b.localhost",
        "8080-a-.localhost",
        "8080--b.localhost",
        "8080-a.localhost",
        "8080.localhost",
        "-8080-a-b.localhost",
        "080-a-b.localhost",
        "08080-a-b.localhost",
        "1023-a-b.localhost",
        "65536-a-b.localhost",
        "808000-a-b.localhost",
        "8080-a-b!.localhost",
        "8080-a@x-b.localhost",
        "u@8080-a-b.localhost",
        "8080-\xc3\xa4-b.localhost",
        "8080-a-0123456789abcdefg.localhost",
        "8080-www-b.localhost",
        "8080-a b-c.localhost",
        "80 80-a-b.localhost",
        "8080-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bb.localhost", /* 64 */
    };
    struct preview_host h;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        enum preview_host_kind kind = parse(names[i], &h);
        if (kind != PREVIEW_HOST_UNKNOWN)
            test_fail(__FILE__, __LINE__, names[i]);
    }
}

TEST(preview_host_longest_label)
{
    struct preview_host h;
    char host[128] = "8080-";
    memset(host + 5, 'a', 56);
    memcpy(host + 61, "-t.localhost", 13);
    CHECK_INT(parse(host, &h), PREVIEW_HOST_NAMED);
    CHECK_INT(strlen(h.id), 56);
}

TEST(preview_host_names_that_can_be_given)
{
    struct error e;
    CHECK_INT(preview_name_check("demo", "abc", 8080, &e), 0);
    CHECK_INT(preview_name_check("Demo", "abc", 8080, &e), -EINVAL);
    CHECK_STREQ(
        e.msg,
        "the id 'Demo' cannot be part of a host name: only lower case letters, digits, '-' and '_' can");
    CHECK_INT(preview_name_check("a.b", "abc", 8080, &e), -EINVAL);
    char id[64] = "";
    memset(id, 'a', 41);
    CHECK_INT(preview_name_check(id, "0123456789abcdef", 8080, &e), 0);
    CHECK_INT(preview_name_check(id, "0123456789abcdef", 18080, &e), -EINVAL);
}

TEST(preview_tokens)
{
    CHECK(preview_token_ok("a"));
    CHECK(preview_token_ok("0123456789abcde_"));
    CHECK(!preview_token_ok(""));
    CHECK(!preview_token_ok("0123456789abcdef0"));
    CHECK(!preview_token_ok("A"));
    CHECK(!preview_token_ok("a-b"));
}

TEST(preview_sites_and_listeners)
{
    struct preview_site s;
    struct error e;
    CHECK_INT(preview_site_parse("localhost", &s, &e), 0);
    preview_site_listener(&s, "/run/api.sock:1");
    CHECK_INT(s.port, -1);
    preview_site_listener(&s, "[::1]:8787");
    preview_site_listener(&s, "127.0.0.1:9999");
    CHECK_INT(s.port, 8787);
    CHECK_INT(preview_site_parse("box.example.com", &s, &e), 0);
    preview_site_listener(&s, "127.0.0.1:8787");
    CHECK_INT(s.port, -1);
}

TEST(preview_sites)
{
    struct preview_site s;
    struct error e;
    CHECK_INT(preview_site_parse("localhost", &s, &e), 0);
    CHECK_STREQ(s.scheme, "http");
    CHECK_INT(s.port, -1);
    CHECK_INT(preview_site_parse("box.example.com", &s, &e), 0);
    CHECK_STREQ(s.scheme, "https");
    CHECK_INT(preview_site_parse("http://box.example.com:8080", &s, &e), 0);
    CHECK_STREQ(s.scheme, "http");
    CHECK_STREQ(s.domain, "box.example.com");
    CHECK_INT(s.port, 8080);
    static const char *const bad[] = {
        "",      "Box.example", ".example", "example.", "a..b",  "-a.b", "a-.b",
        "a_b.c", "a:0",         "a:",       "a:65536",  "a:80x", "a/b",  "ftp://a"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK_INT(preview_site_parse(bad[i], &s, &e), -EINVAL);
}
