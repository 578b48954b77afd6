/* SPDX-License-Identifier: Apache-2.0 */
/* box_internal.h: shared by box.c (one thing at a time), box_request.c (what is asked) and box_network.c (its
 * network). */
#pragma once

#include "keeper/keeper_internal.h"

enum box_state { BOX_STOPPED, BOX_RUNNING, BOX_BUSY };

struct box {
    struct box *next; /* in its bucket */
    struct keeper *keeper;
    struct ledger_row row;
    enum box_state state;
    bool frozen;
    bool is_new;     /* not in the ledger yet */
    bool committing; /* its row is being written */
    bool network;    /* for its next start */
    bool sidecar;
    struct network_terms terms; /* with network */
    bool lifting;               /* see lift.c; an end waits for that ... */
    bool changing; /* ... and for this: its network is being changed, or its disk read, on a worker; an end
                      waits for that */
    bool saving;   /* its disk is read: nothing runs meanwhile, and `frozen` is how it is to be afterwards */
    struct {
        bool wanted;
        int polite_ms;
        uint64_t remove_disk;
        void (*done)(void *arg);
    } end;              /* once changing is over */
    uint32_t exit_code; /* when it ended by itself last */
    struct sandbox *sb;
    struct disk_hold hold; /* its disk is mounted though nothing runs */
    struct {
        bool listed;
        int64_t until_ms;
        struct box *newer, *older;
    } kept; /* the place in the list of those, while it is STOPPED */
    struct source exit_source, control_source;
    struct settle settle;
    struct pending *first, **last;
    size_t queued;
    struct pending *current; /* the request behind the job under way */
};

/* box.c */
struct box *box_find(struct keeper *k, const char *id);              /* NULL: there is none */
struct box *box_new(struct keeper *k, const struct ledger_row *row); /* NULL: out of memory */
int box_freeze(struct box *b, bool freeze, struct error *reterr);    /* of one that runs */
void box_reply_current(struct box *b, const struct error *e,
                       int fd); /* the request behind the job under way */
/* The sandbox belongs to the id from here on. */
void box_started(struct box *b, struct sandbox *sb);
/* Serves the queue until something keeps the box busy; the last call on it. */
void box_next(struct box *b);
/* The change is over: ends the sandbox if somebody asked for that meanwhile. */
void box_end_if_wanted(struct box *b);
void box_lift(struct box *b); /* lift.c: it runs, and may be low */

void pending_free(struct pending *p); /* NULL is fine */
/* box_save.c */
void box_save(struct box *b); /* the request behind it is the current one */

/* Unmounts the disk of one that sleeps; it is BUSY meanwhile. */
void box_let_go(struct box *b);

/* kept.c */
void kept_put(struct box *b); /* it is STOPPED; does nothing if its disk is not held */
/* What a sandbox that has woken does not need any more. Gone at once or soon: the kernel takes its time. */
void kept_clear(struct keeper *k, struct bare_kit *kit);
void kept_take(struct box *b); /* it becomes BUSY, and what is held is the job's; fine when not listed */

/* box_request.c */
enum keeper_state box_public_state(const struct box *b); /* NULL: there is none */
void box_reply(struct keeper *k, const struct keeper_request *q, const struct box *b, const struct error *e,
               int fd);
void box_refuse(struct keeper *k, const struct keeper_request *q, int code, const char *why);

/* box_network.c */
/* Gives a prepared sandbox the terms of the box, then starts it. */
void box_adapt(struct box *b, struct sandbox *sb);
/* KEEPER_NETWORK and KEEPER_CUT: on a worker, while the sandbox goes on. */
void box_request_network(struct keeper *k, const struct keeper_request *q, struct box *b);
void box_request_allow(struct keeper *k, const struct keeper_request *q, struct box *b);
