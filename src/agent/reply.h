/* SPDX-License-Identifier: Apache-2.0 */
/* reply.h: JSON answers and the error envelope.
 *
 *     struct reply r;
 *     reply_begin(&r);                                   the object is open, "success":true is in it
 *     json_member_string(&r.w, "path", path);
 *     reply_send(&r, req);                               adds the timestamp, closes, answers 200
 *
 *     reply_error_begin(&r, "FILE_NOT_FOUND", "File not found: %s", path);
 *     json_member_string(&r.w, "path", path);            members of the context
 *     reply_error_operation(&r, "file.read");
 *     reply_error_send(&r, req);
 */
#pragma once

#include "base/json.h"
#include "net/http.h"

struct error_code;

struct reply {
    struct buf out;
    struct json_writer w;
    const struct error_code *code; /* NULL: no error */
    const char *operation;
    struct buf message;
};

void reply_begin(struct reply *r);
void reply_timestamp(struct json_writer *w); /* "timestamp":"<now>" */
void reply_time(struct json_writer *w, const char *key, int64_t wall_ms);
void reply_send(struct reply *r, struct http_request *req);

/* code: a name of http.md section 4; an unknown one is answered with 500. The message may hold any bytes. */
void reply_error_begin(struct reply *r, const char *code, const char *fmt, ...) PRINTF_LIKE(3, 4);
void reply_error_operation(struct reply *r, const char *operation); /* must outlive the reply */
void reply_error_send(struct reply *r, struct http_request *req);
/* Only appends the envelope; returns the HTTP status. For answers inside other frames. */
int reply_error_envelope(struct reply *r, struct buf *out);
void reply_done(struct reply *r); /* the senders have done it already */

/* Without a context, in one call. */
void reply_error(struct http_request *req, const char *code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* The same with another status than the code's own (404 of unknown routes, 405, 413). */
void reply_error_status(struct http_request *req, int status, const char *code, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
/* The body of an answer the HTTP server makes itself. */
void reply_server_error(int status, const char *reason, struct buf *out, void *arg);

int reply_status_of(const char *code);
