/* SPDX-License-Identifier: Apache-2.0 */
/* keeper_link.c: see keeper_link.h.
 *
 * Every request has a slot; its seq holds the slot's number and a count that makes it unique, so that a
 * reply is found without search and a reply to nobody is noticed. What the socket does not take at once waits
 * in `outbox` (the keeper reads all the time; the number of requests is bounded by the gateway's
 * connections). */
#include "gateway/keeper_link.h"
#include "base/log.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 64 }; /* messages a wake-up: others want the loop too */

struct slot {
    uint64_t seq; /* 0: free */
    keeper_done *done;
    void *arg;
    size_t next_free;
};

struct outgoing {
    struct outgoing *next;
    struct keeper_request request;
    int fd;
};

struct refusal { /* a request that failed before it left */
    struct refusal *next;
    keeper_done *done;
    void *arg;
    int error;
};

struct keeper_link {
    struct loop *loop;
    struct source source;
    struct keeper_link_ops ops;
    bool gone;
    struct slot *slots;
    size_t slot_count, free_slot; /* free_slot: index + 1, 0 = none */
    uint64_t counter;
    struct outgoing *outbox, **outbox_last;
    struct refusal *refused, **refused_last;
    struct deferred refuse;
};

static void link_ready(struct source *s, uint32_t events);

int keeper_link_new(struct loop *loop, int fd, const struct keeper_link_ops *ops, struct keeper_link **ret,
                    struct error *reterr)
{
    auto_close int owned = fd;
    struct keeper_link *k = calloc(1, sizeof *k);
    if (!k)
        return error_sys(reterr, ENOMEM, "talk to the keeper");
    k->loop = loop;
    k->ops = *ops;
    k->outbox_last = &k->outbox;
    k->refused_last = &k->refused;
    int flags = fcntl(fd, F_GETFL);
    int r = flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
    if (r == 0)
        r = loop_add(loop, &k->source, fd, EPOLLIN, link_ready);
    if (r < 0) {
        free(k);
        return error_sys(reterr, -r, "talk to the keeper");
    }
    (void)take_fd(owned);
    *ret = k;
    return 0;
}

static void outbox_pop(struct keeper_link *k)
{
    struct outgoing *o = k->outbox;
    k->outbox = o->next;
    if (!k->outbox)
        k->outbox_last = &k->outbox;
    close_fd(&o->fd);
    free(o);
}

void keeper_link_free(struct keeper_link *k)
{
    if (!k)
        return;
    while (k->outbox)
        outbox_pop(k);
    for (struct refusal *r = k->refused, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    loop_undefer(k->loop, &k->refuse);
    int fd = k->source.fd;
    loop_del(k->loop, &k->source);
    if (fd >= 0)
        (void)close(fd);
    free(k->slots);
    free(k);
}

static void link_broken(struct keeper_link *k, const char *why)
{
    if (k->gone)
        return;
    k->gone = true;
    log_error("the keeper %s", why);
    loop_mod(k->loop, &k->source, 0);
    k->ops.gone(k->ops.arg);
}

static void run_refusals(struct deferred *d)
{
    struct keeper_link *k = container_of(d, struct keeper_link, refuse);
    struct refusal *list = k->refused;
    k->refused = NULL;
    k->refused_last = &k->refused;
    for (struct refusal *r = list, *next; r; r = next) {
        struct keeper_reply reply = {
            .version = KEEPER_PROTO_VERSION, .type = KEEPER_REPLY, .error = r->error};
        (void)snprintf(reply.message, sizeof reply.message, "the request could not be passed on");
        next = r->next;
        r->done(r->arg, &reply, -1);
        free(r);
    }
}

static void refuse(struct keeper_link *k, keeper_done *done, void *arg, int error)
{
    struct refusal *r = calloc(1, sizeof *r);
    if (!r)
        abort(); /* nobody could be told; a restart loses nothing promised */
    *r = (struct refusal){.done = done, .arg = arg, .error = error};
    *k->refused_last = r;
    k->refused_last = &r->next;
    loop_defer(k->loop, &k->refuse, run_refusals);
}

static struct slot *slot_take(struct keeper_link *k)
{
    if (!k->free_slot) {
        size_t count = k->slot_count ? k->slot_count * 2 : 64;
        struct slot *slots = realloc(k->slots, count * sizeof *slots);
        if (!slots)
            return NULL;
        k->slots = slots;
        for (size_t i = count; i > k->slot_count; i--) {
            slots[i - 1] = (struct slot){.next_free = k->free_slot};
            k->free_slot = i;
        }
        k->slot_count = count;
    }
    struct slot *s = &k->slots[k->free_slot - 1];
    s->seq = ++k->counter << 32 | k->free_slot;
    k->free_slot = s->next_free;
    return s;
}

static void slot_release(struct keeper_link *k, struct slot *s)
{
    s->seq = 0;
    s->next_free = k->free_slot;
    k->free_slot = (size_t)(s - k->slots) + 1;
}

static struct slot *slot_find(struct keeper_link *k, uint64_t seq)
{
    size_t index = seq & UINT32_MAX;
    if (index == 0 || index > k->slot_count || k->slots[index - 1].seq != seq)
        return NULL;
    return &k->slots[index - 1];
}

/* Sends until the socket is full. */
static void flush(struct keeper_link *k)
{
    while (k->outbox && !k->gone) {
        struct outgoing *o = k->outbox;
        ssize_t n = socket_send_fd(k->source.fd, &o->request, sizeof o->request, o->fd);
        if (n == -EAGAIN)
            break;
        if (n < 0) {
            link_broken(k, "takes no more requests");
            return;
        }
        outbox_pop(k);
    }
    if (!k->gone)
        loop_mod(k->loop, &k->source, k->outbox ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Keeps what could not be sent at once. */
static int enqueue(struct keeper_link *k, const struct keeper_request *request, int fd)
{
    struct outgoing *o = calloc(1, sizeof *o);
    if (!o)
        return ENOMEM;
    o->request = *request;
    o->fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (fd >= 0 && o->fd < 0) {
        int error = errno;
        free(o);
        return error;
    }
    *k->outbox_last = o;
    k->outbox_last = &o->next;
    loop_mod(k->loop, &k->source, EPOLLIN | EPOLLOUT);
    return 0;
}

void keeper_link_send(struct keeper_link *k, const struct keeper_request *request, int fd, keeper_done *done,
                      void *arg)
{
    struct slot *s = k->gone ? NULL : slot_take(k);
    if (!s) {
        refuse(k, done, arg, k->gone ? ECONNRESET : ENOMEM);
        return;
    }
    s->done = done;
    s->arg = arg;
    struct keeper_request r = *request;
    r.version = KEEPER_PROTO_VERSION;
    r.seq = s->seq;

    if (!k->outbox && socket_send_fd(k->source.fd, &r, sizeof r, fd) >= 0)
        return;
    int error = enqueue(k, &r, fd); /* a broken socket shows itself when flush tries again */
    if (error) {
        slot_release(k, s);
        refuse(k, done, arg, error);
    }
}

static void deliver(struct keeper_link *k, const struct keeper_reply *reply, int fd)
{
    auto_close int owned = fd;
    if (reply->seq == 0) {
        k->ops.event(k->ops.arg, reply);
        return;
    }
    struct slot *s = slot_find(k, reply->seq);
    if (!s) {
        link_broken(k, "answered a question nobody asked");
        return;
    }
    keeper_done *done = s->done;
    void *arg = s->arg;
    if (reply->type == KEEPER_REPLY)
        slot_release(k, s);
    done(arg, reply, take_fd(owned)); /* may send, and so move the slots */
}

static void link_ready(struct source *source, uint32_t events)
{
    struct keeper_link *k = container_of(source, struct keeper_link, source);
    if (events & EPOLLOUT)
        flush(k);
    for (int i = 0; i < BATCH && !k->gone; i++) {
        struct keeper_reply reply;
        auto_close int fd = -1;
        ssize_t n = socket_recv_fd(k->source.fd, &reply, sizeof reply, &fd);
        if (n == -EAGAIN)
            return;
        if (n == 0)
            link_broken(k, "is gone");
        else if (n < 0 || keeper_reply_check(&reply, (size_t)n) < 0)
            link_broken(k, "sent a malformed message");
        else
            deliver(k, &reply, take_fd(fd));
    }
}
