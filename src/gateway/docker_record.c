/* SPDX-License-Identifier: Apache-2.0 */
/* docker_record.c: a container on disk: one JSON text in the gateway's store. */
#include "gateway/docker_internal.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { RECORD_MAX = 8 << 20 };

/* CREATED and STARTING are one: what was being started when we went was not promised to anybody. */
static const char *const status_name[] = {
    [CONTAINER_CREATED] = "created", [CONTAINER_STARTING] = "created",
    [CONTAINER_RUNNING] = "running", [CONTAINER_RESTARTING] = "restarting",
    [CONTAINER_EXITED] = "exited",   [CONTAINER_REMOVING] = "removing",
};
_Static_assert(ARRAY_SIZE(status_name) == CONTAINER_STATUS_COUNT, "name every status");

void container_save(struct container *c, store_done *done, void *arg)
{
    struct buf out = BUF_INIT(RECORD_MAX);
    struct json_writer w;
    struct container_row row = {0};
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_member_string(&w, "name", c->name);
    json_member_string(&w, "image", c->image);
    json_member_bool(&w, "sidecar", c->is_sidecar);
    json_member_string(&w, "status", status_name[c->status]);
    json_member_int(&w, "exitCode", c->exit_code);
    json_member_int(&w, "createdMs", c->created_ms);
    json_member_int(&w, "startedMs", c->started_ms);
    json_member_int(&w, "finishedMs", c->finished_ms);
    json_member_int(&w, "restarts", c->restarts);
    json_member_int(&w, "hostPort", c->host_port);
    if (c->secret)
        json_member_string(&w, "secret", c->secret);
    if (c->egress)
        json_member_string(&w, "egress", c->egress);
    json_put_key(&w, "config");
    json_put_raw(&w, c->config, strlen(c->config));
    json_object_end(&w);
    memcpy(row.id, c->id, sizeof row.id);
    row.record = buf_cstr(&out);
    if (w.err < 0 || !row.record)
        abort(); /* without memory nothing can be promised; a restart loses nothing */
    (void)store_put_container(c->docker->g->store, &row, done, arg);
    buf_done(&out);
}

static int copy_text(const struct json_value *v, char **ret)
{
    const char *text = json_string(v, NULL);
    if (!text)
        return -EINVAL;
    *ret = strdup(text);
    return *ret ? 0 : -ENOMEM;
}

static int64_t number(const struct json_value *record, const char *key)
{
    int64_t n = 0;
    (void)json_integer(json_get(record, key), 0, INT64_MAX, &n);
    return n;
}

static int read_record(struct container *c, const struct json_value *record)
{
    struct buf config = BUF_INIT(RECORD_MAX);
    struct json_writer w;
    const char *status = json_string(json_get(record, "status"), NULL);
    int r;
    if ((r = copy_text(json_get(record, "name"), &c->name)) < 0 ||
        (r = copy_text(json_get(record, "image"), &c->image)) < 0)
        return r;
    if (json_get(record, "secret") && (r = copy_text(json_get(record, "secret"), &c->secret)) < 0)
        return r;
    if (json_get(record, "egress") && (r = copy_text(json_get(record, "egress"), &c->egress)) < 0)
        return r;
    c->status = CONTAINER_EXITED;
    for (int i = 0; i < CONTAINER_STATUS_COUNT; i++)
        if (status && strcmp(status, status_name[i]) == 0 && i != CONTAINER_STARTING)
            c->status = (enum container_status)i;
    c->is_sidecar = json_bool(json_get(record, "sidecar"), false);
    c->exit_code = (int)number(record, "exitCode");
    c->created_ms = number(record, "createdMs");
    c->started_ms = number(record, "startedMs");
    c->finished_ms = number(record, "finishedMs");
    c->restarts = (unsigned)number(record, "restarts");
    c->host_port = (int)number(record, "hostPort");
    json_writer_init(&w, &config);
    json_put_value(&w, json_get(record, "config"));
    const char *text = buf_cstr(&config);
    r = w.err < 0 || !text ? -ENOMEM : container_set_config(c, text);
    buf_done(&config);
    return r;
}

int container_load(struct docker *d, const struct container_row *row)
{
    struct error e;
    auto_free char *text = strdup(row->record);
    auto_json struct json_doc *doc = NULL;
    if (!text)
        return -ENOMEM;
    if (strlen(row->id) != CONTAINER_ID_CHARS || json_parse(text, strlen(text), 0, &doc, &e) < 0) {
        log_warn("state database: container '%s' skipped", row->id);
        return 0;
    }
    struct container *c = container_new(d, row->id);
    if (!c)
        return -ENOMEM;
    int r = read_record(c, json_root(doc));
    if (r < 0) {
        log_warn("state database: container '%s' skipped", row->id);
        container_free(c);
    }
    return r == -ENOMEM ? r : 0;
}

int container_set_config(struct container *c, const char *config)
{
    struct error e;
    c->config = strdup(config);
    c->doc_text = strdup(config);
    if (!c->config || !c->doc_text)
        return -ENOMEM;
    return json_parse(c->doc_text, strlen(c->doc_text), 0, &c->doc, &e);
}
