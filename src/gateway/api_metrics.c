/* SPDX-License-Identifier: Apache-2.0 */
/* api_metrics.c: GET /metrics: everything counted, in the text format of Prometheus. */
#include "gateway/events.h"
#include "gateway/gateway_internal.h"
#include "gateway/reply.h"

#include <assert.h>
#include <inttypes.h>

static const char *const class_name[] = {
    [CLASS_OTHER] = "other",     [CLASS_HEALTH] = "health",   [CLASS_SANDBOX] = "sandbox",
    [CLASS_API] = "api",         [CLASS_EVENTS] = "events",   [CLASS_TOKEN] = "token",
    [CLASS_METRICS] = "metrics", [CLASS_PREVIEW] = "preview", [CLASS_VOLUME] = "volume",
    [CLASS_IMAGE] = "image",
};
static_assert(ARRAY_SIZE(class_name) == CLASS_COUNT, "name every class of routes");

static void describe(struct buf *out, const char *name, const char *type, const char *help)
{
    (void)buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_one(struct buf *out, const char *name, const char *type, const char *help, uint64_t value)
{
    describe(out, name, type, help);
    (void)buf_printf(out, "%s %" PRIu64 "\n", name, value);
}

static void put_sandboxes(struct buf *out, const struct lifecycle_stats *s)
{
    describe(out, "silica_sandboxes", "gauge", "Sandboxes by state.");
    for (int i = SANDBOX_STARTING; i < SANDBOX_STATE_COUNT; i++)
        (void)buf_printf(out, "silica_sandboxes{state=\"%s\"} %" PRIu64 "\n",
                         sandbox_state_name((enum sandbox_state)i), s->states[i]);
    describe(out, "silica_sandbox_events_total", "counter", "What happened to sandboxes.");
    for (int i = 0; i < SANDBOX_EVENT_COUNT; i++)
        (void)buf_printf(out, "silica_sandbox_events_total{event=\"%s\"} %" PRIu64 "\n",
                         sandbox_event_name((enum sandbox_event)i), s->events[i]);
}

static void put_start_times(struct buf *out, const struct lifecycle_stats *s)
{
    uint64_t sum = 0;
    describe(out, "silica_start_seconds", "histogram",
             "Time from a request to a running sandbox, new or asleep before.");
    for (size_t i = 0; i < START_BUCKETS; i++) {
        sum += s->start_times[i];
        (void)buf_printf(out, "silica_start_seconds_bucket{le=\"%g\"} %" PRIu64 "\n",
                         (double)start_bucket_us[i] / 1e6, sum);
    }
    sum += s->start_times[START_BUCKETS];
    (void)buf_printf(out, "silica_start_seconds_bucket{le=\"+Inf\"} %" PRIu64 "\n", sum);
    (void)buf_printf(out, "silica_start_seconds_sum %.6f\n", (double)s->start_us / 1e6);
    (void)buf_printf(out, "silica_start_seconds_count %" PRIu64 "\n", sum);
}

static void put_requests(struct buf *out, const struct metrics *m)
{
    static const char *const status[] = {"none", "1xx", "2xx", "3xx", "4xx", "5xx"};
    describe(out, "silica_requests_total", "counter", "Requests that are over, by kind of route and status.");
    for (int c = 0; c < CLASS_COUNT; c++)
        for (size_t i = 0; i < ARRAY_SIZE(status); i++)
            if (m->requests[c][i])
                (void)buf_printf(out, "silica_requests_total{route=\"%s\",status=\"%s\"} %" PRIu64 "\n",
                                 class_name[c], status[i], m->requests[c][i]);
    put_one(out, "silica_requests_in_flight", "gauge", "Requests that are not over.", m->in_flight);
    describe(out, "silica_agent_bytes_total", "counter", "Bytes of bodies passed to and from agents.");
    (void)buf_printf(out, "silica_agent_bytes_total{direction=\"to\"} %" PRIu64 "\n", m->bytes_to_agents);
    (void)buf_printf(out, "silica_agent_bytes_total{direction=\"from\"} %" PRIu64 "\n", m->bytes_from_agents);
    put_one(out, "silica_auth_failures_total", "counter", "Requests without a valid token.",
            m->auth_failures);
    put_one(out, "silica_auth_throttled_total", "counter",
            "Requests turned away because their address guesses tokens.", m->auth_throttled);
}

static void put_networks(struct buf *out, const struct networks_stats *s)
{
    put_one(out, "silica_network_connections_total", "counter", "Connections that sandboxes have made.",
            s->opened);
    describe(out, "silica_network_bytes_total", "counter", "Bytes of sandboxes' connections that are over.");
    (void)buf_printf(out, "silica_network_bytes_total{direction=\"sent\"} %" PRIu64 "\n", s->sent_bytes);
    (void)buf_printf(out, "silica_network_bytes_total{direction=\"received\"} %" PRIu64 "\n",
                     s->received_bytes);
    describe(out, "silica_network_refused_total", "counter",
             "What sandboxes were refused: names, and packets as far as they are told.");
    (void)buf_printf(out, "silica_network_refused_total{kind=\"name\"} %" PRIu64 "\n", s->refused_names);
    (void)buf_printf(out, "silica_network_refused_total{kind=\"packet\"} %" PRIu64 "\n", s->refused_packets);
}

void api_metrics(struct gateway *g, struct http_request *req, const struct route_match *m)
{
    struct buf out = BUF_INIT(256 * 1024);
    (void)m;
    describe(&out, "silica_info", "gauge", "The version.");
    (void)buf_printf(&out, "silica_info{version=\"%s\"} 1\n", SILICA_VERSION);
    put_sandboxes(&out, lifecycle_stats(g->lifecycle));
    put_start_times(&out, lifecycle_stats(g->lifecycle));
    put_requests(&out, &g->metrics);
    put_networks(&out, networks_stats(g->networks));
    put_one(&out, "silica_connections", "gauge", "Open connections.", http_server_connections(g->server));
    put_one(&out, "silica_event_subscribers", "gauge", "Open streams of events.",
            events_subscribers(g->events));
    put_one(&out, "silica_tokens", "gauge", "Known tokens.", tokens_count(auth_tokens(g->auth)));
    if (!buf_cstr(&out))
        reply_error(req, 500, "INTERNAL_ERROR", "out of memory");
    else
        http_respond(req, 200, "text/plain; version=0.0.4; charset=utf-8", buf_data(&out), buf_len(&out));
    buf_done(&out);
}
