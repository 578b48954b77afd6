/* SPDX-License-Identifier: Apache-2.0 */
/* lifecycle.c: the life of a sandbox; see lifecycle.h for its states.
 *
 * Theory of operation
 * Nobody commands a transition. Whoever wants something queues (a use, a sleep, a destroy), and
 * sandbox_advance() looks at what is wanted and at the state and asks the keeper for one thing; the keeper's
 * reply sets the next state and calls sandbox_advance() again. So there is one operation in flight per
 * sandbox at most, and every wish that arrives in between waits for its end. (Freezing is the exception: the
 * keeper does it at once and in order, so a request that comes a moment later sends the thaw behind it.)
 *
 * Removing goes the other way round than creating: the keeper first, then the row, so that a crash in between
 * leaves a row without files (which the next use makes a fresh sandbox), never files without a row. */
#include "gateway/lifecycle_internal.h"
#include "base/clock.h"
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const state_name[] = {
    [SANDBOX_ABSENT] = "absent",         [SANDBOX_STARTING] = "starting", [SANDBOX_RUNNING] = "running",
    [SANDBOX_FROZEN] = "frozen",         [SANDBOX_STOPPING] = "stopping", [SANDBOX_ASLEEP] = "asleep",
    [SANDBOX_DESTROYING] = "destroying",
};
static_assert(ARRAY_SIZE(state_name) == SANDBOX_STATE_COUNT, "name every state");

#define TO(state) (1u << SANDBOX_##state)
static const unsigned may_become[] = {
    [SANDBOX_ABSENT] = TO(STARTING),
    [SANDBOX_STARTING] = TO(RUNNING) | TO(ABSENT) | TO(ASLEEP),
    [SANDBOX_RUNNING] = TO(FROZEN) | TO(STOPPING) | TO(STARTING) | TO(ASLEEP) | TO(DESTROYING),
    [SANDBOX_FROZEN] = TO(STARTING) | TO(RUNNING) | TO(STOPPING) | TO(ASLEEP) | TO(DESTROYING),
    [SANDBOX_STOPPING] = TO(ASLEEP),
    [SANDBOX_ASLEEP] = TO(STARTING) | TO(DESTROYING),
    [SANDBOX_DESTROYING] = TO(ABSENT) | TO(ASLEEP),
};
static_assert(ARRAY_SIZE(may_become) == SANDBOX_STATE_COUNT, "say where every state leads");

const char *sandbox_state_name(enum sandbox_state state)
{
    return state_name[state];
}

bool sandbox_alive(const struct sandbox *sb)
{
    return sb->state == SANDBOX_RUNNING || sb->state == SANDBOX_FROZEN;
}

static void put_state(struct sandbox *sb, enum sandbox_state state)
{
    struct lifecycle_stats *stats = &sb->lifecycle->stats;
    log_debug("sandbox %s: %s -> %s", sb->id, state_name[sb->state], state_name[state]);
    if (sb->state != SANDBOX_ABSENT)
        stats->states[sb->state]--;
    if (state != SANDBOX_ABSENT)
        stats->states[state]++;
    sb->state = state;
}

static void set_state(struct sandbox *sb, enum sandbox_state state)
{
    assert(may_become[sb->state] & 1u << state);
    put_state(sb, state);
}

/* The agent is, or will be, gone: nobody talks to it any more. */
static void agent_lost(struct sandbox *sb)
{
    sandbox_idle_stop(sb);
    sandbox_pulse_stop(sb);
    agent_pool_close(&sb->pool);
    network_down(sb->lifecycle->config.networks, sb);
}

static void waits_add(struct sandbox_waits *waits, struct sandbox_wait *w)
{
    w->next = NULL;
    *waits->last = w;
    waits->last = &w->next;
}

static void waits_finish(struct sandbox_waits *waits, const struct problem *p)
{
    struct sandbox_wait *list = waits->first;
    waits->first = NULL;
    waits->last = &waits->first;
    for (struct sandbox_wait *w = list, *next; w; w = next) {
        next = w->next;
        w->done(w, p);
    }
}

/* Tells everyone who waits now; who starts to wait meanwhile is not told. */
void sandbox_fail_waiting(struct sandbox *sb, const struct problem *p)
{
    struct sandbox_use *last = sb->waiting ? container_of(sb->waiting_last, struct sandbox_use, next) : NULL;
    while (sb->waiting) {
        struct sandbox_use *u = sb->waiting;
        bool stop = u == last;
        lifecycle_leave(u);
        u->failed(u, p);
        if (stop)
            break;
    }
}

void sandbox_ask_keeper(struct sandbox *sb, enum keeper_type type, int fd, keeper_done *done)
{
    struct keeper_request request = {.type = type};
    memcpy(request.id, sb->id, sizeof request.id);
    if (type == KEEPER_START) {
        memcpy(request.image, sb->config.image, sizeof request.image);
        request.limits = sb->config.limits;
        request.network = sb->config.reach.network;
        sandbox_reach_policy(&sb->config.reach, &request.policy);
        network_starting(sb->lifecycle->config.networks, sb);
        if (sb->config.settings.hostname)
            (void)snprintf(request.hostname, sizeof request.hostname, "%s", sb->config.settings.hostname);
        (void)sandbox_settings_volumes(&sb->config.settings, request.volumes);
    }
    sb->keeper_pending++;
    keeper_link_send(sb->lifecycle->config.link, &request, fd, done, sb);
}

/* ------------------------------------------------------------------ starting */

static void start_problem(const struct sandbox *sb, const struct keeper_reply *reply, struct problem *p)
{
    switch (reply->error) {
    case ENOENT:
        (void)problem_set(p, 404, "IMAGE_NOT_FOUND", "there is no image '%s'", sb->config.image);
        break;
    case ESTALE:
        (void)problem_set(p, 409, "IMAGE_STALE", "%s", reply->message);
        break;
    case ENODEV:
        (void)problem_set(p, 404, "VOLUME_NOT_FOUND", "%s", reply->message);
        break;
    case ENOTBLK:
        (void)problem_set(p, 422, "VOLUME_PATH_INVALID", "%s", reply->message);
        break;
    case ENONET:
        (void)problem_set(p, 422, "NETWORK_UNAVAILABLE", "%s", reply->message);
        break;
    case EAGAIN:
    case ENOSPC:
    case ENOMEM:
        (void)problem_set(p, 429, "HOST_FULL", "the host has no room for another sandbox: %s",
                          reply->message);
        p->retry_after_s = 5;
        break;
    default:
        (void)problem_set(p, 500, "SANDBOX_START_FAILED", "the sandbox could not be started: %s",
                          reply->message);
        break;
    }
}

static void start_failed(struct sandbox *sb, const struct problem *p)
{
    log_warn("sandbox %s: %s", sb->id, p->message);
    sandbox_tell(sb, SANDBOX_EVENT_FAILED, p->message);
    agent_lost(sb);
    if (sb->established) {
        set_state(sb, SANDBOX_ASLEEP);
    } else {
        sb->unannounced = false;
        sandbox_withdraw(sb);
        set_state(sb, SANDBOX_ABSENT);
    }
    sandbox_fail_waiting(sb, p);
    sandbox_advance(sb);
}

static void now_running(struct sandbox *sb, uint64_t generation, int fd)
{
    bool same_life = sb->pool.generation == generation;
    sb->unfreezable &= same_life;
    sb->established = true;
    sb->idle_since_us = clock_mono_us();
    agent_pool_open(&sb->pool, generation, fd);
    set_state(sb, SANDBOX_RUNNING);
    sandbox_idle_arm(sb);
    sandbox_tell_running(sb, same_life);
    sandbox_advance(sb);
}

/* Its network is there: requests may come. */
static void network_ready(struct sandbox *sb)
{
    sb->keeper_pending--;
    now_running(sb, sb->coming.generation, take_fd(sb->coming.fd));
}

static void started(void *arg, const struct keeper_reply *reply, int fd)
{
    struct sandbox *sb = arg;
    struct problem p;
    auto_close int owned = fd;

    sb->keeper_pending--;
    if (reply->error == 0 && reply->generation) {
        sb->unrecorded = !reply->durable;
        sb->coming.generation = reply->generation;
        sb->coming.fd = take_fd(owned);
        sb->keeper_pending++;
        network_up(sb->lifecycle->config.networks, sb, reply, sb->pool.generation == reply->generation,
                   network_ready);
        return;
    }
    start_problem(sb, reply, &p);
    start_failed(sb, &p);
}

/* A new sandbox belongs to whoever asks first. Others may be here already, because they met the one before
 * it. */
static void take_owner(struct sandbox *sb)
{
    struct problem p;
    memcpy(sb->owner, sb->waiting->owner, sizeof sb->owner);
    (void)problem_set(&p, 404, "SANDBOX_NOT_FOUND", "there is no sandbox '%s'", sb->id);
    for (struct sandbox_use *u = sb->waiting, *next; u; u = next) {
        next = u->next;
        if (u->owner[0] && strcmp(u->owner, sb->owner) != 0) {
            lifecycle_leave(u);
            u->failed(u, &p);
        }
    }
}

static void start_begins(struct sandbox *sb)
{
    sb->before = sb->state;
    sb->start_began_us = clock_mono_us();
    set_state(sb, SANDBOX_STARTING);
}

void sandbox_begin_start(struct sandbox *sb)
{
    struct error e;
    struct problem p;
    auto_close int env_fd = -1;

    start_begins(sb);
    if (sb->before == SANDBOX_ABSENT)
        take_owner(sb);
    if (!sb->on_disk && !sb->ticket)
        sandbox_save(sb, &sb->config);
    const struct lifecycle_config *config = &sb->lifecycle->config;
    if (sandbox_config_boot_fd(&sb->config, config->shared, config->shared_bytes, &env_fd, &e) < 0) {
        (void)problem_set(&p, 500, "SANDBOX_START_FAILED", "the sandbox could not be started: %s", e.msg);
        start_failed(sb, &p);
        return;
    }
    sandbox_ask_keeper(sb, KEEPER_START, env_fd, started);
}

/* ------------------------------------------------------------------ freezing */

static void thawed(void *arg, const struct keeper_reply *reply, int fd)
{
    struct sandbox *sb = arg;
    close_fd(&fd);
    sb->keeper_pending--;
    if (reply->error == 0 && sb->pool.generation) {
        now_running(sb, sb->pool.generation, -1);
        return;
    }
    set_state(sb, SANDBOX_ASLEEP); /* the start that follows finds out what became of it */
    agent_lost(sb);
    sandbox_advance(sb);
}

static void begin_thaw(struct sandbox *sb)
{
    start_begins(sb);
    sandbox_ask_keeper(sb, KEEPER_THAW, -1, thawed);
}

static void frozen(void *arg, const struct keeper_reply *reply, int fd)
{
    struct sandbox *sb = arg;
    close_fd(&fd);
    sb->keeper_pending--;
    if (reply->error == EOPNOTSUPP)
        sb->lifecycle->cannot_freeze = true;
    if (reply->error)
        sb->unfreezable = true; /* the keeper waited for it: once in its life is enough */
    if (reply->error && sb->state == SANDBOX_FROZEN) { /* otherwise the thaw behind it decides */
        log_info("sandbox %s: not frozen: %s", sb->id, reply->message);
        begin_thaw(sb); /* it may be half frozen */
    }
    sandbox_reap_later(sb);
}

void sandbox_freeze(struct sandbox *sb)
{
    set_state(sb, SANDBOX_FROZEN);
    sandbox_tell(sb, SANDBOX_EVENT_FROZEN, "idle");
    sandbox_ask_keeper(sb, KEEPER_FREEZE, -1, frozen);
}

/* ------------------------------------------------------------------ sleeping */

static void stopped(void *arg, const struct keeper_reply *reply, int fd)
{
    struct sandbox *sb = arg;
    close_fd(&fd);
    sb->keeper_pending--;
    if (reply->error)
        log_warn("sandbox %s: could not be put to sleep: %s", sb->id, reply->message);
    set_state(sb, SANDBOX_ASLEEP);
    if (sb->stop_reason)
        sandbox_tell(sb, SANDBOX_EVENT_ASLEEP, sb->stop_reason);
    sandbox_advance(sb);
}

static void begin_end(struct sandbox *sb, enum keeper_type type, const char *reason)
{
    sb->stop_reason = reason;
    set_state(sb, SANDBOX_STOPPING);
    agent_lost(sb);
    /* an ephemeral one forgets: its row stays, so that the next use finds the same settings and no files */
    sandbox_ask_keeper(sb, sb->config.ephemeral ? KEEPER_DESTROY : type, -1, stopped);
}

void sandbox_begin_stop(struct sandbox *sb, const char *reason)
{
    enum keeper_type type = sb->abrupt ? KEEPER_KILL : KEEPER_STOP;
    sb->abrupt = false;
    begin_end(sb, type, reason);
}

void sandbox_give_up(struct sandbox *sb, const char *why)
{
    sandbox_tell(sb, SANDBOX_EVENT_FAILED, why);
    begin_end(sb, KEEPER_KILL, NULL);
}

/* ------------------------------------------------------------------ destroying */

static void destroy_failed(struct sandbox *sb, const char *why)
{
    struct problem p;
    (void)problem_set(&p, 500, "SANDBOX_DESTROY_FAILED", "the sandbox could not be removed: %s", why);
    log_error("sandbox %s: %s", sb->id, p.message);
    sb->doomed = false; /* no endless attempts; the next destroy or restart tries again */
    set_state(sb, SANDBOX_ASLEEP);
    waits_finish(&sb->destroys, &p);
    sandbox_advance(sb);
}

/* From here on the id is as good as new. */
static void row_deleted(void *arg, uint64_t ticket, int err)
{
    struct sandbox *sb = arg;
    struct sandbox_config fresh;
    (void)ticket;
    sb->store_pending--;
    if (err == 0)
        err = sandbox_config_copy(&fresh, &sb->lifecycle->config.defaults);
    if (err < 0) {
        destroy_failed(sb, "its record stays on disk");
        return;
    }
    if (!sb->unannounced)
        sandbox_tell(sb, SANDBOX_EVENT_DESTROYED, sb->doomed ? "not recorded" : "requested");
    network_forget(sb->lifecycle->config.networks, sb); /* the next owner of this id must not read its log */
    sandbox_config_done(&sb->config);
    sandbox_config_done(&sb->next_config);
    sb->config = fresh;
    sb->has_next_config = sb->established = sb->on_disk = sb->unrecorded = sb->doomed = sb->dirty = false;
    sb->unannounced = false;
    sb->ticket = 0;
    sb->created_ms = sb->last_used_ms = clock_wall_ms();
    sb->owner[0] = '\0';
    set_state(sb, SANDBOX_ABSENT);
    waits_finish(&sb->destroys, NULL);
    sandbox_advance(sb);
}

static void destroyed(void *arg, const struct keeper_reply *reply, int fd)
{
    struct sandbox *sb = arg;
    close_fd(&fd);
    sb->keeper_pending--;
    if (reply->error && reply->error != ENOENT) {
        destroy_failed(sb, reply->message);
        return;
    }
    sb->store_pending++;
    (void)store_delete(sb->lifecycle->config.store, sb->id, row_deleted, sb);
}

static void begin_destroy(struct sandbox *sb)
{
    set_state(sb, SANDBOX_DESTROYING);
    agent_lost(sb);
    sandbox_ask_keeper(sb, KEEPER_DESTROY, -1, destroyed);
}

/* ------------------------------------------------------------------ what is wanted */

void lifecycle_keeper_event(struct lifecycle *lc, const struct keeper_reply *event)
{
    struct sandbox *sb = lifecycle_table_find(lc, event->id);
    if (sb && event->type == KEEPER_EVENT_DURABLE) {
        sandbox_keeper_recorded(sb, event);
        return;
    }
    if (event->type != KEEPER_EVENT_EXIT || !sb || !sandbox_alive(sb) ||
        sb->pool.generation != event->generation)
        return; /* of an earlier life, or its end was asked for */
    log_info("sandbox %s: ended by itself with %u", sb->id, event->exit_code);
    sb->exit_code = event->exit_code;
    sandbox_tell(sb, SANDBOX_EVENT_EXITED, NULL);
    if (sb->config.ephemeral) {
        sandbox_begin_stop(sb, "exited");
        return;
    }
    set_state(sb, SANDBOX_ASLEEP);
    agent_lost(sb);
    sandbox_advance(sb);
}

static void serve_waiting(struct sandbox *sb)
{
    while (sb->state == SANDBOX_RUNNING && sb->waiting && !sandbox_is_going(sb) && !sb->sleeps.first) {
        struct sandbox_use *u = sb->waiting;
        lifecycle_leave(u);
        u->sandbox = sb;
        sb->holding++;
        sandbox_pulse_arm(sb);
        u->ready(u);
    }
}

/* Nothing is there: who wanted it gone has it, who wanted it asleep cannot have it. */
static void advance_absent(struct sandbox *sb)
{
    struct problem p;
    waits_finish(&sb->destroys, NULL);
    (void)problem_set(&p, 404, "SANDBOX_NOT_FOUND", "there is no sandbox '%s'", sb->id);
    waits_finish(&sb->sleeps, &p);
    if (sb->waiting)
        sandbox_begin_start(sb);
    else
        sandbox_reap_later(sb);
}

void sandbox_advance(struct sandbox *sb)
{
    if (sb->state == SANDBOX_STARTING || sb->state == SANDBOX_STOPPING || sb->state == SANDBOX_DESTROYING)
        return; /* the reply in flight decides */
    if (sb->state == SANDBOX_ABSENT) {
        advance_absent(sb);
        return;
    }
    if (sb->destroys.first || sb->doomed) {
        begin_destroy(sb);
        return;
    }
    if (sb->sleeps.first && sandbox_alive(sb)) {
        sandbox_begin_stop(sb, "requested");
        return;
    }
    if (sb->state == SANDBOX_ASLEEP)
        waits_finish(&sb->sleeps, NULL);
    if (!sb->waiting)
        return;
    if (sb->state == SANDBOX_RUNNING)
        serve_waiting(sb);
    else if (sb->state == SANDBOX_FROZEN)
        begin_thaw(sb);
    else if (sb->state == SANDBOX_ASLEEP)
        sandbox_begin_start(sb);
}

void sandbox_found(struct sandbox *sb, enum sandbox_state state, uint64_t generation)
{
    sb->established = true;
    sb->idle_since_us = clock_mono_us();
    put_state(sb, state);
    if (sandbox_alive(sb))
        agent_pool_open(&sb->pool, generation, -1);
    sandbox_idle_arm(sb);
}

/* ------------------------------------------------------------------ by name */

struct sandbox *lifecycle_find(struct lifecycle *lc, const char *id)
{
    struct sandbox *sb = lifecycle_table_find(lc, id);
    return sb && sb->state != SANDBOX_ABSENT ? sb : NULL;
}

bool sandbox_is_going(const struct sandbox *sb)
{
    return sb->state == SANDBOX_DESTROYING || sb->destroys.first || sb->doomed;
}

struct sandbox *lifecycle_create(struct lifecycle *lc, const char *id, const struct sandbox_config *config)
{
    struct sandbox *sb = lifecycle_table_find(lc, id);
    if (!sb)
        return lifecycle_table_add(lc, id, config);
    struct sandbox_config copy;
    if (sandbox_config_copy(&copy, config) < 0)
        return NULL;
    sandbox_config_done(&sb->config);
    sb->config = copy;
    sandbox_reap_later(sb);
    return sb;
}

void sandbox_destroy_wait(struct sandbox *sb, struct sandbox_wait *w)
{
    waits_add(&sb->destroys, w);
}

bool lifecycle_destroy(struct lifecycle *lc, const char *id, struct sandbox_wait *w)
{
    struct sandbox *sb = lifecycle_find(lc, id);
    if (!sb)
        return false;
    waits_add(&sb->destroys, w);
    sandbox_advance(sb);
    return true;
}

bool lifecycle_sleep(struct lifecycle *lc, const char *id, struct sandbox_wait *w)
{
    struct sandbox *sb = lifecycle_find(lc, id);
    if (!sb)
        return false;
    waits_add(&sb->sleeps, w);
    sandbox_advance(sb);
    return true;
}

bool lifecycle_kill(struct lifecycle *lc, const char *id, struct sandbox_wait *w)
{
    struct sandbox *sb = lifecycle_find(lc, id);
    if (sb)
        sb->abrupt = sandbox_alive(sb) || sb->state == SANDBOX_STARTING;
    return lifecycle_sleep(lc, id, w);
}
