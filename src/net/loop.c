/* SPDX-License-Identifier: Apache-2.0 */
/* loop.c: see loop.h.
 *
 * Theory of operation
 * One batch = timers that are due, at most BATCH epoll events, then deferred work. A removed source is
 * taken out of the batch that is being delivered, so a stale event never reaches freed memory. Timers are a
 * binary heap of pointers; each timer knows its slot, so stopping one costs log n. */
#include "net/loop.h"
#include "base/clock.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>

enum {
    BATCH = 64,
    SIGNALS_MAX = 8,
    TIMERS_FIRST = 64,
    SOON_US = 100 * 1000,       /* a deadline that is farther away may be late by the time a batch takes */
    HABITS = 2,                 /* of a conversation: who asks and who answers */
    SOON_ENOUGH = 16,           /* so often in a row, and the next wait is watched */
    INTERRUPTED_US = 1000,      /* a look that took so long: somebody else wanted the processor, */
    LEFT_ALONE_US = 200 * 1000, /* and gets it */
};

struct signal_entry {
    int sig;
    void (*fired)(int sig, void *arg);
    void *arg;
};

/* How often in a row the next event came soon after one of this source that came alone. */
struct habit {
    struct source *source;
    int soon;
};

struct loop {
    int epfd;
    bool stop;
    int64_t now_us;
    char *scratch;
    struct epoll_event batch[BATCH];
    int batch_len, batch_pos;
    struct timer **heap;
    size_t heap_len, heap_cap;
    struct deferred *deferred_first, **deferred_last;
    size_t deferred_count;
    struct source signal_source;
    sigset_t signal_set;
    struct signal_entry signals[SIGNALS_MAX];
    int signal_count;
    int64_t patience_us, watch_again_us;
    struct habit habits[HABITS], *habit; /* of the source whose event was all there was, or NULL */
};

int loop_new(struct loop **ret, struct error *reterr)
{
    auto_free struct loop *l = calloc(1, sizeof *l);
    auto_free char *scratch = malloc(LOOP_SCRATCH);
    /* here it can be told that there is no memory for timers */
    auto_free struct timer **heap = calloc(TIMERS_FIRST, sizeof(struct timer *));
    if (!l || !scratch || !heap)
        return error_sys(reterr, ENOMEM, "make the event loop");
    l->epfd = epoll_create1(EPOLL_CLOEXEC);
    if (l->epfd < 0)
        return error_sys(reterr, errno, "make the event loop");
    l->scratch = take_ptr(scratch);
    l->heap = take_ptr(heap);
    l->heap_cap = TIMERS_FIRST;
    l->deferred_last = &l->deferred_first;
    l->signal_source.fd = -1;
    (void)sigemptyset(&l->signal_set);
    l->now_us = clock_mono_us();
    *ret = take_ptr(l);
    return 0;
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    if (l->signal_source.fd >= 0)
        (void)close(l->signal_source.fd);
    (void)close(l->epfd);
    free(l->heap);
    free(l->scratch);
    free(l);
}

int loop_add(struct loop *l, struct source *s, int fd, uint32_t events,
             void (*ready)(struct source *s, uint32_t events))
{
    struct epoll_event ev = {.events = events, .data.ptr = s};
    if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, fd, &ev) < 0)
        return -errno;
    s->fd = fd;
    s->events = events;
    s->ready = ready;
    return 0;
}

static void ask(struct loop *l, struct source *s, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = s};
    if (epoll_ctl(l->epfd, EPOLL_CTL_MOD, s->fd, &ev) == 0)
        s->events = events;
}

void loop_mod(struct loop *l, struct source *s, uint32_t events)
{
    if (s->fd >= 0 && s->events != events)
        ask(l, s, events);
}

void loop_again(struct loop *l, struct source *s)
{
    if (s->fd >= 0)
        ask(l, s, s->events);
}

void loop_del(struct loop *l, struct source *s)
{
    if (s->fd < 0)
        return;
    (void)epoll_ctl(l->epfd, EPOLL_CTL_DEL, s->fd, NULL);
    s->fd = -1;
    for (int i = l->batch_pos; i < l->batch_len; i++)
        if (l->batch[i].data.ptr == s)
            l->batch[i].data.ptr = NULL;
    for (int i = 0; i < HABITS; i++)
        if (l->habits[i].source == s) {
            l->habits[i] = (struct habit){0};
            l->habit = NULL;
        }
}

static void heap_put(struct loop *l, size_t i, struct timer *t)
{
    l->heap[i] = t;
    t->slot = i + 1;
}

static void heap_up(struct loop *l, size_t i, struct timer *t)
{
    while (i > 0 && l->heap[(i - 1) / 2]->deadline_us > t->deadline_us) {
        heap_put(l, i, l->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    heap_put(l, i, t);
}

static void heap_down(struct loop *l, size_t i, struct timer *t)
{
    for (size_t child; (child = 2 * i + 1) < l->heap_len; i = child) {
        if (child + 1 < l->heap_len && l->heap[child + 1]->deadline_us < l->heap[child]->deadline_us)
            child++;
        if (t->deadline_us <= l->heap[child]->deadline_us)
            break;
        heap_put(l, i, l->heap[child]);
    }
    heap_put(l, i, t);
}

void loop_timer_stop(struct loop *l, struct timer *t)
{
    if (!t->slot)
        return;
    size_t i = t->slot - 1;
    t->slot = 0;
    struct timer *last = l->heap[--l->heap_len];
    if (last == t)
        return;
    if (i > 0 && l->heap[(i - 1) / 2]->deadline_us > last->deadline_us)
        heap_up(l, i, last);
    else
        heap_down(l, i, last);
}

void loop_timer_start(struct loop *l, struct timer *t, int64_t delay_ms, void (*fired)(struct timer *t))
{
    loop_timer_stop(l, t);
    if (l->heap_len == l->heap_cap) {
        size_t cap = l->heap_cap * 2;
        struct timer **heap = realloc(l->heap, cap * sizeof *heap);
        if (!heap)
            abort(); /* a lost deadline would be worse than a restart: sandboxes survive the latter */
        l->heap = heap;
        l->heap_cap = cap;
    }
    t->fired = fired;
    t->deadline_us = clock_mono_us() + MAX(delay_ms, (int64_t)0) * 1000;
    heap_up(l, l->heap_len++, t);
}

void loop_defer(struct loop *l, struct deferred *d, void (*run)(struct deferred *d))
{
    d->run = run;
    if (d->queued)
        return;
    d->queued = true;
    d->next = NULL;
    *l->deferred_last = d;
    l->deferred_last = &d->next;
    l->deferred_count++;
}

void loop_undefer(struct loop *l, struct deferred *d)
{
    if (!d->queued)
        return;
    for (struct deferred **p = &l->deferred_first; *p; p = &(*p)->next)
        if (*p == d) {
            *p = d->next;
            if (!*p)
                l->deferred_last = p;
            break;
        }
    d->queued = false;
    l->deferred_count--;
}

static void run_deferred(struct loop *l)
{
    /* what is queued from here on belongs to the next batch: a callback that re-queues itself must not
     * starve the descriptors */
    for (size_t budget = l->deferred_count; budget && l->deferred_first; budget--) {
        struct deferred *d = l->deferred_first;
        loop_undefer(l, d);
        d->run(d);
    }
}

static void signals_ready(struct source *s, uint32_t events)
{
    struct loop *l = container_of(s, struct loop, signal_source);
    struct signalfd_siginfo si;
    (void)events;
    while (read(s->fd, &si, sizeof si) == (ssize_t)sizeof si)
        for (int i = 0; i < l->signal_count; i++)
            if (l->signals[i].sig == (int)si.ssi_signo)
                l->signals[i].fired((int)si.ssi_signo, l->signals[i].arg);
}

int loop_signal(struct loop *l, int sig, void (*fired)(int sig, void *arg), void *arg, struct error *reterr)
{
    if (l->signal_count == SIGNALS_MAX)
        return error_set(reterr, ENOSPC, "the loop follows %d signals at most", SIGNALS_MAX);
    (void)sigaddset(&l->signal_set, sig);
    if (sigprocmask(SIG_BLOCK, &l->signal_set, NULL) < 0)
        return error_sys(reterr, errno, "block signal %d", sig);
    int fd = signalfd(l->signal_source.fd, &l->signal_set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return error_sys(reterr, errno, "follow signal %d", sig);
    if (l->signal_source.fd < 0) {
        int r = loop_add(l, &l->signal_source, fd, EPOLLIN, signals_ready);
        if (r < 0) {
            (void)close(fd);
            return error_sys(reterr, -r, "follow signal %d", sig);
        }
    }
    l->signals[l->signal_count++] = (struct signal_entry){sig, fired, arg};
    return 0;
}

int64_t loop_now_us(struct loop *l)
{
    return l->now_us;
}

char *loop_scratch(struct loop *l)
{
    return l->scratch;
}

static int wait_ms(struct loop *l, int timeout_ms)
{
    if (l->deferred_first)
        return 0;
    if (!l->heap_len)
        return timeout_ms;
    int64_t left_us = l->heap[0]->deadline_us - l->now_us;
    if (left_us < SOON_US)
        left_us = l->heap[0]->deadline_us - clock_mono_us();
    int64_t ms = left_us <= 0 ? 0 : MIN((left_us + 999) / 1000, (int64_t)3600000);
    return timeout_ms < 0 ? (int)ms : (int)MIN(ms, (int64_t)timeout_ms);
}

/* Looks again and again; the number of events, 0 when patience or the processor was lost. */
static int watch(struct loop *l, struct habit *h, int64_t began)
{
    int n;
    for (int64_t now = began, before; (n = epoll_wait(l->epfd, l->batch, BATCH, 0)) == 0;) {
        (void)sched_yield(); /* who is to answer may be waiting for this very processor */
        before = now;
        now = clock_mono_us();
        if (now - before >= INTERRUPTED_US)
            l->watch_again_us = now + LEFT_ALONE_US;
        else if (now - began < l->patience_us)
            continue;
        h->soon = 0;
        break;
    }
    return n;
}

/* Who falls asleep is woken, which takes longer than many an answer. So the waits of a conversation that goes
 * to and fro without a pause are spent looking, as long as it is the only one. Who else wants the processor
 * gets it at once, and if he keeps it, for good. */
static int await_events(struct loop *l, int timeout_ms)
{
    struct habit *h = take_ptr(l->habit);
    if (!h || timeout_ms == 0)
        return epoll_wait(l->epfd, l->batch, BATCH, timeout_ms);
    int64_t began = clock_mono_us();
    if (h->soon >= SOON_ENOUGH && began >= l->watch_again_us) {
        int n = watch(l, h, began);
        if (n != 0)
            return n;
    }
    int n = epoll_wait(l->epfd, l->batch, BATCH, timeout_ms);
    if (clock_mono_us() - began > 2 * l->patience_us) /* being woken is part of it */
        h->soon = 0;
    else if (h->soon < SOON_ENOUGH)
        h->soon++;
    return n;
}

static void remember(struct loop *l, struct source *s)
{
    int i = 0;
    while (i < HABITS && l->habits[i].source != s)
        i++;
    if (i == HABITS) {
        memmove(l->habits + 1, l->habits, (HABITS - 1) * sizeof l->habits[0]);
        l->habits[i = 0] = (struct habit){.source = s};
    }
    l->habit = &l->habits[i];
}

void loop_watch(struct loop *l, int64_t patience_us)
{
    l->patience_us = patience_us;
}

int loop_step(struct loop *l, int timeout_ms)
{
    int n = await_events(l, wait_ms(l, timeout_ms));
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    l->now_us = clock_mono_us();
    l->batch_len = n;
    if (n == 1 && l->patience_us)
        remember(l, l->batch[0].data.ptr);
    for (l->batch_pos = 0; l->batch_pos < l->batch_len;) {
        struct epoll_event *ev = &l->batch[l->batch_pos++];
        struct source *s = ev->data.ptr;
        if (s)
            s->ready(s, ev->events);
    }
    l->batch_len = l->batch_pos = 0;
    /* timers set by a callback with no delay wait for the next batch */
    for (size_t budget = l->heap_len; budget && l->heap_len && l->heap[0]->deadline_us <= l->now_us;
         budget--) {
        struct timer *t = l->heap[0];
        loop_timer_stop(l, t);
        t->fired(t);
    }
    run_deferred(l);
    return n;
}

int loop_run(struct loop *l)
{
    l->stop = false;
    while (!l->stop) {
        int r = loop_step(l, -1);
        if (r < 0)
            return r;
    }
    return 0;
}

void loop_stop(struct loop *l)
{
    l->stop = true;
}
