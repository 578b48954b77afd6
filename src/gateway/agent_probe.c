/* SPDX-License-Identifier: Apache-2.0 */
/* agent_probe.c: see agent_probe.h. */
#include "gateway/agent_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

static const struct http_header headers[] = {{"Host", "localhost:3000"}};

void agent_probe_init(struct agent_probe *p, struct loop *loop, struct keeper_link *link, const char *id)
{
    *p = (struct agent_probe){.loop = loop, .link = link, .id = id, .body = BUF_INIT(AGENT_PROBE_BYTES)};
}

static void probe_stop(struct agent_probe *p)
{
    p->running = false;
    loop_timer_stop(p->loop, &p->deadline);
    http_client_free(take_ptr(p->client));
}

static void probe_finish(struct agent_probe *p, int err)
{
    struct buf body = p->body;
    probe_stop(p);
    p->body = BUF_INIT(AGENT_PROBE_BYTES);
    if (err == 0 && !buf_cstr(&body))
        err = -ENOMEM;
    p->done(p, err, err == 0 ? buf_data(&body) : NULL, err == 0 ? buf_len(&body) : 0);
    buf_done(&body);
}

void agent_probe_cancel(struct agent_probe *p)
{
    if (!p->running)
        return;
    probe_stop(p);
    buf_done(&p->body);
}

static void on_head(struct http_client *c, int status, const struct http_header *list, size_t count,
                    int64_t content_length)
{
    struct agent_probe *p = http_client_user(c);
    (void)list;
    (void)count;
    (void)content_length;
    p->status = status;
}

static void on_data(struct http_client *c, const char *data, size_t n)
{
    struct agent_probe *p = http_client_user(c);
    int r = buf_append(&p->body, data, n);
    if (r < 0)
        probe_finish(p, r);
}

static void on_end(struct http_client *c, int err)
{
    struct agent_probe *p = http_client_user(c);
    probe_finish(p, err < 0 ? err : p->status == 200 ? 0 : -EBADMSG);
}

static const struct http_client_ops ops = {.on_head = on_head, .on_data = on_data, .on_end = on_end};

static void too_late(struct timer *t)
{
    probe_finish(container_of(t, struct agent_probe, deadline), -ETIMEDOUT);
}

static int probe_send(struct agent_probe *p, int fd)
{
    struct error e;
    auto_close int owned = fd;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    int r = http_client_new(p->loop, take_fd(owned), &p->client, &e);
    if (r < 0)
        return r;
    http_client_set_user(p->client, p);
    return http_client_send(p->client, "GET", p->path, headers, ARRAY_SIZE(headers), 0, &ops);
}

static void connected(void *arg, const struct keeper_reply *reply, int fd)
{
    struct agent_probe *p = arg;
    auto_close int owned = fd;
    p->connecting = false;
    if (!p->running) {
        if (p->settled)
            p->settled(p);
        return;
    }
    int r = reply->error ? -reply->error : fd < 0 ? -EIO : probe_send(p, take_fd(owned));
    if (r < 0)
        probe_finish(p, r);
}

bool agent_probe_start(struct agent_probe *p, const char *path, int64_t deadline_ms,
                       void (*done)(struct agent_probe *p, int err, char *body, size_t n))
{
    if (p->running || p->connecting)
        return false;
    p->path = path;
    p->done = done;
    p->status = 0;
    p->running = p->connecting = true;
    loop_timer_start(p->loop, &p->deadline, deadline_ms, too_late);
    struct keeper_request request = {.type = KEEPER_CONNECT};
    (void)snprintf(request.id, sizeof request.id, "%s", p->id);
    keeper_link_send(p->link, &request, -1, connected, p);
    return true;
}
