/* SPDX-License-Identifier: Apache-2.0 */
/* docker_view.c: containers as JSON: one of them, and the list with its filters. */
#include "gateway/docker_internal.h"
#include "gateway/reply.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { FILTERS_MAX = 16 * 1024 };

static const char *const status_name[] = {
    [CONTAINER_CREATED] = "created", [CONTAINER_STARTING] = "created",
    [CONTAINER_RUNNING] = "running", [CONTAINER_RESTARTING] = "restarting",
    [CONTAINER_EXITED] = "exited",   [CONTAINER_REMOVING] = "removing",
};
_Static_assert(ARRAY_SIZE(status_name) == CONTAINER_STATUS_COUNT, "name every status");

static void put_time(struct json_writer *w, const char *key, int64_t ms)
{
    char text[CLOCK_ISO_SIZE];
    if (ms)
        clock_iso(ms, text);
    json_member_string(w, key, ms ? text : "0001-01-01T00:00:00Z");
}

static void put_member(struct json_writer *w, const char *key, const struct json_value *v,
                       const char *otherwise)
{
    json_put_key(w, key);
    if (v)
        json_put_value(w, v);
    else
        json_put_raw(w, otherwise, strlen(otherwise));
}

static void put_state(struct json_writer *w, const struct container *c)
{
    json_put_key(w, "State");
    json_object_begin(w);
    json_member_string(w, "Status", status_name[c->status]);
    json_member_bool(w, "Running", c->status == CONTAINER_RUNNING || c->status == CONTAINER_RESTARTING);
    json_member_bool(w, "Paused", false);
    json_member_bool(w, "Restarting", c->status == CONTAINER_RESTARTING);
    json_member_bool(w, "OOMKilled", false);
    json_member_bool(w, "Dead", false);
    json_member_int(
        w, "Pid",
        c->status == CONTAINER_RUNNING ? 1 : 0); /* inside: the host's numbers are nobody's business */
    json_member_int(w, "ExitCode", c->exit_code);
    json_member_string(w, "Error", "");
    put_time(w, "StartedAt", c->started_ms);
    put_time(w, "FinishedAt", c->finished_ms);
    json_object_end(w);
}

static void put_config(struct json_writer *w, const struct container *c)
{
    static const struct {
        const char *key, *otherwise;
    } members[] = {{"Entrypoint", "null"}, {"Cmd", "null"},  {"Env", "[]"},         {"WorkingDir", "\"\""},
                   {"User", "\"\""},       {"Labels", "{}"}, {"ExposedPorts", "{}"}};
    const struct json_value *config = json_root(c->doc);
    char host[16];
    (void)snprintf(host, sizeof host, "%.12s", c->id);
    json_put_key(w, "Config");
    json_object_begin(w);
    json_member_string(w, "Hostname", host);
    json_member_string(w, "Image", c->image);
    for (size_t i = 0; i < ARRAY_SIZE(members); i++)
        put_member(w, members[i].key, json_get(config, members[i].key), members[i].otherwise);
    json_object_end(w);
}

/* A sidecar's one port is on the host's loopback interface; other containers are reached through theirs. */
static void put_network(struct json_writer *w, const struct container *c)
{
    char port[8];
    json_put_key(w, "NetworkSettings");
    json_object_begin(w);
    json_put_key(w, "Ports");
    json_object_begin(w);
    if (c->is_sidecar && c->status == CONTAINER_RUNNING) {
        (void)snprintf(port, sizeof port, "%d", c->host_port);
        json_put_key(w, "39001/tcp");
        json_array_begin(w);
        json_object_begin(w);
        json_member_string(w, "HostIp", "127.0.0.1");
        json_member_string(w, "HostPort", port);
        json_object_end(w);
        json_array_end(w);
    }
    json_object_end(w);
    put_member(w, "Networks", NULL, "{}");
    json_member_string(w, "IPAddress", "");
    json_object_end(w);
}

void docker_view_container(struct docker_request *r, struct container *c)
{
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    const struct json_value *config = json_root(c->doc);
    const char *image = json_string(json_get(config, "ImageId"), NULL);
    char text[DOCKER_NAME_MAX + 16];
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_string(&w, "Id", c->id);
    put_time(&w, "Created", c->created_ms);
    (void)snprintf(text, sizeof text, "/%s", c->name);
    json_member_string(&w, "Name", text);
    (void)snprintf(text, sizeof text, "sha256:%.64s", image ? image : "");
    json_member_string(&w, "Image", text);
    json_member_int(&w, "RestartCount", c->restarts);
    json_member_string(&w, "Platform", "linux");
    json_member_string(&w, "Driver", "silica");
    json_member_string(&w, "Sandbox", c->is_sidecar ? "" : c->sandbox);
    put_state(&w, c);
    put_config(&w, c);
    put_member(&w, "HostConfig", json_get(config, "HostConfig"), "{}");
    put_network(&w, c);
    put_member(&w, "Mounts", NULL, "[]");
    json_object_end(&w);
    docker_reply_json(r->req, 200, &w);
}

/* ------------------------------------------------------------------ the list */

static bool ancestor_matches(const char *value, void *arg)
{
    const struct container *c = arg;
    const char *id = json_string(json_get(json_root(c->doc), "ImageId"), NULL);
    if (strncmp(value, "sha256:", 7) == 0)
        value += 7;
    return docker_same_image(c->image, value) ||
           (id && *id && strlen(value) >= 8 && strncmp(id, value, strlen(value)) == 0);
}

static bool label_matches(const char *value, void *arg)
{
    const struct container *c = arg;
    return docker_label_matches(json_get(json_root(c->doc), "Labels"), value);
}

static bool name_matches(const char *value, void *arg)
{
    const struct container *c = arg;
    value += *value == '^';
    value += *value == '/';
    size_t n = strlen(value);
    if (n && value[n - 1] == '$') /* the only patterns that are used: the whole name */
        return strlen(c->name) == n - 1 && strncmp(c->name, value, n - 1) == 0;
    return strstr(c->name, value) != NULL;
}

static bool status_matches(const char *value, void *arg)
{
    const struct container *c = arg;
    return strcmp(value, status_name[c->status]) == 0;
}

static bool id_matches(const char *value, void *arg)
{
    const struct container *c = arg;
    return strncmp(c->id, value, strlen(value)) == 0;
}

static bool listed(struct container *c, const struct json_value *filters, bool all)
{
    all |= json_count(json_get(filters, "status")) > 0;
    return (all || c->status == CONTAINER_RUNNING || c->status == CONTAINER_RESTARTING) &&
           docker_filter(filters, "ancestor", ancestor_matches, c) &&
           docker_filter_all(filters, "label", label_matches, c) &&
           docker_filter(filters, "name", name_matches, c) &&
           docker_filter(filters, "status", status_matches, c) && docker_filter(filters, "id", id_matches, c);
}

static void put_item(struct json_writer *w, const struct container *c)
{
    const struct json_value *config = json_root(c->doc);
    const char *image = json_string(json_get(config, "ImageId"), NULL);
    struct buf command = BUF_INIT(4096);
    char text[DOCKER_NAME_MAX + 16];
    json_object_begin(w);
    json_member_string(w, "Id", c->id);
    json_put_key(w, "Names");
    json_array_begin(w);
    (void)snprintf(text, sizeof text, "/%s", c->name);
    json_put_string(w, text);
    json_array_end(w);
    json_member_string(w, "Image", c->image);
    (void)snprintf(text, sizeof text, "sha256:%.64s", image ? image : "");
    json_member_string(w, "ImageID", text);
    json_for_each (word, json_get(config, "Entrypoint"))
        (void)buf_printf(&command, "%s%s", buf_len(&command) ? " " : "", json_string(word, NULL));
    json_for_each (word, json_get(config, "Cmd"))
        (void)buf_printf(&command, "%s%s", buf_len(&command) ? " " : "", json_string(word, NULL));
    json_put_key(w, "Command");
    json_put_bytes(w, buf_len(&command) ? buf_data(&command) : "", buf_len(&command));
    buf_done(&command);
    json_member_int(w, "Created", c->created_ms / 1000);
    json_member_string(w, "State", status_name[c->status]);
    if (c->status == CONTAINER_EXITED)
        (void)snprintf(text, sizeof text, "Exited (%d)", c->exit_code);
    else
        (void)snprintf(text, sizeof text, "%s",
                       c->status == CONTAINER_RUNNING ? "Up" : status_name[c->status]);
    json_member_string(w, "Status", text);
    put_member(w, "Labels", json_get(config, "Labels"), "{}");
    put_member(w, "Ports", NULL, "[]");
    put_member(w, "Mounts", NULL, "[]");
    put_member(w, "HostConfig", json_get(config, "HostConfig"), "{}");
    json_object_end(w);
}

void docker_view_list(struct docker_request *r)
{
    struct buf out = BUF_INIT(REPLY_MAX_BYTES);
    struct json_writer w;
    struct error e;
    char all[8] = "";
    auto_free char *text = malloc(FILTERS_MAX);
    auto_json struct json_doc *filters = NULL;
    (void)http_query_get(r->req->query, "all", all, sizeof all);
    if (!text) {
        docker_reply_error(r->req, 500, "out of memory");
        return;
    }
    if (strstr(r->req->query, "filters=") && (!http_query_get(r->req->query, "filters", text, FILTERS_MAX) ||
                                              json_parse(text, strlen(text), 0, &filters, &e) < 0)) {
        docker_reply_error(r->req, 400, "filters must be a JSON object of at most %d bytes", FILTERS_MAX);
        return;
    }
    json_writer_init(&w, &out);
    json_array_begin(&w);
    for (struct container *c = r->docker->containers; c; c = c->next)
        if (listed(c, filters ? json_root(filters) : NULL, strcmp(all, "1") == 0 || strcmp(all, "true") == 0))
            put_item(&w, c);
    json_array_end(&w);
    docker_reply_json(r->req, 200, &w);
}
