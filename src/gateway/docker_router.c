/* SPDX-License-Identifier: Apache-2.0 */
/* docker_router.c: the engine's HTTP server: from a path to what answers it.
 *
 * The socket is its owner's alone, so there is no token. Bodies are read whole before anything happens,
 * except those that are for the agent of a container (docker_agent.c). */
#include "gateway/docker_internal.h"
#include "gateway/reply.h"
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { ERROR_MAX = 512 };

static const struct http_header common_headers[] = {
    {"Api-Version", "1.47"}, {"Docker-Experimental", "false"}, {"Ostype", "linux"}, {"Server", "Silica"}};

/* ------------------------------------------------------------------ answers */

static void error_put(struct buf *out, const char *text)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object_begin(&w);
    json_put_key(&w, "message");
    json_put_bytes(&w, text, strlen(text));
    json_object_end(&w);
}

void docker_reply_error(struct http_request *req, int status, const char *fmt, ...)
{
    char text[ERROR_MAX];
    struct buf out = BUF_INIT(8 * ERROR_MAX);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    error_put(&out, text);
    http_respond(req, status, "application/json", buf_data(&out), buf_len(&out));
    buf_done(&out);
}

void docker_reply_problem(struct http_request *req, const struct problem *p)
{
    docker_reply_error(req, p->status, "%s", p->message);
}

void docker_reply_json(struct http_request *req, int status, struct json_writer *w)
{
    if (w->err < 0)
        docker_reply_error(req, 500, "the answer could not be written");
    else
        http_respond(req, status, "application/json", buf_data(w->out), buf_len(w->out));
    buf_done(w->out);
}

void docker_reply_empty(struct http_request *req, int status)
{
    http_respond(req, status, NULL, NULL, 0);
}

static void server_error(int status, const char *reason, struct buf *out, void *arg)
{
    (void)status;
    (void)arg;
    error_put(out, reason);
}

/* ------------------------------------------------------------------ requests */

static bool is(const struct docker_request *r, const char *method, const char *action)
{
    return strcmp(r->method, method) == 0 && strcmp(r->action, action) == 0;
}

static void over(struct http_request *req, int status, void *arg)
{
    struct docker_request *r = req->context;
    (void)arg;
    if (!r)
        return;
    log_debug("engine: %s %s: %d", r->method, r->path, status);
    free(r->name);
    free(r->target);
    free(r);
}

/* "/containers/NAME/action" -> NAME, "/action". False: not below prefix, or not a name. */
static bool split(struct docker_request *r, const char *prefix)
{
    size_t n = strlen(prefix);
    if (strncmp(r->path, prefix, n) != 0)
        return false;
    const char *name = r->path + n;
    n = strcspn(name, "/?");
    r->name = n ? docker_decode(name, n) : NULL;
    r->action = name + n;
    return r->name != NULL;
}

static void no_container(struct docker_request *r)
{
    docker_reply_error(r->req, 404, "No such container: %s", r->name);
}

/* What an agent answers: the body goes there unread. True when the request is that, and taken care of. */
static bool container_passed_on(struct docker_request *r, struct container *c)
{
    bool exec = is(r, "POST", "/exec"), logs = is(r, "GET", "/logs"),
         archive = strcmp(r->action, "/archive") == 0;
    if (!exec && !logs && !archive)
        return false;
    if (!c) {
        http_response_close_after(r->req);
        no_container(r);
    } else if (exec) {
        docker_exec_create(r, c);
    } else if (logs) {
        char target[512];
        (void)snprintf(target, sizeof target, "/container/logs?%.400s", r->req->query);
        docker_pass_on(r, c, target, true);
    } else if (is(r, "PUT", "/archive") || is(r, "GET", "/archive")) {
        char target[8192];
        (void)snprintf(target, sizeof target, "/container/archive?%s", r->req->query);
        docker_pass_on(r, c, target, false);
    } else {
        docker_reply_error(r->req, 405, "method not allowed");
    }
    return true;
}

static void container_request(struct docker_request *r)
{
    struct container *c = docker_find(r->docker, r->name);
    if (!c)
        no_container(r);
    else if (is(r, "GET", "/json"))
        docker_view_container(r, c);
    else if (is(r, "POST", "/wait"))
        docker_wait_request(r, c);
    else
        docker_control_request(r, c);
}

static void dispatch(struct docker_request *r)
{
    if (strcmp(r->path, "/containers/create") == 0 && strcmp(r->method, "POST") == 0)
        docker_create(r);
    else if (strcmp(r->path, "/containers/json") == 0 && strcmp(r->method, "GET") == 0)
        docker_view_list(r);
    else if (strcmp(r->path, "/commit") == 0 && strcmp(r->method, "POST") == 0)
        docker_commit(r);
    else if (strncmp(r->path, "/images/", 8) == 0)
        docker_images_request(r);
    else if (split(r, "/containers/"))
        container_request(r);
    else if (split(r, "/exec/"))
        docker_exec_request(r);
    else if (!docker_system_request(r))
        docker_reply_error(r->req, 404, "page not found");
}

static void body_done(struct http_request *req, struct buf *body, int err)
{
    struct docker_request *r = req->context;
    struct error e;
    auto_json struct json_doc *doc = NULL;
    if (err == -EMSGSIZE) {
        http_response_close_after(req);
        docker_reply_error(req, 413, "the request is too large");
        return;
    }
    if (err < 0)
        return; /* the server has answered */
    if (buf_len(body) && json_parse(buf_data(body), buf_len(body), 0, &doc, &e) < 0) {
        docker_reply_error(req, 400, "invalid JSON: %s", e.msg);
        return;
    }
    r->body = doc ? json_root(doc) : NULL;
    dispatch(r);
}

static void request(struct http_request *req, void *arg)
{
    struct docker *d = arg;
    struct docker_request *r = calloc(1, sizeof *r);
    if (!r) {
        docker_reply_error(req, 500, "out of memory");
        return;
    }
    *r = (struct docker_request){.docker = d, .req = req, .method = req->method, .action = ""};
    req->context = r;
    r->path = docker_without_version(req->path);
    if (strncmp(r->path, "/containers/", 12) == 0 && split(r, "/containers/") &&
        container_passed_on(r, docker_find(d, r->name)))
        return;
    free(take_ptr(r->name));
    if (strncmp(r->path, "/exec/", 6) == 0 && split(r, "/exec/") && docker_exec_passed_on(r))
        return;
    free(take_ptr(r->name));
    http_request_collect(req, DOCKER_BODY_MAX, body_done);
}

int docker_server_new(struct docker *d, struct http_server **ret, struct error *reterr)
{
    struct http_server_config config = {
        .loop = d->g->loop,
        .limits = http_limits_default,
        .request = request,
        .error_body = server_error,
        .over = over,
        .arg = d,
        .common_headers = common_headers,
        .common_count = ARRAY_SIZE(common_headers),
        .send_date = true,
    };
    return http_server_new(&config, ret, reterr);
}
