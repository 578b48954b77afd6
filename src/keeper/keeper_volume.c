/* SPDX-License-Identifier: Apache-2.0 */
/* keeper_volume.c: the gateway's requests about volumes: creating and removing on a worker, looking at once.
 */
#include "base/log.h"
#include "keeper/keeper_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { VOLUME_JOBS_MAX = 64 };

struct volume_job {
    struct job job;
    struct keeper *keeper;
    struct keeper_request request;
    struct volume volume;
    struct error error;
};

struct listing {
    struct keeper *keeper;
    uint64_t seq;
};

static void put_volume(struct keeper_reply *r, const struct volume *v)
{
    memcpy(r->volume.name, v->name, sizeof r->volume.name);
    r->volume.bytes = v->bytes;
    r->volume.used_bytes = v->used_bytes;
    r->volume.created_ms = v->created_ms;
}

static void reply(struct keeper *k, uint64_t seq, const struct volume *v, const struct error *e)
{
    struct keeper_reply r = {.type = KEEPER_REPLY, .seq = seq};
    if (v)
        put_volume(&r, v);
    if (e && e->code) {
        r.error = e->code;
        (void)snprintf(r.message, sizeof r.message, "%.*s", (int)sizeof r.message - 1, e->msg);
    }
    link_reply(k, &r, -1);
}

static void item(const struct volume *v, void *arg)
{
    const struct listing *l = arg;
    struct keeper_reply r = {.type = KEEPER_ITEM, .seq = l->seq};
    put_volume(&r, v);
    link_reply(l->keeper, &r, -1);
}

static void list(struct keeper *k, const struct keeper_request *q)
{
    struct listing l = {k, q->seq};
    struct error e = {0};
    struct volume v;
    const char *name = q->volumes[0].name;
    if (!name[0]) {
        int r = volume_list(k->env.volumes, item, &l);
        if (r < 0)
            (void)error_sys(&e, -r, "list the volumes");
    } else if (volume_stat(k->env.volumes, name, &v, &e) == 0) {
        item(&v, &l);
    }
    reply(k, q->seq, NULL, &e);
}

static void job_run(struct job *j)
{
    struct volume_job *job = container_of(j, struct volume_job, job);
    struct volume_store *s = job->keeper->env.volumes;
    const char *name = job->request.volumes[0].name;
    if (job->request.type == KEEPER_VOLUME_CREATE)
        (void)volume_create(s, name, job->request.volume_bytes, &job->volume, &job->error);
    else
        (void)volume_remove(s, name, &job->error);
}

static void job_done(struct job *j)
{
    struct volume_job *job = container_of(j, struct volume_job, job);
    struct keeper *k = job->keeper;
    bool made = job->request.type == KEEPER_VOLUME_CREATE && !job->error.code;
    if (job->error.code && job->error.code != EEXIST && job->error.code != ENODEV && job->error.code != EBUSY)
        log_error("volume %s: %s", job->request.volumes[0].name, job->error.msg);
    k->jobs--;
    k->volume_jobs--;
    reply(k, job->request.seq, made ? &job->volume : NULL, &job->error);
    free(job);
    keeper_idle(k);
}

void volume_request(struct keeper *k, const struct keeper_request *q)
{
    struct error e = {0};
    if (q->type == KEEPER_VOLUME_LIST) {
        list(k, q);
        return;
    }
    struct volume_job *job = NULL;
    if (k->volume_jobs >= VOLUME_JOBS_MAX)
        (void)error_set(&e, EAGAIN, "too many changes of volumes at once");
    else if (q->type == KEEPER_VOLUME_REMOVE || keeper_admit(k, &e) == 0)
        job = calloc(1, sizeof *job);
    if (!job) {
        if (!e.code)
            (void)error_sys(&e, ENOMEM, "change a volume");
        reply(k, q->seq, NULL, &e);
        return;
    }
    *job = (struct volume_job){.job = {.run = job_run, .done = job_done}, .keeper = k, .request = *q};
    k->jobs++;
    k->volume_jobs++;
    workers_submit(k->enders, &job->job, false);
}
