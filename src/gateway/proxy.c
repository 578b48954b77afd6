/* SPDX-License-Identifier: Apache-2.0 */
/* proxy.c: one request passed on to the agent of its sandbox, and the answer back.
 *
 * Theory of operation
 * A struct proxy lives as long as the caller's request. It waits for up to three things: that the sandbox
 * runs (lifecycle), a connection to its agent (agent_pool), and for a small body to be complete, so that head
 * and body reach the agent in one piece. Large bodies are streamed: what the slower side does not take stops
 * the faster one.
 *
 * The answer is held back while the row of a new sandbox is not on disk yet. Until its first byte the caller
 * gets a typed error for whatever goes wrong; after that the connection is broken off, because an end would
 * be a lie.
 *
 * Everything the agent sends is hostile: the HTTP client checks its syntax, proxy_head.c its headers, and the
 * length is ours to frame. */
#include "gateway/gateway_internal.h"
#include "gateway/proxy_head.h"
#include "gateway/reply.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    COLLECT_MAX = 64 * 1024, /* bodies up to this are sent to the agent in one piece */
    STALE_US = 20000,        /* see may_try_again */
};

/* The head of an answer that waits for the disk; what follows it waits in the paused client. */
struct held {
    int status;
    int64_t content_length;
    struct proxy_headers headers;
    char *strings; /* of the headers */
};

struct proxy {
    struct gateway *g;
    struct http_request *req;
    const char *target; /* inside req->target */
    struct sandbox_use use;
    struct agent_want want;
    struct sandbox_commit commit;
    struct http_client *client;
    uint64_t generation; /* of the sandbox, when the connection was made */
    int64_t sent_us;
    struct held *held;
    struct buf *body; /* collected */
    bool collecting;  /* the body is not complete yet */
    bool streaming;   /* the body is passed on piece by piece */
    bool fresh;       /* the connection was never used before */
    bool touched;     /* something of a streamed body was passed on, and is no longer here */
    bool head_seen;
    bool retried;   /* a second connection was asked for, because the first was stale */
    bool restarted; /* the keeper was asked whether the sandbox still runs */
};

static void try_send(struct proxy *p);

static struct sandbox *sandbox_of(struct proxy *p)
{
    return p->use.sandbox;
}

/* ------------------------------------------------------------------ the end */

static void held_free(struct held *h)
{
    if (!h)
        return;
    free(h->strings);
    free(h);
}

static void drop_client(struct proxy *p)
{
    struct http_client *client = take_ptr(p->client);
    if (client)
        agent_pool_put(&sandbox_of(p)->pool, client, p->generation);
}

/* The request is answered or gone. */
static void proxy_free(struct proxy *p)
{
    if (sandbox_of(p))
        agent_pool_cancel(&sandbox_of(p)->pool, &p->want);
    sandbox_commit_cancel(&p->commit);
    drop_client(p);
    lifecycle_leave(&p->use);
    held_free(p->held);
    free(p);
}

static void refuse(struct proxy *p, const struct problem *problem)
{
    struct http_request *req = p->req;
    char id[SANDBOX_ID_MAX + 1] = "";
    if (sandbox_of(p))
        memcpy(id, sandbox_of(p)->id, sizeof id);
    proxy_free(p); /* the agent hears of it first: its connection may be in the middle of something */
    reply_problem(req, id[0] ? id : NULL, problem);
}

static void refuse_unavailable(struct proxy *p, const char *why)
{
    struct problem problem;
    (void)problem_set(&problem, 502, "SANDBOX_UNAVAILABLE", "%s", why);
    refuse(p, &problem);
}

/* The caller has seen a part of the answer and must see that the rest is missing. */
static void break_off(struct proxy *p)
{
    struct http_request *req = p->req;
    proxy_free(p);
    http_response_abort(req);
}

static void caller_gone(struct http_request *req)
{
    proxy_free(req->user);
}

/* ------------------------------------------------------------------ the answer */

static void begin_response(struct proxy *p, int status, const struct proxy_headers *headers,
                           int64_t content_length)
{
    http_response_begin(p->req, status, headers->list, headers->count, content_length);
}

static void end_response(struct proxy *p)
{
    struct http_request *req = p->req;
    http_response_end(req);
    proxy_free(p);
}

/* Keeps the head; the strings of the agent's headers die with the callback. */
static bool hold(struct proxy *p, int status, const struct proxy_headers *headers, int64_t content_length)
{
    size_t n = 0;
    struct held *h = calloc(1, sizeof *h);
    if (!h)
        return false;
    for (size_t i = 0; i < headers->count; i++)
        n += strlen(headers->list[i].name) + strlen(headers->list[i].value) + 2;
    h->strings = malloc(n);
    if (!h->strings) {
        free(h);
        return false;
    }
    char *at = h->strings;
    for (size_t i = 0; i < headers->count; i++) {
        h->headers.list[i].name = at;
        at = stpcpy(at, headers->list[i].name) + 1;
        h->headers.list[i].value = at;
        at = stpcpy(at, headers->list[i].value) + 1;
    }
    h->headers.count = headers->count;
    h->status = status;
    h->content_length = content_length;
    p->held = h;
    return true;
}

static void committed(struct sandbox_commit *c, const struct problem *problem)
{
    struct proxy *p = container_of(c, struct proxy, commit);
    if (problem) {
        refuse(p, problem);
        return;
    }
    struct held *h = take_ptr(p->held);
    begin_response(p, h->status, &h->headers, h->content_length);
    held_free(h);
    http_client_resume(p->client);
}

static void agent_head(struct http_client *client, int status, const struct http_header *headers,
                       size_t count, int64_t content_length)
{
    struct proxy *p = http_client_user(client);
    struct proxy_headers out;

    p->head_seen = true;
    sandbox_heard(sandbox_of(p));
    if (status < 200 || status > 599) { /* 101: nothing was asked to be upgraded */
        refuse_unavailable(p, "the sandbox's agent answered with a strange status");
        return;
    }
    if (!proxy_headers_from_agent(headers, count, !auth_is_off(p->g->auth), &out)) {
        refuse_unavailable(p, "the sandbox's agent sent too many headers");
        return;
    }
    if (sandbox_is_committed(sandbox_of(p))) {
        begin_response(p, status, &out, content_length);
        return;
    }
    if (!hold(p, status, &out, content_length)) {
        refuse_unavailable(p, "out of memory");
        return;
    }
    http_client_pause(client);
    sandbox_commit_wait(sandbox_of(p), &p->commit);
}

static void agent_data(struct http_client *client, const char *data, size_t n)
{
    struct proxy *p = http_client_user(client);
    sandbox_heard(sandbox_of(p));
    p->g->metrics.bytes_from_agents += n;
    if (!http_response_write(p->req, data, n))
        http_client_pause(client);
}

static void caller_drained(struct http_request *req)
{
    struct proxy *p = req->user;
    if (p->client && !p->held) /* before its head there is nothing to drain, except an earlier answer */
        http_client_resume(p->client);
}

/* An old connection may have been closed by the agent in the moment we used it. When sending failed the agent
 * has seen nothing. When the connection ended it may have; then only what is harmless twice is asked again,
 * and only when it ended so soon that it must have been about to end anyway. */
static bool may_try_again(const struct proxy *p, int err)
{
    static const char *const harmless[] = {"GET", "HEAD", "OPTIONS"};
    if (p->retried || p->fresh || p->head_seen || p->touched)
        return false;
    if (err == -EPIPE)
        return true;
    if (err != -ECONNRESET || clock_mono_us() - p->sent_us > STALE_US)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(harmless); i++)
        if (strcmp(p->req->method, harmless[i]) == 0)
            return true;
    return false;
}

static void agent_end(struct http_client *client, int err)
{
    struct proxy *p = http_client_user(client);
    if (err < 0 && may_try_again(p, err)) {
        p->retried = true;
        if (p->streaming)
            http_request_read_pause(p->req);
        drop_client(p);
        agent_pool_get(&sandbox_of(p)->pool, &p->want);
    } else if (err < 0 && sandbox_of(p)->doomed && !http_response_begun(p->req)) {
        sandbox_commit_wait(sandbox_of(p), &p->commit); /* tells why it is being removed */
    } else if (err == -EBADMSG && !http_response_begun(p->req)) {
        refuse_unavailable(p, "the sandbox's agent did not answer in HTTP");
    } else if (err == -E2BIG && !http_response_begun(p->req)) {
        refuse_unavailable(p, "the sandbox's agent sent too large a head");
    } else if (err < 0 && !http_response_begun(p->req)) {
        refuse_unavailable(p, "the sandbox ended before it answered");
    } else if (err < 0) {
        break_off(p);
    } else {
        end_response(p);
    }
}

/* ------------------------------------------------------------------ the request */

static void body_data(struct http_request *req, const char *data, size_t n)
{
    struct proxy *p = req->user;
    p->touched = true;
    p->g->metrics.bytes_to_agents += n;
    if (!http_client_write(p->client, data, n))
        http_request_read_pause(req);
}

static ssize_t body_move(struct http_request *req, int fd, uint64_t max)
{
    struct proxy *p = req->user;
    bool full;
    ssize_t n = http_client_move(p->client, &p->g->mover, fd, max, &full);
    if (n > 0) {
        p->touched = true;
        p->g->metrics.bytes_to_agents += (uint64_t)n;
        if (full)
            http_request_read_pause(req);
    }
    return n;
}

static void body_end(struct http_request *req, int err)
{
    struct proxy *p = req->user;
    p->touched = true;
    if (err == 0)
        http_client_finish(p->client);
    /* otherwise the server has answered, and caller_gone follows */
}

static void agent_drained(struct http_client *client)
{
    struct proxy *p = http_client_user(client);
    if (p->streaming)
        http_request_read_resume(p->req);
}

static void body_collected(struct http_request *req, struct buf *body, int err)
{
    struct proxy *p = req->user;
    if (err < 0)
        return; /* as in body_end */
    p->collecting = false;
    p->body = body;
    try_send(p);
}

static const struct http_body_sink body_sink = {
    .on_data = body_data, .on_end = body_end, .on_move = body_move};

static const struct http_client_ops agent_ops = {
    .on_head = agent_head,
    .on_data = agent_data,
    .on_end = agent_end,
    .on_drain = agent_drained,
    .on_idle_close = agent_pool_idle_closed,
};

static void try_send(struct proxy *p)
{
    struct proxy_headers headers;
    struct http_request *req = p->req;
    if (!p->client || p->collecting)
        return;
    if (!proxy_headers_to_agent(req->headers, req->header_count, &headers)) {
        struct problem problem;
        (void)problem_set(&problem, 431, "HEADERS_TOO_LARGE", "there are too many headers");
        refuse(p, &problem);
        return;
    }
    int64_t content_length = req->has_body ? req->content_length : 0;
    int r = http_client_send(p->client, req->method, p->target, headers.list, headers.count, content_length,
                             &agent_ops);
    if (r == -ENOTCONN) {
        agent_end(p->client, -EPIPE);
        return;
    }
    if (r < 0) {
        struct problem problem;
        (void)problem_set(&problem, 400, "BAD_REQUEST", "the request cannot be passed on");
        refuse(p, &problem);
        return;
    }
    p->sent_us = clock_mono_us();
    if (p->body) {
        p->g->metrics.bytes_to_agents += buf_len(p->body);
        (void)http_client_write(p->client, buf_data(p->body), buf_len(p->body));
        http_client_finish(p->client);
    } else if (p->streaming) {
        http_request_read_resume(req);
    } else if (req->has_body) {
        p->streaming = true;
        http_request_read_start(req, UINT64_MAX, &body_sink);
    }
}

static void got_connection(struct agent_want *w, struct http_client *client, bool fresh, int err)
{
    struct proxy *p = container_of(w, struct proxy, want);
    struct problem problem;
    if (client) {
        p->client = client;
        p->fresh = fresh;
        p->generation = sandbox_of(p)->pool.generation;
        http_client_set_user(client, p);
        try_send(p);
    } else if (err == -EMFILE) {
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
    struct proxy *p = container_of(u, struct proxy, use);
    agent_pool_get(&u->sandbox->pool, &p->want);
}

static void sandbox_failed(struct sandbox_use *u, const struct problem *problem)
{
    refuse(container_of(u, struct proxy, use), problem);
}

void proxy_request(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    struct proxy *p = calloc(1, sizeof *p);
    if (!p) {
        reply_error(req, 500, "INTERNAL_ERROR", "out of memory");
        return;
    }
    p->g = g;
    p->req = req;
    p->target = m->target;
    p->use.ready = sandbox_ready;
    p->use.failed = sandbox_failed;
    p->want.got = got_connection;
    (void)snprintf(p->use.owner, sizeof p->use.owner, "%s", auth_owner(&m->who));
    p->commit.done = committed;
    req->user = p;
    req->on_gone = caller_gone;
    req->on_drain = caller_drained;
    if (req->has_body && req->content_length >= 0 && req->content_length <= COLLECT_MAX) {
        p->collecting = true;
        http_request_collect(req, COLLECT_MAX, body_collected);
    }
    lifecycle_use(g->lifecycle, m->id, &p->use);
}
