/* SPDX-License-Identifier: Apache-2.0 */
/* file_write.c: POST /api/write: content from a JSON string into a file; how is told in file_sink.h. */
#include "agent/file_error.h"
#include "agent/file_job.h"
#include "agent/file_routes.h"
#include "agent/file_sink.h"
#include "base/base64.h"

#include <errno.h>
#include <string.h>

struct write_job {
    struct file_job job;
    const char *path;
    const char *content;
    size_t len, done;
    struct file_sink sink;
};

static struct write_job *write_job_of(struct file_job *job)
{
    return container_of(job, struct write_job, job);
}

/* In place: the text is ours, and what it says is shorter. */
static bool decode_content(struct write_job *w)
{
    char *text = (char *)w->content;
    ssize_t n = base64_decode(text, text, w->len);
    if (n >= 0) {
        w->len = (size_t)n;
        return true;
    }
    struct reply r;
    reply_error_begin(&r, "VALIDATION_FAILED", "Invalid base64 content");
    json_put_key(&r.w, "validationErrors");
    json_array_begin(&r.w);
    json_object_begin(&r.w);
    json_member_string(&r.w, "field", "content");
    json_member_string(&r.w, "message", "Content is not valid base64");
    json_member_string(&r.w, "code", "INVALID_BASE64");
    json_object_end(&r.w);
    json_array_end(&r.w);
    file_job_send_error(&w->job, &r);
    return false;
}

static bool write_check(struct file_job *job)
{
    struct write_job *w = write_job_of(job);
    if (!file_job_path(job, "path", &w->path))
        return false;
    w->content = json_string(json_get(job->body, "content"), &w->len);
    if (!w->content) {
        file_job_fail(job, "FILESYSTEM_ERROR", EINVAL, "write", w->path);
        return false;
    }
    const char *encoding = json_string(json_get(job->body, "encoding"), NULL);
    return !encoding || strcmp(encoding, "base64") != 0 || decode_content(w);
}

static void write_over(struct write_job *w, int err)
{
    struct reply r;
    if (err < 0) {
        /* where the path leads is the server's error in the protocol, also when it leads to a directory */
        file_job_fail(&w->job, err == -EISDIR || err == -ENOENT ? "FILESYSTEM_ERROR" : NULL, err, "write",
                      w->path);
    } else {
        reply_begin(&r);
        file_job_echo(&w->job, &r.w, "path", "path");
        file_job_send(&w->job, &r);
    }
    file_job_end(&w->job);
}

static void write_step(struct file_job *job)
{
    struct write_job *w = write_job_of(job);
    size_t n = MIN(w->len - w->done, (size_t)FILE_STEP_BYTES);
    int r = file_sink_write(&w->sink, w->content + w->done, n);
    w->done += n;
    if (r == 0 && w->done < w->len)
        file_job_again(job);
    else
        write_over(w, r == 0 ? file_sink_commit(&w->sink) : r);
}

static void write_run(struct file_job *job)
{
    struct write_job *w = write_job_of(job);
    char path[PATH_MAX];
    int r = file_job_resolve(job, w->path, path);
    if (r < 0) {
        write_over(w, r);
    } else if (w->len <= FILE_PUT_MAX) {
        write_over(w, file_put(path, w->content, w->len));
    } else {
        r = file_sink_open(&w->sink, path, (int64_t)w->len, -1);
        if (r < 0)
            write_over(w, r);
        else
            write_step(job);
    }
}

static void write_free(struct file_job *job)
{
    file_sink_abort(&write_job_of(job)->sink); /* nothing to do after a commit */
}

static const struct file_kind kind = {
    .operation = "file.write",
    .size = sizeof(struct write_job),
    .finishes = true,
    .check = write_check,
    .run = write_run,
    .step = write_step,
    .free = write_free,
};

void route_write(struct agent *a, struct http_request *req, struct route_call *call)
{
    (void)call;
    file_job_start(a, req, &kind);
}
