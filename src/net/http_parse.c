/* SPDX-License-Identifier: Apache-2.0 */
/* http_parse.c: the pulled parser: scanner of the head, events of the body. See http_parse.h; http_head.c
 * reads heads. */
#include "net/http_head.h"

#include <string.h>

/* HEAD  collecting a head
 * BODY  handing out the body
 * OVER  ended or bad: only http_parser_reset helps */
enum state { STATE_HEAD, STATE_BODY, STATE_OVER };

/* START     before the first byte
 * START_CR  one empty line in front of a request is tolerated
 * LINE      inside a line
 * LINE_CR   only an LF may follow */
enum scan_state { SCAN_START, SCAN_START_CR, SCAN_LINE, SCAN_LINE_CR };

void http_parser_init(struct http_parser *p, enum http_kind kind, const struct http_limits *limits)
{
    *p = (struct http_parser){.kind = (uint8_t)kind, .limits = limits};
}

void http_parser_reset(struct http_parser *p)
{
    free(p->head);
    *p = (struct http_parser){
        .kind = p->kind, .limits = p->limits, .to_head = p->to_head, .to_connect = p->to_connect};
}

void http_parser_expect(struct http_parser *p, const char *method)
{
    p->to_head = strcmp(method, "HEAD") == 0;
    p->to_connect = strcmp(method, "CONNECT") == 0;
}

bool http_parser_midway(const struct http_parser *p)
{
    return p->state == STATE_BODY || (p->state == STATE_HEAD && p->scan_state != SCAN_START);
}

static enum http_event bad(struct http_parser *p, int status, const char *reason)
{
    p->state = STATE_OVER;
    p->status = (uint16_t)status;
    p->reason = reason;
    return HTTP_EVENT_BAD;
}

/* Looks for the end of the head, from where the last call stopped; 1 when found (then *ret_end is one past
 * it), 0 when it is not there yet, -1 after bad(). Every decision depends on the bytes up to it only, never
 * on how they were cut. */
static int scan(struct http_parser *p, const char *data, size_t n, size_t *ret_end)
{
    bool request = p->kind == HTTP_KIND_REQUEST;
    size_t head_max = p->limits->head_bytes, line_max = MIN(p->limits->line_bytes, head_max);

    for (size_t i = p->scanned; i < n;) {
        if (p->scan_state == SCAN_LINE) { /* the many bytes that decide nothing */
            if (i != p->line_start)
                i += http_text_span(data + i, n - i);
            if (!p->lines && i - p->line_start > line_max) {
                (void)bad(p, request ? 414 : 431, "the first line is too long");
                return -1;
            }
        }
        if (i - p->skip >= head_max) {
            (void)bad(p, 431, "the header is too large");
            return -1;
        }
        if (i == n)
            break;

        unsigned char c = (unsigned char)data[i++];
        switch ((enum scan_state)p->scan_state) {
        case SCAN_START:
            if (c == '\r' && request && !p->skip) {
                p->scan_state = SCAN_START_CR;
                break;
            }
            p->scan_state = SCAN_LINE;
            p->line_start = --i;
            if (http_is_token(c))
                i++; /* the line has begun: its first byte is no fold */
            else {
                (void)bad(p, 400, "this is not HTTP");
                return -1;
            }
            break;
        case SCAN_START_CR:
            if (c != '\n') {
                (void)bad(p, 400, "a line ends with something else than CRLF");
                return -1;
            }
            p->skip = i;
            p->scan_state = SCAN_START;
            break;
        case SCAN_LINE:
            if (c == '\r')
                p->scan_state = SCAN_LINE_CR;
            else if (c == '\n' || !http_is_text(c)) {
                (void)bad(p, 400,
                          c == '\n' ? "a line ends with something else than CRLF"
                                    : "the header has a control character");
                return -1;
            } else if (c == ' ' || c == '\t') { /* only the first byte of a line comes here */
                (void)bad(p, 400, "a header line is folded");
                return -1;
            }
            break;
        case SCAN_LINE_CR:
            if (c != '\n') {
                (void)bad(p, 400, "a line ends with something else than CRLF");
                return -1;
            }
            if (i - 2 == p->line_start) {
                p->scanned = *ret_end = i;
                return 1;
            }
            if (p->lines == 0) {
                const char *reason = NULL;
                int status = http_first_line_check((enum http_kind)p->kind, data + p->line_start,
                                                   i - 2 - p->line_start, &reason);
                if (status) {
                    (void)bad(p, status, reason);
                    return -1;
                }
            } else if (p->lines > p->limits->header_count) {
                (void)bad(p, 431, "the header has too many lines");
                return -1;
            }
            p->lines++;
            p->line_start = i;
            p->scan_state = SCAN_LINE;
            break;
        }
    }
    p->scanned = n;
    return 0;
}

static enum http_event next_head(struct http_parser *p, const char *data, size_t n, size_t *used)
{
    size_t end;
    int r = scan(p, data, n, &end);
    if (r < 0)
        return HTTP_EVENT_BAD;
    if (r == 0)
        return HTTP_EVENT_MORE;

    const char *reason = NULL;
    int status = http_head_read(p, data + p->skip, end - p->skip, p->lines - 1, &p->head, &reason);
    if (status)
        return bad(p, status, reason);
    *used = end;
    p->state = STATE_BODY;
    p->framing = (uint8_t)p->head->framing;
    p->left = p->framing == HTTP_FRAMING_LENGTH ? (uint64_t)p->head->content_length : 0;
    return HTTP_EVENT_HEAD;
}

static enum http_event next_chunked(struct http_parser *p, const char *data, size_t n, size_t *used)
{
    switch (http_chunked_next(&p->chunked, data, n, used, &p->piece, &p->piece_len)) {
    case HTTP_CHUNKED_MORE:
        return HTTP_EVENT_MORE;
    case HTTP_CHUNKED_DATA:
        return HTTP_EVENT_DATA;
    case HTTP_CHUNKED_END:
        p->state = STATE_OVER;
        return HTTP_EVENT_END;
    case HTTP_CHUNKED_BAD:
        break;
    }
    return bad(p, 400, "the chunked body is malformed");
}

static enum http_event next_body(struct http_parser *p, const char *data, size_t n, size_t *used)
{
    switch ((enum http_framing)p->framing) {
    case HTTP_FRAMING_CHUNKED:
        return next_chunked(p, data, n, used);
    case HTTP_FRAMING_CLOSE:
        p->piece_len = n;
        break;
    case HTTP_FRAMING_NONE:
    case HTTP_FRAMING_LENGTH:
        if (!p->left) {
            p->state = STATE_OVER;
            return HTTP_EVENT_END;
        }
        p->piece_len = p->left < n ? (size_t)p->left : n;
        p->left -= p->piece_len;
        break;
    }
    if (!p->piece_len)
        return HTTP_EVENT_MORE;
    p->piece = data;
    *used = p->piece_len;
    return HTTP_EVENT_DATA;
}

enum http_event http_parser_next(struct http_parser *p, const char *data, size_t n, size_t *used)
{
    *used = 0;
    switch ((enum state)p->state) {
    case STATE_HEAD:
        return next_head(p, data, n, used);
    case STATE_BODY:
        return next_body(p, data, n, used);
    case STATE_OVER:
        break;
    }
    return p->status ? HTTP_EVENT_BAD : HTTP_EVENT_END;
}

enum http_event http_parser_eof(struct http_parser *p)
{
    if (p->state == STATE_OVER)
        return p->status ? HTTP_EVENT_BAD : HTTP_EVENT_END;
    if (!http_parser_midway(p))
        return HTTP_EVENT_MORE;
    if (p->state == STATE_BODY &&
        (p->framing == HTTP_FRAMING_CLOSE || (p->framing != HTTP_FRAMING_CHUNKED && !p->left))) {
        p->state = STATE_OVER;
        return HTTP_EVENT_END;
    }
    return bad(p, 400, "the message was cut off");
}
