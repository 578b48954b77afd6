/* SPDX-License-Identifier: Apache-2.0 */
/* context_internal.h: what the files of the code contexts share. */
#pragma once

#include "agent/context.h"
#include "agent/context_process.h"
#include "base/json.h"

enum {
    CONTEXTS_MAX = 256,
    CONTEXT_ID_SIZE = 37,            /* a UUID and its NUL */
    CONTEXT_RUNS_MAX = 1000,         /* waiting in one context */
    CONTEXT_IDLE_MS = 5 * 60 * 1000, /* interpreters kept ready for no context end after this time */
};

/* The process that has everything loaded; see runtime/python/zygote.py. */
struct zygote {
    struct source source;
    int fd;     /* -1: not running */
    bool ready; /* it has loaded everything */
    struct child child;
    struct spawn spawn;
    struct tap err; /* its complaints */
    char words[512];
    struct list waiting;   /* struct fork_request, in the order of the requests */
    struct list processes; /* struct context_process made by it, by their link */
};

/* Node processes of one language that have no context yet; see context_node.c. */
struct node_pool {
    struct list spares; /* struct context_process, by their link; the oldest first */
    size_t wanted;      /* how many there should be; 0: the language has not been used */
};

struct contexts {
    struct agent *agent;
    struct list all; /* struct context, in order of creation */
    size_t count[CONTEXT_LANGUAGES];
    struct context *defaults[CONTEXT_LANGUAGES];
    struct zygote zygote;
    struct node_pool pools[CONTEXT_LANGUAGES]; /* of JavaScript and TypeScript */
    size_t loading; /* Node processes that are starting, with a context or without */
    struct timer refill_timer, surplus_timer, idle_timer;
};

/* A process of this language for ops and owner. It may be running already; if it cannot be started `died`
 * comes, from the loop. -errno with a sentence: there is not even an attempt. */
int context_python_get(struct contexts *cs, struct context_process **ret, struct error *reterr);
int context_node_get(struct contexts *cs, enum context_language language, struct context_process **ret,
                     struct error *reterr);
void context_python_stop(struct contexts *cs);
void context_node_loaded(struct context_process *p); /* it has answered for the first time */
void context_node_shrink(struct contexts *cs, enum context_language language, size_t wanted);
void context_node_stop(struct contexts *cs);
void context_python_wedged(struct contexts *cs); /* it has not answered in time */

/* A number of milliseconds from the environment; the fallback when it is not set, or nothing like that. */
int64_t context_setting_ms(const struct agent *a, const char *name, int64_t fallback);
/* A file of the runtime; false when it is not installed. */
bool context_find_runtime(const struct agent *a, const char *file, char *out, size_t cap);

struct context {
    struct list link;
    struct contexts *contexts;
    struct agent *agent;
    char id[CONTEXT_ID_SIZE];
    enum context_language language;
    char *cwd;
    struct env_list env;
    int64_t timeout_ms;          /* of a run; -1: none */
    int64_t created_ms, used_ms; /* wall time */

    struct context_process *process; /* NULL: none; the next run starts one */
    bool ready;                      /* it has answered init */
    bool born;                       /* ... at least once */
    bool lost;                       /* it ended by itself and nobody has been told */
    char epitaph[400];
    struct timer start_timer;
    void (*created)(struct context *c, const char *why, void *arg); /* waits for `ready`; NULL: nobody does */
    void *created_arg;

    struct code_run *run; /* running now */
    struct list queue;    /* struct code_run */
    size_t waiting;
    uint64_t run_number, count;
    struct buf late[2]; /* printed while nothing ran */
    bool gone;
    struct deferred reclaim;
};

const char *context_language_name(enum context_language language);
bool context_language_parse(const char *name, enum context_language *ret); /* ignores case; false: unknown */
void context_pump(struct context *c);                                      /* a run was queued */

struct code_run_config {
    const char *code;
    size_t len;
    int64_t timeout_ms; /* -1: the context's */
    bool cancel_when_gone;
    enum code_run_form { RUN_FORM_SSE, RUN_FORM_BARE, RUN_FORM_BOTH } form;
};

/* Queues a run whose events answer req. -errno: not queued, nothing was answered. */
int code_run_submit(struct context *c, struct http_request *req, const struct code_run_config *config);
/* For context.c: */
void code_run_start(struct code_run *run); /* the process is ready and free */
void code_run_output(struct code_run *run, int stream, const char *data, size_t n);
void code_run_message(struct code_run *run, struct frame *f);
/* Ends a run which the interpreter will not end: in the stream, or as an HTTP error if it has not begun. */
void code_run_fail(struct code_run *run, const char *code, const char *ename, const char *sentence);
void code_run_interrupt(struct code_run *run);
struct code_run *code_run_first(
    struct context *c); /* takes the first waiting run out of the queue; NULL: none */
void code_run_refuse(struct http_request *req, const char *code, const char *context_id, const char *evalue,
                     const char *fmt, ...) PRINTF_LIKE(5, 6);

/* For context_run.c: */
void context_run_over(struct context *c); /* c->run was freed: the next may start */
void context_restart(struct context *c);  /* kills the process; the next run starts another */
