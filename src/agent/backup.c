/* SPDX-License-Identifier: Apache-2.0 */
/* backup.c: POST /api/backup/create: a directory becomes a squashfs archive.
 *
 * First (if asked) git says what it ignores, then mksquashfs runs; both are commands of the session. What
 * needs no program (checks, the list of exclusions, the size) is done here. */
#include "agent/backup_common.h"
#include "agent/backup_excludes.h"
#include "agent/shell_quote.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MKSQUASHFS "/usr/bin/mksquashfs"
#define OPERATION  "backup.create"

enum { OUTPUT_MAX = 64 * 1024, PATH_PIECE = 64 * 1024, PROCESSORS_MAX = 1024 };

struct create_job {
    struct backup_job job;
    struct backup_excludes excludes;
    char format[8];
    int64_t threads;
    char *list; /* the file of exclusions; NULL: not written */
};

static void create_free(struct create_job *c)
{
    if (c->list)
        (void)unlink(c->list); /* nobody else uses it */
    free(c->list);
    backup_excludes_done(&c->excludes);
    backup_job_done(&c->job);
    free(c);
}

static void create_failed(struct create_job *c, int status, const char *errors, const char *message)
{
    backup_fail(&c->job, status, errors, "%s", message);
    create_free(c);
}

/* ------------------------------------------------------------------ the archive */

static void archive_done(struct task *t, const struct session_fault *fault, int status)
{
    struct create_job *c = container_of(t, struct create_job, job.task);
    struct stat st;
    if (fault || status != 0)
        (void)unlink(c->job.archive); /* half an archive is worse than none */
    if (fault) {
        backup_fault(&c->job, fault);
        create_free(c);
        return;
    }
    if (status != 0) {
        auto_free char *errors = task_text(t->err, OUTPUT_MAX);
        create_failed(c, status, errors, "mksquashfs failed");
        return;
    }
    if (stat(c->job.archive, &st) < 0) {
        create_failed(c, -1, strerror(errno), "The archive cannot be read");
        return;
    }
    struct buf out = BUF_INIT(64 * 1024);
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_bool(&w, "success", true);
    json_member_int(&w, "sizeBytes", (int64_t)st.st_size);
    json_member_string(&w, "archivePath", c->job.archive);
    backup_answer(&c->job, &w, &out);
    buf_done(&out);
    create_free(c);
}

static int list_write(struct create_job *c)
{
    const char *data = buf_data(&c->excludes.lines);
    size_t n = buf_len(&c->excludes.lines);
    if (n == 0)
        return 0;
    if (asprintf(&c->list, "%s.exclude", c->job.archive) < 0) {
        c->list = NULL;
        return -ENOMEM;
    }
    (void)unlink(c->list); /* left by a crash */
    auto_close int fd = open(c->list, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    while (n > 0) {
        ssize_t k = write(fd, data, n);
        if (k < 0)
            return -errno;
        data += k;
        n -= (size_t)k;
    }
    buf_done(&c->excludes.lines);
    return 0;
}

static int archive_command(const struct create_job *c, struct buf *out)
{
    int r = buf_puts(out, MKSQUASHFS " ");
    if (r == 0)
        r = shell_quote(out, c->job.dir);
    if (r == 0)
        r = buf_putc(out, ' ');
    if (r == 0)
        r = shell_quote(out, c->job.archive);
    if (r == 0)
        r = buf_printf(out, " -comp %s -processors %d -no-progress -noappend", c->format, (int)c->threads);
    if (r == 0 && c->list)
        r = buf_puts(out, " -wildcards -ef ");
    if (r == 0 && c->list)
        r = shell_quote(out, c->list);
    return r;
}

static void archive_make(struct create_job *c)
{
    struct buf text = BUF_INIT(128 * 1024);
    int r = list_write(c);
    if (r == 0)
        r = archive_command(c, &text);
    if (r == 0)
        r = buf_cstr(&text) ? backup_run(&c->job, buf_cstr(&text), archive_done) : -ENOMEM;
    if (r < 0)
        create_failed(c, -1, strerror(-r), "The archive cannot be made");
    buf_done(&text);
}

/* ------------------------------------------------------------------ what git ignores */

/* NUL-separated paths. */
static int add_ignored(struct create_job *c, const struct spool *out)
{
    struct buf piece = BUF_INIT(PATH_PIECE * 2);
    uint64_t at = 0;
    int r = 0;
    while (r == 0) {
        char *room = buf_reserve(&piece, PATH_PIECE);
        ssize_t n = room ? spool_read(out, at, room, PATH_PIECE) : -ENOMEM;
        if (n <= 0) {
            r = (int)n;
            break;
        }
        buf_commit(&piece, (size_t)n);
        at += (uint64_t)n;
        for (const char *nul;
             r == 0 && buf_len(&piece) && (nul = memchr(buf_data(&piece), '\0', buf_len(&piece)));) {
            size_t len = (size_t)(nul - buf_data(&piece));
            r = backup_excludes_path(&c->excludes, buf_data(&piece), len);
            buf_consume(&piece, len + 1);
        }
        if (buf_len(&piece) > PATH_PIECE)
            r = -EMSGSIZE;
    }
    buf_done(&piece);
    return r;
}

static void ignored_done(struct task *t, const struct session_fault *fault, int status)
{
    struct create_job *c = container_of(t, struct create_job, job.task);
    if (fault) {
        backup_fault(&c->job, fault);
        create_free(c);
        return;
    }
    int r = status == 0 ? add_ignored(c, t->out) : 0; /* no git, or no work tree: nothing is ignored */
    if (r < 0)
        create_failed(c, -1, strerror(-r), "The list of ignored files cannot be made");
    else
        archive_make(c);
}

static void ignored_list(struct create_job *c)
{
    struct buf text = BUF_INIT(64 * 1024);
    int r = buf_puts(&text, "git -C ");
    if (r == 0)
        r = shell_quote(&text, c->job.dir);
    if (r == 0)
        r = buf_puts(&text, " rev-parse --is-inside-work-tree >/dev/null 2>&1 && git -C ");
    if (r == 0)
        r = shell_quote(&text, c->job.dir);
    if (r == 0)
        r = buf_puts(&text, " -c core.quotePath=false ls-files -z --others -i --exclude-standard -- .");
    if (r == 0)
        r = buf_cstr(&text) ? backup_run(&c->job, buf_cstr(&text), ignored_done) : -ENOMEM;
    if (r < 0)
        create_failed(c, -1, strerror(-r), "git cannot be asked for ignored files");
    buf_done(&text);
}

/* ------------------------------------------------------------------ the request */

/* NULL, or what is wrong with the options. */
static const char *options_parse(struct create_job *c, const struct json_value *body)
{
    const struct json_value *excludes = json_get(body, "excludes"),
                            *compression = json_get(body, "compression"),
                            *gitignore = json_get(body, "gitignore"),
                            *threads = json_get(compression, "threads"),
                            *format = json_get(compression, "format");
    const char *name = json_string(format, NULL);
    if (json_type_of(gitignore) != JSON_NULL && json_type_of(gitignore) != JSON_BOOL)
        return "gitignore must be a boolean";
    if (json_type_of(excludes) != JSON_NULL && json_type_of(excludes) != JSON_ARRAY)
        return "excludes must be an array of strings";
    if (json_type_of(compression) != JSON_NULL && json_type_of(compression) != JSON_OBJECT)
        return "compression must be an object";
    if (json_type_of(format) == JSON_NULL)
        name = "lz4";
    if (!name || (strcmp(name, "gzip") != 0 && strcmp(name, "lz4") != 0 && strcmp(name, "zstd") != 0))
        return "compression.format must be gzip, lz4 or zstd";
    (void)snprintf(c->format, sizeof c->format, "%s", name);
    c->threads = 8;
    if (json_type_of(threads) != JSON_NULL && !json_integer(threads, 1, PROCESSORS_MAX, &c->threads))
        return "compression.threads must be an integer from 1 to 1024";
    json_for_each (item, excludes) {
        const char *s = json_string(item, NULL);
        int r = s ? backup_excludes_pattern(&c->excludes, s) : -EINVAL;
        if (r < 0)
            return r == -EINVAL ? "excludes must be an array of strings without newlines"
                                : "excludes has too many patterns";
    }
    return NULL;
}

static const char *world_problem(const struct create_job *c)
{
    struct stat st;
    if (mkdir(BACKUP_ROOT, 0755) < 0 && errno != EEXIST)
        return "Cannot create " BACKUP_ROOT;
    if (stat(c->job.dir, &st) < 0 || !S_ISDIR(st.st_mode))
        return "The directory does not exist";
    return access(MKSQUASHFS, X_OK) < 0 ? MKSQUASHFS " is not there or not executable" : NULL;
}

void route_backup_create(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct create_job *c = calloc(1, sizeof *c);
    if (!c) {
        reply_error(req, "INTERNAL_ERROR", "Out of memory");
        return;
    }
    backup_excludes_init(&c->excludes);
    if (!backup_job_init(&c->job, a, req, call->body, true, OPERATION, "BACKUP_CREATE_FAILED")) {
        create_free(c);
        return;
    }
    const char *problem = options_parse(c, call->body);
    if (problem) {
        req->on_gone = NULL;
        backup_refuse(req, OPERATION, "%s", problem);
        create_free(c);
        return;
    }
    problem = world_problem(c);
    if (problem)
        create_failed(c, -1, NULL, problem);
    else if (json_bool(json_get(call->body, "gitignore"), false))
        ignored_list(c);
    else
        archive_make(c);
}
