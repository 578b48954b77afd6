/* SPDX-License-Identifier: Apache-2.0 */
/* api_tokens.c: /v1/token: tokens made, listed and revoked. The secret is in the answer to POST and nowhere
 * else, ever.
 *
 *   POST   /v1/token {"scope": S, "sandbox"?: ID, "name"?: TEXT, "expiresIn"?: "1h"}
 *   GET    /v1/token
 *   DELETE /v1/token/{id} */
#include "gateway/body_json.h"
#include "gateway/duration.h"
#include "gateway/gateway_internal.h"
#include "gateway/reply.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { TOKEN_BODY_MAX = 16 * 1024, SECRET_BYTES = 32 };

/* A name of its own makes a leaked token findable. */
#define SECRET_PREFIX "silica_"

struct token_op {
    struct gateway *g;
    struct http_request *req; /* NULL: the caller is gone */
    struct token_row row;
    char secret[sizeof SECRET_PREFIX + 2 * SECRET_BYTES];
};

static void put_token(struct json_writer *w, const struct token_row *row, bool expired)
{
    char time[CLOCK_ISO_SIZE];
    json_member_string(w, "id", row->id);
    json_member_string(w, "scope", row->scope);
    if (row->sandbox[0])
        json_member_string(w, "sandbox", row->sandbox);
    if (row->name[0])
        json_member_string(w, "name", row->name);
    clock_iso(row->created_ms, time);
    json_member_string(w, "createdAt", time);
    if (row->expires_ms) {
        clock_iso(row->expires_ms, time);
        json_member_string(w, "expiresAt", time);
        json_member_bool(w, "expired", expired);
    }
}

static struct token_op *op_new(struct gateway *g, struct http_request *req)
{
    struct token_op *op = calloc(1, sizeof *op);
    if (!op) {
        reply_error(req, 500, "INTERNAL_ERROR", "out of memory");
        return NULL;
    }
    op->g = g;
    op->req = req;
    req->user = op;
    return op;
}

static void op_free(struct token_op *op)
{
    explicit_bzero(op->secret, sizeof op->secret);
    free(op);
}

static void op_gone(struct http_request *req)
{
    struct token_op *op = req->user;
    op->req = NULL; /* the store still works for it */
}

/* ------------------------------------------------------------------ POST */

static int read_expiry(const struct json_value *v, int64_t *ret_ms, struct problem *p)
{
    double seconds;
    int64_t ms;
    const char *s = json_string(v, NULL);
    if (json_type_of(v) == JSON_NULL)
        return 0;
    int r = s                          ? duration_parse(s, &ms)
            : json_number(v, &seconds) ? duration_from_seconds(seconds, &ms)
                                       : -EINVAL;
    if (r == -ERANGE)
        return problem_field(p, "expiresIn", "expiresIn is out of range");
    if (r < 0)
        return problem_field(p, "expiresIn",
                             "expiresIn must be a number of seconds or a text such as \"1h\"");
    *ret_ms = clock_wall_ms() + ms;
    return 0;
}

static int read_name(const struct json_value *v, struct token_row *row, struct problem *p)
{
    size_t n = 0;
    const char *s = json_string(v, &n);
    if (json_type_of(v) == JSON_NULL)
        return 0;
    if (!s || n > TOKEN_NAME_MAX)
        return problem_field(p, "name", "name must be a string of at most %d bytes", TOKEN_NAME_MAX);
    (void)snprintf(row->name, sizeof row->name, "%s", s);
    return 0;
}

static int read_sandbox(const struct json_value *v, enum auth_scope scope, struct token_row *row,
                        struct problem *p)
{
    const char *id = json_string(v, NULL);
    struct error e;
    if (json_type_of(v) == JSON_NULL)
        return scope == AUTH_SCOPE_SANDBOX
                   ? problem_field(p, "sandbox", "a one-sandbox token needs a sandbox")
                   : 0;
    if (scope != AUTH_SCOPE_SANDBOX && scope != AUTH_SCOPE_READ)
        return problem_field(p, "sandbox", "only one-sandbox and read-only tokens are bound to a sandbox");
    if (!id || sandbox_id_check(id, &e) < 0)
        return problem_field(p, "sandbox", "sandbox must be the id of a sandbox");
    (void)snprintf(row->sandbox, sizeof row->sandbox, "%s", id);
    return 0;
}

static int read_request(const struct json_value *body, struct token_row *row, struct problem *p)
{
    enum auth_scope scope;
    int r;
    if (json_type_of(body) != JSON_OBJECT)
        return problem_field(p, "body", "the body must be a JSON object");
    const char *name = json_string(json_get(body, "scope"), NULL);
    if (!name || !auth_scope_parse(name, &scope))
        return problem_field(p, "scope", "scope must be admin, create-only, one-sandbox or read-only");
    (void)snprintf(row->scope, sizeof row->scope, "%s", auth_scope_name(scope));
    if ((r = read_sandbox(json_get(body, "sandbox"), scope, row, p)) < 0 ||
        (r = read_name(json_get(body, "name"), row, p)) < 0 ||
        (r = read_expiry(json_get(body, "expiresIn"), &row->expires_ms, p)) < 0)
        return r;
    return 0;
}

/* On disk: it opens the door from now on. */
static void token_written(void *arg, uint64_t ticket, int err)
{
    struct token_op *op = arg;
    (void)ticket;
    if (err == 0) {
        err = tokens_add(auth_tokens(op->g->auth), &op->row, NULL);
        if (err < 0)
            (void)store_delete_token(op->g->store, op->row.id, NULL, NULL);
    }
    if (op->req && err == -ENOSPC) {
        reply_error(op->req, 409, "TOO_MANY_TOKENS", "there are %d tokens already", TOKENS_MAX);
    } else if (op->req && err < 0) {
        reply_error(op->req, 500, "STATE_NOT_SAVED", "the token could not be recorded on disk");
    } else if (op->req) {
        struct buf out = BUF_INIT(REPLY_MAX_BYTES);
        struct json_writer w;
        json_writer_init(&w, &out);
        json_object_begin(&w);
        put_token(&w, &op->row, false);
        json_member_string(&w, "token", op->secret);
        json_object_end(&w);
        reply_json(op->req, 201, &w);
    }
    op_free(op);
}

static void refuse(struct token_op *op, const struct problem *p)
{
    struct http_request *req = op->req;
    op_free(op);
    reply_problem(req, NULL, p);
}

static void create_body(struct http_request *req, struct buf *body, int err)
{
    struct token_op *op = req->user;
    auto_json struct json_doc *doc = NULL;
    unsigned char secret[SECRET_BYTES];
    struct problem p;
    int r = body_json(body, err, TOKEN_BODY_MAX, &doc, &p);
    if (r < 0 && r != -EINVAL)
        return; /* the server has answered; the request goes */
    if (r < 0 || read_request(json_root(doc), &op->row, &p) < 0) {
        refuse(op, &p);
        return;
    }
    random_name(op->row.id, TOKEN_ID_CHARS);
    random_bytes(secret, sizeof secret);
    memcpy(op->secret, SECRET_PREFIX, sizeof SECRET_PREFIX);
    hex_encode(op->secret + sizeof SECRET_PREFIX - 1, secret, sizeof secret);
    explicit_bzero(secret, sizeof secret);
    op->row.created_ms = clock_wall_ms();
    if (tokens_count(auth_tokens(op->g->auth)) >= TOKENS_MAX ||
        tokens_hash(auth_tokens(op->g->auth), op->secret, op->row.hash) < 0) {
        (void)problem_set(&p, 409, "TOO_MANY_TOKENS", "there are %d tokens already", TOKENS_MAX);
        refuse(op, &p);
        return;
    }
    req->on_gone = op_gone; /* from here on the store holds op */
    (void)store_put_token(op->g->store, &op->row, token_written, op);
}

static void create_gone(struct http_request *req)
{
    op_free(req->user);
}

void api_token_create(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    struct token_op *op = op_new(g, req);
    (void)m;
    if (!op)
        return;
    req->on_gone = create_gone;
    http_request_collect(req, TOKEN_BODY_MAX, create_body);
}

/* ------------------------------------------------------------------ GET, DELETE */

void api_token_list(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    const struct tokens *t = auth_tokens(g->auth);
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    int64_t count = 0;
    (void)m;
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_put_key(&w, "tokens");
    json_array_begin(&w);
    for (size_t i = 0; i < tokens_count(t); i++) {
        const struct token_row *row = &tokens_at(t, i)->row;
        if (!row->id[0])
            continue; /* the one the server was started with */
        json_object_begin(&w);
        put_token(&w, row, token_expired(tokens_at(t, i)));
        json_object_end(&w);
        count++;
    }
    json_array_end(&w);
    json_member_int(&w, "count", count);
    json_object_end(&w);
    reply_json(req, 200, &w);
}

static void token_deleted(void *arg, uint64_t ticket, int err)
{
    struct token_op *op = arg;
    (void)ticket;
    if (op->req && err < 0) {
        reply_error(op->req, 500, "STATE_NOT_SAVED",
                    "the token is revoked, but its record stays on disk and opens the door after a restart");
    } else if (op->req) {
        struct buf out = BUF_INIT(REPLY_MAX_BYTES);
        struct json_writer w;
        json_writer_init(&w, &out);
        json_object_begin(&w);
        json_member_bool(&w, "success", true);
        json_member_string(&w, "id", op->row.id);
        json_object_end(&w);
        reply_json(op->req, 200, &w);
    }
    op_free(op);
}

void api_token_delete(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    struct token *token = tokens_by_id(auth_tokens(g->auth), m->id);
    if (!token) {
        reply_error(req, 404, "TOKEN_NOT_FOUND", "there is no token '%s'", m->id);
        return;
    }
    struct token_op *op = op_new(g, req);
    if (!op)
        return;
    req->on_gone = op_gone;
    op->row = token->row;
    router_let_finish(req); /* it may be the token this request came with */
    tokens_revoke(auth_tokens(g->auth), token);
    (void)store_delete_token(g->store, op->row.id, token_deleted, op);
}
