/* SPDX-License-Identifier: Apache-2.0 */
/* api_network.c: GET /v1/sandbox/{id}/network and its log. */
#include "gateway/gateway_internal.h"
#include "gateway/reply.h"

#include <errno.h>
#include <string.h>

static struct sandbox *find(struct gateway *g, struct http_request *req, const char *id)
{
    struct sandbox *sb = lifecycle_find(g->lifecycle, id);
    struct problem p;
    if (!sb) {
        (void)problem_set(&p, 404, "SANDBOX_NOT_FOUND", "there is no sandbox '%s'", id);
        reply_problem(req, id, &p);
    }
    return sb;
}

void api_network_get(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    struct sandbox *sb = find(g, req, m->id);
    if (!sb)
        return;
    const struct sandbox_reach *reach = &sb->config.reach;
    char address[IP_TEXT];
    struct ip link = ip_from_v4(network_address_of(sb));
    const struct ip *link6 = network_address6_of(sb);
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_string(&w, "id", sb->id);
    json_put_key(&w, "network");
    sandbox_reach_put_json(&w, reach, lifecycle_has_network(g->lifecycle));
    if (ip_v4(&link))
        json_member_string(&w, "address", ip_text(&link, address));
    if (link6)
        json_member_string(&w, "address6", ip_text(link6, address));
    json_member_int(&w, "networkBytesPerSecond", (int64_t)reach->bytes_per_second);
    json_member_int(&w, "connections", reach->connections ? reach->connections : KEEPER_CONNECTIONS_DEFAULT);
    json_object_end(&w);
    reply_json(req, 200, &w);
}

/* A client that takes a stream of events, or says so. */
static bool wants_stream(const struct http_request *req)
{
    char follow[8] = "";
    const char *accept = http_request_header(req, "Accept");
    if (http_query_get(req->query, "follow", follow, sizeof follow))
        return strcmp(follow, "0") != 0 && strcmp(follow, "false") != 0;
    return accept && strstr(accept, "text/event-stream");
}

static void follow_log(struct gateway *g, struct http_request *req, struct sandbox *sb)
{
    struct flow_log *log = network_log_make(g->networks, sb);
    int r = log ? flow_log_follow(log, req) : -ENOMEM;
    struct problem p;
    if (r == -EMFILE) {
        (void)problem_set(&p, 429, "TOO_MANY_REQUESTS", "%d streams of this log are open already",
                          FLOW_LOG_FOLLOWERS_MAX);
        p.retry_after_s = 5;
        reply_problem(req, sb->id, &p);
    } else if (r < 0) {
        reply_error(req, 500, "INTERNAL_ERROR", "out of memory");
    }
}

void api_network_log(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    struct sandbox *sb = find(g, req, m->id);
    if (!sb)
        return;
    if (wants_stream(req) && strcmp(req->method, "HEAD") != 0) {
        follow_log(g, req, sb);
        return;
    }
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_string(&w, "id", sb->id);
    json_put_key(&w, "entries");
    flow_log_put_json(network_log(sb), &w);
    json_object_end(&w);
    reply_json(req, 200, &w);
}
