/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: stages and the scopes of variables; the instructions themselves are in plan_settings.c,
 * plan_steps.c and plan_copy.c.
 *
 * First all FROM lines are read, which only need the ARGs in front of them; then it is known which stages the
 * target needs, and only those are read: what is wrong with the others does not matter. */
#include "builder/plan_internal.h"

#include "base/image_alias.h"
#include "builder/expand.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Where a stage's instructions are. */
struct span {
    size_t first, end;
    char *reference; /* what FROM names, NULL until read */
    bool needed;
};

int plan_fail(struct planner *p, int errnum, const char *fmt, ...)
{
    char text[280];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return error_set(p->reterr, errnum, "line %u: %s", p->at->line, text);
}

int plan_memory(struct planner *p)
{
    return error_set(p->reterr, ENOMEM, "out of memory");
}

int plan_note(struct planner *p, const char *fmt, ...)
{
    char *text, *whole;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return plan_memory(p);
    n = asprintf(&whole, "line %u: %s", p->at->line, text);
    free(text);
    return n < 0 || words_take(&p->plan->notes, whole) < 0 ? plan_memory(p) : 0;
}

/* ------------------------------------------------------------------ variables */

/* Variables that every build has: in FROM lines always, in a stage when an ARG asks for them. */
static const char *platform_variable(const char *name, size_t n, const char *architecture)
{
    static char platform[64];
    (void)snprintf(platform, sizeof platform, "linux/%s", architecture);
    const struct {
        const char *name, *value;
    } rows[] = {{"TARGETPLATFORM", platform}, {"BUILDPLATFORM", platform},  {"TARGETOS", "linux"},
                {"BUILDOS", "linux"},         {"TARGETARCH", architecture}, {"BUILDARCH", architecture},
                {"TARGETVARIANT", ""},        {"BUILDVARIANT", ""},         {"TARGETSTAGE", "default"}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (strlen(rows[i].name) == n && strncmp(rows[i].name, name, n) == 0)
            return rows[i].value;
    return NULL;
}

static const char *lookup_global(const char *name, size_t n, void *user)
{
    struct planner *p = user;
    const char *value = pairs_get(&p->global, name, n);
    return value ? value : platform_variable(name, n, p->in->architecture);
}

struct words *plan_args(struct planner *p)
{
    return &p->args[p->stage - p->plan->stages];
}

const char *plan_lookup(const char *name, size_t n, void *user)
{
    struct planner *p = user;
    const char *value = pairs_get(&p->stage->config.env, name, n); /* ENV wins over ARG */
    return value ? value : pairs_get(plan_args(p), name, n);
}

static int expand_with(struct planner *p, const char *word, expand_lookup with, char **ret)
{
    int r = expand_word(word, p->in->dockerfile->escape, with, p, ret, p->reterr);
    return r < 0 ? error_prefix(p->reterr, "line %u", p->at->line) : 0;
}

int plan_expand(struct planner *p, const char *word, char **ret)
{
    return expand_with(p, word, plan_lookup, ret);
}

/* One "NAME" or "NAME=DEFAULT" of an ARG, for the stage or (stage NULL) for the FROM lines. */
static int read_arg(struct planner *p, const char *word, struct words *to)
{
    size_t n = strcspn(word, "=");
    auto_free char *value = NULL;
    const char *given = pairs_get(p->in->args, word, n);
    if (n == 0)
        return plan_fail(p, EINVAL, "'%s' is not NAME or NAME=DEFAULT", word);
    if (given) {
        if (words_add(&p->used, word, n) < 0)
            return plan_memory(p);
    } else if (word[n]) {
        int r = expand_with(p, word + n + 1, p->stage ? plan_lookup : lookup_global, &value);
        if (r < 0)
            return r;
        given = value;
    } else if (p->stage) {
        given = lookup_global(word, n, p);
    }
    return given && pairs_set(to, word, n, given) < 0 ? plan_memory(p) : 0;
}

static int read_args(struct planner *p, struct words *to)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < p->at->words.count; i++)
        r = read_arg(p, p->at->words.items[i], to);
    return r;
}

/* ------------------------------------------------------------------ stages */

int plan_find_stage(const struct planner *p, const char *name)
{
    size_t before = p->stage ? (size_t)(p->stage - p->plan->stages) : p->plan->count;
    for (size_t i = before; i-- > 0;) /* the nearest of that name */
        if (p->plan->stages[i].name && strcasecmp(p->plan->stages[i].name, name) == 0)
            return (int)i;
    if (*name && strspn(name, "0123456789") == strlen(name) && strlen(name) < 4) {
        unsigned long i = strtoul(name, NULL, 10);
        if (i < before)
            return (int)i;
    }
    return -1;
}

static int read_from(struct planner *p, struct span *span)
{
    const struct instruction *at = p->at;
    const struct words *w = &at->words;
    if (w->count != 1 && !(w->count == 3 && strcasecmp(w->items[1], "as") == 0))
        return plan_fail(p, EINVAL, "write FROM IMAGE or FROM IMAGE AS NAME");
    if (p->plan->count == PLAN_STAGES_MAX)
        return plan_fail(p, E2BIG, "more than %d stages", PLAN_STAGES_MAX);
    int r = expand_with(p, w->items[0], lookup_global, &span->reference);
    if (r < 0)
        return r;
    if (!*span->reference)
        return plan_fail(p, EINVAL,
                         "'%s' is empty: give it a value with ARG in front of FROM, or with --build-arg",
                         w->items[0]);
    struct stage *s = &p->plan->stages[p->plan->count];
    *s = (struct stage){.line = at->line, .text = at->text};
    s->parent = plan_find_stage(p, span->reference);
    if (s->parent >= 0 && !p->plan->stages[s->parent].name)
        s->parent = -1; /* FROM takes no numbers */
    if (w->count == 3 && !(s->name = strdup(w->items[2])))
        return plan_memory(p);
    p->plan->count++;
    return 0;
}

/* All FROM lines, and the ARGs in front of them. */
static int read_stages(struct planner *p, struct span *spans)
{
    const struct dockerfile *d = p->in->dockerfile;
    int r = 0;
    for (size_t i = 0; r == 0 && i < d->count; i++) {
        p->at = &d->items[i];
        if (p->at->kind == DOCKERFILE_FROM) {
            spans[p->plan->count < PLAN_STAGES_MAX ? p->plan->count : 0].first = i + 1;
            r = read_from(p, &spans[p->plan->count < PLAN_STAGES_MAX ? p->plan->count : 0]);
        } else if (p->plan->count == 0 && p->at->kind != DOCKERFILE_ARG) {
            r = plan_fail(p, EINVAL, "%s comes before the first FROM", instruction_name(p->at->kind));
        } else if (p->plan->count == 0) {
            r = read_args(p, &p->global);
        }
        if (r == 0 && p->plan->count > 0)
            spans[p->plan->count - 1].end = i + 1;
    }
    if (r == 0 && p->plan->count == 0)
        r = error_set(p->reterr, EINVAL, "the Dockerfile has no FROM");
    return r;
}

static int find_target(struct planner *p)
{
    p->plan->target = p->plan->count - 1;
    if (!p->in->target)
        return 0;
    int i = plan_find_stage(p, p->in->target);
    if (i < 0)
        return error_set(p->reterr, ENOENT, "no stage is called '%s'", p->in->target);
    p->plan->target = (size_t)i;
    return 0;
}

static void need_stage(const struct planner *p, const char *name, size_t n, struct span *spans)
{
    char text[128];
    if (n >= sizeof text)
        return;
    memcpy(text, name, n);
    text[n] = '\0';
    int found = plan_find_stage(p, text);
    if (found >= 0)
        spans[found].needed = true;
    for (size_t i = 0; strchr(text, '$') && i < (size_t)(p->stage - p->plan->stages); i++)
        spans[i].needed = true; /* it may be any of them */
}

/* COPY --from=X, RUN --mount=...,from=X */
static void need_flags(const struct planner *p, const struct instruction *at, struct span *spans)
{
    for (size_t i = 0; i < at->flags.count; i++) {
        const char *f = at->flags.items[i], *in_mount = strstr(f, ",from=");
        if (strncmp(f, "from=", 5) == 0)
            need_stage(p, f + 5, strlen(f + 5), spans);
        else if (strncmp(f, "mount=from=", 11) == 0)
            need_stage(p, f + 11, strcspn(f + 11, ","), spans);
        else if (strncmp(f, "mount=", 6) == 0 && in_mount)
            need_stage(p, in_mount + 6, strcspn(in_mount + 6, ","), spans);
    }
}

/* Stages that the target stands on or copies from. */
static void find_needed(struct planner *p, struct span *spans)
{
    spans[p->plan->target].needed = true;
    for (size_t i = p->plan->target + 1; i-- > 0;) {
        if (!spans[i].needed)
            continue;
        p->stage = &p->plan->stages[i];
        if (p->stage->parent >= 0)
            spans[p->stage->parent].needed = true;
        for (size_t k = spans[i].first; k < spans[i].end; k++)
            need_flags(p, &p->in->dockerfile->items[k], spans);
    }
    p->stage = NULL;
}

static int note_ignored(struct planner *p, const char *why)
{
    return plan_note(p, "%s is not acted on%s", instruction_name(p->at->kind), why);
}

static int read_instruction(struct planner *p)
{
    switch (p->at->kind) {
    case DOCKERFILE_ADD:
    case DOCKERFILE_COPY:
        return plan_copy(p);
    case DOCKERFILE_ARG:
        return read_args(p, plan_args(p));
    case DOCKERFILE_CMD:
        p->cmd_set = true;
        return plan_command(p, &p->stage->config.cmd);
    case DOCKERFILE_ENTRYPOINT:
        if (!p->cmd_set) /* arguments of the base's program are none of ours */
            words_done(&p->stage->config.cmd);
        return plan_command(p, &p->stage->config.entrypoint);
    case DOCKERFILE_ENV:
        return plan_env(p);
    case DOCKERFILE_EXPOSE:
        return plan_expose(p);
    case DOCKERFILE_LABEL:
        return plan_label(p);
    case DOCKERFILE_RUN:
        return plan_run(p);
    case DOCKERFILE_SHELL:
        return plan_shell(p);
    case DOCKERFILE_USER:
        return plan_user(p);
    case DOCKERFILE_WORKDIR:
        return plan_workdir(p);
    case DOCKERFILE_VOLUME:
        return note_ignored(p, ": files there stay in the sandbox; see 'silica volume'");
    case DOCKERFILE_STOPSIGNAL:
        return note_ignored(p, ": sandboxes are ended with SIGTERM");
    case DOCKERFILE_HEALTHCHECK:
    case DOCKERFILE_MAINTAINER:
    case DOCKERFILE_ONBUILD:
        return note_ignored(p, "");
    case DOCKERFILE_FROM: /* not inside a span */
        break;
    }
    return 0;
}

/* What the stage begins with. */
static int begin_stage(struct planner *p, const char *reference)
{
    struct stage *s = p->stage;
    p->cmd_set = false;
    words_done(&p->servers);
    const char *platform = instruction_flag(p->at, "platform");
    if (platform && !strchr(platform, '$') && !strstr(platform, p->in->architecture) &&
        plan_note(p, "--platform=%s: images are for this machine, linux/%s", platform, p->in->architecture) <
            0)
        return -ENOMEM;
    if (s->parent >= 0) {
        const struct stage *parent = &p->plan->stages[s->parent];
        memcpy(s->files_key, parent->files_key, sizeof s->files_key);
        /* ARGs of the parent stay visible */
        return words_copy(plan_args(p), &p->args[s->parent]) < 0 ||
                       image_config_copy(&s->config, &parent->config) < 0
                   ? plan_memory(p)
                   : 0;
    }
    int r = p->in->find_image(reference, &s->base, p->in->user, p->reterr);
    if (r < 0)
        return error_prefix(p->reterr, "line %u", p->at->line);
    if (s->base.note && plan_note(p, "%s", s->base.note) < 0)
        return -ENOMEM;
    if (image_config_copy(&s->config, &s->base.config) < 0)
        return plan_memory(p);
    struct sha256 *d;
    r = sha256_new(&d, p->reterr);
    if (r < 0)
        return r;
    digest_field(d, "silica build 1");
    digest_field(d, s->base.name);
    digest_field(d, s->base.identity);
    digest_end(d, s->files_key);
    return 0;
}

/* An ENTRYPOINT that is the server's file is said in the one way everybody knows. */
static int end_stage(struct planner *p)
{
    struct words *entry = &p->stage->config.entrypoint;
    for (size_t i = 0; entry->count > 0 && i < p->servers.count; i++) {
        if (strcmp(entry->items[0], p->servers.items[i]) != 0)
            continue;
        char *path = strdup(IMAGE_SERVER_PATH);
        if (!path)
            return plan_memory(p);
        free(entry->items[0]);
        entry->items[0] = path;
    }
    return 0;
}

static int read_stage(struct planner *p, const struct span *span)
{
    p->at = &p->in->dockerfile->items[span->first - 1];
    int r = begin_stage(p, span->reference);
    for (size_t i = span->first; r == 0 && i < span->end; i++) {
        p->at = &p->in->dockerfile->items[i];
        r = read_instruction(p);
    }
    return r == 0 ? end_stage(p) : r;
}

static int note_unused(struct planner *p)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < p->in->args->count; i++) {
        const char *pair = p->in->args->items[i];
        size_t n = strcspn(pair, "=");
        bool used = n > 6 && strncasecmp(pair + n - 6, "_proxy", 6) == 0; /* known without ARG */
        for (size_t k = 0; k < p->used.count; k++)
            used = used || (strlen(p->used.items[k]) == n && strncmp(p->used.items[k], pair, n) == 0);
        char *text = NULL;
        if (!used && (asprintf(&text, "no ARG takes the build argument %.*s", (int)n, pair) < 0 ||
                      words_take(&p->plan->notes, text) < 0))
            r = plan_memory(p);
    }
    return r;
}

static int add_labels(struct planner *p)
{
    struct words *labels = &p->plan->stages[p->plan->target].config.labels;
    for (size_t i = 0; p->in->labels && i < p->in->labels->count; i++) {
        const char *pair = p->in->labels->items[i];
        size_t n = strcspn(pair, "=");
        if (pairs_set(labels, pair, n, pair[n] ? pair + n + 1 : "") < 0)
            return plan_memory(p);
    }
    return 0;
}

int plan_make(const struct plan_input *in, struct plan *ret, struct error *reterr)
{
    struct plan plan = {.stages = calloc(PLAN_STAGES_MAX, sizeof *plan.stages)};
    struct planner p = {
        .in = in, .plan = &plan, .args = calloc(PLAN_STAGES_MAX, sizeof *p.args), .reterr = reterr};
    auto_free struct span *spans = calloc(PLAN_STAGES_MAX, sizeof *spans);
    int r = plan.stages && p.args && spans ? 0 : plan_memory(&p);
    if (r == 0)
        r = read_stages(&p, spans);
    if (r == 0)
        r = find_target(&p);
    if (r == 0)
        find_needed(&p, spans);
    for (size_t i = 0; r == 0 && i <= plan.target; i++) {
        p.stage = &plan.stages[i];
        if (spans[i].needed)
            r = read_stage(&p, &spans[i]);
    }
    if (r == 0)
        r = note_unused(&p);
    if (r == 0)
        r = add_labels(&p);
    for (size_t i = 0; i < PLAN_STAGES_MAX; i++) {
        if (p.args)
            words_done(&p.args[i]);
        if (spans)
            free(spans[i].reference);
    }
    free(p.args);
    words_done(&p.global);
    words_done(&p.used);
    words_done(&p.servers);
    if (r < 0) {
        plan_done(&plan);
        return r;
    }
    *ret = plan;
    return 0;
}
