/* SPDX-License-Identifier: Apache-2.0 */
/* flow_watch.c: see flow_watch.h. The keeper makes the sockets; they can be read and nothing else. */
#include "gateway/flow_watch.h"
#include "base/log.h"
#include "gateway/keeper_socket.h"

#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>

enum {
    BATCH = 64, /* datagrams per event */
    BATCH_QUEUED = 16 * BATCH,
    DATAGRAM_MAX = 65536,
    RETRY_MS = 1000,
    RETRIES = 10,
};

/* Names first: a connection that was made because of an answer is told after it. */
enum kind { ANSWERS, FLOWS, REFUSED, KINDS };

static const struct {
    enum keeper_socket socket;
    const char *what;
} kinds[] = {
    [ANSWERS] = {KEEPER_SOCKET_ANSWERS, "names"},
    [FLOWS] = {KEEPER_SOCKET_FLOWS, "connections"},
    [REFUSED] = {KEEPER_SOCKET_REFUSED, "refused packets"},
};
_Static_assert(ARRAY_SIZE(kinds) == KINDS, "all of them");

struct watch {
    struct flow_watch *all;
    enum kind kind;
    struct keeper_ask *ask;
    int fd;
    struct source source;
    struct timer retry;
    unsigned tries;
};

struct flow_watch {
    struct flow_watch_config config;
    struct watch watches[KINDS];
    bool begun;
    char datagram[DATAGRAM_MAX];
};

static void watch_read(struct watch *w, int datagrams)
{
    struct flow_watch *all = w->all;
    for (int i = 0; i < datagrams && w->fd >= 0; i++) {
        struct sockaddr_nl from = {0};
        socklen_t from_len = sizeof from;
        ssize_t len = recvfrom(w->fd, all->datagram, sizeof all->datagram, MSG_DONTWAIT | MSG_TRUNC,
                               (struct sockaddr *)&from, &from_len);
        if (len < 0)
            return;
        if (len > (ssize_t)sizeof all->datagram || from.nl_pid != 0) /* not the kernel's */
            continue;
        if (w->kind == ANSWERS)
            flow_parse_answers(all->datagram, (size_t)len, all->config.answer, all->config.arg);
        else
            flow_parse(all->datagram, (size_t)len, all->config.flow, all->config.arg);
    }
}

static void watch_ready(struct source *s, uint32_t events)
{
    struct watch *w = container_of(s, struct watch, source);
    (void)events;
    if (w->kind != ANSWERS)
        watch_read(&w->all->watches[ANSWERS], BATCH);
    watch_read(w, BATCH);
}

static void watch_ask(struct watch *w);

static void watch_retry(struct timer *t)
{
    watch_ask(container_of(t, struct watch, retry));
}

static void watch_got(void *arg, int fd)
{
    struct watch *w = arg;
    struct loop *loop = w->all->config.loop;
    w->ask = NULL;
    w->fd = fd < 0 ? -1 : fd;
    int r = fd < 0 ? fd : loop_add(loop, &w->source, fd, EPOLLIN, watch_ready);
    if (r == 0)
        return;
    close_fd(&w->fd);
    /* the gateway before us may not have let go of it yet */
    if (r == -EBUSY && w->tries++ < RETRIES)
        loop_timer_start(loop, &w->retry, RETRY_MS, watch_retry);
    else if (r != -ECONNRESET)
        log_warn("the network log lacks %s: %s", kinds[w->kind].what, strerror(-r));
}

static void watch_ask(struct watch *w)
{
    w->ask = keeper_socket_ask(&(struct keeper_ask_config){.link = w->all->config.link,
                                                           .id = "network",
                                                           .kind = kinds[w->kind].socket,
                                                           .got = watch_got,
                                                           .arg = w});
}

struct flow_watch *flow_watch_new(const struct flow_watch_config *config)
{
    struct flow_watch *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->config = *config;
    for (int i = 0; i < KINDS; i++)
        w->watches[i] = (struct watch){.all = w, .kind = (enum kind)i, .fd = -1, .source.fd = -1};
    return w;
}

void flow_watch_begin(struct flow_watch *w)
{
    for (int i = 0; i < KINDS && !w->begun; i++)
        watch_ask(&w->watches[i]);
    w->begun = true;
}

void flow_watch_read(struct flow_watch *w)
{
    for (int i = 0; i < KINDS; i++)
        watch_read(&w->watches[i], BATCH_QUEUED);
}

void flow_watch_free(struct flow_watch *w)
{
    if (!w)
        return;
    for (int i = 0; i < KINDS; i++) {
        struct watch *one = &w->watches[i];
        keeper_ask_cancel(one->ask);
        loop_timer_stop(w->config.loop, &one->retry);
        loop_del(w->config.loop, &one->source);
        close_fd(&one->fd);
    }
    free(w);
}
