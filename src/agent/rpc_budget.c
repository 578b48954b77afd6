/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_budget.c: how much may wait in memory for the peers of /rpc.
 *
 * Theory of operation
 * Most answers must be one message, so they are collected. All of them together may take RPC_HELD_MAX. When
 * that is used up, the sources of further pieces stop until values have been told and released. It may be
 * used up by answers of which none is complete: so one of the starved answers is favoured and may go beyond
 * the limit, unless it is the peers who keep values and read or release nothing. Then all wait for them.
 *
 * A call that has begun also costs what its request may have in the queues of HTTP, whatever its answer will
 * be; beyond RPC_RUNNING_FREE of a connection calls do not begin when there is no room for that.
 *
 * Small answers are counted, but never wait. */
#include "agent/rpc_internal.h"

enum { RESERVE = 768 * 1024, FREE_BYTES = RESERVE + 4096, PIECE = 64 * 1024, KEPT_MAX = RPC_HELD_MAX / 4 };

static void feed_run(struct deferred *d);

void rpc_budget_init(struct agent *a)
{
    list_init(&a->rpc_budget.starved);
}

static void feed_later(struct agent *a)
{
    loop_defer(a->loop, &a->rpc_budget.feed, feed_run);
}

bool rpc_has_place(const struct rpc *r)
{
    return r->running < RPC_RUNNING_FREE ||
           (r->running < RPC_RUNNING_MAX && r->agent->rpc_budget.held + RESERVE <= RPC_HELD_MAX);
}

void rpc_call_reserve(struct rpc_call *c)
{
    c->held += RESERVE;
    c->rpc->agent->rpc_budget.held += RESERVE;
}

bool rpc_hold(struct rpc *r, size_t n)
{
    struct rpc_budget *b = &r->agent->rpc_budget;
    if (b->held > RPC_HELD_MAX || n > RPC_HELD_MAX - b->held)
        return false;
    b->held += n;
    return true;
}

void rpc_unhold(struct rpc *r, size_t n)
{
    r->agent->rpc_budget.held -= n;
    feed_later(r->agent);
}

void rpc_keep(struct rpc *r, size_t n)
{
    r->agent->rpc_budget.held += n; /* it is there already: no refusing any more */
    r->agent->rpc_budget.kept += n;
}

void rpc_unkeep(struct rpc *r, size_t n)
{
    r->agent->rpc_budget.kept -= n;
    rpc_unhold(r, n);
}

bool rpc_call_take(struct rpc_call *c, size_t n)
{
    struct agent *a = c->rpc->agent;
    struct rpc_budget *b = &a->rpc_budget;
    b->held += n;
    c->held += n;
    if (b->held <= RPC_HELD_MAX || c->held <= FREE_BYTES || b->favoured == c)
        return true;
    if (list_empty(&c->starved))
        list_append(&b->starved, &c->starved);
    feed_later(a);
    return false;
}

void rpc_call_fed(struct rpc_call *c)
{
    struct agent *a = c->rpc->agent;
    list_remove(&c->starved);
    rpc_unhold(c->rpc, c->held);
    c->held = 0;
    if (a->rpc_budget.favoured == c) {
        a->rpc_budget.favoured = NULL;
        feed_later(a);
    }
}

static void feed(struct rpc_call *c)
{
    list_remove(&c->starved);
    http_client_resume(c->client);
}

static void feed_run(struct deferred *d)
{
    struct rpc_budget *b = container_of(d, struct rpc_budget, feed);
    struct agent *a = container_of(b, struct agent, rpc_budget);
    for (size_t held = b->held; held < RPC_HELD_MAX && !list_empty(&b->starved); held += PIECE)
        feed(list_first(&b->starved, struct rpc_call, starved));
    if (!b->favoured && !list_empty(&b->starved) && b->kept <= KEPT_MAX) {
        b->favoured = list_first(&b->starved, struct rpc_call, starved);
        feed(b->favoured);
    }
    list_for_each(i, &a->rpcs) rpc_calls_turn(list_entry(i, struct rpc, link));
}

void rpc_budget_done(struct agent *a)
{
    if (a->loop)
        loop_undefer(a->loop, &a->rpc_budget.feed);
}
