/* SPDX-License-Identifier: Apache-2.0 */
/* backup_upload.c: POST /api/backup/upload-parts: byte ranges of an archive go to presigned URLs, all at the
 * same time.
 *
 * The agent speaks no TLS; the sandbox's curl does, one per part. Presigned URLs are credentials: curl reads
 * each from a file of its own (in a directory that only we can read, removed at the end), so that none is
 * seen in a process title. The part is fed through a pipe and its length is given by hand, because an upload
 * store wants no chunked coding. */
#include "agent/backup_common.h"
#include "agent/shell_quote.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define OPERATION "backup.create"

enum { PARTS_MAX = 10000, PARALLEL_MAX = 64, LINE_SIZE = 4096, OUTPUT_MAX = 64 * 1024 };

struct part {
    int64_t number, offset, size;
    char *etag; /* NULL: not uploaded */
};

struct upload_job {
    struct backup_job job;
    struct part *parts;
    size_t count;
    char *dir; /* of the URL files; NULL: not made */
};

/* $1 index of the part, $2 offset, $3 size; prints "index status etag". */
static const char upload_function[] =
    "up() {\n"
    "  for try in 1 2 3; do\n"
    "    answer=$(dd if=\"$archive\" bs=65536 iflag=skip_bytes,count_bytes,fullblock skip=\"$2\" "
    "count=\"$3\" "
    "status=none |\n"
    "      curl -q -sS -X PUT -K \"$urls/$1\" -H 'Content-Type: application/octet-stream' -H "
    "\"Content-Length: $3\" \\\n"
    "        -H Transfer-Encoding: -H Expect: --http1.1 --max-time 1800 -o /dev/null \\\n"
    "        -w '%{http_code} %header{etag}' -T -)\n"
    "    case $answer in 2[0-9][0-9]' '*) break ;; esac\n"
    "  done\n"
    "  printf '%s %s\\n' \"$1\" \"$answer\"\n"
    "}\n";

static void urls_remove(struct upload_job *u)
{
    char name[32];
    auto_close int fd = u->dir ? open(u->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    for (size_t i = 0; fd >= 0 && i < u->count; i++) {
        (void)snprintf(name, sizeof name, "%zu", i);
        (void)unlinkat(fd, name, 0); /* some may not have been written */
    }
    if (u->dir)
        (void)rmdir(u->dir);
    free(u->dir);
    u->dir = NULL;
}

static void upload_free(struct upload_job *u)
{
    urls_remove(u);
    for (size_t i = 0; i < u->count; i++)
        free(u->parts[i].etag);
    free(u->parts);
    backup_job_done(&u->job);
    free(u);
}

/* ------------------------------------------------------------------ the request */

static bool url_valid(const char *url)
{
    if (!url || strncasecmp(url, "https://", 8) != 0 || !url[8] || strchr("/?#:@", url[8]))
        return false;
    for (const char *s = url; *s; s++)
        if ((unsigned char)*s <= ' ' || *s == 0x7f)
            return false;
    return true;
}

/* NULL, or what is wrong. */
static const char *parts_parse(struct upload_job *u, const struct json_value *list)
{
    if (json_type_of(list) != JSON_ARRAY || json_count(list) == 0)
        return "parts must be a non-empty array";
    if (json_count(list) > PARTS_MAX)
        return "parts has more than 10000 members";
    u->parts = calloc(json_count(list), sizeof *u->parts);
    if (!u->parts)
        return "Out of memory";
    json_for_each (item, list) {
        struct part *p = &u->parts[u->count++];
        if (!json_integer(json_get(item, "partNumber"), 1, INT32_MAX, &p->number))
            return "partNumber must be a positive integer";
        if (!url_valid(json_string(json_get(item, "url"), NULL)))
            return "url must be an https URL";
        if (!json_integer(json_get(item, "offset"), 0, INT64_C(1) << 53, &p->offset))
            return "offset must be an integer that is not negative";
        if (!json_integer(json_get(item, "size"), 1, INT64_C(1) << 53, &p->size))
            return "size must be a positive integer";
    }
    return NULL;
}

/* curl's configuration: a quoted word, in which backslash and quote are escaped. */
static int url_write(int dir, size_t index, const char *url)
{
    struct buf text = BUF_INIT(1 << 20);
    char name[32];
    (void)snprintf(name, sizeof name, "%zu", index);
    int r = buf_puts(&text, "url = \"");
    for (; *url && r == 0; url++) {
        if (*url == '"' || *url == '\\')
            r = buf_putc(&text, '\\');
        if (r == 0)
            r = buf_putc(&text, *url);
    }
    if (r == 0)
        r = buf_puts(&text, "\"\ngloboff\n");
    auto_close int fd = r == 0 ? openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    if (r == 0 && fd < 0)
        r = -errno;
    if (r == 0 && write(fd, buf_data(&text), buf_len(&text)) != (ssize_t)buf_len(&text))
        r = -ENOSPC;
    buf_done(&text);
    return r;
}

static int urls_write(struct upload_job *u, const struct json_value *list)
{
    size_t i = 0;
    if (asprintf(&u->dir, "%s.parts-XXXXXX", u->job.archive) < 0) {
        u->dir = NULL;
        return -ENOMEM;
    }
    if (!mkdtemp(u->dir)) {
        int r = -errno;
        free(u->dir);
        u->dir = NULL;
        return r;
    }
    auto_close int dir = open(u->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = dir < 0 ? -errno : 0;
    json_for_each (item, list) {
        if (r == 0)
            r = url_write(dir, i++, json_string(json_get(item, "url"), NULL));
    }
    return r;
}

static int upload_command(const struct upload_job *u, struct buf *out)
{
    int r = buf_puts(out, "(\n{ set +xveuC; } 2>/dev/null\narchive=");
    if (r == 0)
        r = shell_quote(out, u->job.archive);
    if (r == 0)
        r = buf_puts(out, "\nurls=");
    if (r == 0)
        r = shell_quote(out, u->dir);
    if (r == 0)
        r = buf_printf(out, "\n%s", upload_function);
    for (size_t i = 0; i < u->count && r == 0; i++)
        r = buf_printf(out, "%sup %zu %lld %lld &\n", i < PARALLEL_MAX ? "" : "wait -n; ", i,
                       (long long)u->parts[i].offset, (long long)u->parts[i].size);
    return r < 0 ? r : buf_puts(out, "wait\n)");
}

/* ------------------------------------------------------------------ the end */

/* One line of the command's output. */
static void part_told(struct upload_job *u, const char *line)
{
    unsigned long index;
    int status, at = 0;
    if (sscanf(line, "%lu %d %n", &index, &status, &at) < 2 || at == 0 || index >= u->count)
        return;
    if (status >= 200 && status < 300 && line[at] && !u->parts[index].etag)
        u->parts[index].etag = strdup(line + at);
}

static int read_answers(struct upload_job *u, const struct spool *out)
{
    char line[LINE_SIZE];
    for (uint64_t at = 0;;) {
        ssize_t n = spool_read(out, at, line, sizeof line - 1);
        if (n <= 0)
            return (int)n;
        char *newline = memchr(line, '\n', (size_t)n);
        if (!newline)
            return -EBADMSG; /* no entity tag is that long */
        *newline = '\0';
        at += (uint64_t)(newline - line) + 1;
        part_told(u, line);
    }
}

static int compare_parts(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

static void upload_answer(struct upload_job *u)
{
    struct buf out = BUF_INIT(64 << 20);
    struct json_writer w;
    qsort(u->parts, u->count, sizeof *u->parts, compare_parts);
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_bool(&w, "success", true);
    json_put_key(&w, "parts");
    json_array_begin(&w);
    for (size_t i = 0; i < u->count; i++) {
        json_object_begin(&w);
        json_member_int(&w, "partNumber", u->parts[i].number);
        json_put_key(&w, "etag");
        json_put_bytes(&w, u->parts[i].etag, strlen(u->parts[i].etag));
        json_object_end(&w);
    }
    json_array_end(&w);
    backup_answer(&u->job, &w, &out);
    buf_done(&out);
}

static void upload_done(struct task *t, const struct session_fault *fault, int status)
{
    struct upload_job *u = container_of(t, struct upload_job, job.task);
    size_t missing = 0;
    if (fault) {
        backup_fault(&u->job, fault);
        upload_free(u);
        return;
    }
    int r = read_answers(u, t->out);
    while (missing < u->count && u->parts[missing].etag)
        missing++;
    if (r < 0 || missing < u->count) {
        auto_free char *errors = task_text(t->err, OUTPUT_MAX);
        backup_fail(&u->job, status, errors,
                    "Part %lld could not be uploaded, or was answered without an ETag",
                    (long long)u->parts[MIN(missing, u->count - 1)].number);
    } else {
        upload_answer(u);
    }
    upload_free(u);
}

static bool parts_inside(struct upload_job *u)
{
    struct stat st;
    if (stat(u->job.archive, &st) < 0 || !S_ISREG(st.st_mode)) {
        backup_fail(&u->job, -1, NULL, "The archive does not exist: %.200s", u->job.archive);
        return false;
    }
    for (size_t i = 0; i < u->count; i++)
        if (u->parts[i].offset > st.st_size || u->parts[i].size > st.st_size - u->parts[i].offset) {
            backup_fail(&u->job, -1, NULL, "Part %lld lies outside the archive",
                        (long long)u->parts[i].number);
            return false;
        }
    return true;
}

void route_backup_upload(struct agent *a, struct http_request *req, struct route_call *call)
{
    const struct json_value *list = json_get(call->body, "parts");
    struct upload_job *u = calloc(1, sizeof *u);
    if (!u) {
        reply_error(req, "INTERNAL_ERROR", "Out of memory");
        return;
    }
    if (!backup_job_init(&u->job, a, req, call->body, false, OPERATION, "BACKUP_CREATE_FAILED")) {
        upload_free(u);
        return;
    }
    const char *problem = parts_parse(u, list);
    if (problem) {
        req->on_gone = NULL;
        backup_refuse(req, OPERATION, "%s", problem);
        upload_free(u);
        return;
    }
    if (!parts_inside(u)) {
        upload_free(u);
        return;
    }
    struct buf text = BUF_INIT(4 << 20);
    int r = urls_write(u, list);
    if (r == 0)
        r = upload_command(u, &text);
    if (r == 0)
        r = buf_cstr(&text) ? backup_run(&u->job, buf_cstr(&text), upload_done) : -ENOMEM;
    if (r < 0) {
        backup_fail(&u->job, -1, strerror(-r), "The upload cannot be started");
        upload_free(u);
    }
    buf_done(&text);
}
