/* SPDX-License-Identifier: Apache-2.0 */
/* spare_disks.c: disks of destroyed sandboxes that are as new, for the next sandboxes (disk_renew.c says how
 * and why).
 *
 * No row names them: the sandbox that had one was struck from the ledger before it was ended, and a keeper
 * that is killed leaves them to the next one's sweep. They are of the usual size, no more of them than there
 * are sandboxes in the pool, and they go when none has been added for a moment. */
#include "keeper/keeper_internal.h"

enum { MOMENT_MS = 3000 };

static bool usual_size(const struct keeper *k, const struct limits *l)
{
    const struct limits *usual = &k->config->limits;
    return l->disk_bytes == usual->disk_bytes && l->disk_inodes == usual->disk_inodes;
}

bool spare_disks_wanted(const struct keeper *k, const struct limits *l)
{
    return !k->stopping && k->spares.count < k->config->pool && usual_size(k, l);
}

uint64_t spare_disks_take(struct keeper *k, const struct limits *l, struct disk_hold *ret)
{
    struct spare_disks *s = &k->spares;
    if (s->count == 0 || !usual_size(k, l))
        return k->next_disk++;
    *ret = s->disks[--s->count].hold;
    return s->disks[s->count].number;
}

static void moment_over(struct timer *t)
{
    spare_disks_release(container_of(t, struct keeper, spares.timer));
}

static void removed(void *arg)
{
    free(arg);
}

static void disk_drop(struct keeper *k, uint64_t number, const struct disk_hold *hold)
{
    struct disk_hold *copy = malloc(sizeof *copy);
    if (!copy)
        abort(); /* the next keeper sweeps it */
    *copy = *hold;
    keeper_end_sandbox(k, NULL, 0, number, copy, removed, copy);
}

void spare_disks_put(struct keeper *k, uint64_t number, const struct disk_hold *hold)
{
    struct spare_disks *s = &k->spares;
    if (k->stopping || s->count == k->config->pool) {
        disk_drop(k, number, hold);
        return;
    }
    s->disks[s->count++] = (struct spare_disk){number, *hold};
    loop_timer_start(k->loop, &s->timer, MOMENT_MS, moment_over);
}

void spare_disks_release(struct keeper *k)
{
    struct spare_disks *s = &k->spares;
    loop_timer_stop(k->loop, &s->timer);
    while (s->count) {
        s->count--;
        disk_drop(k, s->disks[s->count].number, &s->disks[s->count].hold);
    }
}
