/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h: work of unknown length off the loop: a few threads, a queue, answers through the loop. */
#pragma once

#include "net/loop.h"

struct workers;

struct job {
    void (*run)(struct job *j);  /* on a worker thread */
    void (*done)(struct job *j); /* later, on the loop's thread; may free the job */
    struct job *next;
};

/* start(arg) (may be NULL) runs once on every new thread; a failure there is a failure of workers_new. */
int workers_new(struct loop *loop, unsigned threads, int (*start)(void *arg, struct error *reterr), void *arg,
                struct workers **ret, struct error *reterr);
/* urgent jobs go before all that are not. The caller bounds how many it submits. */
void workers_submit(struct workers *w, struct job *j, bool urgent);
size_t workers_waiting(struct workers *w); /* jobs not begun */
/* Waits until nothing is queued or running and every done has been called, including those of jobs that done
 * submits. */
void workers_finish(struct workers *w);
/* Finishes what has been submitted (done is called for all), then joins the threads. */
void workers_free(struct workers *w);
