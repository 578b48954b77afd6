/* SPDX-License-Identifier: Apache-2.0 */
/* auth.c: see auth.h.
 *
 * Without tokens the enemy is a web page in the user's browser. It can make the browser send requests here,
 * but it cannot choose Host (checked: equal to a name of this machine, so DNS rebinding fails), Origin
 * (checked: our own or none) or Sec-Fetch-Site (checked where browsers send it, for requests that carry no
 * Origin), and it cannot send a body with a content type outside three harmless ones without asking first
 * (checked: those three are refused). */
#include "gateway/auth.h"
#include "gateway/throttle.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct auth {
    bool off;
    struct tokens *tokens;
    struct throttle throttle;
};

int auth_new(bool off, struct auth **ret, struct error *reterr)
{
    struct auth *a = calloc(1, sizeof *a);
    if (!a)
        return error_sys(reterr, ENOMEM, "set up authentication");
    a->off = off;
    throttle_init(&a->throttle);
    int r = tokens_new(&a->tokens, reterr);
    if (r < 0) {
        free(a);
        return r;
    }
    *ret = a;
    return 0;
}

void auth_free(struct auth *a)
{
    if (!a)
        return;
    tokens_free(a->tokens);
    free(a);
}

int auth_add_admin(struct auth *a, const unsigned char hash[TOKEN_HASH_BYTES])
{
    struct token_row row = {.created_ms = clock_wall_ms()};
    (void)snprintf(row.scope, sizeof row.scope, "%s", auth_scope_name(AUTH_SCOPE_ADMIN));
    memcpy(row.hash, hash, sizeof row.hash);
    return tokens_add(a->tokens, &row, NULL);
}

bool auth_is_off(const struct auth *a)
{
    return a->off;
}

struct tokens *auth_tokens(struct auth *a)
{
    return a->tokens;
}

/* The token in "Bearer <token>", NULL when the header is of any other form. */
static const char *bearer_token(const char *value)
{
    if (strncasecmp(value, "Bearer ", 7) != 0)
        return NULL;
    value += 7;
    return *value && !strpbrk(value, " \t,") ? value : NULL;
}

/* "localhost", "127.0.0.1" or "[::1]", with or without a port, and nothing else. */
static bool is_local_host(const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        size_t n = strlen(names[i]);
        if (strncasecmp(host, names[i], n) != 0)
            continue;
        if (host[n] == '\0')
            return true;
        size_t digits = host[n] == ':' ? strspn(host + n + 1, "0123456789") : 0;
        return digits >= 1 && digits <= 5 && host[n + 1 + digits] == '\0';
    }
    return false;
}

static bool is_own_origin(const char *origin, const char *host)
{
    return strncasecmp(origin, "http://", 7) == 0 && strcasecmp(origin + 7, host) == 0;
}

/* What an HTML form or a fetch() without preflight can send. */
static bool is_form_type(const char *type)
{
    static const char *const forms[] = {"text/plain", "multipart/form-data",
                                        "application/x-www-form-urlencoded"};
    size_t n = strcspn(type, "; \t");
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++)
        if (n == strlen(forms[i]) && strncasecmp(type, forms[i], n) == 0)
            return true;
    return n == 0;
}

int auth_check_local(const struct auth *a, const struct http_header *headers, size_t count, bool has_body,
                     struct problem *p)
{
    if (!a->off)
        return 0;
    const char *host = http_header_find(headers, count, "Host");
    if (!host || http_header_occurs(headers, count, "Host") != 1 || !is_local_host(host))
        return problem_set(p, 403, "FORBIDDEN", "without tokens this server answers to localhost only");

    for (size_t i = 0; i < count; i++)
        if (strcasecmp(headers[i].name, "Origin") == 0 && !is_own_origin(headers[i].value, host))
            return problem_set(p, 403, "FORBIDDEN", "requests from other origins are refused");
    const char *site = http_header_find(headers, count, "Sec-Fetch-Site");
    if (site && strcasecmp(site, "same-origin") != 0 && strcasecmp(site, "none") != 0)
        return problem_set(p, 403, "FORBIDDEN", "requests from other sites are refused");

    if (has_body) {
        const char *type = http_header_find(headers, count, "Content-Type");
        if (!type || http_header_occurs(headers, count, "Content-Type") != 1 || is_form_type(type))
            return problem_set(p, 415, "UNSUPPORTED_MEDIA_TYPE",
                               "without tokens a body needs Content-Type: application/json");
    }
    return 0;
}

int auth_check(struct auth *a, const struct http_header *headers, size_t count, bool has_body,
               const char *peer, struct auth_identity *ret, struct problem *p)
{
    if (a->off) {
        int r = auth_check_local(a, headers, count, has_body, p);
        if (r == 0)
            *ret = (struct auth_identity){.scope = AUTH_SCOPE_ADMIN};
        return r;
    }
    const char *presented = NULL;
    if (http_header_occurs(headers, count, "Authorization") == 1)
        presented = bearer_token(http_header_find(headers, count, "Authorization"));
    /* who guesses is turned away before anything is computed for him */
    int wait_s = throttle_wait(&a->throttle, peer, clock_mono_ms());
    if (wait_s) {
        (void)problem_set(p, 429, "TOO_MANY_FAILURES", "too many wrong tokens came from this address");
        p->retry_after_s = wait_s;
        return -EINVAL;
    }
    struct token *t = presented ? tokens_find(a->tokens, presented) : NULL;
    if (presented && !t)
        throttle_failed(&a->throttle, peer, clock_mono_ms());
    if (!t)
        return problem_set(p, 401, "UNAUTHORIZED", "a valid bearer token is needed");
    *ret = (struct auth_identity){.scope = t->scope, .token = t};
    return 0;
}

bool auth_in_headers(struct auth *a, const struct http_header *headers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!http_name_equal(headers[i].name, "Authorization"))
            continue;
        const char *presented = bearer_token(headers[i].value);
        if (presented && tokens_find(a->tokens, presented))
            return true;
    }
    return false;
}

bool auth_may_see(const struct auth_identity *who, const char *id, const struct sandbox *sb)
{
    switch (who->scope) {
    case AUTH_SCOPE_ADMIN:
        return true;
    case AUTH_SCOPE_CREATE:
        return !sb || strcmp(sb->owner, who->token->row.id) == 0;
    case AUTH_SCOPE_SANDBOX:
        return strcmp(id, who->token->row.sandbox) == 0;
    case AUTH_SCOPE_READ: /* and never makes one */
        return sb && (!who->token->row.sandbox[0] || strcmp(id, who->token->row.sandbox) == 0);
    case AUTH_SCOPE_COUNT:
        break;
    }
    return false;
}

const char *auth_owner(const struct auth_identity *who)
{
    return who->scope == AUTH_SCOPE_CREATE ? who->token->row.id : "";
}
