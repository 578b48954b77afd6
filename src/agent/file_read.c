/* SPDX-License-Identifier: Apache-2.0 */
/* file_read.c: POST /api/read: a file as one JSON answer, whole or a part of it.
 *
 * Theory of operation
 * A file of up to one piece is read and answered at once, under the session's lock. A longer one is opened
 * under the lock and read after it, piece by piece as the client takes the answer: memory does not depend on
 * the size of the file, and a slow reader does not stop its session. (Long files are replaced, not changed,
 * by writes of ours, so what was opened stays what it was.)
 *
 * Additions to the protocol: `offset` and `length` in bytes, or `startLine` and `endLine` (from 1, both
 * inclusive), select a part; the answer then tells its `offset` and `length`, and `size` is that of the whole
 * file. The limit of 32 MiB is on the part. A character that is cut by the ends of the part becomes U+FFFD.
 */
#include "agent/file_error.h"
#include "agent/file_job.h"
#include "agent/file_mime.h"
#include "agent/file_routes.h"
#include "agent/file_source.h"
#include "base/base64.h"
#include "base/utf8.h"

#include <errno.h>
#include <string.h>

enum {
    PIECE = 192 * 1024, /* a multiple of 3: the base64 of pieces is the base64 of the whole */
    LINE_MAX_NUMBER = 1 << 30,
};

struct read_job {
    struct file_job job;
    const char *path;
    struct file_source source;
    char *piece;
    bool as_text;
    bool ranged;
    uint64_t first, offset, end;  /* the part begins at first; [offset, end) is still to be read */
    int64_t start_line, end_line; /* 0: not selected by lines */
    int64_t line;                 /* at `offset`, while looking for start_line and end_line */
    bool start_found;
    struct utf8_stream utf8;
    struct reply reply;
    bool replying; /* reply is in use */
    bool begun;    /* ... and its first piece is sent */
};

static struct read_job *read_job_of(struct file_job *job)
{
    return container_of(job, struct read_job, job);
}

/* ------------------------------------------------------------------ the request */

static bool bad_range(struct file_job *job, const char *field, const char *message)
{
    struct reply r;
    reply_error_begin(&r, "VALIDATION_FAILED", "%s %s", field, message);
    json_put_key(&r.w, "validationErrors");
    json_array_begin(&r.w);
    json_object_begin(&r.w);
    json_member_string(&r.w, "field", field);
    json_member_string(&r.w, "message", message);
    json_member_string(&r.w, "code", "INVALID_RANGE");
    json_object_end(&r.w);
    json_array_end(&r.w);
    file_job_send_error(job, &r);
    return false;
}

/* An optional whole number; *ret keeps its value when the field is absent or null. */
static bool number_field(struct file_job *job, const char *key, int64_t min, int64_t max, int64_t *ret,
                         bool *ret_given)
{
    const struct json_value *v = json_get(job->body, key);
    if (json_type_of(v) == JSON_NULL)
        return true;
    *ret_given = true;
    return json_integer(v, min, max, ret) || bad_range(job, key, "is not a number in the allowed range");
}

static bool read_check(struct file_job *job)
{
    struct read_job *r = read_job_of(job);
    int64_t offset = 0, length = INT64_MAX, most = (int64_t)1 << 53;
    bool bytes = false, lines = false;
    if (!file_job_path(job, "path", &r->path) || !number_field(job, "offset", 0, most, &offset, &bytes) ||
        !number_field(job, "length", 0, most, &length, &bytes))
        return false;
    r->start_line = 1;
    r->end_line = INT64_MAX;
    if (!number_field(job, "startLine", 1, LINE_MAX_NUMBER, &r->start_line, &lines) ||
        !number_field(job, "endLine", 1, LINE_MAX_NUMBER, &r->end_line, &lines))
        return false;
    if (bytes && lines)
        return bad_range(job, "startLine", "cannot be combined with a range of bytes");
    if (r->end_line < r->start_line)
        return bad_range(job, "endLine", "is smaller than startLine");
    if (!lines)
        r->start_line = r->end_line = 0;
    r->ranged = bytes || lines;
    r->first = (uint64_t)offset;
    r->end = length > INT64_MAX - offset ? INT64_MAX : (uint64_t)(offset + length);
    return true;
}

/* Release 0.4 sends "utf8" with every request and means "as it fits"; it does not name its sandbox. */
static bool wants_text(const struct file_job *job, const char *mime)
{
    const char *encoding = json_string(json_get(job->body, "encoding"), NULL);
    bool modern = job->req && http_request_header(job->req, "X-Sandbox-Id");
    if (encoding && strcmp(encoding, "base64") == 0)
        return false;
    if (encoding && (strcmp(encoding, "utf-8") == 0 || (strcmp(encoding, "utf8") == 0 && modern)))
        return true;
    return file_mime_is_text(mime);
}

/* ------------------------------------------------------------------ the answer */

static void too_large(struct read_job *r, uint64_t size)
{
    struct reply reply;
    reply_error_begin(&reply, "FILE_TOO_LARGE",
                      "File too large: %s has %llu bytes, at most %d can be read at once", r->path,
                      (unsigned long long)size, FILE_READ_MAX);
    json_member_string(&reply.w, "path", r->path);
    reply_error_operation(&reply, r->job.kind->operation);
    json_member_int(&reply.w, "actualSize", (int64_t)size);
    json_member_int(&reply.w, "maxSize", FILE_READ_MAX);
    file_job_send_error(&r->job, &reply);
}

static void answer_begin(struct read_job *r)
{
    reply_begin(&r->reply);
    r->replying = true;
    file_job_echo(&r->job, &r->reply.w, "path", "path");
    json_put_key(&r->reply.w, "content");
    json_string_begin(&r->reply.w);
}

static void answer_rest(struct read_job *r)
{
    struct json_writer *w = &r->reply.w;
    json_string_end(w);
    json_member_string(w, "encoding", r->as_text ? "utf-8" : "base64");
    json_member_bool(w, "isBinary", !r->as_text);
    json_member_string(w, "mimeType", r->source.mime);
    json_member_int(w, "size", r->ranged ? r->source.st.st_size : (int64_t)r->offset);
    if (r->ranged) {
        json_member_int(w, "offset", (int64_t)r->first);
        json_member_int(w, "length", (int64_t)(r->offset - r->first));
    }
}

static int put_content(struct read_job *r, const char *data, size_t n, bool final)
{
    struct buf *out = &r->reply.out;
    if (!r->as_text) {
        char *to = buf_reserve(out, base64_encoded_len(n) + 1);
        if (!to)
            return -ENOMEM;
        buf_commit(out, base64_encode(to, data, n));
        return 0;
    }
    if (r->offset == 0 && n >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) {
        data += 3;
        n -= 3;
    }
    return utf8_decode(&r->utf8, data, n, final, UTF8_JSON, out);
}

/* Reads one piece into the answer; 1: there is more, 0: that was the last one, or -errno. */
static int read_piece(struct read_job *r)
{
    size_t want = (size_t)MIN(r->end - r->offset, (uint64_t)PIECE);
    if (!r->piece && !(r->piece = malloc(MAX(want, (size_t)1))))
        return -ENOMEM;
    ssize_t n = file_source_read(&r->source, r->piece, want, r->offset);
    if (n < 0)
        return (int)n;
    bool final = (size_t)n < want || r->offset + (size_t)n == r->end;
    int e = put_content(r, r->piece, (size_t)n, final);
    r->offset += (size_t)n;
    return e < 0 ? e : !final;
}

static void read_failed(struct read_job *r, int err)
{
    if (r->begun)
        http_response_abort(take_ptr(r->job.req)); /* half of the answer is out: it must not look complete */
    else
        file_job_fail(&r->job, NULL, err, "read", r->path);
    file_job_end(&r->job);
}

/* ------------------------------------------------------------------ lines */

/* Moves first and end to where the lines begin and end, one piece per call; 1: not found yet, 0: found, or
 * -errno. */
static int find_lines(struct read_job *r)
{
    if (!r->piece && !(r->piece = malloc(PIECE)))
        return -ENOMEM;
    ssize_t n =
        file_source_read(&r->source, r->piece, (size_t)MIN(r->end - r->offset, (uint64_t)PIECE), r->offset);
    if (n < 0)
        return (int)n;
    const char *p = r->piece, *stop = p + n;
    for (;;) {
        if (!r->start_found && r->line == r->start_line) {
            r->start_found = true;
            r->first = r->offset + (size_t)(p - r->piece);
        }
        if (r->line > r->end_line) {
            r->end = r->offset + (size_t)(p - r->piece);
            return 0;
        }
        const char *newline = p < stop ? memchr(p, '\n', (size_t)(stop - p)) : NULL;
        if (!newline)
            break;
        p = newline + 1;
        r->line++;
    }
    r->offset += (size_t)n;
    if (n < PIECE) { /* the file ends here */
        r->end = r->offset;
        r->first = r->start_found ? r->first : r->end;
        return 0;
    }
    return 1;
}

/* ------------------------------------------------------------------ turns */

static void read_part(struct read_job *r)
{
    if (r->end - r->first > FILE_READ_MAX) {
        too_large(r, r->end - r->first);
        file_job_end(&r->job);
        return;
    }
    r->offset = r->first;
    answer_begin(r);
    if (r->end - r->offset > PIECE)
        file_job_unlock(&r->job);
    int more = read_piece(r);
    if (more < 0) {
        read_failed(r, more);
    } else if (more) {
        file_job_again(&r->job);
    } else {
        answer_rest(r);
        r->replying = false;
        file_job_send(&r->job, &r->reply);
        file_job_end(&r->job);
    }
}

/* Sends what is there and reads on. */
static void answer_step(struct read_job *r)
{
    static const struct http_header type = {"Content-Type", "application/json"};
    struct http_request *req = r->job.req;
    if (!r->begun) {
        r->begun = true;
        file_job_on_drain(&r->job);
        http_response_begin(req, 200, &type, 1, -1);
    }
    bool room = http_response_write(req, buf_data(&r->reply.out), buf_len(&r->reply.out));
    buf_clear(&r->reply.out);
    int more = r->reply.w.err < 0 ? r->reply.w.err : read_piece(r);
    if (more < 0) {
        read_failed(r, more);
        return;
    }
    if (more) {
        if (room)
            file_job_again(&r->job);
        return;
    }
    answer_rest(r);
    json_member_int(&r->reply.w, "exitCode", 0);
    reply_timestamp(&r->reply.w);
    json_object_end(&r->reply.w);
    if (r->reply.w.err < 0) {
        read_failed(r, r->reply.w.err);
        return;
    }
    (void)http_response_write(req, buf_data(&r->reply.out), buf_len(&r->reply.out));
    http_response_end(take_ptr(r->job.req));
    file_job_end(&r->job);
}

static void read_step(struct file_job *job)
{
    struct read_job *r = read_job_of(job);
    if (r->replying) {
        answer_step(r);
        return;
    }
    int more = find_lines(r);
    if (more < 0) {
        read_failed(r, more);
    } else if (more) {
        file_job_unlock(job);
        file_job_again(job);
    } else {
        read_part(r);
    }
}

/* The range against the size of the file; false: it has answered. */
static bool limit_range(struct read_job *r)
{
    char byte;
    uint64_t size = (uint64_t)r->source.st.st_size;
    if (!r->source.sized) {
        if (!r->ranged && file_source_read(&r->source, &byte, 1, FILE_READ_MAX) > 0) {
            too_large(r, FILE_READ_MAX + 1);
            return false;
        }
        size = FILE_READ_MAX;
    }
    r->end = MIN(r->end, size);
    r->first = MIN(r->first, r->end);
    return true;
}

static void read_run(struct file_job *job)
{
    struct read_job *r = read_job_of(job);
    char path[PATH_MAX];
    int e = file_job_resolve(job, r->path, path);
    if (e == 0)
        e = file_source_open(&r->source, path, r->path);
    if (e < 0) {
        if (file_error_absent(e))
            file_job_not_found(job, r->path);
        else
            file_job_fail(job, NULL, e, "read", r->path);
        file_job_end(job);
        return;
    }
    r->as_text = wants_text(job, r->source.mime);
    if (!limit_range(r)) {
        file_job_end(job);
    } else if (r->start_line) {
        r->line = 1;
        read_step(job);
    } else {
        read_part(r);
    }
}

static void read_free(struct file_job *job)
{
    struct read_job *r = read_job_of(job);
    file_source_close(&r->source);
    free(r->piece);
    if (r->replying)
        reply_done(&r->reply);
}

static const struct file_kind kind = {
    .operation = "file.read",
    .size = sizeof(struct read_job),
    .check = read_check,
    .run = read_run,
    .step = read_step,
    .free = read_free,
};

void route_read(struct agent *a, struct http_request *req, struct route_call *call)
{
    (void)call;
    file_job_start(a, req, &kind);
}
