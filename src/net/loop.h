/* SPDX-License-Identifier: Apache-2.0 */
/* loop.h: a small epoll loop: descriptors, timers, deferred work, signals, children.
 *
 * Sources and timers are embedded in their owners (container_of finds the owner). Everything may be
 * removed from inside any callback; an owner may be freed right after loop_del/loop_timer_stop, because the
 * loop forgets pending events of a removed source at once. Not thread-safe: one loop, one thread. */
#pragma once

#include "base/error.h"

#include <sys/epoll.h>

struct loop;

struct source {
    void (*ready)(struct source *s, uint32_t events); /* EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR, EPOLLRDHUP */
    int fd;                                           /* -1: not added */
    uint32_t events;                                  /* what is asked for now */
};

struct timer {
    void (*fired)(struct timer *t);
    int64_t deadline_us; /* CLOCK_MONOTONIC */
    size_t slot;         /* 1 + position in the heap, 0 = stopped */
};

/* Work to be done after the current batch of events, once; may be re-queued by its own callback. */
struct deferred {
    void (*run)(struct deferred *d);
    struct deferred *next;
    bool queued;
};

int loop_new(struct loop **ret, struct error *reterr);
void loop_free(struct loop *l);

/* The descriptor stays the caller's: loop_del does not close it, and it must be called before close. */
int loop_add(struct loop *l, struct source *s, int fd, uint32_t events,
             void (*ready)(struct source *s, uint32_t events));
void loop_mod(struct loop *l, struct source *s, uint32_t events); /* no system call when nothing changes */
void loop_del(struct loop *l, struct source *s);                  /* fine when not added */
/* For a source with EPOLLET, which is told of what comes and not of what is still there: tells what is there
 * once more. Without EPOLLET the kernel looks at every reported descriptor again before it waits, to find in
 * nearly all cases that it has been emptied. So whoever reads a descriptor in pieces asks for EPOLLET and
 * EPOLLRDHUP, and calls this after a read that filled its buffer or met EPOLLRDHUP, EPOLLHUP or EPOLLERR
 * (an end behind the bytes), and when it stops writing before the descriptor is full. Asking for other events
 * by loop_mod does the same. */
void loop_again(struct loop *l, struct source *s);

void loop_timer_start(struct loop *l, struct timer *t, int64_t delay_ms, void (*fired)(struct timer *t));
void loop_timer_stop(struct loop *l, struct timer *t); /* fine when stopped */
static inline bool loop_timer_running(const struct timer *t)
{
    return t->slot != 0;
}

void loop_defer(struct loop *l, struct deferred *d, void (*run)(struct deferred *d)); /* fine when queued */
void loop_undefer(struct loop *l, struct deferred *d);

/* Signals as events: blocks sig in the calling thread and calls back from the loop. */
int loop_signal(struct loop *l, int sig, void (*fired)(int sig, void *arg), void *arg, struct error *reterr);

int64_t loop_now_us(struct loop *l); /* time of the current batch */

/* Memory for whoever reads from a descriptor in its `ready`: his until that returns, then the next one's. So
 * connections that wait own no buffers, and what was just received is warm in the cache. */
enum { LOOP_SCRATCH = 64 * 1024 };
char *loop_scratch(struct loop *l);

/* From now on short waits of a lonely conversation are not slept: see await_events. For a process that stands
 * between two others and has a processor's time to give; 0, as at first: never. */
void loop_watch(struct loop *l, int64_t patience_us);

/* Runs until loop_stop. 0, or -errno when epoll itself fails. */
int loop_run(struct loop *l);
/* One batch, waiting at most timeout_ms (-1: until something happens); returns the number of events. For
 * tests. */
int loop_step(struct loop *l, int timeout_ms);
void loop_stop(struct loop *l);
