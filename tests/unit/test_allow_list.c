/* SPDX-License-Identifier: Apache-2.0 */
/* test_allow_list.c: entries of allow-lists, what they match and, above all, what they do not (NET-08). */
#include "gateway/allow_list.h"
#include "gateway/sandbox_reach.h"
#include "test.h"

#include <errno.h>
#include <string.h>

static struct ip ip(const char *text)
{
    struct ip a = {0};
    CHECK(ip_parse(text, &a));
    return a;
}

static bool is(const struct ip *a, const char *text)
{
    struct ip b = ip(text);
    return ip_equal(a, &b);
}

static size_t ports_of(const char *list, const char *name, uint16_t *out)
{
    struct allow_list *l = NULL;
    struct error e;
    CHECK(allow_list_parse(list, &l, &e) == 0);
    size_t n = allow_list_ports(l, name, out);
    allow_list_free(l);
    return n;
}

static bool allows(const char *list, const char *name)
{
    uint16_t ports[ALLOW_PORTS_MAX];
    return ports_of(list, name, ports) > 0;
}

TEST(entries_are_written_as_we_say_them)
{
    static const char *const pairs[][2] = {
        {"Example.ORG", "example.org"},
        {"example.org.", "example.org"},
        {"*.Example.org.:443", "*.example.org:443"},
        {"*", "*"},
        {"*:443", "*:443"},
        {"198.51.100.7", "198.51.100.7"},
        {"198.51.100.7/32:80", "198.51.100.7:80"},
        {"10.1.2.0/24:443", "10.1.2.0/24:443"},
        {"2606:4700:0::1111", "2606:4700::1111"},
        {"2606:4700::/32", "2606:4700::/32"},
        {"[2606:4700::1111]", "2606:4700::1111"},
        {"[2606:4700::1111/128]:443", "[2606:4700::1111]:443"},
        {"[FD12::/16]:5432", "[fd12::/16]:5432"},
        {"localhost", "localhost"},
        {"xn--bcher-kva.example", "xn--bcher-kva.example"},
        {"_srv.x1.example", "_srv.x1.example"},
    };
    char out[ALLOW_ENTRY_CHARS + 1];
    struct error e;
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        CHECK_INT(allow_entry_check(pairs[i][0], out, &e), 0);
        CHECK_STREQ(out, pairs[i][1]);
    }
}

TEST(entries_that_are_none)
{
    static const char *const bad[] = {
        "",
        ".",
        "*.",
        "a..b",
        "-a.example",
        "a-.example",
        "a b",
        "ex*mple.org",
        "*.*.org",
        "**",
        "example.org:",
        "example.org:0",
        "example.org:65536",
        "example.org:+1",
        "example.org: 80",
        "example.org:80:80",
        "b\xc3\xbc.org",
        "example.org/24",
        "http://example.org",
        "1.2.3",
        "1.2.3.4.5",
        "256.1.1.1",
        "1.2.3.4/33",
        "1.2.3.4/",
        "1.2.3.4/24",
        "01.2.3.4",
        "::1",
        "[::1]:80",
        "fe80::1",
        "::/0",
        "2000::/2",
        "ff02::1",
        "::ffff:10.0.0.1",
        "64:ff9b::c0a8:1",
        "2002:c0a8:1::1",
        "2001::1",
        "fd00:ec2::254",
        "fd00::/8",
        "fd20:ce::254",
        "2606:4700::1/32",
        "2606:4700::/129",
        "2606:4700::/",
        "[2606:4700::1",
        "[2606:4700::1]80",
        "[2606:4700::1]:0",
        "[2606:4700::1]:",
        "[2606:4700::1]/128",
        "[198.51.100.7]:80",
        "[example.org]:80",
        "[2606:4700::1]:80:80",
        "2606:4700::g",
        "fe80::1%eth0",
        "0.0.0.0/0",
        "0.0.0.0/1",
        "127.0.0.1",
        "127.0.0.0/8",
        "169.254.169.254",
        "169.254.0.0/16",
        "224.0.0.1",
        "255.255.255.255",
        "128.0.0.0/1",
        "192.0.0.8",
        "160.0.0.0/3",
        "a\nb",
        "example.org\n",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.org",
    };
    char out[ALLOW_ENTRY_CHARS + 1], longest[400];
    struct error e;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (allow_entry_check(bad[i], out, &e) != -EINVAL)
            CHECK_STREQ(bad[i], "refused");
    memset(longest, 'a', sizeof longest);
    for (size_t i = 50; i < sizeof longest; i += 51)
        longest[i] = '.';
    longest[sizeof longest - 1] = '\0';
    CHECK_INT(allow_entry_check(longest, out, &e), -EINVAL);
}

TEST(names_match_exactly)
{
    CHECK(allows("good.com", "good.com"));
    CHECK(!allows("good.com", "www.good.com"));
    CHECK(!allows("good.com", "good.com.evil"));
    CHECK(!allows("good.com", "notgood.com"));
    CHECK(!allows("good.com", "good.co"));
    CHECK(!allows("good.com", ""));
    CHECK(allows("*.good.com", "www.good.com") && allows("*.good.com", "a.b.good.com"));
    CHECK(!allows("*.good.com", "good.com") && !allows("*.good.com", ".good.com"));
    CHECK(!allows("*.good.com", "wwwgood.com") && !allows("*.good.com", "www.good.com.evil"));
    CHECK(allows("*", "anything.example") && !allows("*", ""));
    CHECK(!allows("", "good.com") && !allows(NULL, "good.com"));
    CHECK(!allows("10.0.0.0/8", "10.0.0.1")); /* an address is no name */
}

TEST(stars_hide_nothing)
{
    char name[DNS_NAME_MAX + 1] = "";
    CHECK(allows("*.t.example", "a.b.c.d.t.example"));
    CHECK(!allows("*.t.example", "a.b.c.d.e.t.example"));
    CHECK(!allows("*", "a.b.c.d.e"));
    for (int i = 0; i < 3; i++)
        strcat(name, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.");
    strcat(name, "t.example"); /* 108 + 2 characters in place of the star */
    CHECK(!allows("*.t.example", name));
}

TEST(ports)
{
    uint16_t out[ALLOW_PORTS_MAX];
    CHECK_INT(ports_of("a.example:80\na.example:443\na.example:80\nb.example", "a.example", out), 2);
    CHECK(out[0] == 80 && out[1] == 443);
    CHECK_INT(ports_of("a.example:80\n*.example", "a.example", out), 1);
    CHECK_INT(out[0], 0);
    CHECK_INT(ports_of("*:1\n*:2\n*:3\n*:4\n*:5\n*:6\n*:7\n*:8\n*:9\n*:10", "a", out), ALLOW_PORTS_MAX);
}

TEST(networks)
{
    struct allow_list *l = NULL;
    struct keeper_policy p = {0};
    struct error e;
    struct ip in = ip("10.1.2.9"), out = ip("10.1.3.9"), in6 = ip("fd12::9"), out6 = ip("fd13::9");
    REQUIRE(allow_list_parse("a.example\n10.1.2.0/24:443\n198.51.100.7\n[fd12::/16]:80", &l, &e) == 0);
    allow_list_rules(l, &p);
    CHECK_INT(p.rule_count, 3);
    CHECK(is(&p.rules[0].address, "10.1.2.0") && p.rules[0].prefix == 96 + 24 && p.rules[0].port == 443);
    CHECK(p.rules[1].prefix == 128 && p.rules[1].port == 0);
    CHECK(is(&p.rules[2].address, "fd12::") && p.rules[2].prefix == 16 && p.rules[2].port == 80);
    CHECK(keeper_policy_ok(&p));
    CHECK(allow_list_has_address(l, &in) && !allow_list_has_address(l, &out));
    CHECK(allow_list_has_address(l, &in6) && !allow_list_has_address(l, &out6));
    allow_list_free(l);
    CHECK(allow_entry_is_private("10.1.2.0/24") && allow_entry_is_private("8.0.0.0/6") &&
          allow_entry_is_private("192.168.1.1:80") && allow_entry_is_private("100.64.0.0/12"));
    CHECK(allow_entry_is_private("fd12::1") && allow_entry_is_private("2001:db8::/32") &&
          !allow_entry_is_private("[2606:4700::/32]:443"));
    CHECK(!allow_entry_is_private("198.51.100.0/24") && !allow_entry_is_private("*.example.org"));
}

TEST(lists_have_bounds)
{
    struct allow_list *l = NULL;
    struct error e;
    struct buf text = BUF_INIT(1 << 16);
    for (int i = 0; i < KEEPER_RULES_MAX; i++)
        (void)buf_printf(&text, "%s10.0.%d.0/24", i ? "\n" : "", i);
    CHECK_INT(allow_list_parse(buf_cstr(&text), &l, &e), 0);
    allow_list_free(l);
    (void)buf_puts(&text, "\n10.1.0.0/24");
    CHECK_INT(allow_list_parse(buf_cstr(&text), &l, &e), -E2BIG);
    buf_clear(&text);
    for (int i = 0; i <= ALLOW_ENTRIES_MAX; i++)
        (void)buf_printf(&text, "%sa%d.example", i ? "\n" : "", i);
    CHECK_INT(allow_list_parse(buf_cstr(&text), &l, &e), -E2BIG);
    buf_done(&text);
}

TEST(words_of_a_command_line)
{
    struct sandbox_reach r = {0};
    struct error e;
    CHECK_INT(sandbox_reach_allow_words(&r, "A.example,*.b.example:443, 10.0.0.0/8,a.example", &e), 0);
    CHECK_STREQ(r.allow, "a.example\n*.b.example:443\n10.0.0.0/8");
    CHECK(sandbox_reach_allow_words(&r, "bad name", &e) == 0); /* two words */
    CHECK(sandbox_reach_allow_words(&r, "b\xc3\xbc", &e) == -EINVAL);
    CHECK_STREQ(r.allow, "a.example\n*.b.example:443\n10.0.0.0/8\nbad\nname");
    struct sandbox_reach before = {0};
    CHECK(sandbox_reach_opens_private(&r, &before) && !sandbox_reach_opens_private(&r, &r));
    sandbox_reach_done(&r);
}
