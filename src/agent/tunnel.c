/* SPDX-License-Identifier: Apache-2.0 */
/* tunnel.c: CONNECT on the agent's unix socket: a connection to a port inside the sandbox, handed over as a
 * descriptor.
 *
 * The exchange
 *     gateway:  CONNECT 127.0.0.1:PORT HTTP/1.1 CRLF CRLF
 *     agent:    the byte 'k' with the connected TCP socket attached (SCM_RIGHTS), then the end of the
 * connection; or an ordinary HTTP answer with an error envelope: 502 nobody listens, 504 no answer within 5
 * seconds, 400 the target is not of this form. A status line begins with 'H', so the first byte tells the two
 * apart. The gateway then speaks with the service itself: no byte of a preview is copied by the agent, and a
 * service bound to 127.0.0.1, 0.0.0.0 or ::1 is reached alike, because the connection is made on this side.
 * Over TCP (the agent as a plain program) descriptors cannot travel, and CONNECT is refused like any unknown
 * method. */
#include "agent/tunnel.h"
#include "agent/dial.h"
#include "agent/reply.h"
#include "net/socket.h"

#include <errno.h>
#include <string.h>

enum { CONNECT_LIMIT_MS = 5000 };

struct tunnel {
    struct loop *loop;
    struct http_request *req;
    struct dial dial;
    struct timer deadline;
    int port;
};

static void tunnel_free(struct tunnel *t)
{
    loop_timer_stop(t->loop, &t->deadline);
    dial_stop(&t->dial);
    free(t);
}

static void tunnel_gone(struct http_request *req)
{
    tunnel_free(req->user);
}

static void tunnel_fail(struct tunnel *t, int status, const char *why)
{
    struct http_request *req = t->req;
    int port = t->port;
    tunnel_free(t);
    http_response_close_after(req);
    reply_error_status(req, status, "SERVICE_NOT_RESPONDING", "port %d: %s", port, why);
}

static void tunnel_dialled(struct dial *d, int fd)
{
    struct tunnel *t = container_of(d, struct tunnel, dial);
    struct http_request *req = t->req;
    struct buf rest = BUF_INIT((size_t)128 * 1024);
    auto_close int service = fd;
    if (fd < 0) {
        tunnel_fail(t, 502,
                    fd == -ECONNREFUSED || fd == -EADDRNOTAVAIL ? "nobody listens" : "cannot connect");
        return;
    }
    tunnel_free(t);
    auto_close int line = http_hijack(req, &rest);
    buf_done(&rest); /* nobody has anything to say before our answer */
    if (line >= 0)
        (void)socket_send_fd(line, "k", 1, service); /* a gateway that is gone needs no answer */
}

static void tunnel_expired(struct timer *timer)
{
    tunnel_fail(container_of(timer, struct tunnel, deadline), 504, "no answer within 5 seconds");
}

/* "127.0.0.1:" and 1 to 65535 without a leading zero; else 0. */
static int target_port(const char *target)
{
    static const char host[] = "127.0.0.1:";
    int port = 0;
    if (strncmp(target, host, sizeof host - 1) != 0)
        return 0;
    const char *p = target + sizeof host - 1;
    if (*p == '0' || strlen(p) > 5)
        return 0;
    for (; *p; p++) {
        if (*p < '0' || *p > '9')
            return 0;
        port = port * 10 + (*p - '0');
    }
    return port <= 65535 ? port : 0;
}

bool tunnel_request(struct agent *a, struct http_request *req)
{
    if (strcmp(req->method, "CONNECT") != 0 || strcmp(req->peer, "unix") != 0)
        return false;
    int port = target_port(req->target);
    struct tunnel *t = port ? calloc(1, sizeof *t) : NULL;
    if (!t) {
        if (port)
            reply_error(req, "INTERNAL_ERROR", "Out of memory");
        else
            reply_error_status(req, 400, "VALIDATION_FAILED", "CONNECT takes 127.0.0.1:PORT");
        return true;
    }
    t->loop = a->loop;
    t->req = req;
    t->port = port;
    req->user = t;
    req->on_gone = tunnel_gone;
    loop_timer_start(a->loop, &t->deadline, CONNECT_LIMIT_MS, tunnel_expired);
    dial_start(a->loop, &t->dial, port, tunnel_dialled);
    return true;
}
