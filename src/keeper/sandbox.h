/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox.h: one running sandbox as the kernel knows it: made by a plan that undoes itself, ended without a
 * trace. */
#pragma once

#include "keeper/cgroup.h"
#include "keeper/disk.h"
#include "keeper/host.h"
#include "keeper/network.h"
#include "keeper/proto.h"
#include "keeper/volume.h"

/* What all sandboxes are made from; read-only once the keeper serves. */
struct keeper_env {
    struct host host;
    struct cgroup_host *cgroups;
    struct disk_store *disks;
    struct volume_store *volumes;
    int images_fd;              /* plain directories, such as "base" */
    struct image_store *images; /* NULL: only those */
    int slots_fd;               /* <run>/slots: a directory per slot in use */
    struct network *network;    /* NULL: no sandbox has one */
};

enum { SANDBOX_IDS = 65536 }; /* users and groups of each */

struct berth;

struct sandbox_spec {
    unsigned slot;
    struct berth *berth; /* made before, in this slot and with this network; the start takes it, whatever
                            becomes of it. NULL: it makes its own */
    uint64_t disk;
    bool fresh_disk; /* it is nobody's yet: if it is not held, it is written first; if the start fails, it is
                        removed, held or not */
    struct disk_hold *held_disk; /* it is mounted already, and becomes the sandbox's if the start succeeds;
                                    NULL, or fd -1: not. Read during the start only */
    char image[IMAGE_NAME_MAX + 1];
    struct limits limits;
    bool network;                              /* public addresses; otherwise the loopback interface only */
    const char *hostname;                      /* NULL or "": the usual one; read during the start only */
    const struct keeper_volume_mount *volumes; /* KEEPER_VOLUMES_MAX of them, or NULL; likewise */
    struct network_terms terms;                /* with network */
    bool ipv6;                                 /* likewise: its link has an IPv6 address */
    bool sidecar; /* ... and with this, every connection out of it ends at KEEPER_PORT_CATCHER */
    bool owned;   /* it is claimed at once, and has no record until then */
    bool bare;    /* without a disk: its root is the image, read-only, until somebody moves in */
};

/* What moving into a bare sandbox needs, and leaves behind; -1: none. */
struct bare_kit {
    int userns; /* of the sandbox */
    int lower;  /* the image for it, mounted once more */
    int disk;   /* the mount that its root was made with */
    int guest;  /* the process that has been inside, and may not have ended quite */
};
#define BARE_KIT_NONE  \
    (struct bare_kit)  \
    {                  \
        -1, -1, -1, -1 \
    }
/* Every mount takes the kernel a moment: for whoever has one. */
void bare_kit_done(struct bare_kit *kit);

struct sandbox {
    struct sandbox_spec spec;
    char id[SANDBOX_ID_MAX + 1]; /* "": prepared, nobody's yet */
    uint64_t generation;
    pid_t pid;
    int pidfd;
    uint64_t start_time;      /* of the process, in clock ticks: with the pid it names the process for good */
    int control_fd;           /* to the agent, or -1 */
    int64_t control_since_ms; /* its messages are counted, second by second */
    unsigned control_count;
    struct cgroup *cgroup;
    bool low;              /* the agent and who it starts are in the workload's groups, see lift.c */
    struct disk_hold hold; /* its disk; fd -1: bare, or adopted, which has the index only */
    struct bare_kit kit;
    bool young;    /* its disk is so still, see settle.c */
    bool pristine; /* ... and has nothing in place of the image's programs */
    bool adopted;  /* not our child: its exit status is not ours to read ... */
    int told_exit; /* ... but the agent tells it before it ends; -1: not yet */
};

/* All of these may block for milliseconds: worker threads only (which have called host_worker_start), except
 * where said. */
int sandbox_start(struct keeper_env *env, const struct sandbox_spec *spec, struct sandbox **ret,
                  struct error *reterr);
/* Gives a bare sandbox, which nobody has claimed, the disk, volumes and name of spec; slot, limits and
 * network are those it has. A failure ends it and frees sb; -ESRCH: it was dead. */
int sandbox_move_in(struct keeper_env *env, struct sandbox *sb, const struct sandbox_spec *spec,
                    struct error *reterr);
/* Takes over what an earlier keeper left in a slot. -ENOENT: nothing alive there that is ours. */
int sandbox_adopt(struct keeper_env *env, unsigned slot, struct sandbox **ret, struct error *reterr);
/* Ends every process (SIGTERM to the agent first if polite_ms > 0), gives back groups, sockets, devices.
 * Frees sb. The slot's place in the packet filter is the caller's to take back (network_disconnect), it is
 * slow. The disk image stays; with keep_disk it can be used again on return, otherwise the kernel may need
 * another moment to let go of it. With ret_hold it may even stay mounted, without keep_disk as a fresh one;
 * NULL: it must not. Cannot fail: what resists is retried until the deadline and then logged. */
void sandbox_stop(struct keeper_env *env, struct sandbox *sb, int polite_ms, bool keep_disk,
                  struct disk_hold *ret_hold);
/* Removes whatever is left of a slot whose processes are gone or not ours. */
void sandbox_sweep(struct keeper_env *env, unsigned slot);

/* Quick calls, any thread. */
int sandbox_claim(struct keeper_env *env, struct sandbox *sb, const char *id, int env_fd,
                  struct error *reterr);
int sandbox_connect(struct keeper_env *env, const struct sandbox *sb, int *ret_fd, struct error *reterr);
/* One message on control_fd (which is readable): places a new spawner. -EPIPE: the agent closed it. -EBADMSG:
 * what it says is nothing an agent says. */
int sandbox_control(struct sandbox *sb, struct error *reterr);
/* How the first process ended, which it has: its status, or 128 + signal. */
uint32_t sandbox_exit_code(struct sandbox *sb);
uint32_t sandbox_uid(const struct keeper_env *env, unsigned slot);
