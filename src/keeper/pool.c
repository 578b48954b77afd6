/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c: complete sandboxes of the default image and size, kept ready so that a start costs no more than
 * handing one over.
 *
 * A prepared sandbox has everything but an owner: namespaces, disk, limits, a waiting agent. It is built by
 * the same plan as any other. What is taken is built again in the background, after all starts that somebody
 * waits for; and, as long as half of them are left, only when nothing was taken for a moment: whoever has a
 * new sandbox uses it at once, and building another one beside it would take half the processors away. */
#include "base/clock.h"
#include "base/log.h"
#include "keeper/keeper_internal.h"
#include "keeper/process.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { RETRY_MS = 2000, BUILDING_MAX = 4, PAUSE_MS = 10 };

struct pool_job {
    struct job job;
    struct keeper *keeper;
    struct sandbox_spec spec;
    struct sandbox *sb;
    struct error error;
};

static void discard_done(void *arg)
{
    (void)arg;
}

static void discard(struct keeper *k, struct sandbox *sb)
{
    keeper_end_sandbox(k, sb, 0, sb->spec.disk, NULL, discard_done, NULL);
}

static void retry_fired(struct timer *t)
{
    pool_refill(container_of(t, struct keeper, pool.retry));
}

void pool_failed(struct keeper *k)
{
    k->pool.retry_ms = clock_mono_ms() + RETRY_MS;
    loop_timer_start(k->loop, &k->pool.retry, RETRY_MS, retry_fired);
}

static void job_run(struct job *j)
{
    struct pool_job *job = container_of(j, struct pool_job, job);
    (void)sandbox_start(&job->keeper->env, &job->spec, &job->sb, &job->error);
}

static void job_done(struct job *j)
{
    struct pool_job *job = container_of(j, struct pool_job, job);
    struct keeper *k = job->keeper;
    struct pool *p = &k->pool;
    k->jobs--;
    p->building--;
    if (job->sb && (p->stopped || p->ready_count == KEEPER_POOL_MAX)) {
        discard(k, job->sb);
    } else if (job->sb) {
        p->ready[p->ready_count++] = job->sb;
        log_debug("prepared sandbox in slot %u (%zu ready)", job->spec.slot, p->ready_count);
    } else {
        log_warn("cannot prepare a sandbox: %s", job->error.msg);
        keeper_slot_release(k, job->spec.slot);
        pool_failed(k);
    }
    free(job);
    keeper_idle(k);
}

static void pause_over(struct timer *t)
{
    pool_refill(container_of(t, struct keeper, pool.pause));
}

void pool_used(struct keeper *k)
{
    k->pool.pause_ms = clock_mono_ms() + PAUSE_MS;
}

bool pool_can_wait(struct keeper *k, size_t left, size_t wanted)
{
    struct pool *p = &k->pool;
    int64_t wait_ms = p->pause_ms - clock_mono_ms();
    if (wait_ms <= 0 || 2 * left < wanted)
        return false;
    loop_timer_start(k->loop, &p->pause, wait_ms, pause_over);
    return true;
}

void pool_refill(struct keeper *k)
{
    struct pool *p = &k->pool;
    if (p->stopped || clock_mono_ms() < p->retry_ms || keeper_admit(k, NULL) < 0)
        return;
    /* no more than the builder threads: starts that somebody waits for go first */
    while (p->building < BUILDING_MAX && p->ready_count + p->building < k->config->pool &&
           !pool_can_wait(k, p->ready_count, k->config->pool)) {
        struct pool_job *job = calloc(1, sizeof *job);
        if (!job || keeper_slot_take(k, &job->spec.slot, NULL) < 0) {
            free(job);
            return;
        }
        job->job = (struct job){.run = job_run, .done = job_done};
        job->keeper = k;
        job->spec.fresh_disk = true;
        job->spec.disk = k->next_disk++;
        job->spec.limits = k->config->limits;
        job->spec.network = k->env.network != NULL;
        (void)snprintf(job->spec.image, sizeof job->spec.image, "%s", k->config->image);
        p->building++;
        k->jobs++;
        workers_submit(k->builders, &job->job, false);
    }
    berths_refill(k);
}

struct sandbox *pool_take(struct keeper *k, const char *image, const struct limits *limits, bool network)
{
    struct pool *p = &k->pool;
    struct sandbox *sb = NULL;
    if (strcmp(image, k->config->image) != 0 || memcmp(limits, &k->config->limits, sizeof *limits) != 0 ||
        network != (k->env.network != NULL))
        return NULL;
    while (p->ready_count && !sb) {
        sb = p->ready[--p->ready_count];
        if (!process_alive(sb->pidfd)) {
            discard(k, sb);
            sb = NULL;
        }
    }
    pool_used(k);
    pool_refill(k);
    return sb;
}

void pool_stop(struct keeper *k)
{
    struct pool *p = &k->pool;
    p->stopped = true;
    loop_timer_stop(k->loop, &p->retry);
    loop_timer_stop(k->loop, &p->pause);
    while (p->ready_count)
        discard(k, p->ready[--p->ready_count]);
    berths_stop(k);
}
