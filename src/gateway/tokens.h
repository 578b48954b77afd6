/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.h: the tokens that open this server: known by their hashes, with what each may do and until when.
 *
 * Whoever does something for a token over a longer time (a stream, a tunnel) keeps a struct token_hold; when
 * the token is revoked or its time is up, hold->revoked is called from the loop within a second. */
#pragma once

#include "base/error.h"
#include "gateway/store.h"
#include "net/loop.h"

enum auth_scope {
    AUTH_SCOPE_ADMIN,   /* everything */
    AUTH_SCOPE_CREATE,  /* makes sandboxes and uses those it made; sees no others */
    AUTH_SCOPE_SANDBOX, /* everything with one id */
    AUTH_SCOPE_READ,    /* looks at everything (or at one sandbox) and changes nothing */
    AUTH_SCOPE_COUNT,
};
const char *auth_scope_name(enum auth_scope scope);
bool auth_scope_parse(const char *name, enum auth_scope *ret);

enum { TOKENS_MAX = 1024 };

struct token_hold {
    void (*revoked)(struct token_hold *h); /* h is free again; must not be released in here */
    struct token_hold *next, **prev;       /* prev NULL: not held */
};

struct token {
    struct token_row row; /* row.id "": the one the server was started with, which cannot be revoked */
    enum auth_scope scope;
    int64_t deadline_ms; /* boot time; counts if row.expires_ms is set */
    struct token_hold *holds;
    bool revoked;
    struct token *next_revoked;
};

struct tokens;

int tokens_new(struct tokens **ret, struct error *reterr);
void tokens_free(struct tokens *t); /* NULL is fine; everyone must have released */
/* Before this nothing is watched. */
void tokens_start(struct tokens *t, struct loop *loop);

/* 0, -ENOSPC (TOKENS_MAX are known), -ENOMEM or -EINVAL (a scope of a newer release). */
int tokens_add(struct tokens *t, const struct token_row *row, struct token **ret);
/* The token with this secret, unless its time is up; every look takes the same time. */
struct token *tokens_find(struct tokens *t, const char *secret);
struct token *tokens_by_id(struct tokens *t, const char *id);
/* From now on unknown; its holds are told from the loop, and then it is freed. */
void tokens_revoke(struct tokens *t, struct token *token);
size_t tokens_count(const struct tokens *t); /* also those whose time is up */
const struct token *tokens_at(const struct tokens *t, size_t i);
bool token_expired(const struct token *token);

int tokens_hash(struct tokens *t, const char *secret, unsigned char ret[TOKEN_HASH_SIZE]);

void token_hold(struct tokens *t, struct token *token, struct token_hold *h);
void token_release(struct token_hold *h); /* fine when not held */
