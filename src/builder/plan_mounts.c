/* SPDX-License-Identifier: Apache-2.0 */
/* plan_mounts.c: RUN --mount=type=bind|cache|tmpfs.
 *
 * Steps run in sandboxes, where nothing can be mounted from outside while they run. So a bind mount is a copy
 * that is taken away again, and a cache or tmpfs mount an empty directory: what is written there is in no
 * image, as it should be, and is not kept either. */
#include "builder/plan_internal.h"

#include <errno.h>
#include <string.h>

enum { MOUNTS_MAX = 32 };

/* Value of a key of "type=bind,source=x", malloc'ed; NULL: not there or no memory. */
static char *option(const char *text, const char *const *keys)
{
    for (; *keys; keys++)
        for (const char *p = text; *p;) {
            size_t n = strcspn(p, ","), key = strlen(*keys);
            if (n > key && strncmp(p, *keys, key) == 0 && p[key] == '=')
                return strndup(p + key + 1, n - key - 1);
            p += n + (p[n] == ',');
        }
    return NULL;
}

static struct step_mount *add_mount(struct planner *p, struct step *s)
{
    struct step_mount *mounts =
        s->mount_count < MOUNTS_MAX ? realloc(s->mounts, (s->mount_count + 1) * sizeof *mounts) : NULL;
    if (!mounts) {
        (void)plan_fail(p, E2BIG, "more than %d mounts", MOUNTS_MAX);
        return NULL;
    }
    s->mounts = mounts;
    mounts[s->mount_count] = (struct step_mount){0};
    return &mounts[s->mount_count++];
}

static int bind(struct planner *p, const char *text, struct step_mount *m)
{
    static const char *const source_keys[] = {"source", "src", NULL}, *const from_keys[] = {"from", NULL};
    auto_free char *source = option(text, source_keys), *from = option(text, from_keys);
    m->copy = calloc(1, sizeof *m->copy);
    if (!m->copy)
        return plan_memory(p);
    struct step *c = m->copy;
    *c = (struct step){
        .kind = STEP_COPY, .mode = -1, .from_stage = -1, .text = p->at->text, .line = p->at->line};
    int r = plan_copy_from(p, c, from);
    if (r == 0 && (words_add(&c->sources, source ? source : "/", source ? strlen(source) : 1) < 0 ||
                   !(c->destination = strdup(m->target))))
        r = plan_memory(p);
    return r < 0 ? r : plan_copy_select(p, c);
}

static int read_mount(struct planner *p, struct step *s, const char *text)
{
    static const char *const type_keys[] = {"type", NULL};
    static const char *const target_keys[] = {"target", "dst", "destination", NULL};
    auto_free char *type = option(text, type_keys), *target = option(text, target_keys);
    bool is_bind = !type || strcmp(type, "bind") == 0;
    if (!is_bind && strcmp(type, "cache") != 0 && strcmp(type, "tmpfs") != 0)
        return plan_fail(p, EOPNOTSUPP,
                         "a mount of type %s is not supported; known are bind, cache and tmpfs", type);
    if (!target || !*target)
        return plan_fail(p, EINVAL, "--mount=%s needs target=PATH", text);
    struct step_mount *m = add_mount(p, s);
    if (!m)
        return -E2BIG;
    m->target = plan_absolute(p, target);
    if (!m->target)
        return plan_memory(p);
    if (strcmp(m->target, "/") == 0)
        return plan_fail(p, EINVAL, "nothing can be mounted at /");
    return is_bind ? bind(p, text, m) : 0;
}

int plan_mounts(struct planner *p, struct step *s)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < p->at->flags.count; i++) {
        auto_free char *text = NULL;
        if (strncmp(p->at->flags.items[i], "mount=", 6) != 0)
            continue;
        r = plan_expand(p, p->at->flags.items[i] + 6, &text);
        if (r == 0)
            r = read_mount(p, s, text);
    }
    return r;
}

int plan_mounts_digest(struct planner *p, const struct step *s, struct sha256 *d)
{
    int r = 0;
    digest_number(d, s->mount_count);
    for (size_t i = 0; r == 0 && i < s->mount_count; i++) {
        digest_field(d, s->mounts[i].target);
        if (s->mounts[i].copy)
            r = plan_copy_digest(p, s->mounts[i].copy, d);
    }
    return r;
}
