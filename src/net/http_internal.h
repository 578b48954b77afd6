/* SPDX-License-Identifier: Apache-2.0 */
/* http_internal.h: what the files of the HTTP server share: the server and its connections.
 *
 * http_server.c accepts and counts, http_conn.c lives through a connection's events and parses requests,
 * http_deadline.c ends what takes too long, http_request.c and http_response.c are the handler's side. */
#pragma once

#include "net/http_parse.h"
#include "net/outq.h"

#include <time.h>

enum {
    HTTP_DISCARD_MAX = 64 * 1024, /* of a body nobody wants, to keep the connection */
    HTTP_LINGER_BYTES = 4 * 1024 * 1024,
    HTTP_LINGER_MS = 2000,
    HTTP_SEND_NOW = 16 * 1024, /* smaller pieces wait for the end of the batch, to go out together */
    HTTP_HEAD_OUT_MAX = 256 * 1024,
    HTTP_PEER_BUCKETS = 256,
};

/* How many connections one address has. */
struct peer {
    struct peer *next;
    unsigned char address[16];
    size_t count;
};

struct http_server {
    struct http_server_config config;
    struct loop *loop;
    struct listener *listeners;
    struct conn *conns; /* those that came, or began to wait for a request, last come first */
    struct conn *oldest;
    size_t conn_count;
    uint64_t collected; /* bytes in the bodies of all connections */
    size_t refs;        /* the owner's and one per connection whose memory lives */
    struct buf head;    /* the response head being built */
    struct peer *peers[HTTP_PEER_BUCKETS];
    uint64_t peer_seed[2];
    int spare_fd;
    struct timer accept_pause;
    time_t date_second;
    char date[64];
    bool stopping;
};

/* HEAD  waiting for a request
 * BODY  a request's body is not completely received
 * DONE  the request is completely received, its answer is not finished */
enum conn_input { INPUT_HEAD, INPUT_BODY, INPUT_DONE };

enum conn_timing { TIMING_NONE, TIMING_IDLE, TIMING_HEAD, TIMING_BODY, TIMING_STALL, TIMING_LINGER };

enum conn_answer { ANSWER_NONE, ANSWER_LENGTH, ANSWER_CHUNKED, ANSWER_CLOSE, ANSWER_NO_BODY };

struct conn {
    struct http_request req; /* valid while active */
    struct http_server *server;
    struct conn *next, **prev;
    struct peer *peer;
    struct source source;
    struct timer timer;
    struct deferred later;
    struct http_parser parser;
    struct http_head *head; /* of req */
    struct buf in;          /* received, not yet parsed */
    const char *rx;         /* what is being parsed: in `in` or in the loop's scratch */
    size_t rx_len;
    struct outq out;
    int64_t deadline_us; /* 0: none; the timer may be set to an earlier time */

    /* the request body */
    struct http_body_sink sink;
    void (*collected)(struct http_request *req, struct buf *body, int err);
    struct buf body; /* for http_request_collect */
    uint64_t body_max, body_got;
    uint64_t window_got;    /* since the last look at the sender's speed */
    int64_t window_left_us; /* of the time until the next look, while paused */
    uint64_t discarded;     /* of an unwanted body or while lingering */

    /* the answer */
    uint64_t answer_left; /* for ANSWER_LENGTH */

    int status; /* of the answer that was begun, 0: none */

    uint8_t input, timing, answer;
    unsigned busy;              /* event handlers on the stack: the memory must stay */
    bool dead;                  /* closed; freed when no longer busy */
    bool parsing;               /* inside conn_parse */
    bool waiting;               /* bytes were not parsed because nobody wanted them */
    bool active;                /* the handler owes an answer */
    bool begun;                 /* a request was handed out, and config.over has not been called for it */
    bool told;                  /* the server itself has answered: the handler's answer is dropped */
    bool reading, paused;       /* http_request_read_start was called; ... read_pause */
    bool body_ended, too_large; /* on_end was called; will be called with -EMSGSIZE */
    bool crowded;               /* there is no room for more of the collected body */
    bool need_continue;         /* 100 Continue has been asked for and not been sent */
    bool close_after;           /* no further request after this answer */
    bool bare;                  /* the answer goes without the common headers */
    bool swallow;               /* the handler's answer was not fit to be sent: what follows is dropped */
    bool drain_wanted;
    bool closing;   /* closes when everything is sent */
    bool lingering; /* all sent; reads on for a moment so that the peer can read the answer */
    bool broken;    /* sending failed; on_gone is still to be called */
    bool eof;       /* the peer sends no more, there may be unread bytes */
    bool read_end;  /* everything is read, too */
};

/* http_server.c */
void http_server_unref(struct http_server *s);
void http_server_forget(struct http_server *s, struct conn *c);   /* c leaves the list and the counts */
void http_server_remember(struct http_server *s, struct conn *c); /* as the newest */
void http_server_renew(struct http_server *s, struct conn *c);    /* makes it the newest again */

/* http_conn.c */
int conn_new(struct http_server *s, int fd, struct peer *peer,
             const char *name);  /* takes fd on success only */
void conn_gone(struct conn *c);  /* tells the handler, if one waits, and closes */
void conn_close(struct conn *c); /* closes without telling */
void conn_later(struct conn *c); /* look at the connection after the batch of events */
void conn_touch(struct conn *c); /* something changed outside of an event: look at it after the batch */
void conn_request_over(struct conn *c); /* the answer is complete: on to the next request, or the end */
void conn_stop(struct conn *c); /* closes it now if it is idle, else after the request it is busy with */

/* Whoever calls the handler does it between these two: the memory stays, and leaving looks at what changed.
 */
void conn_enter(struct conn *c);
void conn_leave(struct conn *c);
/* The message is bad, or too slow: an answer if it is not too late for one, then the end. */
void conn_bad(struct conn *c, int status, const char *reason, int err);
bool conn_body_wanted(const struct conn *c); /* somebody takes the body's bytes, or they are thrown away */

/* http_deadline.c */
void conn_update_deadline(struct conn *c); /* after an event */

/* http_response.c */
/* Sends an answer of the server's own and closes behind it. */
void conn_refuse(struct conn *c, int status, const char *reason);
/* The bytes of such an answer, for a connection that is not even admitted. */
const struct buf *http_refusal(struct http_server *s, int status, const char *reason, bool body);
