/* SPDX-License-Identifier: Apache-2.0 */
/* dial.c: see dial.h. */
#include "agent/dial.h"
#include "base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

static void tell(struct deferred *later)
{
    struct dial *d = container_of(later, struct dial, later);
    int fd = d->fd;
    d->fd = -1;
    d->loop = NULL; /* idle: done may start it again */
    d->done(d, fd >= 0 ? fd : d->result);
}

static void try_address(struct dial *d);

/* The next address, or the end. At most one level deep: the second address has no successor. */
static void failed(struct dial *d, int err)
{
    loop_del(d->loop, &d->source);
    close_fd(&d->fd);
    if (!d->six) {
        d->six = true;
        try_address(d);
        return;
    }
    d->result = -err;
    loop_defer(d->loop, &d->later, tell);
}

static void ready(struct source *s, uint32_t events)
{
    struct dial *d = container_of(s, struct dial, source);
    int err = 0;
    socklen_t n = sizeof err;
    (void)events;
    if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &err, &n) < 0)
        err = errno;
    if (err) {
        failed(d, err);
        return;
    }
    loop_del(d->loop, &d->source);
    loop_defer(d->loop, &d->later, tell);
}

static void try_address(struct dial *d)
{
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } to = {0};
    socklen_t len;
    if (d->six) {
        to.six = (struct sockaddr_in6){.sin6_family = AF_INET6,
                                       .sin6_port = htons((uint16_t)d->port),
                                       .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        len = sizeof to.six;
    } else {
        to.four = (struct sockaddr_in){.sin_family = AF_INET,
                                       .sin_port = htons((uint16_t)d->port),
                                       .sin_addr = {htonl(INADDR_LOOPBACK)}};
        len = sizeof to.four;
    }
    d->fd = socket(to.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (d->fd < 0) {
        failed(d, errno);
        return;
    }
    if (connect(d->fd, &to.any, len) == 0) {
        loop_defer(d->loop, &d->later, tell);
    } else if (errno != EINPROGRESS) {
        failed(d, errno);
    } else {
        int r = loop_add(d->loop, &d->source, d->fd, EPOLLOUT, ready);
        if (r < 0)
            failed(d, -r);
    }
}

void dial_start(struct loop *loop, struct dial *d, int port, void (*done)(struct dial *d, int fd))
{
    *d = (struct dial){.done = done, .loop = loop, .port = port, .fd = -1, .source.fd = -1};
    try_address(d);
}

void dial_stop(struct dial *d)
{
    if (!d->loop)
        return;
    loop_del(d->loop, &d->source);
    loop_undefer(d->loop, &d->later);
    close_fd(&d->fd);
    d->loop = NULL;
}
