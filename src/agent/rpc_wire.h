/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_wire.h: the messages of /rpc and the expressions in them. Pure: nothing here knows a connection.
 *
 * A message is a JSON array, ["push", expression], ["pull", id] and so on. In an expression an array is never
 * just an array: ["date", 0] is a date, and the array 1, 2 is written [[1, 2]]. Two exceptions are plain: the
 * path and the list of arguments in ["pipeline", id, path, arguments]. */
#pragma once

#include "base/json.h"

enum rpc_kind {
    RPC_PUSH,
    RPC_PULL,
    RPC_RESOLVE,
    RPC_REJECT,
    RPC_RELEASE,
    RPC_STREAM,
    RPC_PIPE,
    RPC_ABORT,
};

struct rpc_message {
    enum rpc_kind kind;
    int64_t id;                    /* pull, resolve, reject, release */
    int64_t count;                 /* release */
    const struct json_value *expr; /* push, stream, resolve, reject; abort: may be NULL */
};

/* 0, or -EBADMSG: no such message. What is in the expression is not looked at. */
int rpc_message_read(const struct json_value *root, struct rpc_message *ret);

enum rpc_form {
    RPC_FORM_VALUE, /* null, boolean, number, string, object (members are expressions) */
    RPC_FORM_ARRAY,
    RPC_FORM_UNDEFINED,
    RPC_FORM_DATE,
    RPC_FORM_BYTES,
    RPC_FORM_BIGINT,
    RPC_FORM_NOT_FINITE,
    RPC_FORM_ERROR,
    RPC_FORM_EXPORT,    /* a thing of the peer's: export, promise, writable */
    RPC_FORM_REFERENCE, /* a thing of ours: import, pipeline */
    RPC_FORM_READABLE,
    RPC_FORM_FOREIGN, /* known to the protocol, of no use here: headers, request, response, blob, remap */
    RPC_FORM_UNKNOWN,
};

enum rpc_form rpc_form_of(const struct json_value *expr);
/* The id of an export, reference or readable. */
int64_t rpc_id_of(const struct json_value *expr);
/* Element n of an array, NULL when it has none. */
const struct json_value *rpc_element(const struct json_value *array, size_t n);

struct rpc_reference {
    int64_t id;
    const struct json_value *path; /* an array of strings and numbers, or NULL */
    const struct json_value *args; /* an array of expressions; NULL: no call */
};
struct rpc_reference rpc_reference_of(const struct json_value *expr); /* of a RPC_FORM_REFERENCE */

/* Calls `each` for every expression inside expr and for expr itself, until it returns something else than 0.
 * -EBADMSG: there is one that nobody knows. */
int rpc_walk(const struct json_value *expr,
             int (*each)(void *arg, enum rpc_form form, const struct json_value *at), void *arg);

/* What a reference stands for, as one JSON value put to w; -errno ends the writing. */
typedef int rpc_resolver(void *arg, const struct rpc_reference *ref, struct json_writer *w);

/* Writes an expression as plain JSON, as a JavaScript program would: members that are undefined or functions
 * are left out, dates become strings. 0, the writer's error, or -ENOTSUP: it holds bytes, a stream or
 * something else that JSON does not have. */
int rpc_to_json(const struct json_value *expr, struct json_writer *w, rpc_resolver *resolve, void *arg);

/* Appends a JSON text, which must be valid, as an expression: every array gets its second pair of brackets. 0
 * or the buf's error. */
int rpc_put_json(struct buf *out, const char *json, size_t n);
/* Appends ["error", name, message], and with a code also null, {"code": code, "details": {}}. */
int rpc_put_error(struct buf *out, const char *name, const char *message, const char *code);

/* A member of a JSON object, as pieces of the object's text. */
struct rpc_member {
    const char *key, *value;
    size_t key_len, value_len;
};
/* The members of the object in a valid JSON text, at most max; how many. Keys are as written: escapes are not
 * decoded. */
size_t rpc_members(const char *json, size_t n, struct rpc_member *ret, size_t max);
const struct rpc_member *rpc_member_find(const struct rpc_member *members, size_t count, const char *key);
