/* SPDX-License-Identifier: Apache-2.0 */
/* config.c: the parts of a plan that only hold memory. */
#include "builder/plan.h"

#include <errno.h>
#include <string.h>

static int copy_text(char **to, const char *from)
{
    *to = from ? strdup(from) : NULL;
    return from && !*to ? -ENOMEM : 0;
}

int image_config_copy(struct image_config *to, const struct image_config *from)
{
    if (words_copy(&to->env, &from->env) < 0 || words_copy(&to->entrypoint, &from->entrypoint) < 0 ||
        words_copy(&to->cmd, &from->cmd) < 0 || words_copy(&to->shell, &from->shell) < 0 ||
        words_copy(&to->ports, &from->ports) < 0 || words_copy(&to->labels, &from->labels) < 0 ||
        copy_text(&to->workdir, from->workdir) < 0 || copy_text(&to->user, from->user) < 0)
        return -ENOMEM;
    return 0;
}

void image_config_done(struct image_config *c)
{
    words_done(&c->env);
    words_done(&c->entrypoint);
    words_done(&c->cmd);
    words_done(&c->shell);
    words_done(&c->ports);
    words_done(&c->labels);
    free(c->workdir);
    free(c->user);
    *c = (struct image_config){0};
}

void base_image_done(struct base_image *b)
{
    free(b->name);
    free(b->identity);
    free(b->note);
    image_config_done(&b->config);
    *b = (struct base_image){0};
}

/* What a mount copies has no mounts of its own. */
static void step_done(struct step *s)
{
    for (size_t i = 0; i < s->mount_count; i++) {
        if (s->mounts[i].copy)
            step_done(s->mounts[i].copy);
        free(s->mounts[i].copy);
        free(s->mounts[i].target);
    }
    free(s->mounts);
    words_done(&s->argv);
    words_done(&s->env);
    words_done(&s->sources);
    free(s->script);
    free(s->workdir);
    free(s->user);
    free(s->destination);
    free(s->owner);
    copy_set_done(&s->set);
    for (size_t i = 0; i < s->file_count; i++) {
        free(s->files[i].name);
        free(s->files[i].text);
    }
    free(s->files);
    if (s->from_image)
        base_image_done(s->from_image);
    free(s->from_image);
}

static void stage_done(struct stage *s)
{
    free(s->name);
    base_image_done(&s->base);
    image_config_done(&s->config);
    for (size_t i = 0; i < s->count; i++)
        step_done(&s->steps[i]);
    free(s->steps);
}

void plan_done(struct plan *p)
{
    for (size_t i = 0; i < p->count; i++)
        stage_done(&p->stages[i]);
    free(p->stages);
    words_done(&p->notes);
    *p = (struct plan){0};
}
