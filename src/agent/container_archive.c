/* SPDX-License-Identifier: Apache-2.0 */
/* container_archive.c: files of a container in and out as a tar stream.
 *
 * The image's own tar does the work, as any other process of the sandbox: so an archive can do no more than a
 * command could. The body is passed on as the program takes it, its output as the reader takes it; nothing is
 * kept. */
#include "agent/account.h"
#include "agent/container.h"
#include "agent/program.h"
#include "agent/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { COMPLAINT_MAX = 300, CHANGED = 1 /* GNU tar: a file changed while it was read */ };

struct archive {
    struct agent *agent;
    struct http_request *req; /* NULL: the caller is gone */
    struct spawn spawn;
    struct child child;
    struct source feed; /* the program's input, while it does not take all */
    int feed_fd;        /* -1: none, or closed */
    struct buf waiting; /* for it */
    bool put, body_ended, begun, exited;
    int code;
    struct tap out, complaints;
    struct buf complaint;
};

static void archive_free(struct archive *x)
{
    loop_del(x->agent->loop, &x->feed);
    close_fd(&x->feed_fd);
    spawner_cancel(&x->spawn);
    reaper_forget(x->agent->reaper, &x->child);
    tap_close(&x->out);
    tap_close(&x->complaints);
    buf_done(&x->waiting);
    buf_done(&x->complaint);
    free(x);
}

/* The program loses its pipes with its caller, and ends. */
static void caller_gone(struct http_request *req)
{
    archive_free(req->user);
}

static void archive_fail(struct archive *x, int status, const char *why)
{
    struct http_request *req = x->req;
    char text[COMPLAINT_MAX + 1];
    (void)snprintf(text, sizeof text, "%s", why);
    bool begun = x->begun;
    archive_free(x);
    if (begun) {
        http_response_abort(req);
        return;
    }
    http_response_close_after(req);
    container_refuse(req, status, "%s", text);
}

static void archive_settle(struct archive *x)
{
    if (!x->exited || x->out.fd >= 0 || x->complaints.fd >= 0)
        return;
    struct http_request *req = x->req;
    bool fine = x->code == 0 || (!x->put && x->code == CHANGED);
    if (!fine) {
        size_t n = MIN(buf_len(&x->complaint), (size_t)COMPLAINT_MAX - 32);
        char text[COMPLAINT_MAX];
        (void)snprintf(text, sizeof text, "tar ended with %d: %.*s", x->code, (int)n,
                       n ? buf_data(&x->complaint) : "");
        archive_fail(x, 400, text);
        return;
    }
    bool put = x->put;
    archive_free(x);
    if (put)
        http_respond(req, 200, NULL, NULL, 0);
    else
        http_response_end(req);
}

static void exited(struct child *c, int code)
{
    struct archive *x = container_of(c, struct archive, child);
    x->exited = true;
    x->code = code;
    archive_settle(x);
}

/* ------------------------------------------------------------------ in */

static void feed_ready(struct source *s, uint32_t events);

static void feed_flush(struct archive *x)
{
    while (x->feed_fd >= 0 && buf_len(&x->waiting)) {
        ssize_t n = write(x->feed_fd, buf_data(&x->waiting), buf_len(&x->waiting));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) { /* it reads no more: an archive may be followed by anything */
            buf_clear(&x->waiting);
            loop_del(x->agent->loop, &x->feed);
            close_fd(&x->feed_fd);
            break;
        }
        buf_consume(&x->waiting, (size_t)n);
    }
    if (x->feed_fd < 0)
        buf_clear(&x->waiting);
    bool stuck = buf_len(&x->waiting);
    if (stuck && x->feed.fd < 0) {
        (void)loop_add(x->agent->loop, &x->feed, x->feed_fd, EPOLLOUT, feed_ready);
        if (!x->body_ended)
            http_request_read_pause(x->req);
    } else if (!stuck) {
        loop_del(x->agent->loop, &x->feed);
        if (x->body_ended)
            close_fd(&x->feed_fd);
    }
}

static void feed_ready(struct source *s, uint32_t events)
{
    struct archive *x = container_of(s, struct archive, feed);
    (void)events;
    feed_flush(x);
    if (!buf_len(&x->waiting) && !x->body_ended)
        http_request_read_resume(x->req);
}

static void body_data(struct http_request *req, const char *data, size_t n)
{
    struct archive *x = req->user;
    if (buf_append(&x->waiting, data, n) == 0)
        feed_flush(x);
}

static void body_end(struct http_request *req, int err)
{
    struct archive *x = req->user;
    if (err < 0)
        return; /* the server has answered, and says goodbye for the caller */
    x->body_ended = true;
    feed_flush(x);
}

static const struct http_body_sink body_sink = {.on_data = body_data, .on_end = body_end};

/* ------------------------------------------------------------------ out */

static void out_data(struct tap *t, const char *data, size_t n)
{
    static const struct http_header headers[] = {{"Content-Type", "application/x-tar"}};
    struct archive *x = container_of(t, struct archive, out);
    if (!x->begun)
        http_response_begin(x->req, 200, headers, ARRAY_SIZE(headers), -1);
    x->begun = true;
    if (!http_response_write(x->req, data, n))
        tap_pause(t);
}

static void out_drain(struct http_request *req)
{
    struct archive *x = req->user;
    (void)tap_follow(&x->out);
}

static void out_end(struct tap *t)
{
    archive_settle(container_of(t, struct archive, out));
}

static void complaint_data(struct tap *t, const char *data, size_t n)
{
    struct archive *x = container_of(t, struct archive, complaints);
    (void)buf_append(&x->complaint, data, MIN(n, x->complaint.limit - buf_len(&x->complaint)));
}

static void complaint_end(struct tap *t)
{
    archive_settle(container_of(t, struct archive, complaints));
}

/* ------------------------------------------------------------------ the program */

static void spawned(struct spawn *spawn, pid_t pid, int err, enum spawn_stage stage)
{
    struct archive *x = container_of(spawn, struct archive, spawn);
    (void)stage;
    if (!pid) {
        archive_fail(x, 500, strerror(err));
        return;
    }
    reaper_watch(x->agent->reaper, &x->child, pid, exited);
    (void)tap_follow(&x->out);
    (void)tap_follow(&x->complaints);
    if (x->put)
        http_request_read_start(x->req, UINT64_MAX, &body_sink);
}

static int pipe_make(int *ours, int *theirs, bool ours_reads)
{
    int pair[2];
    if (pipe2(pair, O_CLOEXEC) < 0)
        return -errno;
    *ours = pair[!ours_reads];
    *theirs = pair[ours_reads];
    return fcntl(*ours, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static void archive_run(struct agent *a, struct http_request *req, bool put, const char *const *argv)
{
    char path[PATH_MAX];
    int theirs[3] = {-1, -1, -1}, out = -1, complaints = -1;
    struct archive *x = calloc(1, sizeof *x);
    if (!x) {
        container_refuse(req, 500, "out of memory");
        return;
    }
    *x = (struct archive){.agent = a,
                          .req = req,
                          .put = put,
                          .feed = {.fd = -1},
                          .feed_fd = -1,
                          .waiting = BUF_INIT(1 << 20),
                          .complaint = BUF_INIT(COMPLAINT_MAX)};
    int r = program_find(&a->env, argv[0], path, sizeof path);
    if (r == 0)
        r = put ? pipe_make(&x->feed_fd, &theirs[0], false) : pipe_make(&out, &theirs[1], true);
    if (r == 0)
        r = pipe_make(&complaints, &theirs[2], true);
    tap_init(&x->out, a, out, out_data, out_end);
    tap_init(&x->complaints, a, complaints, complaint_data, complaint_end);
    req->user = x;
    req->on_gone = caller_gone;
    req->on_drain = out_drain;
    static const struct account root; /* whoever the image's user is: files keep their owners */
    struct spawn_target target = {.account = &root,
                                  .path = path,
                                  .argv = argv,
                                  .env = a->env.vars,
                                  .cwd = "/",
                                  .fds = {theirs[0], theirs[1], theirs[2]}};
    if (r == 0)
        r = spawner_spawn(a->spawner, &x->spawn, &target, spawned);
    else
        for (int i = 0; i < 3; i++)
            close_fd(&theirs[i]);
    if (r < 0)
        archive_fail(x, 500, r == -ENOENT ? "the image has no tar" : strerror(-r));
}

static bool query_path(struct http_request *req, char path[PATH_MAX])
{
    if (http_query_get(req->query, "path", path, PATH_MAX) && path[0] == '/')
        return true;
    http_response_close_after(req);
    container_refuse(req, 400, "path must be an absolute path");
    return false;
}

void container_archive_put(struct agent *a, struct http_request *req)
{
    char path[PATH_MAX];
    struct stat st;
    if (!query_path(req, path))
        return;
    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode)) {
        http_response_close_after(req);
        container_refuse(req, 404, "there is no directory %s", path);
        return;
    }
    archive_run(a, req, true, (const char *const[]){"tar", "-x", "-p", "-f", "-", "-C", path, NULL});
}

/* "/a/b" is the entry b with all below it, "/a/b/." only what is below. */
void container_archive_get(struct agent *a, struct http_request *req)
{
    char path[PATH_MAX];
    struct stat st;
    if (!query_path(req, path))
        return;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        path[--n] = '\0';
    if (lstat(path, &st) < 0) {
        container_refuse(req, 404, "Could not find the file %s", path);
        return;
    }
    char *slash = strrchr(path, '/');
    const char *name = slash[1] ? slash + 1 : ".";
    const char *dir = slash == path ? "/" : path;
    char entry[NAME_MAX + 3];
    (void)snprintf(entry, sizeof entry, "./%s", name); /* a name that begins with '-' is no option */
    if (strcmp(name, ".") == 0)
        entry[1] = '\0';
    if (slash != path)
        *slash = '\0';
    archive_run(a, req, false, (const char *const[]){"tar", "-c", "-f", "-", "-C", dir, entry, NULL});
}
