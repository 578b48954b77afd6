/* SPDX-License-Identifier: Apache-2.0 */
/* plan_steps.c: RUN and WORKDIR, and what all steps have in common: their keys. */
#include "base/buf.h"
#include "builder/plan_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct step *plan_add_step(struct planner *p, enum step_kind kind)
{
    struct stage *s = p->stage;
    struct step *steps = realloc(s->steps, (s->count + 1) * sizeof *steps); /* bounded by the Dockerfile */
    if (!steps) {
        (void)plan_memory(p);
        return NULL;
    }
    s->steps = steps;
    steps[s->count] =
        (struct step){.kind = kind, .line = p->at->line, .text = p->at->text, .mode = -1, .from_stage = -1};
    return &steps[s->count++];
}

struct sha256 *plan_begin_key(struct planner *p, const char *what)
{
    struct sha256 *d;
    if (sha256_new(&d, p->reterr) < 0)
        return NULL;
    digest_field(d, what);
    digest_field(d, p->stage->files_key);
    return d;
}

void plan_end_key(struct planner *p, struct sha256 *d)
{
    struct stage *s = p->stage;
    digest_end(d, s->files_key);
    memcpy(s->steps[s->count - 1].key, s->files_key, sizeof s->files_key);
}

void plan_digest_words(struct sha256 *d, const struct words *w)
{
    digest_number(d, w->count);
    for (size_t i = 0; i < w->count; i++)
        digest_field(d, w->items[i]);
}

char *plan_absolute(const struct planner *p, const char *path)
{
    const char *dir = p->stage->config.workdir ? p->stage->config.workdir : "";
    auto_free char *joined = NULL;
    if (asprintf(&joined, "%s/%s", path[0] == '/' ? "" : dir, path) < 0)
        joined = NULL;
    auto_free char *clean = joined ? path_clean(joined) : NULL;
    char *out = NULL;
    return clean && asprintf(&out, "/%s", clean) >= 0 ? out : NULL;
}

static int copy_user(struct planner *p, struct step *s)
{
    const struct image_config *c = &p->stage->config;
    s->user = c->user ? strdup(c->user) : NULL;
    s->workdir = strdup(c->workdir ? c->workdir : "/");
    return !s->workdir || (c->user && !s->user) ? plan_memory(p) : 0;
}

static int check_flags(struct planner *p)
{
    for (size_t i = 0; i < p->at->flags.count; i++) {
        const char *flag = p->at->flags.items[i];
        if (strncmp(flag, "mount=", 6) == 0)
            continue;
        if (strncmp(flag, "network=", 8) != 0 && strncmp(flag, "security=", 9) != 0)
            return plan_fail(p, EINVAL, "RUN has no flag --%s", flag);
        if (plan_note(p, "--%s is not acted on", flag) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* The text of the shell form, with the heredocs behind it where the shell reads them. */
static int shell_text(struct planner *p, char **ret)
{
    const struct instruction *at = p->at;
    struct buf text = BUF_INIT(2 * DOCKERFILE_MAX);
    bool whole = at->heredoc_count == 1 && strcmp(at->rest, at->heredocs[0].word) == 0;
    int r = buf_puts(&text, whole ? at->heredocs[0].text : at->rest);
    for (size_t i = 0; r == 0 && !whole && i < at->heredoc_count; i++)
        r = buf_printf(&text, "\n%s%s", at->heredocs[i].text, at->heredocs[i].name);
    *ret = r == 0 && buf_cstr(&text) ? strdup(buf_data(&text)) : NULL;
    buf_done(&text);
    return *ret ? 0 : plan_memory(p);
}

static int run_words(struct planner *p, struct step *s)
{
    const struct words *shell = &p->stage->config.shell;
    if (p->at->json)
        return words_copy(&s->argv, &p->at->words) < 0 ? plan_memory(p) : 0;
    char *text;
    int r = shell_text(p, &text);
    if (r < 0)
        return r;
    if (p->at->heredoc_count && strncmp(text, "#!", 2) == 0) {
        s->script = text;
        return 0;
    }
    r = shell->count ? words_copy(&s->argv, shell) : words_add(&s->argv, "/bin/sh", 7);
    if (r == 0 && !shell->count)
        r = words_add(&s->argv, "-c", 2);
    if (r < 0) {
        free(text);
        return plan_memory(p);
    }
    return words_take(&s->argv, text) < 0 ? plan_memory(p) : 0;
}

/* ENV, then ARGs of other names. */
static int run_environment(struct planner *p, struct step *s)
{
    const struct words *args = plan_args(p);
    int r = words_copy(&s->env, &p->stage->config.env);
    for (size_t i = 0; r == 0 && i < args->count; i++) {
        size_t n = strcspn(args->items[i], "=");
        if (!pairs_get(&s->env, args->items[i], n))
            r = words_add(&s->env, args->items[i], strlen(args->items[i]));
    }
    if (r == 0 && !pairs_get(&s->env, "PATH", 4))
        r = pairs_set(&s->env, "PATH", 4, DEFAULT_PATH);
    return r < 0 ? plan_memory(p) : 0;
}

/* Proxies may be given without an ARG; they are no part of the key. */
static int run_proxies(struct planner *p, struct step *s)
{
    for (size_t i = 0; i < p->in->args->count; i++) {
        const char *pair = p->in->args->items[i];
        size_t n = strcspn(pair, "=");
        if (n > 6 && strncasecmp(pair + n - 6, "_proxy", 6) == 0 && !pairs_get(&s->env, pair, n) &&
            words_add(&s->env, pair, strlen(pair)) < 0)
            return plan_memory(p);
    }
    return 0;
}

int plan_run(struct planner *p)
{
    int r = check_flags(p);
    if (r < 0)
        return r;
    struct step *s = plan_add_step(p, STEP_RUN);
    if (!s)
        return -ENOMEM;
    if ((r = run_words(p, s)) < 0 || (r = run_environment(p, s)) < 0 || (r = copy_user(p, s)) < 0 ||
        (r = plan_mounts(p, s)) < 0)
        return r;
    if (!s->script && s->argv.count == 0)
        return plan_fail(p, EINVAL, "RUN [] runs nothing");
    struct sha256 *d = plan_begin_key(p, "run");
    if (!d)
        return -ENOMEM;
    plan_digest_words(d, &s->argv);
    digest_field(d, s->script);
    plan_digest_words(d, &s->env);
    digest_field(d, s->workdir);
    digest_field(d, s->user);
    r = plan_mounts_digest(p, s, d);
    if (r < 0) {
        sha256_free(d);
        return r;
    }
    plan_end_key(p, d);
    return run_proxies(p, s);
}

int plan_workdir(struct planner *p)
{
    auto_free char *path = NULL;
    struct image_config *c = &p->stage->config;
    int r = plan_expand(p, p->at->rest, &path);
    if (r < 0)
        return r;
    char *absolute = plan_absolute(p, path);
    if (!absolute)
        return plan_memory(p);
    bool there = strcmp(absolute, "/") == 0 || (c->workdir && strcmp(absolute, c->workdir) == 0);
    free(c->workdir);
    c->workdir = absolute;
    if (there)
        return 0;
    struct step *s = plan_add_step(p, STEP_DIRECTORY);
    if (!s || (r = copy_user(p, s)) < 0)
        return s ? r : -ENOMEM;
    struct sha256 *d = plan_begin_key(p, "directory");
    if (!d)
        return -ENOMEM;
    digest_field(d, s->workdir);
    digest_field(d, s->user);
    plan_end_key(p, d);
    return 0;
}
