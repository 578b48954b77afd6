/* SPDX-License-Identifier: Apache-2.0 */
/* api_events.c: GET /v1/events: what happens to sandboxes, as server-sent events.
 *
 *   ?sandbox=ID              only of this one
 *   Last-Event-ID: ID        (or ?lastEventId=ID) first what happened since, as far as it is kept */
#include "gateway/events.h"
#include "gateway/gateway_internal.h"
#include "gateway/reply.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void api_events(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    char id[SANDBOX_ID_MAX + 2] = "", last[64];
    struct error e;
    const struct token *token = m->who.token;
    bool given = http_query_get(req->query, "sandbox", id, sizeof id);
    if (given && sandbox_id_check(id, &e) < 0) {
        reply_error(req, 400, "INVALID_SANDBOX_ID", "%s", e.msg);
        return;
    }
    if (token && token->row.sandbox[0]) { /* bound to one: there is nothing else to hear */
        if (given && strcmp(id, token->row.sandbox) != 0) {
            reply_error(req, 404, "SANDBOX_NOT_FOUND", "there is no sandbox '%s'", id);
            return;
        }
        (void)snprintf(id, sizeof id, "%s", token->row.sandbox);
    }
    if (strcmp(req->method, "HEAD") == 0) {
        http_respond(req, 200, "text/event-stream", NULL, 0);
        return;
    }
    const char *last_id = http_request_header(req, "Last-Event-ID");
    if (!last_id && http_query_get(req->query, "lastEventId", last, sizeof last))
        last_id = last;
    int r = events_subscribe(g->events, req, &m->who, id, last_id);
    if (r == -EMFILE) {
        struct problem p;
        (void)problem_set(&p, 429, "TOO_MANY_REQUESTS", "too many streams of events are open");
        p.retry_after_s = 5;
        reply_problem(req, NULL, &p);
    } else if (r < 0) {
        reply_error(req, 500, "INTERNAL_ERROR", "out of memory");
    }
}
