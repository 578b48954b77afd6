/* SPDX-License-Identifier: Apache-2.0 */
/* http_story.h: everything the parser says about some bytes, as text, whatever the cuts; for the HTTP fuzz
 * targets. */
#pragma once

#include "base/buf.h"
#include "net/http_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The real numbers would need inputs that no fuzzer makes. */
static const struct http_limits story_limits = {.line_bytes = 200, .head_bytes = 1000, .header_count = 8};

static inline void story_check(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "broken: %s\n", what);
    abort();
}

/* What every accepted head has, whatever the input was. */
static inline void story_check_head(const struct http_head *h, enum http_kind kind)
{
    size_t lengths = http_header_occurs(h->headers, h->header_count, "content-length");
    size_t codings = http_header_occurs(h->headers, h->header_count, "transfer-encoding");
    story_check(h->minor <= 1, "the version is 1.0 or 1.1");
    story_check(lengths + codings <= 1, "one framing header at most");
    story_check(h->framing != HTTP_FRAMING_CHUNKED || (codings == 1 && h->minor == 1), "chunked on 1.1 only");
    story_check(h->header_count <= story_limits.header_count, "the number of headers");
    for (size_t i = 0; i < h->header_count; i++) {
        story_check(http_token_valid(h->headers[i].name), "header names are tokens");
        story_check(http_text_valid(h->headers[i].value), "header values have no control bytes");
        size_t n = strlen(h->headers[i].value);
        story_check(!n || (h->headers[i].value[n - 1] != ' ' && h->headers[i].value[0] != ' '),
                    "values are trimmed");
    }
    if (kind == HTTP_KIND_RESPONSE) {
        story_check(h->status >= 100 && h->status <= 999, "the status has three digits");
        return;
    }
    size_t hosts = http_header_occurs(h->headers, h->header_count, "host");
    story_check(hosts == 1 || (hosts == 0 && h->is_connect), "one Host");
    story_check(http_token_valid(h->method), "the method is a token");
    story_check(h->is_connect || h->path[0] == '/' || strcmp(h->path, "*") == 0,
                "the path begins with a slash");
    story_check(strchr(h->path, '?') == NULL, "the path has no query");
    story_check(strpbrk(h->target, " \t\r\n#") == NULL, "the target has no blanks");
    story_check(h->framing != HTTP_FRAMING_CLOSE, "requests do not end with the connection");
}

static inline void story_head(struct buf *out, const struct http_head *h)
{
    (void)buf_printf(out, "head %s %s %s %s %d %u %d %lld %d%d%d%d%d\n", h->method ? h->method : "-",
                     h->target ? h->target : "-", h->path ? h->path : "-", h->query ? h->query : "-",
                     h->status, h->minor, (int)h->framing, (long long)h->content_length, h->keep_alive,
                     h->upgrade, h->expect_continue, h->is_head, h->is_connect);
    for (size_t i = 0; i < h->header_count; i++)
        (void)buf_printf(out, "%s: %s\n", h->headers[i].name, h->headers[i].value);
}

/* Offers the bytes in pieces, as they would come from a socket. next_step says how long the next piece is,
 * from the state in *seed; what is not used is offered again. Each offer is a copy of exactly its size, so
 * that reading past its end is noticed. */
static inline void story_tell(enum http_kind kind, const char *method, const uint8_t *data, size_t n,
                              size_t (*next_step)(uint32_t *seed), uint32_t seed, struct buf *out)
{
    struct http_parser p;
    size_t from = 0, to = 0; /* offered and not used */
    bool in_body = false;
    http_parser_init(&p, kind, &story_limits);
    http_parser_expect(&p, method);
    for (bool last = false; !last;) {
        size_t step = next_step(&seed);
        to = n - to < step ? n : to + step;
        last = to == n;
        for (bool more = true; more;) {
            char *offer = malloc(MAX(to - from, (size_t)1));
            if (!offer)
                abort();
            memcpy(offer, data + from, to - from);
            size_t used = 0;
            enum http_event e = http_parser_next(&p, offer, to - from, &used);
            story_check(used <= to - from, "no more is used than there is");
            if (e != HTTP_EVENT_DATA && e != HTTP_EVENT_MORE)
                in_body = false;
            switch (e) {
            case HTTP_EVENT_MORE:
                more = false;
                break;
            case HTTP_EVENT_HEAD:
                story_check_head(p.head, kind);
                story_head(out, p.head);
                free(take_ptr(p.head));
                break;
            case HTTP_EVENT_DATA:
                story_check(p.piece_len > 0 && p.piece >= offer && p.piece + p.piece_len <= offer + used,
                            "pieces lie in what was offered");
                (void)buf_puts(out, in_body ? "" : "\ndata ");
                (void)buf_append(out, p.piece, p.piece_len);
                in_body = true;
                break;
            case HTTP_EVENT_END:
                (void)buf_puts(out, "\nend\n");
                http_parser_reset(&p);
                more = from + used < to;
                break;
            case HTTP_EVENT_BAD:
                story_check(p.status >= 400 && p.reason, "a refusal has a status and a reason");
                (void)buf_printf(out, "\nbad %d %s\n", p.status, p.reason);
                more = false;
                last = true;
                break;
            }
            from += used;
            free(offer);
        }
    }
    (void)buf_printf(out, "\neof %d\n", (int)http_parser_eof(&p));
    http_parser_reset(&p);
}

static inline size_t story_whole(uint32_t *seed)
{
    (void)seed;
    return SIZE_MAX;
}

static inline size_t story_bytewise(uint32_t *seed)
{
    (void)seed;
    return 1;
}

static inline size_t story_random(uint32_t *seed)
{
    *seed = *seed * 1103515245 + 12345;
    return 1 + (*seed >> 16) % 19;
}

/* The story must not depend on the cuts. */
static inline void story_compare(enum http_kind kind, const char *method, const uint8_t *data, size_t n)
{
    size_t (*const steps[])(uint32_t *) = {story_bytewise, story_random};
    struct buf whole = BUF_INIT(64 << 20), cut = BUF_INIT(64 << 20);
    story_tell(kind, method, data, n, story_whole, 0, &whole);
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        buf_clear(&cut);
        story_tell(kind, method, data, n, steps[i], (uint32_t)n, &cut);
        if (buf_len(&whole) != buf_len(&cut) ||
            memcmp(buf_data(&whole), buf_data(&cut), buf_len(&cut)) != 0) {
            (void)fprintf(stderr, "whole:\n%s\ncut:\n%s\n", buf_cstr(&whole), buf_cstr(&cut));
            abort();
        }
    }
    buf_done(&whole);
    buf_done(&cut);
}
