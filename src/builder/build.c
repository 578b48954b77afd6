/* SPDX-License-Identifier: Apache-2.0 */
/* build.c: carries a plan out.
 *
 * Theory of operation
 * The result of a step may be kept as an image named BUILD_CACHE_NAME:<key>. It is, behind each RUN (what
 * makes builds slow) and behind a stage's last step; a COPY in front of a RUN is cheap to do again. A stage
 * goes on from its last result that is there, in a sandbox made from it, and after each result in a fresh
 * sandbox on top: so every layer has only what its steps changed, and no process outlives its RUN. A stage
 * whose files nobody needs any more, because what copies from it is cached, is not built at all. The finished
 * image is the target's files with its configuration, under BUILD_CACHE_NAME:<digest of both>, too: a build
 * in which nothing has changed is one question and the tags. */
#include "builder/build.h"

#include "base/clock.h"
#include "base/json.h"
#include "builder/base_images.h"
#include "builder/build_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/utsname.h>

enum { CACHE_MAX = 512, EXIT_STEP = 1, EXIT_OTHER = 125 };

static void cache_name(const char *key, char out[IMAGE_TEXT_MAX])
{
    (void)snprintf(out, IMAGE_TEXT_MAX, BUILD_CACHE_NAME ":%s", key);
}

/* Whether the result of a step is kept. */
static bool is_kept(const struct stage *s, size_t step)
{
    return s->steps[step].kind == STEP_RUN || step + 1 == s->count;
}

/* ------------------------------------------------------------------ what must be done */

/* Looks for the last result of a stage that is there. */
static int find_resume(struct build *b, size_t i)
{
    const struct stage *s = &b->plan->stages[i];
    struct stage_state *state = &b->stages[i];
    state->resume = 0;
    for (size_t k = s->count; k-- > 0 && !b->options->no_cache;) {
        char name[IMAGE_TEXT_MAX];
        if (!is_kept(s, k))
            continue;
        cache_name(s->steps[k].key, name);
        int r = remote_image(b->client, name, NULL, b->reterr);
        if (r < 0)
            return r;
        if (r > 0) {
            state->resume = k + 1;
            memcpy(state->image, name, sizeof name);
            break;
        }
    }
    return 0;
}

/* The stages that a step copies from. */
static void need_sources(struct build *b, const struct step *s)
{
    if (s->from_stage >= 0)
        b->stages[s->from_stage].needed = true;
    for (size_t i = 0; i < s->mount_count; i++)
        if (s->mounts[i].copy && s->mounts[i].copy->from_stage >= 0)
            b->stages[s->mounts[i].copy->from_stage].needed = true;
}

/* From the target back: stages that a step which must run needs. */
static int find_needed(struct build *b)
{
    b->stages[b->plan->target].needed = true;
    for (size_t i = b->plan->target + 1; i-- > 0;) {
        const struct stage *s = &b->plan->stages[i];
        if (!b->stages[i].needed)
            continue;
        int r = find_resume(b, i);
        if (r < 0)
            return r;
        if (b->stages[i].resume == 0 && s->parent >= 0)
            b->stages[s->parent].needed = true;
        for (size_t k = b->stages[i].resume; k < s->count; k++)
            need_sources(b, &s->steps[k]);
    }
    return 0;
}

/* ------------------------------------------------------------------ doing it */

/* Gives up nothing that is not saved. */
static int keep_result(struct build *b, struct stage_state *state, const struct step *s)
{
    char name[IMAGE_TEXT_MAX], id[IMAGE_TEXT_MAX];
    cache_name(s->key, name);
    int r = remote_save(b->client, b->box.id, NULL, name, NULL, id, b->reterr);
    if (r < 0)
        return r;
    memcpy(state->image, name, sizeof name);
    box_close(b, &b->box);
    return 0;
}

static int run_step(struct build *b, size_t i, size_t k)
{
    const struct stage *s = &b->plan->stages[i];
    const struct step *step = &s->steps[k];
    struct stage_state *state = &b->stages[i];
    int exit_code = 0, r = 0;
    int64_t began = clock_mono_ms();
    report_step(&b->report, s->name, k + 2, s->count + 1, step->text, false);
    if (!b->box.id[0])
        r = box_open(b, &b->box, state->image);
    if (r == 0)
        r = build_run_step(b, step, &exit_code);
    if (r == 0 && exit_code != 0)
        return error_set(b->reterr, ECHILD, "line %u: '%.200s' failed with exit code %d", step->line,
                         step->text, exit_code);
    if (r < 0)
        return error_prefix(b->reterr, "line %u", step->line);
    if (is_kept(s, k))
        r = keep_result(b, state, step);
    int64_t took = clock_mono_ms() - began;
    if (r == 0 && took >= 1000)
        report_line(&b->report, "    done in %.1f s", (double)took / 1000);
    return r;
}

/* What a stage's first step begins with. What steps put into /tmp must be there for the next one: so a plain
 * image gets an image of the store on top, whose sandboxes have it on their disk. */
static int first_image(struct build *b, size_t i)
{
    const struct stage *s = &b->plan->stages[i];
    char *image = b->stages[i].image, id[IMAGE_TEXT_MAX];
    (void)snprintf(image, IMAGE_TEXT_MAX, "%s", s->parent >= 0 ? b->stages[s->parent].image : s->base.name);
    if (s->parent >= 0 || !s->base.plain || s->count == 0)
        return 0;
    struct sha256 *d;
    char key[DIGEST_HEX + 1], name[IMAGE_TEXT_MAX];
    int r = sha256_new(&d, b->reterr);
    if (r < 0)
        return r;
    digest_field(d, s->base.name);
    digest_field(d, s->base.identity);
    digest_end(d, key);
    cache_name(key, name);
    r = remote_image(b->client, name, NULL, b->reterr);
    if (r == 0)
        r = remote_save(b->client, NULL, image, name, NULL, id, b->reterr);
    if (r < 0)
        return r;
    memcpy(image, name, sizeof name);
    return 0;
}

static int run_stage(struct build *b, size_t i)
{
    const struct stage *s = &b->plan->stages[i];
    struct stage_state *state = &b->stages[i];
    int r = state->resume == 0 ? first_image(b, i) : 0;
    report_step(&b->report, s->name, 1, s->count + 1, s->text, false);
    for (size_t k = 0; r == 0 && k < s->count; k++) {
        if (k < state->resume)
            report_step(&b->report, s->name, k + 2, s->count + 1, s->steps[k].text, true);
        else
            r = run_step(b, i, k);
    }
    return r;
}

/* ------------------------------------------------------------------ the image */

static int image_name(struct build *b, char out[IMAGE_TEXT_MAX])
{
    const struct stage *s = &b->plan->stages[b->plan->target];
    const struct words *lists[] = {&s->config.env, &s->config.entrypoint, &s->config.cmd, &s->config.ports,
                                   &s->config.labels};
    char key[DIGEST_HEX + 1];
    struct sha256 *d;
    int r = sha256_new(&d, b->reterr);
    if (r < 0)
        return r;
    digest_field(d, "image");
    digest_field(d, s->files_key);
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        digest_number(d, lists[i]->count);
        for (size_t k = 0; k < lists[i]->count; k++)
            digest_field(d, lists[i]->items[k]);
    }
    digest_field(d, s->config.workdir);
    digest_field(d, s->config.user);
    digest_end(d, key);
    cache_name(key, out);
    return 0;
}

/* 1: the finished image is there from an earlier build. */
static int find_finished(struct build *b, const char *name)
{
    const struct stage *s = &b->plan->stages[b->plan->target];
    if (b->options->no_cache)
        return 0;
    int r = remote_image(b->client, name, NULL, b->reterr);
    if (r <= 0)
        return r;
    report_step(&b->report, s->name, 1, s->count + 1, s->text, false);
    for (size_t k = 0; k < s->count; k++)
        report_step(&b->report, s->name, k + 2, s->count + 1, s->steps[k].text, true);
    return 1;
}

static int finish(struct build *b, const char *name)
{
    char id[IMAGE_TEXT_MAX];
    const struct stage *s = &b->plan->stages[b->plan->target];
    return remote_save(b->client, NULL, b->stages[b->plan->target].image, name, &s->config, id, b->reterr);
}

static int make_image(struct build *b, const char *name)
{
    int r = find_finished(b, name);
    if (r != 0)
        return MIN(r, 0);
    r = find_needed(b);
    if (r == 0)
        remote_sweep(b->client);
    for (size_t i = 0; r == 0 && i <= b->plan->target; i++)
        if (b->stages[i].needed)
            r = run_stage(b, i);
    box_close(b, &b->box);
    box_close(b, &b->source);
    if (r == 0)
        r = finish(b, name);
    if (r == 0)
        remote_forget(b->client, BUILD_CACHE_NAME ":", name, CACHE_MAX);
    return r;
}

/* Tags it and tells its id. */
static int publish(struct build *b, const char *name, char ret_id[BUILD_ID_SIZE])
{
    auto_free char *json = NULL;
    auto_json struct json_doc *doc = NULL;
    const struct words *tags = &b->options->tags;
    int r = 0;
    for (size_t i = 0; r == 0 && i < tags->count; i++)
        r = remote_tag(b->client, name, tags->items[i], b->reterr);
    if (r == 0)
        r = remote_image(b->client, name, &json, b->reterr);
    if (r <= 0)
        return r < 0 ? r : error_set(b->reterr, ENOENT, "the image was removed while it was built");
    const char *id = json_parse(json, strlen(json), 0, &doc, NULL) < 0
                         ? NULL
                         : json_string(json_get(json_root(doc), "id"), NULL);
    (void)snprintf(ret_id, BUILD_ID_SIZE, "%s", id ? id : name);
    report_line(&b->report, "image %.12s%s%s in %.1f s", ret_id, tags->count ? " " : "",
                tags->count ? tags->items[0] : "", (double)(clock_mono_ms() - b->report.started_ms) / 1000);
    return 0;
}

static int carry_out(struct build *b, char ret_id[BUILD_ID_SIZE])
{
    char name[IMAGE_TEXT_MAX];
    for (size_t i = 0; i < b->plan->notes.count; i++)
        report_note(&b->report, b->plan->notes.items[i]);
    int r = image_name(b, name);
    if (r == 0)
        r = interrupt_new(b->options, &b->interrupt, b->reterr);
    if (r == 0)
        r = make_image(b, name);
    interrupt_free(b->interrupt);
    return r == 0 ? publish(b, name, ret_id) : r;
}

static const char *architecture(void)
{
    static struct utsname u;
    if (uname(&u) < 0)
        return "amd64";
    return strcmp(u.machine, "aarch64") == 0  ? "arm64"
           : strcmp(u.machine, "x86_64") == 0 ? "amd64"
                                              : u.machine;
}

int build_run(struct silica_client *c, const struct build_options *o, char ret_id[BUILD_ID_SIZE],
              struct error *reterr)
{
    struct dockerfile d = {0};
    struct plan plan = {0};
    struct context *context = NULL;
    struct build b = {.client = c,
                      .options = o,
                      .plan = &plan,
                      .network = o->network,
                      .report = {.out = o->out, .started_ms = clock_mono_ms()},
                      .reterr = reterr};
    int r = dockerfile_parse(o->dockerfile, o->dockerfile_bytes, &d, reterr);
    if (r == 0)
        r = context_open(o->context, o->dockerfile_path, &context, reterr);
    struct plan_input in = {.dockerfile = &d,
                            .context = context,
                            .args = &o->args,
                            .labels = &o->labels,
                            .target = o->target,
                            .architecture = architecture(),
                            .find_image = base_images_find,
                            .user = c};
    if (r == 0)
        r = plan_make(&in, &plan, reterr);
    b.context = context;
    if (r == 0 && !(b.stages = calloc(plan.count, sizeof *b.stages)))
        r = error_set(reterr, ENOMEM, "out of memory");
    if (r == 0)
        r = carry_out(&b, ret_id);
    free(b.stages);
    plan_done(&plan);
    context_free(context);
    dockerfile_done(&d);
    return r == 0 ? 0 : r == -ECHILD ? EXIT_STEP : EXIT_OTHER;
}
