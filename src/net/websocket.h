/* SPDX-License-Identifier: Apache-2.0 */
/* websocket.h: one WebSocket connection (RFC 6455, either role) over a socket that HTTP has let go of.
 *
 * Rules of life
 * - Messages come whole; nothing more is read while the receiver has paused. Sending never blocks: above
 *   send_high ws_send says so, and `drain` tells when there is room again.
 * - `closed` comes once, unless the owner ended the connection himself with ws_close or ws_free. In all three
 *   cases the owner must not use the connection any more; the closing handshake is carried out behind his
 * back, within bounded time.
 * - Nothing calls back from inside a call the owner makes.
 * - Extensions are never negotiated, so a set reserved bit is an error. */
#pragma once

#include "net/http.h"
#include "net/ws_frame.h"

struct ws;

/* All connections of one owner, also those that are saying goodbye. Zero-initialised is empty. */
struct ws_group {
    struct ws *first;
    size_t count;
};
void ws_group_free(struct ws_group *g); /* drops them all, without callbacks */

struct ws_ops {
    void (*message)(struct ws *w, bool text, char *data,
                    size_t n);   /* text is UTF-8; may be changed in place */
    void (*drain)(struct ws *w); /* may be NULL */
    /* By the peer (its code, WS_CODE_NONE without), by an error of his (the code he was told), or lost. */
    void (*closed)(struct ws *w, int code, const char *reason);
};

struct ws_config {
    struct loop *loop;
    struct ws_group *group;
    const struct ws_ops *ops;
    void *user;
    enum ws_role role;
    size_t message_max;   /* a larger one ends the connection with 1009 */
    int ping_ms, drop_ms; /* 0: WS_PING_MS and WS_DROP_MS */
};

enum {
    WS_SEND_HIGH = 256 * 1024,
    WS_SEND_LOW = 64 * 1024,
    WS_PING_MS = 104 * 1000, /* of silence, then we ask ... */
    WS_DROP_MS = 120 * 1000, /* ... and then it is lost */
    WS_END_MS = 30 * 1000,   /* for the closing handshake and what was queued before it */
    WS_LINGER_MS = 2000,     /* for the peer to close its side when all is said */
};

/* Takes fd; `rest` holds bytes received behind the handshake and is emptied. On failure fd is closed. */
int ws_new(const struct ws_config *config, int fd, struct buf *rest, struct ws **ret);

/* The server's side of the handshake: 0, or the status to refuse the request with and a sentence. */
int ws_handshake_check(const struct http_request *req, const char **why);
/* Refuses with that status (426 names the version). */
void ws_handshake_refuse(struct http_request *req, int status, const char *why);
/* For a request that ws_handshake_check has passed: takes its socket and answers 101. -errno: the request and
 * its socket are gone. */
int ws_accept(const struct ws_config *config, struct http_request *req, struct ws **ret);

enum { WS_KEY_SIZE = 25, WS_ACCEPT_SIZE = 29 };
int ws_make_key(char out[WS_KEY_SIZE]); /* a client's random key; 0 or -errno */
void ws_accept_of(const char *key, char out[WS_ACCEPT_SIZE]);

void *ws_user(const struct ws *w);
/* true: there is room for more. The bytes are taken in any case. */
bool ws_send(struct ws *w, enum ws_opcode opcode, const void *data, size_t n);
bool ws_has_room(const struct ws *w);
void ws_pause(struct ws *w);
void ws_resume(struct ws *w);
/* Says goodbye behind everything that is queued; a reason beyond 123 bytes is cut between characters. */
void ws_close(struct ws *w, int code, const char *reason);
/* The same, but the owner waits for `closed`; nothing else is called or sent any more. */
void ws_fail(struct ws *w, int code, const char *reason);
void ws_free(struct ws *w); /* drops it at once; NULL is fine */
