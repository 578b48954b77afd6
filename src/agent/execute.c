/* SPDX-License-Identifier: Apache-2.0 */
/* execute.c: POST /api/execute: a foreground command in the session's shell, or a sessionless one.
 *
 * Theory of operation
 * The answer is one JSON object at the end, made from two spools; or, for a client that accepts event
 * streams, the output as it comes, with the command waiting for a slow reader. A command that is out of time
 * is answered and left to itself: its op gives the lock back, the execution stays until the shell is done
 * with it. The same holds for a client that leaves: the command goes on, its output goes nowhere. */
#include "agent/command_request.h"
#include "agent/events.h"
#include "agent/process.h"
#include "agent/reply.h"
#include "agent/routes.h"
#include "agent/spool_reply.h"
#include "agent/stream.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct execution {
    struct agent *agent;
    struct http_request *req; /* NULL: answered, or the client is gone */
    struct command_request request;
    struct session_op op;
    struct session *session; /* while the lock is held */
    struct shell_command command;
    struct timer timer;
    int64_t timeout_ms, begun_us;
    struct spool *spools[2];

    bool events; /* the answer is a stream */
    struct event_frame frame;
    struct buf partial[2]; /* events: a line that is not complete yet */
    struct utf8_stream utf8[2];
};

static void execution_free(struct execution *x)
{
    loop_timer_stop(x->agent->loop, &x->timer);
    for (int i = 0; i < 2; i++) {
        spool_unref(x->spools[i]);
        buf_done(&x->partial[i]);
    }
    event_frame_done(&x->frame);
    command_request_done(&x->request);
    free(x);
}

static void on_gone(struct http_request *req)
{
    struct execution *x = req->user;
    x->req = NULL;
    if (x->events && x->command.shell)
        shell_command_resume(&x->command);
}

static struct http_request *take_request(struct execution *x)
{
    struct http_request *req = take_ptr(x->req);
    if (req)
        req->on_gone = req->on_drain = NULL;
    return req;
}

/* ------------------------------------------------------------------ as events */

static void on_drain(struct http_request *req)
{
    struct execution *x = req->user;
    if (x->command.shell)
        shell_command_resume(&x->command);
}

static void begin_events(struct execution *x)
{
    struct json_writer w;
    struct buf json;
    x->req->on_drain = on_drain;
    sse_begin(x->req);
    event_begin(&w, &json, "start");
    json_member_string(&w, "command", x->request.command);
    event_end(&x->frame, &w, &json);
    (void)event_flush(&x->frame, x->req);
}

/* Whole lines go out, the rest waits in partial (never more than one piece). */
static void put_output(struct execution *x, int stream, const char *data, size_t n, bool final)
{
    struct buf *partial = &x->partial[stream - 1];
    struct utf8_stream *st = &x->utf8[stream - 1];
    event_frame_stamp(&x->frame);
    if (buf_len(partial)) {
        const char *nl = n ? memchr(data, '\n', n) : NULL;
        size_t take = nl ? (size_t)(nl - data) + 1 : n;
        take = MIN(take, EVENT_PIECE - buf_len(partial));
        (void)buf_append(partial, data, take);
        data += take;
        n -= take;
        size_t used =
            event_put_lines(&x->frame, stream, st, buf_data(partial), buf_len(partial), final && !n);
        buf_consume(partial, used);
    }
    while (n) {
        size_t piece = MIN(n, (size_t)EVENT_PIECE);
        size_t used = event_put_lines(&x->frame, stream, st, data, piece, final && piece == n);
        if (!used)
            break;
        data += used;
        n -= used;
    }
    if (n)
        (void)buf_append(partial, data, n);
    else if (!buf_len(partial))
        buf_done(partial);
}

static void event_output(struct execution *x, int stream, const char *data, size_t n)
{
    if (!x->req)
        return;
    put_output(x, stream, data, n, false);
    if (!event_flush(&x->frame, x->req))
        shell_command_pause(&x->command);
}

/* The rest of both outputs; a last line that lacks a newline gets one. */
static void finish_output(struct execution *x)
{
    for (int i = 0; i < 2; i++)
        if (buf_len(&x->partial[i]))
            put_output(x, i + 1, "\n", 1, true);
}

static void send_last_event(struct execution *x, struct json_writer *w, struct buf *json)
{
    struct http_request *req = take_request(x);
    event_end(&x->frame, w, json);
    (void)event_flush(&x->frame, req);
    http_response_end(req);
}

static void send_error_event(struct execution *x, const char *code, const char *message, const int *exit_code)
{
    struct json_writer w;
    struct buf json;
    finish_output(x);
    event_begin(&w, &json, "error");
    json_member_string(&w, "code", code);
    json_member_string(&w, "message", message);
    json_member_string(&w, "error", message);
    if (exit_code)
        json_member_int(&w, "exitCode", *exit_code);
    send_last_event(x, &w, &json);
}

/* ------------------------------------------------------------------ answers */

static void answer_fault(struct execution *x, const struct session_fault *fault)
{
    if (!x->req)
        return;
    if (x->events && http_response_begun(x->req)) {
        struct buf message = BUF_INIT(64 * 1024);
        const char *code, *text;
        session_fault_text(x->request.session_id, fault, "COMMAND_EXECUTION_ERROR", &code, &message);
        text = buf_cstr(&message);
        send_error_event(x, code, text ? text : code,
                         fault->kind == SESSION_FAULT_TERMINATED ? &fault->exit_code : NULL);
        buf_done(&message);
        return;
    }
    reply_session_fault(take_request(x), x->request.session_id, fault, "COMMAND_EXECUTION_ERROR");
}

/* Clients before 0.7 repeat a request whose failure mentions a timeout, or whose echoed command does. */
static void answer_timeout(struct execution *x)
{
    struct reply r;
    char limit[80];
    if (!x->req)
        return;
    (void)snprintf(limit, sizeof limit,
                   x->request.modern ? "Command timeout after %lldms"
                                     : "Command exceeded its limit of %lld ms",
                   (long long)x->timeout_ms);
    if (x->events && http_response_begun(x->req)) {
        send_error_event(x, "COMMAND_EXECUTION_ERROR", limit, NULL);
        return;
    }
    if (x->request.modern) {
        reply_error_begin(&r, "COMMAND_EXECUTION_ERROR", "Failed to execute command '%s' in session '%s': %s",
                          x->request.command, x->request.session_id, limit);
        json_member_string(&r.w, "command", x->request.command);
    } else {
        reply_error_begin(&r, "COMMAND_EXECUTION_ERROR", "%s", limit);
    }
    json_member_string(&r.w, "stderr", limit);
    reply_error_send(&r, take_request(x));
}

/* The reference always says 0 for the duration; it is what the command took, without what it waited for. */
static void put_result(struct reply *r, const struct command_request *c, int status, int64_t begun_us)
{
    r->out = BUF_INIT(256 << 20);
    r->message = BUF_INIT(0);
    json_writer_init(&r->w, &r->out);
    json_object_begin(&r->w);
    json_member_bool(&r->w, "success", status == 0);
    json_member_int(&r->w, "exitCode", status);
    json_member_string(&r->w, "command", c->command);
    json_member_int(&r->w, "duration", (clock_mono_us() - begun_us) / 1000);
    if (c->session_given)
        json_member_string(&r->w, "sessionId", c->session_id);
}

static void answer_status(struct execution *x, int status)
{
    struct reply r;
    if (!x->req)
        return;
    if (x->events) {
        struct json_writer w;
        struct buf json;
        finish_output(x);
        event_begin(&w, &json, "complete");
        json_member_int(&w, "exitCode", status);
        send_last_event(x, &w, &json);
        return;
    }
    put_result(&r, &x->request, status, x->begun_us);
    spool_reply_send(x->agent, take_request(x), &r,
                     (struct spool_part){x->spools[0], 0, spool_trimmed_end(x->spools[0])},
                     (struct spool_part){x->spools[1], 0, spool_trimmed_end(x->spools[1])}, UTF8_DROP_NUL);
}

/* ------------------------------------------------------------------ in a session */

static void on_output(struct shell_command *c, int stream, const char *data, size_t n)
{
    struct execution *x = container_of(c, struct execution, command);
    if (x->events)
        event_output(x, stream, data, n);
    else if (x->req)
        spool_append(x->spools[stream - 1], data, n);
}

static void on_done(struct shell_command *c, enum shell_end how, int status)
{
    struct execution *x = container_of(c, struct execution, command);
    if (how == SHELL_END_BAD_CWD) {
        char text[4300];
        int n = snprintf(text, sizeof text, BAD_CWD_FORMAT, x->request.cwd);
        on_output(c, 2, text, MIN((size_t)n, sizeof text - 1));
    }
    if (how == SHELL_END_STATUS || how == SHELL_END_BAD_CWD) {
        answer_status(x, status);
    } else {
        struct session_fault fault = session_fault_of(x->session, how, status);
        answer_fault(x, &fault);
    }
    if (x->session)
        session_op_done(&x->op);
    execution_free(x);
}

static void time_over(struct timer *t)
{
    struct execution *x = container_of(t, struct execution, timer);
    bool running = !session_unrun(x->session, &x->command);
    answer_timeout(x);
    x->session = NULL;
    session_op_done(&x->op);
    if (!running)
        execution_free(x);
}

static void op_run(struct session_op *op, struct session *s)
{
    struct execution *x = container_of(op, struct execution, op);
    x->session = s;
    x->begun_us = clock_mono_us();
    x->timeout_ms = x->request.timeout_ms;
    if (x->timeout_ms < 0)
        x->timeout_ms = session_timeout_ms(s);
    if (x->timeout_ms < 0)
        x->timeout_ms = x->agent->command_timeout_ms;
    if (x->timeout_ms >= 0)
        loop_timer_start(x->agent->loop, &x->timer, x->timeout_ms, time_over);
    if (x->events && x->req)
        begin_events(x);
    x->command = (struct shell_command){
        .text = x->request.command,
        .len = x->request.len,
        .cwd = x->request.cwd,
        .env = &x->request.env,
        .live = x->events,
        .output = on_output,
        .done = on_done,
    };
    session_run(s, &x->command);
}

static void op_fail(struct session_op *op, const struct session_fault *fault)
{
    struct execution *x = container_of(op, struct execution, op);
    answer_fault(x, fault);
    execution_free(x);
}

static void execute_in_session(struct execution *x)
{
    x->op = (struct session_op){.run = op_run, .fail = op_fail};
    session_submit(x->agent, x->request.session_id, &x->op);
}

/* ------------------------------------------------------------------ sessionless */

static bool accepts_events(const struct http_request *req)
{
    return http_list_has(http_request_header(req, "Accept"), "text/event-stream");
}

struct sessionless {
    struct process_watcher watcher;
    struct process *process;
    struct http_request *req;
    int64_t begun_us;
};

static void sessionless_gone(struct http_request *req)
{
    struct sessionless *s = req->user;
    s->req = NULL;
}

static void sessionless_changed(struct process_watcher *w)
{
    struct sessionless *s = container_of(w, struct sessionless, watcher);
    struct process *p = s->process;
    struct reply r;
    if (!p->ended)
        return;
    if (s->req) {
        s->req->on_gone = NULL;
        put_result(&r, &p->request, p->exit_code, s->begun_us);
        spool_reply_send(p->agent, s->req, &r, (struct spool_part){p->spools[0], 0, spool_end(p->spools[0])},
                         (struct spool_part){p->spools[1], 0, spool_end(p->spools[1])}, 0);
    }
    process_unwatch(p, w);
    free(s);
}

static void sessionless_started(struct process *p, const struct process_failure *failure, void *arg)
{
    struct sessionless *s = arg;
    struct reply r;
    if (!failure) {
        s->process = p;
        s->watcher.changed = sessionless_changed;
        process_watch(p, &s->watcher);
        return;
    }
    if (s->req) {
        s->req->on_gone = NULL;
        reply_error_begin(&r, "COMMAND_EXECUTION_ERROR", "Failed to execute command '%s': %s", p->command,
                          failure->why);
        json_member_string(&r.w, "command", p->command);
        json_member_string(&r.w, "stderr", failure->why);
        reply_error_send(&r, s->req);
    }
    free(s);
}

static void sessionless_stream(struct process *p, const struct process_failure *failure, void *arg)
{
    struct sessionless *s = arg;
    if (failure || !s->req) {
        sessionless_started(p, failure, arg);
        return;
    }
    struct http_request *req = s->req;
    free(s);
    req->on_gone = NULL;
    if (stream_attach(p, req, STREAM_EXECUTE, NULL) < 0) /* no record: there is nothing to come back to */
        reply_error(req, "COMMAND_EXECUTION_ERROR", "out of memory");
}

static void execute_sessionless(struct agent *a, struct http_request *req, struct command_request *c)
{
    bool events = accepts_events(req);
    struct sessionless *s = calloc(1, sizeof *s);
    int r = -ENOMEM;
    if (c->timeout_ms < 0)
        c->timeout_ms = a->command_timeout_ms;
    if (s) {
        s->req = req;
        s->begun_us = clock_mono_us();
        req->user = s;
        req->on_gone = sessionless_gone;
        r = process_start(a, c,
                          &(struct process_options){
                              .hidden = true,
                              .live = events,
                              .timeout = true,
                              .started = events ? sessionless_stream : sessionless_started,
                              .arg = s,
                          });
    }
    if (r < 0) {
        req->on_gone = NULL;
        free(s);
        reply_error(req, "COMMAND_EXECUTION_ERROR", "Failed to execute the command: %s", strerror(-r));
    }
    command_request_done(c);
}

/* ------------------------------------------------------------------ the route */

static bool refuse(struct http_request *req, const struct command_request *c)
{
    struct reply r;
    if (c->command && !session_name_is_blank(c->session_id) && !c->bad_env_name)
        return false;
    if (!c->command)
        reply_error_begin(&r, "COMMAND_EXECUTION_ERROR", "The command is missing");
    else if (c->bad_env_name)
        reply_error_begin(&r, "COMMAND_EXECUTION_ERROR", "Invalid environment variable name: %s",
                          c->bad_env_name);
    else
        reply_error_begin(&r, "COMMAND_EXECUTION_ERROR", "The session id is blank");
    json_member_string(&r.w, "command", c->command);
    json_put_key(&r.w, "stderr");
    json_put_bytes(&r.w, buf_data(&r.message), buf_len(&r.message));
    reply_error_send(&r, req);
    return true;
}

void route_execute(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct command_request c;
    int r = command_request_parse(&c, a, req, call->body, true);
    if (r < 0) {
        reply_command_error(req, r, "COMMAND_EXECUTION_ERROR");
        return;
    }
    if (c.background) {
        process_start_for(a, req, &c);
        return;
    }
    if (refuse(req, &c)) {
        command_request_done(&c);
        return;
    }
    if (c.sessionless) {
        execute_sessionless(a, req, &c);
        return;
    }
    struct execution *x = calloc(1, sizeof *x);
    if (x) {
        x->agent = a;
        x->request = c;
        x->events = accepts_events(req);
        x->partial[0] = x->partial[1] = BUF_INIT(2 * EVENT_PIECE);
        for (int i = 0; i < 2 && !x->events; i++)
            x->spools[i] = spool_new(&a->spools);
        if (event_frame_init(&x->frame, NULL) == 0 && (x->events || (x->spools[0] && x->spools[1]))) {
            x->req = req;
            req->user = x;
            req->on_gone = on_gone;
            execute_in_session(x);
            return;
        }
        execution_free(x);
    } else {
        command_request_done(&c);
    }
    reply_error(req, "COMMAND_EXECUTION_ERROR", "out of memory");
}
