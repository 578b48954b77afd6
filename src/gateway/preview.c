/* SPDX-License-Identifier: Apache-2.0 */
/* preview.c: one request to a service inside a sandbox, and the answer back; see security rules in
 * preview_headers.c.
 *
 * Theory of operation
 * The host name says which exposed port is meant (ports.c); a name that means none is answered in one and the
 * same way whatever is wrong with it. The sandbox is woken (lifecycle), a connection to the port taken or
 * made (upstream.c), and head and body are passed on as they come, both ways, the slower side stopping the
 * faster one. Messages are parsed and framed anew on both sides, so what the service sees is exactly one
 * well-formed request, and what the client sees exactly one answer. After "101 Switching Protocols" both
 * sockets are taken away from HTTP and joined (byte_tunnel.c).
 *
 * A struct preview lives as long as the request, or as the tunnel it became. While it does, the sandbox stays
 * awake and the exposed port knows it as a user, who is told when the port is closed. */
#include "gateway/preview.h"
#include "base/clock.h"
#include "gateway/byte_tunnel.h"
#include "gateway/gateway_internal.h"
#include "gateway/preview_headers.h"
#include "gateway/reply.h"

#include <errno.h>
#include <string.h>

enum {
    STALE_US = 20000,        /* see may_try_again */
    SWITCH_MAX = 512 * 1024, /* a 101 head and what both sides sent behind theirs */
};

struct preview {
    struct gateway *g;
    struct exposed_port *e;
    struct http_request *req; /* NULL: a tunnel */
    struct port_user user;
    struct sandbox_use use;
    struct upstream_want want;
    struct http_client *client;
    uint64_t epoch; /* of the client */
    struct byte_tunnel *tunnel;
    struct buf switching; /* the head of a 101 */
    struct timer timer;
    struct timer debts[2]; /* to the service, and from it: bytes that are not paid for, see pace.h */
    bool full[2];          /* the receiver takes no more at the moment */
    int64_t moved_us;      /* when something last went from one side to the other */
    bool upgrade;          /* a change of protocol was asked for, and passed on */
    bool streaming;        /* the body is passed on piece by piece */
    bool fresh;            /* the connection was never used before */
    bool touched;          /* something of the body was passed on, and is no longer here */
    bool head_seen;
    bool retried;   /* a second connection was asked for, because the first was stale */
    bool restarted; /* the keeper was asked whether the sandbox still runs */
};

static void try_send(struct preview *p);

/* ------------------------------------------------------------------ the end */

static void drop_client(struct preview *p)
{
    struct http_client *client = take_ptr(p->client);
    if (client)
        upstream_put(&p->e->pool, client, p->epoch);
    p->user.connected = false;
}

static void preview_free(struct preview *p)
{
    loop_timer_stop(p->g->loop, &p->timer);
    for (int i = 0; i < 2; i++)
        loop_timer_stop(p->g->loop, &p->debts[i]);
    upstream_cancel(&p->want);
    drop_client(p);
    byte_tunnel_free(p->tunnel);
    port_user_del(p->e, &p->user);
    lifecycle_leave(&p->use);
    buf_done(&p->switching);
    free(p);
}

static void refuse(struct preview *p, const struct problem *problem)
{
    struct http_request *req = p->req;
    char id[SANDBOX_ID_MAX + 1];
    memcpy(id, p->e->id, sizeof id);
    preview_free(p);
    preview_refuse(req, id, problem);
}

static void refuse_service(struct preview *p, int status, const char *why)
{
    struct problem problem;
    (void)problem_set(&problem, status, status == 504 ? "SERVICE_TIMEOUT" : "SERVICE_NOT_RESPONDING",
                      "port %d: %s", p->e->port, why);
    refuse(p, &problem);
}

/* The caller has seen a part of the answer and must see that the rest is missing. */
static void break_off(struct preview *p)
{
    struct http_request *req = p->req;
    preview_free(p);
    http_response_abort(req);
}

static void not_found(struct http_request *req)
{
    struct problem problem;
    (void)problem_set(&problem, 404, "PREVIEW_NOT_FOUND", "there is no preview at this address");
    preview_refuse(req, NULL, &problem);
}

static void caller_gone(struct http_request *req)
{
    preview_free(req->user);
}

static void user_end(struct port_user *u, bool gone)
{
    struct preview *p = container_of(u, struct preview, user);
    struct http_request *req = p->req;
    if (!req) {
        preview_free(p);
    } else if (http_response_begun(req)) {
        break_off(p);
    } else if (gone) {
        preview_free(p);
        not_found(req);
    } else {
        refuse_service(p, 502, "the sandbox ended before the service answered");
    }
}

/* ------------------------------------------------------------------ time */

static void moved(struct preview *p)
{
    p->moved_us = loop_now_us(p->g->loop);
}

/* The timer is not moved with every byte: it fires early and is set again. */
static void timer_fired(struct timer *t)
{
    struct preview *p = container_of(t, struct preview, timer);
    int64_t limit_ms = p->head_seen ? PREVIEW_IDLE_MS : p->g->preview_timeout_ms;
    int64_t left_ms = limit_ms - (loop_now_us(p->g->loop) - p->moved_us) / 1000;
    if (left_ms > 0)
        loop_timer_start(p->g->loop, t, left_ms, timer_fired);
    else if (http_response_begun(p->req))
        break_off(p);
    else
        refuse_service(p, 504, "the service did not answer in time");
}

/* ------------------------------------------------------------------ pace */

enum { TO_SERVICE, FROM_SERVICE };

static void go_on(struct preview *p, int way)
{
    if (p->full[way] || loop_timer_running(&p->debts[way]))
        return;
    if (way == FROM_SERVICE && p->client)
        http_client_resume(p->client);
    else if (way == TO_SERVICE && p->streaming && p->client)
        http_request_read_resume(p->req);
}

static void service_debt_paid(struct timer *t)
{
    go_on(container_of(t, struct preview, debts[FROM_SERVICE]), FROM_SERVICE);
}

static void caller_debt_paid(struct timer *t)
{
    go_on(container_of(t, struct preview, debts[TO_SERVICE]), TO_SERVICE);
}

/* Bytes were passed on; false: stop for now, go_on follows. */
static bool passed(struct preview *p, int way, size_t n, bool room)
{
    moved(p);
    int64_t wait_ms = pace_spend(&p->e->pace[way], n, p->moved_us);
    p->full[way] = !room;
    if (wait_ms)
        loop_timer_start(p->g->loop, &p->debts[way], wait_ms,
                         way == FROM_SERVICE ? service_debt_paid : caller_debt_paid);
    return room && !wait_ms;
}

/* ------------------------------------------------------------------ the tunnel */

static void tunnel_done(void *arg)
{
    struct preview *p = arg;
    p->tunnel = NULL;
    preview_free(p);
}

static int put_switching(struct buf *out, const struct proxy_headers *headers)
{
    int r = buf_puts(out, "HTTP/1.1 101 Switching Protocols\r\n");
    for (size_t i = 0; r == 0 && i < headers->count; i++)
        r = buf_printf(out, "%s: %s\r\n", headers->list[i].name, headers->list[i].value);
    return r == 0 ? buf_puts(out, "\r\n") : r;
}

/* Both sides have agreed on another protocol. */
static void switch_protocols(struct preview *p)
{
    struct http_request *req = p->req;
    struct buf firsts[2] = {p->switching, BUF_INIT(SWITCH_MAX)};
    p->switching = BUF_INIT(SWITCH_MAX);
    auto_close int service = http_client_take_fd(p->client, &firsts[0]);
    if (service < 0) {
        buf_done(&firsts[0]);
        refuse_service(p, 502, "the service went on before the change of protocol was complete");
        return;
    }
    p->client = NULL;
    auto_close int browser = http_hijack(req, &firsts[1]); /* the request is over, also when it fails */
    p->req = NULL;
    loop_timer_stop(p->g->loop, &p->timer);
    struct byte_tunnel_config config = {.loop = p->g->loop,
                                        .fds = {browser, service},
                                        .firsts = firsts,
                                        .pace = {&p->e->pace[FROM_SERVICE], &p->e->pace[TO_SERVICE]},
                                        .done = tunnel_done,
                                        .arg = p};
    if (browser >= 0 && (p->tunnel = byte_tunnel_new(&config))) {
        browser = service = -1; /* the tunnel's now */
        return;
    }
    buf_done(&firsts[0]);
    buf_done(&firsts[1]);
    preview_free(p);
}

/* ------------------------------------------------------------------ the answer */

static void service_head(struct http_client *client, int status, const struct http_header *headers,
                         size_t count, int64_t content_length)
{
    struct preview *p = http_client_user(client);
    const char *host = http_request_header(p->req, "Host");
    struct proxy_headers out;
    p->head_seen = true;
    moved(p);
    bool switching = status == 101;
    if ((switching && !p->upgrade) || (!switching && status < 200) || status > 599) {
        refuse_service(p, 502, "the service answered with a strange status");
    } else if (!preview_headers_from_service(headers, count, host, switching, &out)) {
        refuse_service(p, 502, "the service sent too many headers");
    } else if (switching) {
        p->switching = BUF_INIT(SWITCH_MAX);
        if (put_switching(&p->switching, &out) < 0)
            refuse_service(p, 502, "out of memory");
    } else {
        http_response_bare(p->req);
        http_response_begin(p->req, status, out.list, out.count, content_length);
    }
}

static void service_data(struct http_client *client, const char *data, size_t n)
{
    struct preview *p = http_client_user(client);
    if (!passed(p, FROM_SERVICE, n, http_response_write(p->req, data, n)))
        http_client_pause(client);
}

static void caller_drained(struct http_request *req)
{
    struct preview *p = req->user;
    moved(p);
    p->full[FROM_SERVICE] = false;
    go_on(p, FROM_SERVICE);
}

/* A kept connection may have been closed by the service in the moment we used it. When sending failed it has
 * seen nothing. When the connection ended it may have; then only what is harmless twice is asked again, and
 * only when it ended so soon that it must have been about to end anyway. */
static bool may_try_again(const struct preview *p, int err)
{
    static const char *const harmless[] = {"GET", "HEAD", "OPTIONS"};
    if (p->retried || p->fresh || p->head_seen || p->touched)
        return false;
    if (err == -EPIPE)
        return true;
    if (err != -ECONNRESET || loop_now_us(p->g->loop) - p->moved_us > STALE_US)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(harmless); i++)
        if (strcmp(p->req->method, harmless[i]) == 0)
            return true;
    return false;
}

static void service_end(struct http_client *client, int err)
{
    struct preview *p = http_client_user(client);
    struct http_request *req = p->req;
    bool begun = http_response_begun(req);
    if (err < 0 && may_try_again(p, err)) {
        p->retried = true;
        if (p->streaming)
            http_request_read_pause(req);
        loop_timer_stop(p->g->loop, &p->timer);
        drop_client(p);
        upstream_get_fresh(&p->e->pool, &p->want);
    } else if (err < 0 && begun) {
        break_off(p);
    } else if (err == -EBADMSG) {
        refuse_service(p, 502, "what answered does not speak HTTP, or not correctly");
    } else if (err == -E2BIG) {
        refuse_service(p, 502, "the service sent too large a head");
    } else if (err < 0) {
        refuse_service(p, 502, "the service closed the connection before it answered");
    } else if (!begun) {
        switch_protocols(p);
    } else {
        http_response_end(req);
        preview_free(p);
    }
}

/* ------------------------------------------------------------------ the request */

static void body_data(struct http_request *req, const char *data, size_t n)
{
    struct preview *p = req->user;
    p->touched = true;
    if (!passed(p, TO_SERVICE, n, http_client_write(p->client, data, n)))
        http_request_read_pause(req);
}

static void body_end(struct http_request *req, int err)
{
    struct preview *p = req->user;
    p->touched = true;
    moved(p);
    if (err == 0)
        http_client_finish(p->client);
    /* otherwise the server has answered, and caller_gone follows */
}

static void service_drained(struct http_client *client)
{
    struct preview *p = http_client_user(client);
    moved(p);
    p->full[TO_SERVICE] = false;
    go_on(p, TO_SERVICE);
}

static const struct http_body_sink body_sink = {.on_data = body_data, .on_end = body_end};

static const struct http_client_ops service_ops = {
    .on_head = service_head,
    .on_data = service_data,
    .on_end = service_end,
    .on_drain = service_drained,
    .on_idle_close = upstream_idle_closed,
};

/* "127.0.0.1:5" and "[::1]:5" without the port and the brackets; "unix" as it is. */
static void client_address(const char *peer, char *out, size_t cap)
{
    const char *end = strrchr(peer, ':');
    size_t n = end ? (size_t)(end - peer) : strlen(peer);
    if (n >= 2 && peer[0] == '[' && peer[n - 1] == ']') {
        peer++;
        n -= 2;
    }
    n = MIN(n, cap - 1);
    memcpy(out, peer, n);
    out[n] = '\0';
}

static bool build_headers(struct preview *p, struct proxy_headers *ret, char *address, size_t cap)
{
    struct http_request *req = p->req;
    client_address(req->peer, address, cap);
    struct preview_origin origin = {.host = http_request_header(req, "Host"),
                                    .address = address,
                                    .scheme = req->secure ? "https" : "http",
                                    .sandbox = p->e->id,
                                    .hide_authorization =
                                        auth_in_headers(p->g->auth, req->headers, req->header_count)};
    return preview_headers_to_service(req->headers, req->header_count, &origin, p->upgrade, ret);
}

static void try_send(struct preview *p)
{
    struct http_request *req = p->req;
    struct proxy_headers headers;
    struct problem problem;
    char address[sizeof req->peer];
    if (!build_headers(p, &headers, address, sizeof address)) {
        (void)problem_set(&problem, 431, "HEADERS_TOO_LARGE", "there are too many headers");
        refuse(p, &problem);
        return;
    }
    int r = http_client_send(p->client, req->method, req->target, headers.list, headers.count,
                             req->has_body ? req->content_length : 0, &service_ops);
    if (r == -ENOTCONN) {
        service_end(p->client, -EPIPE);
        return;
    }
    if (r < 0) {
        (void)problem_set(&problem, 400, "BAD_REQUEST", "the request cannot be passed on");
        refuse(p, &problem);
        return;
    }
    moved(p);
    loop_timer_start(p->g->loop, &p->timer, p->g->preview_timeout_ms, timer_fired);
    if (p->streaming) {
        http_request_read_resume(req);
    } else if (req->has_body) {
        p->streaming = true;
        http_request_read_start(req, UINT64_MAX, &body_sink);
    }
}

static void got_connection(struct upstream_want *w, struct http_client *client, bool fresh, int err)
{
    struct preview *p = container_of(w, struct preview, want);
    if (client) {
        p->client = client;
        p->fresh = fresh;
        p->epoch = p->e->pool.epoch;
        p->user.connected = true;
        http_client_set_user(client, p);
        try_send(p);
    } else if (err == -ECONNREFUSED) {
        refuse_service(p, 502, "nothing listens there inside the sandbox");
    } else if (err == -ETIMEDOUT) {
        refuse_service(p, 504, "the service does not take connections");
    } else if (!p->restarted) { /* the sandbox may have ended a moment ago: the keeper knows */
        p->restarted = true;
        lifecycle_use_again(&p->use);
    } else {
        refuse_service(p, 502, "the sandbox takes no connections");
    }
}

static void sandbox_ready(struct sandbox_use *u)
{
    struct preview *p = container_of(u, struct preview, use);
    upstream_get(&p->e->pool, &p->want);
}

static void sandbox_failed(struct sandbox_use *u, const struct problem *problem)
{
    refuse(container_of(u, struct preview, use), problem);
}

/* ------------------------------------------------------------------ by name */

/* A name that means nothing. Who tries many of them is guessing. */
static void miss(struct gateway *g, struct http_request *req)
{
    struct problem problem;
    int64_t now_ms = clock_mono_us() / 1000;
    int wait_s = throttle_wait(&g->preview_misses, req->peer, now_ms);
    throttle_failed(&g->preview_misses, req->peer, now_ms);
    if (!wait_s) {
        not_found(req);
        return;
    }
    (void)problem_set(&problem, 429, "TOO_MANY_REQUESTS", "too many requests for previews that do not exist");
    problem.retry_after_s = wait_s;
    preview_refuse(req, NULL, &problem);
}

static void serve(struct gateway *g, struct http_request *req, struct exposed_port *e)
{
    struct problem problem;
    struct preview *p = malloc(sizeof *p); /* not calloc: see http_head_read */
    if (p)
        *p = (struct preview){0};
    if (!p || !port_user_add(e, &p->user)) {
        (void)problem_set(&problem, 503, "PREVIEW_BUSY", "this preview serves %d requests already",
                          PORT_USERS_MAX);
        problem.retry_after_s = 1;
        free(p);
        preview_refuse(req, e->id, &problem);
        return;
    }
    p->g = g;
    p->e = e;
    p->req = req;
    for (int i = 0; i < 2; i++)
        e->pace[i].rate = g->preview_bandwidth;
    p->user.end = user_end;
    p->use.ready = sandbox_ready;
    p->use.failed = sandbox_failed;
    p->want.got = got_connection;
    p->upgrade = req->upgrade && !req->has_body && preview_upgrade_ok(req->headers, req->header_count);
    req->user = p;
    req->gone_on_eof = true; /* a browser that left must not keep a slow service and a place busy */
    req->on_gone = caller_gone;
    req->on_drain = caller_drained;
    lifecycle_use(g->lifecycle, e->id, &p->use);
}

bool preview_request(struct gateway *g, struct http_request *req)
{
    struct preview_host name;
    const char *host = http_request_header(req, "Host");
    enum preview_host_kind kind = host ? preview_host_parse(host, g->site.domain, &name) : PREVIEW_HOST_OTHER;
    if (kind == PREVIEW_HOST_OTHER)
        return false;
    struct exposed_port *e = kind == PREVIEW_HOST_NAMED ? ports_route(g->ports, &name) : NULL;
    const struct sandbox *sb = e ? lifecycle_find(g->lifecycle, e->id) : NULL;
    if (!sb || sandbox_is_going(sb)) { /* a visit must not bring back what is being removed */
        miss(g, req);
        return true;
    }
    if (req->target[0] != '/' && !(strcmp(req->method, "OPTIONS") == 0 && strcmp(req->target, "*") == 0)) {
        struct problem problem; /* "GET http://elsewhere/", CONNECT: we are no relay */
        (void)problem_set(&problem, 400, "BAD_REQUEST",
                          "the target of a request to a preview begins with '/'");
        preview_refuse(req, NULL, &problem);
        return true;
    }
    serve(g, req, e);
    return true;
}
