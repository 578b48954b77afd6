/* SPDX-License-Identifier: Apache-2.0 */
/* box_request.c: what the gateway asks about a box, and how it is answered. Requests that only look or take
 * no time are served here; those that change the box wait in its queue (box.c). */
#include "keeper/box_internal.h"
#include "keeper/box_socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum keeper_state box_public_state(const struct box *b)
{
    if (!b)
        return KEEPER_STATE_ABSENT;
    if (!b->sb)
        return KEEPER_STATE_STOPPED;
    return b->frozen ? KEEPER_STATE_FROZEN : KEEPER_STATE_RUNNING;
}

static void tell_addresses(const struct keeper *k, const struct sandbox *sb, struct keeper_reply *r)
{
    if (!sb->spec.network || !k->env.network)
        return;
    r->address = network_address(k->env.network, sb->spec.slot);
    if (sb->spec.ipv6)
        r->address6 = network_address6(k->env.network, sb->spec.slot);
}

void box_reply(struct keeper *k, const struct keeper_request *q, const struct box *b, const struct error *e,
               int fd)
{
    struct keeper_reply r = {.type = KEEPER_REPLY, .seq = q->seq, .state = box_public_state(b)};
    (void)snprintf(r.id, sizeof r.id, "%s", q->id);
    if (e && e->code) {
        r.error = e->code;
        (void)snprintf(r.message, sizeof r.message, "%.*s", (int)sizeof r.message - 1, e->msg);
    }
    if (b && b->sb) {
        r.generation = b->sb->generation;
        r.durable = !b->committing;
        tell_addresses(k, b->sb, &r);
    }
    link_reply(k, &r, fd);
}

void box_refuse(struct keeper *k, const struct keeper_request *q, int code, const char *why)
{
    struct error e;
    (void)error_set(&e, code, "%s", why);
    box_reply(k, q, NULL, &e, -1);
}

static void request_stats(struct keeper *k, const struct keeper_request *q, struct box *b, uint32_t type)
{
    struct keeper_reply r = {.type = type, .seq = q->seq, .state = box_public_state(b)};
    (void)snprintf(r.id, sizeof r.id, "%s", b ? b->row.id : q->id);
    if (b) {
        struct cgroup_usage u = {0};
        (void)disk_used_bytes(k->env.disks, b->row.disk,
                              &r.usage.disk_bytes); /* zero when it cannot be told */
        r.durable = !b->committing && !b->is_new;
        r.exit_code = b->exit_code;
        if (b->sb) {
            r.generation = b->sb->generation;
            tell_addresses(k, b->sb, &r);
            if (r.address) /* zero when it cannot be told */
                (void)network_usage(k->env.network, b->sb->spec.slot, &r.usage.network_rx_bytes,
                                    &r.usage.network_tx_bytes);
            if (cgroup_usage_read(b->sb->cgroup, &u) == 0) {
                r.usage.memory_bytes = u.memory_bytes;
                r.usage.memory_peak_bytes = u.memory_peak_bytes;
                r.usage.cpu_us = u.cpu_us;
                r.usage.tasks = u.tasks;
                r.usage.oom_kills = u.oom_kills;
            }
        }
    }
    link_reply(k, &r, -1);
}

static void request_list(struct keeper *k, const struct keeper_request *q)
{
    for (size_t i = 0; i < BOX_BUCKETS; i++)
        for (struct box *b = k->boxes[i]; b; b = b->next)
            request_stats(k, q, b, KEEPER_ITEM);
    box_reply(k, q, NULL, NULL, -1);
}

static void request_now(struct keeper *k, const struct keeper_request *q, struct box *b)
{
    struct error e = {0};
    auto_close int fd = -1;
    if (!b || b->state != BOX_RUNNING) {
        box_refuse(k, q, ENOENT, "the sandbox is not running");
        return;
    }
    switch (q->type) {
    case KEEPER_CONNECT:
        (void)sandbox_connect(&k->env, b->sb, &fd, &e);
        break;
    default:
        (void)box_freeze(b, q->type == KEEPER_FREEZE, &e);
    }
    box_reply(k, q, b, &e, fd);
}

static void request_socket(struct keeper *k, const struct keeper_request *q, struct box *b)
{
    struct error e = {0};
    auto_close int fd = -1;
    const struct sandbox *sb = b && b->state == BOX_RUNNING ? b->sb : NULL;
    (void)box_socket_make(q, sb, k->env.network, k->config->resolvers, k->config->resolver_count, &fd, &e);
    box_reply(k, q, b, &e, fd);
}

static void request_queue(struct keeper *k, const struct keeper_request *q, struct box *b, int *fd)
{
    if (!b) {
        struct ledger_row row = {.limits = q->limits};
        struct error e;
        if (q->type == KEEPER_IMAGE_SAVE) {
            box_refuse(k, q, ENOENT, "there is no such sandbox");
            return;
        }
        if (q->type != KEEPER_START) { /* nothing to end */
            box_reply(k, q, NULL, NULL, -1);
            return;
        }
        if (limits_check(&q->limits, &e) < 0) {
            box_reply(k, q, NULL, &e, -1);
            return;
        }
        memcpy(row.id, q->id, sizeof row.id);
        memcpy(row.image, q->image, sizeof row.image);
        b = box_new(k, &row);
        if (!b) {
            box_refuse(k, q, ENOMEM, "out of memory");
            return;
        }
        b->is_new = true;
    }
    struct pending *p = b->queued < BOX_QUEUE_MAX ? malloc(sizeof *p) : NULL;
    if (!p) {
        box_refuse(k, q, EAGAIN, "too many requests wait for this sandbox");
        return;
    }
    *p = (struct pending){.request = *q, .fd = take_fd(*fd)};
    *b->last = p;
    b->last = &p->next;
    b->queued++;
    if (b->queued == 1 && b->state != BOX_BUSY)
        box_next(b);
}

void box_request(struct keeper *k, const struct keeper_request *q, int fd)
{
    auto_close int env = fd;
    struct box *b = q->type == KEEPER_LIST ? NULL : box_find(k, q->id);
    if (k->stopping) {
        box_refuse(k, q, EAGAIN, "the daemon is shutting down");
        return;
    }
    switch (q->type) {
    case KEEPER_LIST:
        request_list(k, q);
        break;
    case KEEPER_STATS:
        request_stats(k, q, b, KEEPER_REPLY);
        break;
    case KEEPER_CONNECT:
    case KEEPER_FREEZE:
    case KEEPER_THAW:
        request_now(k, q, b);
        break;
    case KEEPER_SOCKET:
        request_socket(k, q, b);
        break;
    case KEEPER_NETWORK:
    case KEEPER_CUT:
        box_request_network(k, q, b);
        break;
    case KEEPER_ALLOW:
        box_request_allow(k, q, b);
        break;
    case KEEPER_VOLUME_CREATE:
    case KEEPER_VOLUME_REMOVE:
    case KEEPER_VOLUME_LIST:
        volume_request(k, q);
        break;
    default:
        request_queue(k, q, b, &env);
    }
}
