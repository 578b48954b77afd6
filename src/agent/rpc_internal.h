/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_internal.h: what the files of /rpc share. The theory of operation is in rpc.c. */
#pragma once

#include "agent/inner_http.h"
#include "agent/rpc.h"
#include "agent/rpc_methods.h"
#include "agent/rpc_wire.h"
#include "agent/ws_events.h"

enum {
    RPC_BUCKETS = 256,
    RPC_ENTRIES_MAX = 16384, /* of one connection, not released; beyond: the session is over */
    RPC_RUNNING_MAX = 1024,  /* calls of one connection under way; further ones wait ... */
    RPC_RUNNING_FREE = 64,   /* ... and when memory is used up already these */
    RPC_NEEDS_MAX = 64,      /* references in one expression */
    RPC_EXPORTS_MAX = 4096,  /* things of the peer's in one message */
    RPC_ANSWER_MAX = 128 << 20,
    RPC_HELD_MAX = 256 << 20, /* of all connections: answers, waiting calls, pieces of streams not written */
    RPC_WINDOW = 1 << 20,     /* of a stream: sent and not acknowledged */
    RPC_WRITE_COST = 256,     /* what a message weighs in the window besides its text */
    RPC_FRAME = 64 * 1024,    /* a message's own text around what it carries */
};

/* ------------------------------------------------------------------ numbers */

struct rpc_node {
    struct list link;
    int64_t id;
};

struct rpc_table {
    struct list buckets[RPC_BUCKETS];
    size_t count;
};

/* ------------------------------------------------------------------ a connection */

struct rpc {
    struct list link; /* of the agent; the newest is the last */
    struct agent *agent;
    struct ws *ws;
    struct inner_http inner;
    int64_t next_in;      /* the number of the peer's next push, stream or pipe */
    int64_t next_out;     /* ... of ours */
    int64_t next_export;  /* counts down */
    struct rpc_table in;  /* struct rpc_entry: what the peer may name */
    struct rpc_table out; /* struct rpc_sent: what we wait for */
    struct list calls;    /* under way */
    size_t running;
    struct list waiting; /* calls that are not under way yet */
    struct list ready;   /* entries whose value can be told as soon as the peer reads */
    struct deferred turn;
    bool blocked; /* the peer does not read */
    bool over;    /* the last message has been said */
};

/* A message of ours that the peer answers with resolve or reject. */
struct rpc_sent {
    struct rpc_node node;
    struct list link; /* of whoever waits */
    /* Once; the node is out of the table already and freed afterwards. NULL: nobody cares any more. */
    void (*answered)(struct rpc_sent *s, bool ok, const struct json_value *expr);
    struct rpc *rpc;
    struct rpc_call *call;
    size_t bytes;
};

/* CALL    the value of a push or stream message
 * PIPE    the writable end of a stream from the peer
 * TARGET  a part of the API: the main object (0), or what the peer got by reading a property */
enum rpc_entry_kind { RPC_ENTRY_CALL, RPC_ENTRY_PIPE, RPC_ENTRY_TARGET };
enum rpc_state { RPC_PENDING, RPC_RESOLVED, RPC_REJECTED };

struct rpc_entry {
    struct rpc_node node;
    struct rpc *rpc;
    enum rpc_entry_kind kind;
    int64_t refs;   /* the peer's */
    unsigned holds; /* ours */
    struct list ready;

    enum rpc_state state;
    bool pulled, told;
    bool once;             /* of a stream message: forgotten when told */
    struct buf value;      /* an expression */
    size_t held;           /* bytes counted by rpc_keep */
    size_t hole;           /* where the number of its stream goes; 0: it has none */
    struct rpc_call *call; /* which makes the value, or the stream in it; NULL: nobody */
    const char *target; /* TARGET, and a CALL whose value is one: "" (everything), "files", "files.exists" */

    struct rpc_inlet *inlet; /* PIPE */
};

void rpc_table_init(struct rpc_table *t);
void rpc_table_add(struct rpc_table *t, struct rpc_node *n, int64_t id);
void rpc_table_remove(struct rpc_table *t, struct rpc_node *n);
struct rpc_node *rpc_table_find(const struct rpc_table *t, int64_t id);

/* rpc_entry.c */
struct rpc_entry *rpc_entry_new(struct rpc *r, enum rpc_entry_kind kind, int64_t id);
struct rpc_entry *rpc_entry_find(struct rpc *r, int64_t id);
void rpc_entry_hold(struct rpc_entry *e);
void rpc_entry_drop(struct rpc_entry *e); /* NULL is fine */
/* Gives the entry its value (an expression, taken over) and tells it when the peer has asked. */
void rpc_entry_settle(struct rpc_entry *e, enum rpc_state state, struct buf *value);
void rpc_entry_resolve_text(struct rpc_entry *e, const char *expr);
/* An error of ours; code NULL: without. */
void rpc_entry_fail(struct rpc_entry *e, const char *name, const char *code, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
void rpc_entry_pull(struct rpc_entry *e);
/* The peer has dropped its last reference, or the connection is over. */
void rpc_entry_forget(struct rpc_entry *e);
void rpc_entries_flush(struct rpc *r); /* the peer reads again */
void rpc_entries_free(struct rpc *r);

/* rpc.c */
void rpc_turn(struct deferred *d); /* of r->turn */
/* One message; false: the peer does not read, whoever can wait should. */
bool rpc_send(struct rpc *r, const char *text, size_t n);
bool rpc_send_buf(struct rpc *r, struct buf *out); /* empties it; a failure of memory ends the session */
void rpc_send_release(struct rpc *r, int64_t id, int64_t count);
void rpc_send_failed(struct rpc *r); /* memory is short: the peer must not wait in vain */
/* Registers the next message of ours that has a number. NULL: memory is short. */
struct rpc_sent *rpc_sent_new(struct rpc *r, struct rpc_call *call,
                              void (*answered)(struct rpc_sent *s, bool ok, const struct json_value *expr));
void rpc_abort(struct rpc *r, const char *name, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Tells the peer that we need none of the things which it has sent along, and stops its streams. */
void rpc_refuse_things(struct rpc *r, const struct json_value *expr);

/* ------------------------------------------------------------------ calls */

struct rpc_call {
    struct list link; /* of r->calls or r->waiting */
    struct rpc *rpc;
    struct rpc_entry *entry; /* held; NULL: nobody wants the value any more */
    const struct rpc_method *method;
    struct http_client *client;
    enum rpc_phase {
        RPC_WAITING,   /* for a place, or for the values of others */
        RPC_RESOLVING, /* the path, before a file is sent or received */
        RPC_ASKING,    /* the request is under way */
        RPC_STREAMING, /* the answer goes out by a pipe */
        RPC_CLOSING,   /* its last message waits for an answer */
    } phase;
    bool started; /* counted in r->running */

    char *later; /* a waiting call: its expression as JSON */
    size_t later_len;
    struct rpc_entry *needs[RPC_NEEDS_MAX]; /* held until the call begins */
    size_t need_count, reference_count;
    int needs_error; /* they cannot be collected: -errno */

    int64_t *exports; /* of the peer's, released at the end */
    size_t export_count;
    size_t held;         /* bytes counted for it */
    struct list starved; /* of the budget */

    char *path;             /* of a file, as sent */
    bool file;              /* the answer is the file itself */
    size_t content_len;     /* writeFile */
    struct rpc_entry *pipe; /* what is uploaded; held */

    int status;
    bool is_stream, is_json, too_large;
    struct buf answer;

    int64_t pipe_id; /* RPC_STREAMING: ours */
    size_t unacknowledged;
    bool source_over;
    struct list sent; /* struct rpc_sent, not answered yet */

    struct rpc_callbacks *callbacks; /* runCodeStream */
};

/* rpc_call.c */
/* Evaluates the expression of a push (or stream) message for its entry. */
void rpc_evaluate(struct rpc_entry *e, const struct json_value *expr);
void rpc_calls_turn(struct rpc *r); /* begins what can begin */
/* Ends a call: gives back what it holds. Its entry must have been settled, or be of no interest. */
void rpc_call_free(struct rpc_call *c);
void rpc_call_settle(struct rpc_call *c, enum rpc_state state, struct buf *value); /* and frees it */
void rpc_call_fail(struct rpc_call *c, const char *code, const char *fmt, ...) PRINTF_LIKE(3, 4);
void rpc_call_released(struct rpc_call *c); /* nobody will ask for its value */
void rpc_call_release_exports(struct rpc_call *c);
void rpc_call_resume(struct rpc_call *c); /* the peer reads again */

/* rpc_budget.c */
bool rpc_hold(struct rpc *r, size_t n); /* counts bytes that wait; false: there are too many */
void rpc_unhold(struct rpc *r, size_t n);
void rpc_keep(struct rpc *r, size_t n); /* the same for a value that is there */
void rpc_unkeep(struct rpc *r, size_t n);
bool rpc_has_place(const struct rpc *r);   /* for another call to begin */
void rpc_call_reserve(struct rpc_call *c); /* it begins */
/* Counts a piece of the call's answer; false: its source must stop, it is resumed when there is room. */
bool rpc_call_take(struct rpc_call *c, size_t n);
void rpc_call_fed(struct rpc_call *c); /* gives back all that was taken for it */
void rpc_budget_done(struct agent *a);

/* rpc_answer.c */
/* Sends the request of a call; its answer settles it. */
void rpc_ask(struct rpc_call *c, const char *verb, const char *target, const struct buf *body,
             int64_t content_length);

/* rpc_stream.c: the answer of a call as a stream to the peer */
void rpc_outlet_start(struct rpc_call *c); /* its entry's value has just been told */
void rpc_outlet_data(struct rpc_call *c, const char *data, size_t n);
void rpc_outlet_end(struct rpc_call *c, int err);

/* rpc_inlet.c: a stream from the peer */
struct rpc_inlet *rpc_inlet_new(struct rpc_entry *e);
void rpc_inlet_free(struct rpc_inlet *in);
/* A call of write, close or abort, for the entry op, which is settled when it is done. */
void rpc_inlet_call(struct rpc_inlet *in, struct rpc_entry *op, const struct rpc_reference *ref);
void rpc_inlet_use(struct rpc_inlet *in, struct rpc_call *c); /* c reads it from now on */
bool rpc_inlet_is_free(const struct rpc_inlet *in);
void rpc_inlet_begin(struct rpc_inlet *in); /* the request of c has been sent */
void rpc_inlet_drained(struct rpc_inlet *in);
void rpc_inlet_refuse(struct rpc_inlet *in, const char *why); /* nobody reads it any more */
void rpc_inlet_lost(struct rpc_inlet *in);                    /* the peer has released it */

/* rpc_callbacks.c: runCodeStream */
int rpc_callbacks_new(struct rpc_call *c, const struct json_value *functions);
void rpc_callbacks_data(struct rpc_call *c, const char *data, size_t n);
void rpc_callbacks_end(struct rpc_call *c, int err);
void rpc_callbacks_free(struct rpc_callbacks *cb); /* NULL is fine */
