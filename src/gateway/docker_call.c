/* SPDX-License-Identifier: Apache-2.0 */
/* docker_call.c: see docker_call.h. */
#include "gateway/docker_call.h"

#include <errno.h>

static const struct http_header headers[] = {{"Host", "localhost:3000"},
                                             {"Content-Type", "application/json"}};

static void call_stop(struct docker_call *k)
{
    struct sandbox *sb = take_ptr(k->sandbox);
    struct http_client *client = take_ptr(k->client);
    if (!sb)
        return;
    agent_pool_cancel(&sb->pool, &k->want);
    if (client)
        agent_pool_put(&sb->pool, client, k->generation);
    buf_done(&k->body);
}

void docker_call_cancel(struct docker_call *k)
{
    call_stop(k);
    buf_done(&k->answer);
}

static void call_finish(struct docker_call *k, int err)
{
    struct buf answer = k->answer;
    call_stop(k);
    k->answer = BUF_INIT(DOCKER_CALL_BYTES);
    k->done(k, err, k->status, err ? NULL : buf_data(&answer), err ? 0 : buf_len(&answer));
    buf_done(&answer);
}

static void on_head(struct http_client *client, int status, const struct http_header *list, size_t count,
                    int64_t content_length)
{
    struct docker_call *k = http_client_user(client);
    (void)list;
    (void)count;
    (void)content_length;
    k->status = status;
    sandbox_heard(k->sandbox);
}

static void on_data(struct http_client *client, const char *data, size_t n)
{
    struct docker_call *k = http_client_user(client);
    if (buf_append(&k->answer, data, n) < 0)
        call_finish(k, -ENOBUFS);
}

static void on_end(struct http_client *client, int err)
{
    call_finish(http_client_user(client), err);
}

static const struct http_client_ops ops = {
    .on_head = on_head, .on_data = on_data, .on_end = on_end, .on_idle_close = agent_pool_idle_closed};

static void got(struct agent_want *w, struct http_client *client, bool fresh, int err)
{
    struct docker_call *k = container_of(w, struct docker_call, want);
    (void)fresh;
    if (!client) {
        call_finish(k, err);
        return;
    }
    k->client = client;
    k->generation = k->sandbox->pool.generation;
    http_client_set_user(client, k);
    int r = http_client_send(client, "POST", k->target, headers, ARRAY_SIZE(headers),
                             (int64_t)buf_len(&k->body), &ops);
    if (r < 0) {
        call_finish(k, r);
        return;
    }
    if (buf_len(&k->body)) {
        (void)http_client_write(client, buf_data(&k->body), buf_len(&k->body));
        http_client_finish(client);
    }
}

void docker_call_start(struct docker_call *k, struct sandbox *sb, const char *target, struct buf *body,
                       void (*done)(struct docker_call *k, int err, int status, const char *body, size_t n))
{
    *k = (struct docker_call){
        .done = done, .sandbox = sb, .target = target, .body = *body, .answer = BUF_INIT(DOCKER_CALL_BYTES)};
    *body = BUF_INIT(0);
    k->want.got = got;
    agent_pool_get(&sb->pool, &k->want);
}
