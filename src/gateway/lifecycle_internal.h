/* SPDX-License-Identifier: Apache-2.0 */
/* lifecycle_internal.h: shared by lifecycle.c (the state machine), lifecycle_table.c (which sandboxes there
 * are), lifecycle_use.c (who uses them), lifecycle_commit.c (what is on disk), lifecycle_idle.c (freezing and
 * sleeping) and lifecycle_pulse.c (is the agent alive). */
#pragma once

#include "gateway/lifecycle.h"

enum {
    SANDBOXES_MAX = 100000,
    WAITING_MAX = 1024,    /* requests that wait for one start */
    TOUCH_DELAY_MS = 5000, /* how long a time of last use may be unwritten */
};

struct lifecycle {
    struct lifecycle_config config;
    uint64_t hash_seed;
    struct sandbox **buckets;
    size_t bucket_mask, count;
    struct lifecycle_stats stats;
    bool cannot_freeze; /* the host has no freezer: not asked again */
    struct timer touch;
};

/* lifecycle_table.c */
/* Any record, also of an ABSENT one. */
struct sandbox *lifecycle_table_find(struct lifecycle *lc, const char *id);
/* A new record in state ABSENT, which is freed from the loop unless it is used; NULL: too many, or no memory.
 */
struct sandbox *lifecycle_table_add(struct lifecycle *lc, const char *id,
                                    const struct sandbox_config *config);
void sandbox_touch(struct sandbox *sb);      /* used now */
void sandbox_reap_later(struct sandbox *sb); /* forgotten from the loop if nobody needs it then */

/* lifecycle.c */
/* The state found at start. */
void sandbox_found(struct sandbox *sb, enum sandbox_state state, uint64_t generation);
/* The one place where the next step is decided. */
void sandbox_advance(struct sandbox *sb);
void sandbox_begin_start(struct sandbox *sb); /* also of one that seems to run, and does not */
void sandbox_fail_waiting(struct sandbox *sb, const struct problem *p);
bool sandbox_alive(const struct sandbox *sb); /* RUNNING or FROZEN */
void sandbox_ask_keeper(struct sandbox *sb, enum keeper_type type, int fd, keeper_done *done);
/* Ends the processes of an alive one (idle): ASLEEP when done. reason: for the event. */
void sandbox_begin_stop(struct sandbox *sb, const char *reason);
/* RUNNING, and the agent does not live: killed, reported as failed. */
void sandbox_give_up(struct sandbox *sb, const char *why);
void sandbox_freeze(struct sandbox *sb); /* RUNNING and idle */

/* lifecycle_tell.c */
void sandbox_tell(struct sandbox *sb, enum sandbox_event event, const char *reason);
/* Tells of a new sandbox, once both its records are on disk. */
void sandbox_announce(struct sandbox *sb);
/* A start is over. same_life: it ran all the time. */
void sandbox_tell_running(struct sandbox *sb, bool same_life);

/* lifecycle_commit.c */
/* Writes the row; sb->ticket is set until it is done. */
void sandbox_save(struct sandbox *sb, const struct sandbox_config *config);
void sandbox_withdraw(struct sandbox *sb); /* of a start that failed: the row, and those who waited for it */
void sandbox_keeper_recorded(struct sandbox *sb, const struct keeper_reply *event);

/* lifecycle_idle.c: both timers by state, configuration and time of last use; also stops them. */
void sandbox_idle_arm(struct sandbox *sb);
void sandbox_idle_stop(struct sandbox *sb); /* it no longer runs */

/* lifecycle_pulse.c */
void sandbox_pulse_arm(struct sandbox *sb); /* somebody began to use it */
void sandbox_pulse_stop(struct sandbox *sb);
