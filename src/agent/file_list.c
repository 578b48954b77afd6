/* SPDX-License-Identifier: Apache-2.0 */
/* file_list.c: POST /api/list-files: the entries of a directory, or of the whole tree below it.
 *
 * Theory of operation
 * The directory is opened under the session's lock and walked after it. Entries are written as they are met,
 * in the order of the directories, and only as fast as the client reads: a listing of a million files needs
 * no more memory than one of a hundred. So `count` stands behind `files`.
 *
 * Names are bytes, JSON is text: what is not UTF-8 in a name appears as U+FFFD. Such a file can be reached by
 * the raw routes, where a path is percent-encoded. Directories that cannot be read are entries without
 * content; their number is in `unreadable`, an addition which is there only when it is not 0. */
#include "agent/file_error.h"
#include "agent/file_job.h"
#include "agent/file_routes.h"
#include "agent/file_walk.h"
#include "base/clock.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    OUT_BYTES = 128 * 1024, /* sent at once */
    ENTRY_BYTES = 512,      /* of one entry without its names */
};

struct list_job {
    struct file_job job;
    const char *path;
    bool recursive, hidden;
    struct walk walk;
    struct reply reply;
    bool replying, begun;
    struct buf above,
        below;       /* absolutePath and relativePath of the directory, escaped, with the slash behind */
    struct buf name; /* of the entry, escaped */
    uint64_t count, unreadable;
    int64_t day; /* whose date is in `date` */
    char date[24];
};

static struct list_job *list_job_of(struct file_job *job)
{
    return container_of(job, struct list_job, job);
}

/* ------------------------------------------------------------------ entries */

/* True when nothing in the text needs an escape, as in most names. */
static bool is_plain(const char *s, size_t n)
{
    unsigned special = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        special |= (c < 0x20) | (c > 0x7e) | (c == '"') | (c == '\\');
    }
    return !special;
}

static int escape(struct buf *out, const char *s, size_t n)
{
    struct utf8_stream st = {0};
    if (is_plain(s, n))
        return buf_append(out, s, n);
    return utf8_decode(&st, s, n, true, UTF8_JSON, out);
}

/* The prefixes of the directory that is read now. */
static int set_prefixes(struct list_job *l)
{
    size_t n = strlen(l->path), below = buf_len(&l->walk.path);
    buf_clear(&l->above);
    buf_clear(&l->below);
    int r = escape(&l->above, l->path, n);
    if (r == 0 && l->path[n - 1] != '/')
        r = buf_putc(&l->above, '/');
    if (r == 0 && below)
        r = escape(&l->below, buf_data(&l->walk.path), below);
    if (r == 0 && below)
        r = buf_putc(&l->below, '/');
    return r == 0 && below ? buf_append(&l->above, buf_data(&l->below), buf_len(&l->below)) : r;
}

static char *put_bytes(char *p, const void *data, size_t n)
{
    if (n)
        memcpy(p, data, n);
    return p + n;
}

static char *put_text(char *p, const char *s)
{
    return put_bytes(p, s, strlen(s));
}

static char *put_buf(char *p, const struct buf *b)
{
    return put_bytes(p, buf_data(b), buf_len(b));
}

static char *put_digits(char *p, uint64_t v, int digits)
{
    for (int i = digits - 1; i >= 0; i--, v /= 10)
        p[i] = (char)('0' + v % 10);
    return p + digits;
}

static char *put_number(char *p, uint64_t v)
{
    int digits = 1;
    for (uint64_t rest = v; rest >= 10; rest /= 10)
        digits++;
    return put_digits(p, v, digits);
}

/* UTC with ten digits behind the point and no zone: what the protocol has. */
static char *put_time(struct list_job *l, char *p, const struct timespec *ts)
{
    int64_t day = ts->tv_sec / 86400, second = ts->tv_sec % 86400;
    if (second < 0) {
        second += 86400;
        day--;
    }
    if (day != l->day || !l->date[0]) {
        time_t t = (time_t)(day * 86400);
        struct tm tm = {0};
        (void)gmtime_r(&t, &tm);
        (void)snprintf(l->date, sizeof l->date, "%04u-%02u-%02uT", (unsigned)(tm.tm_year + 1900) % 10000,
                       (unsigned)(tm.tm_mon + 1) % 100, (unsigned)tm.tm_mday % 100);
        l->day = day;
    }
    p = put_text(p, l->date);
    p = put_digits(p, (uint64_t)second / 3600, 2);
    *p++ = ':';
    p = put_digits(p, (uint64_t)second / 60 % 60, 2);
    *p++ = ':';
    p = put_digits(p, (uint64_t)second % 60, 2);
    *p++ = '.';
    p = put_digits(p, (uint64_t)ts->tv_nsec, 9);
    *p++ = '0';
    return p;
}

static const char *type_name(mode_t mode)
{
    return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "directory" : S_ISLNK(mode) ? "symlink" : "other";
}

static char *put_mode(char *p, mode_t mode)
{
    for (int bit = 8; bit >= 0; bit--)
        *p++ = mode >> bit & 1 ? "xwr"[bit % 3] : '-';
    return p;
}

static int put_entry(struct list_job *l, const char *name, const struct stat *st)
{
    struct buf *out = &l->reply.out;
    buf_clear(&l->name);
    int r = escape(&l->name, name, strlen(name));
    if (r < 0)
        return r;
    char *start =
        buf_reserve(out, ENTRY_BYTES + buf_len(&l->name) * 3 + buf_len(&l->above) + buf_len(&l->below));
    if (!start)
        return -ENOMEM;
    char *p = put_text(start, l->count ? ",{\"name\":\"" : "{\"name\":\"");
    p = put_buf(p, &l->name);
    p = put_text(p, "\",\"absolutePath\":\"");
    p = put_buf(put_buf(p, &l->above), &l->name);
    p = put_text(p, "\",\"relativePath\":\"");
    p = put_buf(put_buf(p, &l->below), &l->name);
    p = put_text(p, "\",\"type\":\"");
    p = put_text(p, type_name(st->st_mode));
    p = put_text(p, "\",\"size\":");
    p = put_number(p, (uint64_t)st->st_size);
    p = put_text(p, ",\"modifiedAt\":\"");
    p = put_time(l, p, &st->st_mtim);
    p = put_text(p, "\",\"mode\":\"");
    p = put_mode(p, st->st_mode);
    p = put_text(p, "\",\"permissions\":{\"readable\":");
    p = put_text(p, st->st_mode & S_IRUSR ? "true" : "false");
    p = put_text(p, ",\"writable\":");
    p = put_text(p, st->st_mode & S_IWUSR ? "true" : "false");
    p = put_text(p, ",\"executable\":");
    p = put_text(p, st->st_mode & S_IXUSR ? "true}}" : "false}}");
    buf_commit(out, (size_t)(p - start));
    l->count++;
    return 0;
}

/* ------------------------------------------------------------------ walking */

static int list_entry_met(struct list_job *l)
{
    struct walk *w = &l->walk;
    struct stat st;
    if (fstatat(w->dir, w->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* removed meanwhile */
    int r = l->hidden || w->name[0] != '.' ? put_entry(l, w->name, &st) : 0;
    if (r < 0 || !l->recursive || !S_ISDIR(st.st_mode))
        return r;
    if (walk_enter(w, -1) < 0) {
        l->unreadable++;
        return 0;
    }
    return set_prefixes(l);
}

/* A turn's worth of entries; 1: there is more, 0: that was all, or -errno. */
static int walk_some(struct list_job *l)
{
    int64_t until = clock_mono_us() + FILE_TURN_US;
    for (unsigned i = 1; buf_len(&l->reply.out) < OUT_BYTES; i++) {
        int r, e = walk_next(&l->walk);
        if (e == WALK_END)
            return 0;
        if (e == WALK_ENTRY) {
            r = list_entry_met(l);
        } else {
            l->unreadable += e < 0;
            r = set_prefixes(l);
        }
        if (r < 0)
            return r;
        if (i % 32 == 0 && clock_mono_us() >= until)
            break;
    }
    return 1;
}

/* ------------------------------------------------------------------ the answer */

static void answer_begin(struct list_job *l)
{
    reply_begin(&l->reply);
    l->replying = true;
    file_job_echo(&l->job, &l->reply.w, "path", "path");
    json_put_key(&l->reply.w, "files");
    json_array_begin(&l->reply.w);
}

static void answer_rest(struct list_job *l)
{
    struct json_writer *w = &l->reply.w;
    json_array_end(w);
    json_member_int(w, "count", (int64_t)l->count);
    if (l->unreadable)
        json_member_int(w, "unreadable", (int64_t)l->unreadable);
}

static void list_failed(struct list_job *l, int err)
{
    if (l->begun)
        http_response_abort(take_ptr(l->job.req)); /* half of the answer is out: it must not look complete */
    else
        file_job_fail(&l->job, NULL, err, "list", l->path);
    file_job_end(&l->job);
}

static void list_complete(struct list_job *l)
{
    answer_rest(l);
    if (!l->begun) {
        l->replying = false;
        file_job_send(&l->job, &l->reply);
        file_job_end(&l->job);
        return;
    }
    json_member_int(&l->reply.w, "exitCode", 0);
    reply_timestamp(&l->reply.w);
    json_object_end(&l->reply.w);
    if (l->reply.w.err < 0) {
        list_failed(l, l->reply.w.err);
        return;
    }
    (void)http_response_write(l->job.req, buf_data(&l->reply.out), buf_len(&l->reply.out));
    http_response_end(take_ptr(l->job.req));
    file_job_end(&l->job);
}

static void list_step(struct file_job *job)
{
    static const struct http_header type = {"Content-Type", "application/json"};
    struct list_job *l = list_job_of(job);
    int more = l->reply.w.err < 0 ? l->reply.w.err : walk_some(l);
    if (more < 0) {
        list_failed(l, more);
        return;
    }
    if (!more) {
        list_complete(l);
        return;
    }
    if (!l->begun) {
        l->begun = true;
        file_job_on_drain(job);
        http_response_begin(job->req, 200, &type, 1, -1);
    }
    bool room = http_response_write(job->req, buf_data(&l->reply.out), buf_len(&l->reply.out));
    buf_clear(&l->reply.out);
    if (room)
        file_job_again(job);
}

/* ------------------------------------------------------------------ the request */

static bool list_check(struct file_job *job)
{
    struct list_job *l = list_job_of(job);
    const struct json_value *options = json_get(job->body, "options");
    l->recursive = json_bool(json_get(options, "recursive"), false);
    l->hidden = json_bool(json_get(options, "includeHidden"), false);
    return file_job_path(job, "path", &l->path);
}

static int list_open(struct list_job *l)
{
    char path[PATH_MAX];
    struct stat st;
    int r = file_job_resolve(&l->job, l->path, path);
    if (r < 0)
        return r;
    if (stat(path, &st) < 0)
        return errno == ENOTDIR ? -ENOENT : -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? -errno : walk_open(&l->walk, fd, -1);
}

static void list_run(struct file_job *job)
{
    struct list_job *l = list_job_of(job);
    l->above = l->below = BUF_INIT(128 << 20);
    l->name = BUF_INIT(16 * 1024);
    int r = list_open(l);
    if (r == 0)
        r = set_prefixes(l);
    if (r == -ENOENT || r == -ELOOP) {
        file_job_not_found(job, l->path);
        file_job_end(job);
    } else if (r < 0) {
        list_failed(l, r);
    } else {
        file_job_unlock(job);
        answer_begin(l);
        list_step(job);
    }
}

static void list_free(struct file_job *job)
{
    struct list_job *l = list_job_of(job);
    walk_done(&l->walk);
    buf_done(&l->above);
    buf_done(&l->below);
    buf_done(&l->name);
    if (l->replying)
        reply_done(&l->reply);
}

static const struct file_kind kind = {
    .operation = "directory.list",
    .size = sizeof(struct list_job),
    .check = list_check,
    .run = list_run,
    .step = list_step,
    .free = list_free,
};

void route_list_files(struct agent *a, struct http_request *req, struct route_call *call)
{
    (void)call;
    file_job_start(a, req, &kind);
}
