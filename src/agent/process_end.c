/* SPDX-License-Identifier: Apache-2.0 */
/* process_end.c: DELETE process/{id} and process/kill-all: the answer comes when the whole tree is dead. */
#include "agent/process.h"
#include "agent/reply.h"
#include "agent/routes.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

struct kill_request {
    struct http_request *req; /* NULL: the client is gone */
    struct process *one;      /* NULL: kill-all */
};

static void kill_gone(struct http_request *req)
{
    struct kill_request *k = req->user;
    k->req = NULL;
}

static void put_killed_one(struct reply *r, const struct process *p)
{
    json_member_string(&r->w, "processId", p->id);
    json_member_string(&r->w, "sessionId", p->session_id);
    json_member_string(&r->w, "message", "Process killed");
}

static void put_killed_all(struct reply *r, size_t killed)
{
    json_member_int(&r->w, "cleanedCount", (int64_t)killed);
    json_member_int(&r->w, "killedCount", (int64_t)killed);
    json_member_string(&r->w, "message", "Processes killed");
}

static void kill_done(void *arg, size_t killed)
{
    struct kill_request *k = arg;
    struct reply r;
    if (k->req && k->one && !killed) {
        reply_error_begin(&r, "PROCESS_ERROR", "Process '%s' could not be killed", k->one->id);
        json_member_string(&r.w, "processId", k->one->id);
        json_member_string(&r.w, "stderr", "the process did not end in time");
        reply_error_send(&r, k->req);
    } else if (k->req) {
        reply_begin(&r);
        if (k->one)
            put_killed_one(&r, k->one);
        else
            put_killed_all(&r, killed);
        reply_send(&r, k->req);
    }
    free(k);
}

static void start_killing(struct agent *a, struct http_request *req, struct process *const *processes,
                          size_t count, struct process *one, int signal)
{
    struct kill_request *k = calloc(1, sizeof *k);
    if (k) {
        *k = (struct kill_request){.req = req, .one = one};
        req->user = k;
        req->on_gone = kill_gone;
        if (processes_kill(a, processes, count, signal, kill_done, k) == 0)
            return;
        req->on_gone = NULL;
    }
    free(k);
    reply_error(req, "PROCESS_ERROR", "out of memory");
}

/* Signals that end a process unless it does something about them; what stops or is ignored would only be
 * followed by SIGKILL. */
static int signal_number(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } signals[] = {
        {"SIGTERM", SIGTERM}, {"SIGINT", SIGINT},   {"SIGHUP", SIGHUP},   {"SIGQUIT", SIGQUIT},
        {"SIGKILL", SIGKILL}, {"SIGUSR1", SIGUSR1}, {"SIGUSR2", SIGUSR2}, {"SIGABRT", SIGABRT},
        {"SIGALRM", SIGALRM}, {"SIGPIPE", SIGPIPE},
    };
    char *end;
    long number = strtol(name, &end, 10);
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        if (strcmp(signals[i].name, name) == 0 || strcmp(signals[i].name + 3, name) == 0 ||
            (*name && !*end && signals[i].number == number))
            return signals[i].number;
    return 0;
}

/* From the query or the body; 0: not a signal that can be chosen. */
static int chosen_signal(const struct http_request *req, const struct json_value *body)
{
    char name[16];
    const struct json_value *member = json_get(body, "signal");
    double number;
    if (query_has(req->query, "signal"))
        return http_query_get(req->query, "signal", name, sizeof name) ? signal_number(name) : 0;
    if (!member || json_type_of(member) == JSON_NULL)
        return SIGTERM;
    if (json_number(member, &number)) {
        (void)snprintf(name, sizeof name, "%d", number >= 1 && number < 64 ? (int)number : 0);
        return signal_number(name);
    }
    return json_string(member, NULL) ? signal_number(json_string(member, NULL)) : 0;
}

void route_process_kill(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct reply r;
    struct process *p = process_or_refuse(a, req, call->param);
    if (!p)
        return;
    int signal = chosen_signal(req, call->body);
    if (!signal) {
        reply_error(req, "VALIDATION_FAILED", "Unknown signal");
        return;
    }
    if (p->ended) {
        reply_error_begin(&r, "COMMAND_NOT_FOUND", "Process '%s' has ended already", p->id);
        json_member_string(&r.w, "command", p->id);
        reply_error_send(&r, req);
        return;
    }
    start_killing(a, req, &p, 1, p, signal);
}

void route_process_kill_all(struct agent *a, struct http_request *req, struct route_call *call)
{
    char session[1024];
    bool by_session = http_query_get(req->query, "session", session, sizeof session) && session[0];
    size_t count = 0;
    (void)call;
    auto_free struct process **running = calloc(a->process_count + 1, sizeof *running);
    if (!running) {
        reply_error(req, "PROCESS_ERROR", "out of memory");
        return;
    }
    list_for_each(i, &a->processes)
    {
        struct process *p = list_entry(i, struct process, link);
        if (!p->ended && (!by_session || strcmp(session, p->session_id) == 0))
            running[count++] = p;
    }
    start_killing(a, req, running, count, NULL, SIGTERM);
}
