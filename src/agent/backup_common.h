/* SPDX-License-Identifier: Apache-2.0 */
/* backup_common.h: what the three backup routes have in common: a job, its checks, its failures. */
#pragma once

#include "agent/reply.h"
#include "agent/routes.h"
#include "agent/task.h"

#define BACKUP_ROOT "/var/backups"

/* Embedded in each route's own job. */
struct backup_job {
    struct agent *agent;
    struct http_request *req; /* NULL: the client is gone; the work goes on */
    const char *operation;    /* "backup.create" or "backup.restore" */
    const char *failed;       /* the code of its failures */
    struct task task;
    char *session_id;
    char *dir; /* NULL: the route has none */
    char *archive;
};

/* Fills the job from a request. false: it was refused, and answered; the job is empty. */
bool backup_job_init(struct backup_job *j, struct agent *a, struct http_request *req,
                     const struct json_value *body, bool with_dir, const char *operation, const char *failed);
void backup_job_done(struct backup_job *j);

/* 400 INVALID_BACKUP_CONFIG. */
void backup_refuse(struct http_request *req, const char *operation, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* The job's failure, if anybody still wants to know it; ends the request. status < 0 and errors NULL are left
 * out. */
void backup_fail(struct backup_job *j, int status, const char *errors, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
/* A task's fault, the same way. */
void backup_fault(struct backup_job *j, const struct session_fault *fault);
/* 200 with the object in out (closed here); no timestamp, as the protocol has it. */
void backup_answer(struct backup_job *j, struct json_writer *w, struct buf *out);

/* Runs text; 0 or -errno (no callback). */
int backup_run(struct backup_job *j, const char *text,
               void (*done)(struct task *t, const struct session_fault *fault, int status));
