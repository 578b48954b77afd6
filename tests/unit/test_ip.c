/* SPDX-License-Identifier: Apache-2.0 */
/* test_ip.c: addresses and networks of both families. */
#include "base/ip.h"
#include "test.h"

#include <arpa/inet.h>

static struct ip ip(const char *text)
{
    struct ip a = {0};
    CHECK(ip_parse(text, &a));
    return a;
}

TEST(words_and_back)
{
    static const char *const same[] = {"198.51.100.7", "0.0.0.0", "255.255.255.255",
                                       "2001:db8::1",  "::1",     "fe80::"};
    static const char *const bad[] = {"",        "1.2.3",        "01.2.3.4", "::ffff:1.2.3.4",
                                      "1::2::3", "fe80::1%eth0", "::1/64"};
    char text[IP_TEXT];
    struct ip a;
    for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
        a = ip(same[i]);
        CHECK_STREQ(ip_text(&a, text), same[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK(!ip_parse(bad[i], &a));
    a = ip("198.51.100.7");
    CHECK(ip_is_v4(&a) && ip_v4(&a) == inet_addr("198.51.100.7"));
    a = ip("2001:db8::1");
    CHECK(!ip_is_v4(&a) && !ip_is_none(&a));
    a = ip("::");
    CHECK(ip_is_none(&a));
}

TEST(networks)
{
    struct ip net = ip("2001:db8:8000::"), in = ip("2001:db8:ffff::1"), out = ip("2001:db8:7fff::1"), last;
    CHECK(ip_is_network(&net, 33) && !ip_is_network(&net, 32) && ip_is_network(&net, 128));
    CHECK(ip_same_prefix(&net, &in, 33) && !ip_same_prefix(&net, &out, 33) && ip_same_prefix(&net, &out, 32));
    CHECK(ip_same_prefix(&net, &out, 0) && !ip_same_prefix(&net, &in, 128));
    char text[IP_TEXT];
    last = ip_network_last(&net, 33);
    CHECK_STREQ(ip_text(&last, text), "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff");
    net = ip("10.1.2.0");
    last = ip_network_last(&net, IP_V4_BITS + 23);
    CHECK_STREQ(ip_text(&last, text), "10.1.3.255");
}
