/* SPDX-License-Identifier: Apache-2.0 */
/* fake_agent.h: a scripted agent for the gateway's tests: says what it saw, or misbehaves as the path asks.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* What all connections of one sandbox share. */
struct fake_sandbox {
    char id[64];
    struct fake_sandbox *next;
    pthread_mutex_t mutex;
    bool running, frozen;
    unsigned background;        /* processes it claims to run */
    uint64_t wedged_generation; /* of the life in which it answers nothing any more */
    uint64_t generation;
    unsigned starts, connects, requests, malformed, hangups; /* counted over all generations */
    char env[4096]; /* "A=1\nB=2\n", as handed over at the last start */
    unsigned env_len;
    int conns[2048]; /* descriptors of living connections, so that the end of the sandbox can cut them */
    unsigned conn_count;
    void (*died)(struct fake_sandbox *s); /* the agent asks to be reported as ended */
};

/* Serves fd (owned) in a thread of its own until either side closes. */
void fake_agent_serve(struct fake_sandbox *s, int fd);
/* Cuts every connection, as the end of all processes would. */
void fake_agent_cut(struct fake_sandbox *s);
