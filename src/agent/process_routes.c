/* SPDX-License-Identifier: Apache-2.0 */
/* process_routes.c: process/start, list, get, stream; logs and kill have files of their own. */
#include "agent/process.h"
#include "agent/reply.h"
#include "agent/routes.h"
#include "agent/stream.h"

#include <errno.h>
#include <string.h>

/* ------------------------------------------------------------------ shared answers */

static void put_process(struct json_writer *w, const struct process *p, bool with_end)
{
    json_object_begin(w);
    json_member_string(w, "id", p->id);
    json_member_int(w, "pid", p->pid);
    json_member_string(w, "command", p->command);
    json_member_string(w, "status", process_status_name(p));
    reply_time(w, "startTime", p->started_ms);
    bool legacy = p->agent->legacy_03; /* always has both members */
    if (p->ended && (with_end || legacy)) {
        reply_time(w, "endTime", p->ended_ms);
    } else if (legacy) {
        json_put_key(w, "endTime");
        json_put_null(w);
    }
    if (p->ended) {
        json_member_int(w, "exitCode", p->exit_code);
    } else if (legacy) {
        json_put_key(w, "exitCode");
        json_put_null(w);
    }
    json_member_string(w, "sessionId", p->session_id);
    json_object_end(w);
}

struct process *process_or_refuse(struct agent *a, struct http_request *req, const char *id)
{
    struct process *p = process_find(a, id);
    struct reply r;
    if (!p) {
        reply_error_begin(&r, "PROCESS_NOT_FOUND", "Process '%s' not found", id);
        json_member_string(&r.w, "processId", id);
        reply_error_send(&r, req);
    }
    return p;
}

bool reply_process_refusal(struct http_request *req, const struct command_request *c)
{
    struct reply r;
    if (command_is_blank(c)) {
        reply_error(req, "INVALID_COMMAND", "Invalid command: it is empty");
        return true;
    }
    if (!session_name_is_blank(c->session_id) && !c->bad_env_name)
        return false;
    if (c->bad_env_name)
        reply_error_begin(&r, "STREAM_START_ERROR", "Invalid environment variable name: %s", c->bad_env_name);
    else
        reply_error_begin(&r, "STREAM_START_ERROR", "The session id is blank");
    json_member_string(&r.w, "command", c->command);
    json_put_key(&r.w, "stderr");
    json_put_bytes(&r.w, buf_data(&r.message), buf_len(&r.message));
    reply_error_send(&r, req);
    return true;
}

void reply_process_error(struct http_request *req, int r)
{
    if (r == -EAGAIN)
        reply_error(req, "TOO_MANY_PROCESSES", "Failed to start: too many processes run");
    else
        reply_error(req, "STREAM_START_ERROR", "Failed to start: %s", strerror(-r));
}

void reply_process_failure(struct http_request *req, const struct process *p,
                           const struct process_failure *failure)
{
    struct reply r;
    if (failure->fault) {
        reply_session_fault(req, p->session_id, failure->fault, "STREAM_START_ERROR");
        return;
    }
    reply_error_begin(&r, "STREAM_START_ERROR", "Failed to start '%s': %s", p->command, failure->why);
    json_member_string(&r.w, "command", p->command);
    json_member_string(&r.w, "stderr", failure->why);
    reply_error_send(&r, req);
}

/* ------------------------------------------------------------------ start */

struct start_call {
    struct http_request *req; /* NULL: the client is gone */
};

static void start_gone(struct http_request *req)
{
    struct start_call *c = req->user;
    c->req = NULL;
}

static void started(struct process *p, const struct process_failure *failure, void *arg)
{
    struct start_call *c = arg;
    struct http_request *req = c->req;
    struct reply r;
    free(c);
    if (!req)
        return;
    if (failure) {
        reply_process_failure(req, p, failure);
        return;
    }
    reply_begin(&r);
    json_member_string(&r.w, "processId", p->id);
    json_member_int(&r.w, "pid", p->pid);
    json_member_string(&r.w, "command", p->command);
    json_put_key(&r.w, "process");
    put_process(&r.w, p, true);
    reply_send(&r, req);
}

void process_start_for(struct agent *a, struct http_request *req, struct command_request *c)
{
    if (reply_process_refusal(req, c)) {
        command_request_done(c);
        return;
    }
    struct start_call *call = calloc(1, sizeof *call);
    int r = -ENOMEM;
    if (call) {
        call->req = req;
        req->user = call;
        req->on_gone = start_gone;
        r = process_start(a, c, &(struct process_options){.timeout = true, .started = started, .arg = call});
    }
    if (r < 0) {
        req->on_gone = NULL;
        free(call);
        reply_process_error(req, r);
    }
    command_request_done(c);
}

void route_process_start(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct command_request c;
    int r = command_request_parse(&c, a, req, call->body, false);
    if (r < 0)
        reply_command_error(req, r, "STREAM_START_ERROR");
    else
        process_start_for(a, req, &c);
}

/* ------------------------------------------------------------------ looking */

void route_process_list(struct agent *a, struct http_request *req, struct route_call *call)
{
    char status[32], session[1024];
    bool by_status = http_query_get(req->query, "status", status, sizeof status);
    bool by_session = http_query_get(req->query, "session", session, sizeof session);
    struct reply r;
    int64_t count = 0;
    (void)call;
    reply_begin(&r);
    json_put_key(&r.w, "processes");
    json_array_begin(&r.w);
    for (int ended = 0; ended < 2; ended++)
        list_for_each(i, &a->processes)
        {
            const struct process *p = list_entry(i, struct process, link);
            if (p->ended != ended || (by_status && strcmp(status, process_status_name(p)) != 0) ||
                (by_session && strcmp(session, p->session_id) != 0))
                continue;
            put_process(&r.w, p, false);
            count++;
        }
    json_array_end(&r.w);
    json_member_int(&r.w, "count", count);
    reply_send(&r, req);
}

void route_process_get(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct reply r;
    const struct process *p = process_or_refuse(a, req, call->param);
    if (!p)
        return;
    reply_begin(&r);
    json_put_key(&r.w, "process");
    put_process(&r.w, p, true);
    reply_send(&r, req);
}

void route_process_stream(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct stream_position from = stream_position_of(req);
    struct process *p = process_or_refuse(a, req, call->param);
    if (p && stream_attach(p, req, STREAM_PROCESS, &from) < 0)
        reply_error(req, "PROCESS_ERROR", "out of memory");
}
