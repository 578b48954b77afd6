/* SPDX-License-Identifier: Apache-2.0 */
/* terminal.h: what the files of the terminals (/ws/pty) share.
 *
 * terminal.c is the terminal itself: the shell on its pty, the replay buffer, input and output.
 * terminal_start.c brings it up, terminal_client.c is one client's WebSocket. */
#pragma once

#include "agent/agent.h"
#include "agent/list.h"
#include "agent/process_tag.h"
#include "net/websocket.h"

enum {
    TERMINAL_REPLAY = 256 * 1024,
    TERMINAL_PIECE = 32 * 1024,      /* of output in one frame */
    TERMINAL_INPUT_HIGH = 64 * 1024, /* above: nothing more is read from the clients */
    TERMINAL_INPUT_MAX = 4 << 20,    /* whoever goes beyond all the same is sent away */
    TERMINAL_MESSAGE_MAX = 1 << 20,
    TERMINAL_DRAIN_MS = 250, /* for output on its way when the shell is gone but others hold its tty */
    TERMINALS_MAX = 256,
    TERMINAL_CLIENTS_MAX = 64,
};

/* OPENING  the session's lock, environment and the new process are waited for; input is kept
 * RUNNING  there is a shell
 * ENDED    no longer the session's; lives until the last client has heard everything */
enum terminal_state { TERMINAL_OPENING, TERMINAL_RUNNING, TERMINAL_ENDED };

struct terminal {
    struct list link; /* of the agent */
    struct agent *agent;
    char *session;
    enum terminal_state state;
    int master; /* -1: none */
    struct source source;
    struct child child;
    struct timer timer;
    pid_t pid; /* 0: gone */
    struct process_tag tag;
    int code;
    bool exited, hung_up;
    uint16_t cols, rows;
    struct terminal_start *start; /* while OPENING */

    char *ring;          /* TERMINAL_REPLAY bytes */
    uint64_t begin, end; /* positions in all output ever; the ring holds what is between */
    struct buf input;
    struct list clients; /* struct terminal_client */
    size_t client_count;
    bool input_full;
};

struct terminal_client {
    struct list link;
    struct terminal *terminal;
    struct ws *ws;
    uint64_t sent; /* position */
    bool ready;    /* has been told so */
};

/* terminal.c */
struct terminal *terminal_find(struct agent *a, const char *session);
struct terminal *terminal_new(struct agent *a,
                              const char *session);           /* OPENING; NULL: too many, or no memory */
void terminal_run(struct terminal *t, pid_t pid, int master); /* OPENING to RUNNING */
void terminal_fail(struct terminal *t, const char *why);      /* OPENING to its end */
void terminal_settle(struct terminal *t); /* something changed: which events matter? May free t */
bool terminal_input(struct terminal *t, const char *data, size_t n); /* false: too much */
void terminal_resize(struct terminal *t, uint16_t cols, uint16_t rows);
void terminal_copy(const struct terminal *t, uint64_t from, char *out, size_t n);
void terminals_free(struct agent *a);

/* terminal_start.c: leads to terminal_run or terminal_fail, not before it returns. */
void terminal_start(struct terminal *t, const char *shell);
void terminal_start_cancel(struct terminal *t);

/* terminal_client.c */
void terminal_accept(struct agent *a, struct http_request *req);
void client_ready(struct terminal_client *c);                   /* the terminal runs */
void client_pump(struct terminal_client *c);                    /* there is output, or the end; may free c */
void client_refuse(struct terminal_client *c, const char *why); /* frees c */
void client_drop(struct terminal_client *c, int code, const char *why); /* frees c */
void client_free(struct terminal_client *c);
