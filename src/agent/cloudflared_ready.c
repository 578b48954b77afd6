/* SPDX-License-Identifier: Apache-2.0 */
/* cloudflared_ready.c: asks cloudflared how many connections it has; see cloudflared.h. */
#include "agent/cloudflared.h"
#include "agent/dial.h"
#include "base/json.h"

enum { ANSWER_MAX = 64 * 1024, PATIENCE_MS = 5000 };

struct cloudflared_ready {
    struct loop *loop;
    struct dial dial;
    struct http_client *client;
    struct buf answer;
    struct timer timer;
    void (*done)(void *arg, bool ready);
    void *arg;
};

void cloudflared_ready_free(struct cloudflared_ready *q)
{
    if (!q)
        return;
    dial_stop(&q->dial);
    http_client_free(q->client);
    loop_timer_stop(q->loop, &q->timer);
    buf_done(&q->answer);
    free(q);
}

static void on_data(struct http_client *client, const char *data, size_t n)
{
    struct cloudflared_ready *q = http_client_user(client);
    (void)buf_append(&q->answer, data, n); /* a longer one is not what we asked for */
}

static void on_end(struct http_client *client, int err)
{
    struct cloudflared_ready *q = http_client_user(client);
    struct error e;
    auto_json struct json_doc *doc = NULL;
    double connections = 0;
    if (err == 0 && buf_len(&q->answer) &&
        json_parse(buf_data(&q->answer), buf_len(&q->answer), 0, &doc, &e) == 0)
        (void)json_number(json_get(json_root(doc), "readyConnections"), &connections);
    q->done(q->arg, connections >= 1);
}

static void out_of_time(struct timer *t)
{
    struct cloudflared_ready *q = container_of(t, struct cloudflared_ready, timer);
    q->done(q->arg, false);
}

static void connected(struct dial *d, int fd)
{
    static const struct http_client_ops ops = {.on_data = on_data, .on_end = on_end};
    static const struct http_header headers[] = {{"Host", "127.0.0.1"}, {"Connection", "close"}};
    struct cloudflared_ready *q = container_of(d, struct cloudflared_ready, dial);
    struct error e;
    auto_close int owned = fd;
    if (fd < 0 || http_client_new(q->loop, fd, &q->client, &e) < 0) {
        q->done(q->arg, false);
        return;
    }
    (void)take_fd(owned);
    http_client_set_user(q->client, q);
    if (http_client_send(q->client, "GET", "/ready", headers, ARRAY_SIZE(headers), 0, &ops) < 0)
        q->done(q->arg, false);
}

struct cloudflared_ready *cloudflared_ready_ask(struct loop *loop, int port,
                                                void (*done)(void *arg, bool ready), void *arg)
{
    struct cloudflared_ready *q = calloc(1, sizeof *q);
    if (!q)
        return NULL;
    q->loop = loop;
    q->done = done;
    q->arg = arg;
    q->answer = BUF_INIT(ANSWER_MAX);
    loop_timer_start(loop, &q->timer, PATIENCE_MS, out_of_time);
    dial_start(loop, &q->dial, port, connected);
    return q;
}
