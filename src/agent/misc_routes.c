/* SPDX-License-Identifier: Apache-2.0 */
/* misc_routes.c: the routes that only tell something about the agent. */
#include "agent/reply.h"
#include "agent/routes.h"

#include <string.h>

void route_root(struct agent *a, struct http_request *req, struct route_call *call)
{
    static const char text[] = "This is a Silica sandbox.\n";
    (void)a;
    (void)call;
    http_respond(req, 200, "text/plain; charset=utf-8", text, strlen(text));
}

void route_ping(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct reply r;
    (void)a;
    (void)call;
    reply_begin(&r);
    json_member_string(&r.w, "status", "healthy");
    json_member_string(&r.w, "message", "pong");
    reply_send(&r, req);
}

void route_version(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct reply r;
    const char *version = agent_getenv(a, "SANDBOX_VERSION");
    (void)call;
    a->legacy_03 = false; /* release 0.3 does not ask */
    a->version_asked = true;
    reply_begin(&r);
    json_member_string(&r.w, "version", version ? version : "unknown");
    reply_send(&r, req);
}

void route_commands(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct reply r;
    (void)a;
    (void)call;
    reply_begin(&r);
    json_put_key(&r.w, "availableCommands");
    json_array_begin(&r.w);
    json_array_end(&r.w);
    json_member_int(&r.w, "count", 0);
    reply_send(&r, req);
}
