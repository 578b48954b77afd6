/* SPDX-License-Identifier: Apache-2.0 */
/* router.c: from a request's path to its handler; authorisation before anything else.
 *
 * Paths are compared byte by byte as sent. Only the sandbox id is percent-decoded, once, and then
 * checked, so there is exactly one meaning of every path.
 *
 * What a token may do is decided here, for every route, and fails closed: a row without flags is for tokens
 * that may change things, and whatever names a sandbox is checked against what the token may see. A request
 * holds its token: when that is revoked, the request ends. */
#include "gateway/gateway_internal.h"
#include "gateway/reply.h"

#include <stdio.h>
#include <string.h>

enum route_flags {
    ROUTE_OPEN = 1,   /* answers without a token */
    ROUTE_READ = 2,   /* changes nothing: for read-only tokens, too (except when it asks for an upgrade) */
    ROUTE_ADMIN = 4,  /* for admin tokens only */
    ROUTE_GLOBAL = 8, /* tells about all sandboxes at once: not for tokens that may not see them all */
    ROUTE_TOKEN = 16, /* {id} is a token's */
    ROUTE_QUERY = 32, /* an upgrade may bring its token as ?token=: browsers cannot set headers there */
};

enum { BEARER_MAX = 512 };

struct route {
    const char *method;  /* NULL: any */
    const char *pattern; /* "{id}" stands for one segment, a final "*" for a non-empty rest */
    void (*handle)(struct gateway *g, struct http_request *req, const struct route_match *m);
    unsigned flags;
    enum route_class class;
};

/* Lives as long as its request. */
struct request_context {
    struct gateway *g;
    struct http_request *req;
    enum route_class class;
    struct token_hold hold;
};

static const struct route routes[] = {
    {"GET", "/health", api_health, ROUTE_OPEN, CLASS_HEALTH},
    {"GET", "/metrics", api_metrics, ROUTE_READ | ROUTE_GLOBAL, CLASS_METRICS},
    {"GET", "/v1/events", api_events, ROUTE_READ, CLASS_EVENTS},
    {"GET", "/v1/token", api_token_list, ROUTE_ADMIN, CLASS_TOKEN},
    {"POST", "/v1/token", api_token_create, ROUTE_ADMIN, CLASS_TOKEN},
    {"DELETE", "/v1/token/{id}", api_token_delete, ROUTE_ADMIN | ROUTE_TOKEN, CLASS_TOKEN},
    {"GET", "/v1/images", api_image_list, ROUTE_READ | ROUTE_GLOBAL, CLASS_IMAGE},
    {"POST", "/v1/images/import", api_image_import, ROUTE_ADMIN, CLASS_IMAGE},
    {"GET", "/v1/images/export", api_image_export, ROUTE_ADMIN, CLASS_IMAGE},
    {"POST", "/v1/images/save", api_image_save, ROUTE_ADMIN, CLASS_IMAGE},
    {"POST", "/v1/images/tag", api_image_tag, ROUTE_ADMIN, CLASS_IMAGE},
    {"POST", "/v1/images/prune", api_image_prune, ROUTE_ADMIN, CLASS_IMAGE},
    {"GET", "/v1/images/*", api_image_get, ROUTE_READ | ROUTE_GLOBAL, CLASS_IMAGE},
    {"DELETE", "/v1/images/*", api_image_delete, ROUTE_ADMIN, CLASS_IMAGE},
    {"GET", "/v1/volumes", api_volume_list, ROUTE_READ | ROUTE_GLOBAL, CLASS_VOLUME},
    {"POST", "/v1/volumes", api_volume_create, ROUTE_ADMIN, CLASS_VOLUME},
    {"GET", "/v1/volumes/*", api_volume_get, ROUTE_READ | ROUTE_GLOBAL, CLASS_VOLUME},
    {"DELETE", "/v1/volumes/*", api_volume_delete, ROUTE_ADMIN, CLASS_VOLUME},
    {"GET", "/v1/sandbox", api_sandbox_list, ROUTE_READ, CLASS_SANDBOX},
    {"GET", "/v1/sandbox/{id}", api_sandbox_get, ROUTE_READ, CLASS_SANDBOX},
    {"PUT", "/v1/sandbox/{id}", api_sandbox_put, 0, CLASS_SANDBOX},
    {"DELETE", "/v1/sandbox/{id}", api_sandbox_delete, 0, CLASS_SANDBOX},
    {"POST", "/v1/sandbox/{id}/sleep", api_sandbox_sleep, 0, CLASS_SANDBOX},
    {"POST", "/v1/sandbox/{id}/wake", api_sandbox_wake, 0, CLASS_SANDBOX},
    {"GET", "/v1/sandbox/{id}/network", api_network_get, ROUTE_READ, CLASS_SANDBOX},
    {"GET", "/v1/sandbox/{id}/network/log", api_network_log, ROUTE_READ, CLASS_SANDBOX},
    {"GET", "/v1/sandbox/{id}/ports", api_port_list, ROUTE_READ, CLASS_SANDBOX},
    {"POST", "/v1/sandbox/{id}/ports", api_port_expose, 0, CLASS_SANDBOX},
    {"GET", "/v1/sandbox/{id}/ports/listening", api_port_listening, ROUTE_READ, CLASS_API},
    {"DELETE", "/v1/sandbox/{id}/ports/*", api_port_unexpose, 0, CLASS_SANDBOX},
    {"GET", "/v1/sandbox/{id}/ws", ws_proxy_request, 0, CLASS_API},
    {"GET", "/v1/sandbox/{id}/api/ws", ws_proxy_request, 0, CLASS_API},
    {"GET", "/v1/sandbox/{id}/ws/pty", ws_proxy_request, ROUTE_QUERY, CLASS_API},
    {"GET", "/v1/sandbox/{id}/rpc", ws_proxy_request, 0, CLASS_API},
    {"GET", "/v1/sandbox/{id}/api/*", proxy_request, ROUTE_READ, CLASS_API},
    {NULL, "/v1/sandbox/{id}/api/*", proxy_request, 0, CLASS_API},
    {"GET", "/v1/sandbox/{id}/file/*", proxy_request, ROUTE_READ, CLASS_API},
    {"HEAD", "/v1/sandbox/{id}/file/*", proxy_request, ROUTE_READ, CLASS_API},
    {NULL, "/v1/sandbox/{id}/file/*", proxy_request, 0, CLASS_API},
};

/* What a pattern found in a path; offsets into the path. */
struct found {
    size_t id, id_len; /* the segment */
};

static bool match(const char *pattern, const char *path, struct found *ret)
{
    const char *p = path;
    *ret = (struct found){0};
    for (; *pattern; pattern++) {
        if (*pattern == '*')
            return *p != '\0';
        if (*pattern == '{') {
            ret->id = (size_t)(p - path);
            ret->id_len = strcspn(p, "/");
            p += ret->id_len;
            pattern = strchr(pattern, '}');
        } else if (*p++ != *pattern) {
            return false;
        }
    }
    return *p == '\0';
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Percent-decodes n bytes into out; false when malformed, with a NUL, or longer than an id can be. */
static bool decode_id(const char *in, size_t n, char out[SANDBOX_ID_MAX + 1])
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        char c = in[i];
        if (c == '%') {
            if (i + 2 >= n)
                return false;
            int high = hex_digit(in[i + 1]), low = hex_digit(in[i + 2]);
            if (high < 0 || low < 0)
                return false;
            c = (char)(high << 4 | low);
            i += 2;
        }
        if (c == '\0' || len == SANDBOX_ID_MAX)
            return false;
        out[len++] = c;
    }
    out[len] = '\0';
    return true;
}

/* HEAD is GET without the body, which the server leaves out. */
static bool method_fits(const struct route *r, const char *method)
{
    return !r->method || strcmp(r->method, method) == 0 ||
           (strcmp(r->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

/* The token in the query as if it had come in the header. */
static int check_query_token(struct gateway *g, struct http_request *req, struct auth_identity *who,
                             struct problem *p)
{
    char value[BEARER_MAX] = "Bearer ";
    (void)http_query_get(req->query, "token", value + 7, sizeof value - 7);
    const struct http_header header = {"Authorization", value};
    return auth_check(g->auth, &header, 1, req->has_body, req->peer, who, p);
}

static bool authorised(struct gateway *g, struct http_request *req, unsigned flags, struct auth_identity *who)
{
    struct problem p;
    bool open = flags & ROUTE_OPEN;
    bool query = flags & ROUTE_QUERY && req->upgrade && !auth_is_off(g->auth) &&
                 !http_request_header(req, "Authorization");
    int r = query  ? check_query_token(g, req, who, &p)
            : open ? auth_check_local(g->auth, req->headers, req->header_count, req->has_body, &p)
                   : auth_check(g->auth, req->headers, req->header_count, req->has_body, req->peer, who, &p);
    if (r == 0)
        return true;
    g->metrics.auth_failures += p.status == 401;
    g->metrics.auth_throttled += p.status == 429;
    reply_problem(req, NULL, &p);
    return false;
}

/* Whether a token of this scope may use the route at all, whichever sandbox it is about. */
static bool in_scope(const struct route *r, const struct http_request *req, const struct auth_identity *who)
{
    bool bound = who->token && who->token->row.sandbox[0];
    if (r->flags & ROUTE_OPEN || who->scope == AUTH_SCOPE_ADMIN)
        return true;
    if (r->flags & ROUTE_ADMIN)
        return false;
    if (r->flags & ROUTE_GLOBAL && (bound || who->scope != AUTH_SCOPE_READ))
        return false;
    return who->scope != AUTH_SCOPE_READ || (r->flags & ROUTE_READ && !req->upgrade);
}

static void token_revoked(struct token_hold *h)
{
    http_request_cut(container_of(h, struct request_context, hold)->req);
}

void router_let_finish(struct http_request *req)
{
    struct request_context *c = req->context;
    token_release(&c->hold);
}

void router_over(struct http_request *req, int status, void *arg)
{
    struct gateway *g = arg;
    struct request_context *c = req->context;
    if (!c)
        return;
    int digit = status / 100;
    g->metrics.requests[c->class][digit >= 0 && digit <= 5 ? digit : 0]++;
    g->metrics.in_flight--;
    token_release(&c->hold);
    free(c);
}

static struct request_context *context_new(struct gateway *g, struct http_request *req, const struct route *r)
{
    struct request_context *c = calloc(1, sizeof *c);
    if (!c) {
        reply_error(req, 500, "INTERNAL_ERROR", "out of memory");
        return NULL;
    }
    c->g = g;
    c->req = req;
    c->class = r ? r->class : CLASS_OTHER;
    c->hold.revoked = token_revoked;
    req->context = c;
    g->metrics.in_flight++;
    return c;
}

/* The methods of every route whose pattern fits, "GET, PUT, DELETE". */
static void allowed_methods(const char *path, char *out, size_t cap)
{
    struct found f;
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++)
        if (match(routes[i].pattern, path, &f) && n < cap)
            n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? ", " : "", routes[i].method);
}

static void dispatch(struct gateway *g, struct http_request *req, const struct route *r,
                     const struct found *f, const struct auth_identity *who)
{
    char id[SANDBOX_ID_MAX + 1] = "";
    struct route_match m = {.id = id, .who = *who};
    struct error e;
    if (f->id) {
        if (!decode_id(req->path + f->id, f->id_len, id)) {
            reply_error(req, 400, "INVALID_SANDBOX_ID",
                        "a sandbox id is 1 to %d letters, digits, '-', '_' and '.'", SANDBOX_ID_MAX);
            return;
        }
        if (sandbox_id_check(id, &e) < 0) {
            reply_error(req, 400, "INVALID_SANDBOX_ID", "%s", e.msg);
            return;
        }
        m.target = req->target + f->id + f->id_len;
        /* the same work and the same answer, whether it belongs to somebody else or to nobody */
        if (!(r->flags & ROUTE_TOKEN) && !auth_may_see(who, id, lifecycle_find(g->lifecycle, id))) {
            struct problem p;
            (void)problem_set(&p, 404, "SANDBOX_NOT_FOUND", "there is no sandbox '%s'", id);
            reply_problem(req, id, &p);
            return;
        }
    }
    r->handle(g, req, &m);
}

void router_request(struct http_request *req, void *arg)
{
    struct gateway *g = arg;
    if (preview_request(g, req))
        return;
    const struct route *fits = NULL;
    struct found f, found = {0};
    bool known = false;
    for (size_t i = 0; i < ARRAY_SIZE(routes) && !fits; i++) {
        if (!match(routes[i].pattern, req->path, &f))
            continue;
        known = true;
        found = f;
        if (method_fits(&routes[i], req->method))
            fits = &routes[i];
    }

    struct request_context *c = context_new(g, req, fits);
    if (!c)
        return;
    /* before the route is looked at: strangers do not learn which paths exist */
    struct auth_identity who = {0};
    if (!authorised(g, req, fits ? fits->flags : 0, &who))
        return;
    if (who.token)
        token_hold(auth_tokens(g->auth), who.token, &c->hold);
    if (fits && !in_scope(fits, req, &who)) {
        reply_error(req, 403, "FORBIDDEN", "this token may not do that");
    } else if (fits) {
        dispatch(g, req, fits, &found, &who);
    } else if (known) {
        char allow[64];
        allowed_methods(req->path, allow, sizeof allow);
        reply_method_not_allowed(req, allow);
    } else {
        reply_error(req, 404, "UNKNOWN_ROUTE", "there is nothing at this path");
    }
}
