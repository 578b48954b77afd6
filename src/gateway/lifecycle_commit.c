/* SPDX-License-Identifier: Apache-2.0 */
/* lifecycle_commit.c: the promise on disk: a sandbox's row, the keeper's own record, and who waits for both.
 *
 * The row of a new sandbox is written in parallel with its start and its first request; the answer waits for
 * it and for the keeper's record (sandbox_commit_wait). When one of the two cannot be written, nobody has
 * heard of the sandbox yet: it is doomed, and lifecycle.c removes it. */
#include "gateway/lifecycle_internal.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>

/* p NULL: everything is on disk, the world may hear of it. */
static void commits_finish(struct sandbox *sb, const struct problem *p)
{
    if (!p)
        sandbox_announce(sb);
    while (sb->commits) {
        struct sandbox_commit *c = sb->commits;
        sandbox_commit_cancel(c);
        c->done(c, p);
    }
}

/* err: a positive errno. */
static void not_saved(struct problem *p, int err)
{
    if (err == ENOSPC)
        (void)problem_set(p, 507, "NO_SPACE", "the sandbox could not be recorded: the server's disk is full");
    else
        (void)problem_set(p, 500, "STATE_NOT_SAVED", "the sandbox could not be recorded on disk");
}

static void row_written(void *arg, uint64_t ticket, int err)
{
    struct sandbox *sb = arg;
    struct problem p;

    sb->store_pending--;
    if (ticket != sb->ticket) { /* a later write decides */
        sandbox_reap_later(sb);
        return;
    }
    sb->ticket = 0;
    if (err == 0) {
        sb->on_disk = true;
        if (sb->has_next_config) {
            sandbox_config_done(&sb->config);
            sb->config = sb->next_config;
            sb->next_config = (struct sandbox_config){0};
            sandbox_idle_arm(sb);
        }
    } else {
        log_error("sandbox %s: its row could not be written: %s", sb->id, strerror(-err));
        not_saved(&p, -err);
        sb->doomed = !sb->on_disk;
        sandbox_config_done(&sb->next_config);
    }
    sb->has_next_config = false;
    if (err < 0)
        commits_finish(sb, &p);
    else if (!sb->unrecorded)
        commits_finish(sb, NULL);
    if (sb->doomed)
        sandbox_fail_waiting(sb, &p);
    sandbox_advance(sb);
}

/* The keeper has, or has not, written down a sandbox it had started before. */
void sandbox_keeper_recorded(struct sandbox *sb, const struct keeper_reply *event)
{
    struct problem p;
    if (!sb->unrecorded)
        return;
    sb->unrecorded = false;
    if (event->error) {
        log_error("sandbox %s: %s", sb->id, event->message);
        not_saved(&p, event->error);
        sb->doomed = true;
        commits_finish(sb, &p);
        sandbox_fail_waiting(sb, &p);
    } else if (!sb->ticket) {
        commits_finish(sb, NULL);
    }
    sandbox_advance(sb);
}

void sandbox_save(struct sandbox *sb, const struct sandbox_config *config)
{
    struct sandbox_row row = {
        .config = *config, .created_ms = sb->created_ms, .last_used_ms = sb->last_used_ms};
    memcpy(row.id, sb->id, sizeof row.id);
    memcpy(row.owner, sb->owner, sizeof row.owner);
    sb->store_pending++;
    sb->ticket = store_put(sb->lifecycle->config.store, &row, row_written, sb);
}

int lifecycle_configure(struct sandbox *sb, const struct sandbox_config *config)
{
    struct sandbox_config copy;
    if (sandbox_config_copy(&copy, config) < 0)
        return -ENOMEM;
    sandbox_config_done(&sb->next_config);
    sb->next_config = copy;
    sb->has_next_config = true;
    sandbox_save(sb, &sb->next_config);
    return 0;
}

bool sandbox_is_committed(const struct sandbox *sb)
{
    return !sb->ticket && !sb->unrecorded && !sb->doomed;
}

void sandbox_commit_wait(struct sandbox *sb, struct sandbox_commit *c)
{
    struct problem p;
    c->prev = NULL;
    if (sb->doomed || (!sb->ticket && !sb->unrecorded)) {
        not_saved(&p, EIO);
        c->done(c, sb->doomed ? &p : NULL);
        return;
    }
    c->sandbox = sb;
    c->next = NULL;
    c->prev = sb->commits_last;
    *sb->commits_last = c;
    sb->commits_last = &c->next;
}

void sandbox_commit_cancel(struct sandbox_commit *c)
{
    if (!c->prev)
        return;
    *c->prev = c->next;
    if (c->next)
        c->next->prev = c->prev;
    else
        c->sandbox->commits_last = c->prev;
    c->prev = NULL;
}

/* Removing the row of a sandbox that never ran: nobody waits for it, and a new row is written behind it. */
static void row_withdrawn(void *arg, uint64_t ticket, int err)
{
    struct sandbox *sb = arg;
    (void)ticket;
    sb->store_pending--;
    if (err < 0)
        log_error("sandbox %s: the row of a failed start stays behind: %s", sb->id, strerror(-err));
    sandbox_reap_later(sb);
}

void sandbox_withdraw(struct sandbox *sb)
{
    struct problem p;
    sb->ticket = 0;
    sb->on_disk = sb->doomed = false;
    sb->store_pending++;
    (void)store_delete(sb->lifecycle->config.store, sb->id, row_withdrawn, sb);
    not_saved(&p, EIO);
    commits_finish(sb, &p);
}
