/* SPDX-License-Identifier: Apache-2.0 */
/* build_copy.c: COPY and ADD: an archive is packed here (or in the sandbox of another stage), sent, and
 * unpacked inside the sandbox that is being built.
 *
 * Where a file lands depends on what is there already (a directory, or not), so the sandbox is asked first.
 */
#include "builder/build_internal.h"
#include "builder/spill.h"
#include "image/tar_put.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#define ARCHIVE  BOX_SCRATCH "/archive"
#define OUTGOING BOX_SCRATCH "/outgoing"

/* $1: destination, then perhaps the owner. Prints "d" or "-", then uid and gid. */
static const char ask_script[] = "if [ -d \"$1\" ]; then echo d; else echo -; fi; shift\n"
                                 "[ $# -gt 0 ] || { echo 0 0; exit 0; }\n" FIND_USER "echo \"$uid $gid\"\n";

/* $1: archive, $2: directory, $3: what it is for: "" or the name of the one file in it, $4: that file's new
 * name, $5: uid:gid or "", $6: mode or "". Directories that are there keep their owner and mode. */
static const char unpack_script[] =
    "set -e; a=$1; d=$2; w=" BOX_SCRATCH "/work\n"
    "if [ ! -d \"$d\" ]; then mkdir -p -- \"$d\"; [ ! \"$5\" ] || chown \"$5\" \"$d\"; fi\n"
    "keep=; if tar --version 2>/dev/null | grep -q GNU; then keep='--no-overwrite-dir "
    "--keep-directory-symlink'; fi\n"
    "if [ \"$3$5$6\" ]; then\n"
    "  mkdir -p $w; tar -xpf \"$a\" -C $w\n"
    "  if [ \"$5\" ]; then chown -hR \"$5\" $w; fi\n"
    "  if [ \"$6\" ]; then chmod -R \"$6\" $w; fi\n"
    "  if [ \"$3\" ]; then rm -rf -- \"$d/$4\"; mv -f -- \"$w/$3\" \"$d/$4\"\n"
    "  else tar -cf - -C $w . | tar -xpf - $keep -C \"$d\"; fi\n"
    "else tar -xpf \"$a\" $keep -C \"$d\"; fi\n"
    "rm -rf " BOX_SCRATCH "\n";

/* $1: archive, then sources, which may be patterns. Prints "f NAME" when they come to exactly one file, "d"
 * otherwise. A link that was named is followed. */
static const char pack_script[] =
    "set -e; a=$1; shift; mkdir -p " BOX_SCRATCH "/links; n=0; kind=d\n"
    "count=$#; IFS=\n"
    "while [ $count -gt 0 ]; do s=$1; shift; count=$((count - 1))\n"
    "  for m in $s; do\n"
    "    if [ ! -e \"$m\" ] && [ ! -L \"$m\" ]; then echo \"there is no '$m'\" >&2; exit 1; fi\n"
    "    n=$((n + 1)); base=${m##*/}\n"
    "    if [ -d \"$m\" ]; then set -- \"$@\" -C \"$m\" .; kind=d\n"
    "    else kind=f; if [ -L \"$m\" ]; then cp -L -- \"$m\" \"" BOX_SCRATCH
    "/links/$base\"; set -- \"$@\" -C " BOX_SCRATCH "/links \"./$base\"\n"
    "      else dir=${m%/*}; set -- \"$@\" -C \"${dir:-/}\" \"./$base\"; fi; fi\n"
    "  done; done\n"
    "tar -cf \"$a\" \"$@\"\n"
    "if [ $n = 1 ] && [ $kind = f ]; then echo \"f $base\"; else echo d; fi\n";

struct target {
    char directory[PATH_MAX];  /* where things go */
    char rename[NAME_MAX + 1]; /* the one file's new name; "": its own */
    bool is_directory;         /* the destination is one already */
    struct copy_owner owner;
};

static int no_memory(struct build *b)
{
    return error_set(b->reterr, ENOMEM, "out of memory");
}

static int add_all(struct words *w, const char *const *list, size_t n)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < n; i++)
        r = words_add(w, list[i], strlen(list[i]));
    return r;
}

/* What the sandbox has at the destination, and whom files shall belong to. */
static int ask(struct build *b, const struct step *s, struct target *t)
{
    struct words args = {0};
    auto_free char *answer = NULL;
    const char *list[] = {s->destination, s->owner};
    int r = add_all(&args, list, s->owner ? 2 : 1);
    r = r < 0 ? no_memory(b) : box_shell(b, &b->box, ask_script, &args, &answer);
    words_done(&args);
    if (r < 0)
        return r;
    t->owner.mode = s->mode;
    t->is_directory = answer[0] == 'd';
    if (sscanf(answer + 1, " %u %u", &t->owner.uid, &t->owner.gid) != 2)
        return error_set(b->reterr, EBADMSG, "the sandbox did not say who '%s' is",
                         s->owner ? s->owner : "root");
    return 0;
}

/* Whether the one file takes the destination's last part as its name. */
static int place(struct build *b, const struct step *s, bool single_file, struct target *t)
{
    size_t n = strlen(s->destination);
    const char *slash = strrchr(s->destination, '/');
    bool rename = single_file && !t->is_directory && s->destination[n - 1] != '/';
    size_t dir = rename ? (size_t)(slash - s->destination) : n;
    if (n >= sizeof t->directory || (rename && strlen(slash + 1) >= sizeof t->rename))
        return error_set(b->reterr, ENAMETOOLONG, "the destination '%.100s...' is too long", s->destination);
    (void)snprintf(t->directory, sizeof t->directory, "%.*s", dir ? (int)dir : 1, s->destination);
    (void)snprintf(t->rename, sizeof t->rename, "%s", rename ? slash + 1 : "");
    return 0;
}

/* file, owner, mode: see unpack_script. */
static int unpack(struct build *b, const struct target *t, const char *file, const char *owner,
                  const char *mode)
{
    struct words args = {0};
    const char *list[] = {ARCHIVE, t->directory, file, t->rename, owner, mode};
    int r = add_all(&args, list, ARRAY_SIZE(list)) < 0 ? no_memory(b)
                                                       : box_shell(b, &b->box, unpack_script, &args, NULL);
    words_done(&args);
    return r;
}

static int send_and_unpack(struct build *b, const struct target *t, int fd)
{
    int r = remote_upload(b->client, b->box.id, ARCHIVE, fd, b->reterr);
    return r < 0 ? r : unpack(b, t, "", "", ""); /* names, owners and modes are in the archive already */
}

/* ------------------------------------------------------------------ from the context */

/* ADD unpacks what looks like an archive: tar, or gzip, bzip2, xz or zstd around one. */
static bool is_archive(struct context *c, const struct copy_item *item)
{
    unsigned char head[512] = {0};
    if (!item->direct)
        return false;
    auto_close int fd = context_open_file(c, item->entry, NULL);
    ssize_t n = fd < 0 ? -1 : pread(fd, head, sizeof head, 0);
    if (n < 8)
        return false;
    return (head[0] == 0x1f && head[1] == 0x8b) || memcmp(head, "BZh", 3) == 0 ||
           memcmp(head,
                  "\xfd"
                  "7zXZ",
                  6) == 0 ||
           memcmp(head, "\x28\xb5\x2f\xfd", 4) == 0 ||
           (n == sizeof head && memcmp(head + 257, "ustar", 5) == 0);
}

static int pack_texts(struct build *b, const struct step *s, const struct target *t, int fd)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < s->file_count; i++) {
        size_t n = strlen(s->files[i].text);
        struct tar_entry e = {.type = TAR_FILE,
                              .path = t->rename[0] ? t->rename : s->files[i].name,
                              .mode = s->mode >= 0 ? (uint32_t)s->mode : 0644,
                              .uid = t->owner.uid,
                              .gid = t->owner.gid,
                              .size = n};
        r = tar_put_header(&e, spill_write, &fd, b->reterr);
        if (r == 0)
            r = spill_write(&fd, s->files[i].text, n, b->reterr);
        if (r == 0)
            r = tar_put_pad(n, spill_write, &fd, b->reterr);
    }
    return r;
}

static int copy_archives(struct build *b, const struct step *s, const struct target *t)
{
    struct target whole = *t;
    (void)snprintf(whole.directory, sizeof whole.directory, "%s", s->destination);
    whole.rename[0] = '\0';
    int r = 0;
    for (size_t i = 0; r == 0 && i < s->set.count; i++) {
        if (!is_archive(b->context, &s->set.items[i]))
            continue;
        auto_close int fd = context_open_file(b->context, s->set.items[i].entry, b->reterr);
        r = fd < 0 ? fd : send_and_unpack(b, &whole, fd);
    }
    return r;
}

static int copy_local(struct build *b, const struct step *s)
{
    struct target t = {0};
    bool single = s->set.single_file ? s->file_count == 0 : s->set.count == 0 && s->file_count == 1;
    int r = ask(b, s, &t);
    if (r == 0)
        r = place(b, s, single, &t);
    if (r == 0 && s->unpack)
        r = copy_archives(b, s, &t);
    if (r < 0 || (s->unpack && single && s->set.count == 1 && is_archive(b->context, &s->set.items[0])))
        return r;
    auto_close int fd = spill_open(b->reterr);
    if (fd < 0)
        return fd;
    r = pack_texts(b, s, &t, fd);
    if (r == 0)
        r = context_pack(b->context, &s->set, t.rename[0] ? t.rename : NULL, s->unpack ? is_archive : NULL,
                         &t.owner, fd, b->reterr);
    if (r == 0)
        r = tar_put_end(spill_write, &fd, b->reterr);
    return r == 0 ? send_and_unpack(b, &t, fd) : r;
}

/* ------------------------------------------------------------------ from another image */

/* Packs in the source's sandbox; *ret_file is the name of the only file, "" when there are more. */
static int pack_remote(struct build *b, const struct step *s, char ret_file[NAME_MAX + 1])
{
    struct words args = {0};
    auto_free char *answer = NULL;
    int r = words_add(&args, OUTGOING, strlen(OUTGOING));
    for (size_t i = 0; r == 0 && i < s->sources.count; i++) {
        auto_free char *clean = path_clean(s->sources.items[i]);
        char *path = NULL;
        r = clean && asprintf(&path, "/%s", clean) >= 0 ? words_take(&args, path) : -ENOMEM;
    }
    r = r < 0 ? no_memory(b) : box_shell(b, &b->source, pack_script, &args, &answer);
    words_done(&args);
    if (r < 0)
        return r;
    answer[strcspn(answer, "\n")] = '\0';
    bool one = answer[0] == 'f' && strlen(answer) > 2 && strlen(answer + 2) <= NAME_MAX;
    (void)snprintf(ret_file, NAME_MAX + 1, "%s", one ? answer + 2 : "");
    return 0;
}

static int copy_remote(struct build *b, const struct step *s)
{
    struct target t = {0};
    char file[NAME_MAX + 1], owner[32] = "", mode[16] = "";
    const char *image = s->from_image ? s->from_image->name : b->stages[s->from_stage].image;
    int r = box_open(b, &b->source, image);
    if (r == 0)
        r = pack_remote(b, s, file);
    if (r == 0)
        r = ask(b, s, &t);
    if (r == 0)
        r = place(b, s, file[0] != '\0', &t);
    if (r < 0)
        return r;
    auto_close int fd = spill_open(b->reterr);
    if (fd < 0)
        return fd;
    r = remote_download(b->client, b->source.id, OUTGOING, fd, b->reterr);
    if (r == 0)
        r = remote_upload(b->client, b->box.id, ARCHIVE, fd, b->reterr);
    if (r < 0)
        return r;
    if (s->owner)
        (void)snprintf(owner, sizeof owner, "%u:%u", t.owner.uid, t.owner.gid);
    if (s->mode >= 0)
        (void)snprintf(mode, sizeof mode, "%o", (unsigned)s->mode);
    return unpack(b, &t, t.rename[0] ? file : "", owner, mode);
}

int build_copy(struct build *b, const struct step *s)
{
    bool remote = s->from_stage >= 0 || s->from_image;
    int r = 0;
    if (s->file_count > 0 || !remote)
        r = copy_local(b, s);
    return r == 0 && remote && s->sources.count > 0 ? copy_remote(b, s) : r;
}
