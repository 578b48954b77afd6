/* SPDX-License-Identifier: Apache-2.0 */
/* agent.h: what the parts of the agent share. */
#pragma once

#include "agent/environ.h"
#include "agent/list.h"
#include "agent/process_tag.h"
#include "agent/reaper.h"
#include "agent/rpc_budget.h"
#include "agent/settings.h"
#include "agent/shell_script.h"
#include "agent/spawner.h"
#include "agent/spool.h"
#include "net/http.h"
#include "net/loop.h"
#include "net/websocket.h"

#define AGENT_WORKSPACE   "/workspace"
#define AGENT_SESSIONLESS "__DISABLE_SESSION__"

enum {
    AGENT_BODY_MAX = 128 << 20,
    AGENT_BODIES_MAX = 256 << 20, /* of all requests together */
    AGENT_HELD_MAX = 256 << 20,   /* commands that wait or run, and the records of processes */
    AGENT_SCRATCH = 256 * 1024,
};

struct agent {
    struct loop *loop;
    struct http_server *server;
    struct reaper *reaper;
    struct spawner *spawner;
    struct spool_pool spools;
    struct settings settings;
    char refusal[160];   /* why nothing may be run; "": it may */
    struct env_list env; /* of the image, with the sandbox's on top; every user process starts from it */

    char fifo_dir[SHELL_DIR_MAX + 1];
    bool own_fifo_dir;
    unsigned shell_number, process_number; /* names of FIFOs; never reused */
    unsigned commands_under_way;           /* in shells */
    struct list sessions;                  /* struct session, in order of creation */
    size_t session_count;
    struct spare_shell *spare_shell; /* NULL: none */
    struct list processes;           /* struct process, in order of creation */
    struct list processes_running;   /* those whose end is awaited, with a record or not */
    size_t process_count, processes_starting;
    size_t held_bytes; /* see command_request.h */
    uint64_t tag_base; /* 0: processes cannot be tagged */
    uint64_t tag_next;
    struct list leftovers; /* struct leftover: pipes nobody listens to any more */
    size_t leftover_count;
    struct shell *spare_next; /* which makes its spare when a process ends, or NULL */
    int64_t last_end_us;      /* of a process of any session */
    unsigned spare_count;     /* processes that wait for something to do, see shell_start.c */

    struct watches *watches;       /* made by the first watch */
    struct exposed_ports *exposed; /* of old clients; made by the first one */

    struct ws_group sockets; /* all WebSockets */
    struct list muxes;       /* struct mux: those that carry requests */
    struct list rpcs;        /* struct rpc: those that carry calls */
    struct rpc_budget rpc_budget;
    struct list terminals; /* struct terminal, one per session at most */
    size_t terminal_count;

    struct list cloudflareds; /* struct cloudflared: tunnels to ports of ours */

    struct contexts *contexts; /* code contexts; NULL until the first */

    struct main_command *main_command; /* of a container; NULL until it is started */
    struct container_execs *execs;     /* of a container; NULL until the first */

    char *scratch; /* AGENT_SCRATCH bytes for whoever reads a pipe or a spool right now */
    struct timer scratch_timer;
    bool scratch_used;

    int64_t command_timeout_ms; /* -1: none */
    bool sandbox;               /* PID 1 of a sandbox, started by the keeper */
    bool soon;                  /* ... because somebody has woken it */
    bool bare;                  /* ... and its root will be another one when it has an owner, ... */
    bool pristine;              /* ... in which nothing is in place of the image's programs */
    bool legacy_03;             /* the client showed a sign of release 0.3 */
    bool version_asked;         /* the client is newer than that */
};

/* The scratch memory; its pages are given back a second after the last use. */
char *agent_scratch(struct agent *a);
/* The value of a variable of the agent's environment, NULL when unset or empty. */
const char *agent_getenv(const struct agent *a, const char *name);
/* Ends the agent, and with it all it has started: with their consent, or (now) without. Once it goes, it
 * goes. */
void agent_end(struct agent *a, int code, bool now);
/* The directory where commands start that ask for none. */
const char *agent_workdir(const struct agent *a);
/* The directory where a shell without (a usable) cwd starts. */
const char *agent_home(const struct agent *a);
