/* SPDX-License-Identifier: Apache-2.0 */
/* lifecycle_tell.c: what the world is told about sandboxes: events, and how long starts take. */
#include "gateway/lifecycle_internal.h"
#include "base/clock.h"

#include <assert.h>

static const char *const event_name[] = {
    [SANDBOX_EVENT_CREATED] = "created",     [SANDBOX_EVENT_STARTED] = "started",
    [SANDBOX_EVENT_FROZEN] = "frozen",       [SANDBOX_EVENT_THAWED] = "thawed",
    [SANDBOX_EVENT_ASLEEP] = "asleep",       [SANDBOX_EVENT_WOKEN] = "woken",
    [SANDBOX_EVENT_DESTROYED] = "destroyed", [SANDBOX_EVENT_EXITED] = "exited",
    [SANDBOX_EVENT_FAILED] = "failed",
};
static_assert(ARRAY_SIZE(event_name) == SANDBOX_EVENT_COUNT, "name every event");

const int64_t start_bucket_us[START_BUCKETS] = {1000,   2500,   5000,    10000,   25000,   50000,   100000,
                                                250000, 500000, 1000000, 2500000, 5000000, 10000000};

const char *sandbox_event_name(enum sandbox_event event)
{
    return event_name[event];
}

void sandbox_tell(struct sandbox *sb, enum sandbox_event event, const char *reason)
{
    const struct lifecycle_config *config = &sb->lifecycle->config;
    sb->lifecycle->stats.events[event]++;
    if (config->event)
        config->event(config->arg, sb, event, reason);
}

void sandbox_announce(struct sandbox *sb)
{
    if (!sb->unannounced)
        return;
    sb->unannounced = false;
    sandbox_tell(sb, SANDBOX_EVENT_CREATED, NULL);
    sandbox_tell(sb, SANDBOX_EVENT_STARTED, NULL);
}

static void start_took(struct lifecycle_stats *stats, int64_t us)
{
    size_t i = 0;
    while (i < START_BUCKETS && us > start_bucket_us[i])
        i++;
    stats->start_times[i]++;
    stats->start_us += (uint64_t)us;
}

void sandbox_tell_running(struct sandbox *sb, bool same_life)
{
    if (!same_life)
        start_took(&sb->lifecycle->stats, clock_mono_us() - sb->start_began_us);
    switch (sb->before) {
    case SANDBOX_ABSENT:
        sb->unannounced = true;
        if (sandbox_is_committed(sb))
            sandbox_announce(sb);
        break;
    case SANDBOX_FROZEN:
        sandbox_tell(sb, SANDBOX_EVENT_THAWED, "used");
        break;
    case SANDBOX_RUNNING:
        if (!same_life) {
            sandbox_tell(sb, SANDBOX_EVENT_EXITED, NULL);
            sandbox_tell(sb, SANDBOX_EVENT_WOKEN, "used");
        }
        break;
    default:
        sandbox_tell(sb, SANDBOX_EVENT_WOKEN, "used");
    }
}
