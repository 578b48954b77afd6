/* SPDX-License-Identifier: Apache-2.0 */
/* proto.c: checking the messages between gateway and keeper, on both sides; see proto.h. */
#include "keeper/proto.h"

#include <errno.h>
#include <string.h>

static bool terminated(const char *s, size_t cap)
{
    return memchr(s, '\0', cap) != NULL;
}

bool keeper_image_name_ok(const char *name)
{
    size_t n = strnlen(name, IMAGE_NAME_MAX + 1);
    if (n == 0 || n > IMAGE_NAME_MAX || name[0] == '.' || name[0] == '-')
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
              c == '_' || c == '-'))
            return false;
    }
    return true;
}

/* Volumes of a START, or the one that a request is about. */
static bool volumes_ok(const struct keeper_request *r)
{
    bool about = r->type >= KEEPER_VOLUME_CREATE && r->type <= KEEPER_VOLUME_LIST;
    int count = keeper_volumes_count(r->volumes, !about);
    if (r->type == KEEPER_VOLUME_CREATE
            ? r->volume_bytes < VOLUME_BYTES_MIN || r->volume_bytes > VOLUME_BYTES_MAX
            : r->volume_bytes != 0)
        return false;
    if (about)
        return count == 1 || (count == 0 && r->type == KEEPER_VOLUME_LIST);
    return count == 0 || (count > 0 && r->type == KEEPER_START);
}

/* What belongs to another type of request is zero. */
static bool socket_ok(const struct keeper_request *r)
{
    bool inside = r->socket.kind == KEEPER_SOCKET_LISTEN || r->socket.kind == KEEPER_SOCKET_UDP;
    if (r->type != KEEPER_SOCKET)
        return !r->socket.kind && !r->socket.address && !r->socket.port && !r->socket.reserved;
    if (r->socket.kind == KEEPER_SOCKET_NONE || r->socket.kind >= KEEPER_SOCKET_COUNT || r->socket.reserved ||
        r->socket.address >= (inside ? KEEPER_ADDRESS_COUNT : 1))
        return false;
    switch (r->socket.kind) {
    case KEEPER_SOCKET_RESOLVE_UDP:
    case KEEPER_SOCKET_RESOLVE_TCP:
        return r->socket.port < KEEPER_RESOLVERS_MAX;
    case KEEPER_SOCKET_PUBLISH:
        return !r->socket.port || (r->socket.port >= KEEPER_HOST_PORT_MIN && r->socket.port <= 65535);
    case KEEPER_SOCKET_DIAL:
        return r->socket.port >= KEEPER_HOST_PORT_MIN && r->socket.port <= 65535;
    case KEEPER_SOCKET_FLOWS:
    case KEEPER_SOCKET_REFUSED:
    case KEEPER_SOCKET_ANSWERS:
        return r->socket.port == 0;
    default:
        return r->socket.port >= 1 && r->socket.port <= 65535;
    }
}

/* ALLOW opens single public addresses; the rules of START and NETWORK may be anything that a list can open.
 */
static bool policy_ok(const struct keeper_request *r)
{
    const struct keeper_policy *p = &r->policy;
    if (r->type == KEEPER_ALLOW) {
        for (size_t i = 0; i < MIN(p->rule_count, (uint32_t)KEEPER_RULES_MAX); i++)
            if (p->rules[i].prefix != IP_BITS || !keeper_address_is_public(&p->rules[i].address))
                return false;
        return keeper_policy_ok(p) && p->rule_count && p->seconds && !p->bytes_per_second &&
               !p->connections && !p->keep && !r->network;
    }
    if (r->type != KEEPER_START && r->type != KEEPER_NETWORK)
        return keeper_policy_empty(p) && !r->network;
    if (r->type == KEEPER_NETWORK && (!r->network || r->network == KEEPER_NETWORK_SIDECAR))
        return false;
    if (p->keep && (r->type != KEEPER_NETWORK || r->network != KEEPER_NETWORK_ALLOWLIST))
        return false;
    return keeper_policy_ok(p) && !p->seconds && (!p->rule_count || r->network == KEEPER_NETWORK_ALLOWLIST);
}

/* Image requests name an image or a sandbox, and nothing else. */
static int image_request_check(const struct keeper_request *r)
{
    if (r->reserved || r->network || r->hostname[0] || !socket_ok(r) || !volumes_ok(r))
        return -EBADMSG;
    if ((r->id[0] && (r->type != KEEPER_IMAGE_SAVE || r->image[0] || sandbox_id_check(r->id, NULL) < 0)) ||
        (r->image[0] && !keeper_image_name_ok(r->image)))
        return -EBADMSG;
    bool wants_image = r->type == KEEPER_IMAGE_EXPORT || r->type == KEEPER_IMAGE_TAG ||
                       r->type == KEEPER_IMAGE_REMOVE || (r->type == KEEPER_IMAGE_SAVE && !r->id[0]);
    bool wants_reference = r->type == KEEPER_IMAGE_TAG || r->type == KEEPER_IMAGE_UNTAG;
    bool may_have_reference = wants_reference || r->type == KEEPER_IMAGE_IMPORT ||
                              r->type == KEEPER_IMAGE_EXPORT || r->type == KEEPER_IMAGE_SAVE;
    if (wants_image != (r->image[0] != '\0') || (wants_reference && !r->ask.reference[0]) ||
        (!may_have_reference && r->ask.reference[0]) || (r->ask.plain && r->type != KEEPER_IMAGE_EXPORT))
        return -EBADMSG;
    return 0;
}

int keeper_request_check(const void *data, size_t n)
{
    struct keeper_request r; /* a copy: data may lie at any address */
    if (n != sizeof r)
        return -EBADMSG;
    memcpy(&r, data, sizeof r);

    if (r.version != KEEPER_PROTO_VERSION || r.type < KEEPER_START || r.type >= KEEPER_TYPE_COUNT ||
        r.seq == 0)
        return -EBADMSG;
    if (!terminated(r.id, sizeof r.id) || !terminated(r.image, sizeof r.image))
        return -EBADMSG;
    if (!keeper_image_ask_ok(&r.ask, keeper_type_is_image(r.type)) || r.network >= KEEPER_NETWORK_COUNT ||
        !policy_ok(&r))
        return -EBADMSG;
    if (keeper_type_is_image(r.type))
        return image_request_check(&r);
    bool nobodys = r.type == KEEPER_LIST || (r.type >= KEEPER_VOLUME_CREATE && r.type <= KEEPER_VOLUME_LIST);
    if (nobodys ? r.id[0] != '\0' : sandbox_id_check(r.id, NULL) < 0)
        return -EBADMSG;
    if (!volumes_ok(&r) || !terminated(r.hostname, sizeof r.hostname))
        return -EBADMSG;
    if (r.hostname[0] && (r.type != KEEPER_START || !machine_name_ok(r.hostname)))
        return -EBADMSG;
    if (r.reserved || !socket_ok(&r))
        return -EBADMSG;
    if (r.type != KEEPER_START)
        return r.image[0] ? -EBADMSG : 0;
    if (!keeper_image_name_ok(r.image) || limits_check(&r.limits, NULL) < 0)
        return -EBADMSG;
    return 0;
}

int keeper_reply_check(const void *data, size_t n)
{
    struct keeper_reply r;
    if (n != sizeof r)
        return -EBADMSG;
    memcpy(&r, data, sizeof r);

    if (r.version != KEEPER_PROTO_VERSION || r.state >= KEEPER_STATE_COUNT || r.error < 0 || r.error > 4095 ||
        r.exit_code > 255)
        return -EBADMSG;
    if (!terminated(r.id, sizeof r.id) || !terminated(r.message, sizeof r.message))
        return -EBADMSG;
    if (r.id[0] && sandbox_id_check(r.id, NULL) < 0)
        return -EBADMSG;
    if (r.volume.name[0] && !volume_name_ok(r.volume.name))
        return -EBADMSG;
    if (!keeper_image_tell_ok(&r.tell))
        return -EBADMSG;

    bool alive = r.state == KEEPER_STATE_RUNNING || r.state == KEEPER_STATE_FROZEN;
    switch (r.type) {
    case KEEPER_REPLY:
        return r.seq ? 0 : -EBADMSG;
    case KEEPER_ITEM:
        if (r.volume.name[0])
            return r.seq && !r.id[0] ? 0 : -EBADMSG;
        return r.seq && r.id[0] && (!alive || r.generation) ? 0 : -EBADMSG;
    case KEEPER_EVENT_EXIT:
        return r.seq == 0 && r.id[0] && r.generation ? 0 : -EBADMSG;
    case KEEPER_EVENT_DURABLE: /* may come after its sandbox ended: then without a generation */
        return r.seq == 0 && r.id[0] ? 0 : -EBADMSG;
    case KEEPER_IMAGE_ITEM:
    case KEEPER_IMAGE_GONE:
        return r.seq && r.tell.image[0] ? 0 : -EBADMSG;
    case KEEPER_IMAGE_STREAM:
    case KEEPER_IMAGE_PROGRESS:
        return r.seq ? 0 : -EBADMSG;
    default:
        return -EBADMSG;
    }
}
