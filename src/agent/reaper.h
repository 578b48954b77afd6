/* SPDX-License-Identifier: Apache-2.0 */
/* reaper.h: the only place that waits for processes: children, and orphans that became ours. */
#pragma once

#include "net/loop.h"

struct reaper;

/* A process whose end somebody wants to know; embedded in its owner. */
struct child {
    void (*exited)(struct child *c, int code); /* status, or 128 + signal; once; c is unlinked already */
    pid_t pid;                                 /* 0: not watched */
    int code;                                  /* known before the callback could be made */
    struct child *next;
};

int reaper_new(struct loop *loop, struct reaper **ret, struct error *reterr);
void reaper_free(struct reaper *r);

/* Called before anything is reaped: whoever learns of new children by other descriptors reads these first. */
void reaper_on_wake(struct reaper *r, void (*wake)(void *arg), void *arg);

/* Between expect and the matching unexpect the ends of unknown processes are remembered: a spawned process
 * may be dead before its pid is known here. */
void reaper_expect(struct reaper *r);
void reaper_unexpect(struct reaper *r);

/* The callback comes from the loop, also when the process has ended already. */
void reaper_watch(struct reaper *r, struct child *c, pid_t pid, void (*exited)(struct child *c, int code));
void reaper_forget(struct reaper *r, struct child *c); /* fine when not watched */

/* To be called on SIGCHLD. */
void reaper_run(struct reaper *r);
