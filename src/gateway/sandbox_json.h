/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_json.h: a sandbox as the API shows it. */
#pragma once

#include "base/json.h"
#include "gateway/images.h"
#include "gateway/lifecycle.h"

/* Writes one object. Values of variables may be secrets and are not shown, only their names. */
void sandbox_put_json(struct json_writer *w, const struct sandbox *sb, const struct images *im);
/* Answers with it. */
void reply_sandbox(struct http_request *req, int status, const struct sandbox *sb, const struct images *im);
