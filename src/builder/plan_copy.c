/* SPDX-License-Identifier: Apache-2.0 */
/* plan_copy.c: COPY and ADD: what is copied, from where, and its key. */
#include "base/image_alias.h"
#include "builder/expand.h"
#include "builder/plan_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Stands where a Dockerfile puts the container protocol's server. The real one is process 1 of every sandbox;
 * who starts this file gets what the server would do with the words behind it, or a process that waits. */
static const char server_script[] =
    "#!/bin/sh\n"
    "# Stands in for the sandbox server, which runs as process 1 of every sandbox.\n"
    "[ $# -gt 0 ] && exec \"$@\"\n"
    "trap 'kill $! 2>/dev/null; exit 0' TERM INT\n"
    "while :; do sleep 86400 & wait $!; done\n";

static int check_flags(struct planner *p)
{
    static const char *const known[] = {"from", "chown", "chmod", "link"};
    bool add = p->at->kind == DOCKERFILE_ADD;
    for (size_t i = 0; i < p->at->flags.count; i++) {
        const char *flag = p->at->flags.items[i];
        size_t n = strcspn(flag, "="), k = add ? 1 : 0; /* ADD has no --from */
        while (k < ARRAY_SIZE(known) && (strlen(known[k]) != n || strncmp(known[k], flag, n) != 0))
            k++;
        if (k == ARRAY_SIZE(known))
            return plan_fail(p, EINVAL, "%s has no flag --%s here; known are %s--chown, --chmod and --link",
                             instruction_name(p->at->kind), flag, add ? "" : "--from, ");
    }
    return 0;
}

static int read_owner(struct planner *p, struct step *s)
{
    const char *owner = instruction_flag(p->at, "chown"), *mode = instruction_flag(p->at, "chmod");
    int r = 0;
    if (owner)
        r = plan_expand(p, owner, &s->owner);
    if (r == 0 && owner && *s->owner && s->owner[strspn(s->owner, "0123456789")] == '\0') {
        char *both = NULL; /* a number stands for the group, too */
        if (asprintf(&both, "%s:%s", s->owner, s->owner) < 0)
            return plan_memory(p);
        free(s->owner);
        s->owner = both;
    }
    if (r == 0 && s->owner && (!*s->owner || s->owner[strcspn(s->owner, " \t'\"\\/$`")]))
        r = plan_fail(p, EINVAL, "--chown=%s is not USER, USER:GROUP or their numbers", s->owner);
    if (r == 0 && mode) {
        auto_free char *text = NULL;
        char *end;
        r = plan_expand(p, mode, &text);
        unsigned long v = r == 0 ? strtoul(text, &end, 8) : 0;
        if (r == 0 && (!*text || *end || text[strspn(text, "01234567")] || v > 07777))
            r = plan_fail(p, EINVAL, "--chmod=%s is not a mode such as 755", text);
        s->mode = (int)v;
    }
    return r;
}

int plan_copy_from(struct planner *p, struct step *s, const char *name)
{
    if (!name)
        return 0;
    s->from_stage = plan_find_stage(p, name);
    if (s->from_stage >= 0)
        return 0;
    s->from_image = calloc(1, sizeof *s->from_image);
    if (!s->from_image)
        return plan_memory(p);
    int r = p->in->find_image(name, s->from_image, p->in->user, p->reterr);
    return r < 0 ? error_prefix(p->reterr, "line %u: no stage is called '%s', and", p->at->line, name) : 0;
}

static int read_from(struct planner *p, struct step *s)
{
    const char *from = instruction_flag(p->at, "from");
    auto_free char *name = NULL;
    int r = from ? plan_expand(p, from, &name) : 0;
    return r < 0 ? r : plan_copy_from(p, s, name);
}

/* Whether what is copied from has the server of image_alias.h. */
static bool from_server(const struct planner *p, const struct step *s)
{
    if (s->from_image)
        return s->from_image->server;
    int i = s->from_stage;
    while (i >= 0 && p->plan->stages[i].parent >= 0)
        i = p->plan->stages[i].parent;
    return i >= 0 && p->plan->stages[i].base.server;
}

static int add_file(struct planner *p, struct step *s, const char *name, char *text)
{
    struct inline_file *files = realloc(s->files, (s->file_count + 1) * sizeof *files);
    char *copy = strdup(name);
    if (files)
        s->files = files;
    if (!files || !copy || !text) {
        free(copy);
        free(text);
        return plan_memory(p);
    }
    files[s->file_count++] = (struct inline_file){copy, text};
    return 0;
}

/* A source that is a text of the Dockerfile itself. 1: it was one. */
static int take_heredoc(struct planner *p, struct step *s, const char *word)
{
    for (size_t i = 0; i < p->at->heredoc_count; i++) {
        const struct heredoc *h = &p->at->heredocs[i];
        char *text = NULL;
        if (strcmp(h->word, word) != 0)
            continue;
        if (!h->expand)
            text = strdup(h->text);
        else if (expand_text(h->text, p->in->dockerfile->escape, plan_lookup, p, &text, p->reterr) < 0)
            return error_prefix(p->reterr, "line %u", p->at->line);
        int r = add_file(p, s, h->name, text);
        return r < 0 ? r : 1;
    }
    return 0;
}

static int take_source(struct planner *p, struct step *s, const char *word)
{
    auto_free char *path = NULL;
    int r = take_heredoc(p, s, word);
    if (r != 0)
        return MIN(r, 0);
    r = plan_expand(p, word, &path);
    if (r < 0)
        return r;
    if (strstr(path, "://") || strncmp(path, "git@", 4) == 0)
        return plan_fail(p, EOPNOTSUPP, "%s of '%s' is not supported; use RUN curl or RUN git clone",
                         instruction_name(p->at->kind), path);
    if (from_server(p, s) && strcmp(path, IMAGE_SERVER_PATH) == 0) {
        s->mode = s->mode < 0 ? 0755 : s->mode;
        r = add_file(p, s, "sandbox", strdup(server_script));
        return r < 0
                   ? r
                   : plan_note(
                         p,
                         "%s: the sandbox server runs as process 1; a file that says so stands in its place",
                         path);
    }
    return words_add(&s->sources, path, strlen(path)) < 0 ? plan_memory(p) : 0;
}

static bool is_directory_name(const char *path)
{
    size_t n = strlen(path);
    const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
    return n == 0 || path[n - 1] == '/' || strcmp(last, ".") == 0 || strcmp(last, "..") == 0;
}

static int read_destination(struct planner *p, struct step *s, const char *word)
{
    auto_free char *path = NULL;
    int r = plan_expand(p, word, &path);
    if (r < 0)
        return r;
    auto_free char *absolute = plan_absolute(p, path);
    bool directory = is_directory_name(path) || (absolute && strcmp(absolute, "/") == 0);
    if (s->sources.count + s->file_count > 1 && !directory)
        return plan_fail(p, EINVAL, "with several sources the destination is a directory and ends with /");
    if (!absolute ||
        asprintf(&s->destination, "%s%s", absolute, directory && strcmp(absolute, "/") != 0 ? "/" : "") < 0)
        return plan_memory(p);
    return 0;
}

/* Where the server's file has gone, for an ENTRYPOINT that names it. */
static int remember_server(struct planner *p, const struct step *s)
{
    char *path;
    bool directory = s->destination[strlen(s->destination) - 1] == '/';
    bool is_server = s->file_count == 1 && strcmp(s->files[0].text, server_script) == 0;
    if (!is_server)
        return 0;
    if (asprintf(&path, "%s%s", s->destination, directory ? "sandbox" : "") < 0 ||
        words_take(&p->servers, path) < 0)
        return plan_memory(p);
    return 0;
}

int plan_copy_digest(struct planner *p, const struct step *s, struct sha256 *d)
{
    digest_field(d, s->unpack ? "add" : "copy");
    digest_field(d, s->destination);
    digest_field(d, s->owner);
    digest_number(d, (uint64_t)(int64_t)s->mode);
    plan_digest_words(d, &s->sources);
    digest_number(d, s->file_count);
    for (size_t i = 0; i < s->file_count; i++) {
        digest_field(d, s->files[i].name);
        digest_field(d, s->files[i].text);
    }
    if (s->from_stage >= 0)
        digest_field(d, p->plan->stages[s->from_stage].files_key);
    if (s->from_image)
        digest_field(d, s->from_image->identity);
    int r = context_digest(p->in->context, &s->set, d, p->reterr);
    return r < 0 ? error_prefix(p->reterr, "line %u", p->at->line) : 0;
}

static int copy_key(struct planner *p, const struct step *s)
{
    struct sha256 *d = plan_begin_key(p, "copy");
    if (!d)
        return -ENOMEM;
    int r = plan_copy_digest(p, s, d);
    if (r < 0)
        sha256_free(d);
    else
        plan_end_key(p, d);
    return r;
}

int plan_copy_select(struct planner *p, struct step *s)
{
    if (s->sources.count == 0 || s->from_stage >= 0 || s->from_image)
        return 0;
    if (!p->in->context)
        return plan_fail(p, EINVAL, "there is no build context to copy from");
    int r = context_select(p->in->context, &s->sources, &s->set, p->reterr);
    return r < 0 ? error_prefix(p->reterr, "line %u", p->at->line) : 0;
}

int plan_copy(struct planner *p)
{
    const struct words *w = &p->at->words;
    int r = check_flags(p);
    if (r < 0)
        return r;
    if (w->count < 2)
        return plan_fail(p, EINVAL, "%s needs a source and a destination", instruction_name(p->at->kind));
    struct step *s = plan_add_step(p, STEP_COPY);
    if (!s)
        return -ENOMEM;
    s->unpack = p->at->kind == DOCKERFILE_ADD;
    r = read_owner(p, s);
    if (r == 0)
        r = read_from(p, s);
    for (size_t i = 0; r == 0 && i + 1 < w->count; i++)
        r = take_source(p, s, w->items[i]);
    if (r == 0)
        r = read_destination(p, s, w->items[w->count - 1]);
    if (r == 0)
        r = remember_server(p, s);
    if (r == 0)
        r = plan_copy_select(p, s);
    return r == 0 ? copy_key(p, s) : r;
}
