/* SPDX-License-Identifier: Apache-2.0 */
/* command_request.h: what execute, execute/stream and process/start have in common: the body, and how to
 * refuse it. */
#pragma once

#include "agent/agent.h"
#include "agent/session.h"
#include "base/json.h"

struct command_request {
    char *command; /* NULL: missing */
    size_t len;
    char *session_id;   /* where it runs; "default" when none was given */
    bool session_given; /* the answer repeats the id only then */
    bool sessionless;
    char *cwd; /* NULL: none */
    struct env_list env;
    char *bad_env_name; /* the first name that is not a name, with a value */
    int64_t timeout_ms; /* -1: none */
    bool background;
    char *process_id; /* NULL: none */
    bool modern;      /* the client names its sandbox: release 0.7 or later */

    struct agent *agent; /* NULL: not counted */
    size_t held;         /* counted in agent->held_bytes until command_request_done */
};

/* from_context: the session may also be named by header or query (execute, execute/stream). 0 or -ENOMEM,
 * -E2BIG (too many variables), -EDQUOT: the commands of others leave no room, even when the records of
 * finished processes are forgotten. */
int command_request_parse(struct command_request *c, struct agent *a, const struct http_request *req,
                          const struct json_value *body, bool from_context);
void command_request_done(struct command_request *c);
/* Drops what only a start needs. */
void command_request_started(struct command_request *c);
/* Answers a request for which command_request_parse has returned r. */
void reply_command_error(struct http_request *req, int r, const char *code);

bool command_is_blank(const struct command_request *c); /* nothing but white space, or missing */
bool session_name_is_blank(const char *id);             /* white space only */

/* The id as given by Authorization, X-Session-Id or the query; false: none. */
bool request_session_id(const struct http_request *req, char *out, size_t cap);

/* Adds the string members of an object to a list; null members are skipped. With `checked`, the first name
 * that is not valid goes to *ret_bad (malloc'ed) instead. 0, -ENOMEM or -E2BIG. */
int env_from_json(struct env_list *e, const struct json_value *object, char **ret_bad);

/* The answer for a fault: 410 SESSION_*, 500 INTERNAL_ERROR, or `code` for a shell that would not run the
 * command. */
void reply_session_fault(struct http_request *req, const char *session_id, const struct session_fault *fault,
                         const char *code);
/* The same inside a stream: the sentence and the code's name. */
void session_fault_text(const char *session_id, const struct session_fault *fault, const char *code,
                        const char **ret_code, struct buf *message);

#define BAD_CWD_FORMAT "Failed to change directory to '%s'"
