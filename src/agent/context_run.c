/* SPDX-License-Identifier: Apache-2.0 */
/* context_run.c: one run of code and the events that answer it.
 *
 * Theory of operation
 * A run waits in its context's queue, is sent to the interpreter, turns what comes back into events, and ends
 * with the message that says so. The stream is pure ASCII: clients decode its pieces one by one, so no
 * character may be cut. A reader that is slow makes the interpreter wait. A reader that leaves changes
 * nothing, unless it wanted that. Out of time: SIGINT, which both languages turn into an error of the running
 * code; if that does not help, the interpreter is killed. From the interrupt on a slow reader is not waited
 * for any more. */
#include "agent/context_internal.h"
#include "agent/reply.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    OUTPUT_MAX = 16 << 20, /* of one stream of one run; the rest is counted */
    EVENT_MAX = 64 << 20,
    GRACE_MS = 2000, /* between interrupt and kill */
};

static const char ack[] = "{\"op\":\"ack\"}\n";
static const char *const stream_names[2] = {"stdout", "stderr"};

struct code_run {
    struct list link;
    struct context *context;
    struct http_request *req; /* NULL: the client is gone */
    struct buf request;       /* `"code":...}` and a newline */
    enum code_run_form form;
    int64_t timeout_ms;
    bool cancel_when_gone;

    bool begun;         /* events have been sent */
    bool interruptible; /* the interpreter is at it; before, it would not know what a signal means */
    bool asked_again;
    enum { FATE_RUNS, FATE_TIMED_OUT, FATE_INTERRUPTED } fate;
    struct timer timer;
    struct buf error; /* the JSON text of the interpreter's error */
    struct utf8_stream utf8[2];
    uint64_t printed[2];
    struct buf json, out; /* the event being made; events to be sent */
};

/* ------------------------------------------------------------------ events */

/* Sends the event in run->json. */
static void put_event(struct code_run *run)
{
    if (run->form != RUN_FORM_SSE) {
        (void)buf_append(&run->out, buf_data(&run->json), buf_len(&run->json));
        (void)buf_putc(&run->out, '\n');
    }
    if (run->form != RUN_FORM_BARE) {
        (void)buf_puts(&run->out, "data: ");
        (void)buf_append(&run->out, buf_data(&run->json), buf_len(&run->json));
        (void)buf_puts(&run->out, "\n\n");
    }
    buf_clear(&run->json);
    if (run->req && !http_response_write(run->req, buf_data(&run->out), buf_len(&run->out)) &&
        run->fate == FATE_RUNS && run->context->process)
        context_process_pause(run->context->process);
    buf_clear(&run->out);
}

static void put_ascii(struct json_writer *w, const char *s, size_t n)
{
    struct utf8_stream st = {0};
    json_string_begin(w);
    (void)utf8_decode(&st, s, n, true, UTF8_JSON | UTF8_ASCII, w->out);
    json_string_end(w);
}

static void event_open(struct code_run *run, struct json_writer *w, const char *type)
{
    buf_clear(&run->json);
    json_writer_init(w, &run->json);
    json_object_begin(w);
    json_member_string(w, "type", type);
}

static void event_shut(struct code_run *run, struct json_writer *w)
{
    json_object_end(w);
    if (w->err == 0)
        put_event(run);
}

static void put_text(struct code_run *run, int stream, const char *data, size_t n, bool final,
                     bool background)
{
    struct json_writer w;
    event_open(run, &w, stream_names[stream]);
    json_put_key(&w, "text");
    json_string_begin(&w);
    size_t before = buf_len(&run->json);
    if (utf8_decode(&run->utf8[stream], data, n, final, UTF8_JSON | UTF8_ASCII, &run->json) < 0 ||
        buf_len(&run->json) == before)
        return; /* nothing but the beginning of a character */
    json_string_end(&w);
    if (background)
        json_member_bool(&w, "background", true);
    event_shut(run, &w);
}

void code_run_output(struct code_run *run, int stream, const char *data, size_t n)
{
    uint64_t before = run->printed[stream];
    run->printed[stream] += n;
    if (!run->req || before > OUTPUT_MAX)
        return;
    size_t take = (size_t)MIN(OUTPUT_MAX - before, (uint64_t)n);
    if (take)
        put_text(run, stream, data, take, take < n, false);
    if (take < n) {
        char note[80];
        int len = snprintf(note, sizeof note, "\n[output limit of %d bytes reached, the rest is left out]\n",
                           OUTPUT_MAX);
        put_text(run, stream, note, (size_t)len, true, false);
    }
}

static void put_late(struct code_run *run)
{
    for (int i = 0; i < 2; i++) {
        struct buf *late = &run->context->late[i];
        if (buf_len(late) && run->req)
            put_text(run, i, buf_data(late), buf_len(late), true, true);
        buf_done(late);
    }
}

/* A JSON object in ASCII on one line? What the interpreter says is not trusted to be one. */
static bool is_event_text(const struct frame *f)
{
    for (size_t i = 0; i < f->len; i++)
        if ((unsigned char)f->json[i] < 0x20 || (unsigned char)f->json[i] > 0x7e)
            return false;
    auto_free char *copy = malloc(f->len + 1);
    auto_json struct json_doc *doc = NULL;
    if (!copy)
        return false;
    memcpy(copy, f->json, f->len);
    return f->len > 2 && json_parse(copy, f->len, JSON_ALLOW_NUL, &doc, NULL) == 0 &&
           json_type_of(json_root(doc)) == JSON_OBJECT && f->json[0] == '{' && f->json[f->len - 1] == '}';
}

static void put_result(struct code_run *run, const struct frame *f)
{
    if (!run->req || !is_event_text(f))
        return;
    buf_clear(&run->json);
    if (buf_puts(&run->json, "{\"type\":\"result\",") == 0 &&
        buf_append(&run->json, f->json + 1, f->len - 1) == 0)
        put_event(run);
}

/* ------------------------------------------------------------------ the end */

static void run_free(struct code_run *run)
{
    struct context *c = run->context;
    list_remove(&run->link);
    loop_timer_stop(c->agent->loop, &run->timer);
    buf_done(&run->request);
    buf_done(&run->error);
    buf_done(&run->json);
    buf_done(&run->out);
    bool current = c->run == run;
    free(run);
    if (current) {
        if (c->process)
            context_process_resume(c->process);
        context_run_over(c);
    }
}

static void finish(struct code_run *run)
{
    struct http_request *req = take_ptr(run->req);
    if (req) {
        req->on_gone = req->on_drain = NULL;
        http_response_end(req);
    }
    run_free(run);
}

static void put_count(struct code_run *run, struct json_writer *w)
{
    json_member_int(w, "execution_count", (int64_t)run->context->count);
    for (int i = 0; i < 2; i++)
        if (run->printed[i] > OUTPUT_MAX)
            json_member_int(w, i ? "stderr_bytes" : "stdout_bytes", (int64_t)run->printed[i]);
}

/* An error of ours; the traceback, if any, is the interpreter's. */
static void put_error(struct code_run *run, const char *ename, const char *evalue)
{
    struct json_writer w;
    auto_json struct json_doc *doc = NULL;
    if (buf_len(&run->error))
        (void)json_parse(buf_data(&run->error), buf_len(&run->error), JSON_ALLOW_NUL, &doc, NULL);
    event_open(run, &w, "error");
    json_member_string(&w, "ename", ename);
    json_put_key(&w, "evalue");
    put_ascii(&w, evalue, strlen(evalue));
    json_put_key(&w, "traceback");
    json_array_begin(&w);
    json_for_each (line, json_get(doc ? json_root(doc) : NULL, "traceback")) {
        size_t n;
        const char *s = json_string(line, &n);
        if (s)
            put_ascii(&w, s, n);
    }
    json_array_end(&w);
    put_count(run, &w);
    event_shut(run, &w);
}

static void put_last(struct code_run *run)
{
    struct json_writer w;
    if (run->fate == FATE_TIMED_OUT) {
        char why[100];
        (void)snprintf(why, sizeof why, "Execution timeout: interrupted after %lld ms",
                       (long long)run->timeout_ms);
        put_error(run, "TimeoutError", why);
        return;
    }
    if (!buf_len(&run->error)) {
        event_open(run, &w, "execution_complete");
        put_count(run, &w);
        event_shut(run, &w);
        return;
    }
    /* the interpreter's own members, then ours */
    struct buf count = BUF_INIT(256);
    json_writer_init(&w, &count);
    json_object_begin(&w);
    put_count(run, &w);
    json_object_end(&w);
    buf_clear(&run->json);
    if (w.err == 0 && buf_puts(&run->json, "{\"type\":\"error\",") == 0 &&
        buf_append(&run->json, buf_data(&run->error) + 1, buf_len(&run->error) - 2) == 0 &&
        buf_putc(&run->json, ',') == 0 &&
        buf_append(&run->json, buf_data(&count) + 1, buf_len(&count) - 1) == 0)
        put_event(run);
    buf_done(&count);
}

static void finish_texts(struct code_run *run)
{
    for (int i = 0; i < 2 && run->req; i++)
        if (run->utf8[i].pending_len)
            put_text(run, i, NULL, 0, true, false);
}

void code_run_message(struct code_run *run, struct frame *f)
{
    switch (f->kind) {
    case 'b':
        run->interruptible = true;
        if (run->fate != FATE_RUNS)
            context_process_interrupt(run->context->process);
        break;
    case 'a':
        put_result(run, f);
        (void)context_process_send(run->context->process, ack,
                                   sizeof ack - 1); /* without it the code waits */
        break;
    case 'r':
        put_result(run, f);
        break;
    case 'e':
        buf_clear(&run->error);
        if (is_event_text(f))
            (void)buf_append(&run->error, f->json, f->len);
        break;
    case 'd':
        finish_texts(run);
        if (run->req)
            put_last(run);
        finish(run);
        break;
    default: /* nothing else is said during a run */
        break;
    }
}

void code_run_refuse(struct http_request *req, const char *code, const char *context_id, const char *evalue,
                     const char *fmt, ...)
{
    struct buf out = BUF_INIT(64 * 1024), details = BUF_INIT(16 * 1024);
    struct json_writer w;
    char message[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    int status = reply_status_of(code);
    json_writer_init(&w, &details);
    json_object_begin(&w);
    if (context_id)
        json_member_string(&w, "contextId", context_id);
    if (evalue)
        json_member_string(&w, "evalue", evalue);
    json_object_end(&w);
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_string(&w, "error", message);
    json_member_string(&w, "code", code);
    json_put_key(&w, "details");
    json_put_raw(&w, buf_data(&details), buf_len(&details));
    json_member_string(&w, "message", message); /* and what an envelope has */
    json_put_key(&w, "context");
    json_put_raw(&w, buf_data(&details), buf_len(&details));
    json_member_int(&w, "httpStatus", status);
    reply_timestamp(&w);
    json_object_end(&w);
    http_respond(req, status, "application/json", buf_data(&out), buf_len(&out));
    buf_done(&out);
    buf_done(&details);
}

void code_run_fail(struct code_run *run, const char *code, const char *ename, const char *sentence)
{
    struct http_request *req = run->req;
    if (!run->begun) {
        run->req = NULL;
        if (req) {
            req->on_gone = req->on_drain = NULL;
            code_run_refuse(req, code, run->context->id, NULL, "%s", sentence);
        }
        run_free(run);
        return;
    }
    finish_texts(run);
    if (run->req)
        put_error(run, ename, sentence);
    finish(run);
}

/* ------------------------------------------------------------------ time and interrupts */

static void time_over(struct timer *t)
{
    struct code_run *run = container_of(t, struct code_run, timer);
    struct context *c = run->context;
    if (run->fate == FATE_RUNS) {
        code_run_interrupt(run);
        run->fate = FATE_TIMED_OUT;
        return;
    }
    if (!run->asked_again) { /* a signal may come at a moment when it has no effect */
        run->asked_again = true;
        context_process_interrupt(c->process);
        loop_timer_start(c->agent->loop, &run->timer, GRACE_MS / 2, time_over);
        return;
    }
    bool timed_out = run->fate == FATE_TIMED_OUT;
    char why[200];
    (void)snprintf(why, sizeof why,
                   "%s: the code did not stop %d ms after its interrupt, so the interpreter was killed; its "
                   "state is lost",
                   timed_out ? "Execution timeout" : "Interrupted", GRACE_MS);
    context_restart(c);
    code_run_fail(run, "CODE_EXECUTION_ERROR", timed_out ? "TimeoutError" : "KeyboardInterrupt", why);
}

void code_run_interrupt(struct code_run *run)
{
    struct context *c = run->context;
    if (run->fate != FATE_RUNS)
        return;
    run->fate = FATE_INTERRUPTED;
    if (run->interruptible)
        context_process_interrupt(c->process);
    context_process_resume(c->process);
    loop_timer_start(c->agent->loop, &run->timer, GRACE_MS / 2, time_over);
}

static void on_gone(struct http_request *req)
{
    struct code_run *run = req->user;
    struct context *c = run->context;
    run->req = NULL;
    if (c->run != run) {
        if (run->cancel_when_gone) {
            c->waiting--;
            run_free(run);
        }
        return;
    }
    context_process_resume(c->process);
    if (run->cancel_when_gone)
        code_run_interrupt(run);
}

static void on_drain(struct http_request *req)
{
    struct code_run *run = req->user;
    if (run->context->run == run && run->context->process)
        context_process_resume(run->context->process);
}

/* ------------------------------------------------------------------ the beginning */

int code_run_submit(struct context *c, struct http_request *req, const struct code_run_config *config)
{
    struct json_writer w;
    if (c->waiting == CONTEXT_RUNS_MAX)
        return -EAGAIN;
    struct code_run *run = calloc(1, sizeof *run);
    if (!run)
        return -ENOMEM;
    run->context = c;
    run->form = config->form;
    run->timeout_ms = config->timeout_ms > 0 ? config->timeout_ms : c->timeout_ms;
    run->cancel_when_gone = config->cancel_when_gone;
    run->request = BUF_INIT(EVENT_MAX);
    run->error = run->json = run->out = BUF_INIT(EVENT_MAX);
    list_init(&run->link);
    json_writer_init(&w, &run->request);
    json_object_begin(&w);
    json_put_key(&w, "code");
    json_put_bytes(&w, config->code, config->len);
    json_object_end(&w);
    if (w.err || buf_putc(&run->request, '\n') < 0) {
        int r = w.err ? w.err : -ENOMEM;
        buf_done(&run->request);
        free(run);
        return r;
    }
    run->req = req;
    req->user = run;
    req->on_gone = on_gone;
    req->on_drain = on_drain;
    list_append(&c->queue, &run->link);
    c->waiting++;
    context_pump(c);
    return 0;
}

struct code_run *code_run_first(struct context *c)
{
    if (!c->waiting)
        return NULL;
    struct code_run *run = list_first(&c->queue, struct code_run, link);
    list_remove(&run->link);
    c->waiting--;
    return run;
}

void code_run_start(struct code_run *run)
{
    struct context *c = run->context;
    char head[96];
    int n = snprintf(head, sizeof head, "{\"op\":\"run\",\"run\":%llu,\"count\":%llu,",
                     (unsigned long long)++c->run_number, (unsigned long long)++c->count);
    run->begun = true;
    if (run->req)
        sse_begin(run->req);
    put_late(run);
    if (run->timeout_ms > 0)
        loop_timer_start(c->agent->loop, &run->timer, run->timeout_ms, time_over);
    /* the tail begins with the '{' that head has already */
    int r = context_process_send(c->process, head, (size_t)n);
    if (r == 0)
        r = context_process_send(c->process, buf_data(&run->request) + 1, buf_len(&run->request) - 1);
    buf_done(&run->request);
    if (r < 0) {
        context_restart(c); /* it has got half of it */
        code_run_fail(run, "CODE_EXECUTION_ERROR", "ExecutionError",
                      "the code could not be sent to the interpreter");
    }
}
