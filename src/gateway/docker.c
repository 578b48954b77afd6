/* SPDX-License-Identifier: Apache-2.0 */
/* docker.c: the table of containers, and taking up what an earlier gateway left; see docker.h. */
#include "gateway/docker_internal.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------ the table */

struct container *docker_find(const struct docker *d, const char *name)
{
    struct container *found = NULL;
    size_t n = strlen(name), matches = 0;
    if (*name == '/')
        name++;
    for (struct container *c = d->containers; c; c = c->next) {
        if ((c->name && strcmp(c->name, name) == 0) || strcmp(c->id, name) == 0)
            return c;
        if (n >= 4 && n < CONTAINER_ID_CHARS && strncmp(c->id, name, n) == 0) {
            found = c;
            matches++;
        }
    }
    return matches == 1 ? found : NULL;
}

struct container *docker_find_sandbox(const struct docker *d, const char *sandbox)
{
    for (struct container *c = d->containers; c; c = c->next)
        if (strcmp(c->sandbox, sandbox) == 0)
            return c;
    return NULL;
}

struct container *container_new(struct docker *d, const char *id)
{
    struct container *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->docker = d;
    (void)snprintf(c->id, sizeof c->id, "%s", id);
    (void)snprintf(c->sandbox, sizeof c->sandbox, "ctr-%.32s", id);
    c->next = d->containers;
    d->containers = c;
    d->container_count++;
    return c;
}

void container_free(struct container *c)
{
    struct docker *d = c->docker;
    for (struct container **p = &d->containers; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            d->container_count--;
            break;
        }
    container_life_stop(c);
    sidecar_stop(c);
    json_free(c->doc);
    free(c->doc_text);
    free(c->name);
    free(c->image);
    free(c->config);
    free(c->secret);
    free(c->egress);
    free(c);
}

struct container *container_sidecar(const struct container *c)
{
    static const char prefix[] = "container:";
    const char *mode = json_string(json_get(json_get(json_root(c->doc), "HostConfig"), "NetworkMode"), NULL);
    if (!mode || strncmp(mode, prefix, sizeof prefix - 1) != 0)
        return NULL;
    struct container *found = docker_find(c->docker, mode + sizeof prefix - 1);
    return found && found->is_sidecar ? found : NULL;
}

struct container *sidecar_member(const struct container *sidecar)
{
    for (struct container *c = sidecar->docker->containers; c; c = c->next)
        if (!c->is_sidecar && c->status == CONTAINER_RUNNING && container_sidecar(c) == sidecar)
            return c;
    return NULL;
}

/* ------------------------------------------------------------------ begin and end */

static int load(const struct container_row *row, void *arg)
{
    return container_load(arg, row);
}

int docker_new(struct gateway *g, struct docker **ret, struct error *reterr)
{
    struct docker *d = calloc(1, sizeof *d);
    if (!d)
        return error_sys(reterr, ENOMEM, "set up the container engine");
    d->g = g;
    d->listen_fd = -1;
    int r = docker_server_new(d, &d->server, reterr);
    if (r == 0)
        r = store_load_containers(g->store, load, d, reterr);
    if (r < 0) {
        docker_free(d);
        return r;
    }
    *ret = d;
    return 0;
}

/* Everything has its place again: containers that run get their way out back, and callers are heard. */
static void listen_now(struct docker *d)
{
    struct error e;
    for (struct container *c = d->containers, *sidecar; c; c = c->next)
        if (c->status == CONTAINER_RUNNING && (sidecar = container_sidecar(c)))
            sidecar_attach(sidecar, c->sandbox, NULL, NULL);
    int fd = take_fd(d->listen_fd);
    if (fd < 0)
        return;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || http_server_listen(d->server, fd, &e) < 0)
        log_error("the container engine's socket cannot be used");
}

static void sidecar_taken_up(struct container *c, const struct problem *p)
{
    struct docker *d = c->docker;
    if (p) {
        log_warn("container %s: %s", c->name, p->message);
        c->status = CONTAINER_EXITED;
    }
    if (--d->taking_up == 0)
        listen_now(d);
}

void docker_begin(struct docker *d, int fd)
{
    d->listen_fd = fd;
    d->taking_up = 1; /* ours, while we count */
    for (struct container *c = d->containers, *next; c; c = next) {
        next = c->next;
        if (c->is_sidecar && c->status == CONTAINER_RUNNING) {
            d->taking_up++;
            sidecar_start(c, sidecar_taken_up);
        } else if (!c->is_sidecar) {
            container_take_up(c);
        }
    }
    if (--d->taking_up == 0)
        listen_now(d);
}

void docker_stop_listening(struct docker *d)
{
    http_server_stop_listening(d->server);
}

void docker_sandbox_event(struct docker *d, const struct sandbox *sb, enum sandbox_event event)
{
    if (!sb->is_container)
        return;
    struct container *c = docker_find_sandbox(d, sb->id);
    if (!c)
        return;
    if (event == SANDBOX_EVENT_EXITED)
        container_ended(c, (int)sb->exit_code);
    else if (event == SANDBOX_EVENT_ASLEEP)
        container_ended(c, c->killing_pending
                               ? 128 + 9
                               : 0); /* put to sleep through the other door: SIGTERM, and it went */
    else if (event == SANDBOX_EVENT_FAILED || event == SANDBOX_EVENT_DESTROYED)
        container_ended(c, 128 + 9);
}

void docker_free(struct docker *d)
{
    if (!d)
        return;
    http_server_free(d->server); /* who waits is gone */
    docker_exec_sandbox_ended(d, "");
    docker_lates_free(d);
    while (d->containers)
        container_free(d->containers);
    close_fd(&d->listen_fd);
    free(d);
}
