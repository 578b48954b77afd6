/* SPDX-License-Identifier: Apache-2.0 */
/* berths.c: berths that wait for a sandbox: for one that wakes, or has another image or size than those the
 * pool prepares.
 *
 * What takes long in such a start is the kernel's wait before a process is moved into v1 groups, ten
 * milliseconds and more when nothing else was moved lately. A berth has it behind it. */
#include "base/clock.h"
#include "base/log.h"
#include "keeper/berth.h"
#include "keeper/keeper_internal.h"
#include "keeper/process.h"

enum { BUILDING_MAX = 2 };

struct berth_job {
    struct job job;
    struct keeper *keeper;
    struct berth_spec spec;
    struct berth *berth;
    struct error error;
};

static const struct network_terms usual;

static void remove_run(struct job *j)
{
    berth_remove(container_of(j, struct berth_job, job)->berth);
}

static void remove_done(struct job *j)
{
    struct berth_job *job = container_of(j, struct berth_job, job);
    struct keeper *k = job->keeper;
    k->jobs--;
    keeper_slot_release(k, job->spec.slot);
    free(job);
    keeper_idle(k);
}

static void discard(struct berth_job *job)
{
    job->job = (struct job){.run = remove_run, .done = remove_done};
    job->keeper->jobs++;
    workers_submit(job->keeper->enders, &job->job, false);
}

static void make_run(struct job *j)
{
    struct berth_job *job = container_of(j, struct berth_job, job);
    (void)berth_make(&job->keeper->env, &job->spec, &job->berth, &job->error);
}

static void make_done(struct job *j)
{
    struct berth_job *job = container_of(j, struct berth_job, job);
    struct keeper *k = job->keeper;
    struct berths *l = &k->berths;
    k->jobs--;
    l->building--;
    if (job->berth && !k->pool.stopped) {
        l->waiting[l->count++] = job;
    } else if (job->berth) {
        discard(job);
    } else {
        log_warn("cannot prepare for a wake: %s", job->error.msg);
        keeper_slot_release(k, job->spec.slot);
        free(job);
        pool_failed(k);
    }
    keeper_idle(k);
}

void berths_refill(struct keeper *k)
{
    struct berths *l = &k->berths;
    if (keeper_slots_scarce(k)) {
        berths_stop(k); /* it may be one that the next sandbox cannot use */
        return;
    }
    while (l->building < BUILDING_MAX && l->count + l->building < k->config->berths &&
           !pool_can_wait(k, l->count, k->config->berths)) {
        struct berth_job *job = calloc(1, sizeof *job);
        if (!job || keeper_slot_take(k, &job->spec.slot, NULL) < 0) {
            free(job);
            return;
        }
        job->job = (struct job){.run = make_run, .done = make_done};
        job->keeper = k;
        job->spec.limits = k->config->limits;
        job->spec.low = true;
        job->spec.terms = k->env.network ? &usual : NULL;
        l->building++;
        k->jobs++;
        workers_submit(k->builders, &job->job, false);
    }
}

struct berth *berths_take(struct keeper *k, bool network, const struct network_terms *terms)
{
    struct berths *l = &k->berths;
    struct berth *b = NULL;
    if (network != (k->env.network != NULL) || (network && !network_terms_plain(terms)))
        return NULL;
    while (l->count && !b) {
        struct berth_job *job = l->waiting[--l->count];
        if (process_alive(job->berth->pidfd)) {
            b = job->berth;
            free(job);
            pool_used(k);
        } else {
            discard(job);
        }
    }
    return b;
}

void berths_stop(struct keeper *k)
{
    while (k->berths.count)
        discard(k->berths.waiting[--k->berths.count]);
}
