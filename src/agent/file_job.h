/* SPDX-License-Identifier: Apache-2.0 */
/* file_job.h: the life of one file request: body, checks, the session's lock, work in turns, answer.
 *
 * Each route embeds a struct file_job at the start of its own state and describes itself by a struct
 * file_kind. The order of calls: check (the body is parsed), run (the lock is held, relative paths can be
 * resolved), step (as often as file_job_again asks for it, never from inside another call), free. A route
 * ends with file_job_end. */
#pragma once

#include "agent/agent.h"
#include "agent/command_request.h"
#include "agent/reply.h"
#include "agent/session.h"
#include "base/json.h"

#include <limits.h>

enum {
    FILE_STEP_BYTES = 256 * 1024, /* one piece of a long transfer */
    FILE_TURN_US = 2000,          /* one turn of long work: others wait that long at most */
};

struct file_job;

struct file_kind {
    const char *operation; /* "file.read", for errors */
    size_t size;           /* of the route's state */
    bool finishes;         /* goes on when the client has gone */
    bool (*check)(
        struct file_job *job); /* false: it has answered; file_job_end follows by itself. May be NULL */
    void (*run)(struct file_job *job);
    void (*step)(struct file_job *job); /* may be NULL when file_job_again is never called */
    void (*fault)(struct file_job *job, const struct session_fault *fault); /* NULL: the usual answer */
    void (*free)(struct file_job *job); /* what the route itself holds; may be NULL */
};

struct file_job {
    const struct file_kind *kind;
    struct agent *agent;
    struct http_request *req; /* NULL: answered, or the client has gone */
    struct buf text;          /* of the body; values point into it */
    struct json_doc *doc;
    const struct json_value *body;
    const char *session_id;

    /* private */
    struct session *session; /* while the lock is held */
    bool sessionless;
    enum file_job_state { FILE_JOB_READING, FILE_JOB_QUEUED, FILE_JOB_RUNNING } state;
    struct session_op op;
    struct deferred turn;
    struct timer wait;
};

/* Takes the request over. */
void file_job_start(struct agent *a, struct http_request *req, const struct file_kind *kind);

/* The absolute path; only while the lock is held. 0 or -errno. */
int file_job_resolve(struct file_job *job, const char *path, char out[PATH_MAX]);
/* Gives the lock back; fine when it is not held. */
void file_job_unlock(struct file_job *job);
/* step is called in the loop's next turn ... */
void file_job_again(struct file_job *job);
/* ... or when the peer has taken what is queued. */
void file_job_on_drain(struct file_job *job);
/* Gives the lock back and frees everything; an answer must have been given or the client be gone. */
void file_job_end(struct file_job *job);

/* A string member without NUL; false: it has answered (400). *ret is NULL when it is absent or no string. */
bool file_job_string(struct file_job *job, const char *key, const char **ret);
/* The path in `key`, checked; false: it has answered (400 VALIDATION_FAILED). */
bool file_job_path(struct file_job *job, const char *key, const char **ret);
/* Adds `key` as it was sent, when it was a string. */
void file_job_echo(struct file_job *job, struct json_writer *w, const char *key, const char *as);

/* Answers (nothing, when the client has gone); job->req is NULL afterwards. */
void file_job_send(struct file_job *job, struct reply *r);
void file_job_send_error(struct file_job *job, struct reply *r);
/* code with path, operation, exitCode and stderr in the context; code NULL: the one of err. */
void file_job_fail(struct file_job *job, const char *code, int err, const char *verb, const char *path);
void file_job_not_found(struct file_job *job, const char *path);
