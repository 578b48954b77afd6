/* SPDX-License-Identifier: Apache-2.0 */
/* keeper_image.c: the gateway's requests about images.
 *
 * Theory of operation
 * Each request is a job on a thread of its own pool. Four of them may be long (an import, an export, a save:
 * each has an image worker), the others find a thread free. What must not happen while a sandbox begins to
 * use an image happens on the loop: an image is in use when a box names it, and boxes live here; so looking
 * whether one does, and taking the image out of sight, are one step that nothing comes between. */
#include "base/clock.h"
#include "base/log.h"
#include "keeper/imager_run.h"
#include "keeper/keeper_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { PROGRESS_MS = 250, SHORT_THREADS = 2, SHORT_MAX = 256, PRUNE_MAX = 256 };

static const uint64_t entries_max = 2 << 20;

struct image_job {
    struct job job;
    struct keeper *keeper;
    struct keeper_request request;
    unsigned life; /* of the gateway that asked */
    /* long */
    struct imager_run run;
    struct timer progress;
    uint64_t told;
    void (*done)(void *arg); /* the box, after a save; may be NULL */
    void *arg;
    /* short */
    char (*gone)[IMAGE_NAME_MAX + 1];
    size_t gone_count;
    uint32_t layers;
    uint64_t bytes;
    int list_fd;
    enum keeper_image_why why;
    struct error error;
    struct image_job *next, **prev; /* in the list of long ones */
};

static pthread_mutex_t run_lock = PTHREAD_MUTEX_INITIALIZER; /* of the pidfds of all workers */

int keeper_images_start(struct keeper *k, int (*start)(void *arg, struct error *reterr), struct error *reterr)
{
    return workers_new(k->loop, IMAGE_OPERATIONS_MAX + SHORT_THREADS, start, &k->env.host, &k->imagers,
                       reterr);
}

void keeper_images_stop(struct keeper *k)
{
    for (struct image_job *j = k->image_jobs; j; j = j->next) {
        (void)pthread_mutex_lock(&run_lock);
        if (j->run.pidfd >= 0)
            (void)syscall(SYS_pidfd_send_signal, j->run.pidfd, SIGKILL, NULL, 0);
        (void)pthread_mutex_unlock(&run_lock);
    }
}

static void reply(struct keeper *k, const struct keeper_request *q, const struct keeper_image_tell *tell,
                  const struct error *e, int fd)
{
    struct keeper_reply r = {.type = KEEPER_REPLY, .seq = q->seq};
    memcpy(r.id, q->id, sizeof r.id);
    if (tell)
        r.tell = *tell;
    if (e && e->code) {
        r.error = e->code;
        (void)snprintf(r.message, sizeof r.message, "%.*s", (int)sizeof r.message - 1, e->msg);
    }
    link_reply(k, &r, fd);
}

static void refuse(struct keeper *k, const struct keeper_request *q, enum keeper_image_why why, int code,
                   const char *text)
{
    struct keeper_image_tell tell = {.why = why};
    struct error e;
    (void)error_set(&e, code, "%s", text);
    reply(k, q, &tell, &e, -1);
}

static void tell_image(struct keeper *k, uint64_t seq, uint32_t type, const char *id)
{
    struct keeper_reply r = {.type = type, .seq = seq};
    (void)snprintf(r.tell.image, sizeof r.tell.image, "%s", id);
    link_reply(k, &r, -1);
}

/* A gateway that was started meanwhile asked for nothing, and would take an answer for a lie. */
static bool asker_lives(const struct image_job *j)
{
    return j->life == j->keeper->gateway_life;
}

/* ---- long operations */

static void progress_fired(struct timer *t)
{
    struct image_job *j = container_of(t, struct image_job, progress);
    struct keeper_reply r = {.type = KEEPER_IMAGE_PROGRESS, .seq = j->request.seq};
    r.tell.bytes = atomic_load(&j->run.bytes);
    r.tell.layer = atomic_load(&j->run.layer);
    r.tell.layers = atomic_load(&j->run.layers);
    if (r.tell.bytes + r.tell.layer != j->told && asker_lives(j))
        link_reply(j->keeper, &r, -1);
    j->told = r.tell.bytes + r.tell.layer;
    loop_timer_start(j->keeper->loop, t, PROGRESS_MS, progress_fired);
}

static int open_doc(struct image_job *j, struct error *reterr)
{
    char path[IMAGE_NAME_MAX + 16];
    const struct keeper_env *env = &j->keeper->env;
    if (j->run.boot.operation == IMAGER_IMPORT)
        return 0;
    (void)snprintf(path, sizeof path, "%s/config.json", j->run.image);
    int dir = image_exists(env->images, j->run.image) ? image_store_images_fd(env->images) : env->images_fd;
    j->run.doc_fd = openat(dir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (j->run.doc_fd >= 0)
        return 0;
    j->why = IMAGE_WHY_NONE;
    return error_set(reterr, ENOENT, "the image has no config.json");
}

static void long_run(struct job *job)
{
    struct image_job *j = container_of(job, struct image_job, job);
    int r = open_doc(j, &j->error);
    if (r == 0) {
        r = imager_run(&j->run, &j->error);
        j->why = j->run.why;
    }
    close_fd(&j->run.stream_fd); /* whoever is at the other end hears it at once */
    close_fd(&j->run.doc_fd);
    close_fd(&j->run.changes_fd);
    /* of an archive that was no good nothing stays; after other failures its good layers wait for the next
     * try */
    if (r < 0 && (j->why == IMAGE_WHY_INVALID || j->why == IMAGE_WHY_TOO_LARGE))
        (void)image_store_collect(j->keeper->env.images, &j->layers, &j->bytes, NULL);
}

static void long_done(struct job *job)
{
    struct image_job *j = container_of(job, struct image_job, job);
    struct keeper *k = j->keeper;
    struct keeper_image_tell tell = {.why = j->error.code ? j->why : 0, .bytes = atomic_load(&j->run.bytes)};
    loop_timer_stop(k->loop, &j->progress);
    *j->prev = j->next;
    if (j->next)
        j->next->prev = j->prev;
    if (j->error.code)
        log_info("image operation: %s", j->error.msg);
    for (size_t i = 0; !j->error.code && asker_lives(j) && i < j->run.made_count; i++)
        tell_image(k, j->request.seq, KEEPER_IMAGE_ITEM, j->run.made[i]);
    if (!j->error.code && j->run.made_count)
        (void)snprintf(tell.image, sizeof tell.image, "%s", j->run.made[0]);
    if (asker_lives(j))
        reply(k, &j->request, &tell, &j->error, -1);
    if (j->done)
        j->done(j->arg);
    bool leaves_files = j->layers > 0;
    keeper_slot_release(k, j->run.slot);
    k->image_long--;
    k->jobs--;
    free(j);
    if (leaves_files)
        keeper_images_clean(k);
    keeper_idle(k);
}

/* A stream with the worker at one end; the other goes to the gateway. */
static int make_stream(struct image_job *j, struct error *reterr)
{
    int pair[2];
    struct keeper_reply r = {.type = KEEPER_IMAGE_STREAM, .seq = j->request.seq};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return error_sys(reterr, errno, "make a stream for the image");
    j->run.stream_fd = pair[0];
    if (fcntl(pair[1], F_SETFL, O_NONBLOCK) < 0) {
        (void)close(pair[1]);
        return error_sys(reterr, errno, "make a stream for the image");
    }
    link_reply(j->keeper, &r, pair[1]);
    (void)close(pair[1]);
    return 0;
}

/* Takes *fd when it succeeds. */
static int long_submit(struct keeper *k, const struct keeper_request *q, int *fd, const char *image,
                       uint64_t disk, bool disk_shared, void (*done)(void *arg), void *arg,
                       enum keeper_image_why *ret_why, struct error *reterr)
{
    *ret_why = IMAGE_WHY_OTHER;
    if (k->image_long == IMAGE_OPERATIONS_MAX) {
        *ret_why = IMAGE_WHY_BUSY;
        return error_set(reterr, EAGAIN, "%d operations on images run already", IMAGE_OPERATIONS_MAX);
    }
    struct image_job *j = calloc(1, sizeof *j);
    if (!j)
        return error_sys(reterr, ENOMEM, "begin an image operation");
    *j = (struct image_job){.job = {.run = long_run, .done = long_done},
                            .keeper = k,
                            .request = *q,
                            .life = k->gateway_life,
                            .list_fd = -1,
                            .done = done,
                            .arg = arg};
    struct imager_run *run = &j->run;
    run->env = &k->env;
    run->lock = &run_lock;
    run->stream_fd = run->doc_fd = run->changes_fd = run->pidfd = -1;
    run->disk = disk;
    run->disk_shared = disk_shared;
    run->boot = (struct imager_boot){.operation = q->type == KEEPER_IMAGE_IMPORT   ? IMAGER_IMPORT
                                                  : q->type == KEEPER_IMAGE_EXPORT ? IMAGER_EXPORT
                                                                                   : IMAGER_SAVE,
                                     .plain = q->ask.plain,
                                     .limit_bytes = k->config->image_limit,
                                     .limit_entries = entries_max,
                                     .now_ms = clock_wall_ms()};
    (void)snprintf(run->image, sizeof run->image, "%s", image);
    (void)snprintf(run->boot.parent, sizeof run->boot.parent, "%s", image);
    /* an export's archive names itself, everything else is named when it is made */
    (void)snprintf(q->type == KEEPER_IMAGE_EXPORT ? run->boot.reference : run->reference,
                   sizeof run->reference, "%s", q->ask.reference);
    int r = keeper_slot_take(k, &run->slot, reterr);
    if (r < 0) {
        free(j);
        return r;
    }
    if (q->type != KEEPER_IMAGE_SAVE && (r = make_stream(j, reterr)) < 0) {
        close_fd(&run->stream_fd);
        keeper_slot_release(k, run->slot);
        free(j);
        return r;
    }
    run->changes_fd = take_fd(*fd);
    j->next = k->image_jobs;
    j->prev = &k->image_jobs;
    if (j->next)
        j->next->prev = &j->next;
    k->image_jobs = j;
    loop_timer_start(k->loop, &j->progress, PROGRESS_MS, progress_fired);
    k->image_long++;
    k->jobs++;
    workers_submit(k->imagers, &j->job, false);
    return 0;
}

int keeper_image_start(struct keeper *k, const struct keeper_request *q, int *fd, const char *image,
                       uint64_t disk, bool disk_shared, void (*done)(void *arg), void *arg)
{
    enum keeper_image_why why;
    struct error e = {0};
    int r = long_submit(k, q, fd, image, disk, disk_shared, done, arg, &why, &e);
    if (r < 0)
        refuse(k, q, why, e.code, e.msg);
    return r;
}

void keeper_image_save_refuse(struct keeper *k, const struct keeper_request *q, const struct error *e)
{
    struct keeper_image_tell tell = {0};
    reply(k, q, &tell, e, -1);
}

/* ---- short ones */

static void short_run(struct job *job)
{
    struct image_job *j = container_of(job, struct image_job, job);
    struct image_store *s = j->keeper->env.images;
    const struct keeper_request *q = &j->request;
    switch (q->type) {
    case KEEPER_IMAGE_LIST:
        (void)image_store_list(s, &j->list_fd, &j->error);
        break;
    case KEEPER_IMAGE_TAG:
        (void)image_name_set(s, q->ask.reference, q->image, &j->error);
        break;
    case KEEPER_IMAGE_UNTAG:
        if (image_name_remove(s, q->ask.reference, &j->error) < 0)
            j->why = IMAGE_WHY_NONE;
        break;
    case KEEPER_IMAGE_REMOVE:
    case KEEPER_IMAGE_PRUNE: /* the images are out of sight already; their layers go now */
        (void)image_store_collect(s, &j->layers, &j->bytes, &j->error);
        break;
    default:
        image_store_clean(s);
    }
}

static void short_done(struct job *job)
{
    struct image_job *j = container_of(job, struct image_job, job);
    struct keeper *k = j->keeper;
    struct keeper_image_tell tell = {
        .why = j->error.code ? j->why : 0, .layers = j->layers, .bytes = j->bytes};
    if (j->request.seq && asker_lives(j)) { /* 0: our own errand */
        memcpy(tell.image, j->request.image, sizeof tell.image);
        for (size_t i = 0; i < j->gone_count; i++)
            tell_image(k, j->request.seq, KEEPER_IMAGE_GONE, j->gone[i]);
        reply(k, &j->request, &tell, &j->error, j->list_fd);
    }
    close_fd(&j->list_fd);
    bool leaves_files = j->request.type == KEEPER_IMAGE_REMOVE || j->request.type == KEEPER_IMAGE_PRUNE;
    free(j->gone);
    free(j);
    k->image_short--;
    k->jobs--;
    if (leaves_files) /* they are nobody's any more; nobody needs to wait for their end */
        keeper_images_clean(k);
    keeper_idle(k);
}

static void short_submit(struct keeper *k, const struct keeper_request *q, char (*gone)[IMAGE_NAME_MAX + 1],
                         size_t gone_count)
{
    struct image_job *j = k->image_short < SHORT_MAX ? calloc(1, sizeof *j) : NULL;
    if (!j) {
        free(gone);
        if (q->seq)
            refuse(k, q, IMAGE_WHY_BUSY, EAGAIN, "too many requests about images wait");
        return;
    }
    *j = (struct image_job){.job = {.run = short_run, .done = short_done},
                            .keeper = k,
                            .request = *q,
                            .life = k->gateway_life,
                            .list_fd = -1,
                            .gone = gone,
                            .gone_count = gone_count};
    k->image_short++;
    k->jobs++;
    workers_submit(k->imagers, &j->job, true);
}

void keeper_images_clean(struct keeper *k)
{
    static const struct keeper_request nobody;
    if (!k->stopping && k->image_short < SHORT_MAX) /* otherwise the next one does it */
        short_submit(k, &nobody, NULL, 0);
}

static bool in_use(struct keeper *k, const char *id)
{
    if (strcmp(k->config->image, id) == 0 || box_uses_image(k, id))
        return true;
    for (const struct image_job *j = k->image_jobs; j; j = j->next)
        if (strcmp(j->run.image, id) == 0)
            return true;
    return false;
}

static void image_remove(struct keeper *k, const struct keeper_request *q)
{
    struct error e = {0};
    if (in_use(k, q->image)) {
        refuse(k, q, IMAGE_WHY_IN_USE, EBUSY, "a sandbox stands on the image, or an operation reads it");
        return;
    }
    if (image_take_out(k->env.images, q->image, &e) < 0) {
        struct keeper_image_tell tell = {.why = e.code == EPERM ? IMAGE_WHY_IN_USE : IMAGE_WHY_OTHER};
        reply(k, q, &tell, &e, -1);
        return;
    }
    short_submit(k, q, NULL, 0);
}

static void image_prune(struct keeper *k, const struct keeper_request *q)
{
    char(*ids)[IMAGE_NAME_MAX + 1] = calloc(PRUNE_MAX, sizeof *ids);
    size_t n = ids ? image_store_nameless(k->env.images, ids, PRUNE_MAX) : 0, gone = 0;
    for (size_t i = 0; i < n; i++)
        if (!in_use(k, ids[i]) && image_take_out(k->env.images, ids[i], NULL) == 0)
            memmove(ids[gone++], ids[i], sizeof ids[0]);
    short_submit(k, q, ids, gone);
}

void image_request(struct keeper *k, const struct keeper_request *q, int *fd)
{
    switch (q->type) {
    case KEEPER_IMAGE_IMPORT:
    case KEEPER_IMAGE_EXPORT:
    case KEEPER_IMAGE_SAVE:
        (void)keeper_image_start(k, q, fd, q->image, 0, false, NULL, NULL);
        break;
    case KEEPER_IMAGE_REMOVE:
        image_remove(k, q);
        break;
    case KEEPER_IMAGE_PRUNE:
        image_prune(k, q);
        break;
    default:
        short_submit(k, q, NULL, 0);
    }
}
