/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_budget.h: the bytes that wait in all connections to /rpc together; see rpc_budget.c. */
#pragma once

#include "agent/list.h"
#include "net/loop.h"

struct rpc_call;

struct rpc_budget {
    size_t held;         /* everything */
    size_t kept;         /* of that: values which the peer has not released yet */
    struct list starved; /* struct rpc_call: answers that wait for room */
    struct rpc_call *favoured;
    struct deferred feed;
};
