/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_methods.h: which request a method of /rpc stands for, and what becomes of its answer. Pure. */
#pragma once

#include "agent/rpc_wire.h"

enum rpc_answer {
    RPC_ANSWER_JSON,
    RPC_ANSWER_STREAM,    /* the body, byte for byte */
    RPC_ANSWER_FILE,      /* JSON, or with encoding "none" the file itself as a stream in the result */
    RPC_ANSWER_UPLOAD,    /* JSON; the body is a stream of the client's */
    RPC_ANSWER_CALLBACKS, /* events, handed to functions of the client's */
};

enum {
    RPC_SOFT = 1,  /* a failure is an event of the stream */
    RPC_DATES = 2, /* createdAt and lastUsed of the result are dates */
};

struct rpc_method {
    const char *name;
    const char *verb, *target;
    /* One word per argument: `name` is that member of the body, `{a b c}` are members of an object that
     * become members of the body, `%name` goes to the target, `<name` is none of the request's. */
    const char *arguments;
    /* Members of the answer that are the result: `name`, `from>to`; `=name`: the result is that member; "":
     * undefined. `+name` is a text of the call's own, see rpc_result_extra. */
    const char *result;
    enum rpc_answer answer;
    unsigned flags;
};

/* NULL: there is none. path is a plain array of strings behind the prefix ("", "files" or "files.exists"). */
const struct rpc_method *rpc_method_find(const char *prefix, const struct json_value *path);
/* The part of the API which a property names ("" is all of it), NULL: there is none. */
const char *rpc_part_find(const char *prefix, const struct json_value *path);

/* The body of the request (an object; nothing for methods without one) and its target. 0, the bufs' errors,
 * what the resolver says, or -ENOTSUP: an argument cannot be sent as JSON. */
int rpc_request_build(const struct rpc_method *m, const struct json_value *args, struct buf *body,
                      struct buf *target, rpc_resolver *resolve, void *arg);
/* The argument which the method calls `name` (with its mark), NULL when it is missing or undefined. */
const struct json_value *rpc_argument(const struct rpc_method *m, const struct json_value *args,
                                      const char *name);

/* What the answer does not tell. */
struct rpc_result_extra {
    const char *path;    /* +path */
    int64_t content_len; /* +bytesWritten */
};
/* Appends the result as an expression. 0 or the buf's error; -EBADMSG: the answer is not what it should be.
 */
int rpc_result_build(const struct rpc_method *m, const char *json, size_t n,
                     const struct rpc_result_extra *extra, struct buf *out);

/* Appends the error of an answer with a status of 400 or more. */
int rpc_failure_build(int status, const char *json, size_t n, struct buf *out);

/* Appends text percent-encoded; slashes stay when `slashes` is set. */
int rpc_put_encoded(struct buf *out, const char *text, size_t n, bool slashes);
