/* SPDX-License-Identifier: Apache-2.0 */
/* proxy.c: see proxy.h.
 *
 * Back pressure: the request's body is read only while the service takes it, the answer only while the client
 * takes it. Nothing is kept but what the two connections' own queues hold. */
#include "agent/proxy.h"
#include "agent/dial.h"
#include "net/http_hop.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { HEADERS_MAX = 128 };

struct proxy {
    struct loop *loop;
    struct http_request *req;
    struct http_client *client;
    struct dial dial;
    int port;
    char host[32];
    char *target;
    bool answering; /* the answer's head is out */
    void (*refuse)(struct http_request *req, int port, const char *why, void *arg);
    void *arg;
};

/* What passes, plus our own Host when host is given. Returns the number, at most HEADERS_MAX. */
static size_t filter(const struct http_header *from, size_t count, const char *host, const char *const *but,
                     size_t but_count, struct http_header to[HEADERS_MAX])
{
    size_t n = 0;
    struct http_hops hops = http_hops_of(from, count);
    if (host)
        to[n++] = (struct http_header){"Host", host};
    for (size_t i = 0; i < count && n < HEADERS_MAX; i++)
        if (!http_is_hop(&hops, from[i].name) && !http_name_in(but, but_count, from[i].name))
            to[n++] = from[i];
    return n;
}

static void proxy_free(struct proxy *p)
{
    dial_stop(&p->dial);
    http_client_free(p->client);
    free(p->target);
    free(p);
}

static void give_up(struct proxy *p, const char *why)
{
    struct http_request *req = p->req;
    int port = p->port;
    bool answering = p->answering;
    void (*refuse)(struct http_request *, int, const char *, void *) = p->refuse;
    void *arg = p->arg;
    proxy_free(p);
    req->on_gone = req->on_drain = NULL;
    if (answering)
        http_response_abort(req);
    else
        refuse(req, port, why, arg);
}

/* ------------------------------------------------------------------ the answer */

static void on_head(struct http_client *c, int status, const struct http_header *headers, size_t count,
                    int64_t content_length)
{
    /* Ours are on every answer; a browser refuses these twice. */
    static const char *const ours[] = {"Access-Control-Allow-Origin", "Access-Control-Allow-Methods",
                                       "Access-Control-Allow-Headers"};
    struct proxy *p = http_client_user(c);
    struct http_header list[HEADERS_MAX];
    size_t n = filter(headers, count, NULL, ours, ARRAY_SIZE(ours), list);
    p->answering = true;
    http_response_begin(p->req, status, list, n, content_length);
}

static void on_data(struct http_client *c, const char *data, size_t n)
{
    struct proxy *p = http_client_user(c);
    if (!http_response_write(p->req, data, n))
        http_client_pause(c);
}

static void on_end(struct http_client *c, int err)
{
    struct proxy *p = http_client_user(c);
    struct http_request *req = p->req;
    if (err || !p->answering) {
        give_up(p, "the service broke off the connection");
        return;
    }
    proxy_free(p);
    req->on_gone = req->on_drain = NULL;
    http_response_end(req);
}

static void on_client_drain(struct http_client *c)
{
    struct proxy *p = http_client_user(c);
    http_request_read_resume(p->req);
}

static void on_drain(struct http_request *req)
{
    struct proxy *p = req->user;
    if (p->client)
        http_client_resume(p->client);
}

static void on_gone(struct http_request *req)
{
    proxy_free(req->user);
}

/* ------------------------------------------------------------------ the request */

static void body_data(struct http_request *req, const char *data, size_t n)
{
    struct proxy *p = req->user;
    if (!http_client_write(p->client, data, n))
        http_request_read_pause(req);
}

static void body_end(struct http_request *req, int err)
{
    struct proxy *p = req->user;
    if (err == 0)
        http_client_finish(p->client);
    /* otherwise the server has answered, and on_gone follows */
}

static void dialled(struct dial *d, int fd)
{
    static const struct http_client_ops ops = {
        .on_head = on_head, .on_data = on_data, .on_end = on_end, .on_drain = on_client_drain};
    static const struct http_body_sink sink = {.on_data = body_data, .on_end = body_end};
    static const char *const but[] = {"Host", "Expect"};
    struct proxy *p = container_of(d, struct proxy, dial);
    struct http_request *req = p->req;
    struct http_header list[HEADERS_MAX];
    struct error e;
    if (fd < 0) {
        give_up(p, strerror(-fd));
        return;
    }
    size_t n = filter(req->headers, req->header_count, p->host, but, ARRAY_SIZE(but), list);
    int r = http_client_new(p->loop, fd, &p->client, &e);
    if (r == 0) {
        http_client_set_user(p->client, p);
        r = http_client_send(p->client, req->method, p->target, list, n,
                             req->has_body ? req->content_length : 0, &ops);
    }
    if (r < 0)
        give_up(p, strerror(-r));
    else if (req->has_body)
        http_request_read_start(req, UINT64_MAX, &sink);
}

void proxy_request(struct loop *loop, struct http_request *req, int port, const char *target,
                   void (*refuse)(struct http_request *req, int port, const char *why, void *arg), void *arg)
{
    struct proxy *p = calloc(1, sizeof *p);
    if (!p || !(p->target = strdup(target))) {
        free(p);
        refuse(req, port, "out of memory", arg);
        return;
    }
    p->loop = loop;
    p->req = req;
    p->port = port;
    p->refuse = refuse;
    p->arg = arg;
    (void)snprintf(p->host, sizeof p->host, "localhost:%d", port);
    req->user = p;
    req->on_gone = on_gone;
    req->on_drain = on_drain;
    dial_start(loop, &p->dial, port, dialled);
}
