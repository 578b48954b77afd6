/* SPDX-License-Identifier: Apache-2.0 */
/* hasten.c: a start in a quiet moment waits for the kernel when its first process is moved into its groups
 * (see cgroup_host_hasten). The wait begins here, on a thread beside the build's, so that most of it is over
 * when the build gets there. Where starts follow each other closely there is nothing to wait for. */
#include "keeper/keeper_internal.h"

static void hasten_run(struct job *j)
{
    struct hasten *h = container_of(j, struct hasten, job);
    cgroup_host_hasten(container_of(h, struct keeper, hasten)->env.cgroups);
}

static void hasten_done(struct job *j)
{
    container_of(j, struct hasten, job)->under_way = false;
}

void hasten_start(struct keeper *k)
{
    struct hasten *h = &k->hasten;
    if (h->under_way || k->jobs > 1)
        return;
    h->under_way = true;
    h->job = (struct job){.run = hasten_run, .done = hasten_done};
    workers_submit(k->builders, &h->job, true);
}
