/* SPDX-License-Identifier: Apache-2.0 */
/* file_simple.c: POST /api/delete, /api/mkdir, /api/exists and /api/resolve: one or two system calls each. */
#include "agent/file_error.h"
#include "agent/file_job.h"
#include "agent/file_routes.h"
#include "agent/file_sink.h"

#include <errno.h>
#include <string.h>

struct simple_job {
    struct file_job job;
    const char *path;
    bool recursive;
};

static struct simple_job *simple_job_of(struct file_job *job)
{
    return container_of(job, struct simple_job, job);
}

static bool simple_check(struct file_job *job)
{
    struct simple_job *s = simple_job_of(job);
    s->recursive = json_bool(json_get(job->body, "recursive"), false);
    return file_job_path(job, "path", &s->path);
}

static void answer(struct file_job *job)
{
    struct reply r;
    reply_begin(&r);
    file_job_echo(job, &r.w, "path", "path");
    file_job_send(job, &r);
    file_job_end(job);
}

/* ------------------------------------------------------------------ delete */

static int delete_file(struct simple_job *s)
{
    char path[PATH_MAX];
    struct stat st;
    int r = file_job_resolve(&s->job, s->path, path);
    if (r < 0)
        return r;
    if (lstat(path, &st) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return -EISDIR;
    /* a link is removed itself, but one that leads nowhere is "not found" in the protocol */
    if (S_ISLNK(st.st_mode) && stat(path, &st) < 0)
        return -errno;
    return unlink(path) < 0 ? -errno : 0;
}

static void delete_run(struct file_job *job)
{
    struct simple_job *s = simple_job_of(job);
    int r = delete_file(s);
    if (r == 0) {
        answer(job);
        return;
    }
    if (file_error_absent(r))
        file_job_not_found(job, s->path);
    else
        file_job_fail(job, NULL, r, "delete", s->path);
    file_job_end(job);
}

static const struct file_kind delete_kind = {
    .operation = "file.delete",
    .size = sizeof(struct simple_job),
    .finishes = true,
    .check = simple_check,
    .run = delete_run,
};

void route_delete(struct agent *a, struct http_request *req, struct route_call *call)
{
    (void)call;
    file_job_start(a, req, &delete_kind);
}

/* ------------------------------------------------------------------ mkdir */

static int make_directory(struct simple_job *s)
{
    char path[PATH_MAX];
    struct stat st;
    int r = file_job_resolve(&s->job, s->path, path);
    if (r == 0 && s->recursive)
        r = file_make_parents(path);
    if (r < 0)
        return r;
    if (mkdir(path, FILE_MODE_NEW_DIR) == 0)
        return 0;
    r = -errno;
    if (r == -EEXIST && s->recursive && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return 0;
    return r;
}

static void mkdir_fail(struct simple_job *s, int err)
{
    struct file_job *job = &s->job;
    struct buf text = BUF_INIT(64 * 1024);
    struct reply r;
    (void)buf_printf(&text, "mkdir: cannot create directory '%s': %s", s->path, strerror(-err));
    const char *sentence = buf_cstr(&text);
    bool plain = err == -EEXIST || err == -ENOENT; /* the protocol has no other code for these two here */
    reply_error_begin(&r, plain ? "FILESYSTEM_ERROR" : file_error_code(err),
                      "Failed to create directory '%s': %s", s->path, strerror(-err));
    json_member_string(&r.w, "path", s->path);
    json_put_key(&r.w, "options");
    json_object_begin(&r.w);
    json_member_bool(&r.w, "recursive", s->recursive);
    json_object_end(&r.w);
    reply_error_operation(&r, job->kind->operation);
    json_member_int(&r.w, "exitCode", 1);
    json_member_string(&r.w, "stderr", sentence ? sentence : "");
    buf_done(&text);
    file_job_send_error(job, &r);
}

static void mkdir_run(struct file_job *job)
{
    struct simple_job *s = simple_job_of(job);
    int r = make_directory(s);
    if (r < 0) {
        mkdir_fail(s, r);
    } else {
        struct reply reply;
        reply_begin(&reply);
        file_job_echo(job, &reply.w, "path", "path");
        json_member_bool(&reply.w, "recursive", s->recursive);
        json_member_string(&reply.w, "stdout", "");
        json_member_string(&reply.w, "stderr", "");
        file_job_send(job, &reply);
    }
    file_job_end(job);
}

static const struct file_kind mkdir_kind = {
    .operation = "directory.create",
    .size = sizeof(struct simple_job),
    .finishes = true,
    .check = simple_check,
    .run = mkdir_run,
};

void route_mkdir(struct agent *a, struct http_request *req, struct route_call *call)
{
    (void)call;
    file_job_start(a, req, &mkdir_kind);
}

/* ------------------------------------------------------------------ exists */

static void exists_answer(struct file_job *job, bool exists)
{
    struct reply r;
    reply_begin(&r);
    file_job_echo(job, &r.w, "path", "path");
    json_member_bool(&r.w, "exists", exists);
    file_job_send(job, &r);
}

static void exists_run(struct file_job *job)
{
    char path[PATH_MAX];
    struct stat st;
    exists_answer(job, file_job_resolve(job, simple_job_of(job)->path, path) == 0 && stat(path, &st) == 0);
    file_job_end(job);
}

static void exists_fault(struct file_job *job, const struct session_fault *fault)
{
    (void)fault;
    exists_answer(job, false); /* the caller ends the job */
}

static const struct file_kind exists_kind = {
    .operation = "file.stat",
    .size = sizeof(struct simple_job),
    .check = simple_check,
    .run = exists_run,
    .fault = exists_fault,
};

void route_exists(struct agent *a, struct http_request *req, struct route_call *call)
{
    (void)call;
    file_job_start(a, req, &exists_kind);
}

/* ------------------------------------------------------------------ resolve: where a path leads in a session
 */

static void resolve_run(struct file_job *job)
{
    const char *given = simple_job_of(job)->path;
    char path[PATH_MAX];
    struct reply r;
    int err = file_job_resolve(job, given, path);
    if (err < 0) {
        file_job_fail(job, NULL, err, "resolve", given);
    } else {
        reply_begin(&r);
        json_member_string(&r.w, "path", path);
        file_job_send(job, &r);
    }
    file_job_end(job);
}

static const struct file_kind resolve_kind = {
    .operation = "file.stat",
    .size = sizeof(struct simple_job),
    .check = simple_check,
    .run = resolve_run,
};

void route_resolve(struct agent *a, struct http_request *req, struct route_call *call)
{
    (void)call;
    file_job_start(a, req, &resolve_kind);
}
