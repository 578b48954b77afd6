/* SPDX-License-Identifier: Apache-2.0 */
/* box.c: one box per sandbox id: what the keeper does about it, one thing at a time.
 *
 * Theory of operation
 * A box is STOPPED, RUNNING (maybe FROZEN), or BUSY with exactly one job: a start, a stop, or a removal.
 * Requests that change it wait in its queue while it is BUSY and are then served in order, so that "destroy,
 * then use" and "two starts at once" need no special cases. Requests that only look (CONNECT, STATS) or take
 * no time (FREEZE, THAW) are answered at once.
 *
 *   STOPPED  files only. START makes it BUSY; DESTROY too
 *   RUNNING  the agent answers. STOP, DESTROY and its own end make it BUSY
 *   BUSY     a job is under way; its end decides what comes next
 *
 * A box that was never on disk (a first START that failed) is freed as if it had not been. */
#include "base/failpoint.h"
#include "base/log.h"
#include "keeper/berth.h"
#include "keeper/box_internal.h"
#include "keeper/record.h"
#include "keeper/sandbox_internal.h"

#include <errno.h>
#include <signal.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { POLITE_MS = 2000 };

struct build_job {
    struct job job;
    struct box *box;
    struct sandbox_spec spec;
    struct sandbox *bare; /* it moves in there; NULL: it is built */
    char hostname[MACHINE_NAME_MAX + 1];
    struct keeper_volume_mount volumes[KEEPER_VOLUMES_MAX];
    struct sandbox *sb;
    struct error error;
};

static struct box **bucket(struct keeper *k, const char *id)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (const char *p = id; *p; p++)
        h = (h ^ (unsigned char)*p) * 16777619u;
    return &k->boxes[h % BOX_BUCKETS];
}

struct box *box_find(struct keeper *k, const char *id)
{
    for (struct box *b = *bucket(k, id); b; b = b->next)
        if (strcmp(b->row.id, id) == 0)
            return b;
    return NULL;
}

struct box *box_new(struct keeper *k, const struct ledger_row *row)
{
    struct box *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->keeper = k;
    b->row = *row;
    b->last = &b->first;
    b->exit_source.fd = b->control_source.fd = b->hold.fd = -1;
    struct box **head = bucket(k, row->id);
    b->next = *head;
    *head = b;
    k->box_count++;
    return b;
}

void pending_free(struct pending *p)
{
    if (!p)
        return;
    close_fd(&p->fd);
    free(p);
}

static void box_free(struct box *b)
{
    struct keeper *k = b->keeper;
    for (struct box **p = bucket(k, b->row.id); *p; p = &(*p)->next)
        if (*p == b) {
            *p = b->next;
            break;
        }
    while (b->first) {
        struct pending *p = b->first;
        b->first = p->next;
        pending_free(p);
    }
    pending_free(b->current);
    kept_take(b);
    close_fd(&b->hold.fd);
    k->box_count--;
    free(b);
}

void box_reply_current(struct box *b, const struct error *e, int fd)
{
    struct pending *p = b->current;
    if (!p)
        return;
    b->current = NULL;
    box_reply(b->keeper, &p->request, b, e, fd);
    pending_free(p);
}

/* ---- watching a running sandbox */

static void unwatch(struct box *b)
{
    settle_cancel(&b->settle);
    loop_del(b->keeper->loop, &b->exit_source);
    loop_del(b->keeper->loop, &b->control_source);
}

static void ended(void *arg)
{
    struct box *b = arg;
    b->state = BOX_STOPPED;
    kept_put(b);
    box_reply_current(b, NULL, -1);
    box_next(b);
}

void box_let_go(struct box *b)
{
    kept_take(b);
    b->state = BOX_BUSY;
    keeper_end_sandbox(b->keeper, NULL, 0, 0, &b->hold, ended, b);
}

static void box_end(struct box *b, int polite_ms, uint64_t remove_disk, void (*done)(void *arg))
{
    struct keeper *k = b->keeper;
    struct sandbox *sb = b->sb;
    unwatch(b);
    if (b->changing || b->lifting) {
        b->state = BOX_BUSY;
        b->end.wanted = true;
        b->end.polite_ms = polite_ms;
        b->end.remove_disk = remove_disk;
        b->end.done = done;
        return;
    }
    b->sb = NULL;
    b->frozen = false;
    b->state = BOX_BUSY;
    /* what is asked politely goes to sleep, and may be woken soon */
    bool hold = !sb || (polite_ms > 0 && !remove_disk && !k->stopping && k->config->kept_disks > 0);
    keeper_end_sandbox(k, sb, polite_ms, remove_disk, hold ? &b->hold : NULL, done, b);
}

/* The disk of a sandbox that no row names and none will: it goes with the processes. Otherwise 0. */
static uint64_t disk_of_nobody(const struct box *b)
{
    return b->is_new && !b->committing && b->sb ? b->sb->spec.disk : 0;
}

/* What had to wait for a change. */
void box_end_if_wanted(struct box *b)
{
    if (!b->end.wanted)
        return;
    b->end.wanted = false;
    box_end(b, b->end.polite_ms, b->end.remove_disk, b->end.done);
}

static void exit_ready(struct source *s, uint32_t events)
{
    struct box *b = container_of(s, struct box, exit_source);
    struct keeper_reply event = {.type = KEEPER_EVENT_EXIT, .generation = b->sb->generation};
    (void)events;
    (void)snprintf(event.id, sizeof event.id, "%s", b->row.id);
    event.exit_code = b->exit_code = sandbox_exit_code(b->sb);
    log_info("sandbox %s ended by itself with %u", b->row.id, b->exit_code);
    box_end(b, 0, disk_of_nobody(b), ended);
    event.state = KEEPER_STATE_STOPPED;
    link_reply(b->keeper, &event, -1);
}

static void control_ready(struct source *s, uint32_t events)
{
    struct box *b = container_of(s, struct box, control_source);
    struct error e;
    (void)events;
    int r = sandbox_control(b->sb, &e);
    if (r == 0)
        return;
    log_warn("sandbox %s: %s", b->row.id, e.msg);
    loop_del(b->keeper->loop, &b->control_source);
    close_fd(&b->sb->control_fd);
    /* nobody knows what became of an agent that lies, and one whose spawner has no place starts nothing any
     * more: the next life is an honest one. The end of the line is the agent's own, with an exit code. */
    if (r != -EPIPE && r != -ECONNRESET)
        (void)syscall(SYS_pidfd_send_signal, b->sb->pidfd, SIGKILL, NULL, 0);
}

static int watch(struct box *b)
{
    struct loop *l = b->keeper->loop;
    int r = loop_add(l, &b->exit_source, b->sb->pidfd, EPOLLIN, exit_ready);
    if (r == 0 && b->sb->control_fd >= 0)
        r = loop_add(l, &b->control_source, b->sb->control_fd, EPOLLIN, control_ready);
    if (r < 0)
        unwatch(b);
    return r;
}

/* ---- start */

static void committed(void *arg, const struct error *e)
{
    struct box *b = arg;
    struct keeper_reply event = {.type = KEEPER_EVENT_DURABLE};
    (void)snprintf(event.id, sizeof event.id, "%s", b->row.id);
    b->committing = false;
    if (e) {
        event.error = e->code;
        (void)snprintf(event.message, sizeof event.message, "the sandbox could not be recorded on disk");
        log_error("sandbox %s: %s", b->row.id, e->msg);
    } else {
        b->is_new = false;
    }
    if (b->sb)
        event.generation = b->sb->generation;
    event.state = box_public_state(b);
    link_reply(b->keeper, &event, -1);
    if (b->state != BOX_BUSY)
        box_next(b);
}

/* What is asked for is the next life: this one is over. */
static void box_start_again(struct box *b)
{
    struct pending *p = take_ptr(b->current);
    p->next = b->first;
    b->first = p;
    if (!p->next)
        b->last = &p->next;
    b->queued++;
    box_end(b, 0, disk_of_nobody(b), ended);
}

/* The sandbox belongs to the id from here on. */
void box_started(struct box *b, struct sandbox *sb)
{
    struct keeper *k = b->keeper;
    struct error e = {0};
    auto_close int fd = -1;
    b->sb = sb;
    if (b->current && !b->current->again && failpoint_hit("claim", 0, NULL) < 0)
        sandbox_kill(sb);
    int r = sandbox_claim(&k->env, sb, b->row.id, b->current ? b->current->fd : -1, &e);
    if (r == 0)
        r = sandbox_connect(&k->env, sb, &fd, &e);
    if (r == 0 && (r = watch(b)) < 0)
        (void)error_sys(&e, -r, "watch the sandbox");
    if ((r == -EPIPE || r == -ECONNRESET || r == -ECONNREFUSED) && b->current && !b->current->again) {
        log_warn("start of sandbox %s: %s; once more", b->row.id, e.msg);
        b->current->again = true;
        box_start_again(b);
        return;
    }
    if (r < 0) {
        log_error("start of sandbox %s: %s", b->row.id, e.msg);
        box_reply_current(b, &e, -1);
        box_end(b, 0, disk_of_nobody(b), ended);
        return;
    }
    b->state = BOX_RUNNING;
    settle_later(k, &b->settle, sb);
    box_lift(b);
    if (b->is_new && !b->committing) {
        b->row.disk = sb->spec.disk;
        b->committing = true;
        ledger_put(k->ledger, &b->row, committed, b);
    }
    box_reply_current(b, NULL, fd);
}

static void build_run(struct job *j)
{
    struct build_job *job = container_of(j, struct build_job, job);
    struct keeper_env *env = &job->box->keeper->env;
    struct sandbox *bare = job->bare;
    bool waited = job->spec.berth || bare;
    int r = bare ? sandbox_move_in(env, bare, &job->spec, &job->error)
                 : sandbox_start(env, &job->spec, &job->sb, &job->error);
    if (bare && r == 0)
        job->sb = bare;
    job->spec.berth = NULL;
    /* who waited there is dead, with or without something it had not read: in the same slot, from the
     * beginning */
    if ((r == -EPIPE || r == -ECONNRESET || r == -ESRCH) && waited) {
        job->error = (struct error){0};
        (void)sandbox_start(env, &job->spec, &job->sb, &job->error);
    }
}

static void build_done(struct job *j)
{
    struct build_job *job = container_of(j, struct build_job, job);
    struct box *b = job->box;
    struct keeper *k = b->keeper;
    k->jobs--;
    if (job->sb) {
        struct sandbox *sb = job->sb;
        struct bare_kit kit = sb->kit;
        sb->kit = BARE_KIT_NONE;
        box_started(b, sb);
        kept_clear(k, &kit);
    } else {
        log_error("start of sandbox %s: %s", b->row.id, job->error.msg);
        keeper_slot_release(k, job->spec.slot);
        b->state = BOX_STOPPED;
        kept_put(b);
        box_reply_current(b, &job->error, -1);
    }
    free(job);
    box_next(b);
    keeper_idle(k);
}

static int build_submit(struct box *b, struct error *reterr)
{
    struct keeper *k = b->keeper;
    struct build_job *job = calloc(1, sizeof *job);
    if (!job)
        return error_sys(reterr, ENOMEM, "start a sandbox");
    if (!b->sidecar && (!b->network || network_terms_plain(&b->terms)))
        job->bare = pool_take(k, POOL_BARE, b->row.image, &b->row.limits, b->network);
    if (!job->bare)
        job->spec.berth = berths_take(k, b->network, &b->terms);
    if (job->bare)
        job->spec.slot = job->bare->spec.slot;
    else if (job->spec.berth)
        job->spec.slot = job->spec.berth->spec.slot;
    else if (keeper_slot_take(k, &job->spec.slot, reterr) < 0) {
        int r = -reterr->code;
        free(job);
        return r;
    }
    job->job = (struct job){.run = build_run, .done = build_done};
    job->box = b;
    job->spec.fresh_disk = b->is_new;
    job->spec.disk = b->is_new ? spare_disks_take(k, &b->row.limits, &b->hold) : b->row.disk;
    job->spec.limits = b->row.limits;
    job->spec.network = b->network;
    job->spec.sidecar = b->sidecar;
    job->spec.owned = true;
    job->spec.terms = b->terms;
    memcpy(job->spec.image, b->row.image, sizeof job->spec.image);
    memcpy(job->hostname, b->current->request.hostname, sizeof job->hostname);
    memcpy(job->volumes, b->current->request.volumes, sizeof job->volumes);
    job->spec.hostname = job->hostname;
    job->spec.volumes = job->volumes;
    job->spec.held_disk = &b->hold;
    kept_take(b);
    b->state = BOX_BUSY;
    k->jobs++;
    workers_submit(k->builders, &job->job, true);
    return 0;
}

int box_freeze(struct box *b, bool freeze, struct error *reterr)
{
    int r = b->saving ? 0 : cgroup_freeze(b->sb->cgroup, freeze, reterr);
    if (r == 0)
        b->frozen = freeze;
    return r;
}

/* It runs already: one more connection. */
static void box_connect(struct box *b)
{
    struct error e = {0};
    auto_close int fd = -1;
    if (b->frozen)
        (void)box_freeze(b, false, &e);
    int r = sandbox_connect(&b->keeper->env, b->sb, &fd, &e);
    if (r == -ECONNREFUSED || r == -EAGAIN) {
        /* its agent is dead, and the kernel has not come round to telling us, or it has let thousands wait in
         * front of its door */
        box_start_again(b);
        return;
    }
    if (r < 0)
        (void)error_set(&e, EIO, "its agent takes no connections");
    box_reply_current(b, &e, fd);
}

static void box_start(struct box *b)
{
    struct keeper *k = b->keeper;
    struct error e = {0};
    if (b->sb) {
        box_connect(b);
        return;
    }
    uint32_t network = b->current->request.network;
    b->sidecar = network == KEEPER_NETWORK_SIDECAR;
    b->network = k->env.network && network != KEEPER_NETWORK_NONE && !b->sidecar;
    b->terms = (struct network_terms){.listed = network == KEEPER_NETWORK_ALLOWLIST,
                                      .policy = b->current->request.policy};
    if ((network == KEEPER_NETWORK_PUBLIC || network == KEEPER_NETWORK_ALLOWLIST) && !k->env.network)
        (void)error_set(&e, ENONET, "this daemon gives sandboxes no network");
    if (e.code || keeper_admit(k, &e) < 0) {
        box_reply_current(b, &e, -1);
        return;
    }
    /* a prepared one has the usual name and nothing mounted */
    bool plain = !b->sidecar && !b->current->request.hostname[0] && !b->current->request.volumes[0].name[0];
    struct sandbox *sb =
        b->is_new && plain ? pool_take(k, POOL_WHOLE, b->row.image, &b->row.limits, b->network) : NULL;
    if (sb && b->network && !network_terms_plain(&b->terms))
        box_adapt(b, sb);
    else if (sb)
        box_started(b, sb);
    else if (build_submit(b, &e) < 0)
        box_reply_current(b, &e, -1);
}

/* ---- removal: first the promise (the row), then the processes, then the files */

static void removed(void *arg)
{
    struct box *b = arg;
    b->row.disk = 0;
    b->is_new = true; /* what comes next in the queue finds an id without files */
    b->state = BOX_STOPPED;
    box_reply_current(b, NULL, -1);
    box_next(b);
}

static void row_deleted(void *arg, const struct error *e)
{
    struct box *b = arg;
    (void)failpoint_hit("end", 1, NULL);
    if (e) {
        b->state = b->sb ? BOX_RUNNING : BOX_STOPPED;
        kept_put(b);
        if (b->sb && loop_add(b->keeper->loop, &b->exit_source, b->sb->pidfd, EPOLLIN, exit_ready) < 0)
            log_error("sandbox %s is not watched any more", b->row.id);
        box_reply_current(b, e, -1);
        box_next(b);
    } else {
        box_end(b, 0, b->row.disk, removed);
    }
}

static void box_destroy(struct box *b)
{
    (void)failpoint_hit("end", 0, NULL);
    b->state = BOX_BUSY;
    kept_take(b);
    if (b->is_new) { /* without a row, but maybe running: its record could not be written */
        box_end(b, 0, b->sb ? b->sb->spec.disk : 0, removed);
    } else {
        loop_del(b->keeper->loop,
                 &b->exit_source); /* its own end must not become a second job beside this one */
        ledger_delete(b->keeper->ledger, b->row.id, row_deleted, b);
    }
}

/* Serves the queue until something keeps the box busy; frees a box that is nothing any more: the last call on
 * it. */
void box_next(struct box *b)
{
    while (b->state != BOX_BUSY && !b->committing && b->first &&
           !(b->saving && b->first->request.type == KEEPER_IMAGE_SAVE)) {
        struct pending *p = b->first;
        b->first = p->next;
        if (!b->first)
            b->last = &b->first;
        b->queued--;
        b->current = p;
        switch (p->request.type) {
        case KEEPER_START:
            if (b->is_new && !b->sb) {
                b->row.limits = p->request.limits;
                memcpy(b->row.image, p->request.image, sizeof b->row.image);
            }
            box_start(b);
            break;
        case KEEPER_STOP:
        case KEEPER_KILL:
            if (!b->sb) {
                box_reply_current(b, NULL, -1);
                break;
            }
            box_end(b, p->request.type == KEEPER_KILL ? 0 : POLITE_MS, disk_of_nobody(b), ended);
            break;
        case KEEPER_DESTROY:
            box_destroy(b);
            break;
        case KEEPER_IMAGE_SAVE:
            box_save(b);
            break;
        default:
            box_reply_current(b, NULL, -1);
        }
    }
    if (b->state == BOX_STOPPED && b->is_new && !b->committing && !b->first && !b->sb)
        box_free(b);
}

/* ---- start and end of the keeper */

int box_restore(struct keeper *k, const struct ledger_row *row)
{
    struct box *b = box_new(k, row);
    if (!b)
        return -ENOMEM;
    /* unless it is adopted, nobody knows how it ended: with the machine, most likely */
    b->exit_code = 128 + SIGKILL;
    return 0;
}

bool box_adopt(struct keeper *k, struct sandbox *sb)
{
    struct box *b = sb->id[0] ? box_find(k, sb->id) : NULL;
    if (!b || b->sb || b->row.disk != sb->spec.disk)
        return false;
    b->sb = sb;
    /* the gateway that had it frozen is gone, too; the next one decides anew */
    (void)cgroup_freeze(sb->cgroup, false, NULL);
    if (watch(b) < 0) {
        b->sb = NULL;
        return false;
    }
    b->state = BOX_RUNNING;
    return true;
}

bool box_uses_image(struct keeper *k, const char *image)
{
    for (size_t i = 0; i < BOX_BUCKETS; i++)
        for (struct box *b = k->boxes[i]; b; b = b->next)
            if (strcmp(b->row.image, image) == 0)
                return true;
    return false;
}

bool box_knows_disk(struct keeper *k, uint64_t disk)
{
    for (size_t i = 0; i < BOX_BUCKETS; i++)
        for (struct box *b = k->boxes[i]; b; b = b->next)
            if (b->row.disk == disk)
                return true;
    return false;
}

bool box_runs_on(struct keeper *k, uint64_t disk)
{
    for (size_t i = 0; i < BOX_BUCKETS; i++)
        for (struct box *b = k->boxes[i]; b; b = b->next)
            if (b->sb && b->row.disk == disk)
                return true;
    return false;
}

void box_stop_all(struct keeper *k)
{
    for (size_t i = 0; i < BOX_BUCKETS; i++)
        for (struct box *b = k->boxes[i], *next; b; b = next) {
            next = b->next;
            if (b->state == BOX_RUNNING)
                box_end(b, POLITE_MS, 0, ended);
        }
}

void box_forget_all(struct keeper *k)
{
    for (size_t i = 0; i < BOX_BUCKETS; i++)
        while (k->boxes[i]) {
            struct box *b = k->boxes[i];
            unwatch(b);
            if (b->sb) { /* runs on without us */
                close_fd(&b->sb->pidfd);
                close_fd(&b->sb->control_fd);
                close_fd(&b->sb->hold.fd);
                bare_kit_done(&b->sb->kit);
                cgroup_forget(b->sb->cgroup);
                free(b->sb);
            }
            box_free(b);
        }
}
