/* SPDX-License-Identifier: Apache-2.0 */
/* lifecycle.h: one owner per sandbox id: created on first use, run, put to sleep, woken, destroyed.
 *
 * A user of a sandbox holds a struct sandbox_use from lifecycle_use until lifecycle_leave; while it does,
 * the sandbox stays awake. Callbacks may come from inside lifecycle_use, never from inside lifecycle_leave.
 */
#pragma once

#include "gateway/agent_pool.h"
#include "gateway/agent_probe.h"
#include "gateway/networks.h"
#include "gateway/problem.h"
#include "gateway/sandbox_config.h"
#include "gateway/store.h"

struct lifecycle;

/* clang-format off */
/*            what it means                          where it may go
 * ABSENT     nothing on the host, nobody promised   STARTING (a request), or forgotten
 * STARTING   one KEEPER_START or _THAW in flight;   RUNNING, ABSENT (failed, was new),
 *            requests wait                          ASLEEP (failed, was known)
 * RUNNING    the agent answers; requests pass       FROZEN (idle for a short while), STOPPING (idle for long, asked to,
 *                                                   or given up), STARTING (takes no connections), ASLEEP (ended by
 *                                                   itself), DESTROYING
 * FROZEN     processes kept, nothing scheduled      STARTING (thaw), RUNNING (the host cannot freeze), STOPPING,
 *                                                   ASLEEP (ended), DESTROYING
 * STOPPING   one KEEPER_STOP in flight; requests    ASLEEP
 *            wait
 * ASLEEP     files kept, no processes               STARTING, DESTROYING
 * DESTROYING being removed from host and disk;      ABSENT, ASLEEP (the keeper could not)
 *            requests wait and get a fresh one */
/* clang-format on */
enum sandbox_state {
    SANDBOX_ABSENT,
    SANDBOX_STARTING,
    SANDBOX_RUNNING,
    SANDBOX_FROZEN,
    SANDBOX_STOPPING,
    SANDBOX_ASLEEP,
    SANDBOX_DESTROYING,
    SANDBOX_STATE_COUNT,
};
const char *sandbox_state_name(enum sandbox_state state);

struct sandbox;

/* One who uses a sandbox, or waits until it runs. */
struct sandbox_use {
    void (*ready)(struct sandbox_use *u);                           /* u->sandbox runs */
    void (*failed)(struct sandbox_use *u, const struct problem *p); /* it does not; u is free again */
    struct sandbox *sandbox;                                        /* NULL: neither waits nor holds */
    struct sandbox_use *next, **prev;                               /* prev NULL: holds */
    char owner[TOKEN_ID_CHARS + 1]; /* owns what this use creates, and may use only that; "": may use any */
    bool by_engine;                 /* may start a container's sandbox */
};

/* One who waits for a destroy or a sleep to end. */
struct sandbox_wait {
    void (*done)(struct sandbox_wait *w, const struct problem *p); /* p NULL: it is gone, or asleep */
    struct sandbox_wait *next;
};

struct sandbox_waits {
    struct sandbox_wait *first, **last;
};

/* One who must not answer before the row and the keeper's record are on disk. */
struct sandbox_commit {
    void (*done)(struct sandbox_commit *c, const struct problem *p); /* p NULL: it is */
    struct sandbox *sandbox;
    struct sandbox_commit *next, **prev; /* prev NULL: not waiting */
};

/* What the world is told. */
enum sandbox_event {
    SANDBOX_EVENT_CREATED,
    SANDBOX_EVENT_STARTED, /* for the first time; later: WOKEN */
    SANDBOX_EVENT_FROZEN,
    SANDBOX_EVENT_THAWED,
    SANDBOX_EVENT_ASLEEP,
    SANDBOX_EVENT_WOKEN,
    SANDBOX_EVENT_DESTROYED,
    SANDBOX_EVENT_EXITED, /* ended by itself; its files are kept */
    SANDBOX_EVENT_FAILED, /* did not start, or was given up */
    SANDBOX_EVENT_COUNT,
};
const char *sandbox_event_name(enum sandbox_event event);

/* Upper bounds of the buckets of start times; the last counts everything. */
enum { START_BUCKETS = 13 };
extern const int64_t start_bucket_us[START_BUCKETS];

struct lifecycle_stats {
    uint64_t states[SANDBOX_STATE_COUNT]; /* how many there are now */
    uint64_t events[SANDBOX_EVENT_COUNT]; /* how many there were */
    uint64_t start_times[START_BUCKETS + 1];
    uint64_t start_us;
};

struct sandbox {
    char id[SANDBOX_ID_MAX + 1];
    char owner[TOKEN_ID_CHARS + 1]; /* the token that made it, "": nobody's in particular */
    struct lifecycle *lifecycle;
    struct sandbox *hash_next;
    enum sandbox_state state;
    struct sandbox_config config;
    int64_t created_ms, last_used_ms;
    struct keeper_usage usage;         /* what the keeper said last */
    struct box_network *network;       /* NULL: it never had one */
    bool is_container;                 /* the container engine's: starts only when that says so */
    unsigned exit_code;                /* of its first process, when it ended by itself last */
    bool established;                  /* ran once or was found at start: a failed start does not remove it */
    bool on_disk;                      /* its row is on disk */
    bool unrecorded;                   /* the keeper's own record of it is not on disk yet */
    bool doomed;                       /* one of the two could not be written: remove it */
    bool dirty;                        /* last_used_ms is newer than the row's */
    uint64_t ticket;                   /* of the write of its row that is in flight, 0 = none */
    struct sandbox_config next_config; /* takes effect when that write is done */
    bool has_next_config;
    unsigned store_pending, keeper_pending; /* callbacks that will come */
    struct agent_pool pool;
    struct {
        uint64_t generation;
        int fd;
    } coming; /* STARTING: what the keeper gave, while its network is waited for */

    struct sandbox_use *waiting, **waiting_last;
    unsigned waiting_count, holding;
    struct sandbox_waits destroys, sleeps;
    struct sandbox_commit *commits, **commits_last;
    struct deferred reap;

    enum sandbox_state before; /* STARTING: where it comes from */
    int64_t start_began_us;
    bool unannounced;        /* it is new, and the world does not know yet */
    const char *stop_reason; /* STOPPING: for the event; NULL: it was told already */
    bool abrupt;             /* the next stop is a kill */

    int64_t idle_since_us;
    struct timer sleep, freeze;
    bool unfreezable;
    unsigned saving; /* images being made of it: it stands still meanwhile */
    struct {
        int64_t idle_since_us; /* of the idleness that is looked at */
        uint64_t cpu_us;       /* used when it was half over */
    } look;
    struct agent_probe busy_probe;

    int64_t heard_us; /* when the agent said anything, or the silence began */
    struct timer pulse;
    struct agent_probe ping;
    unsigned missed; /* pings in a row */
};

struct lifecycle_config {
    struct loop *loop;
    struct keeper_link *link;
    struct store *store;
    struct networks *networks;      /* NULL: nothing is served to them */
    bool has_network;               /* what sandboxes get that do not say: public, otherwise none */
    struct sandbox_config defaults; /* of sandboxes nobody configured; copied */
    const char *shared;             /* what agents are told in all sandboxes, see sandbox_config_boot_fd */
    size_t shared_bytes;
    int64_t freeze_after_ms; /* idle time after which nothing is scheduled any more; 0: never */
    int64_t silence_ms; /* of an agent that owes an answer, until it is asked whether it lives; 0: never */
    void (*event)(void *arg, const struct sandbox *sb, enum sandbox_event event, const char *reason);
    void (*ready)(void *arg); /* the keeper's list is known: requests may come */
    void *arg;
};

/* Loads the rows, asks the keeper what runs; `ready` is called from the loop. */
int lifecycle_new(const struct lifecycle_config *config, struct lifecycle **ret, struct error *reterr);
/* NULL is fine. Every user must have left, and store and link must be still there; last-used times are queued
 * to the store. */
void lifecycle_free(struct lifecycle *lc);
void lifecycle_keeper_event(struct lifecycle *lc, const struct keeper_reply *event);

/* Makes id run, creating it with the defaults when it does not exist, and calls u->ready or u->failed. */
void lifecycle_use(struct lifecycle *lc, const char *id, struct sandbox_use *u);
void lifecycle_leave(struct sandbox_use *u); /* no longer uses or waits; fine when it does neither */
/* The agent of a RUNNING sandbox did not take a connection: asks the keeper to start it (which finds out),
 * and lets u, which holds it, wait again. */
void lifecycle_use_again(struct sandbox_use *u);
/* The agent said something. */
static inline void sandbox_heard(struct sandbox *sb)
{
    sb->heard_us = loop_now_us(sb->pool.loop);
}

/* A known sandbox (not ABSENT), or NULL. */
struct sandbox *lifecycle_find(struct lifecycle *lc, const char *id);
/* True while a destroy runs or is queued: what exists now will not. */
bool sandbox_is_going(const struct sandbox *sb);
/* Makes the record of a new sandbox (lifecycle_find found none); it starts with its first use. NULL: too
 * many, or no memory. */
struct sandbox *lifecycle_create(struct lifecycle *lc, const char *id, const struct sandbox_config *config);
/* Changes the configuration and writes it; wait with sandbox_commit_wait. 0 or -ENOMEM. */
int lifecycle_configure(struct sandbox *sb, const struct sandbox_config *config);
/* Removes the sandbox and all it has. False when there is none (d is not called). */
bool lifecycle_destroy(struct lifecycle *lc, const char *id, struct sandbox_wait *w);
/* Waits for the end of a destroy that runs or is queued, without asking for one. */
void sandbox_destroy_wait(struct sandbox *sb, struct sandbox_wait *w);
/* Ends the processes and keeps the files, whoever uses it now. False when there is none (w is not called). */
bool lifecycle_sleep(struct lifecycle *lc, const char *id, struct sandbox_wait *w);

/* The same without asking its processes first. */
bool lifecycle_kill(struct lifecycle *lc, const char *id, struct sandbox_wait *w);

/* True when everything that is promised is on disk. */
bool sandbox_is_committed(const struct sandbox *sb);
/* Calls c->done when it is known whether it is, perhaps at once. */
void sandbox_commit_wait(struct sandbox *sb, struct sandbox_commit *c);
void sandbox_commit_cancel(struct sandbox_commit *c); /* fine when not waiting */

const struct sandbox_config *lifecycle_defaults(const struct lifecycle *lc);
bool lifecycle_has_network(const struct lifecycle *lc);
unsigned lifecycle_running(const struct lifecycle *lc); /* and frozen */
const struct lifecycle_stats *lifecycle_stats(const struct lifecycle *lc);
/* Calls each for every known sandbox. each must not create or destroy any. */
void lifecycle_for_each(struct lifecycle *lc, void (*each)(struct sandbox *sb, void *arg), void *arg);
