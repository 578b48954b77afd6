/* SPDX-License-Identifier: Apache-2.0 */
/* spawner.h: the process that creates all user processes, as children of the agent.
 *
 * It lives in the workload's control group, so what it creates is born there and no control group has to be
 * written per command. It is the workload's equal, not the agent's: its answers are checked. */
#pragma once

#include "agent/account.h"
#include "agent/list.h"
#include "agent/reaper.h"
#include "net/loop.h"

#include <sys/resource.h>

struct spawner;

struct spawner_config {
    struct loop *loop;
    struct reaper *reaper;
    bool confine; /* rlimits, capabilities and oom score of a sandbox's workload for everything spawned */
    struct rlimit nofile; /* what processes get when not confined; the agent raises its own */
    /* The descriptor on which a fresh spawner asks to be placed, -1: not connected now (the start waits for
     * spawner_connected). NULL: no placement. */
    int (*control_fd)(void *arg);
    void *arg;
};

int spawner_new(const struct spawner_config *config, struct spawner **ret, struct error *reterr);
void spawner_free(struct spawner *sp); /* pending requests are forgotten without a callback */

/* Whose processes they are from now on; copied. Before the first: root's. */
void spawner_use(struct spawner *sp, const struct account *account);

void spawner_connected(struct spawner *sp); /* there is a new control connection */
void spawner_placed(struct spawner *sp);    /* the keeper has answered PLACED */

enum spawn_stage { SPAWN_STAGE_NONE, SPAWN_STAGE_FORK, SPAWN_STAGE_CWD, SPAWN_STAGE_EXEC };

struct spawn {
    /* Once, from the loop; on failure pid is 0 and err the positive errno of that stage. */
    void (*done)(struct spawn *s, pid_t pid, int err, enum spawn_stage stage);

    /* private */
    struct list link;
    struct spawner *spawner;
    uint32_t seq;
    bool sent, terminal;
    char *blob;
    size_t blob_len;
    uint32_t argc, envc;
    int fds[3];
    uint64_t tag;
    const struct account *account;
};

struct spawn_target {
    const char *path;
    const char *const *argv; /* NULL-terminated */
    char *const *env;        /* NULL-terminated, NULL: empty */
    const char *cwd;         /* NULL: "/" */
    int fds[3];    /* 0, 1, 2 of the new process; -1: /dev/null. Taken over and closed, also on failure */
    bool terminal; /* descriptor 0 becomes the controlling terminal of its session */
    uint64_t tag;  /* process_tag.h; 0: none */
    const struct account
        *account; /* whose process it is; must stay until it is started. NULL: as all others */
};

/* 0, or -ENOMEM, -E2BIG, -EAGAIN (too many requests wait); then there is no callback. */
int spawner_spawn(struct spawner *sp, struct spawn *s, const struct spawn_target *target,
                  void (*done)(struct spawn *s, pid_t pid, int err, enum spawn_stage stage));
void spawner_cancel(struct spawn *s); /* no callback any more; the process may start all the same */

/* Reads the answers that are there; for the reaper, which must know new pids before it meets their ends. */
void spawner_poll(struct spawner *sp);
