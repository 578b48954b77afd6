/* SPDX-License-Identifier: Apache-2.0 */
/* test_keeper_proto.c: messages between gateway and keeper, checked as if an enemy had sent them. */
#include "keeper/proto.h"
#include "test.h"

#include <arpa/inet.h>
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
        if (type >= KEEPER_VOLUME_CREATE && type <= KEEPER_VOLUME_LIST) {
            r.id[0] = '\0';
            r.volumes[0].name[0] = 'v';
            r.volume_bytes = type == KEEPER_VOLUME_CREATE ? VOLUME_BYTES_MIN : 0;
        }
        if (type == KEEPER_SOCKET) {
            r.socket.kind = KEEPER_SOCKET_LISTEN;
            r.socket.port = 53;
        }
        if (type == KEEPER_NETWORK)
            r.network = KEEPER_NETWORK_PUBLIC;
        if (type == KEEPER_ALLOW) {
            r.policy = (struct keeper_policy){.seconds = 1, .rule_count = 1};
            r.policy.rules[0] =
                (struct keeper_rule){.address = ip_from_v4(inet_addr("9.9.9.9")), .prefix = 128};
        }
        if (keeper_type_is_image(type)) {
            bool of_image =
                type == KEEPER_IMAGE_EXPORT || type == KEEPER_IMAGE_TAG || type == KEEPER_IMAGE_REMOVE;
            r.id[0] = type == KEEPER_IMAGE_SAVE ? 'a' : '\0';
            r.image[0] = of_image ? 'b' : '\0';
            if (type == KEEPER_IMAGE_TAG || type == KEEPER_IMAGE_UNTAG)
                strcpy(r.ask.reference, "c:1");
        }
        CHECK_INT(keeper_request_check(&r, sizeof r), 0);
    }
}

TEST(sockets_that_may_be_asked_for)
{
    static const struct {
        uint32_t kind, address, port, reserved;
        bool ok;
    } rows[] = {
        {KEEPER_SOCKET_LISTEN, KEEPER_ADDRESS_ANY, 53, 0, true},
        {KEEPER_SOCKET_LISTEN, KEEPER_ADDRESS_LOOPBACK, 65535, 0, true},
        {KEEPER_SOCKET_UDP, KEEPER_ADDRESS_LOOPBACK, 1, 0, true},
        {KEEPER_SOCKET_DIAL, 0, 8080, 0, true},
        {KEEPER_SOCKET_PUBLISH, 0, 0, 0, true},
        {KEEPER_SOCKET_PUBLISH, 0, 40000, 0, true},
        {KEEPER_SOCKET_RESOLVE_UDP, 0, 0, 0, true},
        {KEEPER_SOCKET_RESOLVE_TCP, 0, KEEPER_RESOLVERS_MAX - 1, 0, true},
        {KEEPER_SOCKET_FLOWS, 0, 0, 0, true},
        {KEEPER_SOCKET_REFUSED, 0, 0, 0, true},
        {KEEPER_SOCKET_REFUSED, 0, 1, 0, false},
        {KEEPER_SOCKET_ANSWERS, 0, 0, 0, true},
        {KEEPER_SOCKET_ANSWERS, 0, 1, 0, false},
        {KEEPER_SOCKET_NONE, 0, 53, 0, false},
        {KEEPER_SOCKET_COUNT, 0, 53, 0, false},
        {UINT32_MAX, 0, 53, 0, false},
        {KEEPER_SOCKET_LISTEN, KEEPER_ADDRESS_COUNT, 53, 0, false},
        {KEEPER_SOCKET_LISTEN, KEEPER_ADDRESS_ANY, 0, 0, false},
        {KEEPER_SOCKET_UDP, KEEPER_ADDRESS_ANY, 65536, 0, false},
        {KEEPER_SOCKET_UDP, KEEPER_ADDRESS_ANY, 53, 1, false},
        {KEEPER_SOCKET_DIAL, KEEPER_ADDRESS_LOOPBACK, 8080, 0, false},
        {KEEPER_SOCKET_DIAL, 0, 0, 0, false},
        {KEEPER_SOCKET_PUBLISH, 0, 65536, 0, false},
        {KEEPER_SOCKET_PUBLISH, 0, 1023, 0, false},
        {KEEPER_SOCKET_DIAL, 0, 1023, 0, false},
        {KEEPER_SOCKET_PUBLISH, KEEPER_ADDRESS_LOOPBACK, 1, 0, false},
        {KEEPER_SOCKET_RESOLVE_UDP, 0, KEEPER_RESOLVERS_MAX, 0, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct keeper_request r = {
            .version = KEEPER_PROTO_VERSION, .type = KEEPER_SOCKET, .seq = 1, .id = "a"};
        r.socket.kind = rows[i].kind;
        r.socket.address = rows[i].address;
        r.socket.port = rows[i].port;
        r.socket.reserved = rows[i].reserved;
        CHECK_INT(keeper_request_check(&r, sizeof r), rows[i].ok ? 0 : -EBADMSG);
    }
    struct keeper_request start = start_request(); /* with what belongs to another */
    start.socket.kind = KEEPER_SOCKET_UDP;
    CHECK_INT(keeper_request_check(&start, sizeof start), -EBADMSG);
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
    r.exit_code = 255;
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
    REFUSED(r.exit_code = 256);
    REFUSED(memset(r.id, 'a', sizeof r.id));
    REFUSED(strcpy(r.id, "-x"));
    REFUSED(memset(r.message, 'a', sizeof r.message));
    REFUSED((r.type = KEEPER_ITEM, r.id[0] = '\0'));
    REFUSED((r.type = KEEPER_ITEM, r.state = KEEPER_STATE_RUNNING)); /* without a generation */
    REFUSED((r.type = KEEPER_EVENT_EXIT, r.generation = 1));         /* with a seq */
    REFUSED(r.type = KEEPER_EVENT_DURABLE);                          /* with a seq */
    REFUSED((r.type = KEEPER_EVENT_DURABLE, r.seq = 0, r.id[0] = '\0'));
    REFUSED((r.type = KEEPER_EVENT_EXIT, r.seq = 0)); /* without a generation */
    for (size_t n = 0; n < sizeof good; n += 7)
        CHECK_INT(keeper_reply_check(&good, n), -EBADMSG);
#undef REFUSED
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

static struct keeper_request network_request(uint32_t type)
{
    struct keeper_request r = {.version = KEEPER_PROTO_VERSION, .type = type, .seq = 1, .id = "demo"};
    if (type == KEEPER_NETWORK)
        r.network = KEEPER_NETWORK_ALLOWLIST;
    if (type == KEEPER_ALLOW)
        r.policy.seconds = 60;
    r.policy.rule_count = 1;
    r.policy.rules[0] =
        (struct keeper_rule){.address = ip_from_v4(inet_addr("198.51.100.7")), .prefix = 128, .port = 443};
    return r;
}

TEST(request_about_a_network)
{
    struct keeper_request good = network_request(KEEPER_NETWORK), r;
#define REFUSED(change)                                          \
    do {                                                         \
        r = good;                                                \
        change;                                                  \
        CHECK_INT(keeper_request_check(&r, sizeof r), -EBADMSG); \
    } while (0)
    CHECK_INT(keeper_request_check(&good, sizeof good), 0);
    REFUSED(r.network = KEEPER_NETWORK_DEFAULT);
    REFUSED(r.network = KEEPER_NETWORK_SIDECAR);
    REFUSED(r.network = KEEPER_NETWORK_PUBLIC); /* with rules */
    REFUSED(r.policy.seconds = 1);
    REFUSED(r.policy.rule_count = KEEPER_RULES_MAX + 1);
    REFUSED(r.policy.rule_count = 0); /* and one behind it */
    REFUSED(r.policy.rules[0].prefix = 129);
    REFUSED(r.policy.rules[0].prefix = 120); /* bits behind it */
    REFUSED(r.policy.rules[0].reserved = 1);
    REFUSED(r.policy.rules[0].address = ip_from_v4(inet_addr("127.0.0.1")));
    REFUSED(r.policy.rules[0].address = ip_from_v4(inet_addr("169.254.169.254")));
    REFUSED((r.policy.rules[0].address = (struct ip){0}, r.policy.rules[0].prefix = 0));
    REFUSED(r.policy.bytes_per_second = 1);
    REFUSED(r.policy.connections = KEEPER_CONNECTIONS_MAX + 1);
    REFUSED(r.policy.keep = 2);
    REFUSED((r.type = KEEPER_START, r.policy.keep = 1));
    REFUSED(r.type = KEEPER_STOP);
    good = network_request(KEEPER_ALLOW);
    CHECK_INT(keeper_request_check(&good, sizeof good), 0);
    REFUSED(r.policy.seconds = 0);
    REFUSED(r.policy.seconds = KEEPER_ALLOW_SECONDS_MAX + 1);
    REFUSED(r.policy.rules[0].address =
                ip_from_v4(inet_addr("10.0.0.1"))); /* what a name says opens nothing private */
    REFUSED(
        (r.policy.rules[0].address = ip_from_v4(inet_addr("198.51.100.0")), r.policy.rules[0].prefix = 120));
    REFUSED((r.policy.rule_count = 0, memset(r.policy.rules, 0, sizeof r.policy.rules)));
    REFUSED(r.policy.connections = 5);
    REFUSED(r.network = KEEPER_NETWORK_ALLOWLIST);
    good =
        (struct keeper_request){.version = KEEPER_PROTO_VERSION, .type = KEEPER_CUT, .seq = 1, .id = "demo"};
    CHECK_INT(keeper_request_check(&good, sizeof good), 0);
    REFUSED(r.policy.connections = 5);
#undef REFUSED
}

TEST(image_requests_name_one_thing)
{
    struct keeper_request good = {
        .version = KEEPER_PROTO_VERSION, .type = KEEPER_IMAGE_TAG, .seq = 1, .image = "base"};
    (void)snprintf(good.ask.reference, sizeof good.ask.reference, "team/app:1");
    CHECK_INT(keeper_request_check(&good, sizeof good), 0);
#define REFUSED(change)                                          \
    do {                                                         \
        struct keeper_request r = good;                          \
        change;                                                  \
        CHECK_INT(keeper_request_check(&r, sizeof r), -EBADMSG); \
    } while (0)
    REFUSED(r.ask.reference[0] = '\0');
    REFUSED(r.ask.reference[0] = '/');
    REFUSED(memset(r.ask.reference, 'a', sizeof r.ask.reference));
    REFUSED((void)snprintf(r.ask.reference, sizeof r.ask.reference, "app"));
    REFUSED((void)snprintf(r.ask.reference, sizeof r.ask.reference, "a/../b:1"));
    REFUSED(r.image[0] = '\0');
    REFUSED(r.image[0] = '.');
    REFUSED(r.image[1] = '/');
    REFUSED(memset(r.image, 'a', sizeof r.image));
    REFUSED(r.id[0] = 'a');
    REFUSED(r.ask.plain = 1);
    REFUSED(r.ask.reserved = 1);
    REFUSED(r.network = KEEPER_NETWORK_PUBLIC);
    REFUSED(r.hostname[0] = 'h');
    REFUSED(r.type = KEEPER_IMAGE_LIST);
    REFUSED(r.type = KEEPER_IMAGE_IMPORT);
    REFUSED(r.type = KEEPER_IMAGE_REMOVE);
    REFUSED(r.type = KEEPER_START);
    good.type = KEEPER_IMAGE_EXPORT;
    good.ask.plain = 1;
    CHECK_INT(keeper_request_check(&good, sizeof good), 0);
    REFUSED(r.ask.plain = 2);
    good = (struct keeper_request){
        .version = KEEPER_PROTO_VERSION, .type = KEEPER_IMAGE_SAVE, .seq = 1, .id = "demo"};
    CHECK_INT(keeper_request_check(&good, sizeof good), 0);
    REFUSED(r.id[0] = '\0');
    REFUSED(r.id[0] = '/');
    REFUSED(r.image[0] = 'b'); /* a sandbox or an image, not both */
#undef REFUSED
    struct keeper_reply told = {.version = KEEPER_PROTO_VERSION, .type = KEEPER_IMAGE_ITEM, .seq = 1};
    CHECK_INT(keeper_reply_check(&told, sizeof told), -EBADMSG);
    told.tell.image[0] = 'b';
    CHECK_INT(keeper_reply_check(&told, sizeof told), 0);
    told.tell.why = IMAGE_WHY_COUNT;
    CHECK_INT(keeper_reply_check(&told, sizeof told), -EBADMSG);
}
