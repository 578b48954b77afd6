/* SPDX-License-Identifier: Apache-2.0 */
/* build_run.c: RUN and WORKDIR inside a sandbox. */
#include "builder/build_internal.h"
#include "builder/spill.h"

#include <errno.h>
#include <string.h>

#define SCRIPT_PATH BOX_SCRATCH "/run"
#define ASIDE       "/.silica-aside" /* what mounts hide; BOX_SCRATCH goes with every copy */

/* Becomes that user and runs the other words. */
static const char as_user[] =
    FIND_USER "HOME=$home; USER=$name; export HOME USER\n"
              "if command -v setpriv >/dev/null 2>&1; then\n"
              "  if [ \"$name\" = \"$u\" ] && [ ! \"$numeric\" ] && [ ! \"$g\" ]; then groups=--init-groups; "
              "else groups=--clear-groups; fi\n"
              "  exec setpriv --reuid=\"$uid\" --regid=\"$gid\" $groups -- \"$@\"; fi\n"
              "command -v chroot >/dev/null 2>&1 && exec chroot --userspec=\"$uid:$gid\" / \"$@\"\n"
              "echo \"USER needs setpriv or chroot in the image\" >&2; exit 125\n";

/* A directory that is there stays as it is. */
static const char make_directory[] =
    "d=$1; shift; [ -d \"$d\" ] && exit 0; mkdir -p -- \"$d\" || exit 1; [ $# -gt 0 ] || exit 0\n" FIND_USER
    "chown \"$uid:$gid\" \"$d\"\n";

static bool is_root(const char *user)
{
    return !user || strcmp(user, "root") == 0 || strcmp(user, "0") == 0 || strcmp(user, "root:root") == 0 ||
           strcmp(user, "0:0") == 0;
}

static int no_memory(struct build *b)
{
    return error_set(b->reterr, ENOMEM, "out of memory");
}

/* Puts the text of a script where it can be executed. */
static int upload_script(struct build *b, const char *text)
{
    auto_close int fd = spill_open(b->reterr);
    int r = fd < 0 ? fd : spill_write(&fd, text, strlen(text), b->reterr);
    if (r == 0)
        r = remote_upload(b->client, b->box.id, SCRIPT_PATH, fd, b->reterr);
    return r < 0 ? r : box_shell(b, &b->box, "chmod 755 " BOX_SCRATCH " " SCRIPT_PATH, NULL, NULL);
}

static int command(const struct step *s, struct words *ret)
{
    int r = 0;
    if (!is_root(s->user)) {
        r = words_add(ret, "/bin/sh", 7);
        if (r == 0)
            r = words_add(ret, "-c", 2);
        if (r == 0)
            r = words_add(ret, as_user, sizeof as_user - 1);
        if (r == 0)
            r = words_add(ret, "build", 5);
        if (r == 0)
            r = words_add(ret, s->user, strlen(s->user));
    }
    if (r == 0 && s->script)
        r = words_add(ret, SCRIPT_PATH, strlen(SCRIPT_PATH));
    for (size_t i = 0; r == 0 && i < s->argv.count; i++)
        r = words_add(ret, s->argv.items[i], strlen(s->argv.items[i]));
    return r;
}

/* $1: a number, $2: a path. What is there goes aside; with $3, an empty directory takes its place. */
static const char mount_script[] = "set -e; if [ -e \"$2\" ] || [ -L \"$2\" ]; then mkdir -p " ASIDE
                                   "/$1; mv -- \"$2\" " ASIDE "/$1/was; fi\n"
                                   "[ ! \"$3\" ] || mkdir -p -- \"$2\"\n";
static const char unmount_script[] =
    "set -e; rm -rf -- \"$2\"; if [ -e " ASIDE "/$1/was ] || [ -L " ASIDE "/$1/was ]; then mv -- " ASIDE
    "/$1/was \"$2\"; fi; rm -rf " ASIDE "/$1; rmdir " ASIDE " 2>/dev/null || true\n";

static int mount_shell(struct build *b, const char *script, size_t number, const struct step_mount *m)
{
    char text[24];
    struct words args = {0};
    (void)snprintf(text, sizeof text, "%zu", number);
    int r = words_add(&args, text, strlen(text));
    if (r == 0)
        r = words_add(&args, m->target, strlen(m->target));
    if (r == 0)
        r = words_add(&args, m->copy ? "" : "directory", m->copy ? 0 : 9);
    r = r < 0 ? no_memory(b) : box_shell(b, &b->box, script, &args, NULL);
    words_done(&args);
    return r;
}

static int mount_all(struct build *b, const struct step *s)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < s->mount_count; i++) {
        r = mount_shell(b, mount_script, i, &s->mounts[i]);
        if (r == 0 && s->mounts[i].copy)
            r = build_copy(b, s->mounts[i].copy);
    }
    return r;
}

static int unmount_all(struct build *b, const struct step *s)
{
    int r = 0;
    for (size_t i = s->mount_count; r == 0 && i-- > 0;)
        r = mount_shell(b, unmount_script, i, &s->mounts[i]);
    return r;
}

static int run(struct build *b, const struct step *s, int *ret_exit_code)
{
    struct words argv = {0};
    int r = mount_all(b, s);
    if (r == 0 && s->script)
        r = upload_script(b, s->script);
    if (r == 0 && command(s, &argv) < 0)
        r = no_memory(b);
    if (r == 0)
        r = remote_run(b->client, b->box.id, &argv, &s->env, s->workdir, report_output, &b->report,
                       ret_exit_code, b->reterr);
    report_flush(&b->report);
    if (r == 0 && s->script)
        r = box_shell(b, &b->box, "rm -rf " BOX_SCRATCH, NULL, NULL);
    if (r == 0)
        r = unmount_all(b, s);
    words_done(&argv);
    return r;
}

static int directory(struct build *b, const struct step *s)
{
    struct words args = {0};
    int r = words_add(&args, s->workdir, strlen(s->workdir));
    if (r == 0 && !is_root(s->user))
        r = words_add(&args, s->user, strlen(s->user));
    r = r < 0 ? no_memory(b) : box_shell(b, &b->box, make_directory, &args, NULL);
    words_done(&args);
    return r;
}

int build_run_step(struct build *b, const struct step *s, int *ret_exit_code)
{
    *ret_exit_code = 0;
    switch (s->kind) {
    case STEP_RUN:
        return run(b, s, ret_exit_code);
    case STEP_DIRECTORY:
        return directory(b, s);
    case STEP_COPY:
        return build_copy(b, s);
    }
    return 0;
}
