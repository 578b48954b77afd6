/* SPDX-License-Identifier: Apache-2.0 */
/* test_flow_parse.c: messages about connections and packets, whole and torn. */
#include "gateway/flow_parse.h"
#include "keeper/netlink.h"
#include "test.h"

#include <arpa/inet.h>
#include <endian.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

struct seen {
    size_t count;
    struct flow last;
};

static void found(const struct flow *f, void *arg)
{
    struct seen *s = arg;
    s->count++;
    s->last = *f;
}

static bool went_to(const struct seen *s, const char *text)
{
    struct ip a = {0};
    CHECK(ip_parse(text, &a));
    return ip_equal(&a, &s->last.destination);
}

static void put_counter(struct nl_buf *b, uint16_t type, uint64_t bytes)
{
    uint64_t be = htobe64(bytes);
    size_t nest = nl_nest(b, type);
    nl_put(b, CTA_COUNTERS_BYTES, &be, sizeof be);
    nl_nest_end(b, nest);
}

static void put_connection(struct nl_buf *b, int type, uint8_t protocol, uint16_t port)
{
    struct nfgenmsg head = {.nfgen_family = AF_INET};
    uint16_t be = htons(port);
    nl_begin(b, (uint16_t)(NFNL_SUBSYS_CTNETLINK << 8 | type), 0, &head, sizeof head);
    size_t tuple = nl_nest(b, CTA_TUPLE_ORIG), ip = nl_nest(b, CTA_TUPLE_IP);
    nl_put_u32(b, CTA_IP_V4_SRC, inet_addr("10.213.0.1"));
    nl_put_u32(b, CTA_IP_V4_DST, inet_addr("198.51.100.7"));
    nl_nest_end(b, ip);
    size_t proto = nl_nest(b, CTA_TUPLE_PROTO);
    nl_put(b, CTA_PROTO_NUM, &protocol, 1);
    nl_put(b, CTA_PROTO_DST_PORT, &be, sizeof be);
    nl_nest_end(b, proto);
    nl_nest_end(b, tuple);
}

TEST(a_connection_begins_and_ends)
{
    _Alignas(4) char data[1024];
    struct nl_buf b;
    struct seen s = {0};
    nl_init(&b, data, sizeof data);
    put_connection(&b, IPCTNL_MSG_CT_NEW, IPPROTO_TCP, 443);
    flow_parse(data, b.len, found, &s);
    CHECK_INT(s.count, 1);
    CHECK(s.last.kind == FLOW_OPEN && s.last.port == 443 && s.last.protocol == IPPROTO_TCP &&
          s.last.source == inet_addr("10.213.0.1") && went_to(&s, "198.51.100.7"));
    put_connection(&b, IPCTNL_MSG_CT_DELETE, IPPROTO_ICMP, 9);
    put_counter(&b, CTA_COUNTERS_ORIG, 1000);
    put_counter(&b, CTA_COUNTERS_REPLY, UINT64_C(1) << 40);
    s = (struct seen){0};
    flow_parse(data, b.len, found, &s); /* both messages in one datagram */
    CHECK_INT(s.count, 2);
    CHECK(s.last.kind == FLOW_CLOSE && s.last.port == 0 && s.last.sent == 1000 &&
          s.last.received == UINT64_C(1) << 40);
    for (size_t n = 0; n < b.len; n++) { /* torn anywhere: never more than whole messages */
        s = (struct seen){0};
        flow_parse(data, n, found, &s);
        CHECK(s.count <= 1);
    }
}

static size_t packet_message(char *data, size_t cap, const unsigned char *packet, size_t n)
{
    struct nl_buf b;
    struct nfgenmsg head = {.nfgen_family = AF_INET};
    nl_init(&b, data, cap);
    nl_begin(&b, NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET, 0, &head, sizeof head);
    nl_put(&b, NFULA_PAYLOAD, packet, n);
    return b.len;
}

TEST(a_refused_packet)
{
    _Alignas(4) char data[1024];
    unsigned char p[44] = {0x45, [9] = IPPROTO_UDP, [12] = 10, 213, 0, 1, 192, 168, 77, 2, [22] = 0x23, 0x28};
    struct seen s = {0};
    size_t n = packet_message(data, sizeof data, p, 28);
    flow_parse(data, n, found, &s);
    CHECK_INT(s.count, 1);
    CHECK(s.last.kind == FLOW_REFUSED && s.last.port == 9000 && went_to(&s, "192.168.77.2"));
    p[7] = 1; /* a later fragment has no ports */
    flow_parse(data, packet_message(data, sizeof data, p, 28), found, &s);
    CHECK_INT(s.last.port, 0);
    p[7] = 0;
    p[0] = 0x4f; /* options that are not there */
    flow_parse(data, packet_message(data, sizeof data, p, 28), found, &s);
    CHECK_INT(s.last.port, 0);
    CHECK_INT(s.count, 3);
    p[0] = 0x65; /* too short for that */
    flow_parse(data, packet_message(data, sizeof data, p, 28), found, &s);
    p[0] = 0x45;
    flow_parse(data, packet_message(data, sizeof data, p, 19), found, &s);
    CHECK_INT(s.count, 3);
}

TEST(the_same_of_ipv6)
{
    _Alignas(4) char data[1024];
    struct nl_buf b;
    struct seen s = {0};
    struct nfgenmsg head = {.nfgen_family = AF_INET6};
    const uint8_t protocol = IPPROTO_TCP;
    const uint16_t port = htons(443);
    struct ip from, to;
    REQUIRE(ip_parse("fd51:11ca:2130::ad5:1", &from) && ip_parse("2606:4700::1111", &to));
    nl_init(&b, data, sizeof data);
    nl_begin(&b, NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_NEW, 0, &head, sizeof head);
    size_t tuple = nl_nest(&b, CTA_TUPLE_ORIG), ip = nl_nest(&b, CTA_TUPLE_IP);
    nl_put(&b, CTA_IP_V6_SRC, from.bytes, sizeof from.bytes);
    nl_put(&b, CTA_IP_V6_DST, to.bytes, sizeof to.bytes);
    nl_nest_end(&b, ip);
    size_t proto = nl_nest(&b, CTA_TUPLE_PROTO);
    nl_put(&b, CTA_PROTO_NUM, &protocol, 1);
    nl_put(&b, CTA_PROTO_DST_PORT, &port, sizeof port);
    nl_nest_end(&b, proto);
    nl_nest_end(&b, tuple);
    flow_parse(data, b.len, found, &s);
    CHECK_INT(s.count, 1);
    CHECK(s.last.source == inet_addr("10.213.0.1") && s.last.port == 443 && went_to(&s, "2606:4700::1111"));

    unsigned char p[48] = {0x60, [6] = IPPROTO_UDP, [42] = 0x23, 0x28};
    memcpy(p + 8, from.bytes, sizeof from.bytes);
    memcpy(p + 24, to.bytes, sizeof to.bytes);
    flow_parse(data, packet_message(data, sizeof data, p, sizeof p), found, &s);
    CHECK(s.count == 2 && s.last.kind == FLOW_REFUSED && s.last.port == 9000 &&
          went_to(&s, "2606:4700::1111"));
    CHECK(s.last.source == inet_addr("10.213.0.1"));
    flow_parse(data, packet_message(data, sizeof data, p, 43), found, &s); /* its port is torn off */
    CHECK(s.count == 3 && s.last.port == 0);
    p[6] = IPPROTO_ROUTING; /* headers in between are not followed */
    flow_parse(data, packet_message(data, sizeof data, p, sizeof p), found, &s);
    CHECK(s.count == 4 && s.last.port == 0 && s.last.protocol == IPPROTO_ROUTING);
    flow_parse(data, packet_message(data, sizeof data, p, 39), found, &s);
    p[0] = 0x70;
    flow_parse(data, packet_message(data, sizeof data, p, sizeof p), found, &s);
    CHECK_INT(s.count, 4);
}

struct told {
    size_t count;
    uint32_t sandbox;
    char names[256];
};

static void answer(const struct flow_answer *a, void *arg)
{
    struct told *t = arg;
    char address[IP_TEXT];
    size_t at = strlen(t->names);
    t->count++;
    t->sandbox = a->sandbox;
    (void)snprintf(t->names + at, sizeof t->names - at, "%s=%s ", a->name, ip_text(&a->address, address));
}

static struct told answers_in(const unsigned char *packet, size_t n)
{
    _Alignas(4) char data[1024];
    struct told t = {0};
    flow_parse_answers(data, packet_message(data, sizeof data, packet, n), answer, &t);
    return t;
}

TEST(answers_of_name_servers)
{
    /* IPv4, UDP from port 53, and an answer: good.example is far.example, which is 198.51.100.7; somebody
     * else is .8 */
    static const unsigned char packet[] = "\x45\0\0\0\0\0\0\0\x40\x11\0\0\x09\x09\x09\x09\x0a\xd5\0\x01"
                                          "\0\x35\x80\0\0\0\0\0"
                                          "\x12\x34\x81\x80\0\x01\0\x03\0\0\0\0"
                                          "\x04GOOD\x07"
                                          "example\0\0\x01\0\x01"
                                          "\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x06\x03"
                                          "far\xc0\x11"
                                          "\xc0\x2a\0\x01\0\x01\0\0\0\x3c\0\x04\xc6\x33\x64\x07"
                                          "\x04"
                                          "evil\0\0\x01\0\x01\0\0\0\x3c\0\x04\xc6\x33\x64\x08";
    unsigned char p[sizeof packet - 1];
    memcpy(p, packet, sizeof p);
    struct told t = answers_in(p, sizeof p);
    CHECK_INT(t.count, 1);
    CHECK_STREQ(t.names, "good.example=198.51.100.7 ");
    CHECK(t.sandbox == inet_addr("10.213.0.1"));
    for (size_t n = 0; n < sizeof p; n++)
        CHECK(answers_in(p, n).count <= 1); /* torn anywhere */
    p[30] = 0x01;                           /* a question is not an answer */
    CHECK_INT(answers_in(p, sizeof p).count, 0);
    p[30] = 0x81;
    p[9] = 6; /* nor is what comes over TCP read */
    CHECK_INT(answers_in(p, sizeof p).count, 0);
    p[9] = 0x11;
    p[0] = 0x4f;
    CHECK_INT(answers_in(p, sizeof p).count, 0);
    p[0] = 0x65;
    CHECK_INT(answers_in(p, sizeof p).count, 0);
}
