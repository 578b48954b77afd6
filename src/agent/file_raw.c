/* SPDX-License-Identifier: Apache-2.0 */
/* file_raw.c: GET, HEAD, PUT and DELETE /file/<path>: files as plain bodies, an addition of ours.
 *
 * The part of the URL behind /file is the absolute path, percent-encoded; any bytes but NUL, so that names
 * which are no UTF-8 can be reached, too. No session is involved and nothing waits for one.
 *
 * GET sends the file from the page cache (sendfile); ETag, Last-Modified, If-None-Match, If-Modified-Since,
 * single ranges and If-Range work as in RFC 9110. PUT streams the body to a file aside, which takes the
 * target's name when it is complete (file_sink.h): a broken upload changes nothing. `X-File-Mode: 0755` sets
 * the mode. DELETE removes a file, and a directory with everything in it when the query has recursive=true.
 */
#include "agent/file_error.h"
#include "agent/file_job.h"
#include "agent/file_path.h"
#include "agent/file_range.h"
#include "agent/file_routes.h"
#include "agent/file_sink.h"
#include "agent/file_source.h"
#include "agent/file_tree.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum {
    PREFIX_LEN = sizeof "/file/" - 1,
    PSEUDO_MAX = 4 << 20, /* of a file that does not tell its size */
};

static void raw_fail(struct http_request *req, int err, const char *operation, const char *verb,
                     const char *path)
{
    char text[PATH_MAX + 128];
    struct reply r;
    bool reading = strcmp(operation, "file.write") != 0; /* a writer is told what is in the way */
    if (reading && file_error_absent(err))
        reply_error_begin(&r, "FILE_NOT_FOUND", "File not found: %s", path);
    else
        reply_error_begin(&r, file_error_code(err), "Failed to %s '%s': %s", verb, path, strerror(-err));
    file_error_text(text, sizeof text, err, verb, path);
    json_member_string(&r.w, "path", path);
    reply_error_operation(&r, operation);
    json_member_string(&r.w, "stderr", text);
    reply_error_send(&r, req);
}

/* The path of the request; false: it has answered. */
static bool raw_path(struct http_request *req, char out[PATH_MAX])
{
    int r = file_path_decode(out, req->path + PREFIX_LEN);
    if (r == 0)
        return true;
    if (r == -ENAMETOOLONG)
        reply_error(req, "NAME_TOO_LONG", "The path is longer than %d bytes", PATH_MAX - 1);
    else
        reply_error(req, "VALIDATION_FAILED",
                    "The path is empty, has a broken percent escape or a null byte");
    return false;
}

/* ------------------------------------------------------------------ GET */

/* A directory is not "not found" here: the client should learn what is wrong. */
static int open_source(struct file_source *s, const char *path)
{
    struct stat st;
    int r = file_source_open(s, path, path);
    return r == -ENOENT && stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? -EISDIR : r;
}

/* Its length is known only when it has been read. */
static void send_pseudo(struct http_request *req, const struct file_source *s, const char *path)
{
    auto_free char *data = malloc(PSEUDO_MAX + 1);
    ssize_t n = data ? file_source_read(s, data, PSEUDO_MAX + 1, 0) : -ENOMEM;
    if (n < 0)
        raw_fail(req, (int)n, "file.read", "read", path);
    else if (n > PSEUDO_MAX)
        raw_fail(req, -EFBIG, "file.read", "read", path);
    else
        http_respond(req, 200, s->mime, data, (size_t)n);
}

static void send_source(struct http_request *req, struct file_source *s)
{
    struct file_validators v;
    char range_text[80];
    struct http_header headers[6] = {
        {"Content-Type", s->mime}, {"X-Content-Type-Options", "nosniff"}, {"Accept-Ranges", "bytes"},
        {"ETag", v.etag},          {"Last-Modified", v.modified},
    };
    size_t count = 5;
    uint64_t size = (uint64_t)s->st.st_size;
    file_validators_make(&v, &s->st);
    if (file_not_modified(req, &v)) {
        http_respond_headers(req, 304, headers, count, NULL, 0);
        return;
    }
    struct file_range range = file_range_of(req, &v, size);
    int status = 200;
    if (range.kind == FILE_RANGE_PART) {
        status = 206;
        (void)snprintf(range_text, sizeof range_text, "bytes %llu-%llu/%llu", (unsigned long long)range.first,
                       (unsigned long long)(range.first + range.len - 1), (unsigned long long)size);
        headers[count++] = (struct http_header){"Content-Range", range_text};
    } else if (range.kind == FILE_RANGE_NONE) {
        (void)snprintf(range_text, sizeof range_text, "bytes */%llu", (unsigned long long)size);
        headers[0] = (struct http_header){"Content-Range", range_text};
        http_respond_headers(req, 416, headers, 1, NULL, 0);
        return;
    }
    http_response_begin(req, status, headers, count, (int64_t)range.len);
    s->is_open = false; /* the server's from here on */
    http_response_sendfile(req, s->fd, range.first, range.len);
    http_response_end(req);
}

void route_file_get(struct agent *a, struct http_request *req, struct route_call *call)
{
    char path[PATH_MAX];
    struct file_source s;
    (void)a;
    (void)call;
    if (!raw_path(req, path))
        return;
    int r = open_source(&s, path);
    if (r < 0) {
        raw_fail(req, r, "file.read", "read", path);
        return;
    }
    char byte;
    if (s.sized || file_source_read(&s, &byte, 1, 0) == 0)
        send_source(req, &s);
    else
        send_pseudo(req, &s, path);
    file_source_close(&s);
}

/* ------------------------------------------------------------------ PUT */

struct upload {
    struct file_sink sink;
    char path[PATH_MAX];
};

static void upload_free(struct upload *u)
{
    file_sink_abort(&u->sink);
    free(u);
}

static void upload_gone(struct http_request *req)
{
    upload_free(req->user);
}

/* The answer to an upload that cannot go on. */
static void upload_fail(struct http_request *req, int err)
{
    struct upload *u = req->user;
    req->on_gone = NULL;
    raw_fail(req, err, "file.write", "write", u->path);
    upload_free(u);
}

static void upload_data(struct http_request *req, const char *data, size_t n)
{
    struct upload *u = req->user;
    int r = file_sink_write(&u->sink, data, n);
    if (r < 0)
        upload_fail(req, r);
}

static void upload_end(struct http_request *req, int err)
{
    struct upload *u = req->user;
    if (err < 0)
        return; /* the server has answered, on_gone follows */
    bool created = !u->sink.existed;
    uint64_t size = u->sink.written;
    int r = file_sink_commit(&u->sink);
    if (r < 0) {
        upload_fail(req, r);
        return;
    }
    struct reply reply;
    reply_begin(&reply);
    json_member_string(&reply.w, "path", u->path);
    json_member_int(&reply.w, "size", (int64_t)size);
    json_member_bool(&reply.w, "created", created);
    req->on_gone = NULL;
    reply_send(&reply, req);
    upload_free(u);
}

/* Up to four octal digits; -1: there is none; -EINVAL. */
static int mode_of(const struct http_request *req)
{
    const char *s = http_request_header(req, "X-File-Mode");
    if (!s)
        return -1;
    size_t n = strlen(s);
    if (n == 0 || n > 5 || strspn(s, "01234567") != n || strtol(s, NULL, 8) > 07777)
        return -EINVAL;
    return (int)strtol(s, NULL, 8);
}

void route_file_put(struct agent *a, struct http_request *req, struct route_call *call)
{
    static const struct http_body_sink sink = {.on_data = upload_data, .on_end = upload_end};
    char path[PATH_MAX];
    (void)a;
    (void)call;
    if (!raw_path(req, path))
        return;
    int mode = mode_of(req);
    if (mode == -EINVAL) {
        reply_error(req, "VALIDATION_FAILED", "X-File-Mode is not an octal mode such as 0755");
        return;
    }
    struct upload *u = calloc(1, sizeof *u);
    int r = u ? file_sink_open(&u->sink, path, req->content_length, mode) : -ENOMEM;
    if (r < 0) {
        free(u);
        raw_fail(req, r, "file.write", "write", path);
        return;
    }
    memcpy(u->path, path, sizeof u->path);
    req->user = u;
    req->on_gone = upload_gone;
    http_request_read_start(req, UINT64_MAX, &sink);
}

/* ------------------------------------------------------------------ DELETE */

/* Goes on when the client has gone. */
struct removal {
    struct agent *agent;
    struct http_request *req; /* NULL: gone */
    struct deferred turn;
    struct tree_remove tree;
    int dir;
    char path[PATH_MAX];
    char name[NAME_MAX + 1];
};

static void removal_gone(struct http_request *req)
{
    struct removal *m = req->user;
    m->req = NULL;
}

static void removal_over(struct removal *m, int err)
{
    struct http_request *req = m->req;
    if (req)
        req->on_gone = NULL;
    if (req && err < 0) {
        raw_fail(req, err, "file.delete", "delete", m->path);
    } else if (req) {
        struct reply r;
        reply_begin(&r);
        json_member_string(&r.w, "path", m->path);
        reply_send(&r, req);
    }
    tree_remove_done(&m->tree);
    close_fd(&m->dir);
    free(m);
}

static void removal_turn(struct deferred *d)
{
    struct removal *m = container_of(d, struct removal, turn);
    int64_t until = clock_mono_us() + FILE_TURN_US;
    int r;
    do
        r = tree_remove_step(&m->tree);
    while (r > 0 && clock_mono_us() < until);
    if (r > 0)
        loop_defer(m->agent->loop, &m->turn, removal_turn);
    else
        removal_over(m, r);
}

/* 1: a tree, in turns; 0: done; or -errno. */
static int removal_begin(struct removal *m, bool recursive)
{
    char parent[PATH_MAX];
    struct stat st;
    size_t n;
    const char *last = file_path_last(m->path, &n);
    if (n > NAME_MAX)
        return -ENAMETOOLONG;
    if (n == 0 || (n == 1 && last[0] == '.') || (n == 2 && last[0] == '.' && last[1] == '.'))
        return -EBUSY;
    memcpy(m->name, last, n);
    (void)snprintf(parent, sizeof parent, "%.*s", (int)(last - m->path), m->path);
    m->dir = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (m->dir < 0 || fstatat(m->dir, m->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode) && !recursive)
        return -EISDIR;
    if (last[n] == '/' && !S_ISDIR(st.st_mode))
        return -ENOTDIR;
    return tree_remove_begin(&m->tree, m->dir, m->name);
}

void route_file_delete(struct agent *a, struct http_request *req, struct route_call *call)
{
    char path[PATH_MAX], recursive[8] = "";
    (void)call;
    if (!raw_path(req, path))
        return;
    struct removal *m = calloc(1, sizeof *m);
    if (!m) {
        reply_error(req, "INTERNAL_ERROR", "out of memory");
        return;
    }
    m->agent = a;
    m->req = req;
    m->dir = -1;
    memcpy(m->path, path, sizeof m->path);
    req->user = m;
    req->on_gone = removal_gone;
    (void)http_query_get(req->query, "recursive", recursive, sizeof recursive);
    int r = removal_begin(m, strcmp(recursive, "true") == 0 || strcmp(recursive, "1") == 0);
    if (r > 0)
        removal_turn(&m->turn);
    else
        removal_over(m, r);
}
