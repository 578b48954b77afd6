/* SPDX-License-Identifier: Apache-2.0 */
/* http_deadline.c: the time limits of the server's connections.
 *
 * Theory of operation
 * One limit counts at a time (enum conn_timing), decided from the state after every event. The time starts
 * when the limit becomes another one, not with every event. One timer per connection serves them all. */
#include "net/http_internal.h"

#include <errno.h>

static void timer_fired(struct timer *t);

static void arm(struct conn *c)
{
    struct loop *l = c->server->loop;
    int64_t left_us = c->deadline_us - loop_now_us(l);
    loop_timer_start(l, &c->timer, MAX(left_us, (int64_t)0) / 1000 + 1, timer_fired);
}

/* The timer is not moved when the deadline moves back (every request does that): it fires early and is set
 * again. */
static void set_deadline(struct conn *c, enum conn_timing timing, int64_t ms)
{
    if (c->timing == (uint8_t)timing)
        return;
    c->timing = (uint8_t)timing;
    c->deadline_us = timing == TIMING_NONE ? 0 : loop_now_us(c->server->loop) + ms * 1000;
    if (c->deadline_us && (!loop_timer_running(&c->timer) || c->timer.deadline_us > c->deadline_us))
        arm(c);
    if (timing == TIMING_IDLE || timing == TIMING_HEAD)
        http_server_renew(c->server, c);
}

static void timed_out(struct conn *c)
{
    const struct http_limits *limits = &c->server->config.limits;
    switch ((enum conn_timing)c->timing) {
    case TIMING_HEAD:
        conn_bad(c, 408, "the request took too long to arrive", -ETIMEDOUT);
        break;
    case TIMING_BODY:
        if (!c->active)
            conn_close(c);
        else if (c->window_got < limits->body_min_bps * (uint64_t)limits->body_grace_ms / 1000)
            conn_bad(c, 408, "the request body arrives too slowly", -ETIMEDOUT);
        else
            c->timing = TIMING_NONE; /* fast enough: conn_settle opens the next window */
        c->window_got = 0;
        c->window_left_us = 0;
        break;
    case TIMING_IDLE:
    case TIMING_STALL:
    case TIMING_LINGER:
        conn_close(c);
        break;
    case TIMING_NONE:
        break;
    }
}

static void timer_fired(struct timer *t)
{
    struct conn *c = container_of(t, struct conn, timer);
    if (!c->deadline_us)
        return;
    if (c->deadline_us > loop_now_us(c->server->loop)) {
        arm(c);
        return;
    }
    conn_enter(c);
    timed_out(c);
    conn_leave(c);
}

/* Time during which the handler does not want to read does not count against the sender. */
static void update_body_deadline(struct conn *c)
{
    const struct http_limits *limits = &c->server->config.limits;
    if (conn_body_wanted(c) && (limits->body_min_bps || !c->active)) {
        int64_t ms = c->window_left_us ? c->window_left_us / 1000 : limits->body_grace_ms;
        set_deadline(c, TIMING_BODY, ms);
        return;
    }
    if (c->timing == TIMING_BODY)
        c->window_left_us = MAX(c->deadline_us - loop_now_us(c->server->loop), (int64_t)1);
    set_deadline(c, TIMING_NONE, 0);
}

void conn_update_deadline(struct conn *c)
{
    const struct http_limits *limits = &c->server->config.limits;
    if (c->lingering)
        set_deadline(c, TIMING_LINGER, HTTP_LINGER_MS);
    else if (!c->active && !outq_empty(&c->out))
        set_deadline(c, TIMING_STALL, limits->idle_timeout_ms);
    else if (c->input == INPUT_BODY)
        update_body_deadline(c);
    else if (c->active)
        set_deadline(c, TIMING_NONE, 0);
    else if (http_parser_midway(&c->parser))
        set_deadline(c, TIMING_HEAD, limits->head_timeout_ms);
    else
        set_deadline(c, TIMING_IDLE, limits->idle_timeout_ms);
}
