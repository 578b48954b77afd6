/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_json.c: see sandbox_json.h. */
#include "gateway/sandbox_json.h"
#include "gateway/reply.h"
#include "base/clock.h"

#include <string.h>

static void put_time(struct json_writer *w, const char *key, int64_t wall_ms)
{
    char iso[CLOCK_ISO_SIZE];
    clock_iso(wall_ms, iso);
    json_member_string(w, key, iso);
}

static void put_limits(struct json_writer *w, const struct limits *l, const struct sandbox_reach *reach)
{
    json_put_key(w, "limits");
    json_object_begin(w);
    json_member_int(w, "memoryBytes", (int64_t)l->memory_bytes);
    json_put_key(w, "cpu");
    json_put_number(w, l->cpu_milli / 1000.0);
    json_member_int(w, "diskBytes", (int64_t)l->disk_bytes);
    json_member_int(w, "inodes", (int64_t)l->disk_inodes);
    json_member_int(w, "tasks", l->tasks);
    json_member_int(w, "ioBytesPerSecond", (int64_t)l->io_bps);
    json_member_int(w, "ioOperationsPerSecond", (int64_t)l->io_iops);
    json_member_int(w, "networkBytesPerSecond", (int64_t)reach->bytes_per_second);
    json_member_int(w, "connections", reach->connections ? reach->connections : KEEPER_CONNECTIONS_DEFAULT);
    json_object_end(w);
}

static void put_env_names(struct json_writer *w, const char *env)
{
    struct error e;
    auto_free char *copy = strdup(env ? env : "{}");
    auto_json struct json_doc *doc = NULL;
    json_put_key(w, "envNames");
    json_array_begin(w);
    if (copy && json_parse(copy, strlen(copy), 0, &doc, &e) == 0)
        json_for_each (child, json_root(doc))
            json_put_string(w, json_key(child));
    json_array_end(w);
}

static void put_usage(struct json_writer *w, const struct keeper_usage *u)
{
    json_member_int(w, "memoryBytes", (int64_t)u->memory_bytes);
    json_member_int(w, "memoryPeakBytes", (int64_t)u->memory_peak_bytes);
    json_member_int(w, "oomKills", (int64_t)u->oom_kills);
    json_put_key(w, "cpuSeconds");
    json_put_number(w, (double)u->cpu_us / 1e6);
    json_member_int(w, "diskBytes", (int64_t)u->disk_bytes);
    json_member_int(w, "tasks", u->tasks);
    json_member_int(w, "networkRxBytes", (int64_t)u->network_rx_bytes);
    json_member_int(w, "networkTxBytes", (int64_t)u->network_tx_bytes);
}

void sandbox_put_json(struct json_writer *w, const struct sandbox *sb, const struct images *im)
{
    static const struct keeper_usage nothing;
    const struct sandbox_config *c = &sb->config;
    bool alive = sb->state == SANDBOX_RUNNING || sb->state == SANDBOX_FROZEN;

    json_object_begin(w);
    json_member_string(w, "id", sb->id);
    json_member_string(w, "state", sandbox_state_name(sb->state));
    json_member_string(w, "image", c->image);
    json_put_key(w, "imageNames");
    image_names_write(w, im, c->image);
    if (c->instance_type[0])
        json_member_string(w, "instanceType", c->instance_type);
    put_limits(w, &c->limits, &c->reach);
    put_time(w, "createdAt", sb->created_ms);
    put_time(w, "lastUsedAt", sb->last_used_ms);
    put_usage(w, alive ? &sb->usage : &nothing);
    json_member_int(w, "activeRequests", sb->holding);
    json_put_key(w, "sleepAfter");
    json_put_number(w, (double)c->sleep_after_ms / 1000);
    json_member_bool(w, "keepAlive", c->keep_alive);
    json_member_bool(w, "ephemeral", c->ephemeral);
    json_put_key(w, "network");
    sandbox_reach_put_json(w, &c->reach, lifecycle_has_network(sb->lifecycle));
    sandbox_settings_put_json(w, &c->settings);
    json_put_key(w, "labels");
    json_put_raw(w, c->labels ? c->labels : "{}", c->labels ? strlen(c->labels) : 2);
    put_env_names(w, c->env);
    json_object_end(w);
}

void reply_sandbox(struct http_request *req, int status, const struct sandbox *sb, const struct images *im)
{
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    json_writer_init(&w, &out);
    sandbox_put_json(&w, sb, im);
    reply_json(req, status, &w);
}
