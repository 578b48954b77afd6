/* SPDX-License-Identifier: Apache-2.0 */
/* main_log.c: see main_log.h.
 *
 * A follower that does not keep up misses what the log has forgotten meanwhile, like one that asks later: the
 * program never waits for a reader. */
#include "agent/main_log.h"

#include <string.h>

enum { HEAD = 8, PIECE_MAX = 64 * 1024 };

struct reader {
    struct list link;
    struct http_request *req;
    bool wanted[3]; /* by stream */
    bool behind;    /* its connection is full */
};

void main_log_init(struct main_log *l)
{
    *l = (struct main_log){.frames = BUF_INIT(MAIN_LOG_BYTES)};
    list_init(&l->readers);
}

static void reader_free(struct reader *r)
{
    list_remove(&r->link);
    free(r);
}

void main_log_end(struct main_log *l)
{
    l->ended = true;
    list_for_each(i, &l->readers)
    {
        struct reader *r = list_entry(i, struct reader, link);
        struct http_request *req = r->req;
        req->on_gone = NULL;
        reader_free(r);
        http_response_end(req);
    }
}

void main_log_done(struct main_log *l)
{
    main_log_end(l);
    buf_done(&l->frames);
}

static size_t frame_bytes(const char *frame)
{
    const unsigned char *p = (const unsigned char *)frame;
    return HEAD + ((size_t)p[4] << 24 | (size_t)p[5] << 16 | (size_t)p[6] << 8 | p[7]);
}

static void add_piece(struct main_log *l, int stream, const char *data, size_t n)
{
    const unsigned char head[HEAD] = {
        (unsigned char)stream, 0, 0, 0, 0, (unsigned char)(n >> 16), (unsigned char)(n >> 8),
        (unsigned char)n};
    while (buf_len(&l->frames) + HEAD + n > MAIN_LOG_BYTES)
        buf_consume(&l->frames, frame_bytes(buf_data(&l->frames)));
    if (buf_append(&l->frames, head, sizeof head) < 0)
        return; /* without memory there is no log, and the program goes on */
    if (buf_append(&l->frames, data, n) < 0) {
        buf_clear(&l->frames);
        return;
    }
    list_for_each(i, &l->readers)
    {
        struct reader *r = list_entry(i, struct reader, link);
        if (!r->wanted[stream] || r->behind)
            continue;
        (void)http_response_write(r->req, head, sizeof head);
        r->behind = !http_response_write(r->req, data, n);
    }
}

void main_log_add(struct main_log *l, int stream, const char *data, size_t n)
{
    while (n) {
        size_t piece = MIN(n, (size_t)PIECE_MAX);
        add_piece(l, stream, data, piece);
        data += piece;
        n -= piece;
    }
}

static void reader_gone(struct http_request *req)
{
    reader_free(req->user);
}

static void reader_drained(struct http_request *req)
{
    struct reader *r = req->user;
    r->behind = false;
}

static bool query_true(const struct http_request *req, const char *name)
{
    char text[8];
    return http_query_get(req->query, name, text, sizeof text) &&
           (strcmp(text, "1") == 0 || strcmp(text, "true") == 0);
}

void main_log_request(struct agent *a, struct main_log *l, struct http_request *req)
{
    static const struct http_header headers[] = {
        {"Content-Type", "application/vnd.docker.multiplexed-stream"}};
    const bool wanted[3] = {false, query_true(req, "stdout"), query_true(req, "stderr")};
    (void)a;
    http_response_begin(req, 200, headers, ARRAY_SIZE(headers), -1);
    const char *p = buf_data(&l->frames), *end = p + buf_len(&l->frames);
    for (; p < end; p += frame_bytes(p))
        if (wanted[(unsigned char)*p])
            (void)http_response_write(req, p, frame_bytes(p)); /* all of it is bounded */
    struct reader *r = query_true(req, "follow") && !l->ended ? calloc(1, sizeof *r) : NULL;
    if (!r) {
        http_response_end(req);
        return;
    }
    r->req = req;
    memcpy(r->wanted, wanted, sizeof wanted);
    list_init(&r->link);
    list_append(&l->readers, &r->link);
    req->user = r;
    req->on_gone = reader_gone;
    req->on_drain = reader_drained;
}
