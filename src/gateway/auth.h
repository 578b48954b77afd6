/* SPDX-License-Identifier: Apache-2.0 */
/* auth.h: who is asking, and what he may do: bearer tokens, or the local rules when tokens are switched off.
 */
#pragma once

#include "base/error.h"
#include "gateway/gateway.h"
#include "gateway/lifecycle.h"
#include "gateway/problem.h"
#include "gateway/tokens.h"
#include "net/http.h"

struct auth_identity {
    enum auth_scope scope;
    struct token *token; /* valid during the handler's call; NULL when tokens are switched off */
};

struct auth;

/* off: no tokens; every request must prove instead that no foreign web page made it. */
int auth_new(bool off, struct auth **ret, struct error *reterr);
void auth_free(struct auth *a); /* NULL is fine */
/* The token the server was started with. hash: SHA-256 of it. */
int auth_add_admin(struct auth *a, const unsigned char hash[TOKEN_HASH_BYTES]);
bool auth_is_off(const struct auth *a);
struct tokens *auth_tokens(struct auth *a);

/* Decides on the head of a request alone. 0 and *ret, or -EINVAL and the answer in *p: one and the same 401
 * for a missing, malformed, repeated, unknown or expired token; 429 for an address that guesses; 403 and 415
 * only when tokens are off. peer: "address:port". */
int auth_check(struct auth *a, const struct http_header *headers, size_t count, bool has_body,
               const char *peer, struct auth_identity *ret, struct problem *p);
/* The part of auth_check that also guards routes open to everybody. */
int auth_check_local(const struct auth *a, const struct http_header *headers, size_t count, bool has_body,
                     struct problem *p);

/* Whether an Authorization header carries a token of this server; for what is passed on to strangers. */
bool auth_in_headers(struct auth *a, const struct http_header *headers, size_t count);

/* Whether who may know of a sandbox with this id; sb is NULL when there is none. When it may not, the answer
 * is the one for a sandbox that does not exist. */
bool auth_may_see(const struct auth_identity *who, const char *id, const struct sandbox *sb);
/* For struct sandbox_use: the name under which who owns what it makes, "" when it may use what others made.
 */
const char *auth_owner(const struct auth_identity *who);
