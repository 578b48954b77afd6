/* SPDX-License-Identifier: Apache-2.0 */
/* http.h: HTTP/1.1 server and client on llhttp: strict parsing, pulled bodies, back pressure both ways.
 *
 * Strictness: llhttp in strict mode plus four guards of ours (major version 1 only; no obs-fold; exactly
 * one Host, except CONNECT; no Transfer-Encoding on 1.0), and: no CL+TE, one CL of digits only, TE exactly
 * "chunked", no bare CR or LF, no NUL. After any parse error the server answers 4xx and closes. Chunked
 * bodies are decoded by http_chunked.c, which is stricter than llhttp.
 *
 * Rules of life
 * - A struct http_request is valid from the `request` callback until http_response_end/_abort/http_hijack
 *   was called for it or its on_gone was called, whichever comes first. Requests of one connection are
 * handled one at a time, in order (pipelined ones wait in the receive buffer, which is bounded).
 * - Nothing calls back from inside a call the handler makes, except that http_request_read_start may deliver
 *   already received bytes from the loop's next batch, never before it returns. */
#pragma once

#include "base/buf.h"
#include "base/error.h"
#include "net/loop.h"

#include <strings.h>

struct http_header {
    const char *name;
    const char *value;
};

/* Whether two names are the same; case does not matter. Nearly always one of the first letters tells that
 * they are not, and that is found out here. */
static inline bool http_name_equal(const char *a, const char *b)
{
    size_t i = 0;
    while (a[i] && b[i] && ((a[i] ^ b[i]) & ~0x20) == 0)
        i++;
    return !a[i] && !b[i] && strcasecmp(a, b) == 0;
}
/* Case-insensitive look-up in a header list: the first value or NULL; and how often the name occurs. */
const char *http_header_find(const struct http_header *headers, size_t count, const char *name);
size_t http_header_occurs(const struct http_header *headers, size_t count, const char *name);
/* True when the comma-separated list `value` (NULL is empty) has the element `token`, ignoring case. */
bool http_list_has(const char *value, const char *token);
const char *http_status_text(int status);
/* Decodes the value of `name` in a query string (a=b&c=d; percent and plus) into out; false when absent or
 * not valid UTF-8 without NUL, or longer than cap - 1. */
bool http_query_get(const char *query, const char *name, char *out, size_t cap);

/* ------------------------------------------------------------------ server */

struct http_server;
struct http_request;

struct http_limits {
    size_t line_bytes;      /* request line; beyond: 414 */
    size_t head_bytes;      /* whole head; beyond: 431 */
    size_t header_count;    /* beyond: 431 */
    int head_timeout_ms;    /* from the first byte of a request to the end of its head; then 408 */
    int idle_timeout_ms;    /* keep-alive connection without a request; then closed */
    int body_grace_ms;      /* a body slower than body_min_bps after this time: 408 and close */
    uint64_t body_min_bps;  /* 0 = no minimum */
    size_t connections_max; /* beyond: the one that waits longest for a request is closed; none: 503 to the
                               newcomer */
    size_t per_peer_max;    /* per IPv4/IPv6 address, beyond: 503; 0 = no limit (unix sockets never count) */
    uint64_t
        collected_max; /* bytes of all bodies in http_request_collect; beyond: 429 and close; 0 = no limit */
    size_t send_high;  /* http_response_write returns false above this many queued bytes ... */
    size_t send_low;   /* ... and on_drain is called below this many */
};
extern const struct http_limits http_limits_default; /* security.md's numbers: 8 KiB, 64 KiB, 100, 10 s, 60 s,
                                                        10 s, 1 KiB/s, 4096, 0, 256 KiB, 64 KiB */

struct http_server_config {
    struct loop *loop;
    struct http_limits limits;
    /* A complete request head. Must sooner or later respond, abort or hijack. */
    void (*request)(struct http_request *req, void *arg);
    /* Appends the JSON body of an answer the server makes itself (parse errors, time-outs, overload);
     * `reason` is a sentence. NULL: a plain text body. */
    void (*error_body)(int status, const char *reason, struct buf *out, void *arg);
    /* A request is over, however it ended: exactly once, last, before its memory goes. status: of the answer
     * that was begun; 0: none (dropped, or the socket was taken away). May be NULL. */
    void (*over)(struct http_request *req, int status, void *arg);
    void *arg;
    const struct http_header *common_headers; /* added to every response; must outlive the server */
    size_t common_count;
    bool send_date; /* add a Date header */
};

int http_server_new(const struct http_server_config *config, struct http_server **ret, struct error *reterr);
/* Takes over a non-blocking listening socket (TCP, unix, inherited). Several are fine. On EMFILE accepting
 * pauses 100 ms. */
int http_server_listen(struct http_server *s, int listen_fd, struct error *reterr);
/* Takes over one connected socket, as if just accepted. */
int http_server_adopt(struct http_server *s, int fd, struct error *reterr);
/* The same for the inner end of a TLS connection, which came from `peer`. False: there is no room (fd is
 * closed). */
struct sockaddr_storage;
bool http_server_adopt_secure(struct http_server *s, int fd, const struct sockaddr_storage *peer);
size_t http_server_connections(const struct http_server *s);
void http_server_stop_listening(struct http_server *s); /* connections live on; idle ones are closed */
void http_server_free(struct http_server *s);           /* aborts everything (on_gone is called) */

struct http_request {
    const char *method; /* as sent, NUL-terminated, e.g. "GET" */
    const char *target; /* as sent: "/path?query", "*", or authority for CONNECT */
    const char *path;   /* target up to '?' (not percent-decoded) */
    const char *query;  /* behind '?', "" when none */
    unsigned minor;     /* HTTP/1.<minor> */
    const struct http_header *headers;
    size_t header_count;
    bool has_body;          /* a body follows (content_length > 0 or chunked) */
    int64_t content_length; /* -1: chunked */
    bool upgrade;           /* asks for a protocol change (Connection: upgrade + Upgrade) or is CONNECT */
    char peer[64];          /* "127.0.0.1:54321" or "unix" */
    bool secure;            /* came over TLS, see http_server_adopt_secure */

    void *context; /* for whoever set `request` and `over`; handlers leave it alone */

    /* set by the handler, all optional */
    void *user;
    bool gone_on_eof; /* a peer that sends no more is taken for gone, also before the answer began */
    void (*on_drain)(struct http_request *req); /* queued response bytes fell below send_low */
    void (*on_gone)(
        struct http_request *req); /* the peer is gone or the server is freed: exactly once, last call */
};

const char *http_request_header(const struct http_request *req, const char *name);
/* Ends a request as if its peer had gone: on_gone is called, the connection is closed. Not from inside its
 * own handler or callbacks. */
void http_request_cut(struct http_request *req);

/* The request body, pulled. on_data: a piece (n > 0). on_end: 0 = complete; -EMSGSIZE: larger than max_bytes
 * (nothing more is delivered; answer 413); -EBADMSG: bad chunking, -ETIMEDOUT: too slow (in both cases the
 * server has answered and the request is over: on_gone follows). "Expect: 100-continue" is answered when
 * reading starts. A handler that never starts reading loses the connection after its response, unless the
 * body was small. */
struct http_body_sink {
    void (*on_data)(struct http_request *req, const char *data, size_t n);
    void (*on_end)(struct http_request *req, int err);
    /* May be NULL. Takes up to max bytes of a long body from the socket itself: how many, 0 at its end,
     * -EAGAIN when there is nothing, -EOPNOTSUPP to get the next piece by on_data, another -errno when the
     * socket failed. */
    ssize_t (*on_move)(struct http_request *req, int fd, uint64_t max);
};
void http_request_read_start(struct http_request *req, uint64_t max_bytes, const struct http_body_sink *sink);
void http_request_read_pause(struct http_request *req);
void http_request_read_resume(struct http_request *req);

/* The whole body in memory: calls done(req, body, err) once, later (also at once-next-batch for an empty
 * body). body is valid until the request ends and may be changed in place; err as on_end. */
void http_request_collect(struct http_request *req, uint64_t max_bytes,
                          void (*done)(struct http_request *req, struct buf *body, int err));

/* Complete response in one call; ends the request. content_type NULL: none. */
void http_respond(struct http_request *req, int status, const char *content_type, const void *body, size_t n);
void http_respond_headers(struct http_request *req, int status, const struct http_header *headers,
                          size_t count, const void *body, size_t n);

/* A response in pieces. content_length -1: chunked (HTTP/1.0: until close). HEAD, 204 and 304 send no body
 * whatever is written. write copies; false = queue above send_high, wait for on_drain before writing more
 * (the bytes were taken all the same). The caller's pieces must add up to content_length, otherwise end
 * aborts. */
void http_response_begin(struct http_request *req, int status, const struct http_header *headers,
                         size_t count, int64_t content_length);
bool http_response_write(struct http_request *req, const void *data, size_t n);
size_t http_response_queued(const struct http_request *req);
bool http_response_begun(const struct http_request *req);
void http_response_close_after(struct http_request *req); /* before begin: adds Connection: close */
void http_response_bare(struct http_request *req); /* before begin: without the server's common headers */
void http_response_end(struct http_request *req);
void http_response_abort(struct http_request *req); /* drops the connection; no on_gone for this request */
/* Sends `n` bytes of file from offset as (part of) the body, with sendfile where possible; the server owns fd
 * from now on. At most one file at a time; on_drain when done. */
void http_response_sendfile(struct http_request *req, int fd, uint64_t offset, uint64_t n);

/* Takes the socket away from HTTP. Bytes received behind the head are appended to rest. The caller writes
 * the 101 (or 200) itself. */
int http_hijack(struct http_request *req, struct buf *rest);

/* Server-sent events: begin sends the headers of http.md section 6; event sends "data: <json>\n\n" (json on
 * one line), preceded by "id: <id>\n" when id is not NULL; same return value as http_response_write. */
void sse_begin(struct http_request *req);
bool sse_event(struct http_request *req, const char *id, const char *json, size_t n);

/* ------------------------------------------------------------------ client */

struct http_client;
struct mover;

struct http_client_ops {
    /* Final response head (1xx are swallowed, except 101 which is final and ends the exchange with upgraded).
     */
    void (*on_head)(struct http_client *c, int status, const struct http_header *headers, size_t count,
                    int64_t content_length);
    void (*on_data)(struct http_client *c, const char *data, size_t n);
    /* Exactly once per exchange, last: 0 = complete; -EBADMSG: not HTTP; -ECONNRESET, -EPIPE: broken off;
     * -E2BIG: head too large. The callee may send the next request (if http_client_reusable) or free the
     * client in here. */
    void (*on_end)(struct http_client *c, int err);
    void (*on_drain)(struct http_client *c); /* request body may be written again; may be NULL */
    /* Idle connection closed by the peer (no exchange running); free the client. May be NULL. */
    void (*on_idle_close)(struct http_client *c);
};

/* Takes over a connected (or connecting, non-blocking) socket. */
int http_client_new(struct loop *loop, int fd, struct http_client **ret, struct error *reterr);
void http_client_set_user(struct http_client *c, void *user);
void *http_client_user(const struct http_client *c);
/* Starts one exchange. content_length: bytes of body to come, 0 none, -1 chunked. Host is the caller's to
 * give. */
int http_client_send(struct http_client *c, const char *method, const char *target,
                     const struct http_header *headers, size_t count, int64_t content_length,
                     const struct http_client_ops *ops);
bool http_client_write(struct http_client *c, const void *data, size_t n); /* false: wait for on_drain */
/* The same with bytes that are still in a socket, see on_move. *ret_full: wait for on_drain. */
ssize_t http_client_move(struct http_client *c, struct mover *m, int from, uint64_t max, bool *ret_full);
void http_client_finish(struct http_client *c); /* request body complete */
void http_client_pause(struct http_client *c);  /* response back pressure */
void http_client_resume(struct http_client *c);
bool http_client_reusable(const struct http_client *c); /* idle, keep-alive, nothing unread */
int http_client_take_fd(struct http_client *c,
                        struct buf *rest);    /* after 101: the socket; the client is freed */
void http_client_free(struct http_client *c); /* NULL is fine; closes; no callbacks */
