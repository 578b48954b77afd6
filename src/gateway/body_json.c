/* SPDX-License-Identifier: Apache-2.0 */
/* body_json.c: see body_json.h. */
#include "gateway/body_json.h"

#include <errno.h>

int body_json(struct buf *body, int err, size_t max, struct json_doc **ret, struct problem *p)
{
    struct error e;
    if (err == -EMSGSIZE)
        return problem_set(p, 413, "PAYLOAD_TOO_LARGE", "the body is limited to %zu bytes", max);
    if (err < 0)
        return err == -EINVAL ? -ECONNABORTED : err;
    if (json_parse(buf_data(body), buf_len(body), 0, ret, &e) < 0)
        return problem_set(p, 400, "BAD_REQUEST", "the body is not JSON: %s", e.msg);
    return 0;
}
