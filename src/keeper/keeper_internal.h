/* SPDX-License-Identifier: Apache-2.0 */
/* keeper_internal.h: the keeper's parts and how they know each other: boxes (one per id), the pool of
 * prepared sandboxes, the line to the gateway. All of it lives on the loop's thread. */
#pragma once

#include "keeper/keeper.h"
#include "keeper/ledger.h"
#include "keeper/sandbox.h"
#include "net/loop.h"
#include "net/worker.h"

enum { BOX_QUEUE_MAX = 64, BOX_BUCKETS = 1024 };

struct keeper;
struct box;

struct pending { /* a request that waits for its box */
    struct keeper_request request;
    int fd;     /* environment or -1 */
    bool again; /* what was started for it was dead when it was to be claimed */
    struct pending *next;
};

enum pool_kind {
    POOL_WHOLE, /* for a new sandbox */
    POOL_BARE,  /* without a disk, for one that has its own: it wakes */
    POOL_KINDS
};

struct pool {
    struct shelf {
        struct sandbox *ready[KEEPER_POOL_MAX];
        size_t count, building;
        bool impossible; /* with this image */
    } shelves[POOL_KINDS];
    bool stopped;     /* shutting down */
    int64_t retry_ms; /* not before this time, after a failure */
    struct timer retry;
    int64_t pause_ms; /* until then somebody may need the processors more */
    struct timer pause;
};

struct kept { /* boxes whose disk stays mounted while they sleep, see kept.c */
    struct box *newest, *oldest;
    size_t count;
    struct timer expiry; /* of the oldest */
};

struct spare_disks { /* see spare_disks.c */
    struct spare_disk {
        uint64_t number;
        struct disk_hold hold;
    } disks[KEEPER_POOL_MAX];
    size_t count;
    struct timer timer;
};

struct berths { /* see berths.c */
    struct berth_job *waiting[KEEPER_BERTHS_MAX];
    size_t count, building;
};

struct trim { /* see trim.c */
    struct timer timer;
    struct job job;
    unsigned removed;
    bool under_way;
};

struct keeper {
    const struct keeper_config *config;
    struct loop *loop;
    struct keeper_env env;
    struct workers *builders;
    struct workers *enders;   /* apart from the builders: an end somebody waits for must not queue behind the
                                 pool's refill */
    struct workers *settlers; /* one thread: nobody waits for it */
    struct workers *imagers;  /* a thread for each image worker, and some for questions */
    struct image_job *image_jobs; /* those with a worker */
    size_t image_long, image_short;
    struct ledger *ledger;
    int disks_fd, volumes_fd;
    struct box *boxes[BOX_BUCKETS];
    size_t box_count, jobs; /* jobs: builds and ends under way */
    size_t volume_jobs;     /* of them: about volumes */
    uint64_t next_disk;
    unsigned char *slot_used;
    unsigned next_slot; /* where the search for a free one begins */
    struct pool pool;
    struct kept kept;
    struct spare_disks spares;
    struct berths berths;
    struct trim trim;
    struct source gateway; /* our end of the socketpair */
    int gateway_fd;
    struct outgoing *outbox, **outbox_last; /* replies that wait for room in the socket */
    size_t outbox_len;
    struct source gateway_exit; /* its pidfd */
    int gateway_pidfd;
    unsigned gateway_life; /* which one it is: an answer is for the one that asked */
    struct timer gateway_restart;
    int docker_fd;        /* listening, for the gateway: <run>/docker.sock, root's alone */
    int tls_fd;           /* a memfd, see tls_files.h; -1: no TLS */
    struct source filter; /* tells of changes of the packet filter (keeper_filter.c) */
    int filter_fd;
    struct timer filter_retry;
    int64_t meminfo_ms; /* when the host's state was read last */
    bool host_full;
    char host_full_why[128];
    bool stopping;
};

/* slots and admission (keeper.c) */
int keeper_slot_take(struct keeper *k, unsigned *ret, struct error *reterr);
void keeper_slot_release(struct keeper *k, unsigned slot);
bool keeper_slots_scarce(const struct keeper *k);         /* nobody should take one before he needs it */
int keeper_admit(struct keeper *k, struct error *reterr); /* is there room for one more? */
void keeper_idle(struct keeper *k); /* a job ended: refill the pool, or finish a shutdown */

/* boxes (box.c; requests: box_request.c) */
void box_request(struct keeper *k, const struct keeper_request *q, int fd); /* takes fd */
int box_restore(struct keeper *k, const struct ledger_row *row); /* at start: a row of the ledger */
bool box_adopt(struct keeper *k, struct sandbox *sb);            /* at start: false when no row names it */
bool box_knows_disk(struct keeper *k, uint64_t disk);
bool box_runs_on(struct keeper *k, uint64_t disk);
bool box_uses_image(struct keeper *k, const char *image);
void box_stop_all(struct keeper *k);
void box_forget_all(struct keeper *k);

/* disks that live long (settle.c) */
struct settle { /* embedded in a box */
    struct timer timer;
    struct keeper *keeper;
    struct sandbox *sb;
};
void settle_later(struct keeper *k, struct settle *s, struct sandbox *sb); /* if its disk is young */
void settle_cancel(struct settle *s); /* fine when there is nothing to cancel */

/* devices of disks that are gone (trim.c) */
void trim_later(struct keeper *k);

/* disks that stay mounted (kept.c) */
void kept_release(struct keeper *k, size_t leave); /* all but that many, the longest asleep first */

/* disks that are fresh again (spare_disks.c) */
bool spare_disks_wanted(const struct keeper *k, const struct limits *l);
/* The number of one of this size, which is mounted, or else of one that is to be made. */
uint64_t spare_disks_take(struct keeper *k, const struct limits *l, struct disk_hold *ret);
void spare_disks_put(struct keeper *k, uint64_t number, const struct disk_hold *hold);
void spare_disks_release(struct keeper *k); /* all of them */

/* images (keeper_image.c) */
int keeper_images_start(struct keeper *k, int (*start)(void *arg, struct error *reterr),
                        struct error *reterr);
void keeper_images_clean(struct keeper *k); /* what an earlier keeper left half done */
void keeper_images_stop(struct keeper *k);  /* ends the workers; their jobs end soon */
void image_request(struct keeper *k, const struct keeper_request *q, int *fd); /* takes *fd if it needs it */
/* IMPORT, EXPORT, SAVE. disk: what a sandbox has written, 0: none; shared: it is mounted. done(arg) after the
 * answer; < 0: it was refused, and done is not called. */
int keeper_image_start(struct keeper *k, const struct keeper_request *q, int *fd, const char *image,
                       uint64_t disk, bool disk_shared, void (*done)(void *arg), void *arg);
void keeper_image_save_refuse(struct keeper *k, const struct keeper_request *q, const struct error *e);

/* volumes (keeper_volume.c) */
void volume_request(struct keeper *k, const struct keeper_request *q);

/* pool (pool.c) */
void pool_refill(struct keeper *k);
void pool_used(struct keeper *k); /* something prepared was taken, by whoever will be busy now */
/* Enough is left for the moment; then pool_refill is called again when it is over. */
bool pool_can_wait(struct keeper *k, size_t left, size_t wanted);
struct sandbox *pool_take(struct keeper *k, enum pool_kind kind, const char *image,
                          const struct limits *limits, bool network);
void pool_failed(struct keeper *k); /* to make one: the next try has to wait */
void pool_stop(struct keeper *k);

/* places for sandboxes that are not from the pool (berths.c) */
struct berth;
void berths_refill(struct keeper *k); /* by pool_refill */
/* One for a sandbox with this network, whose slot is taken for it; or NULL. */
struct berth *berths_take(struct keeper *k, bool network, const struct network_terms *terms);
void berths_stop(struct keeper *k);

/* line to the gateway (link.c) */
int link_start(struct keeper *k, struct error *reterr);
void link_stop(struct keeper *k);
void link_reload(struct keeper *k); /* the certificates may have changed */
void link_reply(struct keeper *k, const struct keeper_reply *reply, int fd); /* fd stays the caller's */

/* the packet filter (keeper_filter.c) */
void keeper_filter_watch(struct keeper *k); /* it is put back when somebody removes it */
void keeper_filter_forget(struct keeper *k);

/* On a worker: ends sb (NULL: it does not run) and then removes the disk, or makes a spare one of it (0: it
 * is kept, free to be used again). hold: with sb, where to say that its disk stays mounted (NULL: it must
 * not); without, what is to be let go (NULL: nothing). done(arg) on the loop; the slot is released. */
void keeper_end_sandbox(struct keeper *k, struct sandbox *sb, int polite_ms, uint64_t remove_disk,
                        struct disk_hold *hold, void (*done)(void *arg), void *arg);
