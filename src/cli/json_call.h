/* SPDX-License-Identifier: Apache-2.0 */
/* json_call.h: one request whose answer is JSON, for verbs that print it or pick from it; and listings. */
#pragma once

#include "cli/connect.h"

#include "base/json.h"
#include "cli/format.h"

struct json_answer {
    char *json;           /* the text as it came */
    struct json_doc *doc; /* the same, parsed */
    struct silica_response response;
};

/* 0, or the exit code: what went wrong has been said, in the name of the verb. */
int json_call(const char *verb, struct silica_client *c, const struct silica_request *q,
              struct json_answer *ret);
void json_answer_done(struct json_answer *a); /* zero is fine */
/* A member that is a string, "" where there is none. */
const char *json_text(const struct json_value *v, const char *member);
#define auto_answer __attribute__((cleanup(json_answer_done)))

/* A request without a body; prints the answer as it came, or `instead` (not NULL) of it. The exit code. */
int json_print(const char *verb, struct silica_client *c, const char *method, const char *path,
               const char *instead);

/* What a verb lists: GET path answers {member: [...]}. */
struct json_listing {
    const char *path, *member;
    struct table table; /* TABLE_INIT */
    /* Adds the row (or rows) of one of them; 0 or -errno. */
    int (*add)(struct table *t, const struct json_value *v, const void *arg);
    const void *arg;
};

/* Asks for it and prints it as a table, or as it came. The exit code. */
int json_list(const char *verb, struct silica_client *c, const struct json_listing *l, bool as_json);
