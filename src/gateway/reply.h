/* SPDX-License-Identifier: Apache-2.0 */
/* reply.h: the gateway's own answers: JSON documents and the error envelope. */
#pragma once

#include "base/json.h"
#include "gateway/problem.h"
#include "net/http.h"

/* The longest document the gateway makes itself: a listing of every sandbox. */
#define REPLY_MAX_BYTES ((size_t)64 << 20)

/* The error envelope {code, message, context, httpStatus, timestamp, error}. sandbox_id may be NULL. 401
 * carries WWW-Authenticate, retry_after_s becomes Retry-After. */
void reply_problem(struct http_request *req, const char *sandbox_id, const struct problem *p);
void reply_error(struct http_request *req, int status, const char *code, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
/* 405 with the methods that exist ("GET, PUT"). */
void reply_method_not_allowed(struct http_request *req, const char *allow);
/* Sends what w wrote to out and empties out; 500 when writing failed. */
void reply_json(struct http_request *req, int status, const struct json_writer *w);

/* Body of the answers that the HTTP server makes itself (http_server_config.error_body). */
void reply_server_error(int status, const char *reason, struct buf *out, void *arg);
