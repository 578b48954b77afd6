/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c: complete sandboxes of the default image and size, kept ready so that a start costs no more than
 * handing one over.
 *
 * A prepared sandbox has everything but an owner: namespaces, disk, limits, a waiting agent. It is built by
 * the same plan as any other. Those on the other shelf have no disk: whoever wakes brings one. What is taken
 * is built again in the background, after all starts that somebody waits for; and, as long as half of them
 * are left, only when nothing was taken for a moment: whoever has a new sandbox uses it at once, and building
 * another one beside it would take half the processors away. */
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
    struct shelf *shelf;
    struct sandbox_spec spec;
    struct disk_hold spare; /* its disk, if that is one that was used before */
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
    struct shelf *shelf = job->shelf;
    k->jobs--;
    shelf->building--;
    if (job->sb && (k->pool.stopped || shelf->count == KEEPER_POOL_MAX)) {
        discard(k, job->sb);
    } else if (job->sb) {
        shelf->ready[shelf->count++] = job->sb;
        log_debug("prepared sandbox in slot %u (%zu ready)", job->spec.slot, shelf->count);
    } else {
        keeper_slot_release(k, job->spec.slot);
        shelf->impossible = job->error.code == EOPNOTSUPP && job->spec.bare;
        if (!shelf->impossible) {
            log_warn("cannot prepare a sandbox: %s", job->error.msg);
            pool_failed(k);
        }
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

/* false: there is no room for more. */
static bool shelf_refill(struct keeper *k, enum pool_kind kind)
{
    struct shelf *shelf = &k->pool.shelves[kind];
    size_t wanted = shelf->impossible ? 0 : kind == POOL_BARE ? k->config->bare : k->config->pool;
    /* no more than the builder threads: starts that somebody waits for go first */
    while (shelf->building < BUILDING_MAX && shelf->count + shelf->building < wanted &&
           !pool_can_wait(k, shelf->count, wanted)) {
        struct pool_job *job = calloc(1, sizeof *job);
        if (!job || keeper_slot_take(k, &job->spec.slot, NULL) < 0) {
            free(job);
            return false;
        }
        job->job = (struct job){.run = job_run, .done = job_done};
        job->keeper = k;
        job->shelf = shelf;
        job->spec.bare = kind == POOL_BARE;
        job->spec.fresh_disk = kind == POOL_WHOLE;
        job->spec.limits = k->config->limits;
        job->spare.fd = -1;
        job->spec.held_disk = &job->spare;
        if (kind == POOL_WHOLE)
            job->spec.disk = spare_disks_take(k, &job->spec.limits, &job->spare);
        job->spec.network = k->env.network != NULL;
        (void)snprintf(job->spec.image, sizeof job->spec.image, "%s", k->config->image);
        shelf->building++;
        k->jobs++;
        workers_submit(k->builders, &job->job, false);
    }
    return true;
}

static void shelf_clear(struct keeper *k, enum pool_kind kind)
{
    struct shelf *shelf = &k->pool.shelves[kind];
    while (shelf->count)
        discard(k, shelf->ready[--shelf->count]);
}

void pool_refill(struct keeper *k)
{
    struct pool *p = &k->pool;
    if (p->stopped || clock_mono_ms() < p->retry_ms || keeper_admit(k, NULL) < 0 ||
        !shelf_refill(k, POOL_WHOLE))
        return;
    if (keeper_slots_scarce(k))
        shelf_clear(k, POOL_BARE); /* it may be one that the next sandbox cannot use */
    else if (!shelf_refill(k, POOL_BARE))
        return;
    berths_refill(k);
}

struct sandbox *pool_take(struct keeper *k, enum pool_kind kind, const char *image,
                          const struct limits *limits, bool network)
{
    struct shelf *shelf = &k->pool.shelves[kind];
    struct sandbox *sb = NULL;
    if (strcmp(image, k->config->image) != 0 || memcmp(limits, &k->config->limits, sizeof *limits) != 0 ||
        network != (k->env.network != NULL))
        return NULL;
    while (shelf->count && !sb) {
        sb = shelf->ready[--shelf->count];
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
    shelf_clear(k, POOL_WHOLE);
    shelf_clear(k, POOL_BARE);
    spare_disks_release(k);
    berths_stop(k);
}
