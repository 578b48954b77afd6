/* SPDX-License-Identifier: Apache-2.0 */
/* client_internal.h: what the files of libsilica share. */
#pragma once

#include "client/silica.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/json.h"
#include "net/http.h"
#include "net/loop.h"

/* Largest answer kept in memory, and largest single event of a stream: a read of 32 MiB as base64 in JSON
 * fits several times. */
#define CLIENT_ANSWER_MAX ((size_t)256 << 20)

struct client_url {
    char *text;     /* as given, for sentences */
    char *socket;   /* path of a unix socket; NULL: TCP */
    char host[256]; /* without brackets */
    char port[6];
    char authority[300]; /* value of the Host header */
    char *base;          /* path in front of every request path, without a slash at its end; "" mostly */
    bool local;          /* loopback or unix socket */
};

struct silica_client {
    struct client_url url;
    char *authorization; /* "Bearer ..."; NULL: none */
    char token_problem[320];
    int connect_timeout_ms;
    int answer_timeout_ms;
    struct loop *loop;
    struct http_client *conn; /* kept for the next request; NULL: none */
};

/* client_url.c */
int client_url_parse(const char *text, struct client_url *ret, struct silica_error *reterr);
void client_url_done(struct client_url *u);

/* client_error.c: all fill *reterr (NULL is fine) and return -errnum. */
int client_fail(struct silica_error *reterr, enum silica_error_kind kind, int errnum, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
int client_fail_memory(struct silica_error *reterr);
/* From a parsed error envelope or error event. */
int client_fail_envelope(struct silica_error *reterr, int status, const struct json_value *envelope);
/* From the body of an answer with an error status, JSON or not. */
int client_fail_answer(struct silica_error *reterr, int status, const char *body, size_t n);

/* transport.c */
int transport_run(struct silica_client *c, const struct silica_request *request,
                  const struct silica_receiver *receiver, struct silica_error *reterr);
/* A fresh connection in c->conn, for what is no plain exchange; and its end. */
int transport_connect(struct silica_client *c, struct silica_error *reterr);
void transport_disconnect(struct silica_client *c);

int client_put_encoded(struct buf *out, const char *text); /* percent-encoded */
/* Appends "/v1/sandbox/<id percent-encoded><tail>" with a NUL behind it. */
int client_sandbox_path(struct buf *out, const char *id, const char *tail);
/* One request whose answer must be JSON with a status below 400. text is what *ret points into. */
struct client_answer {
    struct silica_response response;
    char *json; /* the body as received; response.body is unescaped in place by the parser */
    struct json_doc *doc;
};
int client_call(struct silica_client *c, const struct silica_request *request, struct client_answer *ret,
                struct silica_error *reterr);
void client_answer_done(struct client_answer *a);
/* The list that is the member `name` of the answer. On failure *ret is NULL. */
int client_answer_list(const struct silica_client *c, const struct client_answer *a, const char *name,
                       const struct json_value **ret, struct silica_error *reterr);
/* The same about one sandbox: tail is behind its id in the path; body may be NULL, and so may ret when only
 * the status of the answer matters. */
int client_sandbox_call(struct silica_client *c, const char *method, const char *id, const char *tail,
                        const struct buf *body, struct client_answer *ret, struct silica_error *reterr);
/* A copy of a member that is a string; *ret stays when it is not there. False: no memory. */
bool client_copy_member(const struct json_value *v, const char *name, char **ret);

/* {"NAME":"VALUE",...} of "NAME=VALUE" strings that passed client_check_pairs. */
int client_check_pairs(const char *const *pairs, struct silica_error *reterr); /* NULL is an empty list */
void client_put_pairs(struct json_writer *w, const char *const *pairs);
