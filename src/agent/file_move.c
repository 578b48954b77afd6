/* SPDX-License-Identifier: Apache-2.0 */
/* file_move.c: POST /api/rename and /api/move: what mv does.
 *
 * Theory of operation
 * One rename, usually. Where the kernel refuses it (another file system; a directory of the image's lower
 * layers) the source is copied to a name aside in the target's directory, that name is renamed to the
 * target's, and then the source is removed, all in small steps: the target is complete or not there. If the
 * copy fails it is removed again. A move goes on when its client has gone, because half a move helps nobody.
 */
#include "agent/file_error.h"
#include "agent/file_job.h"
#include "agent/file_path.h"
#include "agent/file_routes.h"
#include "agent/file_sink.h"
#include "agent/file_tree.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* START      nothing has been done
 * COPYING    to the name aside
 * CLEARING   the copy failed with `err`: what there is of it is being removed
 * REMOVING   the target is in place: the source is being removed */
enum move_state { MOVE_START, MOVE_COPYING, MOVE_CLEARING, MOVE_REMOVING };

struct move_job {
    struct file_job job;
    const char *from, *to; /* as sent */
    enum move_state state;
    int err;
    int from_dir, to_dir;
    char from_name[NAME_MAX + 1], to_name[NAME_MAX + 1], temp[FILE_SINK_TEMP_SIZE];
    bool opened;
    struct tree_copy copy;
    struct tree_remove remove;
};

struct move_words {
    const char *from_key, *to_key;
};
static const struct move_words rename_words = {"oldPath", "newPath"};
static const struct move_words move_words = {"sourcePath", "destinationPath"};

static const struct file_kind rename_kind, move_kind;

static struct move_job *move_job_of(struct file_job *job)
{
    return container_of(job, struct move_job, job);
}

static const struct move_words *words_of(const struct file_job *job)
{
    return job->kind == &rename_kind ? &rename_words : &move_words;
}

/* ------------------------------------------------------------------ answers */

static void put_paths(struct file_job *job, struct json_writer *w)
{
    const struct move_words *words = words_of(job);
    file_job_echo(job, w, words->from_key, words->from_key);
    file_job_echo(job, w, words->to_key, words->to_key);
}

static void put_problems(struct json_writer *w, const char *what, unsigned problems)
{
    char text[128];
    for (unsigned bit = 1; bit <= problems; bit <<= 1)
        if (problems & bit) {
            (void)snprintf(text, sizeof text, "%s: %s", what,
                           file_path_problem_text((enum file_path_problem)bit));
            json_put_string(w, text);
        }
}

static bool move_check(struct file_job *job)
{
    struct move_job *m = move_job_of(job);
    const struct move_words *words = words_of(job);
    size_t from_len = 0, to_len = 0;
    m->from = json_string(json_get(job->body, words->from_key), &from_len);
    m->to = json_string(json_get(job->body, words->to_key), &to_len);
    unsigned from_bad = file_path_problems(m->from, from_len), to_bad = file_path_problems(m->to, to_len);
    if (!from_bad && !to_bad)
        return true;
    struct reply r;
    reply_error_begin(&r, "SECURITY_VALIDATION_FAILED", "Invalid path in %s", job->kind->operation);
    put_paths(job, &r.w);
    json_put_key(&r.w, "errors");
    json_array_begin(&r.w);
    put_problems(&r.w, words->from_key, from_bad);
    put_problems(&r.w, words->to_key, to_bad);
    json_array_end(&r.w);
    file_job_send_error(job, &r);
    return false;
}

/* stderr is worded like mv's, exitCode is mv's. */
static void move_fail(struct move_job *m, const char *code, int err, const char *what)
{
    struct file_job *job = &m->job;
    struct buf text = BUF_INIT(64 * 1024);
    struct reply r;
    (void)buf_printf(&text, "mv: cannot move '%s' to '%s': %s", m->from, m->to, what ? what : strerror(-err));
    const char *sentence = buf_cstr(&text);
    reply_error_begin(&r, code ? code : file_error_code(err), "Failed to move '%s' to '%s': %s", m->from,
                      m->to, what ? what : strerror(-err));
    put_paths(job, &r.w);
    json_member_string(&r.w, "path", m->from);
    reply_error_operation(&r, job->kind->operation);
    json_member_int(&r.w, "exitCode", 1);
    json_member_string(&r.w, "stderr", sentence ? sentence : "");
    buf_done(&text);
    file_job_send_error(job, &r);
}

static void move_over(struct move_job *m, int err)
{
    struct file_job *job = &m->job;
    struct reply r;
    if (err == -EINVAL) {
        move_fail(m, "FILESYSTEM_ERROR", err, "a directory cannot be moved into itself");
    } else if (err == -ENOENT || err == -ENOTDIR || err == -EISDIR) {
        move_fail(m, "FILESYSTEM_ERROR", err, NULL); /* of the destination: the source has been seen */
    } else if (err < 0) {
        move_fail(m, NULL, err, NULL);
    } else {
        const struct move_words *words = words_of(job);
        reply_begin(&r);
        file_job_echo(job, &r.w, words->from_key, "path");
        file_job_echo(job, &r.w, words->to_key, "newPath");
        file_job_echo(job, &r.w, words->from_key, words->from_key);
        if (strcmp(words->to_key, "newPath") != 0)
            file_job_echo(job, &r.w, words->to_key, words->to_key);
        file_job_send(job, &r);
    }
    file_job_end(job);
}

/* ------------------------------------------------------------------ where from, where to */

/* Opens the directory of path and keeps the last part of it as the name. */
static int open_parent(const char *path, int *ret_dir, char name[NAME_MAX + 1])
{
    char dir[PATH_MAX];
    size_t n;
    const char *last = file_path_last(path, &n);
    if (n > NAME_MAX)
        return -ENAMETOOLONG;
    if (n == 0 || (n == 1 && last[0] == '.') || (n == 2 && last[0] == '.' && last[1] == '.'))
        return -EBUSY; /* as rename(2) says of them */
    memcpy(name, last, n);
    name[n] = '\0';
    (void)snprintf(dir, sizeof dir, "%.*s", (int)(last - path), path);
    *ret_dir = open(*dir ? dir : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return *ret_dir < 0 ? -errno : 0;
}

static bool ends_with_slash(const char *path)
{
    return *path && path[strlen(path) - 1] == '/';
}

/* The target: a directory means "into it". */
static int open_target(struct move_job *m, const char *to, const struct stat *source)
{
    struct stat st;
    if (stat(to, &st) == 0 && S_ISDIR(st.st_mode)) {
        m->to_dir = open(to, O_PATH | O_DIRECTORY | O_CLOEXEC);
        memcpy(m->to_name, m->from_name, sizeof m->to_name);
        return m->to_dir < 0 ? -errno : 0;
    }
    if (ends_with_slash(to) && !S_ISDIR(source->st_mode))
        return -ENOTDIR;
    return open_parent(to, &m->to_dir, m->to_name);
}

/* True when the directory `inner` is the directory at (dir, name) or below it. */
static bool is_below(int inner, int dir, const char *name)
{
    struct stat want, st;
    if (fstatat(dir, name, &want, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(want.st_mode))
        return false;
    auto_close int at = openat(inner, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < WALK_DEPTH_MAX && at >= 0 && fstat(at, &st) == 0; i++) {
        if (st.st_dev == want.st_dev && st.st_ino == want.st_ino)
            return true;
        struct stat above;
        int up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        close_fd(&at);
        at = up;
        if (at >= 0 && fstat(at, &above) == 0 && above.st_dev == st.st_dev && above.st_ino == st.st_ino)
            return false; /* the root */
    }
    return false;
}

/* What mv looks at before it copies; rename(2) has its own checks. */
static int check_target(const struct move_job *m, const struct stat *source)
{
    struct stat st;
    if (is_below(m->to_dir, m->from_dir, m->from_name))
        return -EINVAL;
    if (fstatat(m->to_dir, m->to_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (S_ISDIR(st.st_mode) != S_ISDIR(source->st_mode))
        return S_ISDIR(st.st_mode) ? -EISDIR : -ENOTDIR;
    if (!S_ISDIR(st.st_mode))
        return 0;
    struct walk w;
    int fd = openat(m->to_dir, m->to_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int r = fd < 0 ? -errno : walk_open(&w, fd, -1);
    if (r < 0)
        return r;
    int e = walk_next(&w);
    walk_done(&w);
    return e == WALK_END ? 0 : e < 0 ? e : -ENOTEMPTY;
}

/* Two names of one file: rename(2) would do nothing and call it success. 1: done, 0: they are not, or -errno.
 */
static int move_same(struct move_job *m, const struct stat *source)
{
    struct stat st, a, b;
    if (fstatat(m->to_dir, m->to_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_dev != source->st_dev ||
        st.st_ino != source->st_ino)
        return 0;
    bool one_dir = fstat(m->from_dir, &a) == 0 && fstat(m->to_dir, &b) == 0 && a.st_dev == b.st_dev &&
                   a.st_ino == b.st_ino;
    if (one_dir && strcmp(m->from_name, m->to_name) == 0)
        return -EEXIST;
    if (S_ISDIR(st.st_mode))
        return 0;
    return unlinkat(m->from_dir, m->from_name, 0) < 0 ? -errno : 1;
}

/* ------------------------------------------------------------------ turns */

static int remove_source(struct move_job *m)
{
    m->state = MOVE_REMOVING;
    return tree_remove_begin(&m->remove, m->from_dir, m->from_name);
}

static int clear_copy(struct move_job *m, int err)
{
    tree_copy_done(&m->copy);
    m->state = MOVE_CLEARING;
    m->err = err;
    return tree_remove_begin(&m->remove, m->to_dir, m->temp);
}

/* The copy is complete. */
static int put_in_place(struct move_job *m)
{
    tree_copy_done(&m->copy);
    if (renameat(m->to_dir, m->temp, m->to_dir, m->to_name) < 0)
        return clear_copy(m, -errno);
    return remove_source(m);
}

/* One step of whatever is being done; 1: go on, 0 or -errno: the end. */
static int advance(struct move_job *m)
{
    int r;
    switch (m->state) {
    case MOVE_START:
        file_sink_temp_name(m->temp);
        m->state = MOVE_COPYING;
        r = tree_copy_begin(&m->copy, m->from_dir, m->from_name, m->to_dir, m->temp);
        break;
    case MOVE_COPYING:
        r = tree_copy_step(&m->copy);
        break;
    default:
        r = tree_remove_step(&m->remove);
        break;
    }
    if (r > 0)
        return 1;
    if (m->state == MOVE_COPYING)
        r = r == 0 ? put_in_place(m) : clear_copy(m, r);
    if (r > 0)
        return 1;
    return m->state == MOVE_CLEARING ? m->err : r;
}

static void move_step(struct file_job *job)
{
    struct move_job *m = move_job_of(job);
    int64_t until = clock_mono_us() + FILE_TURN_US;
    int r;
    do
        r = advance(m);
    while (r > 0 && clock_mono_us() < until);
    if (r > 0)
        file_job_again(job);
    else
        move_over(m, r);
}

/* 1: it has to be copied, 0: done, or -errno. */
static int try_rename(struct move_job *m, const char *to, const struct stat *source)
{
    int r = open_target(m, to, source);
    if (r == 0)
        r = move_same(m, source);
    if (r != 0)
        return r < 0 ? r : 0;
    if (renameat(m->from_dir, m->from_name, m->to_dir, m->to_name) == 0)
        return 0;
    if (errno != EXDEV)
        return -errno;
    r = check_target(m, source);
    return r < 0 ? r : 1;
}

static void move_run(struct file_job *job)
{
    struct move_job *m = move_job_of(job);
    char from[PATH_MAX], to[PATH_MAX];
    struct stat source;
    m->opened = true;
    m->from_dir = m->to_dir = -1;
    int r = file_job_resolve(job, m->from, from);
    if (r == 0)
        r = file_job_resolve(job, m->to, to);
    if (r == 0)
        r = open_parent(from, &m->from_dir, m->from_name);
    if (r == 0 && fstatat(m->from_dir, m->from_name, &source, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno;
    if (r == 0 && ends_with_slash(from) && !S_ISDIR(source.st_mode))
        r = -ENOTDIR;
    if (r < 0) {
        if (file_error_absent(r))
            file_job_not_found(job, m->from);
        else
            move_fail(m, NULL, r, NULL);
        file_job_end(job);
        return;
    }
    r = try_rename(m, to, &source);
    if (r > 0)
        move_step(job);
    else
        move_over(m, r);
}

static void move_free(struct file_job *job)
{
    struct move_job *m = move_job_of(job);
    if (!m->opened)
        return;
    tree_copy_done(&m->copy);
    tree_remove_done(&m->remove);
    close_fd(&m->from_dir);
    close_fd(&m->to_dir);
}

static const struct file_kind rename_kind = {
    .operation = "file.rename",
    .size = sizeof(struct move_job),
    .finishes = true,
    .check = move_check,
    .run = move_run,
    .step = move_step,
    .free = move_free,
};

static const struct file_kind move_kind = {
    .operation = "file.move",
    .size = sizeof(struct move_job),
    .finishes = true,
    .check = move_check,
    .run = move_run,
    .step = move_step,
    .free = move_free,
};

void route_rename(struct agent *a, struct http_request *req, struct route_call *call)
{
    (void)call;
    file_job_start(a, req, &rename_kind);
}

void route_move(struct agent *a, struct http_request *req, struct route_call *call)
{
    (void)call;
    file_job_start(a, req, &move_kind);
}
