/* SPDX-License-Identifier: Apache-2.0 */
/* docker_sidecar.c: the sidecar of a container: in other engines a container of its own with the network both
 * share, here a listener on the host's loopback interface and the container's way out (egress.h).
 *
 * Its listener takes three requests: CONNECT 127.0.0.1:PORT, a connection into the container, made by its
 * agent from inside; PUT /egress, the settings of the way out; GET /ca, the certificate authority's
 * certificate. A refused CONNECT is 400, which callers take for "not yet". Tunnels have no time limits:
 * connections rest for hours. */
#include "gateway/byte_tunnel.h"
#include "gateway/docker_internal.h"
#include "gateway/egress.h"
#include "gateway/keeper_socket.h"
#include "gateway/upstream.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { SETTINGS_MAX = 1 << 20, TUNNELS_MAX = 4096, FIRST_MAX = 256 * 1024, PORT_TRIES = 2 };

struct tunnel {
    struct tunnel *next, **prev;
    struct sidecar *sidecar;
    struct http_request *req; /* NULL: joined */
    struct upstream_pool pool;
    struct upstream_want want;
    struct byte_tunnel *bytes;
};

struct sidecar {
    struct container *container;
    struct http_server *server; /* NULL: no port yet */
    struct egress *egress;
    struct keeper_ask *ask;
    struct tunnel *tunnels;
    size_t tunnel_count;
    bool port_chosen; /* by the kernel: the one it had was taken */
    void (*done)(struct container *c, const struct problem *p);
};

/* ------------------------------------------------------------------ tunnels */

static void tunnel_free(struct tunnel *t)
{
    upstream_cancel(&t->want);
    upstream_pool_done(&t->pool);
    byte_tunnel_free(t->bytes);
    *t->prev = t->next;
    if (t->next)
        t->next->prev = t->prev;
    t->sidecar->tunnel_count--;
    free(t);
}

static void caller_gone(struct http_request *req)
{
    tunnel_free(req->user);
}

static void tunnel_done(void *arg)
{
    struct tunnel *t = arg;
    t->bytes = NULL;
    tunnel_free(t);
}

static void tunnel_refuse(struct http_request *req, const char *why)
{
    http_response_close_after(req);
    docker_reply_error(req, 400, "%s", why);
}

static void tunnel_connected(struct upstream_want *w, int fd)
{
    static const char head[] = "HTTP/1.1 200 OK\r\n\r\n";
    struct tunnel *t = container_of(w, struct tunnel, want);
    struct http_request *req = take_ptr(t->req);
    struct buf firsts[2] = {BUF_INIT(FIRST_MAX), BUF_INIT(FIRST_MAX)};
    auto_close int inside = fd;
    if (fd < 0) {
        tunnel_free(t);
        tunnel_refuse(req, fd == -ECONNREFUSED ? "nobody listens" : strerror(-fd));
        return;
    }
    auto_close int caller = http_hijack(req, &firsts[1]);
    struct byte_tunnel_config config = {.loop = t->sidecar->container->docker->g->loop,
                                        .fds = {caller, inside},
                                        .patient = true,
                                        .firsts = firsts,
                                        .done = tunnel_done,
                                        .arg = t};
    if (caller >= 0 && buf_puts(&firsts[0], head) == 0 && (t->bytes = byte_tunnel_new(&config))) {
        caller = inside = -1; /* the tunnel's now */
        return;
    }
    buf_done(&firsts[0]);
    buf_done(&firsts[1]);
    tunnel_free(t);
}

/* "127.0.0.1:PORT", or 0. The container has no other address. */
static int target_port(const char *target)
{
    const char *colon = strrchr(target, ':');
    char *end;
    long port = colon ? strtol(colon + 1, &end, 10) : 0;
    if (!colon || strncmp(target, "127.0.0.1:", 10) != 0 || colon[1] < '1' || colon[1] > '9' || *end ||
        port > 65535)
        return 0;
    return (int)port;
}

static void connect_request(struct sidecar *s, struct http_request *req)
{
    struct docker *d = s->container->docker;
    const char *target = http_request_header(req, "X-Dst-Addr");
    int port = target_port(target ? target : req->target);
    const struct container *c = sidecar_member(s->container);
    struct tunnel *t = NULL;
    if (!port || !c || s->tunnel_count >= TUNNELS_MAX || !(t = calloc(1, sizeof *t))) {
        tunnel_refuse(req, !port ? "CONNECT takes 127.0.0.1:PORT"
                           : !c  ? "the container does not run"
                                 : "too many connections");
        return;
    }
    t->sidecar = s;
    t->req = req;
    t->next = s->tunnels;
    t->prev = &s->tunnels;
    if (t->next)
        t->next->prev = &t->next;
    s->tunnels = t;
    s->tunnel_count++;
    t->want.got_fd = tunnel_connected;
    req->user = t;
    req->on_gone = caller_gone;
    upstream_pool_init(&t->pool, d->g->loop, d->g->link, c->sandbox, port);
    upstream_get_fresh(&t->pool, &t->want);
}

/* ------------------------------------------------------------------ the other requests */

/* For the next gateway. Whoever made the sidecar tells it again at every start, but not when it finds it. */
static void settings_keep(struct sidecar *s)
{
    struct container *c = s->container;
    struct buf text = BUF_INIT(SETTINGS_MAX);
    struct json_writer w;
    json_writer_init(&w, &text);
    egress_describe(s->egress, &w);
    const char *described = w.err < 0 ? NULL : buf_cstr(&text);
    if (described && (!c->egress || strcmp(c->egress, described) != 0)) {
        free(c->egress);
        c->egress = strdup(described);
        container_save(c, NULL, NULL);
    }
    buf_done(&text);
}

static void settings_read(struct http_request *req, struct buf *body, int err)
{
    struct sidecar *s = req->user;
    struct error e;
    if (err == -EMSGSIZE) {
        http_response_close_after(req);
        docker_reply_error(req, 413, "the settings are too large");
    } else if (err == 0 &&
               egress_put(s->egress, buf_len(body) ? buf_data(body) : "", buf_len(body), &e) < 0) {
        docker_reply_error(req, 400, "%s", e.msg);
    } else if (err == 0) {
        settings_keep(s);
        docker_reply_empty(req, 204);
    }
}

static void over(struct http_request *req, int status, void *arg)
{
    struct sidecar *s = arg;
    log_debug("sidecar %s: %s %s: %d", s->container->name, req->method, req->target, status);
}

static void request(struct http_request *req, void *arg)
{
    struct sidecar *s = arg;
    s->container->used_ms = clock_mono_ms();
    if (strcmp(req->method, "CONNECT") == 0) {
        connect_request(s, req);
    } else if (strcmp(req->method, "PUT") == 0 && strcmp(req->path, "/egress") == 0) {
        req->user = s;
        http_request_collect(req, SETTINGS_MAX, settings_read);
    } else if (strcmp(req->method, "GET") == 0 && strcmp(req->path, "/ca") == 0) {
        const char *pem = egress_ca_pem(s->egress);
        http_respond(req, 200, "application/x-pem-file", pem, strlen(pem));
    } else {
        http_response_close_after(req);
        docker_reply_error(req, 404, "page not found");
    }
}

static void error_body(int status, const char *reason, struct buf *out, void *arg)
{
    (void)status;
    (void)arg;
    (void)buf_puts(out, reason);
}

/* ------------------------------------------------------------------ how many */

static bool has_container(const struct container *sidecar)
{
    for (const struct container *c = sidecar->docker->containers; c; c = c->next)
        if (!c->is_sidecar && container_sidecar(c) == sidecar)
            return true;
    return false;
}

/* Whoever made a sidecar may use it again as long as he lives, and does not tell when he dies. */
void sidecars_trim(struct docker *d)
{
    size_t all = 0, idle = 0;
    struct container *oldest = NULL;
    for (const struct container *c = d->containers; c; c = c->next)
        all += c->is_sidecar;
    if (all < DOCKER_SIDECARS_IDLE)
        return;
    for (struct container *c = d->containers; c; c = c->next)
        if (c->is_sidecar && c->status != CONTAINER_STARTING && c->status != CONTAINER_REMOVING &&
            !has_container(c)) {
            idle++;
            if (!oldest || c->used_ms < oldest->used_ms)
                oldest = c;
        }
    if (idle >= DOCKER_SIDECARS_IDLE && clock_mono_ms() - oldest->used_ms >= DOCKER_SIDECAR_IDLE_MS)
        container_remove(oldest, NULL);
}

/* ------------------------------------------------------------------ life */

static void tunnels_close(struct sidecar *s)
{
    for (struct tunnel *t = s->tunnels, *next; t; t = next) {
        next = t->next;
        struct http_request *req = t->req;
        tunnel_free(t);
        if (req) {
            req->on_gone = NULL;
            tunnel_refuse(req, "the container does not run");
        }
    }
}

void sidecar_stop(struct container *c)
{
    struct sidecar *s = take_ptr(c->sidecar);
    if (!s)
        return;
    keeper_ask_cancel(s->ask);
    tunnels_close(s);
    http_server_free(s->server);
    egress_free(s->egress);
    free(s);
}

static void start_failed(struct container *c, const char *why)
{
    struct problem p;
    void (*done)(struct container * c_, const struct problem *p_) = c->sidecar->done;
    (void)problem_set(&p, 500, "START_FAILED", "the sidecar could not be started: %s", why);
    sidecar_stop(c);
    done(c, &p);
}

static int serve(struct sidecar *s, int fd, struct error *reterr)
{
    struct http_server_config config = {.loop = s->container->docker->g->loop,
                                        .limits = http_limits_default,
                                        .request = request,
                                        .error_body = error_body,
                                        .over = over,
                                        .arg = s};
    int r = http_server_new(&config, &s->server, reterr);
    return r < 0 ? r : http_server_listen(s->server, fd, reterr);
}

static void ask_port(struct sidecar *s);

static void got_port(void *arg, int fd)
{
    struct sidecar *s = arg;
    struct container *c = s->container;
    struct error e;
    char name[80];
    auto_close int listener = fd;
    s->ask = NULL;
    if (fd < 0 &&
        !s->port_chosen) { /* somebody else has the one it had: its owner asks for the number anyway */
        s->port_chosen = true;
        ask_port(s);
        return;
    }
    if (fd < 0 || socket_local_name(fd, name, sizeof name) < 0) {
        start_failed(c, strerror(fd < 0 ? -fd : EIO));
        return;
    }
    if (serve(s, fd, &e) < 0) {
        start_failed(c, e.msg);
        return;
    }
    listener = -1; /* the server's */
    c->host_port = (int)strtol(strrchr(name, ':') + 1, NULL, 10);
    s->done(c, NULL);
}

static void ask_port(struct sidecar *s)
{
    struct container *c = s->container;
    struct keeper_ask_config config = {.link = c->docker->g->link,
                                       .id = c->sandbox,
                                       .kind = KEEPER_SOCKET_PUBLISH,
                                       .port = s->port_chosen ? 0 : (unsigned)c->host_port,
                                       .got = got_port,
                                       .arg = s};
    s->port_chosen |= c->host_port == 0;
    s->ask = keeper_socket_ask(&config);
    if (!s->ask)
        start_failed(c, "out of memory");
}

/* What it was told last; until the first PUT /egress, by its arguments. */
static void first_settings(struct sidecar *s)
{
    int64_t port = 0;
    struct error e;
    (void)json_integer(json_get(json_root(s->container->doc), "EgressPort"), 1, 65535, &port);
    struct egress_settings settings = {.port = (int)port, .internet = -1};
    const char *kept = s->container->egress;
    if (kept ? egress_put(s->egress, kept, strlen(kept), &e) < 0
             : port && egress_change(s->egress, &settings, &e) < 0)
        log_warn("container %s: %s", s->container->name, e.msg);
}

void sidecar_start(struct container *c, void (*done)(struct container *c, const struct problem *p))
{
    struct error e;
    struct problem p;
    struct sidecar *s = c->sidecar = calloc(1, sizeof *s);
    if (!s) {
        (void)problem_set(&p, 500, "INTERNAL_ERROR", "out of memory");
        done(c, &p);
        return;
    }
    s->container = c;
    s->done = done;
    c->used_ms = clock_mono_ms();
    if (egress_new(c->docker->g->loop, c->docker->g->link, c->secret, &s->egress, &e) < 0) {
        start_failed(c, e.msg);
        return;
    }
    if (!c->secret)
        c->secret = strdup(egress_secret_pem(s->egress));
    first_settings(s);
    ask_port(s);
}

void sidecar_attach(struct container *sidecar, const char *sandbox, void (*ready)(void *arg, int err),
                    void *arg)
{
    if (sidecar->sidecar)
        egress_attach(sidecar->sidecar->egress, sandbox, ready, arg);
    else if (ready)
        ready(arg, -ENOTCONN);
}

void sidecar_detach(struct container *sidecar)
{
    if (!sidecar->sidecar)
        return;
    tunnels_close(sidecar->sidecar);
    egress_detach(sidecar->sidecar->egress);
}
