/* SPDX-License-Identifier: Apache-2.0 */
/* watch_request.h: the body of watch and watch/check, checked. */
#pragma once

#include "agent/watch_share.h"
#include "base/json.h"

/* An absolute path without ".", ".." and double slashes; relative ones start in base. 0, -ENAMETOOLONG or
 * -ENOMEM. */
int watch_path_resolve(const char *base, const char *path, char **ret);

/* 0 and *ret (to be emptied by watch_request_done); -EINVAL: the body is not what it should be, reterr tells
 * the user; -EACCES: ret->path is outside the workspace (ret is filled all the same); -ENOMEM. */
int watch_request_parse(const struct json_value *body, struct watch_request *ret, struct error *reterr);
