/* SPDX-License-Identifier: Apache-2.0 */
/* trim.c: some time after sandboxes have ended, what the kernel keeps for their disks is given back (see
 * disk_trim.c), in small portions, by the worker that settles disks. */
#include "keeper/keeper_internal.h"

enum { LATER_MS = 5000, SOON_MS = 100, PORTION = 8 };

static void trim_run(struct job *j)
{
    struct trim *t = container_of(j, struct trim, job);
    t->removed = disk_trim(container_of(t, struct keeper, trim)->env.disks, PORTION);
}

static void due(struct timer *timer);

static void trim_done(struct job *j)
{
    struct trim *t = container_of(j, struct trim, job);
    struct keeper *k = container_of(t, struct keeper, trim);
    t->under_way = false;
    if (t->removed == PORTION && !k->stopping)
        loop_timer_start(k->loop, &t->timer, SOON_MS, due);
}

static void due(struct timer *timer)
{
    struct trim *t = container_of(timer, struct trim, timer);
    struct keeper *k = container_of(t, struct keeper, trim);
    t->under_way = true;
    t->job = (struct job){.run = trim_run, .done = trim_done};
    workers_submit(k->settlers, &t->job, false);
}

void trim_later(struct keeper *k)
{
    if (!k->trim.under_way && !loop_timer_running(&k->trim.timer) && !k->stopping)
        loop_timer_start(k->loop, &k->trim.timer, LATER_MS, due);
}
