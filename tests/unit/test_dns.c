/* SPDX-License-Identifier: Apache-2.0 */
/* test_dns.c: DNS packets of sandboxes and resolvers. */
#include "net/dns.h"
#include "test.h"

#include <errno.h>

#define QUESTION                "\3WWW\7Example\3org\0\0\1\0\1"
#define HEAD(flags, qd, an, ar) "\x12\x34" flags "\0" qd "\0" an "\0\0\0" ar
#define PLAIN                   HEAD("\1\0", "\1", "\0", "\0") QUESTION
#define OPT                     "\0\0\x29\x04\xd0\0\0\0\0\0\0"

static int parse(const char *packet, size_t n, struct dns_query *q)
{
    int id;
    return dns_query_parse(packet, n, q, &id);
}
/* the text is not part of what a failed check prints: it is too long */
#define PARSE_IS(text, q, expected)                \
    do {                                           \
        int r_ = parse(text, sizeof(text) - 1, q); \
        REQUIRE(r_ == (expected));                 \
    } while (0)

TEST(a_query)
{
    struct dns_query q;
    PARSE_IS(PLAIN, &q, 0);
    CHECK_STREQ(q.name, "www.example.org");
    CHECK_INT(q.id, 0x1234);
    CHECK_INT(q.type, DNS_TYPE_A);
    CHECK_INT(q.class, DNS_CLASS_IN);
    CHECK(q.recursion_desired && !q.edns);
    CHECK_INT(q.room, DNS_PLAIN_MAX);
    CHECK_INT(q.question_len, sizeof QUESTION - 1);
}

TEST(a_query_with_edns)
{
    struct dns_query q;
    PARSE_IS(HEAD("\0\0", "\1", "\0", "\1") QUESTION OPT, &q, 0);
    CHECK(q.edns && !q.recursion_desired);
    CHECK_INT(q.room, 1232);
    /* an option inside (a cookie), and a size that is too small to be meant */
    PARSE_IS(HEAD("\0\0", "\1", "\0", "\1") QUESTION "\0\0\x29\0\x10\0\0\0\0\0\x0c\0\x0a\0\x08"
                                                     "12345678",
             &q, 0);
    CHECK_INT(q.room, DNS_PLAIN_MAX);
}

TEST(the_root_is_a_name)
{
    struct dns_query q;
    PARSE_IS(HEAD("\1\0", "\1", "\0", "\0") "\0\0\2\0\1", &q, 0);
    CHECK_STREQ(q.name, "");
}

TEST(what_is_no_query)
{
    struct dns_query q;
    int id;
    static const char *const silent[] = {"", "\x12\x34\1\0"};
    for (size_t i = 0; i < ARRAY_SIZE(silent); i++) {
        CHECK_INT(dns_query_parse(silent[i], 4 * i, &q, &id), -EBADMSG);
        CHECK_INT(id, -1);
    }
    /* an answer is not answered */
    static const char answer[] = HEAD("\x81\0", "\1", "\0", "\0") QUESTION;
    CHECK_INT(dns_query_parse(answer, sizeof answer - 1, &q, &id), -EBADMSG);
    CHECK_INT(id, -1);

#define REFUSED(text)                                              \
    do {                                                           \
        int r_ = dns_query_parse(text, sizeof(text) - 1, &q, &id); \
        CHECK_INT(r_, -EBADMSG);                                   \
        CHECK_INT(id, 0x1234);                                     \
    } while (0)
    REFUSED(HEAD("\1\0", "\0", "\0", "\0"));                    /* no question */
    REFUSED(HEAD("\1\0", "\2", "\0", "\0") QUESTION QUESTION);  /* two */
    REFUSED(HEAD("\1\0", "\1", "\1", "\0") QUESTION);           /* an answer */
    REFUSED(HEAD("\x28\0", "\1", "\0", "\0") QUESTION);         /* an update */
    REFUSED(HEAD("\1\0", "\1", "\0", "\0") QUESTION "x");       /* bytes behind it */
    REFUSED(HEAD("\1\0", "\1", "\0", "\1") QUESTION);           /* EDNS is missing */
    REFUSED(HEAD("\1\0", "\1", "\0", "\1") QUESTION OPT "x");   /* ... or longer than told */
    REFUSED(HEAD("\1\0", "\1", "\0", "\0") "\3www\0\0\1\0");    /* cut off */
    REFUSED(HEAD("\1\0", "\1", "\0", "\0") "\3www");            /* no end */
    REFUSED(HEAD("\1\0", "\1", "\0", "\0") "\3w.w\0\0\1\0\1");  /* a dot in a label */
    REFUSED(HEAD("\1\0", "\1", "\0", "\0") "\3w\0w\0\0\1\0\1"); /* a zero */
    REFUSED(HEAD("\1\0", "\1", "\0", "\0") "\3w w\0\0\1\0\1");  /* a space */
    REFUSED(HEAD("\1\0", "\1", "\0", "\0") "\xc0\x0c\0\1\0\1"); /* a pointer */
    REFUSED(HEAD("\1\0", "\1", "\0", "\0") "\x40"               /* a label of 64 */
                                           "x\0\0\1\0\1");
#undef REFUSED
}

TEST(names_end_at_their_limit)
{
    unsigned char packet[400];
    struct dns_query q;
    for (int last = 60; last <= 63; last++) { /* 3 * 63 + 3 dots + 61 = 253 */
        size_t n = dns_query_write(7, "x", DNS_TYPE_A, packet, sizeof packet), at = DNS_HEADER_BYTES;
        REQUIRE(n);
        packet[11] = 0; /* no EDNS */
        for (int i = 0; i < 4; i++) {
            int len = i < 3 ? 63 : last;
            packet[at++] = (unsigned char)len;
            memset(packet + at, 'a', (size_t)len);
            at += (size_t)len;
        }
        memcpy(packet + at, "\0\0\1\0\1", 5);
        CHECK_INT(parse((char *)packet, at + 5, &q), last <= 61 ? 0 : -EBADMSG);
    }
}

TEST(every_prefix_of_a_query_is_refused)
{
    static const char whole[] = HEAD("\0\0", "\1", "\0", "\1") QUESTION OPT;
    struct dns_query q;
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        char *copy = malloc(n + 1); /* so that a read behind its end is seen */
        memcpy(copy, whole, n);
        CHECK_INT(parse(copy, n, &q), -EBADMSG);
        free(copy);
    }
}

TEST(writing_a_query)
{
    unsigned char out[DNS_PACKET_MAX];
    struct dns_query q;
    size_t n = dns_query_write(0x4242, "a.b-c.example", DNS_TYPE_AAAA, out, sizeof out);
    REQUIRE(n && parse((char *)out, n, &q) == 0);
    CHECK_STREQ(q.name, "a.b-c.example");
    CHECK_INT(q.type, DNS_TYPE_AAAA);
    CHECK_INT(q.room, DNS_EDNS_MAX);
    CHECK_INT(dns_query_write(1, "a..b", DNS_TYPE_A, out, sizeof out), 0);
    CHECK_INT(dns_query_write(1, ".a", DNS_TYPE_A, out, sizeof out), 0);
    CHECK_INT(dns_query_write(1, "a.", DNS_TYPE_A, out, sizeof out), 0);
    CHECK_INT(dns_query_write(1, "a.b-c.example", DNS_TYPE_A, out, 20), 0);
    char label[66];
    memset(label, 'x', 64);
    label[64] = '\0';
    CHECK_INT(dns_query_write(1, label, DNS_TYPE_A, out, sizeof out), 0);
}

TEST(passing_a_query_on)
{
    static const char with_cookie[] =
        HEAD("\1\x10", "\1", "\0", "\1") QUESTION "\0\0\x29\x10\0\0\0\0\0\0\x0c\0\x0a\0\x08"
                                                  "12345678";
    unsigned char out[DNS_PACKET_MAX];
    struct dns_query q, again;
    PARSE_IS(with_cookie, &q, 0);
    size_t n = dns_query_forward(with_cookie, &q, 9, out, sizeof out);
    REQUIRE(n && parse((char *)out, n, &again) == 0);
    CHECK_INT(again.id, 9);
    CHECK_STREQ(again.name, q.name);
    CHECK(again.edns && again.room == DNS_EDNS_MAX && again.recursion_desired);
    CHECK(memcmp(out + DNS_HEADER_BYTES, QUESTION, sizeof QUESTION - 1) == 0); /* letters as they were */
    CHECK_INT(n, DNS_HEADER_BYTES + sizeof QUESTION - 1 + 11);                 /* no cookie */
}

TEST(writing_an_answer)
{
    unsigned char out[DNS_PACKET_MAX];
    struct dns_query q;
    struct dns_reply reply;
    struct dns_record record;
    struct dns_address a = {.type = DNS_TYPE_A, .ttl = 0x010203, .bytes = {11, 0, 0, 1}};
    static const char packet[] = HEAD("\1\0", "\1", "\0", "\1") QUESTION OPT;
    PARSE_IS(packet, &q, 0);
    size_t n = dns_answer_write(packet, &q, DNS_OK, &a, 1, out, sizeof out);
    REQUIRE(n && dns_reply_open(out, n, packet, sizeof packet - 1, &reply) == 0);
    CHECK_INT(reply.rcode, DNS_OK);
    CHECK(!reply.truncated);
    REQUIRE(dns_reply_next(&reply, &record) == 1);
    CHECK_STREQ(record.name, "www.example.org");
    CHECK_INT(record.ttl, 0x010203);
    CHECK_INT(record.data_len, 4);
    CHECK(memcmp(record.data, "\x0b\0\0\1", 4) == 0);
    CHECK_INT(dns_reply_next(&reply, &record), 0);

    n = dns_answer_write(packet, &q, DNS_NO_NAME, NULL, 0, out, sizeof out);
    REQUIRE(n && dns_reply_open(out, n, packet, sizeof packet - 1, &reply) == 0);
    CHECK_INT(reply.rcode, DNS_NO_NAME);
    CHECK_INT(dns_reply_next(&reply, &record), 0);
}

TEST(an_answer_that_is_too_long_is_cut)
{
    unsigned char out[DNS_PACKET_MAX];
    struct dns_query q;
    struct dns_reply reply;
    struct dns_record record;
    struct dns_address many[200];
    for (size_t i = 0; i < ARRAY_SIZE(many); i++)
        many[i] = (struct dns_address){.type = i % 2 ? DNS_TYPE_AAAA : DNS_TYPE_A};
    PARSE_IS(PLAIN, &q, 0);
    static const char packet[] = PLAIN;
    size_t n = dns_answer_write(packet, &q, DNS_OK, many, ARRAY_SIZE(many), out, sizeof out);
    REQUIRE(n && n <= DNS_PLAIN_MAX && dns_reply_open(out, n, packet, sizeof packet - 1, &reply) == 0);
    CHECK(reply.truncated);
    int r, count = 0;
    while ((r = dns_reply_next(&reply, &record)) == 1)
        count++;
    CHECK_INT(r, 0);
    CHECK(count > 10 && count < 100);
}

#define SENT      PLAIN
#define REPLY(an) HEAD("\x81\x80", "\1", an, "\0") "\3www\7example\3ORG\0\0\1\0\1"
#define OPEN_IS(text, reply, expected)                                                  \
    do {                                                                                \
        int r_ = dns_reply_open(text, sizeof(text) - 1, SENT, sizeof(SENT) - 1, reply); \
        REQUIRE(r_ == (expected));                                                      \
    } while (0)

TEST(an_answer_must_be_to_the_question)
{
    struct dns_reply r;
    OPEN_IS(REPLY("\0"), &r, 0);
    OPEN_IS("\x12\x35\x81\x80\0\1\0\0\0\0\0\0" QUESTION, &r, -EBADMSG); /* another id */
    OPEN_IS(HEAD("\1\0", "\1", "\0", "\0") QUESTION, &r, -EBADMSG);     /* a query */
    OPEN_IS(HEAD("\x81\0", "\1", "\0", "\0") "\3www\7examplf\3org\0\0\1\0\1", &r, -EBADMSG);
    OPEN_IS(HEAD("\x81\0", "\1", "\0", "\0") "\3www\7example\3org\0\0\x1c\0\1", &r, -EBADMSG);
    OPEN_IS(HEAD("\x81\0", "\0", "\0", "\0"), &r, -EBADMSG);
}

TEST(a_chain_of_names)
{
    static const char packet[] = REPLY("\2") "\xc0\x0c\0\5\0\1\0\0\0\x3c\0\6\3cdn\xc0\x10"
                                             "\xc0\x2d\0\1\0\1\0\0\0\x3c\0\4\1\2\3\4";
    struct dns_reply r;
    struct dns_record record;
    OPEN_IS(packet, &r, 0);
    REQUIRE(dns_reply_next(&r, &record) == 1);
    CHECK_STREQ(record.name, "www.example.org");
    CHECK_INT(record.type, DNS_TYPE_CNAME);
    CHECK_STREQ(record.target, "cdn.example.org");
    REQUIRE(dns_reply_next(&r, &record) == 1);
    CHECK_STREQ(record.name, "cdn.example.org");
    CHECK(record.data_len == 4 && memcmp(record.data, "\1\2\3\4", 4) == 0);
    CHECK_INT(dns_reply_next(&r, &record), 0);
}

TEST(pointers_that_go_nowhere)
{
    struct dns_reply r;
    struct dns_record record;
#define BAD(text)                                         \
    do {                                                  \
        OPEN_IS(text, &r, 0);                             \
        CHECK_INT(dns_reply_next(&r, &record), -EBADMSG); \
    } while (0)
    BAD(REPLY("\1") "\xc0\x21\0\1\0\1\0\0\0\0\0\4\1\2\3\4");    /* to itself */
    BAD(REPLY("\1") "\xc0\x23\0\1\0\1\0\0\0\0\0\4\1\2\3\4");    /* forwards */
    BAD(REPLY("\1") "\1a\xc0\x21\0\1\0\1\0\0\0\0\0\4\1\2\3\4"); /* around and around */
    BAD(REPLY("\1") "\xc0\x02\0\1\0\1\0\0\0\0\0\4\1\2\3\4");    /* into the header */
    BAD(REPLY("\1") "\xc0");                                    /* half of one */
    BAD(REPLY("\1") "\xc0\x0c\0\1\0\1\0\0\0\0\0\5\1\2\3\4");    /* data longer than the packet */
    BAD(REPLY("\1") "\xc0\x0c\0\5\0\1\0\0\0\0\0\3\1a\xc0\x0c"); /* a CNAME longer than its data */
    BAD(REPLY("\1"));                                           /* a record that is not there */
#undef BAD
}

TEST(globs_of_names)
{
    static const struct {
        const char *glob, *name;
        bool matches;
    } rows[] = {
        {"*", "", true},
        {"*", "a.b.c", true},
        {"*.example.org", "www.example.org", true},
        {"*.example.org", "a.b.example.org", true},
        {"*.example.org", "example.org", false},
        {"*.example.org", "www.example.org.evil", false},
        {"example.org", "example.org", true},
        {"example.org", "xexample.org", false},
        {"api-*.test", "api-1.test", true},
        {"api-*.test", "api-.test", true},
        {"a*b*c", "aXbYbc", true},
        {"a*b*c", "aXbYb", false},
        {"", "a", false},
        {"", "", true},
        {"**", "x", true},
        {"*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        CHECK_INT(dns_name_matches(rows[i].glob, rows[i].name), rows[i].matches);
}
