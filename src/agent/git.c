/* SPDX-License-Identifier: Apache-2.0 */
/* git.c: POST /api/git/checkout: a clone with the sandbox's own git, as a command of the session.
 *
 * The texts are git_text.c's; here a request is checked, the command run, and its end told without secrets.
 */
#include "agent/git_text.h"
#include "agent/reply.h"
#include "agent/routes.h"
#include "agent/task.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { URL_MAX = 2048, PATH_CHARS_MAX = 4096, TIMEOUT_DEFAULT_MS = 600000, OUTPUT_MAX = 256 * 1024 };

struct git_job {
    struct agent *agent;
    struct http_request *req; /* NULL: the client is gone; the clone goes on */
    struct task task;
    struct git_url url;
    struct env_list env;
    char *session_id, *given_url, *branch, *dir, *depth;
    int64_t timeout_ms;
    bool modern; /* the client does not repeat what mentions a timeout */
};

static void job_free(struct git_job *j)
{
    git_url_done(&j->url);
    env_done(&j->env);
    free(j->session_id);
    free(j->given_url);
    free(j->branch);
    free(j->dir);
    free(j->depth);
    free(j);
}

/* ------------------------------------------------------------------ checking */

static void reply_invalid(struct http_request *req, const char *code, const char *field, const char *what,
                          const char *message)
{
    struct reply r;
    reply_error_begin(&r, code, "%s", message);
    json_put_key(&r.w, "validationErrors");
    json_array_begin(&r.w);
    json_object_begin(&r.w);
    json_member_string(&r.w, "field", field);
    json_member_string(&r.w, "message", message);
    json_member_string(&r.w, "code", what);
    json_object_end(&r.w);
    json_array_end(&r.w);
    reply_error_send(&r, req);
}

/* UTF-16 units of a UTF-8 string, which is what the protocol counts. */
static size_t utf16_len(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80 ? 1u + ((unsigned char)*s >= 0xf0) : 0;
    return n;
}

static char *trimmed(const char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    size_t n = strlen(s);
    while (n > 0 && isspace((unsigned char)s[n - 1]))
        n--;
    return strndup(s, n);
}

/* Answers and returns false when the request is refused. */
static bool check_url(struct git_job *j, struct http_request *req, const struct json_value *v)
{
    const char *s = json_string(v, NULL);
    auto_free char *url = s ? trimmed(s) : NULL;
    if (!url || !*url) {
        reply_invalid(req, "INVALID_GIT_URL", "repoUrl", "INVALID_GIT_URL",
                      "The repository URL must be a non-empty string");
        return false;
    }
    if (utf16_len(url) > URL_MAX) {
        reply_invalid(req, "INVALID_GIT_URL", "repoUrl", "INVALID_GIT_URL",
                      "The repository URL is longer than 2048 characters");
        return false;
    }
    int r = git_url_parse(url, &j->url);
    if (r == -EINVAL) {
        reply_invalid(req, "INVALID_GIT_URL", "repoUrl", "INVALID_GIT_URL",
                      "The credentials of the repository URL have control characters");
        return false;
    }
    j->given_url = r == 0 ? strdup(s) : NULL;
    return true;
}

static bool check_dir(struct git_job *j, struct http_request *req, const struct json_value *v)
{
    const char *s = json_string(v, NULL);
    if (json_type_of(v) == JSON_NULL) {
        struct buf out = BUF_INIT(URL_MAX * 4 + 64);
        if (git_target_dir(j->url.plain, &out) == 0 && buf_cstr(&out))
            j->dir = strdup(buf_cstr(&out));
        buf_done(&out);
        return true;
    }
    if (!s || !*s || utf16_len(s) > PATH_CHARS_MAX) {
        reply_invalid(req, "VALIDATION_FAILED", "targetDirectory", "INVALID_PATH",
                      s && *s ? "The target directory is longer than 4096 characters"
                              : "The target directory must be a non-empty string");
        return false;
    }
    j->dir = strdup(s);
    return true;
}

static bool check_timeout(struct git_job *j, struct http_request *req, const struct json_value *v)
{
    j->timeout_ms = TIMEOUT_DEFAULT_MS;
    if (json_type_of(v) == JSON_NULL || json_integer(v, 1, INT64_C(1) << 53, &j->timeout_ms))
        return true;
    reply_invalid(req, "VALIDATION_FAILED", "timeoutMs", "INVALID_TIMEOUT",
                  "The timeout must be a positive integer");
    return false;
}

/* As it is: git knows what a depth is. */
static char *depth_text(const struct json_value *v)
{
    double d;
    char text[40];
    if (json_string(v, NULL))
        return strdup(json_string(v, NULL));
    if (!json_number(v, &d))
        return NULL;
    (void)snprintf(text, sizeof text, "%.15g", d);
    return strdup(text);
}

static int put_secrets(struct git_job *j)
{
    int r = 0;
    if (j->url.scope)
        r = env_set(&j->env, GIT_ENV_USER, j->url.user);
    if (r == 0 && j->url.scope)
        r = env_set(&j->env, GIT_ENV_URL, j->given_url);
    if (r == 0 && j->url.password)
        r = env_set(&j->env, GIT_ENV_PASSWORD, j->url.password);
    return r;
}

static char *session_of(struct http_request *req, const struct json_value *body)
{
    char context[4096];
    const char *s = json_string(json_get(body, "sessionId"), NULL);
    if (s && *s)
        return strdup(s);
    return strdup(request_session_id(req, context, sizeof context) ? context : "default");
}

/* ------------------------------------------------------------------ the end */

static char *redacted(const struct git_job *j, const char *text)
{
    struct buf out = BUF_INIT(OUTPUT_MAX * 4);
    char *copy = NULL;
    if (text && git_redact(text, &j->url, &out) == 0 && buf_cstr(&out))
        copy = strdup(buf_cstr(&out));
    buf_done(&out);
    return copy;
}

static void put_text(struct json_writer *w, const char *key, const char *text)
{
    json_put_key(w, key);
    json_put_bytes(w, text ? text : "", text ? strlen(text) : 0);
}

static void reply_failure(struct git_job *j, const char *code, int status, const char *errors)
{
    auto_free char *safe = redacted(j, errors), *repository = redacted(j, j->given_url);
    size_t n = safe ? strlen(safe) : 0;
    struct reply r;
    if (strcmp(code, "GIT_NETWORK_ERROR") == 0 && j->modern)
        reply_error_begin(&r, code, "Git clone timed out after %lld ms", (long long)j->timeout_ms);
    else if (strcmp(code, "GIT_NETWORK_ERROR") == 0)
        reply_error_begin(&r, code, "Git clone exceeded its limit of %lld ms", (long long)j->timeout_ms);
    else
        reply_error_begin(&r, code, "Failed to clone repository '%s': %.*s", repository ? repository : "",
                          (int)(n > 0 && safe[n - 1] == '\n' ? n - 1 : n), safe ? safe : "");
    put_text(&r.w, "repository", repository);
    put_text(&r.w, "targetDir", j->dir);
    json_member_int(&r.w, "exitCode", status);
    put_text(&r.w, "stderr", safe);
    reply_error_operation(&r, "git.clone");
    reply_error_send(&r, j->req);
}

/* git's own output, a NUL byte, and the branch. */
static char *branch_of(const struct git_job *j, const struct spool *out)
{
    char text[1024];
    uint64_t end = spool_end(out), from = end > sizeof text - 1 ? end - (sizeof text - 1) : 0;
    ssize_t n = spool_read(out, from, text, sizeof text - 1);
    const char *nul = n > 0 ? memrchr(text, '\0', (size_t)n) : NULL;
    if (nul) {
        text[n] = '\0';
        auto_free char *name = trimmed(nul + 1);
        if (name && *name)
            return take_ptr(name);
    }
    return strdup(j->branch ? j->branch : "unknown");
}

static void reply_success(struct git_job *j)
{
    auto_free char *branch = branch_of(j, j->task.out), *errors = task_text(j->task.err, OUTPUT_MAX),
                   *safe = redacted(j, errors);
    struct reply r;
    reply_begin(&r);
    json_member_string(&r.w, "repoUrl", j->given_url);
    put_text(&r.w, "branch", branch);
    put_text(&r.w, "targetDir", j->dir);
    json_member_string(&r.w, "stdout", ""); /* these three are for release 0.3 */
    put_text(&r.w, "stderr", safe);
    json_member_int(&r.w, "exitCode", 0);
    reply_send(&r, j->req);
}

static void job_done(struct task *t, const struct session_fault *fault, int status)
{
    struct git_job *j = container_of(t, struct git_job, task);
    if (j->req) {
        j->req->on_gone = NULL;
        if (fault) {
            reply_session_fault(j->req, j->session_id, fault, "GIT_CLONE_FAILED");
        } else if (status == 0) {
            reply_success(j);
        } else {
            auto_free char *errors = task_text(t->err, OUTPUT_MAX);
            reply_failure(j, git_error_code(status, errors ? errors : ""), status, errors);
        }
    }
    job_free(j);
}

static void job_gone(struct http_request *req)
{
    ((struct git_job *)req->user)->req = NULL;
}

static void job_start(struct git_job *j, struct http_request *req)
{
    struct git_checkout c = {.url = j->given_url,
                             .branch = j->branch,
                             .dir = j->dir,
                             .depth = j->depth,
                             .timeout_ms = j->timeout_ms};
    struct buf text = BUF_INIT(1 << 20);
    int r = git_command(&c, &j->url, &text);
    const char *s = r == 0 ? buf_cstr(&text) : NULL;
    j->req = req;
    req->user = j;
    req->on_gone = job_gone;
    r = s ? task_start(j->agent, j->session_id, &j->task, s, &j->env, job_done) : -ENOMEM;
    if (r < 0) {
        req->on_gone = NULL;
        reply_error(req, "INTERNAL_ERROR", "Cannot start git: %s", strerror(-r));
        job_free(j);
    }
    buf_done(&text);
}

void route_git_checkout(struct agent *a, struct http_request *req, struct route_call *call)
{
    const struct json_value *body = call->body;
    const char *branch = json_string(json_get(body, "branch"), NULL);
    const char *key;
    if (task_body_has_nul(body, &key)) {
        bool url = key && strcmp(key, "repoUrl") == 0, dir = key && strcmp(key, "targetDir") == 0;
        reply_invalid(req, url ? "INVALID_GIT_URL" : "VALIDATION_FAILED",
                      dir   ? "targetDirectory"
                      : key ? key
                            : "",
                      url ? "INVALID_GIT_URL" : "INVALID_PATH", "NUL characters are not allowed");
        return;
    }
    struct git_job *j = calloc(1, sizeof *j);
    if (!j) {
        reply_error(req, "INTERNAL_ERROR", "Out of memory");
        return;
    }
    j->agent = a;
    j->modern = http_request_header(req, "X-Sandbox-Id") != NULL;
    if (!check_url(j, req, json_get(body, "repoUrl")) || !check_dir(j, req, json_get(body, "targetDir")) ||
        !check_timeout(j, req, json_get(body, "timeoutMs"))) {
        job_free(j);
        return;
    }
    j->session_id = session_of(req, body);
    j->depth = depth_text(json_get(body, "depth"));
    if (branch && *branch)
        j->branch = strdup(branch);
    if (!j->given_url || !j->url.plain || !j->dir || !j->session_id || (branch && *branch && !j->branch) ||
        put_secrets(j) < 0) {
        reply_error(req, "INTERNAL_ERROR", "Out of memory");
        job_free(j);
        return;
    }
    if (session_name_is_blank(j->session_id)) {
        reply_error(req, "COMMAND_EXECUTION_ERROR", "The session id is blank");
        job_free(j);
        return;
    }
    job_start(j, req);
}
