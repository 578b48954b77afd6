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
    if (r.type == KEEPER_LIST ? r.id[0] != '\0' : sandbox_id_check(r.id, NULL) < 0)
        return -EBADMSG;
    if (r.reserved || r.network >= KEEPER_NETWORK_COUNT)
        return -EBADMSG;
    if (r.type != KEEPER_START)
        return r.image[0] || r.network ? -EBADMSG : 0;
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

    if (r.version != KEEPER_PROTO_VERSION || r.state >= KEEPER_STATE_COUNT || r.error < 0 || r.error > 4095)
        return -EBADMSG;
    if (!terminated(r.id, sizeof r.id) || !terminated(r.message, sizeof r.message))
        return -EBADMSG;
    if (r.id[0] && sandbox_id_check(r.id, NULL) < 0)
        return -EBADMSG;

    bool alive = r.state == KEEPER_STATE_RUNNING || r.state == KEEPER_STATE_FROZEN;
    switch (r.type) {
    case KEEPER_REPLY:
        return r.seq ? 0 : -EBADMSG;
    case KEEPER_ITEM:
        return r.seq && r.id[0] && (!alive || r.generation) ? 0 : -EBADMSG;
    case KEEPER_EVENT_EXIT:
        return r.seq == 0 && r.id[0] && r.generation ? 0 : -EBADMSG;
    case KEEPER_EVENT_DURABLE: /* may come after its sandbox ended: then without a generation */
        return r.seq == 0 && r.id[0] ? 0 : -EBADMSG;
    default:
        return -EBADMSG;
    }
}
