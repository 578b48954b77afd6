/* SPDX-License-Identifier: Apache-2.0 */
/* backup_common.c: see backup_common.h. */
#include "agent/backup_common.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PATH_CHARS_MAX = 4096 };

void backup_refuse(struct http_request *req, const char *operation, const char *fmt, ...)
{
    struct reply r;
    char message[400];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    reply_error_begin(&r, "INVALID_BACKUP_CONFIG", "%s", message);
    r.operation = operation; /* on the envelope only: the context of these is empty */
    reply_error_send(&r, req);
}

static bool below(const char *path, const char *root)
{
    size_t n = strlen(root);
    return strncmp(path, root, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

static const char *dir_problem(const char *dir)
{
    static const char *const roots[] = {"/workspace", "/home", "/tmp", "/var/tmp", "/app"};
    if (!dir || !*dir)
        return "dir must be a non-empty string";
    if (strlen(dir) > PATH_CHARS_MAX)
        return "dir is too long";
    if (dir[0] != '/')
        return "dir must be an absolute path";
    if (strstr(dir, ".."))
        return "dir must not contain '..'";
    for (size_t i = 0; i < ARRAY_SIZE(roots); i++)
        if (below(dir, roots[i]))
            return NULL;
    return "dir must be in /workspace, /home, /tmp, /var/tmp or /app";
}

static const char *archive_problem(const char *archive)
{
    if (!archive || !*archive)
        return "archivePath must be a non-empty string";
    if (strlen(archive) > PATH_CHARS_MAX)
        return "archivePath is too long";
    if (strncmp(archive, BACKUP_ROOT "/", sizeof BACKUP_ROOT) != 0 || archive[sizeof BACKUP_ROOT] == '\0')
        return "archivePath must be in " BACKUP_ROOT;
    return strstr(archive, "..") ? "archivePath must not contain '..'" : NULL;
}

static void job_gone(struct http_request *req)
{
    ((struct backup_job *)req->user)->req = NULL;
}

bool backup_job_init(struct backup_job *j, struct agent *a, struct http_request *req,
                     const struct json_value *body, bool with_dir, const char *operation, const char *failed)
{
    const char *dir = json_string(json_get(body, "dir"), NULL),
               *archive = json_string(json_get(body, "archivePath"), NULL),
               *session = json_string(json_get(body, "sessionId"), NULL);
    const char *problem = with_dir ? dir_problem(dir) : NULL;
    char context[4096];
    const char *key;
    if (!problem)
        problem = archive_problem(archive);
    if (!problem && task_body_has_nul(body, &key))
        problem = "NUL characters are not allowed";
    if (problem) {
        backup_refuse(req, operation, "%s", problem);
        return false;
    }
    if (!session)
        session = request_session_id(req, context, sizeof context) ? context : "default";
    *j = (struct backup_job){.agent = a, .req = req, .operation = operation, .failed = failed};
    j->session_id = strdup(session);
    j->archive = strdup(archive);
    j->dir = with_dir ? strdup(dir) : NULL;
    if (!j->session_id || !j->archive || (with_dir && !j->dir)) {
        backup_job_done(j);
        reply_error(req, "INTERNAL_ERROR", "Out of memory");
        return false;
    }
    req->user = j;
    req->on_gone = job_gone;
    return true;
}

void backup_job_done(struct backup_job *j)
{
    free(j->session_id);
    free(j->dir);
    free(j->archive);
    j->session_id = j->dir = j->archive = NULL;
}

static struct http_request *take_request(struct backup_job *j)
{
    struct http_request *req = take_ptr(j->req);
    if (req)
        req->on_gone = NULL;
    return req;
}

void backup_fail(struct backup_job *j, int status, const char *errors, const char *fmt, ...)
{
    struct http_request *req = take_request(j);
    struct reply r;
    char message[400];
    va_list ap;
    if (!req)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    reply_error_begin(&r, j->failed, "%s", message);
    if (j->dir)
        json_member_string(&r.w, "dir", j->dir);
    json_member_string(&r.w, "archivePath", j->archive);
    if (status >= 0)
        json_member_int(&r.w, "exitCode", status);
    if (errors) {
        json_put_key(&r.w, "stderr");
        json_put_bytes(&r.w, errors, strlen(errors));
    }
    reply_error_operation(&r, j->operation);
    reply_error_send(&r, req);
}

void backup_fault(struct backup_job *j, const struct session_fault *fault)
{
    struct http_request *req = take_request(j);
    if (req)
        reply_session_fault(req, j->session_id, fault, j->failed);
}

void backup_answer(struct backup_job *j, struct json_writer *w, struct buf *out)
{
    struct http_request *req = take_request(j);
    json_object_end(w);
    if (req && w->err == 0)
        http_respond(req, 200, "application/json", buf_data(out), buf_len(out));
    else if (req)
        reply_error(req, "INTERNAL_ERROR", "Out of memory");
}

int backup_run(struct backup_job *j, const char *text,
               void (*done)(struct task *t, const struct session_fault *fault, int status))
{
    return task_start(j->agent, j->session_id, &j->task, text, NULL, done);
}
