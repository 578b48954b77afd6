/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_keeper_proto.c (FUZ-06): a message that passes the checks can be used as it is: strings end, ids and
 * names are safe, numbers are in range.
 *
 * The input is a message, and it is also a list of changes to a good one: a byte for which, then a byte for
 * the field and four for its value, again and again. So what the corpus knows stays true when the structs
 * grow. */
#include "keeper/proto.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

/* What the keeper makes files and mount points of. */
static void check_volumes(const struct keeper_request *r)
{
    bool about = r->type >= KEEPER_VOLUME_CREATE && r->type <= KEEPER_VOLUME_LIST;
    require(!r->hostname[0] || (r->type == KEEPER_START && machine_name_ok(r->hostname)));
    require((r->volume_bytes != 0) == (r->type == KEEPER_VOLUME_CREATE));
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX && r->volumes[i].name[0]; i++) {
        const struct keeper_volume_mount *v = &r->volumes[i];
        require(r->type == KEEPER_START || (about && i == 0));
        require(volume_name_ok(v->name) && !strchr(v->name, '/'));
        require(about ? !v->path[0] : v->path[0] == '/' && !strstr(v->path, "/../") && v->read_only <= 1);
    }
}

static void check_policy(const struct keeper_request *r)
{
    const struct keeper_policy *p = &r->policy;
    bool about = r->type == KEEPER_NETWORK || r->type == KEEPER_ALLOW;
    require(about || r->type == KEEPER_START || (keeper_policy_empty(p) && !r->network));
    require(p->rule_count <= KEEPER_RULES_MAX && p->connections <= KEEPER_CONNECTIONS_MAX);
    require((p->seconds != 0) == (r->type == KEEPER_ALLOW));
    for (size_t i = 0; i < p->rule_count; i++) {
        require(p->rules[i].prefix >= 1 && p->rules[i].prefix <= IP_BITS);
        require(!keeper_address_is_never(&p->rules[i].address));
        require(r->type != KEEPER_ALLOW || keeper_address_is_public(&p->rules[i].address));
    }
}

static void check_request(const uint8_t *data, size_t size)
{
    struct keeper_request r;
    if (keeper_request_check(data, size) < 0)
        return;
    require(size == sizeof r);
    memcpy(&r, data, sizeof r);
    require(r.type >= KEEPER_START && r.type < KEEPER_TYPE_COUNT && r.seq);
    require(strnlen(r.id, sizeof r.id) < sizeof r.id && strnlen(r.image, sizeof r.image) < sizeof r.image);
    require(!strpbrk(r.id, "/\n ") && !strpbrk(r.image, "/\n ") && strcmp(r.image, "..") != 0);
    /* a list, volumes and images are no sandbox's */
    bool nobodys = r.type == KEEPER_LIST ||
                   (r.type >= KEEPER_VOLUME_CREATE && r.type <= KEEPER_VOLUME_LIST) ||
                   keeper_type_is_image(r.type);
    require(r.id[0] ? sandbox_id_check(r.id, NULL) == 0 : nobodys);
    require(r.type != KEEPER_START || limits_check(&r.limits, NULL) == 0);
    check_volumes(&r);
    check_policy(&r);
    require(!r.ask.reference[0] ||
            (keeper_type_is_image(r.type) && keeper_image_reference_ok(r.ask.reference)));
    require(!strpbrk(r.ask.reference, "+= \n") && !strstr(r.ask.reference, "..") &&
            r.ask.reference[0] != '/');
    require((r.type == KEEPER_SOCKET) == (r.socket.kind != KEEPER_SOCKET_NONE));
    require(r.socket.kind < KEEPER_SOCKET_COUNT && r.socket.port <= 65535);
    require(r.socket.address < KEEPER_ADDRESS_COUNT);
    require(r.socket.kind != KEEPER_SOCKET_DIAL || r.socket.port >= KEEPER_HOST_PORT_MIN);
}

static void check_reply(const uint8_t *data, size_t size)
{
    struct keeper_reply r;
    if (keeper_reply_check(data, size) < 0)
        return;
    require(size == sizeof r);
    memcpy(&r, data, sizeof r);
    require(r.state < KEEPER_STATE_COUNT && r.error >= 0);
    require(strnlen(r.id, sizeof r.id) < sizeof r.id);
    require(strnlen(r.message, sizeof r.message) < sizeof r.message);
    require((r.seq == 0) == (r.type == KEEPER_EVENT_EXIT || r.type == KEEPER_EVENT_DURABLE));
}

struct field {
    size_t at, size;
};

/* Only ever longer: the corpus counts. */
#define FIELD(type, name)                                              \
    {                                                                  \
        offsetof(struct type, name), sizeof((struct type *)NULL)->name \
    }
static const struct field request_fields[] = {
    FIELD(keeper_request, version),
    FIELD(keeper_request, type),
    FIELD(keeper_request, seq),
    FIELD(keeper_request, id),
    FIELD(keeper_request, id[1]),
    FIELD(keeper_request, image),
    FIELD(keeper_request, image[1]),
    FIELD(keeper_request, network),
    FIELD(keeper_request, reserved),
    FIELD(keeper_request, limits.memory_bytes),
    FIELD(keeper_request, limits.tasks),
    FIELD(keeper_request, socket.kind),
    FIELD(keeper_request, socket.address),
    FIELD(keeper_request, socket.port),
    FIELD(keeper_request, socket.reserved),
    FIELD(keeper_request, hostname),
    FIELD(keeper_request, volume_bytes),
    FIELD(keeper_request, volumes[0].name),
    FIELD(keeper_request, volumes[0].path),
    FIELD(keeper_request, volumes[0].path[4]),
    FIELD(keeper_request, volumes[0].read_only),
    FIELD(keeper_request, volumes[1].name),
    FIELD(keeper_request, volumes[1].path),
    FIELD(keeper_request, policy.bytes_per_second),
    FIELD(keeper_request, policy.connections),
    FIELD(keeper_request, policy.seconds),
    FIELD(keeper_request, policy.rule_count),
    FIELD(keeper_request, policy.keep),
    FIELD(keeper_request, policy.rules[0].address),
    FIELD(keeper_request, policy.rules[0].port),
    FIELD(keeper_request, policy.rules[0].prefix),
    FIELD(keeper_request, policy.rules[1].address),
    FIELD(keeper_request, policy.rules[1].prefix),
    FIELD(keeper_request, ask.reference),
    FIELD(keeper_request, ask.reference[4]),
    FIELD(keeper_request, ask.plain),
    FIELD(keeper_request, ask.reserved),
};
static const struct field reply_fields[] = {
    FIELD(keeper_reply, version), FIELD(keeper_reply, type),       FIELD(keeper_reply, seq),
    FIELD(keeper_reply, error),   FIELD(keeper_reply, state),      FIELD(keeper_reply, generation),
    FIELD(keeper_reply, id),      FIELD(keeper_reply, message[0]), FIELD(keeper_reply, message[255]),
};
#undef FIELD

static void change(void *message, const struct field *fields, size_t count, const uint8_t *data, size_t size)
{
    for (; size >= 5; data += 5, size -= 5) {
        const struct field *f = &fields[data[0] % count];
        uint8_t value[8] = {data[1], data[2], data[3], data[4]};
        memcpy((char *)message + f->at, value, MIN(f->size, sizeof value));
    }
}

static void check_changed(const uint8_t *data, size_t size)
{
    struct keeper_request start = {
        .version = KEEPER_PROTO_VERSION, .type = KEEPER_START, .seq = 1, .id = "demo", .image = "base"};
    struct keeper_request sock = {
        .version = KEEPER_PROTO_VERSION, .type = KEEPER_SOCKET, .seq = 1, .id = "demo"};
    struct keeper_reply reply = {
        .version = KEEPER_PROTO_VERSION, .type = KEEPER_REPLY, .seq = 1, .id = "demo", .message = "why"};
    start.limits = instance_types[0].limits;
    sock.socket.kind = KEEPER_SOCKET_LISTEN;
    sock.socket.port = 53;
    if (size % 5 != 1)
        return;
    switch (data[0] % 3) {
    case 0:
        change(&start, request_fields, ARRAY_SIZE(request_fields), data + 1, size - 1);
        check_request((const uint8_t *)&start, sizeof start);
        require(size > 1 || keeper_request_check(&start, sizeof start) == 0);
        break;
    case 1:
        change(&sock, request_fields, ARRAY_SIZE(request_fields), data + 1, size - 1);
        check_request((const uint8_t *)&sock, sizeof sock);
        require(size > 1 || keeper_request_check(&sock, sizeof sock) == 0);
        break;
    default:
        change(&reply, reply_fields, ARRAY_SIZE(reply_fields), data + 1, size - 1);
        check_reply((const uint8_t *)&reply, sizeof reply);
        require(size > 1 || keeper_reply_check(&reply, sizeof reply) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_request(data, size);
    check_reply(data, size);
    check_changed(data, size);
    return 0;
}
