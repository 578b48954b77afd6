/* SPDX-License-Identifier: Apache-2.0 */
/* port_watch.c: POST /api/port-watch (tell when a port is ready) and POST /api/port-check (one look, for
 * release 0.6.3).
 *
 * A watch probes, waits for the interval, and probes again until the service answers, its process ends, or
 * the client leaves. The end of the process is noticed when it happens, not at the next probe. */
#include "agent/probe.h"
#include "agent/process.h"
#include "agent/reply.h"
#include "agent/routes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { INTERVAL_DEFAULT_MS = 500, INTERVAL_MIN_MS = 100, INTERVAL_MAX_MS = 10000, PATH_SIZE = 4096 };

struct port_request {
    double port; /* as given, for the answers */
    bool valid;  /* it is the number of a port */
    bool http;
    double status_min, status_max;
    int64_t interval_ms;
    char path[PATH_SIZE];
};

struct port_watch {
    struct agent *agent;
    struct http_request *req;
    struct port_request q;
    struct probe *probe;
    struct timer timer;
    struct process *process; /* NULL: none was named */
    struct process_watcher watcher;
};

static double number_or(const struct json_value *v, double fallback)
{
    (void)json_number(v, &fallback);
    return fallback;
}

/* The path goes into a request line: whatever is not visible ASCII is percent-encoded. false: too long. */
static bool put_path(char out[PATH_SIZE], const char *path)
{
    size_t n = 0;
    if (path[0] != '/')
        out[n++] = '/';
    for (; *path; path++) {
        unsigned char c = (unsigned char)*path;
        if (n + 4 > PATH_SIZE)
            return false;
        if (c > ' ' && c < 0x7f && c != '#') {
            out[n++] = (char)c;
        } else if (c == '#') {
            break; /* a fragment is not sent */
        } else {
            (void)snprintf(out + n, 4, "%%%02X", c);
            n += 3;
        }
    }
    out[n] = '\0';
    return true;
}

/* NULL, or a sentence about what is wrong. */
static const char *request_parse(const struct json_value *body, struct port_request *q)
{
    const char *mode = json_string(json_get(body, "mode"), NULL),
               *path = json_string(json_get(body, "path"), NULL);
    int64_t port;
    q->port = number_or(json_get(body, "port"), 0);
    q->valid = json_integer(json_get(body, "port"), 1, 65535, &port);
    q->http = !mode || strcmp(mode, "tcp") != 0;
    q->status_min = number_or(json_get(body, "statusMin"), 200);
    q->status_max = number_or(json_get(body, "statusMax"), 399);
    double interval = number_or(json_get(body, "interval"), INTERVAL_DEFAULT_MS);
    q->interval_ms = (int64_t)MIN(MAX(interval, (double)INTERVAL_MIN_MS), (double)INTERVAL_MAX_MS);
    if (!q->valid)
        return "port must be an integer from 1 to 65535";
    return put_path(q->path, path ? path : "/") ? NULL : "path is too long";
}

static struct probe *request_probe(struct agent *a, const struct port_request *q, probe_done *done, void *arg)
{
    struct probe_target target = {.port = (int)q->port, .http = q->http, .path = q->path};
    return probe_start(a->loop, &target, done, arg);
}

static bool status_fits(const struct port_request *q, int status)
{
    return q->http ? status >= q->status_min && status <= q->status_max : status == 0;
}

/* ------------------------------------------------------------------ port-watch */

static void watch_free(struct port_watch *w)
{
    if (w->process) {
        process_unwatch(w->process, &w->watcher);
        process_unref(w->process);
    }
    loop_timer_stop(w->agent->loop, &w->timer);
    probe_free(w->probe);
    free(w);
}

/* {"type":...,"port":...} and at most one more member. */
static void watch_send(struct port_watch *w, const char *type, const char *key, const int *number,
                       const char *text)
{
    struct buf out = BUF_INIT(64 * 1024);
    struct json_writer json;
    json_writer_init(&json, &out);
    json_object_begin(&json);
    json_member_string(&json, "type", type);
    json_put_key(&json, "port");
    json_put_number(&json, w->q.port);
    if (number)
        json_member_int(&json, key, *number);
    else if (text)
        json_member_string(&json, key, text);
    json_object_end(&json);
    if (json.err == 0)
        (void)sse_event(w->req, NULL, buf_data(&out), buf_len(&out));
    buf_done(&out);
}

static void watch_end(struct port_watch *w)
{
    struct http_request *req = w->req;
    watch_free(w);
    http_response_end(req);
}

static void watch_error(struct port_watch *w, const char *why)
{
    watch_send(w, "error", "error", NULL, why);
    watch_end(w);
}

static void watch_gone(struct http_request *req)
{
    watch_free(req->user);
}

static void watch_probe(struct port_watch *w);

static void watch_again(struct timer *t)
{
    watch_probe(container_of(t, struct port_watch, timer));
}

static void probed(struct probe *p, int status, const char *why, void *arg)
{
    struct port_watch *w = arg;
    (void)why;
    probe_free(p);
    w->probe = NULL;
    if (!status_fits(&w->q, status)) {
        loop_timer_start(w->agent->loop, &w->timer, w->q.interval_ms, watch_again);
        return;
    }
    watch_send(w, "ready", "statusCode", w->q.http ? &status : NULL, NULL);
    watch_end(w);
}

static void watch_probe(struct port_watch *w)
{
    w->probe = request_probe(w->agent, &w->q, probed, w);
    if (!w->probe)
        watch_error(w, "Out of memory");
}

/* True when the process is over; then w is gone. */
static bool watch_process_over(struct port_watch *w)
{
    if (!w->process->ended)
        return false;
    watch_send(w, "process_exited", "exitCode", &w->process->exit_code, NULL);
    watch_end(w);
    return true;
}

static void process_changed(struct process_watcher *pw)
{
    struct port_watch *w = container_of(pw, struct port_watch, watcher);
    /* we read nothing, so we must not hold back a command that waits for its readers */
    for (int i = 0; i < 2; i++)
        pw->offset[i] = spool_end(w->process->spools[i]);
    (void)watch_process_over(w);
}

static void watch_follow(struct port_watch *w, struct process *p)
{
    w->process = process_ref(p);
    w->watcher.changed = process_changed;
    for (int i = 0; i < 2; i++)
        w->watcher.offset[i] = spool_end(p->spools[i]);
    process_watch(p, &w->watcher);
}

void route_port_watch(struct agent *a, struct http_request *req, struct route_call *call)
{
    const char *id = json_string(json_get(call->body, "processId"), NULL);
    struct port_watch *w = calloc(1, sizeof *w);
    if (!w) {
        reply_error(req, "INTERNAL_ERROR", "Out of memory");
        return;
    }
    w->agent = a;
    w->req = req;
    const char *wrong = request_parse(call->body, &w->q);
    req->user = w;
    req->on_gone = watch_gone;
    sse_begin(req);
    watch_send(w, "watching", NULL, NULL, NULL);
    if (wrong) {
        watch_error(w, wrong);
        return;
    }
    if (id && *id) {
        struct process *p = process_find(a, id);
        if (!p) {
            watch_error(w, "Process not found");
            return;
        }
        watch_follow(w, p);
        if (watch_process_over(w))
            return;
    }
    watch_probe(w);
}

/* ------------------------------------------------------------------ port-check */

struct port_check {
    struct http_request *req;
    struct port_request q;
    struct probe *probe;
};

static void check_answer(struct http_request *req, bool ready, int status, const char *why)
{
    struct buf out = BUF_INIT(4096);
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_bool(&w, "ready", ready);
    if (status > 0)
        json_member_int(&w, "statusCode", status);
    if (why)
        json_member_string(&w, "error", why);
    json_object_end(&w);
    http_respond(req, 200, "application/json", buf_data(&out), buf_len(&out));
    buf_done(&out);
}

static void check_free(struct port_check *c)
{
    probe_free(c->probe);
    free(c);
}

static void check_gone(struct http_request *req)
{
    check_free(req->user);
}

static void checked(struct probe *p, int status, const char *why, void *arg)
{
    struct port_check *c = arg;
    struct http_request *req = c->req;
    char text[100];
    bool ready = status_fits(&c->q, status);
    (void)p;
    if (!ready && status > 0) {
        (void)snprintf(text, sizeof text, "HTTP status %d is not in the expected range", status);
        why = text;
    }
    check_free(c);
    check_answer(req, ready, status, ready ? NULL : why);
}

void route_port_check(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct port_check *c = calloc(1, sizeof *c);
    const char *wrong = c ? request_parse(call->body, &c->q) : "Out of memory";
    if (!wrong && !(c->probe = request_probe(a, &c->q, checked, c)))
        wrong = "Out of memory";
    if (wrong) {
        free(c);
        check_answer(req, false, 0, wrong);
        return;
    }
    c->req = req;
    req->user = c;
    req->on_gone = check_gone;
}
