/* SPDX-License-Identifier: Apache-2.0 */
/* test_worker.c: jobs run off the loop, answer on it, urgent ones first. */
#include "net/worker.h"
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

enum { JOBS = 200 };

struct numbered {
    struct job job;
    int number;
    pthread_t thread;
};

static struct {
    struct loop *loop;
    pthread_mutex_t gate;
    int order[JOBS];
    int run_count;
    int done_count;
    bool done_on_loop_thread;
    pthread_t loop_thread;
} t;

static void job_run(struct job *j)
{
    struct numbered *n = container_of(j, struct numbered, job);
    n->thread = pthread_self();
    (void)pthread_mutex_lock(&t.gate);
    t.order[t.run_count++] = n->number;
    (void)pthread_mutex_unlock(&t.gate);
}

static void job_done(struct job *j)
{
    (void)j;
    t.done_on_loop_thread &= pthread_equal(pthread_self(), t.loop_thread);
    if (++t.done_count == JOBS)
        loop_stop(t.loop);
}

static void reset(void)
{
    struct error e;
    t.run_count = t.done_count = 0;
    t.done_on_loop_thread = true;
    t.loop_thread = pthread_self();
    (void)pthread_mutex_init(&t.gate, NULL);
    CHECK(loop_new(&t.loop, &e) == 0);
}

TEST(worker_runs_every_job_and_answers_on_the_loop)
{
    struct workers *w;
    struct error e;
    static struct numbered jobs[JOBS];
    reset();
    REQUIRE(workers_new(t.loop, 3, NULL, NULL, &w, &e) == 0);
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = (struct numbered){.job = {.run = job_run, .done = job_done}, .number = i};
        workers_submit(w, &jobs[i].job, false);
    }
    CHECK_INT(loop_run(t.loop), 0);
    CHECK_INT(t.run_count, JOBS);
    CHECK(t.done_on_loop_thread);
    for (int i = 0; i < JOBS; i++)
        CHECK(!pthread_equal(jobs[i].thread, t.loop_thread));
    workers_free(w);
    loop_free(t.loop);
}

TEST(worker_takes_urgent_jobs_first)
{
    struct workers *w;
    struct error e;
    struct numbered first = {.job = {.run = job_run, .done = job_done}, .number = 0};
    struct numbered slow = {.job = {.run = job_run, .done = job_done}, .number = 1};
    struct numbered urgent = {.job = {.run = job_run, .done = job_done}, .number = 2};
    reset();
    REQUIRE(workers_new(t.loop, 1, NULL, NULL, &w, &e) == 0);
    (void)pthread_mutex_lock(&t.gate); /* the only thread gets stuck in the first job */
    workers_submit(w, &first.job, false);
    while (workers_waiting(w))
        ;
    workers_submit(w, &slow.job, false);
    workers_submit(w, &urgent.job, true);
    (void)pthread_mutex_unlock(&t.gate);
    workers_free(w); /* finishes and delivers all */
    CHECK_INT(t.done_count, 3);
    CHECK_INT(t.order[1], 2);
    CHECK_INT(t.order[2], 1);
    loop_free(t.loop);
}

static int refuse(void *arg, struct error *reterr)
{
    return error_set(reterr, EPERM, "%s", (const char *)arg);
}

TEST(worker_start_failure_is_reported)
{
    struct workers *w;
    struct error e = {0};
    reset();
    CHECK_INT(workers_new(t.loop, 2, refuse, "not today", &w, &e), -EPERM);
    CHECK_STREQ(e.msg, "not today");
    loop_free(t.loop);
}
