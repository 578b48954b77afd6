/* SPDX-License-Identifier: Apache-2.0 */
/* test_flow_log.c: a log that forgets the oldest, and says what it says in JSON. */
#include "gateway/flow_log.h"
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

TEST(a_log_keeps_the_newest)
{
    struct loop *loop;
    struct error e;
    REQUIRE(loop_new(&loop, &e) == 0);
    struct flow_log *l = flow_log_new(loop);
    struct flow f = {.kind = FLOW_CLOSE,
                     .protocol = IPPROTO_TCP,
                     .destination = ip_from_v4(inet_addr("198.51.100.7")),
                     .sent = 5};
    REQUIRE(l);
    for (int i = 1; i <= FLOW_LOG_KEPT + 100; i++) {
        char name[32];
        struct buf out = BUF_INIT(1 << 20);
        struct json_writer w;
        auto_json struct json_doc *doc = NULL;
        (void)snprintf(name, sizeof name, "n%d.example", i);
        f.port = (uint16_t)i;
        flow_log_add(l, &f, name, NULL);
        if (i > 40 && i % 100)
            continue;
        json_writer_init(&w, &out);
        flow_log_put_json(l, &w);
        REQUIRE(w.err == 0 && buf_cstr(&out) && json_parse(buf_data(&out), buf_len(&out), 0, &doc, &e) == 0);
        int expected = i < FLOW_LOG_KEPT ? i : FLOW_LOG_KEPT, number = i - expected;
        CHECK_INT(json_count(json_root(doc)), expected);
        json_for_each (v, json_root(doc)) {
            int64_t port = 0, sent = 0;
            (void)snprintf(name, sizeof name, "n%d.example", ++number);
            CHECK_STREQ(json_string(json_get(v, "name"), NULL), name);
            CHECK(json_integer(json_get(v, "port"), 0, 65535, &port) && port == number);
            CHECK(json_integer(json_get(v, "bytesSent"), 0, 65535, &sent) && sent == 5);
        }
        buf_done(&out);
    }
    flow_log_free(l);
    loop_free(loop);
}

TEST(entries_say_what_happened)
{
    struct loop *loop;
    struct error e;
    struct buf out = BUF_INIT(1 << 16);
    struct json_writer w;
    REQUIRE(loop_new(&loop, &e) == 0);
    struct flow_log *l = flow_log_new(loop);
    REQUIRE(l);
    flow_log_add_name(l, "evil.example", NULL, "not on the list");
    flow_log_add(l,
                 &(struct flow){.kind = FLOW_REFUSED,
                                .protocol = IPPROTO_ICMP,
                                .destination = ip_from_v4(inet_addr("10.0.0.1"))},
                 NULL, "a private address");
    flow_log_add(
        l,
        &(struct flow){.kind = FLOW_OPEN, .protocol = 200, .destination = ip_from_v4(inet_addr("9.9.9.9"))},
        NULL, NULL);
    struct ip v6;
    REQUIRE(ip_parse("2606:4700::1111", &v6));
    flow_log_add(l, &(struct flow){.kind = FLOW_OPEN, .protocol = IPPROTO_ICMPV6, .destination = v6}, NULL,
                 NULL);
    json_writer_init(&w, &out);
    flow_log_put_json(l, &w);
    REQUIRE(w.err == 0 && buf_cstr(&out));
    CHECK(strstr(buf_data(&out), "\"address\":\"2606:4700::1111\",\"protocol\":\"icmpv6\"}"));
    CHECK(strstr(buf_data(&out),
                 "\"event\":\"name\",\"verdict\":\"deny\",\"name\":\"evil.example\",\"reason\""));
    CHECK(strstr(buf_data(&out),
                 "\"event\":\"packet\",\"verdict\":\"deny\",\"address\":\"10.0.0.1\",\"protocol\":\"icmp\","
                 "\"reason\":\"a private address\"}"));
    CHECK(strstr(buf_data(&out),
                 "\"event\":\"open\",\"verdict\":\"allow\",\"address\":\"9.9.9.9\",\"protocol\":\"200\"}"));
    buf_done(&out);
    flow_log_free(l);
    loop_free(loop);
}
