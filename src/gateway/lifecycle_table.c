/* SPDX-License-Identifier: Apache-2.0 */
/* lifecycle_table.c: which sandboxes there are: the table by id, what was found at start, times of last use.
 */
#include "gateway/lifecycle_internal.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { BUCKETS_MIN = 256 };

/* FNV-1a with a secret start: the ids are chosen by callers, who must not be able to fill one bucket. */
static struct sandbox **bucket(struct lifecycle *lc, const char *id)
{
    uint64_t h = lc->hash_seed;
    for (; *id; id++)
        h = (h ^ (unsigned char)*id) * UINT64_C(0x100000001b3);
    return &lc->buckets[(h ^ h >> 32) & lc->bucket_mask];
}

struct sandbox *lifecycle_table_find(struct lifecycle *lc, const char *id)
{
    struct sandbox *sb = *bucket(lc, id);
    while (sb && strcmp(sb->id, id) != 0)
        sb = sb->hash_next;
    return sb;
}

static void table_grow(struct lifecycle *lc)
{
    size_t old_size = lc->bucket_mask + 1;
    struct sandbox **old = lc->buckets;
    struct sandbox **bigger = calloc(old_size * 2, sizeof *bigger);
    if (!bigger)
        return; /* longer chains serve as well */
    lc->buckets = bigger;
    lc->bucket_mask = old_size * 2 - 1;
    for (size_t i = 0; i < old_size; i++)
        for (struct sandbox *sb = old[i], *next; sb; sb = next) {
            next = sb->hash_next;
            struct sandbox **b = bucket(lc, sb->id);
            sb->hash_next = *b;
            *b = sb;
        }
    free(old);
}

static void sandbox_free(struct sandbox *sb)
{
    struct loop *loop = sb->lifecycle->config.loop;
    sandbox_idle_stop(sb);
    sandbox_pulse_stop(sb);
    agent_pool_close(&sb->pool);
    loop_undefer(loop, &sb->reap);
    network_forget(sb->lifecycle->config.networks, sb);
    sandbox_config_done(&sb->config);
    sandbox_config_done(&sb->next_config);
    free(sb);
}

static void reap(struct deferred *d)
{
    struct sandbox *sb = container_of(d, struct sandbox, reap);
    struct lifecycle *lc = sb->lifecycle;
    if (sb->state != SANDBOX_ABSENT || sb->waiting || sb->holding || sb->destroys.first || sb->sleeps.first ||
        sb->commits || sb->store_pending || sb->keeper_pending || sb->pool.connecting ||
        sb->busy_probe.connecting || sb->ping.connecting)
        return;
    struct sandbox **p = bucket(lc, sb->id);
    while (*p != sb)
        p = &(*p)->hash_next;
    *p = sb->hash_next;
    lc->count--;
    sandbox_free(sb);
}

void sandbox_reap_later(struct sandbox *sb)
{
    if (sb->state == SANDBOX_ABSENT)
        loop_defer(sb->lifecycle->config.loop, &sb->reap, reap);
}

static void pool_settled(struct agent_pool *p)
{
    sandbox_reap_later(container_of(p, struct sandbox, pool));
}

static void ping_settled(struct agent_probe *p)
{
    sandbox_reap_later(container_of(p, struct sandbox, ping));
}

static void probe_settled(struct agent_probe *p)
{
    sandbox_reap_later(container_of(p, struct sandbox, busy_probe));
}

struct sandbox *lifecycle_table_add(struct lifecycle *lc, const char *id, const struct sandbox_config *config)
{
    if (lc->count >= SANDBOXES_MAX)
        return NULL;
    struct sandbox *sb = calloc(1, sizeof *sb);
    if (!sb)
        return NULL;
    if (sandbox_config_copy(&sb->config, config) < 0) {
        free(sb);
        return NULL;
    }
    (void)snprintf(sb->id, sizeof sb->id, "%s", id);
    sb->lifecycle = lc;
    sb->created_ms = sb->last_used_ms = clock_wall_ms();
    sb->waiting_last = &sb->waiting;
    sb->destroys.last = &sb->destroys.first;
    sb->sleeps.last = &sb->sleeps.first;
    sb->commits_last = &sb->commits;
    agent_pool_init(&sb->pool, lc->config.loop, lc->config.link, sb->id);
    sb->pool.settled = pool_settled;
    agent_probe_init(&sb->busy_probe, lc->config.loop, lc->config.link, sb->id);
    agent_probe_init(&sb->ping, lc->config.loop, lc->config.link, sb->id);
    sb->busy_probe.settled = probe_settled;
    sb->ping.settled = ping_settled;

    if (lc->count > lc->bucket_mask)
        table_grow(lc);
    struct sandbox **b = bucket(lc, id);
    sb->hash_next = *b;
    *b = sb;
    lc->count++;
    sandbox_reap_later(sb);
    return sb;
}

void lifecycle_for_each(struct lifecycle *lc, void (*each)(struct sandbox *sb, void *arg), void *arg)
{
    for (size_t i = 0; i <= lc->bucket_mask; i++)
        for (struct sandbox *sb = lc->buckets[i]; sb; sb = sb->hash_next)
            if (sb->state != SANDBOX_ABSENT)
                each(sb, arg);
}

const struct sandbox_config *lifecycle_defaults(const struct lifecycle *lc)
{
    return &lc->config.defaults;
}

bool lifecycle_has_network(const struct lifecycle *lc)
{
    return lc->config.has_network;
}

unsigned lifecycle_running(const struct lifecycle *lc)
{
    return (unsigned)(lc->stats.states[SANDBOX_RUNNING] + lc->stats.states[SANDBOX_FROZEN]);
}

const struct lifecycle_stats *lifecycle_stats(const struct lifecycle *lc)
{
    return &lc->stats;
}

/* ------------------------------------------------------------------ times of last use */

/* Queues every unwritten time of last use, as one operation. */
static void write_touches(struct lifecycle *lc)
{
    size_t cap = 0, count = 0;
    auto_free struct store_touch *touches = NULL;
    for (size_t i = 0; i <= lc->bucket_mask; i++)
        for (struct sandbox *sb = lc->buckets[i]; sb; sb = sb->hash_next) {
            if (!sb->dirty || !sb->on_disk)
                continue;
            if (count == cap) {
                cap = cap ? cap * 2 : 64;
                struct store_touch *more = realloc(touches, cap * sizeof *more);
                if (!more)
                    goto write; /* the rest next time */
                touches = more;
            }
            sb->dirty = false;
            touches[count].last_used_ms = sb->last_used_ms;
            memcpy(touches[count++].id, sb->id, sizeof sb->id);
        }
write:
    if (count)
        (void)store_touch(lc->config.store, touches, count, NULL, NULL);
}

static void touch_fired(struct timer *t)
{
    write_touches(container_of(t, struct lifecycle, touch));
}

void sandbox_touch(struct sandbox *sb)
{
    struct lifecycle *lc = sb->lifecycle;
    sb->last_used_ms = clock_wall_ms();
    sb->idle_since_us = loop_now_us(lc->config.loop);
    sb->dirty = true;
    if (!loop_timer_running(&lc->touch))
        loop_timer_start(lc->config.loop, &lc->touch, TOUCH_DELAY_MS, touch_fired);
}

/* ------------------------------------------------------------------ what was found at start */

static int load_row(const struct sandbox_row *row, void *arg)
{
    struct lifecycle *lc = arg;
    struct error e;
    if (sandbox_id_check(row->id, &e) < 0 || lifecycle_table_find(lc, row->id)) {
        log_warn("state database: row '%s' skipped", row->id);
        return 0;
    }
    struct sandbox *sb = lifecycle_table_add(lc, row->id, &row->config);
    if (!sb)
        return -ENOMEM;
    sb->created_ms = row->created_ms;
    sb->last_used_ms = row->last_used_ms;
    memcpy(sb->owner, row->owner, sizeof sb->owner);
    sb->on_disk = true;
    sandbox_found(sb, SANDBOX_ASLEEP, 0);
    return 0;
}

/* Nobody waits for it. */
static void adopted(struct sandbox *sb)
{
    sandbox_reap_later(sb);
}

static void adopt(struct lifecycle *lc, const struct keeper_reply *item)
{
    static const enum sandbox_state state_of[KEEPER_STATE_COUNT] = {
        [KEEPER_STATE_ABSENT] = SANDBOX_ABSENT,
        [KEEPER_STATE_STOPPED] = SANDBOX_ASLEEP,
        [KEEPER_STATE_RUNNING] = SANDBOX_RUNNING,
        [KEEPER_STATE_FROZEN] = SANDBOX_FROZEN,
    };
    enum sandbox_state state = state_of[item->state];
    struct sandbox *sb = lifecycle_table_find(lc, item->id);
    if (state == SANDBOX_ABSENT)
        return;
    if (!sb) {
        sb = lifecycle_table_add(lc, item->id, &lc->config.defaults);
        if (!sb) {
            log_error("sandbox %s: no memory to adopt it", item->id);
            return;
        }
        log_info("sandbox %s: adopted from the keeper", item->id);
    }
    sandbox_found(sb, state, item->generation);
    if (state == SANDBOX_RUNNING || state == SANDBOX_FROZEN) {
        network_starting(lc->config.networks, sb); /* what it was started with, as far as anybody knows */
        network_up(lc->config.networks, sb, item, false, adopted);
    }
    sb->exit_code = item->exit_code;
    sb->unrecorded = state == SANDBOX_RUNNING && !item->durable;
    if (!sb->on_disk)
        sandbox_save(sb, &sb->config);
}

static void listed(void *arg, const struct keeper_reply *reply, int fd)
{
    struct lifecycle *lc = arg;
    close_fd(&fd);
    if (reply->type == KEEPER_ITEM) {
        adopt(lc, reply);
        return;
    }
    if (reply->error)
        log_error("the keeper's list is not known: %s", reply->message);
    log_info("%zu sandboxes known, %u running", lc->count, lifecycle_running(lc));
    lc->config.ready(lc->config.arg);
}

int lifecycle_new(const struct lifecycle_config *config, struct lifecycle **ret, struct error *reterr)
{
    struct lifecycle *lc = calloc(1, sizeof *lc);
    if (!lc)
        return error_sys(reterr, ENOMEM, "set up the table of sandboxes");
    lc->config = *config;
    lc->bucket_mask = BUCKETS_MIN - 1;
    lc->buckets = calloc(BUCKETS_MIN, sizeof(struct sandbox *));
    random_bytes(&lc->hash_seed, sizeof lc->hash_seed);
    int r = lc->buckets ? sandbox_config_copy(&lc->config.defaults, &config->defaults) : -ENOMEM;
    if (r < 0)
        (void)error_sys(reterr, -r, "set up the table of sandboxes");
    else
        r = store_load(config->store, load_row, lc, reterr);
    if (r < 0) {
        lifecycle_free(lc);
        return r;
    }
    struct keeper_request request = {.type = KEEPER_LIST};
    keeper_link_send(config->link, &request, -1, listed, lc);
    *ret = lc;
    return 0;
}

void lifecycle_free(struct lifecycle *lc)
{
    if (!lc)
        return;
    if (lc->buckets) {
        write_touches(lc);
        loop_timer_stop(lc->config.loop, &lc->touch);
        for (size_t i = 0; i <= lc->bucket_mask; i++)
            for (struct sandbox *sb = lc->buckets[i], *next; sb; sb = next) {
                next = sb->hash_next;
                sandbox_free(sb);
            }
    }
    free(lc->buckets);
    sandbox_config_done(&lc->config.defaults);
    free(lc);
}
