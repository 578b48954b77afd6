/* SPDX-License-Identifier: Apache-2.0 */
/* test_egress.c: the settings of a sidecar, and its pace. What moves is tested in tests/e2e/test_egress.py.
 */
#include "gateway/egress_internal.h"
#include "test.h"

#include <errno.h>

static struct egress *made(void)
{
    struct egress *e = NULL;
    struct error err = {0};
    CHECK_INT(egress_new(NULL, NULL, NULL, &e, &err), 0);
    return e;
}

/* Without a loop there is nothing to detach from. */
static void unmake(struct egress *e)
{
    struct error err;
    struct loop *loop;
    CHECK_INT(loop_new(&loop, &err), 0);
    e->loop = loop;
    egress_free(e);
    loop_free(loop);
}

static void put(struct egress *e, const char *json, int expected)
{
    struct error err = {0};
    CHECK_INT(egress_put(e, json, strlen(json), &err), expected);
    CHECK(expected == 0 || err.msg[0]);
}

static void is(const struct egress *e, const char *expected)
{
    struct buf text = BUF_INIT(1 << 20);
    struct json_writer w;
    json_writer_init(&w, &text);
    egress_describe(e, &w);
    CHECK_STREQ(buf_cstr(&text), expected);
    buf_done(&text);
}

TEST(what_is_not_said_stays)
{
    struct egress *e = made();
    is(e, "{\"internet\":{\"enabled\":true},\"dns\":{\"allowHostnames\":[]}}");
    put(e, "{\"port\":4711,\"internet\":{\"enabled\":false},\"dns\":{\"allowHostnames\":[\"*.a\",\"b\"]}}",
        0);
    static const char all[] =
        "{\"port\":4711,\"internet\":{\"enabled\":false},\"dns\":{\"allowHostnames\":[\"*.a\",\"b\"]}}";
    is(e, all);
    put(e, "{}", 0);
    put(e, "{\"port\":null,\"internet\":{},\"dns\":{\"more\":1},\"other\":[]}", 0);
    is(e, all);
    put(e, all, 0); /* what it tells it understands */
    is(e, all);
    put(e, "{\"dns\":{\"allowHostnames\":[]}}", 0);
    is(e, "{\"port\":4711,\"internet\":{\"enabled\":false},\"dns\":{\"allowHostnames\":[]}}");
    unmake(e);
}

TEST(all_or_nothing)
{
    struct egress *e = made();
    put(e, "{\"port\":1024}", 0);
    static const char before[] =
        "{\"port\":1024,\"internet\":{\"enabled\":true},\"dns\":{\"allowHostnames\":[]}}";
    static const char *const bad[] = {
        "",
        "{\"port\":2000",
        "[1]",
        "{\"port\":2000,\"internet\":{\"enabled\":\"no\"}}",
        "{\"port\":2000,\"dns\":{\"allowHostnames\":[\"ok\",\"not ok\"]}}",
        "{\"port\":2000,\"dns\":{\"allowHostnames\":{\"a\":1}}}",
        "{\"port\":1.5}",
        "{\"port\":-1}",
        "{\"port\":1023}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        put(e, bad[i], -EINVAL);
        is(e, before);
    }
    unmake(e);
}

TEST(too_many_names)
{
    struct egress *e = made();
    struct error err = {0};
    static const char *names[EGRESS_HOSTNAMES_MAX + 1];
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        names[i] = "x.test";
    struct egress_settings s = {.internet = -1, .hostnames = names, .hostname_count = EGRESS_HOSTNAMES_MAX};
    CHECK_INT(egress_change(e, &s, &err), 0);
    s.hostname_count++;
    CHECK_INT(egress_change(e, &s, &err), -EINVAL);
    unmake(e);
}

TEST(a_burst_and_then_so_many_per_second)
{
    struct egress_pace p = {0};
    int64_t now = 5000000000;
    int got = 0;
    for (int i = 0; i < 1000; i++)
        got += egress_pace_take(&p, now, 200, 256);
    CHECK_INT(got, 256);
    for (got = 0; now < 5001000000; now += 1000)
        got += egress_pace_take(&p, now, 200, 256);
    CHECK_INT(got, 199);
    now += 100000000; /* however long nothing comes */
    for (got = 0; got < 1000 && egress_pace_take(&p, now, 200, 256); got++)
        ;
    CHECK_INT(got, 256);
}
