/* SPDX-License-Identifier: Apache-2.0 */
/* ws_proxy.c: a WebSocket to the agent of a sandbox: checked, handed over, then passed on byte for byte.
 *
 * Theory of operation
 * The handshake is checked here (RFC 6455, and no foreign Origin: a browser sends a page's credentials along
 * with upgrades wherever they go), after the router has checked the token. The sandbox is woken and asked for
 * the same upgrade; its 101 is held back until the sandbox's row is on disk. Then both sockets are joined
 * (byte_tunnel.c) and nobody looks at the frames. While the tunnel lasts it is a request in flight: the
 * sandbox does not fall asleep. It ends with either side, with the sandbox, or when its token is revoked. */
#include "gateway/byte_tunnel.h"
#include "gateway/gateway_internal.h"
#include "gateway/proxy_head.h"
#include "gateway/reply.h"
#include "net/websocket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { SWITCH_MAX = 512 * 1024 }; /* a 101 head and what both sides sent behind theirs */

struct ws_proxy {
    struct ws_proxy *next, **prev; /* of the gateway */
    struct gateway *g;
    struct http_request *req; /* NULL: a tunnel */
    char *target;
    struct sandbox_use use;
    struct agent_want want;
    struct sandbox_commit commit;
    struct token_hold hold;
    struct http_client *client;
    uint64_t generation;
    struct byte_tunnel *tunnel;
    struct buf switching; /* the head of a 101 */
    bool taken;           /* the connection to the agent is the tunnel's */
    bool retried, restarted, fresh;
};

/* ------------------------------------------------------------------ the end */

static void drop_client(struct ws_proxy *p)
{
    struct http_client *client = take_ptr(p->client);
    if (client)
        agent_pool_put(&p->use.sandbox->pool, client, p->generation);
}

static void ws_proxy_free(struct ws_proxy *p)
{
    if (p->use.sandbox)
        agent_pool_cancel(&p->use.sandbox->pool, &p->want);
    sandbox_commit_cancel(&p->commit);
    drop_client(p);
    byte_tunnel_free(p->tunnel);
    if (p->taken)
        agent_pool_taken(&p->use.sandbox->pool);
    lifecycle_leave(&p->use);
    token_release(&p->hold);
    *p->prev = p->next;
    if (p->next)
        p->next->prev = p->prev;
    buf_done(&p->switching);
    free(p->target);
    free(p);
}

void ws_proxies_free(struct gateway *g)
{
    while (g->ws_proxies)
        ws_proxy_free(g->ws_proxies);
}

static void refuse(struct ws_proxy *p, const struct problem *problem)
{
    struct http_request *req = p->req;
    char id[SANDBOX_ID_MAX + 1] = "";
    if (p->use.sandbox)
        memcpy(id, p->use.sandbox->id, sizeof id);
    ws_proxy_free(p);
    reply_problem(req, id[0] ? id : NULL, problem);
}

static void refuse_unavailable(struct ws_proxy *p, const char *why)
{
    struct problem problem;
    (void)problem_set(&problem, 502, "SANDBOX_UNAVAILABLE", "%s", why);
    refuse(p, &problem);
}

static void caller_gone(struct http_request *req)
{
    ws_proxy_free(req->user);
}

/* Before the tunnel the router ends the request itself. */
static void token_revoked(struct token_hold *h)
{
    struct ws_proxy *p = container_of(h, struct ws_proxy, hold);
    if (!p->req)
        ws_proxy_free(p);
}

/* ------------------------------------------------------------------ the tunnel */

static void tunnel_done(void *arg)
{
    struct ws_proxy *p = arg;
    p->tunnel = NULL;
    ws_proxy_free(p);
}

static void switch_protocols(struct ws_proxy *p)
{
    struct buf firsts[2] = {p->switching, BUF_INIT(SWITCH_MAX)};
    p->switching = BUF_INIT(SWITCH_MAX);
    auto_close int agent = http_client_take_fd(p->client, &firsts[0]);
    if (agent < 0) {
        buf_done(&firsts[0]);
        refuse_unavailable(p, "the sandbox went on before the change of protocol was complete");
        return;
    }
    p->client = NULL;
    p->taken = true;
    auto_close int caller = http_hijack(p->req, &firsts[1]); /* the request is over, also when it fails */
    p->req = NULL;
    struct byte_tunnel_config config = {
        .loop = p->g->loop, .fds = {caller, agent}, .firsts = firsts, .done = tunnel_done, .arg = p};
    if (caller >= 0 && (p->tunnel = byte_tunnel_new(&config))) {
        caller = agent = -1; /* the tunnel's now */
        return;
    }
    buf_done(&firsts[0]);
    buf_done(&firsts[1]);
    ws_proxy_free(p);
}

static void committed(struct sandbox_commit *c, const struct problem *problem)
{
    struct ws_proxy *p = container_of(c, struct ws_proxy, commit);
    if (problem)
        refuse(p, problem);
    else
        switch_protocols(p);
}

/* ------------------------------------------------------------------ the agent's answer */

static int put_switching(struct buf *out, const struct http_header *headers, size_t count)
{
    static const char *const names[] = {"Upgrade", "Connection", "Sec-WebSocket-Accept"};
    int r = buf_puts(out, "HTTP/1.1 101 Switching Protocols\r\n");
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(names); i++) {
        const char *value = http_header_find(headers, count, names[i]);
        if (value)
            r = buf_printf(out, "%s: %s\r\n", names[i], value);
    }
    return r == 0 ? buf_puts(out, "\r\n") : r;
}

static void agent_head(struct http_client *client, int status, const struct http_header *headers,
                       size_t count, int64_t content_length)
{
    struct ws_proxy *p = http_client_user(client);
    struct proxy_headers out;
    sandbox_heard(p->use.sandbox);
    if (status == 101) {
        p->switching = BUF_INIT(SWITCH_MAX);
        if (put_switching(&p->switching, headers, count) < 0)
            refuse_unavailable(p, "out of memory");
    } else if (status < 200 || status > 599) {
        refuse_unavailable(p, "the sandbox's agent answered with a strange status");
    } else if (!proxy_headers_from_agent(headers, count, !auth_is_off(p->g->auth), &out)) {
        refuse_unavailable(p, "the sandbox's agent sent too many headers");
    } else {
        http_response_close_after(p->req);
        http_response_begin(p->req, status, out.list, out.count, content_length);
    }
}

static void agent_data(struct http_client *client, const char *data, size_t n)
{
    struct ws_proxy *p = http_client_user(client);
    if (!http_response_write(p->req, data, n))
        http_client_pause(client);
}

static void caller_drained(struct http_request *req)
{
    struct ws_proxy *p = req->user;
    if (p->client)
        http_client_resume(p->client);
}

static void agent_end(struct http_client *client, int err)
{
    struct ws_proxy *p = http_client_user(client);
    struct http_request *req = p->req;
    if (err < 0 && !http_response_begun(req) && !p->fresh && !p->retried) {
        p->retried =
            true; /* an old connection, closed by the agent meanwhile; nothing was changed by asking */
        drop_client(p);
        agent_pool_get(&p->use.sandbox->pool, &p->want);
    } else if (err < 0 && !http_response_begun(req)) {
        refuse_unavailable(p, "the sandbox ended before it answered");
    } else if (err < 0) {
        ws_proxy_free(p);
        http_response_abort(req);
    } else if (buf_len(&p->switching)) {
        sandbox_commit_wait(p->use.sandbox, &p->commit);
    } else {
        ws_proxy_free(p);
        http_response_end(req);
    }
}

/* ------------------------------------------------------------------ the request */

static const struct http_client_ops agent_ops = {
    .on_head = agent_head,
    .on_data = agent_data,
    .on_end = agent_end,
    .on_idle_close = agent_pool_idle_closed,
};

static void send_upgrade(struct ws_proxy *p)
{
    struct proxy_headers headers;
    struct http_request *req = p->req;
    struct problem problem;
    if (!proxy_headers_to_agent(req->headers, req->header_count, &headers) ||
        headers.count + 2 > PROXY_HEADERS_MAX) {
        (void)problem_set(&problem, 431, "HEADERS_TOO_LARGE", "there are too many headers");
        refuse(p, &problem);
        return;
    }
    headers.list[headers.count++] = (struct http_header){"Upgrade", "websocket"};
    headers.list[headers.count++] = (struct http_header){"Connection", "Upgrade"};
    int r = http_client_send(p->client, req->method, p->target, headers.list, headers.count, 0, &agent_ops);
    if (r == -ENOTCONN) {
        agent_end(p->client, -EPIPE);
    } else if (r < 0) {
        (void)problem_set(&problem, 400, "BAD_REQUEST", "the request cannot be passed on");
        refuse(p, &problem);
    }
}

static void got_connection(struct agent_want *w, struct http_client *client, bool fresh, int err)
{
    struct ws_proxy *p = container_of(w, struct ws_proxy, want);
    if (client) {
        p->client = client;
        p->fresh = fresh;
        p->generation = p->use.sandbox->pool.generation;
        http_client_set_user(client, p);
        send_upgrade(p);
    } else if (err == -EMFILE) {
        struct problem problem;
        (void)problem_set(&problem, 429, "TOO_MANY_REQUESTS", "too many requests run in this sandbox");
        problem.retry_after_s = 1;
        refuse(p, &problem);
    } else if (!p->restarted) { /* it may have ended a moment ago: the keeper knows */
        p->restarted = true;
        lifecycle_use_again(&p->use);
    } else {
        refuse_unavailable(p, "the sandbox takes no connections");
    }
}

static void sandbox_ready(struct sandbox_use *u)
{
    agent_pool_get(&u->sandbox->pool, &container_of(u, struct ws_proxy, use)->want);
}

static void sandbox_failed(struct sandbox_use *u, const struct problem *problem)
{
    refuse(container_of(u, struct ws_proxy, use), problem);
}

/* "http://HOST" or "https://HOST" of the very host that was asked. Several headers must all be so. */
static bool origin_is_own(const struct http_request *req)
{
    const char *host = http_request_header(req, "Host");
    for (size_t i = 0; i < req->header_count; i++) {
        const char *value = req->headers[i].value;
        if (strcasecmp(req->headers[i].name, "Origin") != 0)
            continue;
        size_t scheme = strncasecmp(value, "http://", 7) == 0    ? 7
                        : strncasecmp(value, "https://", 8) == 0 ? 8
                                                                 : 0;
        if (!scheme || !host || strcasecmp(value + scheme, host) != 0)
            return false;
    }
    return true;
}

/* A copy of the target without what may name a secret. */
static char *target_without_token(const char *target)
{
    char *copy = strdup(target);
    char *out = copy ? strchr(copy, '?') : NULL;
    if (!out)
        return copy;
    bool any = false;
    for (const char *p = target + (out - copy) + 1;; p++) {
        size_t n = strcspn(p, "&");
        if (n && (strncmp(p, "token", 5) != 0 || (p[5] != '=' && n != 5))) {
            *out++ = any ? '&' : '?';
            memcpy(out, p, n); /* never ahead of where it is read */
            out += n;
            any = true;
        }
        p += n;
        if (!*p)
            break;
    }
    *out = '\0';
    return copy;
}

void ws_proxy_request(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    const char *why;
    int status = ws_handshake_check(req, &why);
    if (!http_request_header(req, "Upgrade")) {
        status = 426;
        why = "this path is for WebSockets";
    }
    if (status) {
        ws_handshake_refuse(req, status, why);
        return;
    }
    if (!origin_is_own(req)) {
        reply_error(req, 403, "FORBIDDEN", "WebSockets of other origins are refused");
        return;
    }
    struct ws_proxy *p = calloc(1, sizeof *p);
    if (!p || !(p->target = target_without_token(m->target))) {
        free(p);
        reply_error(req, 500, "INTERNAL_ERROR", "out of memory");
        return;
    }
    p->g = g;
    p->req = req;
    p->use.ready = sandbox_ready;
    p->use.failed = sandbox_failed;
    p->want.got = got_connection;
    p->commit.done = committed;
    p->hold.revoked = token_revoked;
    (void)snprintf(p->use.owner, sizeof p->use.owner, "%s", auth_owner(&m->who));
    p->next = g->ws_proxies;
    p->prev = &g->ws_proxies;
    if (p->next)
        p->next->prev = &p->next;
    g->ws_proxies = p;
    if (m->who.token)
        token_hold(auth_tokens(g->auth), m->who.token, &p->hold);
    req->user = p;
    req->gone_on_eof = true;
    req->on_gone = caller_gone;
    req->on_drain = caller_drained;
    lifecycle_use(g->lifecycle, m->id, &p->use);
}
