/* SPDX-License-Identifier: Apache-2.0 */
/* api_health.c: GET /health: the loop turns. */
#include "gateway/gateway_internal.h"
#include "gateway/reply.h"

void api_health(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    struct buf out = BUF_INIT(1024);
    struct json_writer w;
    (void)m;
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_string(&w, "status", "ok");
    json_member_string(&w, "version", SILICA_VERSION);
    json_member_int(&w, "sandboxes", lifecycle_running(g->lifecycle));
    json_object_end(&w);
    reply_json(req, 200, &w);
}
