/* SPDX-License-Identifier: Apache-2.0 */
/* tap.c: see tap.h. */
#include "agent/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>

enum {
    READS_PER_EVENT = 4,      /* then the others get their turn */
    PIPE_BYTES = 1024 * 1024, /* of a pipe that was found full: fewer switches between writer and agent */
};

struct leftover {
    struct list link;
    struct agent *agent;
    struct source source;
    int fd;
    unsigned owner;
};

void tap_init(struct tap *t, struct agent *a, int fd, void (*data)(struct tap *t, const char *data, size_t n),
              void (*end)(struct tap *t))
{
    *t = (struct tap){.agent = a, .source = {.fd = -1}, .fd = fd, .data = data, .end = end};
}

/* > 0: bytes delivered; 0: end; -EAGAIN: empty. */
static ssize_t read_once(struct tap *t, size_t max)
{
    char *scratch = agent_scratch(t->agent);
    ssize_t n;
    do
        n = read(t->fd, scratch, MIN(max, (size_t)AGENT_SCRATCH));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    if (n >= 64 * 1024 && !t->grown) {
        t->grown = true;
        (void)fcntl(t->fd, F_SETPIPE_SZ, PIPE_BYTES); /* may be refused: only slower */
    }
    if (n > 0)
        t->data(t, scratch, (size_t)n);
    return n;
}

static void ready(struct source *s, uint32_t events)
{
    struct tap *t = container_of(s, struct tap, source);
    (void)events;
    for (int i = 0; i < READS_PER_EVENT; i++) {
        ssize_t n = read_once(t, AGENT_SCRATCH);
        if (n == -EAGAIN || t->source.fd < 0)
            return;
        if (n <= 0) {
            tap_close(t);
            t->end(t);
            return;
        }
    }
}

int tap_follow(struct tap *t)
{
    if (t->fd < 0 || t->source.fd >= 0)
        return 0;
    return loop_add(t->agent->loop, &t->source, t->fd, EPOLLIN, ready);
}

void tap_pause(struct tap *t)
{
    loop_del(t->agent->loop, &t->source);
}

bool tap_drain(struct tap *t)
{
    int left = 0;
    if (t->fd < 0)
        return true;
    ssize_t first = read_once(t, AGENT_SCRATCH); /* most pipes are empty */
    if (first == 0)
        tap_close(t);
    if (first < 0 && t->fd >= 0)
        return false;
    if (t->fd < 0)
        return true;
    if (ioctl(t->fd, FIONREAD, &left) < 0)
        left = 0;
    while (left > 0 && t->fd >= 0) {
        ssize_t n = read_once(t, (size_t)left);
        if (n <= 0)
            break;
        left -= (int)n;
    }
    if (t->fd < 0)
        return true;
    char c; /* an empty pipe says EAGAIN while somebody could still write */
    ssize_t n = read(t->fd, &c, 1);
    if (n > 0) {
        t->data(t, &c, 1); /* written meanwhile by a process that lives on */
        return false;
    }
    if (n < 0)
        return false;
    tap_close(t);
    return true;
}

void tap_close(struct tap *t)
{
    if (t->fd < 0)
        return;
    tap_pause(t);
    close_fd(&t->fd);
}

static void leftover_free(struct leftover *l)
{
    list_remove(&l->link);
    l->agent->leftover_count--;
    loop_del(l->agent->loop, &l->source);
    (void)close(l->fd);
    free(l);
}

static void leftover_ready(struct source *s, uint32_t events)
{
    struct leftover *l = container_of(s, struct leftover, source);
    (void)events;
    ssize_t n = read(l->fd, agent_scratch(l->agent), AGENT_SCRATCH);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        leftover_free(l);
}

static void make_room(struct agent *a, unsigned owner)
{
    struct leftover *oldest = NULL;
    size_t own = 0;
    list_for_each(i, &a->leftovers)
    {
        struct leftover *l = list_entry(i, struct leftover, link);
        if (l->owner != owner)
            continue;
        own++;
        if (!oldest)
            oldest = l;
    }
    if (owner && own >= LEFTOVER_OWNER_MAX)
        leftover_free(oldest);
    else if (a->leftover_count >= LEFTOVER_MAX)
        leftover_free(list_first(&a->leftovers, struct leftover, link));
}

void tap_leave(struct tap *t, unsigned owner)
{
    struct agent *a = t->agent;
    if (t->fd < 0)
        return;
    tap_pause(t);
    make_room(a, owner);
    struct leftover *l = calloc(1, sizeof *l);
    if (!l) {
        tap_close(t);
        return;
    }
    l->agent = a;
    l->fd = t->fd;
    l->owner = owner;
    l->source.fd = -1;
    if (loop_add(a->loop, &l->source, l->fd, EPOLLIN, leftover_ready) < 0) {
        free(l);
        tap_close(t);
        return;
    }
    t->fd = -1;
    list_append(&a->leftovers, &l->link);
    a->leftover_count++;
}

void leftovers_free(struct agent *a)
{
    list_for_each(i, &a->leftovers) leftover_free(list_entry(i, struct leftover, link));
}
