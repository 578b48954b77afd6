/* SPDX-License-Identifier: Apache-2.0 */
/* http_parse.h: HTTP/1.1 messages out of bytes: the one parser of server and client, without any I/O.
 *
 * Theory of operation
 * The parser is pulled: http_parser_next looks at the bytes that are there and returns one event. A head is
 * handed out only as a whole: a scanner of ours watches every byte as it arrives (line ends, control bytes,
 * folds, the first line, the sizes), and when the empty line is found, llhttp reads the head in one piece. So
 * a head means the same however the network cut it, and what either of the two dislikes is refused. How long
 * the body is, is then decided here, from the header list, and not taken from llhttp's flags. Bodies are
 * handed out as pieces that point into the caller's bytes. */
#pragma once

#include "net/http.h"
#include "net/http_chunked.h"
#include "net/http_line.h"

enum http_kind { HTTP_KIND_REQUEST, HTTP_KIND_RESPONSE };

enum http_framing {
    HTTP_FRAMING_NONE,
    HTTP_FRAMING_LENGTH,
    HTTP_FRAMING_CHUNKED,
    HTTP_FRAMING_CLOSE, /* responses: up to the end of the connection */
};

/* One allocation: free() releases it with all strings. */
struct http_head {
    const char *method, *target, *path, *query; /* of a request, see struct http_request */
    int status;                                 /* of a response */
    unsigned minor;
    struct http_header *headers;
    size_t header_count;
    enum http_framing framing;
    int64_t content_length; /* as the header says; -1 without one */
    bool keep_alive;        /* the sender's wish: version and Connection */
    bool upgrade;           /* asks for, or (101, 2xx to CONNECT) confirms, a change of protocol */
    bool expect_continue;
    bool is_head, is_connect;
};

enum http_event {
    HTTP_EVENT_MORE, /* needs more bytes; those not used must be offered again, with what follows them */
    HTTP_EVENT_HEAD, /* take_ptr(p->head): yours to free */
    HTTP_EVENT_DATA, /* p->piece, p->piece_len: a piece of the body, never empty */
    HTTP_EVENT_END,  /* the message is complete: http_parser_reset before the next */
    HTTP_EVENT_BAD,  /* p->status and p->reason say why; for good */
};

struct http_parser {
    const struct http_limits *limits;
    struct http_head *head;
    const char *piece;
    size_t piece_len;
    const char *reason; /* a sentence without a full stop */
    uint64_t left;      /* of a body with Content-Length */
    size_t scanned, line_start, skip;
    uint32_t lines;
    uint16_t status; /* what a server answers to it: 400, 414, 431, 500, 505 */
    uint8_t kind, state, scan_state, framing;
    bool to_head, to_connect; /* the request that a response answers */
    struct http_chunked chunked;
};

void http_parser_init(struct http_parser *p, enum http_kind kind, const struct http_limits *limits);
void http_parser_reset(struct http_parser *p); /* for the next message; frees a head that nobody took */
/* Client: what the next response answers; survives http_parser_reset. */
void http_parser_expect(struct http_parser *p, const char *method);
/* data starts with the first byte that no earlier call used. */
enum http_event http_parser_next(struct http_parser *p, const char *data, size_t n, size_t *used);
/* The connection ended. END: that completes the body; MORE: between two messages, all is well; BAD: cut off.
 */
enum http_event http_parser_eof(struct http_parser *p);
/* True when a message has begun and is not complete. */
bool http_parser_midway(const struct http_parser *p);
