/* SPDX-License-Identifier: Apache-2.0 */
/* test_resolver.c: what a resolver answers, and what it lets a sandbox reach because of it. */
#include "gateway/resolver_internal.h"
#include "test.h"

#include <arpa/inet.h>
#include <string.h>

struct fixture {
    struct loop *loop;
    struct resolver *r;
    bool ipv6;
    size_t refused;
    char why[64];
    struct ip address;
};

static void refused(void *arg, const char *name, const struct ip *address, const char *why)
{
    struct fixture *f = arg;
    (void)name;
    f->refused++;
    f->address = address ? *address : (struct ip){0};
    (void)snprintf(f->why, sizeof f->why, "%s", why);
}

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

static const char *name_of(const struct fixture *f, const char *address)
{
    struct ip a = ip(address);
    return resolver_name(f->r, &a);
}

static void begin(struct fixture *f, const char *list)
{
    struct error e;
    struct allow_list *l = NULL;
    *f = (struct fixture){.ipv6 = f->ipv6};
    REQUIRE(loop_new(&f->loop, &e) == 0 && allow_list_parse(list, &l, &e) == 0);
    struct resolver_config config = {
        .loop = f->loop, .id = "x", .ipv6 = f->ipv6, .refused = refused, .arg = f};
    f->r = resolver_new(&config, l);
    REQUIRE(f->r);
}

static void end(struct fixture *f)
{
    resolver_free(f->r);
    loop_free(f->loop);
}

static bool judge(struct fixture *f, const char *name, uint16_t type, struct resolver_answer *a)
{
    struct dns_query q = {.type = type, .class = DNS_CLASS_IN};
    (void)snprintf(q.name, sizeof q.name, "%s", name);
    return resolver_judge(f->r, &q, a);
}

/* ---- answers of the host's resolvers, written by hand */

struct packet {
    unsigned char data[1024];
    size_t len, sent_len;
    unsigned char sent[512];
};

static void put_name(struct packet *p, const char *name)
{
    while (*name) {
        size_t n = strcspn(name, ".");
        p->data[p->len++] = (unsigned char)n;
        memcpy(p->data + p->len, name, n);
        p->len += n;
        name += n + (name[n] == '.');
    }
    p->data[p->len++] = 0;
}

static void put_record(struct packet *p, const char *owner, uint16_t type, uint32_t ttl, const char *value)
{
    struct ip address;
    put_name(p, owner);
    const unsigned char head[] = {
        0, (unsigned char)type, 0, 1, 0, 0, (unsigned char)(ttl >> 8), (unsigned char)ttl, 0, 0};
    memcpy(p->data + p->len, head, sizeof head);
    p->len += sizeof head;
    size_t at = p->len;
    if (type == DNS_TYPE_A || type == DNS_TYPE_AAAA) {
        size_t n = type == DNS_TYPE_A ? 4 : 16;
        REQUIRE(inet_pton(type == DNS_TYPE_A ? AF_INET : AF_INET6, value, address.bytes) == 1);
        memcpy(p->data + p->len, address.bytes, n);
        p->len += n;
    } else {
        put_name(p, value);
    }
    p->data[at - 1] = (unsigned char)(p->len - at);
    p->data[7]++;
}

static void reply_begin(struct packet *p, const char *name, int rcode)
{
    *p = (struct packet){0};
    p->sent_len = dns_query_write(0x1234, name, DNS_TYPE_A, p->sent, sizeof p->sent);
    REQUIRE(p->sent_len);
    p->data[0] = 0x12;
    p->data[1] = 0x34;
    p->data[2] = 0x81;
    p->data[3] = (unsigned char)(0x80 | rcode);
    p->data[5] = 1;
    p->len = DNS_HEADER_BYTES;
    put_name(p, name);
    const unsigned char tail[] = {0, 1, 0, 1};
    memcpy(p->data + p->len, tail, sizeof tail);
    p->len += sizeof tail;
}

static void digest_type(struct fixture *f, const char *name, uint16_t type, const struct packet *p,
                        struct resolver_answer *a, struct keeper_policy *rules)
{
    struct dns_reply reply;
    struct dns_query q = {.type = type, .class = DNS_CLASS_IN};
    (void)snprintf(q.name, sizeof q.name, "%s", name);
    if (p)
        REQUIRE(dns_reply_open(p->data, p->len, p->sent, p->sent_len, &reply) == 0);
    resolver_digest(f->r, &q, p ? &reply : NULL, a, rules);
}

static void digest(struct fixture *f, const char *name, const struct packet *p, struct resolver_answer *a,
                   struct keeper_policy *rules)
{
    digest_type(f, name, DNS_TYPE_A, p, a, rules);
}

TEST(what_is_not_listed_does_not_exist)
{
    struct fixture f = {0};
    struct resolver_answer a;
    begin(&f, "good.example");
    CHECK(judge(&f, "evil.example", DNS_TYPE_A, &a) && a.rcode == DNS_NO_NAME && f.refused == 1);
    CHECK_STREQ(f.why, "not on the list");
    CHECK(judge(&f, "good.example", DNS_TYPE_AAAA, &a) && a.rcode == DNS_OK && a.count == 0);
    CHECK(judge(&f, "good.example", 16, &a) && a.rcode == DNS_OK && a.count == 0); /* TXT */
    CHECK(!judge(&f, "good.example", DNS_TYPE_A, &a));
    end(&f);
}

TEST(questions_are_counted)
{
    struct fixture f = {0};
    struct resolver_answer a;
    size_t passed = 0;
    begin(&f, "*");
    for (int i = 0; i < 500; i++)
        passed += !judge(&f, "a.example", DNS_TYPE_A, &a);
    CHECK(passed == 100);
    CHECK(a.rcode == DNS_REFUSED && f.refused == 400);
    CHECK_STREQ(f.why, "too many questions");
    end(&f);
}

TEST(an_answer_opens_its_addresses_on_the_listed_ports)
{
    struct fixture f = {0};
    struct resolver_answer a;
    struct keeper_policy rules;
    struct packet p;
    begin(&f, "good.example:80\ngood.example:443");
    reply_begin(&p, "good.example", DNS_OK);
    put_record(&p, "good.example", DNS_TYPE_A, 300, "198.51.100.7");
    put_record(&p, "good.example", DNS_TYPE_A, 100, "198.51.100.8");
    put_record(&p, "evil.example", DNS_TYPE_A, 100, "198.51.100.9"); /* nobody asked */
    digest(&f, "good.example", &p, &a, &rules);
    CHECK(a.rcode == DNS_OK && a.count == 2 && a.addresses[0].ttl <= 100);
    CHECK(rules.rule_count == 4 && rules.seconds == 160);
    CHECK(is(&rules.rules[0].address, "198.51.100.7") && rules.rules[0].port == 80 &&
          rules.rules[1].port == 443 && is(&rules.rules[3].address, "198.51.100.8"));
    CHECK_STREQ(name_of(&f, "198.51.100.8"), "good.example");
    CHECK(!name_of(&f, "198.51.100.9"));
    CHECK(judge(&f, "good.example", DNS_TYPE_A, &a) && a.count == 2); /* remembered */
    struct allow_list *other = NULL;
    REQUIRE(allow_list_parse("other.example", &other, NULL) == 0);
    resolver_use(f.r, other);
    CHECK(!name_of(&f, "198.51.100.8"));
    CHECK(judge(&f, "good.example", DNS_TYPE_A, &a) && a.rcode == DNS_NO_NAME);
    end(&f);
}

TEST(private_addresses_are_left_out)
{
    struct fixture f = {0};
    struct resolver_answer a;
    struct keeper_policy rules;
    struct packet p;
    begin(&f, "good.example\n10.1.0.0/16");
    reply_begin(&p, "good.example", DNS_OK);
    put_record(&p, "good.example", DNS_TYPE_A, 10, "192.168.0.1");
    put_record(&p, "good.example", DNS_TYPE_A, 10, "127.0.0.1");
    put_record(&p, "good.example", DNS_TYPE_A, 10, "169.254.169.254");
    digest(&f, "good.example", &p, &a, &rules);
    CHECK(a.rcode == DNS_OK && a.count == 0 && rules.rule_count == 0 && f.refused == 3);
    CHECK(is(&f.address, "169.254.169.254"));
    put_record(&p, "good.example", DNS_TYPE_A, 10, "10.1.2.3"); /* its network is listed: no rule is needed */
    digest(&f, "good.example", &p, &a, &rules);
    CHECK(a.count == 1 && rules.rule_count == 0);
    end(&f);
}

TEST(chains_end_somewhere)
{
    struct fixture f = {0};
    struct resolver_answer a;
    struct keeper_policy rules;
    struct packet p;
    char from[32] = "good.example", to[32];
    begin(&f, "good.example");
    reply_begin(&p, "good.example", DNS_OK);
    put_record(&p, "good.example", DNS_TYPE_CNAME, 5, "far.example");
    put_record(&p, "far.example", DNS_TYPE_CNAME, 50, "farther.example");
    put_record(&p, "farther.example", DNS_TYPE_A, 500, "198.51.100.7");
    digest(&f, "good.example", &p, &a, &rules);
    CHECK(a.count == 1 && a.addresses[0].ttl <= 5 &&
          rules.seconds == 90);              /* at least half a minute, and one more */
    reply_begin(&p, "good.example", DNS_OK); /* round and round */
    for (int i = 0; i < 20; i++) {
        (void)snprintf(to, sizeof to, "n%d.example", i);
        put_record(&p, from, DNS_TYPE_CNAME, 5, to);
        memcpy(from, to, sizeof from);
    }
    put_record(&p, from, DNS_TYPE_A, 5, "198.51.100.7");
    digest(&f, "good.example", &p, &a, &rules);
    CHECK(a.count == 0 && rules.rule_count == 0);
    reply_begin(&p, "good.example", DNS_NO_NAME);
    digest(&f, "good.example", &p, &a, &rules);
    CHECK(a.rcode == DNS_NO_NAME);
    digest(&f, "good.example", NULL, &a, &rules);
    CHECK(a.rcode == DNS_SERVER_FAILED && rules.rule_count == 0);
    end(&f);
}

TEST(names_in_use_are_bounded)
{
    struct fixture f = {0};
    struct resolver_answer a;
    struct keeper_policy rules;
    struct packet p;
    char name[32];
    begin(&f, "*.example");
    for (int i = 0; i <= RESOLVER_NAMES_MAX; i++) {
        (void)snprintf(name, sizeof name, "n%d.example", i);
        reply_begin(&p, name, DNS_OK);
        put_record(&p, name, DNS_TYPE_A, 600, "198.51.100.7");
        digest(&f, name, &p, &a, &rules);
        CHECK_INT(a.rcode, i < RESOLVER_NAMES_MAX ? DNS_OK : DNS_SERVER_FAILED);
    }
    CHECK_STREQ(f.why, "too many names at a time");
    end(&f);
}

TEST(addresses_of_both_families)
{
    struct fixture f = {.ipv6 = true};
    struct resolver_answer a;
    struct keeper_policy rules;
    struct packet p;
    begin(&f, "good.example:443\nfd12::/16");
    CHECK(!judge(&f, "good.example", DNS_TYPE_AAAA, &a) && !judge(&f, "good.example", DNS_TYPE_A, &a));
    reply_begin(&p, "good.example", DNS_OK);
    put_record(&p, "good.example", DNS_TYPE_A, 300, "198.51.100.7");
    put_record(&p, "good.example", DNS_TYPE_AAAA, 300, "2606:4700::1111");
    put_record(&p, "good.example", DNS_TYPE_AAAA, 300, "fd12::7"); /* its network is listed */
    put_record(&p, "good.example", DNS_TYPE_AAAA, 300, "fd13::7");
    put_record(&p, "good.example", DNS_TYPE_AAAA, 300, "::ffff:10.0.0.1");
    put_record(&p, "good.example", DNS_TYPE_AAAA, 300, "64:ff9b::a00:1");
    put_record(&p, "good.example", DNS_TYPE_AAAA, 300, "fd00:ec2::254");
    digest_type(&f, "good.example", DNS_TYPE_AAAA, &p, &a, &rules);
    CHECK(a.rcode == DNS_OK && a.count == 2 && a.addresses[0].type == DNS_TYPE_AAAA &&
          a.addresses[0].bytes[0] == 0x26 && a.addresses[1].bytes[0] == 0xfd);
    CHECK(rules.rule_count == 1 && is(&rules.rules[0].address, "2606:4700::1111") &&
          rules.rules[0].prefix == 128 && rules.rules[0].port == 443);
    CHECK_INT(f.refused, 3);
    CHECK(is(&f.address, "fd00:ec2::254"));
    CHECK_STREQ(name_of(&f, "2606:4700::1111"), "good.example");
    CHECK(!judge(&f, "good.example", DNS_TYPE_A, &a)); /* one is remembered, the other not asked for yet */
    CHECK(judge(&f, "good.example", DNS_TYPE_AAAA, &a) && a.count == 2);
    digest(&f, "good.example", &p, &a, &rules);
    CHECK(a.count == 1 && is(&rules.rules[0].address, "198.51.100.7"));
    end(&f);
}
