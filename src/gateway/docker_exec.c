/* SPDX-License-Identifier: Apache-2.0 */
/* docker_exec.c: processes beside a container's main program. The agent keeps them and speaks the engine's
 * words (src/agent/container_exec.c); here only ids are made and streams joined.
 *
 * An id begins with the container's, so that it leads to the container without a table: it survives us. */
#include "gateway/byte_tunnel.h"
#include "gateway/docker_internal.h"
#include "base/id.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { OWN_CHARS = 32, STREAM_FIRST_MAX = 512 * 1024, REFUSAL_MAX = 16 * 1024 };

/* A stream, or the request for one. */
struct docker_exec {
    struct docker_exec *next, **prev;
    struct docker *docker;
    struct http_request *req; /* NULL: a stream */
    struct sandbox_use use;
    struct agent_want want;
    struct http_client *client;
    uint64_t generation;
    bool taken; /* the connection is the tunnel's */
    struct byte_tunnel *tunnel;
    char target[128];
    struct buf body; /* of the request, then of a refusal */
    int status;
};

static struct container *find_container(const struct docker *d, const char *id)
{
    char sandbox[SANDBOX_ID_MAX + 1];
    if (strlen(id) != CONTAINER_ID_CHARS)
        return NULL;
    (void)snprintf(sandbox, sizeof sandbox, "ctr-%.*s", CONTAINER_ID_CHARS - OWN_CHARS, id);
    return docker_find_sandbox(d, sandbox);
}

void docker_exec_create(struct docker_request *r, struct container *c)
{
    unsigned char random[OWN_CHARS / 2];
    char own[OWN_CHARS + 1], target[128];
    random_bytes(random, sizeof random);
    hex_encode(own, random, sizeof random);
    (void)snprintf(target, sizeof target, "/container/exec?id=%.*s%s", CONTAINER_ID_CHARS - OWN_CHARS, c->id,
                   own);
    docker_pass_on(r, c, target, true);
}

/* ------------------------------------------------------------------ streams */

static void exec_free(struct docker_exec *x)
{
    struct sandbox *sb = x->use.sandbox;
    struct http_client *client = take_ptr(x->client);
    if (sb)
        agent_pool_cancel(&sb->pool, &x->want);
    if (client)
        agent_pool_put(&sb->pool, client, x->generation);
    byte_tunnel_free(x->tunnel);
    if (x->taken)
        agent_pool_taken(&sb->pool);
    lifecycle_leave(&x->use);
    buf_done(&x->body);
    *x->prev = x->next;
    if (x->next)
        x->next->prev = x->prev;
    free(x);
}

void docker_exec_sandbox_ended(struct docker *d, const char *sandbox)
{
    for (struct docker_exec *x = d->execs, *next; x; x = next) {
        next = x->next;
        if (!*sandbox || (x->tunnel && strcmp(x->use.sandbox->id, sandbox) == 0))
            exec_free(x);
    }
}

static void caller_gone(struct http_request *req)
{
    exec_free(req->user);
}

static void refuse(struct docker_exec *x, int status, const char *why)
{
    struct http_request *req = x->req;
    exec_free(x);
    docker_reply_error(req, status, "%s", why);
}

static void tunnel_done(void *arg)
{
    struct docker_exec *x = arg;
    x->tunnel = NULL;
    exec_free(x);
}

static void join(struct docker_exec *x)
{
    static const char head[] = "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n"
                               "Connection: Upgrade\r\nUpgrade: tcp\r\nApi-Version: 1.47\r\n\r\n";
    struct buf firsts[2] = {BUF_INIT(STREAM_FIRST_MAX), BUF_INIT(STREAM_FIRST_MAX)};
    (void)buf_puts(&firsts[0], head);
    auto_close int agent = http_client_take_fd(x->client, &firsts[0]);
    if (agent < 0) {
        buf_done(&firsts[0]);
        refuse(x, 500, "the container's stream broke off");
        return;
    }
    x->client = NULL;
    x->taken = true;
    auto_close int caller = http_hijack(x->req, &firsts[1]);
    x->req = NULL;
    struct byte_tunnel_config config = {.loop = x->docker->g->loop,
                                        .fds = {caller, agent},
                                        .patient = true,
                                        .firsts = firsts,
                                        .done = tunnel_done,
                                        .arg = x};
    if (caller >= 0 && (x->tunnel = byte_tunnel_new(&config))) {
        caller = agent = -1; /* the tunnel's now */
        return;
    }
    buf_done(&firsts[0]);
    buf_done(&firsts[1]);
    exec_free(x);
}

static void on_head(struct http_client *client, int status, const struct http_header *headers, size_t count,
                    int64_t content_length)
{
    struct docker_exec *x = http_client_user(client);
    (void)headers;
    (void)count;
    (void)content_length;
    x->status = status;
    sandbox_heard(x->use.sandbox);
}

static void on_data(struct http_client *client, const char *data, size_t n)
{
    struct docker_exec *x = http_client_user(client);
    (void)buf_append(&x->body, data, MIN(n, x->body.limit - buf_len(&x->body)));
}

static void on_end(struct http_client *client, int err)
{
    struct docker_exec *x = http_client_user(client);
    if (err == 0 && x->status == 101) {
        join(x);
    } else if (err < 0 || x->status < 200) {
        refuse(x, 500, "the container ended before it answered");
    } else {
        struct http_request *req = x->req;
        struct buf body = x->body;
        int status = x->status;
        x->body = BUF_INIT(0);
        exec_free(x);
        http_respond(req, status, "application/json", buf_data(&body), buf_len(&body));
        buf_done(&body);
    }
}

static const struct http_client_ops ops = {
    .on_head = on_head, .on_data = on_data, .on_end = on_end, .on_idle_close = agent_pool_idle_closed};

static const struct http_header upgrade[] = {{"Host", "localhost:3000"},
                                             {"Connection", "Upgrade"},
                                             {"Upgrade", "tcp"},
                                             {"Content-Type", "application/json"}};

static void got_connection(struct agent_want *w, struct http_client *client, bool fresh, int err)
{
    struct docker_exec *x = container_of(w, struct docker_exec, want);
    (void)fresh;
    (void)err;
    if (!client) {
        refuse(x, 409, "the container takes no connections");
        return;
    }
    x->client = client;
    x->generation = x->use.sandbox->pool.generation;
    http_client_set_user(client, x);
    struct buf body = x->body;
    x->body = BUF_INIT(REFUSAL_MAX);
    int r = http_client_send(client, "POST", x->target, upgrade, ARRAY_SIZE(upgrade), (int64_t)buf_len(&body),
                             &ops);
    if (r == 0 && buf_len(&body)) {
        (void)http_client_write(client, buf_data(&body), buf_len(&body));
        http_client_finish(client);
    }
    buf_done(&body);
    if (r < 0)
        refuse(x, 500, "the container takes no requests");
}

static void ready(struct sandbox_use *u)
{
    struct docker_exec *x = container_of(u, struct docker_exec, use);
    agent_pool_get(&u->sandbox->pool, &x->want);
}

static void failed(struct sandbox_use *u, const struct problem *p)
{
    struct docker_exec *x = container_of(u, struct docker_exec, use);
    refuse(x, p->status, p->message);
}

static void exec_start(struct docker_request *r, struct container *c)
{
    struct json_writer w;
    struct docker_exec *x = calloc(1, sizeof *x);
    if (!x) {
        docker_reply_error(r->req, 500, "out of memory");
        return;
    }
    x->docker = r->docker;
    x->req = r->req;
    x->body = BUF_INIT(DOCKER_BODY_MAX);
    x->use.ready = ready;
    x->use.failed = failed;
    x->want.got = got_connection;
    x->next = r->docker->execs;
    x->prev = &r->docker->execs;
    if (x->next)
        x->next->prev = &x->next;
    r->docker->execs = x;
    (void)snprintf(x->target, sizeof x->target, "/container/exec/%s/start", r->name);
    json_writer_init(&w, &x->body);
    if (r->body)
        json_put_value(&w, r->body);
    r->req->user = x;
    r->req->on_gone = caller_gone;
    lifecycle_use(r->docker->g->lifecycle, c->sandbox, &x->use);
}

/* NULL: answered. */
static struct container *exec_container(struct docker_request *r)
{
    struct container *c = find_container(r->docker, r->name);
    if (c && !c->is_sidecar && c->status == CONTAINER_RUNNING)
        return c;
    http_response_close_after(r->req);
    docker_reply_error(r->req, c ? 409 : 404,
                       c ? "the container of exec %.12s is not running" : "No such exec instance: %.12s",
                       r->name);
    return NULL;
}

bool docker_exec_passed_on(struct docker_request *r)
{
    char target[256];
    if (strcmp(r->action, "/json") != 0 && strcmp(r->action, "/resize") != 0)
        return false;
    struct container *c = exec_container(r);
    if (!c)
        return true;
    (void)snprintf(target, sizeof target, "/container/exec/%s%s?%.100s", r->name, r->action, r->req->query);
    docker_pass_on(r, c, target, true);
    return true;
}

void docker_exec_request(struct docker_request *r)
{
    bool detach = json_bool(json_get(r->body, "Detach"), false);
    struct container *c;
    if (strcmp(r->method, "POST") != 0 || strcmp(r->action, "/start") != 0)
        docker_reply_error(r->req, 404, "page not found");
    else if (!detach && !r->req->upgrade)
        docker_reply_error(r->req, 400, "a stream needs Connection: Upgrade and Upgrade: tcp");
    else if ((c = exec_container(r)))
        exec_start(r, c);
}
