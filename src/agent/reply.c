/* SPDX-License-Identifier: Apache-2.0 */
/* reply.c: see reply.h. */
#include "agent/reply.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { REPLY_MAX = 256 << 20, MESSAGE_MAX = 16 << 20 };

struct error_code {
    const char *name;
    int status;
    const char *hint; /* NULL: no "suggestion" */
};

/* All codes of the protocol, also those only a client raises: other parts pass them through. */
static const struct error_code codes[] = {
    {"FILE_NOT_FOUND", 404, "Check that the path is right and the file exists."},
    {"PERMISSION_DENIED", 403, "Choose a path that this operation may touch, or change its permissions."},
    {"FILE_EXISTS", 409, "Choose another name, or delete the existing file first."},
    {"IS_DIRECTORY", 400, "This operation takes a file; use a command such as rm -r for directories."},
    {"NOT_DIRECTORY", 400, "This operation takes a directory."},
    {"FILE_TOO_LARGE", 413, NULL},
    {"NO_SPACE", 500, "Delete files that are not needed, or use a sandbox with a larger disk."},
    {"TOO_MANY_FILES", 500, NULL},
    {"RESOURCE_BUSY", 409, "Wait until whoever uses the resource is done, then try again."},
    {"READ_ONLY", 403, "Write to a directory such as /workspace."},
    {"NAME_TOO_LONG", 400, NULL},
    {"TOO_MANY_LINKS", 500, NULL},
    {"FILESYSTEM_ERROR", 500, NULL},
    {"COMMAND_NOT_FOUND", 404, "The process has ended already; its logs are still there."},
    {"COMMAND_PERMISSION_DENIED", 403, NULL},
    {"INVALID_COMMAND", 400, NULL},
    {"COMMAND_EXECUTION_ERROR", 500, NULL},
    {"STREAM_START_ERROR", 500, NULL},
    {"PROCESS_NOT_FOUND", 404, "List the processes to see which ids exist."},
    {"PROCESS_PERMISSION_DENIED", 403, NULL},
    {"PROCESS_ERROR", 500, NULL},
    {"SESSION_ALREADY_EXISTS", 409, "Use the existing session, or choose another id."},
    {"SESSION_DESTROYED", 410, "Create the session again; its state is lost."},
    {"SESSION_TERMINATED", 410, "The next command gets a fresh shell; set directory and variables again."},
    {"PORT_ALREADY_EXPOSED", 409, "Unexpose the port first, or use the existing URL."},
    {"PORT_IN_USE", 409, "Choose another port, or stop the process that listens on this one."},
    {"PORT_NOT_EXPOSED", 404, "Expose the port first."},
    {"INVALID_PORT_NUMBER", 400, NULL},
    {"INVALID_PORT", 400, "Choose a port from 1024 to 65535 other than the server's own."},
    {"SERVICE_NOT_RESPONDING", 502, "Make sure that a service listens on the port."},
    {"PORT_OPERATION_ERROR", 500, NULL},
    {"CUSTOM_DOMAIN_REQUIRED", 400, NULL},
    {"GIT_REPOSITORY_NOT_FOUND", 404, "Check the URL of the repository."},
    {"GIT_BRANCH_NOT_FOUND", 404, "Check the name of the branch."},
    {"GIT_AUTH_FAILED", 401, "Check the credentials for this repository."},
    {"GIT_NETWORK_ERROR", 502, NULL},
    {"INVALID_GIT_URL", 400, NULL},
    {"GIT_CLONE_FAILED", 500, NULL},
    {"GIT_CHECKOUT_FAILED", 500, NULL},
    {"GIT_OPERATION_FAILED", 500, NULL},
    {"BUCKET_MOUNT_ERROR", 500, NULL},
    {"BUCKET_UNMOUNT_ERROR", 500, NULL},
    {"S3FS_MOUNT_ERROR", 500, NULL},
    {"MISSING_CREDENTIALS", 400, NULL},
    {"INVALID_MOUNT_CONFIG", 400, NULL},
    {"BACKUP_CREATE_FAILED", 500, "Check that the directory exists and that there is room for the archive."},
    {"BACKUP_RESTORE_FAILED", 500, "Check that the archive is complete and the directory is not in use."},
    {"BACKUP_NOT_FOUND", 404, "Check the id of the backup."},
    {"BACKUP_EXPIRED", 400, "Make a new backup."},
    {"INVALID_BACKUP_CONFIG", 400, "Check directory, archive path and options of the backup."},
    {"INTERPRETER_NOT_READY", 503, "Try again in a moment."},
    {"CONTEXT_NOT_FOUND", 404, "Create a code context first."},
    {"CODE_EXECUTION_ERROR", 500, NULL},
    {"PYTHON_NOT_AVAILABLE", 501, NULL},
    {"JAVASCRIPT_NOT_AVAILABLE", 501, NULL},
    {"OPENCODE_STARTUP_FAILED", 503, NULL},
    {"PROCESS_READY_TIMEOUT", 408, NULL},
    {"PROCESS_EXITED_BEFORE_READY", 500, NULL},
    {"USER_NOT_FOUND", 400, "Name a user of the image, or a number, and let the sandbox sleep once."},
    {"WATCH_NOT_FOUND", 404, NULL},
    {"WATCH_START_ERROR", 500, NULL},
    {"WATCH_STOP_ERROR", 500, NULL},
    {"VALIDATION_FAILED", 400, "Correct the fields that are named in the context."},
    {"INVALID_JSON_RESPONSE", 400, NULL},
    {"UNKNOWN_ERROR", 500, NULL},
    {"INTERNAL_ERROR", 500, NULL},
    {"RPC_TRANSPORT_ERROR", 503, "Connect again."},
    {"CONTAINER_UNAVAILABLE", 503, "Try again in a moment."},
    {"OPERATION_INTERRUPTED", 409, "Check whether the operation had an effect before you repeat it."},
    {"SECURITY_VALIDATION_FAILED", 500, NULL},
    {"TUNNEL_ALREADY_RUNNING", 500, NULL},
    {"TUNNEL_NOT_FOUND", 500, NULL},
    {"TUNNEL_START_ERROR", 500, NULL},
    {"TUNNEL_RUN_CONFLICT", 500, NULL},
    {"CLOUDFLARED_NOT_FOUND", 500, "Install cloudflared in the image."},
    /* limits of ours; not 503, which makes clients repeat the request for minutes */
    {"TOO_MANY_SESSIONS", 429, "Delete sessions that are not needed any more."},
    {"TOO_MANY_PROCESSES", 429, "End processes that are not needed any more."},
    {"TOO_MANY_REQUESTS", 429, "Wait for earlier requests to be answered."},
};

/* An unknown name is an error of ours: it is answered as such. */
static const struct error_code *find_code(const char *name)
{
    static const struct error_code unknown = {"UNKNOWN_ERROR", 500, NULL};
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
        if (strcmp(codes[i].name, name) == 0)
            return &codes[i];
    return &unknown;
}

int reply_status_of(const char *code)
{
    return find_code(code)->status;
}

void reply_timestamp(struct json_writer *w)
{
    char now[CLOCK_ISO_SIZE];
    clock_iso_now(now);
    json_member_string(w, "timestamp", now);
}

void reply_time(struct json_writer *w, const char *key, int64_t wall_ms)
{
    char text[CLOCK_ISO_SIZE];
    clock_iso(wall_ms, text);
    json_member_string(w, key, text);
}

void reply_begin(struct reply *r)
{
    *r = (struct reply){.out = BUF_INIT(REPLY_MAX), .message = BUF_INIT(MESSAGE_MAX)};
    json_writer_init(&r->w, &r->out);
    json_object_begin(&r->w);
    json_member_bool(&r->w, "success", true);
}

void reply_done(struct reply *r)
{
    buf_done(&r->out);
    buf_done(&r->message);
}

static void respond(struct http_request *req, int status, const struct buf *body, int err)
{
    static const char failed[] =
        "{\"code\":\"INTERNAL_ERROR\",\"message\":\"out of memory\",\"error\":\"out of memory\","
        "\"context\":{},\"httpStatus\":500}";
    if (err)
        http_respond(req, 500, "application/json", failed, sizeof failed - 1);
    else
        http_respond(req, status, "application/json", buf_data(body), buf_len(body));
}

void reply_send(struct reply *r, struct http_request *req)
{
    reply_timestamp(&r->w);
    json_object_end(&r->w);
    respond(req, 200, &r->out, r->w.err);
    reply_done(r);
}

static void error_begin(struct reply *r, const char *code, const char *fmt, va_list ap)
{
    *r = (struct reply){.out = BUF_INIT(REPLY_MAX), .message = BUF_INIT(MESSAGE_MAX)};
    r->code = find_code(code);
    char *text = NULL;
    int n = vasprintf(&text, fmt, ap);
    if (n < 0 || buf_append(&r->message, text, (size_t)n) < 0)
        (void)buf_puts(&r->message, r->code->name);
    if (n >= 0)
        free(text);
    json_writer_init(&r->w, &r->out);
    json_object_begin(&r->w);
}

void reply_error_begin(struct reply *r, const char *code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    error_begin(r, code, fmt, ap);
    va_end(ap);
}

void reply_error_operation(struct reply *r, const char *operation)
{
    r->operation = operation;
    json_member_string(&r->w, "operation", operation);
}

static int envelope(struct reply *r, int status, struct buf *out)
{
    struct json_writer w;
    json_object_end(&r->w);
    json_writer_init(&w, out);
    json_object_begin(&w);
    json_member_string(&w, "code", r->code->name);
    json_put_key(&w, "message");
    json_put_bytes(&w, buf_data(&r->message), buf_len(&r->message));
    json_put_key(&w, "error");
    json_put_bytes(&w, buf_data(&r->message), buf_len(&r->message));
    json_put_key(&w, "context");
    json_put_raw(&w, buf_data(&r->out), buf_len(&r->out));
    if (r->operation)
        json_member_string(&w, "operation", r->operation);
    json_member_int(&w, "httpStatus", status);
    reply_timestamp(&w);
    if (r->code->hint)
        json_member_string(&w, "suggestion", r->code->hint);
    json_object_end(&w);
    int err = r->w.err ? r->w.err : w.err;
    reply_done(r);
    return err;
}

int reply_error_envelope(struct reply *r, struct buf *out)
{
    int status = r->code->status;
    (void)envelope(r, status, out);
    return status;
}

static void error_send(struct reply *r, struct http_request *req, int status)
{
    struct buf out = BUF_INIT(REPLY_MAX);
    int err = envelope(r, status, &out);
    respond(req, status, &out, err);
    buf_done(&out);
}

void reply_error_send(struct reply *r, struct http_request *req)
{
    error_send(r, req, r->code->status);
}

void reply_error(struct http_request *req, const char *code, const char *fmt, ...)
{
    struct reply r;
    va_list ap;
    va_start(ap, fmt);
    error_begin(&r, code, fmt, ap);
    va_end(ap);
    reply_error_send(&r, req);
}

void reply_error_status(struct http_request *req, int status, const char *code, const char *fmt, ...)
{
    struct reply r;
    va_list ap;
    va_start(ap, fmt);
    error_begin(&r, code, fmt, ap);
    va_end(ap);
    error_send(&r, req, status);
}

void reply_server_error(int status, const char *reason, struct buf *out, void *arg)
{
    struct reply r;
    (void)arg;
    reply_error_begin(&r, status >= 500 ? "INTERNAL_ERROR" : "VALIDATION_FAILED", "%s", reason);
    (void)envelope(&r, status, out);
}
