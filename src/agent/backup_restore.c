/* SPDX-License-Identifier: Apache-2.0 */
/* backup_restore.c: POST /api/backup/restore: a directory becomes what it was when the archive was made.
 *
 * Where FUSE works, the archive is mounted below a writable layer, as the protocol describes it. A sandbox of
 * ours has no /dev/fuse: there the archive is extracted. It is extracted beside the old content first, which
 * is replaced only when that has succeeded, so a full disk or a torn archive costs nothing. The directory
 * itself stays the same, because shells may stand in it. The answer tells which way it was: "method" is
 * "mount" or "extract". */
#include "agent/backup_common.h"
#include "agent/shell_quote.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#define OPERATION "backup.restore"

enum { OUTPUT_MAX = 64 * 1024 };

static const char unmount_old[] =
    "mounts=(/var/backups/mounts/\"$id\"_*/lower /var/backups/mounts/\"$id\"/lower)\n"
    "if [ -x /usr/bin/fusermount3 ]; then\n"
    "  for m in \"$dir\" \"${mounts[@]}\"; do\n"
    "    [ -d \"$m\" ] || continue\n"
    "    /usr/bin/fusermount3 -u \"$m\" 2>/dev/null || /usr/bin/fusermount3 -uz \"$m\" 2>/dev/null\n"
    "  done\n"
    "fi\n"
    "for m in \"${mounts[@]}\"; do\n"
    "  [ -d \"$m\" ] && rm -rf --one-file-system -- \"${m%/lower}\"\n"
    "done\n"
    "mkdir -p -- \"$dir\" || exit\n";

static const char mount_new[] =
    "if mkdir -p -- \"$base\"/{lower,upper,work} && /usr/bin/squashfuse \"$archive\" \"$base/lower\"; then\n"
    "  if /usr/bin/fuse-overlayfs -o \"lowerdir=$base/lower,upperdir=$base/upper,workdir=$base/work\" "
    "\"$dir\"; then\n"
    "    printf mount\n"
    "    exit 0\n"
    "  fi\n"
    "  /usr/bin/fusermount3 -uz \"$base/lower\"\n"
    "fi\n"
    "rm -rf --one-file-system -- \"$base\"\n";

/* The second try is for file systems that take no extended attributes. */
static const char extract_new[] =
    "new=$(mktemp -d -- \"$dir/.restore-XXXXXXXXXX\") || exit\n"
    "/usr/bin/unsquashfs -q -n -f -user-xattrs -d \"$new\" \"$archive\" >/dev/null 2>&1 ||\n"
    "  /usr/bin/unsquashfs -q -n -f -no-xattrs -d \"$new\" \"$archive\" >/dev/null || {\n"
    "    status=$?\n"
    "    rm -rf -- \"$new\"\n"
    "    exit $status\n"
    "  }\n"
    "find \"$dir\" -mindepth 1 -maxdepth 1 ! -name \"${new##*/}\" -exec rm -rf -- {} + &&\n"
    "  find \"$new\" -mindepth 1 -maxdepth 1 -exec mv -t \"$dir\" -- {} + &&\n"
    "  chmod --reference=\"$new\" -- \"$dir\" && chown --reference=\"$new\" -- \"$dir\" && rmdir -- \"$new\" "
    "|| exit\n"
    "printf extract\n";

static bool fuse_works(void)
{
    static const char *const programs[] = {"/usr/bin/squashfuse", "/usr/bin/fuse-overlayfs",
                                           "/usr/bin/fusermount3"};
    auto_close int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    for (size_t i = 0; i < ARRAY_SIZE(programs); i++)
        if (access(programs[i], X_OK) < 0)
            return false;
    return fd >= 0;
}

static int put_variable(struct buf *out, const char *name, const char *value)
{
    int r = buf_printf(out, "%s=", name);
    if (r == 0)
        r = shell_quote(out, value);
    return r < 0 ? r : buf_putc(out, '\n');
}

static int restore_command(const struct backup_job *j, struct buf *out)
{
    const char *slash = strrchr(j->archive, '/') + 1;
    size_t n = strlen(slash), id = n > 5 && strcmp(slash + n - 5, ".sqsh") == 0 ? n - 5 : n;
    auto_free char *name = strndup(slash, id), *base = NULL;
    uint32_t random = 0;
    (void)!getrandom(&random, sizeof random, GRND_NONBLOCK); /* a name: the time alone would do */
    if (!name ||
        asprintf(&base, BACKUP_ROOT "/mounts/%s_%lld_%08x", name, (long long)clock_wall_ms(), random) < 0) {
        base = NULL;
        return -ENOMEM;
    }
    int r = buf_puts(out, "(\n{ set +xveuCf; } 2>/dev/null\nshopt -u nullglob failglob\n");
    if (r == 0)
        r = put_variable(out, "dir", j->dir);
    if (r == 0)
        r = put_variable(out, "archive", j->archive);
    if (r == 0)
        r = put_variable(out, "id", name);
    if (r == 0)
        r = put_variable(out, "base", base);
    if (r == 0)
        r = buf_puts(out, unmount_old);
    if (r == 0 && fuse_works())
        r = buf_puts(out, mount_new);
    if (r == 0)
        r = buf_puts(out, extract_new);
    return r < 0 ? r : buf_puts(out, ")");
}

static void job_free(struct backup_job *j)
{
    backup_job_done(j);
    free(j);
}

static void restore_done(struct task *t, const struct session_fault *fault, int status)
{
    struct backup_job *j = container_of(t, struct backup_job, task);
    if (fault) {
        backup_fault(j, fault);
    } else if (status != 0) {
        auto_free char *errors = task_text(t->err, OUTPUT_MAX);
        backup_fail(j, status, errors, "The archive cannot be restored");
    } else {
        auto_free char *output = task_text(t->out, OUTPUT_MAX);
        struct buf out = BUF_INIT(64 * 1024);
        struct json_writer w;
        json_writer_init(&w, &out);
        json_object_begin(&w);
        json_member_bool(&w, "success", true);
        json_member_string(&w, "dir", j->dir);
        json_member_string(&w, "method", output && strstr(output, "mount") ? "mount" : "extract");
        backup_answer(j, &w, &out);
        buf_done(&out);
    }
    job_free(j);
}

void route_backup_restore(struct agent *a, struct http_request *req, struct route_call *call)
{
    struct backup_job *j = calloc(1, sizeof *j);
    struct stat st;
    if (!j) {
        reply_error(req, "INTERNAL_ERROR", "Out of memory");
        return;
    }
    if (!backup_job_init(j, a, req, call->body, true, OPERATION, "BACKUP_RESTORE_FAILED")) {
        job_free(j);
        return;
    }
    if (stat(j->archive, &st) < 0 || !S_ISREG(st.st_mode)) {
        backup_fail(j, -1, NULL, "The archive does not exist: %.200s", j->archive);
        job_free(j);
        return;
    }
    struct buf text = BUF_INIT(128 * 1024);
    int r = restore_command(j, &text);
    if (r == 0)
        r = buf_cstr(&text) ? backup_run(j, buf_cstr(&text), restore_done) : -ENOMEM;
    buf_done(&text);
    if (r < 0) {
        backup_fail(j, -1, strerror(-r), "The archive cannot be restored");
        job_free(j);
    }
}
