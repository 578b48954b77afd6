/* SPDX-License-Identifier: Apache-2.0 */
/* lifecycle_pulse.c: is the agent of a sandbox alive? Asked only when somebody waits for it and hears
 * nothing.
 *
 * Theory of operation
 * A command may be silent for hours, so silence alone means nothing, and no request has a deadline. But an
 * agent that is stopped, wedged or starved answers nobody. When the agent owes an answer and has said nothing
 * on any connection for silence_ms, it is pinged on a fresh connection; when two pings in a row are not
 * answered, the sandbox is given up: killed, its files kept. Those who wait get 502, the next request starts
 * it anew. */
#include "gateway/lifecycle_internal.h"
#include "base/log.h"

enum { PING_MAX_MS = 10000, PING_MIN_MS = 2000, MISSED_MAX = 2 };

static void pulse_fired(struct timer *t);

static void arm(struct sandbox *sb, int64_t delay_ms)
{
    loop_timer_start(sb->lifecycle->config.loop, &sb->pulse, delay_ms, pulse_fired);
}

void sandbox_pulse_arm(struct sandbox *sb)
{
    int64_t silence_ms = sb->lifecycle->config.silence_ms;
    if (sb->holding == 1)
        sandbox_heard(sb); /* nothing was owed before */
    if (silence_ms && !loop_timer_running(&sb->pulse) && !sb->ping.running)
        arm(sb, silence_ms);
}

void sandbox_pulse_stop(struct sandbox *sb)
{
    loop_timer_stop(sb->lifecycle->config.loop, &sb->pulse);
    agent_probe_cancel(&sb->ping);
    sb->missed = 0;
}

static void ponged(struct agent_probe *p, int err, char *body, size_t n)
{
    struct sandbox *sb = container_of(p, struct sandbox, ping);
    (void)body;
    (void)n;
    if (sb->state != SANDBOX_RUNNING || !sb->holding) {
        sb->missed = 0;
    } else if (err == 0 || sb->saving) {
        sb->missed = 0;
        sandbox_heard(sb);
        arm(sb, sb->lifecycle->config.silence_ms);
    } else if (++sb->missed < MISSED_MAX) {
        arm(sb, 1);
    } else {
        log_warn("sandbox %s: %u pings were not answered", sb->id, sb->missed);
        sandbox_give_up(sb, "its agent does not answer");
    }
}

static void pulse_fired(struct timer *t)
{
    struct sandbox *sb = container_of(t, struct sandbox, pulse);
    int64_t silence_ms = sb->lifecycle->config.silence_ms;
    if (sb->saving)
        sandbox_heard(sb); /* it stands still by our own doing */
    int64_t silent_ms = (loop_now_us(sb->lifecycle->config.loop) - sb->heard_us) / 1000;
    if (sb->state != SANDBOX_RUNNING || !sb->holding)
        return; /* the next use arms it */
    if (silent_ms < silence_ms) {
        sb->missed = 0;
        arm(sb, silence_ms - silent_ms);
        return;
    }
    int64_t ping_ms = MIN(MAX(silence_ms / 3, (int64_t)PING_MIN_MS), (int64_t)PING_MAX_MS);
    if (!agent_probe_start(&sb->ping, "/api/ping", ping_ms, ponged))
        arm(sb, 100); /* an earlier one is not settled */
}
