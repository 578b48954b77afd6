/* SPDX-License-Identifier: Apache-2.0 */
/* websockets.c: which upgrade goes where. */
#include "agent/websockets.h"
#include "agent/rpc.h"
#include "agent/terminal.h"

#include <string.h>
#include <strings.h>

enum { SOCKETS_MAX = 1024 }; /* the HTTP server has stopped counting them */

static bool is_path(const struct http_request *req, const char *path)
{
    return strcmp(req->path, path) == 0;
}

bool websockets_request(struct agent *a, struct http_request *req)
{
    const char *why, *upgrade = http_request_header(req, "Upgrade");
    bool mux = is_path(req, "/ws") || is_path(req, "/api/ws"), terminal = is_path(req, "/ws/pty"),
         rpc = is_path(req, "/rpc");
    if ((!mux && !terminal && !rpc) || !upgrade || strcasecmp(upgrade, "websocket") != 0)
        return false;
    int status = ws_handshake_check(req, &why);
    if (status)
        ws_handshake_refuse(req, status, why);
    else if (a->sockets.count >= SOCKETS_MAX)
        http_respond(req, 503, "text/plain;charset=utf-8", "WebSocket upgrade failed", 24);
    else if (mux)
        mux_accept(a, req);
    else if (rpc)
        rpc_accept(a, req);
    else
        terminal_accept(a, req);
    return true;
}

void websockets_free(struct agent *a)
{
    terminals_free(a);
    muxes_free(a);
    rpcs_free(a);
    ws_group_free(&a->sockets);
}
