/* SPDX-License-Identifier: Apache-2.0 */
/* file_job.c: see file_job.h. */
#include "agent/file_job.h"
#include "agent/file_error.h"
#include "agent/file_path.h"
#include "agent/session_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { PID_POLL_MS = 1 };

static void turn_run(struct deferred *d)
{
    struct file_job *job = container_of(d, struct file_job, turn);
    job->kind->step(job);
}

void file_job_again(struct file_job *job)
{
    loop_defer(job->agent->loop, &job->turn, turn_run);
}

static void drained(struct http_request *req)
{
    file_job_again(req->user);
}

void file_job_on_drain(struct file_job *job)
{
    job->req->on_drain = drained;
}

void file_job_unlock(struct file_job *job)
{
    if (!job->session)
        return;
    job->session = NULL;
    session_op_done(&job->op);
}

void file_job_end(struct file_job *job)
{
    loop_undefer(job->agent->loop, &job->turn);
    loop_timer_stop(job->agent->loop, &job->wait);
    if (job->req) { /* nothing may call back into freed memory */
        job->req->on_gone = NULL;
        job->req->on_drain = NULL;
    }
    if (job->kind->free)
        job->kind->free(job);
    file_job_unlock(job);
    json_free(job->doc);
    buf_done(&job->text);
    free(job);
}

static void client_gone(struct http_request *req)
{
    struct file_job *job = req->user;
    job->req = NULL;
    switch (job->state) {
    case FILE_JOB_READING:
        file_job_end(job);
        break;
    case FILE_JOB_QUEUED:
        break; /* the session still knows it */
    case FILE_JOB_RUNNING:
        if (!job->kind->finishes)
            file_job_end(job);
        break;
    }
}

static void job_run(struct file_job *job)
{
    job->state = FILE_JOB_RUNNING;
    if (!job->req && !job->kind->finishes)
        file_job_end(job);
    else
        job->kind->run(job);
}

static bool names_relative_path(const struct file_job *job)
{
    static const char *const keys[] = {"path", "oldPath", "newPath", "sourcePath", "destinationPath"};
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        const char *path = json_string(json_get(job->body, keys[i]), NULL);
        if (path && *path != '/')
            return true;
    }
    return false;
}

/* The shell may have run commands before its pid is known here, and until then session_cwd can only tell
 * where it began: a relative path would lead elsewhere. So such a request waits for the pid; a shell that
 * cannot be started is dead, which ends the waiting, too. */
static void run_when_directory_known(struct file_job *job);

static void wait_over(struct timer *t)
{
    run_when_directory_known(container_of(t, struct file_job, wait));
}

static void run_when_directory_known(struct file_job *job)
{
    const struct session *s = job->session;
    if (s->shell && !s->dead && !shell_pid(s->shell) && names_relative_path(job))
        loop_timer_start(job->agent->loop, &job->wait, PID_POLL_MS, wait_over);
    else
        job_run(job);
}

static void locked(struct session_op *op, struct session *s)
{
    struct file_job *job = container_of(op, struct file_job, op);
    job->session = s;
    run_when_directory_known(job);
}

static void not_locked(struct session_op *op, const struct session_fault *fault)
{
    struct file_job *job = container_of(op, struct file_job, op);
    struct http_request *req = take_ptr(job->req);
    if (req && job->kind->fault) {
        job->req = req;
        job->kind->fault(job, fault);
    } else if (req) {
        reply_session_fault(req, job->session_id, fault, "FILESYSTEM_ERROR");
    }
    file_job_end(job);
}

static bool check(struct file_job *job)
{
    const char *id;
    if (!file_job_string(job, "sessionId", &id))
        return false;
    job->session_id = id && *id ? id : "default";
    job->sessionless = strcmp(job->session_id, AGENT_SESSIONLESS) == 0;
    return !job->kind->check || job->kind->check(job);
}

static void body_done(struct http_request *req, struct buf *body, int err)
{
    struct file_job *job = req->user;
    struct error e;
    if (err == -EMSGSIZE) {
        http_response_close_after(req);
        http_respond(req, 413, NULL, NULL, 0);
        job->req = NULL;
        file_job_end(job);
        return;
    }
    if (err < 0)
        return; /* the server has answered, on_gone follows */
    job->text = *body;
    *body = BUF_INIT(job->text.limit); /* the job may outlive the request */
    if (json_parse(buf_data(&job->text), buf_len(&job->text), JSON_ALLOW_NUL, &job->doc, &e) < 0) {
        job->req = NULL;
        reply_error(req, "INTERNAL_ERROR", "Failed to parse request body: %s", e.msg);
        file_job_end(job);
        return;
    }
    job->body = json_root(job->doc);
    if (!check(job)) {
        file_job_end(job);
        return;
    }
    if (job->sessionless) {
        job_run(job);
    } else {
        job->state = FILE_JOB_QUEUED;
        session_submit(job->agent, job->session_id, &job->op);
    }
}

void file_job_start(struct agent *a, struct http_request *req, const struct file_kind *kind)
{
    struct file_job *job = calloc(1, kind->size);
    if (!job) {
        reply_error(req, "INTERNAL_ERROR", "out of memory");
        return;
    }
    job->kind = kind;
    job->agent = a;
    job->req = req;
    job->op.run = locked;
    job->op.fail = not_locked;
    req->user = job;
    req->on_gone = client_gone;
    http_request_collect(req, AGENT_BODY_MAX, body_done);
}

int file_job_resolve(struct file_job *job, const char *path, char out[PATH_MAX])
{
    char cwd[PATH_MAX];
    (void)snprintf(cwd, sizeof cwd, "%s", agent_workdir(job->agent));
    int r = job->session && *path != '/' ? session_cwd(job->session, cwd, sizeof cwd) : 0;
    return r < 0 ? r : file_path_join(out, cwd, path);
}

/* ------------------------------------------------------------------ fields */

static void validation_entry(struct json_writer *w, const char *field, const char *message, const char *code)
{
    json_object_begin(w);
    json_member_string(w, "field", field);
    json_member_string(w, "message", message);
    json_member_string(w, "code", code);
    json_object_end(w);
}

bool file_job_string(struct file_job *job, const char *key, const char **ret)
{
    size_t n = 0;
    *ret = json_string(json_get(job->body, key), &n);
    if (!*ret || strlen(*ret) == n)
        return true;
    struct reply r;
    reply_error_begin(&r, "VALIDATION_FAILED", "%s must not contain a null byte", key);
    json_put_key(&r.w, "validationErrors");
    json_array_begin(&r.w);
    validation_entry(&r.w, key, "must not contain a null byte", "INVALID_STRING");
    json_array_end(&r.w);
    file_job_send_error(job, &r);
    return false;
}

bool file_job_path(struct file_job *job, const char *key, const char **ret)
{
    size_t n = 0;
    *ret = json_string(json_get(job->body, key), &n);
    unsigned problems = file_path_problems(*ret, n);
    if (!problems)
        return true;
    struct reply r;
    reply_error_begin(&r, "VALIDATION_FAILED", "Invalid path: %s",
                      file_path_problem_text((enum file_path_problem)(problems & -problems)));
    json_put_key(&r.w, "validationErrors");
    json_array_begin(&r.w);
    for (unsigned bit = 1; bit <= problems; bit <<= 1)
        if (problems & bit)
            validation_entry(&r.w, key, file_path_problem_text((enum file_path_problem)bit), "INVALID_PATH");
    json_array_end(&r.w);
    file_job_send_error(job, &r);
    return false;
}

void file_job_echo(struct file_job *job, struct json_writer *w, const char *key, const char *as)
{
    size_t n;
    const char *s = json_string(json_get(job->body, key), &n);
    if (!s)
        return;
    json_put_key(w, as);
    json_put_bytes(w, s, n);
}

/* ------------------------------------------------------------------ answers */

void file_job_send(struct file_job *job, struct reply *r)
{
    struct http_request *req = take_ptr(job->req);
    if (!req) {
        reply_done(r);
        return;
    }
    json_member_int(&r->w, "exitCode", 0);
    reply_send(r, req);
}

void file_job_send_error(struct file_job *job, struct reply *r)
{
    struct http_request *req = take_ptr(job->req);
    if (req)
        reply_error_send(r, req);
    else
        reply_done(r);
}

void file_job_fail(struct file_job *job, const char *code, int err, const char *verb, const char *path)
{
    char text[PATH_MAX + 128];
    struct reply r;
    file_error_text(text, sizeof text, err, verb, path);
    reply_error_begin(&r, code ? code : file_error_code(err), "Failed to %s '%s': %s", verb, path,
                      strerror(abs(err)));
    json_member_string(&r.w, "path", path);
    reply_error_operation(&r, job->kind->operation);
    json_member_int(&r.w, "exitCode", 1);
    json_member_string(&r.w, "stderr", text);
    file_job_send_error(job, &r);
}

void file_job_not_found(struct file_job *job, const char *path)
{
    struct reply r;
    reply_error_begin(&r, "FILE_NOT_FOUND", "File not found: %s", path);
    json_member_string(&r.w, "path", path);
    reply_error_operation(&r, job->kind->operation);
    file_job_send_error(job, &r);
}
