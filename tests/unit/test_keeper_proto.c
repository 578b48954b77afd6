/* SPDX-License-Identifier: Apache-2.0 */
/* test_keeper_proto.c: messages between gateway and keeper, checked as if an enemy had sent them. */
#include "keeper/proto.h"
#include "test.h"

#include <errno.h>

static struct keeper_request start_request(void)
{
    struct keeper_request r = {
        .version = KEEPER_PROTO_VERSION, .type = KEEPER_START, .seq = 1, .id = "a", .image = "base"};
    r.limits = instance_types[0].limits;
    return r;
}

static struct keeper_reply a_reply(void)
{
    return (struct keeper_reply){.version = KEEPER_PROTO_VERSION, .type = KEEPER_REPLY, .seq = 1, .id = "a"};
}

TEST(request_of_each_type)
{
    for (uint32_t type = KEEPER_START; type < KEEPER_TYPE_COUNT; type++) {
        struct keeper_request r = start_request();
        r.type = type;
        if (type != KEEPER_START)
            r.image[0] = '\0';
        if (type == KEEPER_LIST)
            r.id[0] = '\0';
        CHECK_INT(keeper_request_check(&r, sizeof r), 0);
    }
}

TEST(request_of_a_wrong_size)
{
    char room[sizeof(struct keeper_request) + 8] = {0};
    struct keeper_request r = start_request();
    memcpy(room, &r, sizeof r);
    for (size_t n = 0; n <= sizeof room; n++)
        CHECK_INT(keeper_request_check(room, n), n == sizeof r ? 0 : -EBADMSG);
    memcpy(room + 1, &r, sizeof r); /* at an odd address */
    CHECK_INT(keeper_request_check(room + 1, sizeof r), 0);
}

TEST(request_with_bad_fields)
{
    struct keeper_request good = start_request(), r;
#define REFUSED(change)                                          \
    do {                                                         \
        r = good;                                                \
        change;                                                  \
        CHECK_INT(keeper_request_check(&r, sizeof r), -EBADMSG); \
    } while (0)
    REFUSED(r.version++);
    REFUSED(r.version = 0);
    REFUSED(r.type = 0);
    REFUSED(r.type = KEEPER_TYPE_COUNT);
    REFUSED(r.type = KEEPER_REPLY);
    REFUSED(r.type = UINT32_MAX);
    REFUSED(r.seq = 0);
    REFUSED(r.network = KEEPER_NETWORK_COUNT);
    REFUSED(r.network = UINT32_MAX);
    REFUSED(r.reserved = 1);
    REFUSED((r.type = KEEPER_STOP, r.image[0] = '\0', r.network = KEEPER_NETWORK_NONE));
    REFUSED(memset(r.id, 'a', sizeof r.id));
    REFUSED(memset(r.image, 'a', sizeof r.image));
    REFUSED(r.id[0] = '\0');
    REFUSED(strcpy(r.id, "../x"));
    REFUSED(strcpy(r.id, "a/b"));
    REFUSED(strcpy(r.id, "api"));
    REFUSED(r.image[0] = '\0');
    REFUSED(strcpy(r.image, ".."));
    REFUSED(strcpy(r.image, "a/b"));
    REFUSED(r.limits.memory_bytes = 0);
    REFUSED(r.limits.memory_bytes = UINT64_MAX);
    REFUSED(r.limits.tasks = 0);
    REFUSED(r.limits.cpu_milli = UINT32_MAX);
    REFUSED(r.type = KEEPER_STOP);                      /* with an image */
    REFUSED((r.type = KEEPER_LIST, r.image[0] = '\0')); /* with an id */
#undef REFUSED
}

TEST(reply_of_each_type)
{
    struct keeper_reply r = a_reply();
    CHECK_INT(keeper_reply_check(&r, sizeof r), 0);
    r.id[0] = '\0';
    CHECK_INT(keeper_reply_check(&r, sizeof r), 0);
    r = a_reply();
    r.type = KEEPER_ITEM;
    r.state = KEEPER_STATE_RUNNING;
    r.generation = 5;
    CHECK_INT(keeper_reply_check(&r, sizeof r), 0);
    r.type = KEEPER_EVENT_EXIT;
    r.seq = 0;
    CHECK_INT(keeper_reply_check(&r, sizeof r), 0);
    r.type = KEEPER_EVENT_DURABLE;
    r.generation = 0;
    CHECK_INT(keeper_reply_check(&r, sizeof r), 0);
}

TEST(reply_with_bad_fields)
{
    struct keeper_reply good = a_reply(), r;
#define REFUSED(change)                                        \
    do {                                                       \
        r = good;                                              \
        change;                                                \
        CHECK_INT(keeper_reply_check(&r, sizeof r), -EBADMSG); \
    } while (0)
    REFUSED(r.version++);
    REFUSED(r.type = 0);
    REFUSED(r.type = KEEPER_START);
    REFUSED(r.type = KEEPER_EVENT_DURABLE + 1);
    REFUSED(r.seq = 0);
    REFUSED(r.state = KEEPER_STATE_COUNT);
    REFUSED(r.error = -1);
    REFUSED(r.error = INT32_MAX);
    REFUSED(memset(r.id, 'a', sizeof r.id));
    REFUSED(strcpy(r.id, "-x"));
    REFUSED(memset(r.message, 'a', sizeof r.message));
    REFUSED((r.type = KEEPER_ITEM, r.id[0] = '\0'));
    REFUSED((r.type = KEEPER_ITEM, r.state = KEEPER_STATE_RUNNING)); /* without a generation */
    REFUSED((r.type = KEEPER_EVENT_EXIT, r.generation = 1));         /* with a seq */
    REFUSED(r.type = KEEPER_EVENT_DURABLE);                          /* with a seq */
    REFUSED((r.type = KEEPER_EVENT_DURABLE, r.seq = 0, r.id[0] = '\0'));
    REFUSED((r.type = KEEPER_EVENT_EXIT, r.seq = 0)); /* without a generation */
#undef REFUSED
    for (size_t n = 0; n < sizeof good; n += 7)
        CHECK_INT(keeper_reply_check(&good, n), -EBADMSG);
}

TEST(image_names)
{
    CHECK(keeper_image_name_ok("base"));
    CHECK(keeper_image_name_ok("python-3.11_x"));
    CHECK(!keeper_image_name_ok(""));
    CHECK(!keeper_image_name_ok("."));
    CHECK(!keeper_image_name_ok(".."));
    CHECK(!keeper_image_name_ok("-x"));
    CHECK(!keeper_image_name_ok("a:b"));
    CHECK(!keeper_image_name_ok("a\n"));
}
