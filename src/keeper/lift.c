/* SPDX-License-Identifier: Apache-2.0 */
/* lift.c: an agent that waited in the workload's groups (berth.c) moves to its own.
 *
 * Everything that its spawner starts is in the workload's groups because the spawner was born there, so
 * nobody has to wait until the kernel has moved it. Now the agent itself has to leave: on a worker, while the
 * sandbox is in use already. Until then, some milliseconds, it shares the workload's limits; what it has
 * allocated by then, some hundred KiB, is counted there for good. */
#include "base/failpoint.h"
#include "base/log.h"
#include "keeper/box_internal.h"

struct lift_job {
    struct job job;
    struct box *box;
    struct sandbox *sb; /* stays while the job is under way */
    struct error error;
};

static void lift_run(struct job *j)
{
    struct lift_job *job = container_of(j, struct lift_job, job);
    (void)failpoint_hit("lift", 0, NULL);
    (void)cgroup_lift(job->sb->cgroup, job->sb->pid, &job->error);
}

static void lift_done(struct job *j)
{
    struct lift_job *job = container_of(j, struct lift_job, job);
    struct box *b = job->box;
    struct keeper *k = b->keeper;
    if (job->error.code && !b->end.wanted)
        log_warn("sandbox %s: %s", b->row.id, job->error.msg);
    k->jobs--;
    b->lifting = false;
    free(job);
    box_end_if_wanted(b);
    keeper_idle(k);
}

void box_lift(struct box *b)
{
    if (!b->sb->low)
        return;
    b->sb->low = false; /* a spawner that asks from now on may be of either kind, and is moved */
    struct lift_job *job = calloc(1, sizeof *job);
    if (!job) { /* it is done when the sandbox is adopted */
        log_warn("sandbox %s: the agent stays in the workload's groups", b->row.id);
        return;
    }
    *job = (struct lift_job){.job = {.run = lift_run, .done = lift_done}, .box = b, .sb = b->sb};
    b->lifting = true;
    b->keeper->jobs++;
    workers_submit(b->keeper->builders, &job->job, false);
}
