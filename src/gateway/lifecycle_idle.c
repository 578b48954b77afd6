/* SPDX-License-Identifier: Apache-2.0 */
/* lifecycle_idle.c: what happens to a sandbox that nobody uses: first frozen, much later put to sleep.
 *
 * Theory of operation
 * Idle means: no request, no open stream, nobody waiting. Both timers are lazy: a use only notes the time,
 * and a timer that fires too early is set again.
 *
 * Freezing must not be noticed, except by who looks at a clock inside. A job in the background has to go on
 * (a training run started with startProcess does not wait for the next request), so a sandbox is frozen only
 * when
 *   - its agent knows of no running process, and
 *   - its processes used next to no cpu time in the second half of the idle time: that finds what the agent
 * does not know of, such as `make &` in a session. A sandbox that works is looked at again after the same
 * time. sleepAfter asks nothing of the kind, as documented: whoever wants a job to outlive it says keepAlive.
 */
#include "gateway/lifecycle_internal.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"

#include <string.h>

enum {
    BUSY_CPU_US =
        5000, /* between two looks; an idle agent with idle shells and interpreters uses less than one */
    PROBE_MS = 2000,
};

static void sleep_fired(struct timer *t);
static void freeze_fired(struct timer *t);

static int64_t idle_ms(const struct sandbox *sb)
{
    return sb->holding || sb->waiting ? 0 : (clock_mono_us() - sb->idle_since_us) / 1000;
}

static void freeze_again(struct sandbox *sb, int64_t delay_ms)
{
    loop_timer_start(sb->lifecycle->config.loop, &sb->freeze, MAX(delay_ms, INT64_C(0)) + 1, freeze_fired);
}

void sandbox_idle_stop(struct sandbox *sb)
{
    struct loop *loop = sb->lifecycle->config.loop;
    loop_timer_stop(loop, &sb->sleep);
    loop_timer_stop(loop, &sb->freeze);
    agent_probe_cancel(&sb->busy_probe);
}

void sandbox_idle_arm(struct sandbox *sb)
{
    const struct lifecycle_config *config = &sb->lifecycle->config;
    if (!sandbox_alive(sb) || sb->config.keep_alive) {
        sandbox_idle_stop(sb);
        return;
    }
    loop_timer_start(config->loop, &sb->sleep, MAX(sb->config.sleep_after_ms - idle_ms(sb), INT64_C(0)) + 1,
                     sleep_fired);
    if (sb->state == SANDBOX_RUNNING && config->freeze_after_ms && !sb->lifecycle->cannot_freeze)
        freeze_again(sb, config->freeze_after_ms / 2 - idle_ms(sb));
}

static void sleep_fired(struct timer *t)
{
    struct sandbox *sb = container_of(t, struct sandbox, sleep);
    if (idle_ms(sb) < sb->config.sleep_after_ms)
        sandbox_idle_arm(sb);
    else
        sandbox_begin_stop(sb, "idle");
}

/* ------------------------------------------------------------------ freezing */

static bool may_freeze(const struct sandbox *sb)
{
    return sb->state == SANDBOX_RUNNING && !sb->unfreezable && !sb->config.keep_alive && !sb->holding &&
           !sb->waiting && !sandbox_is_going(sb) && !sb->sleeps.first && sandbox_is_committed(sb);
}

static bool same_idleness(const struct sandbox *sb)
{
    return may_freeze(sb) && sb->look.idle_since_us == sb->idle_since_us;
}

/* Something runs inside: the next idleness begins now, as far as freezing goes. */
static void look_later(struct sandbox *sb)
{
    sb->look.idle_since_us = 0;
    if (sandbox_alive(sb) && sb->state == SANDBOX_RUNNING)
        freeze_again(sb, sb->lifecycle->config.freeze_after_ms / 2);
}

static void processes_known(struct agent_probe *p, int err, char *body, size_t n)
{
    struct sandbox *sb = container_of(p, struct sandbox, busy_probe);
    auto_json struct json_doc *doc = NULL;
    int64_t count;
    if (err < 0 || !same_idleness(sb) || json_parse(body, n, 0, &doc, NULL) < 0 ||
        !json_integer(json_get(json_root(doc), "count"), 0, INT64_MAX, &count) || count > 0) {
        look_later(sb);
        return;
    }
    sandbox_freeze(sb);
}

static void second_look(void *arg, const struct keeper_reply *reply, int fd)
{
    struct sandbox *sb = arg;
    close_fd(&fd);
    sb->keeper_pending--;
    if (!same_idleness(sb) || reply->error || reply->usage.cpu_us - sb->look.cpu_us > BUSY_CPU_US ||
        !agent_probe_start(&sb->busy_probe, "/api/process/list?status=running", PROBE_MS, processes_known)) {
        look_later(sb);
        sandbox_reap_later(sb);
    }
}

static void first_look(void *arg, const struct keeper_reply *reply, int fd)
{
    struct sandbox *sb = arg;
    close_fd(&fd);
    sb->keeper_pending--;
    if (reply->error)
        sb->look.idle_since_us = 0;
    sb->look.cpu_us = reply->usage.cpu_us;
    sandbox_reap_later(sb);
}

static void freeze_fired(struct timer *t)
{
    struct sandbox *sb = container_of(t, struct sandbox, freeze);
    int64_t after_ms = sb->lifecycle->config.freeze_after_ms, idle = idle_ms(sb);
    if (!may_freeze(sb)) {
        look_later(sb);
    } else if (sb->look.idle_since_us != sb->idle_since_us) {
        if (idle < after_ms / 2) {
            freeze_again(sb, after_ms / 2 - idle);
            return;
        }
        sb->look.idle_since_us = sb->idle_since_us;
        freeze_again(sb, MAX(after_ms - idle, after_ms / 2));
        sandbox_ask_keeper(sb, KEEPER_STATS, -1, first_look);
    } else {
        sandbox_ask_keeper(sb, KEEPER_STATS, -1, second_look);
    }
}
