/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_keeper_proto.c: a message that passes the checks can be used as it is: strings end, ids and names are
 * safe, numbers are in range. */
#include "keeper/proto.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
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
    require(r.type == KEEPER_LIST || sandbox_id_check(r.id, NULL) == 0);
    require(r.type != KEEPER_START || limits_check(&r.limits, NULL) == 0);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_request(data, size);
    check_reply(data, size);
    return 0;
}
