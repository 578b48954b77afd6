/* SPDX-License-Identifier: Apache-2.0 */
/* process.h: background processes: the record, the output, the end. Streams are processes with a listener.
 *
 * A process in a session is a subshell of the session's shell (shell_start); sessionless it is a bash of its
 * own. Its output goes to two spools, from where every reader reads at its own pace. */
#pragma once

#include "agent/command_request.h"
#include "agent/session.h"
#include "agent/tap.h"

enum process_status {
    PROCESS_RUNNING,
    PROCESS_COMPLETED, /* exit code 0 */
    PROCESS_FAILED,    /* another one */
    PROCESS_KILLED,    /* 137, 143, or through the API */
    PROCESS_STATUS_COUNT,
};

enum {
    PROCESS_RECORDS_MAX = 4096,  /* beyond: the oldest finished one is forgotten */
    PROCESS_AHEAD_MAX = 4 << 20, /* how far a live stream's command may run ahead of its slowest reader */
    PROCESS_LOG_MIN = 4 << 20,   /* SILICA_LOG_LIMIT: bytes kept per output, the newest */
};
#define PROCESS_LOG_DEFAULT (1ULL << 30)

struct process;

/* Somebody who follows a process; embedded. Called after every change: more output, or the end. */
struct process_watcher {
    void (*changed)(struct process_watcher *w);
    struct list link;
    uint64_t offset[2]; /* read so far; what holds back the command of a live stream */
};

struct process_failure {
    const struct session_fault *fault; /* NULL: sessionless */
    const char *why;                   /* sessionless: a sentence */
};

struct process {
    const char *id, *command; /* these three are the request's */
    const char *session_id;   /* AGENT_SESSIONLESS without one */
    bool sessionless;
    enum process_status status;
    pid_t pid;
    int exit_code; /* when ended */
    int64_t started_ms, ended_ms;
    bool ended; /* exit code known, output complete */
    struct spool *spools[2];
    uint64_t run; /* random: tells this process from an earlier one with the same id; never 0 */

    /* private */
    struct agent *agent;
    struct process_tag tag;
    struct list link;    /* in agent->processes unless hidden or replaced */
    struct list running; /* in agent->processes_running, with a reference, from its start to its end */
    unsigned refs;
    struct command_request request;
    struct list watchers;
    struct tap taps[2];
    struct child child;
    struct session_op op;
    struct shell_start start;
    struct spawn spawn;
    struct timer timer;
    bool hidden, live, exited, killed, timed_out;
    bool starting; /* counted in agent->processes_starting */
    int code;
    unsigned number; /* of the FIFOs, 0: none */
    void (*started)(struct process *p, const struct process_failure *failure, void *arg);
    void *arg;
};

struct process_options {
    bool hidden;  /* no record: a sessionless execute */
    bool live;    /* the command waits for slow readers */
    bool timeout; /* the request's timeoutMs counts (sessionless only) */
    /* Once: it runs (failure NULL), or p is about to vanish. Whoever wants to keep p takes a reference. */
    void (*started)(struct process *p, const struct process_failure *failure, void *arg);
    void *arg;
};

/* Takes over *request. 0, or -ENOMEM, -EAGAIN (too many run) and no callback. started may be called before
 * this returns. */
int process_start(struct agent *a, struct command_request *request, const struct process_options *options);

struct process *process_find(struct agent *a, const char *id);
/* Drops the oldest record of a process that has ended; false: there is none. */
bool process_forget_oldest(struct agent *a);
struct process *process_find_run(struct agent *a, uint64_t run);
struct process *process_ref(struct process *p);
void process_unref(struct process *p);

void process_watch(struct process *p, struct process_watcher *w);
void process_unwatch(struct process *p, struct process_watcher *w);
/* The watcher has advanced: the command may go on. */
void process_advanced(struct process *p);

/* As much of a stream as may be shown: in a session whole lines only until the end. */
uint64_t process_visible_end(const struct process *p, int stream);
const char *process_status_name(const struct process *p);

/* Ends the trees of these running processes, all at once: `signal`, 5 s, SIGKILL. done is called once, when
 * the records are final or the time was not enough: killed counts those that are. 0 or -ENOMEM. */
int processes_kill(struct agent *a, struct process *const *processes, size_t count, int signal,
                   void (*done)(void *arg, size_t killed), void *arg);

/* The pids of the running processes of a session. */
size_t process_pids_of(struct agent *a, const char *session_id, pid_t *out, size_t max);
void processes_free(struct agent *a);

/* Answers a request that cannot be started as it is (blank command or session, a bad variable name); false:
 * it can. */
bool reply_process_refusal(struct http_request *req, const struct command_request *c);
/* The process, or NULL and the request is answered. */
struct process *process_or_refuse(struct agent *a, struct http_request *req, const char *id);
/* Answers a start for which process_start has returned r. */
void reply_process_error(struct http_request *req, int r);
/* Answers a start that failed. */
void reply_process_failure(struct http_request *req, const struct process *p,
                           const struct process_failure *failure);
/* Starts a process for process/start and execute with background:true; takes over *c. */
void process_start_for(struct agent *a, struct http_request *req, struct command_request *c);
