/* SPDX-License-Identifier: Apache-2.0 */
/* context_process.h: one interpreter process: its channel, its outputs, its end.
 *
 * STARTING  there are descriptors but no process yet
 * RUNNING   messages and output arrive
 * DEAD      `died` has been or is about to be called; only context_process_free remains
 * Languages make processes (context_python.c, context_node.c); contexts use them (context.c). */
#pragma once

#include "agent/agent.h"
#include "agent/context_frames.h"
#include "agent/process_tag.h"
#include "agent/tap.h"

enum context_language { CONTEXT_PYTHON, CONTEXT_JAVASCRIPT, CONTEXT_TYPESCRIPT, CONTEXT_LANGUAGES };

struct contexts;
struct context_process;

struct context_process_ops {
    void (*message)(struct context_process *p, struct frame *f);
    void (*output)(struct context_process *p, int stream, const char *data, size_t n); /* stream: 0 or 1 */
    /* Once, last, from the loop: it has ended, or could not be started. All it had said has been delivered.
     */
    void (*died)(struct context_process *p);
};

enum context_process_state { PROCESS_STARTING, PROCESS_RUNNING, PROCESS_DEAD };

struct context_process {
    struct agent *agent;
    enum context_language language;
    enum context_process_state state;
    const struct context_process_ops *ops;
    void *owner;
    struct list link;                             /* of the language */
    void (*abandoned)(struct context_process *p); /* of the language: it is freed; may be NULL */
    bool loading;                                 /* of context_node.c: it has not said anything yet */
    bool spare;                                   /* ... and: it was started before it was asked for */

    struct source channel;
    int channel_fd;
    struct frame_parser parser;
    struct buf unsent;
    struct tap taps[2];
    bool paused;

    pid_t pid;
    struct process_tag tag; /* of everything it forks */
    struct source pidfd;    /* .fd -1: none */
    struct child child;     /* when it is our child */
    struct spawn spawn;     /* while it is being spawned */
    struct timer patience;  /* ended, but how is not known yet */
    struct deferred end;
    int code;          /* of exit; < 0: signal -code; PROCESS_CODE_UNKNOWN */
    char failure[200]; /* why it could not be started; "": it ran */
    bool ending, mute, freed;
};

enum { PROCESS_CODE_UNKNOWN = -1000 };

/* A process to be: peer[0..2] are its channel, output and error, to be given to it. -errno with a sentence.
 */
int context_process_new(struct agent *a, enum context_language language, int socket_type, int peer[3],
                        struct context_process **ret, struct error *reterr);
/* It runs. pidfd (taken over) tells its end; -1: it is our child and the reaper does. */
void context_process_started(struct context_process *p, pid_t pid, int pidfd);
void context_process_failed(struct context_process *p, const char *fmt, ...) PRINTF_LIKE(2, 3);
void context_process_exited(struct context_process *p, int code); /* somebody knows how it ended */
void context_process_adopted(struct context_process *p); /* its parent is gone: it is our child now */

const char *context_process_nonce(const struct context_process *p);
int context_process_send(struct context_process *p, const void *data, size_t n); /* 0, -ENOBUFS or -ENOMEM */
void context_process_interrupt(struct context_process *p); /* SIGINT for it and its group */
void context_process_drain(struct context_process *p);     /* delivers the output that is there */
void context_process_pause(struct context_process *p);     /* nothing is read: it will have to wait */
void context_process_resume(struct context_process *p);
/* "exited with code 3", "was killed by SIGSEGV" or the failure. */
void context_process_epitaph(const struct context_process *p, char *out, size_t cap);
/* Kills it and all that descends from it; no callback any more. NULL is fine. */
void context_process_free(struct context_process *p);
