/* SPDX-License-Identifier: Apache-2.0 */
/* kept.c: which sleeping sandboxes have their disk mounted still (disk_hold.c says what for).
 *
 * A list of boxes, newest first: as many as the settings say, each for the time they say. Who has slept
 * longest goes first. Every box of it is STOPPED; what makes a box BUSY takes it off the list, so that
 * nothing is let go under a job that needs it, and puts it back if the disk is still held when the job is
 * over. */
#include "base/clock.h"
#include "keeper/box_internal.h"

static void expired(struct timer *t);

static void arm(struct keeper *k)
{
    const struct box *oldest = k->kept.oldest;
    int64_t left = oldest ? oldest->kept.until_ms - clock_mono_ms() : 0;
    if (oldest)
        loop_timer_start(k->loop, &k->kept.expiry, MAX(left, (int64_t)0), expired);
    else
        loop_timer_stop(k->loop, &k->kept.expiry);
}

static void expired(struct timer *t)
{
    struct keeper *k = container_of(t, struct keeper, kept.expiry);
    int64_t now = clock_mono_ms();
    while (k->kept.oldest && k->kept.oldest->kept.until_ms <= now)
        box_let_go(k->kept.oldest);
    arm(k);
}

void kept_put(struct box *b)
{
    struct keeper *k = b->keeper;
    struct kept *l = &k->kept;
    if (b->hold.fd < 0)
        return;
    b->kept.listed = true;
    b->kept.until_ms = clock_mono_ms() + k->config->kept_disks_ms;
    b->kept.newer = NULL;
    b->kept.older = l->newest;
    *(l->newest ? &l->newest->kept.newer : &l->oldest) = b;
    l->newest = b;
    l->count++;
    kept_release(k, k->stopping ? 0 : k->config->kept_disks);
    if (!loop_timer_running(&l->expiry))
        arm(k);
}

void kept_take(struct box *b)
{
    struct kept *l = &b->keeper->kept;
    if (!b->kept.listed)
        return;
    *(b->kept.newer ? &b->kept.newer->kept.older : &l->newest) = b->kept.older;
    *(b->kept.older ? &b->kept.older->kept.newer : &l->oldest) = b->kept.newer;
    b->kept.listed = false;
    l->count--;
}

struct clear_job {
    struct job job;
    struct bare_kit kit;
};

static void clear_run(struct job *j)
{
    bare_kit_done(&container_of(j, struct clear_job, job)->kit);
}

static void clear_done(struct job *j)
{
    free(container_of(j, struct clear_job, job));
}

void kept_clear(struct keeper *k, struct bare_kit *kit)
{
    struct clear_job *job = calloc(1, sizeof *job);
    if (!job) {
        bare_kit_done(kit);
        return;
    }
    *job = (struct clear_job){.job = {.run = clear_run, .done = clear_done}, .kit = *kit};
    workers_submit(k->settlers, &job->job, false);
}

void kept_release(struct keeper *k, size_t leave)
{
    while (k->kept.count > leave)
        box_let_go(k->kept.oldest);
}
