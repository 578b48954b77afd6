/* SPDX-License-Identifier: Apache-2.0 */
/* context_process.c: see context_process.h.
 *
 * Theory of operation
 * What the interpreter prints comes through two pipes, what its runtime tells through the channel. The
 * runtime has everything printed before it tells something, so the order is kept by emptying the pipes before
 * a message is looked at. The end is seen on a pidfd or by the reaper; what is still in the channel and the
 * pipes is delivered first. */
#include "agent/context_process.h"
#include "agent/process_kill.h"
#include "base/id.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum {
    PACKET_MAX = 64 * 1024,
    SEND_PIECE = 32 * 1024, /* a packet socket takes no more than its buffer at once */
    UNSENT_MAX = 256 << 20,
    READS_PER_EVENT = 16,
    READS_AT_END = 1024, /* more than a socket holds; a child that keeps on writing is not waited for */
    PATIENCE_MS = 1000,  /* others need the processor, too */
};

static void channel_ready(struct source *s, uint32_t events);

/* ------------------------------------------------------------------ birth */

static void deliver(struct context_process *p, int stream, const char *data, size_t n)
{
    if (p->ops)
        p->ops->output(p, stream, data, n);
}

static void out_data(struct tap *t, const char *data, size_t n)
{
    deliver(container_of(t, struct context_process, taps[0]), 0, data, n);
}

static void err_data(struct tap *t, const char *data, size_t n)
{
    deliver(container_of(t, struct context_process, taps[1]), 1, data, n);
}

static void tap_ended(struct tap *t)
{
    (void)t; /* the process may well live on without outputs */
}

static int make_channel(struct context_process *p, int socket_type, int *ret_peer)
{
    int pair[2];
    if (socketpair(AF_UNIX, socket_type | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    *ret_peer = pair[1];
    p->channel_fd = pair[0];
    (void)fcntl(pair[0], F_SETFL, O_NONBLOCK);
    return loop_add(p->agent->loop, &p->channel, pair[0], EPOLLIN, channel_ready);
}

static int make_pipe(struct context_process *p, int i, int *ret_peer)
{
    int pair[2];
    if (pipe2(pair, O_CLOEXEC) < 0)
        return -errno;
    *ret_peer = pair[1];
    (void)fcntl(pair[0], F_SETFL, O_NONBLOCK);
    tap_init(&p->taps[i], p->agent, pair[0], i ? err_data : out_data, tap_ended);
    return tap_follow(&p->taps[i]);
}

int context_process_new(struct agent *a, enum context_language language, int socket_type, int peer[3],
                        struct context_process **ret, struct error *reterr)
{
    struct context_process *p = calloc(1, sizeof *p);
    unsigned char secret[FRAME_NONCE / 2];
    char nonce[FRAME_NONCE + 1];
    if (!p)
        return error_sys(reterr, ENOMEM, "make an interpreter");
    random_bytes(secret, sizeof secret);
    hex_encode(nonce, secret, sizeof secret);
    p->agent = a;
    p->language = language;
    p->channel.fd = p->channel_fd = p->pidfd.fd = -1;
    p->unsent = BUF_INIT(UNSENT_MAX);
    p->code = PROCESS_CODE_UNKNOWN;
    list_init(&p->link);
    frame_parser_init(&p->parser, nonce);
    for (int i = 0; i < 2; i++)
        tap_init(&p->taps[i], a, -1, i ? err_data : out_data, tap_ended);
    peer[0] = peer[1] = peer[2] = -1;
    int r = make_channel(p, socket_type, &peer[0]);
    for (int i = 0; i < 2 && r == 0; i++)
        r = make_pipe(p, i, &peer[1 + i]);
    if (r < 0) {
        for (int i = 0; i < 3; i++)
            close_fd(&peer[i]);
        context_process_free(p);
        return error_sys(reterr, -r, "make an interpreter");
    }
    *ret = p;
    return 0;
}

const char *context_process_nonce(const struct context_process *p)
{
    return p->parser.nonce;
}

/* ------------------------------------------------------------------ end */

/* Without the process nobody can tell any more; what it left behind in its group ends with it. */
static void run_end(struct deferred *d)
{
    struct context_process *p = container_of(d, struct context_process, end);
    loop_timer_stop(p->agent->loop, &p->patience);
    if (p->channel_fd >= 0)
        channel_ready(&p->channel, EPOLLHUP);
    if (p->freed)
        return;
    context_process_drain(p);
    if (p->freed)
        return;
    p->state = PROCESS_DEAD;
    if (p->pid)
        (void)kill(-p->pid, SIGKILL);
    if (p->ops)
        p->ops->died(p);
}

static void end_soon(struct context_process *p)
{
    if (p->state == PROCESS_DEAD || p->freed)
        return;
    p->ending = true;
    loop_defer(p->agent->loop, &p->end, run_end);
}

static void patience_over(struct timer *t)
{
    end_soon(container_of(t, struct context_process, patience));
}

static void pidfd_ready(struct source *s, uint32_t events)
{
    struct context_process *p = container_of(s, struct context_process, pidfd);
    int fd = s->fd;
    (void)events;
    loop_del(p->agent->loop, s);
    (void)close(fd);
    if (p->code != PROCESS_CODE_UNKNOWN)
        end_soon(p);
    else /* its parent will tell how, in a moment */
        loop_timer_start(p->agent->loop, &p->patience, PATIENCE_MS, patience_over);
}

static void child_exited(struct child *c, int code)
{
    context_process_exited(container_of(c, struct context_process, child), code > 128 ? 128 - code : code);
}

void context_process_exited(struct context_process *p, int code)
{
    p->code = code;
    end_soon(p);
}

void context_process_started(struct context_process *p, pid_t pid, int pidfd)
{
    p->pid = pid;
    p->state = PROCESS_RUNNING;
    p->tag = process_tag_new(p->agent);
    if (p->tag.last) /* before it is given any code: all that it forks inherits the mark */
        (void)prlimit(pid, RLIMIT_LOCKS, &(struct rlimit){p->tag.last, p->tag.last}, NULL);
    if (pidfd < 0)
        reaper_watch(p->agent->reaper, &p->child, pid, child_exited);
    else if (loop_add(p->agent->loop, &p->pidfd, pidfd, EPOLLIN, pidfd_ready) < 0) {
        (void)close(pidfd);
        context_process_failed(p, "out of memory");
    }
}

void context_process_adopted(struct context_process *p)
{
    if (p->state == PROCESS_RUNNING && !p->child.pid)
        reaper_watch(p->agent->reaper, &p->child, p->pid, child_exited);
}

void context_process_failed(struct context_process *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(p->failure, sizeof p->failure, fmt, ap);
    va_end(ap);
    end_soon(p);
}

void context_process_epitaph(const struct context_process *p, char *out, size_t cap)
{
    static const struct {
        int number;
        const char *name;
    } names[] = {{SIGKILL, "SIGKILL"}, {SIGSEGV, "SIGSEGV"}, {SIGABRT, "SIGABRT"}, {SIGTERM, "SIGTERM"},
                 {SIGINT, "SIGINT"},   {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},   {SIGILL, "SIGILL"}};
    const char *name = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (names[i].number == -p->code)
            name = names[i].name;
    if (p->failure[0])
        (void)snprintf(out, cap, "%s", p->failure);
    else if (p->mute)
        (void)snprintf(out, cap, "closed its channel and was killed");
    else if (p->code == PROCESS_CODE_UNKNOWN)
        (void)snprintf(out, cap, "ended");
    else if (name)
        (void)snprintf(out, cap, "was killed by %s", name);
    else if (p->code < 0)
        (void)snprintf(out, cap, "was killed by signal %d", -p->code);
    else
        (void)snprintf(out, cap, "exited with code %d", p->code);
}

/* ------------------------------------------------------------------ channel */

static int write_some(struct context_process *p)
{
    while (buf_len(&p->unsent)) {
        ssize_t n = send(p->channel_fd, buf_data(&p->unsent), MIN(buf_len(&p->unsent), (size_t)SEND_PIECE),
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        buf_consume(&p->unsent, (size_t)n);
    }
    buf_done(&p->unsent);
    return 0;
}

static void update_events(struct context_process *p)
{
    uint32_t events = p->paused ? 0 : EPOLLIN;
    if (buf_len(&p->unsent))
        events |= EPOLLOUT;
    loop_mod(p->agent->loop, &p->channel, events);
}

int context_process_send(struct context_process *p, const void *data, size_t n)
{
    int r = buf_append(&p->unsent, data, n);
    if (r < 0 || p->channel_fd < 0)
        return r;
    r = write_some(p);
    if (r < 0 && r != -EAGAIN)
        buf_done(&p->unsent); /* it is about to be found dead */
    update_events(p);
    return 0;
}

static void mute_too_long(struct timer *t)
{
    struct context_process *p = container_of(t, struct context_process, patience);
    p->mute = true;
    (void)kill(p->pid, SIGKILL); /* its end is told as usual */
}

/* The other end is closed: it ends, or it has become another program. A living process without a channel is
 * of no use. */
static void channel_closed(struct context_process *p)
{
    loop_del(p->agent->loop, &p->channel);
    close_fd(&p->channel_fd);
    if (p->state == PROCESS_RUNNING && p->pid > 0 && !p->ending && !loop_timer_running(&p->patience))
        loop_timer_start(p->agent->loop, &p->patience, PATIENCE_MS, mute_too_long);
}

static void channel_read(struct context_process *p)
{
    char packet[PACKET_MAX];
    for (int i = 0; i < (p->ending ? READS_AT_END : READS_PER_EVENT); i++) {
        ssize_t n = recv(p->channel_fd, packet, sizeof packet, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n <= 0) {
            channel_closed(p);
            return;
        }
        for (size_t used = 0; used < (size_t)n;) {
            struct frame f;
            bool complete;
            used += frame_parse(&p->parser, packet + used, (size_t)n - used, &f, &complete);
            if (!complete || !p->ops)
                continue;
            context_process_drain(p);
            if (!p->freed)
                p->ops->message(p, &f);
            if (p->freed)
                return;
        }
        if (p->paused && !p->ending)
            return;
    }
}

static void channel_ready(struct source *s, uint32_t events)
{
    struct context_process *p = container_of(s, struct context_process, channel);
    if (events & EPOLLOUT) {
        int r = write_some(p);
        if (r < 0 && r != -EAGAIN)
            buf_done(&p->unsent);
        update_events(p);
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        channel_read(p);
}

void context_process_drain(struct context_process *p)
{
    for (int i = 0; i < 2 && !p->freed; i++)
        (void)tap_drain(&p->taps[i]);
}

void context_process_pause(struct context_process *p)
{
    if (p->paused)
        return;
    p->paused = true;
    for (int i = 0; i < 2; i++)
        tap_pause(&p->taps[i]);
    if (p->channel_fd >= 0)
        update_events(p);
}

void context_process_resume(struct context_process *p)
{
    if (!p->paused)
        return;
    p->paused = false;
    for (int i = 0; i < 2; i++)
        (void)tap_follow(&p->taps[i]); /* no memory: the next message empties it */
    if (p->channel_fd >= 0)
        update_events(p);
}

void context_process_interrupt(struct context_process *p)
{
    if (p->state == PROCESS_RUNNING && p->pid > 0 && !p->ending)
        (void)kill(-p->pid, SIGINT); /* ESRCH: it is ending anyway */
}

/* ------------------------------------------------------------------ death */

static void killed(void *arg, bool gone)
{
    (void)arg;
    (void)gone; /* what survives SIGKILL for seconds hangs in the kernel: nothing to be done */
}

static void reclaim(struct deferred *d)
{
    struct context_process *p = container_of(d, struct context_process, end);
    frame_parser_done(&p->parser);
    buf_done(&p->unsent);
    free(p);
}

void context_process_free(struct context_process *p)
{
    if (!p || p->freed)
        return;
    struct agent *a = p->agent;
    int pidfd = p->pidfd.fd;
    p->freed = true;
    p->ops = NULL;
    if (p->abandoned)
        p->abandoned(p);
    list_remove(&p->link);
    spawner_cancel(&p->spawn);
    loop_timer_stop(a->loop, &p->patience);
    loop_undefer(a->loop, &p->end);
    loop_del(a->loop, &p->pidfd);
    close_fd(&pidfd);
    if (p->state == PROCESS_RUNNING && p->pid > 0) {
        struct killing_config config = {.roots = &p->pid,
                                        .count = 1,
                                        .tags = &p->tag,
                                        .tag_count = 1,
                                        .sessions = true,
                                        .signal = SIGKILL,
                                        .done = killed};
        (void)killing_start(a, &config); /* first: an orphan can no longer be told by its parent */
        (void)kill(-p->pid, SIGKILL);
    }
    reaper_forget(a->reaper, &p->child);
    loop_del(a->loop, &p->channel);
    close_fd(&p->channel_fd);
    for (int i = 0; i < 2; i++)
        tap_close(&p->taps[i]);
    loop_defer(a->loop, &p->end, reclaim); /* somebody up the stack may still look at it */
}
