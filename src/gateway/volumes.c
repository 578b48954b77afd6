/* SPDX-License-Identifier: Apache-2.0 */
/* volumes.c: see volumes.h. */
#include "gateway/volumes.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>

struct entry {
    struct entry *next;
    char name[VOLUME_NAME_MAX + 1];
    bool changing; /* being made or removed */
};

struct volumes {
    struct keeper_link *link;
    struct entry *first;
};

struct change {
    struct volumes *volumes;
    struct entry *entry;
    bool create;
    volumes_done *done;
    void *arg;
};

static struct entry *find(const struct volumes *v, const char *name)
{
    for (struct entry *e = v->first; e; e = e->next)
        if (strcmp(e->name, name) == 0)
            return e;
    return NULL;
}

static struct entry *add(struct volumes *v, const char *name)
{
    struct entry *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    memcpy(e->name, name, strnlen(name, VOLUME_NAME_MAX));
    e->next = v->first;
    v->first = e;
    return e;
}

static void forget(struct volumes *v, struct entry *e)
{
    for (struct entry **p = &v->first; *p; p = &(*p)->next)
        if (*p == e) {
            *p = e->next;
            free(e);
            return;
        }
}

static void listed(void *arg, const struct keeper_reply *reply, int fd)
{
    struct volumes *v = arg;
    close_fd(&fd);
    if (reply->type == KEEPER_ITEM && !find(v, reply->volume.name) && !add(v, reply->volume.name))
        log_error("out of memory: volume %s cannot be used", reply->volume.name);
    else if (reply->type == KEEPER_REPLY && reply->error)
        log_error("the volumes are not known: %s", reply->message);
}

int volumes_new(struct keeper_link *link, struct volumes **ret, struct error *reterr)
{
    struct volumes *v = calloc(1, sizeof *v);
    if (!v)
        return error_sys(reterr, ENOMEM, "know the volumes");
    v->link = link;
    *ret = v;
    keeper_link_send(link, &(struct keeper_request){.type = KEEPER_VOLUME_LIST}, -1, listed, v);
    return 0;
}

void volumes_free(struct volumes *v)
{
    if (!v)
        return;
    while (v->first)
        forget(v, v->first);
    free(v);
}

bool volumes_known(const struct volumes *v, const char *name)
{
    const struct entry *e = find(v, name);
    return e && !e->changing;
}

int volumes_check(const struct volumes *v, const struct sandbox_settings *s, struct problem *p)
{
    struct keeper_volume_mount list[KEEPER_VOLUMES_MAX];
    size_t count = sandbox_settings_volumes(s, list);
    for (size_t i = 0; i < count; i++)
        if (!volumes_known(v, list[i].name))
            return problem_set(p, 404, "VOLUME_NOT_FOUND", "there is no volume '%s'", list[i].name);
    return 0;
}

/* ------------------------------------------------------------------ changes */

static void change_problem(const struct change *c, const struct keeper_reply *reply, struct problem *p)
{
    const char *name = c->entry->name;
    switch (reply->error) {
    case EEXIST:
        (void)problem_set(p, 409, "VOLUME_EXISTS", "there is a volume '%s' already", name);
        break;
    case ENODEV:
        (void)problem_set(p, 404, "VOLUME_NOT_FOUND", "there is no volume '%s'", name);
        break;
    case EBUSY:
        (void)problem_set(p, 409, "VOLUME_IN_USE", "the volume '%s' is in use", name);
        break;
    case EAGAIN:
    case ENOSPC:
    case ENOMEM:
        (void)problem_set(p, 429, "HOST_FULL", "the host has no room for it: %s", reply->message);
        p->retry_after_s = 5;
        break;
    default:
        (void)problem_set(p, 500, "VOLUME_FAILED", "the volume could not be %s: %s",
                          c->create ? "made" : "removed", reply->message);
    }
}

static void changed(void *arg, const struct keeper_reply *reply, int fd)
{
    struct change *c = arg;
    struct problem p;
    bool failed = reply->error != 0;
    close_fd(&fd);
    if (failed)
        change_problem(c, reply, &p);
    /* a volume that we did not know and that is there all the same is known from now on */
    bool there = c->create ? !failed || reply->error == EEXIST : failed && reply->error != ENODEV;
    if (there)
        c->entry->changing = false;
    else
        forget(c->volumes, c->entry);
    c->done(c->arg, failed ? NULL : &reply->volume, failed ? &p : NULL);
    free(c);
}

static void change(struct volumes *v, struct entry *e, bool create, uint64_t bytes, volumes_done *done,
                   void *arg)
{
    struct problem p;
    struct change *c = e ? malloc(sizeof *c) : NULL;
    if (!c) {
        if (e && create)
            forget(v, e);
        (void)problem_set(&p, 500, "INTERNAL_ERROR", "out of memory");
        done(arg, NULL, &p);
        return;
    }
    *c = (struct change){.volumes = v, .entry = e, .create = create, .done = done, .arg = arg};
    struct keeper_request q = {.type = create ? KEEPER_VOLUME_CREATE : KEEPER_VOLUME_REMOVE,
                               .volume_bytes = bytes};
    memcpy(q.volumes[0].name, e->name, sizeof e->name);
    e->changing = true;
    keeper_link_send(v->link, &q, -1, changed, c);
}

void volumes_create(struct volumes *v, const char *name, uint64_t bytes, volumes_done *done, void *arg)
{
    struct problem p;
    if (find(v, name)) {
        (void)problem_set(&p, 409, "VOLUME_EXISTS", "there is a volume '%s' already", name);
        done(arg, NULL, &p);
        return;
    }
    change(v, add(v, name), true, bytes, done, arg);
}

void volumes_remove(struct volumes *v, const char *name, volumes_done *done, void *arg)
{
    struct problem p;
    struct entry *e = find(v, name);
    if (!e || e->changing) {
        (void)problem_set(&p, 404, "VOLUME_NOT_FOUND", "there is no volume '%s'", name);
        done(arg, NULL, &p);
        return;
    }
    change(v, e, false, 0, done, arg);
}
