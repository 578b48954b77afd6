/* SPDX-License-Identifier: Apache-2.0 */
/* process_logs.c: GET process/{id}/logs.
 *
 * Without a query: everything, as the protocol has it. With ?offset=N one output (&stream=, stdout by
 * default) is read from that byte on, at most &limit= bytes of it, and "nextOffset" says where the next call
 * goes on. Bytes are those the process has written, whatever they look like in JSON. */
#include "agent/process.h"
#include "agent/reply.h"
#include "agent/routes.h"
#include "agent/spool_reply.h"
#include "base/utf8.h"

#include <errno.h>
#include <string.h>

struct log_range {
    int stream; /* 1 or 2; 0: both, all of it */
    uint64_t offset, limit;
};

static bool query_number(const struct http_request *req, const char *name, uint64_t *ret, bool *given)
{
    char text[32], *end;
    *given = query_has(req->query, name);
    if (!*given)
        return true;
    if (!http_query_get(req->query, name, text, sizeof text) || text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *ret = strtoull(text, &end, 10);
    return !*end && !errno;
}

/* NULL, or what is wrong. */
static const char *parse_range(const struct http_request *req, struct log_range *r)
{
    char stream[8] = "stdout";
    bool by_offset, by_limit, by_stream = query_has(req->query, "stream");
    *r = (struct log_range){.limit = UINT64_MAX};
    if (!query_number(req, "offset", &r->offset, &by_offset))
        return "offset must be a number of bytes";
    if (!query_number(req, "limit", &r->limit, &by_limit) || !r->limit)
        return "limit must be a number of bytes, at least 1";
    if (by_stream && !http_query_get(req->query, "stream", stream, sizeof stream))
        return "stream must be stdout or stderr";
    if (strcmp(stream, "stdout") != 0 && strcmp(stream, "stderr") != 0)
        return "stream must be stdout or stderr";
    if (by_offset || by_limit || by_stream)
        r->stream = stream[3] == 'o' ? 1 : 2;
    return NULL;
}

/* The end of a piece, moved back so that it does not cut a character whose rest is to come. */
static uint64_t whole_characters(const struct spool *s, uint64_t begin, uint64_t end)
{
    unsigned char tail[3];
    uint64_t from = end - MIN(end - begin, (uint64_t)sizeof tail);
    if (spool_read(s, from, tail, (size_t)(end - from)) != (ssize_t)(end - from))
        return end;
    for (uint64_t at = end; at > from; at--) {
        unsigned char c = tail[at - 1 - from];
        if ((c & 0xc0) == 0x80)
            continue;
        unsigned need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        return end - (at - 1) < need ? at - 1 : end;
    }
    return end;
}

static struct spool_part log_part(const struct process *p, const struct log_range *r, int stream)
{
    struct spool *s = p->spools[stream - 1];
    uint64_t end = process_visible_end(p, stream);
    struct spool_part part = {s, 0, end};
    if (!r->stream)
        return part;
    part.begin = r->stream == stream ? MIN(r->offset, end) : end;
    uint64_t first = MIN(MAX(part.begin, spool_begin(s)), end);
    if (end - first > r->limit)
        part.end = first + MAX(r->limit, (uint64_t)4); /* one character at least */
    part.end = MIN(part.end, end);
    if (part.end < spool_end(s) || (p->sessionless && !p->ended))
        part.end = whole_characters(s, first, part.end);
    return part;
}

void route_process_logs(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct reply r;
    struct log_range range;
    struct process *p = process_or_refuse(a, req, call->param);
    if (!p)
        return;
    const char *wrong = parse_range(req, &range);
    if (wrong) {
        reply_error(req, "VALIDATION_FAILED", "%s", wrong);
        return;
    }
    struct spool_part parts[2] = {log_part(p, &range, 1), log_part(p, &range, 2)};
    reply_begin(&r);
    json_member_string(&r.w, "processId", p->id);
    if (range.stream) {
        const struct spool_part *part = &parts[range.stream - 1];
        json_member_int(&r.w, "offset", (int64_t)MIN(MAX(part->begin, spool_begin(part->spool)), part->end));
        json_member_int(&r.w, "nextOffset", (int64_t)part->end);
    }
    spool_reply_send(a, req, &r, parts[0], parts[1], p->sessionless ? 0 : UTF8_DROP_NUL);
}
