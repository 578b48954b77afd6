/* SPDX-License-Identifier: Apache-2.0 */
/* box_socket.c: see box_socket.h.
 *
 * A socket belongs for good to the network namespace in which it is made, whoever uses it afterwards. So the
 * gateway can serve a port inside a sandbox with a descriptor and no right to enter anything. Of addresses it
 * may choose any, loopback or the host's resolvers, and nothing else.
 *
 * The namespace is entered by a thread that is made for it and ends with it: no other work of the keeper can
 * ever find itself in a sandbox's network because a way back failed. */
#include "keeper/box_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>

enum { BACKLOG = 1024 };

struct inside {
    int pidfd;
    uint32_t kind;
    struct sockaddr_in to;
    int fd; /* or -errno */
};

/* A bound socket in the namespace of the calling thread: a descriptor or -errno. */
static int bound_socket(int type, const struct sockaddr_in *to)
{
    auto_close int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    bool listens = type == SOCK_STREAM;
    /* the next gateway must not wait for the connections of the last one to expire */
    if (listens && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) < 0)
        return -errno;
    /* an answer has to come from the address that was asked */
    if (!listens && setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &(int){1}, sizeof(int)) < 0)
        return -errno;
    if (bind(fd, (const struct sockaddr *)to, sizeof *to) < 0 || (listens && listen(fd, BACKLOG) < 0))
        return -errno;
    return take_fd(fd);
}

static void *inside_run(void *arg)
{
    struct inside *i = arg;
    if (setns(i->pidfd, CLONE_NEWNET) < 0)
        i->fd = -errno;
    else
        i->fd = bound_socket(i->kind == KEEPER_SOCKET_UDP ? SOCK_DGRAM : SOCK_STREAM, &i->to);
    return NULL;
}

static int inside_socket(const struct keeper_request *q, const struct sandbox *sb, struct error *reterr)
{
    struct inside i = {.pidfd = sb->pidfd, .kind = q->socket.kind, .to.sin_family = AF_INET};
    pthread_t thread;
    i.to.sin_port = htons((uint16_t)q->socket.port);
    i.to.sin_addr.s_addr = htonl(q->socket.address == KEEPER_ADDRESS_LOOPBACK ? INADDR_LOOPBACK : INADDR_ANY);
    int r = pthread_create(&thread, NULL, inside_run, &i);
    if (r)
        return error_sys(reterr, r, "enter the sandbox's network");
    (void)pthread_join(thread, NULL); /* a few system calls, none of which waits */
    return i.fd < 0 ? error_sys(reterr, -i.fd, "make a socket on port %u in the sandbox", q->socket.port)
                    : i.fd;
}

/* A connection under way: whether it comes about is the gateway's to see. */
static int host_dial(int type, uint32_t address, unsigned port, struct error *reterr)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = address};
    auto_close int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_sys(reterr, errno, "make a socket");
    if (type == SOCK_STREAM) /* only slower without */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS)
        return error_sys(reterr, errno, "connect to port %u", port);
    return take_fd(fd);
}

static int resolver_dial(const struct keeper_request *q, const uint32_t *resolvers, size_t count,
                         struct error *reterr)
{
    uint32_t found[NETWORK_RESOLVERS_MAX];
    if (!count) { /* read anew each time: the host may have moved to another network */
        count = network_host_resolvers(true, found);
        resolvers = found;
    }
    if (q->socket.port >= count)
        return error_set(reterr, ENOENT, "the host has no more resolvers");
    return host_dial(q->socket.kind == KEEPER_SOCKET_RESOLVE_UDP ? SOCK_DGRAM : SOCK_STREAM,
                     resolvers[q->socket.port], 53, reterr);
}

static int publish(unsigned port, struct error *reterr)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = bound_socket(SOCK_STREAM, &to);
    return fd < 0 ? error_sys(reterr, -fd, "listen on port %u of the host's loopback interface", port) : fd;
}

int box_socket_make(const struct keeper_request *q, const struct sandbox *sb, const struct network *network,
                    const uint32_t *resolvers, size_t resolver_count, int *ret_fd, struct error *reterr)
{
    int fd;
    if (q->socket.kind == KEEPER_SOCKET_PUBLISH)
        fd = publish(q->socket.port, reterr);
    else if (q->socket.kind == KEEPER_SOCKET_FLOWS || q->socket.kind == KEEPER_SOCKET_REFUSED ||
             q->socket.kind == KEEPER_SOCKET_ANSWERS)
        return network ? network_watch(network, (enum keeper_socket)q->socket.kind, ret_fd, reterr)
                       : error_set(reterr, ENONET, "this daemon gives sandboxes no network");
    else if (!sb)
        return error_set(reterr, ENOENT, "the sandbox is not running");
    else if (q->socket.kind == KEEPER_SOCKET_DIAL && !sb->spec.sidecar)
        return error_set(reterr, EPERM, "the sandbox has no sidecar");
    else if (q->socket.kind == KEEPER_SOCKET_DIAL)
        fd = host_dial(SOCK_STREAM, htonl(INADDR_LOOPBACK), q->socket.port, reterr);
    else if (q->socket.kind == KEEPER_SOCKET_LISTEN || q->socket.kind == KEEPER_SOCKET_UDP)
        fd = inside_socket(q, sb, reterr);
    else
        fd = resolver_dial(q, resolvers, resolver_count, reterr);
    if (fd < 0)
        return fd;
    *ret_fd = fd;
    return 0;
}
