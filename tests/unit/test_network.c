/* SPDX-License-Identifier: Apache-2.0 */
/* test_network.c: the settings of the network, and netlink messages that fit or do not. */
#include "keeper/netlink.h"
#include "keeper/network.h"
#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

TEST(pool_is_private_and_whole)
{
    static const char *const bad[] = {"",
                                      "10.0.0.0",
                                      "10.213.0.0/33",
                                      "10.213.0.0/16x",
                                      "10.213.0.1/16",
                                      "8.8.0.0/16",
                                      "10.213.0.0/ 16",
                                      "10.213.0.0/-1",
                                      "10.213.0.0/31",
                                      "172.0.0.0/8",
                                      "fd00::/64",
                                      "192.168.0.0/15",
                                      "10.213.0/16",
                                      "/16",
                                      "0.0.0.0/8",
                                      "10.0.0.0/7",
                                      "127.0.0.0/8",
                                      "10.213.0.0/016"};
    uint32_t pool = 0;
    unsigned prefix = 0;
    struct error e;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK(network_pool_parse(bad[i], &pool, &prefix, &e) == -EINVAL);
    CHECK(network_pool_parse("10.213.0.0/16", &pool, &prefix, &e) == 0);
    CHECK(pool == inet_addr("10.213.0.0") && prefix == 16);
    CHECK(network_pool_parse("100.64.0.0/10", &pool, &prefix, &e) == 0 && prefix == 10);
    CHECK(network_pool_parse("192.168.7.0/30", &pool, &prefix, &e) == 0 && prefix == 30);
}

TEST(ipv6_is_on_off_or_a_private_network)
{
    static const char *const bad[] = {
        "",          "yes",        "fd00::", "fd00::/48", "fd00::/065", "fd00::1/64",       "2001:db8::/64",
        "fe80::/64", "10.0.0.0/8", "/64",    "::/64",     "fd00::/64x", "::ffff:1.2.3.4/64"};
    struct ip a;
    struct error e;
    char text[IP_TEXT];
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (network_ipv6_parse(bad[i], &a, &e) != -EINVAL)
            CHECK_STREQ(bad[i], "refused");
    CHECK(network_ipv6_parse("off", &a, &e) == 0 && ip_is_none(&a));
    CHECK(network_ipv6_parse("on", &a, &e) == 0 && a.bytes[0] == 0xfd);
    CHECK(network_ipv6_parse("fd12:3456:789a:1::/64", &a, &e) == 0);
    CHECK_STREQ(ip_text(&a, text), "fd12:3456:789a:1::");
    struct nft_table t = {.prefix6 = a};
    a = nft_address6(&t, inet_addr("10.213.0.1"));
    CHECK_STREQ(ip_text(&a, text), "fd12:3456:789a:1::ad5:1");
}

TEST(what_is_public)
{
    static const char *const not [] = {
        "::1",           "::",      "64:ff9b::a00:1", "100::1",          "2001::1",       "2001:db8::1",
        "2002:a00:1::1", "3fff::1", "4000::1",        "fc00::1",         "fd00:ec2::254", "fe80::1",
        "fec0::1",       "ff02::1", "10.0.0.1",       "169.254.169.254", "224.0.0.1",     "100.64.0.1"};
    static const char *const is[] = {"2000::1",      "2606:4700::1111", "2a00:1450::1", "2001:4860::8888",
                                     "2003::1",      "3ffe::1",         "2001:200::1",  "1.1.1.1",
                                     "198.51.100.7", "223.255.255.255"};
    struct ip a;
    for (size_t i = 0; i < ARRAY_SIZE(not ); i++)
        if (!ip_parse(not [i], &a) || keeper_address_is_public(&a))
            CHECK_STREQ(not [i], "not public");
    for (size_t i = 0; i < ARRAY_SIZE(is); i++)
        if (!ip_parse(is[i], &a) || !keeper_address_is_public(&a) || keeper_address_is_never(&a))
            CHECK_STREQ(is[i], "public");
}

TEST(resolvers_a_sandbox_can_reach)
{
    uint32_t out[NETWORK_RESOLVERS_MAX];
    CHECK(network_resolvers_parse("", false, out) == 0);
    CHECK(network_resolvers_parse("nameserver 127.0.0.53\noptions edns0\n", false, out) == 0);
    CHECK(network_resolvers_parse("# nameserver 1.2.3.4\nnameserver\nnameserver ::1\nnameserver 0.0.0.0",
                                  false, out) == 0);
    CHECK(network_resolvers_parse("search x\nnameserver 127.0.0.1\nnameserver\t9.9.9.9\nnameserver 10.0.0.2",
                                  false, out) == 2);
    CHECK(out[0] == inet_addr("9.9.9.9") && out[1] == inet_addr("10.0.0.2"));
    CHECK(network_resolvers_parse(
              "nameserver 1.1.1.1\nnameserver 1.1.1.2\nnameserver 1.1.1.3\nnameserver 1.1.1.4", false, out) ==
          3);
    CHECK(network_resolvers_parse("nameserver 127.0.0.53\nnameserver 0.0.0.0\n", true, out) == 1);
}

TEST(pool_must_hold_all_slots)
{
    struct network *n = NULL;
    struct error e = {0};
    struct network_config c = {
        .instance = "", .run_dir = "/run", .pool = inet_addr("10.213.0.0"), .pool_prefix = 24, .slots = 129};
    CHECK(network_open(&c, &n, &e) == -EINVAL);
    CHECK(strstr(e.msg, "too small") != NULL);
}

TEST(messages_are_bounded)
{
    _Alignas(4) char data[64];
    struct nl_buf b;
    nl_init(&b, data, sizeof data);
    nl_begin(&b, 7, 0, "head", 4);
    nl_put_u32(&b, 1, 5);
    size_t nest = nl_nest(&b, 2);
    nl_put_text(&b, 3, "abc");
    nl_nest_end(&b, nest);
    CHECK(!b.overflow);
    const struct nlmsghdr *h = (const struct nlmsghdr *)data;
    CHECK(h->nlmsg_len == b.len && h->nlmsg_type == 7);
    size_t n = 0;
    const char *inner = nl_find(h, 4, 2, 1, &n);
    CHECK(inner && n == 8 && memcmp(inner + 4, "abc", 4) == 0);
    CHECK(nl_find(h, 4, 1, 8, NULL) == NULL); /* shorter than asked for */
    nl_put(&b, 4, data, 40);
    CHECK(b.overflow);
    CHECK(nl_talk(-1, &b) == -EMSGSIZE);
}

TEST(attributes_that_lie_about_their_length_end_the_search)
{
    _Alignas(4) char data[64];
    struct nl_buf b;
    nl_init(&b, data, sizeof data);
    nl_begin(&b, 7, 0, "head", 4);
    nl_put_u32(&b, 1, 5);
    nl_put_u32(&b, 2, 6);
    const struct nlmsghdr *h = (const struct nlmsghdr *)data;
    CHECK(nl_find(h, 4, 2, 4, NULL) != NULL);
    static const uint16_t lies[] = {0, 3, 200};
    for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
        memcpy(data + NLMSG_HDRLEN + 4, &lies[i], 2);
        CHECK(nl_find(h, 4, 2, 4, NULL) == NULL);
    }
}
