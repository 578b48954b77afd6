/* SPDX-License-Identifier: Apache-2.0 */
/* settle.c: ends the youth of the disks of sandboxes that live longer than a moment (see disk.h).
 *
 * The work waits for the real disk, so a worker of its own does it, with a descriptor of its own for the file
 * system: a sandbox that ends meanwhile is unmounted a little later. A keeper that dies in those seconds
 * leaves the disk young; it is flushed when its sandbox goes to sleep. */
#include "base/log.h"
#include "keeper/disk.h"
#include "keeper/keeper_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum { YOUTH_MS = 2000 };

struct settle_job {
    struct job job;
    struct keeper *keeper;
    uint64_t disk;
    unsigned loop_index;
    int fd;
    struct error error;
};

static void settle_run(struct job *j)
{
    struct settle_job *job = container_of(j, struct settle_job, job);
    (void)disk_settle(job->keeper->env.disks, job->disk, job->loop_index, job->fd, &job->error);
    close_fd(&job->fd);
}

static void settle_done(struct job *j)
{
    struct settle_job *job = container_of(j, struct settle_job, job);
    if (job->error.code)
        log_warn("a disk stays without barriers: %s", job->error.msg);
    free(job);
}

static void youth_over(struct timer *t)
{
    struct settle *s = container_of(t, struct settle, timer);
    struct settle_job *job = calloc(1, sizeof *job);
    int fd = fcntl(s->sb->hold.fd, F_DUPFD_CLOEXEC, 0);
    if (!job || fd < 0) {
        log_warn("a disk stays without barriers: %s", strerror(job ? errno : ENOMEM));
        free(job);
        close_fd(&fd);
        return;
    }
    *job = (struct settle_job){.job = {.run = settle_run, .done = settle_done},
                               .keeper = s->keeper,
                               .disk = s->sb->spec.disk,
                               .loop_index = s->sb->hold.index,
                               .fd = fd};
    s->sb->young = false;
    workers_submit(s->keeper->settlers, &job->job, false);
}

void settle_later(struct keeper *k, struct settle *s, struct sandbox *sb)
{
    s->keeper = k;
    s->sb = sb;
    sb->young = sb->spec.fresh_disk && sb->hold.fd >= 0;
    if (sb->young)
        loop_timer_start(k->loop, &s->timer, YOUTH_MS, youth_over);
}

void settle_cancel(struct settle *s)
{
    if (s->keeper)
        loop_timer_stop(s->keeper->loop, &s->timer);
}
