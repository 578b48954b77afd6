/* SPDX-License-Identifier: Apache-2.0 */
/* file_stream.c: POST /api/read/stream: a file of any size as server-sent events.
 *
 * The file is opened under the session's lock and sent after it, as fast as the client reads. What is sent
 * ends at the size the file had when it was opened, so that a file which grows comes to an end, too. */
#include "agent/file_error.h"
#include "agent/file_job.h"
#include "agent/file_mime.h"
#include "agent/file_path.h"
#include "agent/file_routes.h"
#include "agent/file_source.h"
#include "base/base64.h"
#include "base/utf8.h"

#include <errno.h>
#include <string.h>

enum {
    CHUNK = 65535, /* the protocol's; a multiple of 3 */
    CHUNKS_PER_TURN = 4,
    EVENT_MAX = CHUNK * 6 + 256, /* all control characters: six characters each */
};

struct stream_job {
    struct file_job job;
    const char *path;
    struct file_source source;
    char *chunk;
    bool as_text;
    uint64_t offset, end;
    struct utf8_stream utf8;
    struct buf event;
};

static struct stream_job *stream_job_of(struct file_job *job)
{
    return container_of(job, struct stream_job, job);
}

static struct json_writer event_begin(struct stream_job *s, const char *type)
{
    struct json_writer w;
    buf_clear(&s->event);
    s->event.limit = EVENT_MAX;
    json_writer_init(&w, &s->event);
    json_object_begin(&w);
    json_member_string(&w, "type", type);
    return w;
}

/* False: the client has to catch up. */
static bool event_send(struct stream_job *s, struct json_writer *w)
{
    json_object_end(w);
    return w->err < 0 || sse_event(s->job.req, NULL, buf_data(&s->event), buf_len(&s->event));
}

static void stream_end(struct stream_job *s)
{
    http_response_end(take_ptr(s->job.req));
    file_job_end(&s->job);
}

static void put_error(struct stream_job *s, const char *text, size_t n)
{
    struct json_writer w = event_begin(s, "error");
    json_put_key(&w, "error");
    json_put_bytes(&w, text, n);
    (void)event_send(s, &w);
}

static void stream_fail(struct stream_job *s, const char *what, const char *path)
{
    struct buf text = BUF_INIT(64 * 1024);
    (void)buf_printf(&text, path ? "%s: %s" : "%s", what, path);
    put_error(s, buf_data(&text), buf_len(&text));
    buf_done(&text);
    stream_end(s);
}

static void stream_fault(struct file_job *job, const struct session_fault *fault)
{
    struct stream_job *s = stream_job_of(job);
    struct buf text = BUF_INIT(64 * 1024);
    const char *code;
    session_fault_text(job->session_id, fault, "FILESYSTEM_ERROR", &code, &text);
    sse_begin(job->req);
    put_error(s, buf_data(&text), buf_len(&text));
    buf_done(&text);
    http_response_end(take_ptr(job->req)); /* the caller ends the job */
}

/* ------------------------------------------------------------------ chunks */

static int put_chunk(struct stream_job *s, const char *data, size_t n, bool final, bool *ret_room)
{
    struct json_writer w = event_begin(s, "chunk");
    json_put_key(&w, "data");
    json_string_begin(&w);
    size_t before = buf_len(&s->event);
    if (s->as_text) {
        if (s->offset == 0 && n >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) {
            data += 3;
            n -= 3;
        }
        w.err = utf8_decode(&s->utf8, data, n, final, UTF8_JSON, &s->event);
    } else {
        char *to = buf_reserve(&s->event, base64_encoded_len(n) + 1);
        if (!to)
            return -ENOMEM;
        buf_commit(&s->event, base64_encode(to, data, n));
    }
    if (w.err == 0 && buf_len(&s->event) == before)
        return 0; /* only a byte order mark, or the start of a character */
    json_string_end(&w);
    *ret_room = event_send(s, &w);
    return w.err;
}

/* 1: there is more, 0: the end, or -errno. */
static int send_chunk(struct stream_job *s, bool *ret_room)
{
    size_t want = (size_t)MIN(s->end - s->offset, (uint64_t)CHUNK);
    ssize_t n = file_source_read(&s->source, s->chunk, want, s->offset);
    if (n < 0)
        return (int)n;
    bool final = (size_t)n < want || s->offset + (size_t)n == s->end;
    int r = put_chunk(s, s->chunk, (size_t)n, final, ret_room);
    s->offset += (size_t)n;
    return r < 0 ? r : !final;
}

static void stream_step(struct file_job *job)
{
    struct stream_job *s = stream_job_of(job);
    bool room = true;
    int more = 1;
    for (int i = 0; i < CHUNKS_PER_TURN && room && more > 0; i++)
        more = send_chunk(s, &room);
    if (more < 0) {
        char text[PATH_MAX + 128];
        file_error_text(text, sizeof text, more, "read", s->path);
        stream_fail(s, text, NULL);
    } else if (more == 0) {
        struct json_writer w = event_begin(s, "complete");
        json_member_int(&w, "bytesRead", (int64_t)s->offset);
        (void)event_send(s, &w);
        stream_end(s);
    } else if (room) {
        file_job_again(job);
    }
}

/* ------------------------------------------------------------------ the request */

/* What the file's size is announced as: a pseudo file has to be read to know. */
static int measure(struct stream_job *s)
{
    s->end = (uint64_t)s->source.st.st_size;
    if (s->source.sized)
        return 0;
    s->end = FILE_READ_MAX;
    ssize_t n = file_source_read(&s->source, s->chunk, CHUNK, 0);
    if (n >= 0 && n < CHUNK)
        s->end = (uint64_t)n;
    return n < 0 ? (int)n : 0;
}

static int stream_open(struct stream_job *s)
{
    char path[PATH_MAX];
    int r = file_job_resolve(&s->job, s->path, path);
    if (r == 0)
        r = file_source_open(&s->source, path, s->path);
    if (r < 0)
        return r;
    s->chunk = malloc(CHUNK);
    return s->chunk ? measure(s) : -ENOMEM;
}

static void stream_run(struct file_job *job)
{
    struct stream_job *s = stream_job_of(job);
    size_t n = 0;
    s->path = json_string(json_get(job->body, "path"), &n);
    sse_begin(job->req);
    unsigned problems = file_path_problems(s->path, n);
    if (problems) {
        stream_fail(s, file_path_problem_text((enum file_path_problem)(problems & -problems)), NULL);
        return;
    }
    int r = stream_open(s);
    if (r < 0) {
        char text[PATH_MAX + 128];
        file_error_text(text, sizeof text, r, "read", s->path);
        if (file_error_absent(r))
            stream_fail(s, "File not found", s->path);
        else
            stream_fail(s, text, NULL);
        return;
    }
    s->as_text = file_mime_is_text(s->source.mime);
    struct json_writer w = event_begin(s, "metadata");
    json_member_string(&w, "mimeType", s->source.mime);
    json_member_int(&w, "size", (int64_t)s->end);
    json_member_bool(&w, "isBinary", !s->as_text);
    json_member_string(&w, "encoding", s->as_text ? "utf-8" : "base64");
    (void)event_send(s, &w);
    file_job_unlock(job);
    file_job_on_drain(job);
    stream_step(job);
}

static void stream_free(struct file_job *job)
{
    struct stream_job *s = stream_job_of(job);
    file_source_close(&s->source);
    free(s->chunk);
    buf_done(&s->event);
}

static const struct file_kind kind = {
    .operation = "file.read",
    .size = sizeof(struct stream_job),
    .run = stream_run,
    .step = stream_step,
    .fault = stream_fault,
    .free = stream_free,
};

void route_read_stream(struct agent *a, struct http_request *req, struct route_call *call)
{
    (void)call;
    file_job_start(a, req, &kind);
}
