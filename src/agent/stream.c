/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c: execute/stream and process/{id}/stream: one reader of a process's spools per response.
 *
 * Theory of operation
 * A reader knows how far it has read in both spools. Whenever the process has changed or the peer has room
 * again it sends events until it has caught up or the peer is full. process/{id}/stream first repeats what
 * there is as one event per output, which may be larger than memory: that event is sent in pieces. A client
 * that wants ids gets the old output like the new, so that it can go on in the middle of it: events are told
 * apart by how far they reach into the outputs, and a reader that starts there has neither a gap nor a
 * repetition. What the spool has given up meanwhile is told by an event of type "dropped". */
#include "agent/stream.h"
#include "agent/events.h"
#include "agent/reply.h"
#include "agent/routes.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct reader {
    struct process_watcher watcher;
    struct process *process;
    struct http_request *req;
    enum stream_kind kind;
    struct event_frame frame;
    struct utf8_stream utf8[2];
    int replaying;    /* 0, 1: this output is being repeated; 2: done */
    bool replay_open; /* its event has been opened */
    uint64_t replay_end[2];
    uint64_t dropped[2]; /* gone before it could be read, not told yet */
    bool full;           /* the peer has no room */
    bool rpc;            /* see struct stream_position */
};

static void reader_free(struct reader *r)
{
    process_unwatch(r->process, &r->watcher);
    event_frame_done(&r->frame);
    free(r);
}

static bool flush(struct reader *r)
{
    r->full = !event_flush(&r->frame, r->req);
    return !r->full;
}

/* Goes on where the spool begins now. */
static void skip_lost(struct reader *r, int i)
{
    uint64_t *offset = &r->watcher.offset[i], begin = spool_begin(r->process->spools[i]);
    if (*offset >= begin)
        return;
    r->dropped[i] += begin - *offset;
    *offset = r->frame.position[i] = r->frame.told[i] = begin;
    r->utf8[i] = (struct utf8_stream){0};
}

static void tell_lost(struct reader *r, int i)
{
    struct json_writer w;
    struct buf json;
    if (!r->dropped[i])
        return;
    event_begin(&w, &json, "dropped");
    json_member_string(&w, "stream", i == 0 ? "stdout" : "stderr");
    json_member_int(&w, "bytes", (int64_t)r->dropped[i]);
    if (r->kind == STREAM_PROCESS)
        json_member_string(&w, "processId", r->process->id);
    event_end(&r->frame, &w, &json);
    r->dropped[i] = 0;
}

/* Sends a piece of the repeated output; false: the peer is full, or the spool cannot be read. */
static bool replay(struct reader *r)
{
    struct process *p = r->process;
    int i = r->replaying;
    unsigned flags = UTF8_JSON | (p->sessionless ? 0 : UTF8_DROP_NUL);
    skip_lost(r, i);
    if (!r->replay_open)
        tell_lost(r, i);
    uint64_t left = r->replay_end[i] - MIN(r->watcher.offset[i], r->replay_end[i]);
    char *piece = agent_scratch(p->agent);
    ssize_t n =
        left ? spool_read(p->spools[i], r->watcher.offset[i], piece, (size_t)MIN(left, (uint64_t)EVENT_PIECE))
             : 0;
    if (n > 0) {
        if (!r->replay_open)
            event_open(&r->frame, i + 1);
        r->replay_open = true;
        r->watcher.offset[i] += (uint64_t)n;
        (void)utf8_decode(&r->utf8[i], piece, (size_t)n, !p->sessionless && left == (uint64_t)n, flags,
                          &r->frame.out);
    }
    if (n <= 0 || left == (uint64_t)n) {
        if (r->replay_open)
            event_close(&r->frame);
        r->replay_open = false;
        r->replaying++;
    }
    return flush(r);
}

/* Sends a piece of new output; 0: there is none. */
static ssize_t send_output(struct reader *r, int i)
{
    struct process *p = r->process;
    uint64_t *offset = &r->watcher.offset[i];
    skip_lost(r, i);
    tell_lost(r, i);
    uint64_t end = process_visible_end(p, i + 1);
    if (!p->sessionless && end <= *offset && spool_end(p->spools[i]) - *offset >= EVENT_PIECE)
        end = *offset + EVENT_PIECE; /* a very long line does not wait for its end */
    if (end <= *offset)
        return 0;
    char *piece = agent_scratch(p->agent);
    ssize_t n = spool_read(p->spools[i], *offset, piece, (size_t)MIN(end - *offset, (uint64_t)EVENT_PIECE));
    if (n <= 0)
        return n;
    bool last = p->ended && *offset + (uint64_t)n == spool_end(p->spools[i]);
    size_t used = (size_t)n;
    if (p->sessionless)
        event_put(&r->frame, i + 1, &r->utf8[i], 0, piece, (size_t)n, last);
    else
        used = event_put_lines(&r->frame, i + 1, &r->utf8[i], piece, (size_t)n, last);
    *offset += used;
    return (ssize_t)used;
}

static void put_last(struct reader *r)
{
    struct process *p = r->process;
    struct json_writer w;
    struct buf json;
    r->frame.last = r->kind == STREAM_EXECUTE || !p->agent->legacy_03;
    if (r->kind == STREAM_EXECUTE) {
        event_begin(&w, &json, "complete");
        json_member_int(&w, "exitCode", p->exit_code);
        event_end(&r->frame, &w, &json);
        return;
    }
    char text[80];
    (void)snprintf(text, sizeof text, "Process %s with exit code %d", process_status_name(p), p->exit_code);
    event_begin(&w, &json, "exit");
    json_member_string(&w, "processId", p->id);
    json_member_int(&w, "exitCode", p->exit_code);
    if (!r->rpc)
        json_member_string(&w, "data", text);
    event_end(&r->frame, &w, &json);
    if (!p->agent->legacy_03)
        return;
    r->frame.last = true;
    event_begin(&w, &json, "complete"); /* what release 0.3 waits for */
    json_member_string(&w, "status", process_status_name(p));
    json_member_int(&w, "exitCode", p->exit_code);
    json_member_string(&w, "processId", p->id);
    json_member_string(&w, "sessionId", p->session_id);
    event_end(&r->frame, &w, &json);
}

static void pump(struct reader *r)
{
    struct process *p = r->process;
    if (r->full)
        return;
    event_frame_stamp(&r->frame);
    while (r->replaying < 2)
        if (!replay(r))
            return;
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < 2; i++) {
            ssize_t n = send_output(r, i);
            if (n < 0) {
                http_response_abort(r->req);
                reader_free(r);
                return;
            }
            more |= n > 0;
        }
        if (more && !flush(r))
            break;
    }
    process_advanced(p);
    if (r->full || !p->ended)
        return;
    put_last(r);
    (void)flush(r);
    http_response_end(r->req);
    reader_free(r);
}

static void changed(struct process_watcher *w)
{
    pump(container_of(w, struct reader, watcher));
}

static void on_drain(struct http_request *req)
{
    struct reader *r = req->user;
    r->full = false;
    pump(r);
}

static void on_gone(struct http_request *req)
{
    reader_free(req->user);
}

static bool parse_number(const char **text, int base, uint64_t *ret)
{
    char *end;
    if (!isxdigit((unsigned char)**text))
        return false;
    errno = 0;
    *ret = strtoull(*text, &end, base);
    *text = end;
    return errno == 0;
}

struct stream_position stream_position_of(const struct http_request *req)
{
    const char *id = http_request_header(req, "Last-Event-ID");
    char ids[8];
    struct stream_position p = {.rpc = query_has(req->query, "rpc"),
                                .ids = id || (http_query_get(req->query, "ids", ids, sizeof ids) &&
                                              (strcmp(ids, "1") == 0 || strcmp(ids, "true") == 0))};
    if (id && parse_number(&id, 16, &p.run) && p.run && *id++ == '-' && parse_number(&id, 10, &p.offset[0]) &&
        *id++ == '-' && parse_number(&id, 10, &p.offset[1])) {
        p.ended = strcmp(id, "-end") == 0;
        p.resumes = p.ended || !*id;
    }
    return p;
}

static void begin_stream(struct reader *r)
{
    const struct process *p = r->process;
    struct json_writer w;
    struct buf json;
    if (r->kind == STREAM_EXECUTE) {
        event_begin(&w, &json, "start");
        json_member_string(&w, "command", p->command);
        if (r->frame.run)
            json_member_string(&w, "processId", p->id);
        if (r->rpc) {
            json_member_string(&w, "sessionId", p->session_id);
            json_member_int(&w, "pid", p->pid);
        }
    } else if (r->rpc) {
        return;
    } else {
        event_begin(&w, &json, "process_info");
        json_member_string(&w, "processId", p->id);
        json_member_string(&w, "command", p->command);
        json_member_string(&w, "status", process_status_name(p));
    }
    event_end(&r->frame, &w, &json);
}

int stream_attach(struct process *p, struct http_request *req, enum stream_kind kind,
                  const struct stream_position *from)
{
    bool resumes = from && from->resumes && from->run == p->run;
    if (resumes && from->ended) {
        http_respond(req, 204, NULL, NULL, 0); /* what makes an EventSource stop asking */
        return 0;
    }
    struct reader *r = calloc(1, sizeof *r);
    if (!r || event_frame_init(&r->frame, kind == STREAM_PROCESS ? p->id : NULL) < 0) {
        free(r);
        return -ENOMEM;
    }
    r->process = p;
    r->req = req;
    r->kind = kind;
    r->frame.run = from && from->ids ? p->run : 0;
    r->rpc = from && from->rpc;
    r->frame.named = r->rpc && kind == STREAM_EXECUTE;
    r->replaying = kind == STREAM_PROCESS && !r->frame.run ? 0 : 2;
    for (int i = 0; i < 2; i++) {
        r->replay_end[i] = process_visible_end(p, i + 1);
        if (resumes)
            r->watcher.offset[i] = r->frame.position[i] = r->frame.told[i] =
                MIN(from->offset[i], spool_end(p->spools[i]));
    }
    r->watcher.changed = changed;
    process_watch(p, &r->watcher);
    req->user = r;
    req->on_drain = on_drain;
    req->on_gone = on_gone;
    sse_begin(req);
    if (!resumes)
        begin_stream(r);
    if (flush(r))
        pump(r);
    return 0;
}

/* ------------------------------------------------------------------ execute/stream */

struct stream_call {
    struct http_request *req; /* NULL: the client is gone */
    struct stream_position from;
};

static void call_gone(struct http_request *req)
{
    struct stream_call *c = req->user;
    c->req = NULL;
}

static void started(struct process *p, const struct process_failure *failure, void *arg)
{
    struct stream_call *c = arg;
    struct http_request *req = c->req;
    struct stream_position from = c->from;
    free(c);
    if (!req)
        return;
    req->on_gone = NULL;
    if (failure)
        reply_process_failure(req, p, failure);
    else if (stream_attach(p, req, STREAM_EXECUTE, &from) < 0)
        reply_error(req, "STREAM_START_ERROR", "out of memory");
}

/* A client whose stream broke off repeats its request: it wants the rest of that command, not another run. */
static void resume(struct agent *a, struct http_request *req, const struct stream_position *from)
{
    struct process *p = process_find_run(a, from->run);
    if (!p)
        reply_error(req, "PROCESS_NOT_FOUND", "The command of this Last-Event-ID is not known any more");
    else if (stream_attach(p, req, STREAM_EXECUTE, from) < 0)
        reply_error(req, "STREAM_START_ERROR", "out of memory");
}

void route_execute_stream(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct command_request c;
    struct stream_position from = stream_position_of(req);
    if (from.resumes) {
        resume(a, req, &from);
        return;
    }
    int r = command_request_parse(&c, a, req, call->body, true);
    if (r < 0) {
        reply_command_error(req, r, "STREAM_START_ERROR");
        return;
    }
    if (reply_process_refusal(req, &c)) {
        command_request_done(&c);
        return;
    }
    struct stream_call *sc = calloc(1, sizeof *sc);
    if (!sc) {
        command_request_done(&c);
        reply_error(req, "STREAM_START_ERROR", "out of memory");
        return;
    }
    free(take_ptr(c.process_id)); /* a stream's record always has a generated id */
    sc->req = req;
    sc->from = from;
    req->user = sc;
    req->on_gone = call_gone;
    r = process_start(
        a, &c, &(struct process_options){.live = true, .timeout = from.rpc, .started = started, .arg = sc});
    if (r < 0) {
        req->on_gone = NULL;
        free(sc);
        reply_process_error(req, r);
    }
    command_request_done(&c);
}
