/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.c: see tokens.h.
 *
 * A presented token is hashed and the hash compared with every known one in constant time, without an early
 * exit: neither the tokens nor how many there are can be measured.
 *
 * A token's end is kept as wall time, because nothing else means the same after a restart, and turned into
 * boot time when the token becomes known: a wall clock that is set while we run neither ends tokens nor
 * prolongs them. It is looked at with every use, and twice a second while somebody holds a token that will
 * expire. */
#include "gateway/tokens.h"
#include "base/clock.h"
#include "base/id.h"

#include <assert.h>
#include <errno.h>
#include <openssl/evp.h>
#include <string.h>

enum { LOOK_MS = 500 }; /* twice a second, so that a stream ends within one */

struct tokens {
    struct loop *loop;
    EVP_MD *sha256; /* fetched once: the look-up costs more than the hash */
    EVP_MD_CTX *ctx;
    struct token **list;
    size_t count, cap;
    struct token *revoked; /* unknown already, their holds not told yet */
    struct deferred tell;
    struct timer look;
};

static const char *const scope_name[] = {
    [AUTH_SCOPE_ADMIN] = "admin",
    [AUTH_SCOPE_CREATE] = "create-only",
    [AUTH_SCOPE_SANDBOX] = "one-sandbox",
    [AUTH_SCOPE_READ] = "read-only",
};
static_assert(ARRAY_SIZE(scope_name) == AUTH_SCOPE_COUNT, "name every scope");

const char *auth_scope_name(enum auth_scope scope)
{
    return scope_name[scope];
}

bool auth_scope_parse(const char *name, enum auth_scope *ret)
{
    for (size_t i = 0; i < ARRAY_SIZE(scope_name); i++)
        if (strcmp(name, scope_name[i]) == 0) {
            *ret = (enum auth_scope)i;
            return true;
        }
    return false;
}

int tokens_new(struct tokens **ret, struct error *reterr)
{
    struct tokens *t = calloc(1, sizeof *t);
    if (!t)
        return error_sys(reterr, ENOMEM, "set up authentication");
    t->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    t->ctx = EVP_MD_CTX_new();
    if (!t->sha256 || !t->ctx) {
        tokens_free(t);
        return error_set(reterr, EOPNOTSUPP, "set up authentication: libcrypto has no SHA-256");
    }
    *ret = t;
    return 0;
}

void tokens_start(struct tokens *t, struct loop *loop)
{
    t->loop = loop;
}

void tokens_free(struct tokens *t)
{
    if (!t)
        return;
    if (t->loop) {
        loop_timer_stop(t->loop, &t->look);
        loop_undefer(t->loop, &t->tell);
    }
    for (size_t i = 0; i < t->count; i++)
        free(t->list[i]);
    for (struct token *token = t->revoked, *next; token; token = next) {
        next = token->next_revoked;
        free(token);
    }
    free(t->list);
    EVP_MD_CTX_free(t->ctx);
    EVP_MD_free(t->sha256);
    free(t);
}

/* When it ends by our own clock. A wall clock that was set back while we were down cannot give a token more
 * time than it was made for. */
static int64_t row_deadline(const struct token_row *row)
{
    int64_t left_ms = row->expires_ms - clock_wall_ms();
    if (row->created_ms && left_ms > row->expires_ms - row->created_ms)
        left_ms = row->expires_ms - row->created_ms;
    return clock_boot_ms() + left_ms;
}

int tokens_add(struct tokens *t, const struct token_row *row, struct token **ret)
{
    enum auth_scope scope;
    if (!auth_scope_parse(row->scope, &scope))
        return -EINVAL;
    if (t->count == TOKENS_MAX)
        return -ENOSPC;
    if (t->count == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 4;
        struct token **list = realloc(t->list, cap * sizeof(struct token *));
        if (!list)
            return -ENOMEM;
        t->list = list;
        t->cap = cap;
    }
    struct token *token = calloc(1, sizeof *token);
    if (!token)
        return -ENOMEM;
    token->row = *row;
    token->scope = scope;
    token->deadline_ms = row->expires_ms ? row_deadline(row) : 0;
    t->list[t->count++] = token;
    if (ret)
        *ret = token;
    return 0;
}

int tokens_hash(struct tokens *t, const char *secret, unsigned char ret[TOKEN_HASH_SIZE])
{
    unsigned len = 0;
    if (EVP_DigestInit_ex2(t->ctx, t->sha256, NULL) != 1 ||
        EVP_DigestUpdate(t->ctx, secret, strlen(secret)) != 1 || EVP_DigestFinal_ex(t->ctx, ret, &len) != 1 ||
        len != TOKEN_HASH_SIZE)
        return -EIO;
    return 0;
}

bool token_expired(const struct token *token)
{
    return token->row.expires_ms && clock_boot_ms() >= token->deadline_ms;
}

struct token *tokens_find(struct tokens *t, const char *secret)
{
    unsigned char hash[TOKEN_HASH_SIZE];
    struct token *found = NULL;
    if (tokens_hash(t, secret, hash) < 0)
        return NULL;
    for (size_t i = 0; i < t->count; i++)
        if (equal_constant_time(hash, t->list[i]->row.hash, sizeof hash))
            found = t->list[i];
    return found && !token_expired(found) ? found : NULL;
}

struct token *tokens_by_id(struct tokens *t, const char *id)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->list[i]->row.id[0] && strcmp(t->list[i]->row.id, id) == 0)
            return t->list[i];
    return NULL;
}

size_t tokens_count(const struct tokens *t)
{
    return t->count;
}

const struct token *tokens_at(const struct tokens *t, size_t i)
{
    return t->list[i];
}

/* ------------------------------------------------------------------ holds */

static void tell_holds(struct token *token)
{
    while (token->holds) {
        struct token_hold *h = token->holds;
        token_release(h);
        h->revoked(h);
    }
}

static void tell_revoked(struct deferred *d)
{
    struct tokens *t = container_of(d, struct tokens, tell);
    while (t->revoked) {
        struct token *token = t->revoked;
        t->revoked = token->next_revoked;
        tell_holds(token);
        free(token);
    }
}

/* Those who began before the end of their token's time end with it. */
static void look_fired(struct timer *timer)
{
    struct tokens *t = container_of(timer, struct tokens, look);
    bool again = false;
    for (size_t i = 0; i < t->count; i++) {
        struct token *token = t->list[i];
        if (token->row.expires_ms && token_expired(token))
            tell_holds(token);
        again |= token->row.expires_ms && token->holds;
    }
    if (again)
        loop_timer_start(t->loop, &t->look, LOOK_MS, look_fired);
}

void token_hold(struct tokens *t, struct token *token, struct token_hold *h)
{
    h->next = token->holds;
    if (h->next)
        h->next->prev = &h->next;
    h->prev = &token->holds;
    token->holds = h;
    if (token->row.expires_ms && !loop_timer_running(&t->look))
        loop_timer_start(t->loop, &t->look, LOOK_MS, look_fired);
}

void token_release(struct token_hold *h)
{
    if (!h->prev)
        return;
    *h->prev = h->next;
    if (h->next)
        h->next->prev = h->prev;
    h->prev = NULL;
}

void tokens_revoke(struct tokens *t, struct token *token)
{
    size_t i = 0;
    while (t->list[i] != token)
        i++;
    t->list[i] = t->list[--t->count];
    token->revoked = true;
    token->next_revoked = t->revoked;
    t->revoked = token;
    loop_defer(t->loop, &t->tell, tell_revoked);
}
