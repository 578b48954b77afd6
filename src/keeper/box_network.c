/* SPDX-License-Identifier: Apache-2.0 */
/* box_network.c: the network of a sandbox changes: while it runs, or when a prepared one becomes somebody's.
 * Both are done on a worker; a sandbox that is to end meanwhile ends when the change is over. */
#include "base/log.h"
#include "keeper/box_internal.h"
#include "keeper/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

struct change_job {
    struct job job;
    struct box *box;
    struct sandbox *sb; /* stays while the job is under way */
    struct keeper_request request;
    int netns_fd, slot_dir_fd;
    bool had_link, gets_link; /* the same with a KEEPER_CUT */
    struct network_terms from, to;
    struct error error;
};

static void change_run(struct job *j)
{
    struct change_job *c = container_of(j, struct change_job, job);
    struct network *n = c->box->keeper->env.network;
    unsigned slot = c->sb->spec.slot;
    if (c->request.type == KEEPER_CUT) {
        (void)network_cut(n, slot, c->had_link ? &c->from : NULL, &c->error);
        return;
    }
    if (c->gets_link && network_terms_write(c->slot_dir_fd, &c->to, &c->error) < 0)
        return;
    if (network_change(n, slot, c->netns_fd, c->had_link ? &c->from : NULL, c->gets_link ? &c->to : NULL,
                       &c->error) < 0 &&
        c->had_link)
        (void)network_terms_write(c->slot_dir_fd, &c->from, NULL); /* as the packet filter still has it */
}

static int change_open(struct keeper *k, struct change_job *c, struct error *reterr)
{
    char path[64];
    const struct sandbox *sb = c->sb;
    (void)snprintf(path, sizeof path, "/proc/%d/ns/net", (int)sb->pid);
    c->netns_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (c->netns_fd < 0)
        return error_sys(reterr, errno, "open the sandbox's network namespace");
    return slot_dir_open(k->env.slots_fd, sb->spec.slot, &c->slot_dir_fd, reterr);
}

static void change_free(struct change_job *c)
{
    close_fd(&c->netns_fd);
    close_fd(&c->slot_dir_fd);
    free(c);
}

static void dropped(void *arg)
{
    (void)arg; /* nobody knew it */
}

static void adapt_done(struct job *j)
{
    struct change_job *c = container_of(j, struct change_job, job);
    struct box *b = c->box;
    struct keeper *k = b->keeper;
    k->jobs--;
    if (!c->error.code) {
        c->sb->spec.terms = c->to;
        box_started(b, c->sb);
    } else {
        log_error("network of sandbox %s: %s", b->row.id, c->error.msg);
        keeper_end_sandbox(k, c->sb, 0, c->sb->spec.disk, NULL, dropped, NULL);
        b->state = BOX_STOPPED;
        box_reply_current(b, &c->error, -1);
    }
    change_free(c);
    box_next(b);
    keeper_idle(k);
}

/* A prepared sandbox goes where everybody may go; this one's terms are others. */
void box_adapt(struct box *b, struct sandbox *sb)
{
    struct keeper *k = b->keeper;
    struct error e = {0};
    struct change_job *c = calloc(1, sizeof *c);
    if (!c)
        abort(); /* the sandbox would be lost to us; the next keeper sweeps it */
    *c = (struct change_job){.job = {.run = change_run, .done = adapt_done},
                             .box = b,
                             .sb = sb,
                             .request.type = KEEPER_NETWORK,
                             .netns_fd = -1,
                             .slot_dir_fd = -1,
                             .had_link = true,
                             .gets_link = true,
                             .from = sb->spec.terms,
                             .to = b->terms};
    b->state = BOX_BUSY;
    k->jobs++;
    if (change_open(k, c, &e) < 0) {
        c->error = e;
        adapt_done(&c->job);
        return;
    }
    workers_submit(k->builders, &c->job, true);
}

/* ---- other terms for a running sandbox */

static void change_done(struct job *j)
{
    struct change_job *c = container_of(j, struct change_job, job);
    struct box *b = c->box;
    struct keeper *k = b->keeper;
    b->changing = false;
    if (c->request.type == KEEPER_NETWORK && !c->error.code) {
        b->sb->spec.network = c->gets_link;
        b->sb->spec.ipv6 |= !c->had_link; /* a link made now has it if the daemon gives it */
        b->sb->spec.terms = c->to;
        b->sb->spec.terms.policy.keep = 0;
    }
    if (c->error.code)
        log_error("network of sandbox %s: %s", b->row.id, c->error.msg);
    box_reply(k, &c->request, b, &c->error, -1);
    change_free(c);
    box_end_if_wanted(b);
    k->jobs--;
    keeper_idle(k);
}

/* KEEPER_NETWORK and KEEPER_CUT: on a worker, while the sandbox goes on. */
void box_request_network(struct keeper *k, const struct keeper_request *q, struct box *b)
{
    struct error e = {0};
    bool wants_link = q->network == KEEPER_NETWORK_PUBLIC || q->network == KEEPER_NETWORK_ALLOWLIST;
    if (!b || b->state != BOX_RUNNING)
        (void)error_set(&e, ENOENT, "the sandbox is not running");
    else if (b->changing)
        (void)error_set(&e, EAGAIN, "the sandbox is being changed, or its disk read");
    else if (b->sb->spec.sidecar)
        (void)error_set(&e, EPERM, "its network is its sidecar's");
    else if (wants_link && !k->env.network)
        (void)error_set(&e, ENONET, "this daemon gives sandboxes no network");
    if (e.code || !k->env.network) {
        box_reply(k, q, b, &e, -1);
        return;
    }
    struct change_job *c = calloc(1, sizeof *c);
    if (!c) {
        box_refuse(k, q, ENOMEM, "out of memory");
        return;
    }
    *c = (struct change_job){.job = {.run = change_run, .done = change_done},
                             .box = b,
                             .sb = b->sb,
                             .request = *q,
                             .netns_fd = -1,
                             .slot_dir_fd = -1,
                             .had_link = b->sb->spec.network,
                             .gets_link = wants_link,
                             .from = b->sb->spec.terms,
                             .to = {.listed = q->network == KEEPER_NETWORK_ALLOWLIST, .policy = q->policy}};
    if (change_open(k, c, &e) < 0) {
        box_reply(k, q, b, &e, -1);
        change_free(c);
        return;
    }
    b->changing = true;
    k->jobs++;
    workers_submit(k->enders, &c->job, true);
}

void box_request_allow(struct keeper *k, const struct keeper_request *q, struct box *b)
{
    struct error e = {0};
    if (!b || b->state != BOX_RUNNING)
        (void)error_set(&e, ENOENT, "the sandbox is not running");
    else if (!b->sb->spec.network || !b->sb->spec.terms.listed || !k->env.network)
        (void)error_set(&e, EPERM, "the sandbox has no list of what it may reach");
    else
        (void)network_allow(k->env.network, b->sb->spec.slot, &q->policy, &e);
    box_reply(k, q, b, &e, -1);
}
