/* SPDX-License-Identifier: Apache-2.0 */
/* body_json.h: the body of a request as JSON, or why not. */
#pragma once

#include "base/json.h"
#include "gateway/problem.h"

/* From what http_request_collect(req, max, ...) hands over. 0; -EINVAL and *p: too long, or not JSON; any
 * other error: the server has answered already, and the request goes. *ret points into body. */
int body_json(struct buf *body, int err, size_t max, struct json_doc **ret, struct problem *p);
