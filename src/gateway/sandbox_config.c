/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_config.c: the body of PUT /v1/sandbox/{id}, field by field; see sandbox_config.h. */
#include "gateway/sandbox_config.h"
#include "gateway/images.h"
#include "gateway/duration.h"
#include "base/quantity.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "{}", b ? b : "{}") == 0;
}

int sandbox_config_copy(struct sandbox_config *dst, const struct sandbox_config *src)
{
    *dst = *src;
    dst->env = src->env ? strdup(src->env) : NULL;
    dst->labels = src->labels ? strdup(src->labels) : NULL;
    int r = sandbox_settings_copy(&dst->settings, &src->settings);
    if (sandbox_reach_copy(&dst->reach, &src->reach) < 0 || r < 0 || (src->env && !dst->env) ||
        (src->labels && !dst->labels)) {
        sandbox_config_done(dst);
        return -ENOMEM;
    }
    return 0;
}

void sandbox_config_done(struct sandbox_config *c)
{
    free(c->env);
    free(c->labels);
    sandbox_settings_done(&c->settings);
    sandbox_reach_done(&c->reach);
    c->env = c->labels = NULL;
}

static bool is_set(const struct json_value *v)
{
    return json_type_of(v) != JSON_NULL;
}

static int apply_image(struct sandbox_config *c, const struct json_value *v, struct problem *p)
{
    if (!is_set(v))
        return 0;
    const char *name = json_string(v, NULL);
    if (!name)
        return problem_field(p, "image", "image must be a string");
    char reference[IMAGE_REFERENCE_MAX + 1];
    struct problem unused;
    if (keeper_image_name_ok(name))
        (void)snprintf(c->image, sizeof c->image, "%s", name);
    else if (image_reference_parse(name, reference, &unused) < 0) /* the caller finds out whose name it is */
        return problem_field(p, "image", "image must be the name or the id of an image");
    return 0;
}

static int apply_instance_type(struct sandbox_config *c, const struct json_value *v, struct problem *p)
{
    if (!is_set(v))
        return 0;
    const char *name = json_string(v, NULL);
    if (!name)
        return problem_field(p, "instanceType", "instanceType must be a string");
    const struct instance_type *t = instance_type_find(name);
    if (!t)
        return problem_field(p, "instanceType",
                             "instanceType must be one of lite, basic, standard-1 to standard-4");
    c->limits = t->limits;
    (void)snprintf(c->instance_type, sizeof c->instance_type, "%s", t->name);
    return 0;
}

/* A count, or for sizes also a text such as "512MiB". */
static int read_amount(const char *field, const struct json_value *v, bool text, uint64_t *ret,
                       struct problem *p)
{
    int64_t n;
    const char *s = text ? json_string(v, NULL) : NULL;
    if (s) {
        int r = quantity_bytes(s, ret);
        if (r == -ERANGE)
            return problem_field(p, field, "%s is out of range", field);
        if (r < 0)
            return problem_field(p, field, "%s must be a number of bytes or a text such as \"512MiB\"",
                                 field);
        return 0;
    }
    if (json_type_of(v) != JSON_NUMBER)
        return problem_field(p, field, "%s must be a whole number%s", field,
                             text ? " of bytes or a text such as \"512MiB\"" : "");
    if (!json_integer(v, 0, INT64_C(1) << 53, &n))
        return problem_field(p, field, "%s must be a whole number between 0 and 2^53", field);
    *ret = (uint64_t)n;
    return 0;
}

static int read_cpu(const struct json_value *v, uint32_t *ret_milli, struct problem *p)
{
    double cores;
    if (!json_number(v, &cores))
        return problem_field(p, "limits.cpu", "limits.cpu must be a number of cores");
    if (!(cores >= 0.01 && cores <= 1024))
        return problem_field(p, "limits.cpu", "limits.cpu must be between 0.01 and 1024 cores");
    *ret_milli = (uint32_t)lround(cores * 1000);
    return 0;
}

/* The counted limits. Two names for one limit are allowed, the later in the text wins, like repeated names.
 */
static const struct {
    const char *name, *field;
    size_t offset;
    bool text;   /* also accepts "512MiB" */
    bool narrow; /* a uint32_t */
} amounts[] = {
    {"memoryBytes", "limits.memoryBytes", offsetof(struct limits, memory_bytes), false, false},
    {"memory", "limits.memory", offsetof(struct limits, memory_bytes), true, false},
    {"diskBytes", "limits.diskBytes", offsetof(struct limits, disk_bytes), false, false},
    {"disk", "limits.disk", offsetof(struct limits, disk_bytes), true, false},
    {"inodes", "limits.inodes", offsetof(struct limits, disk_inodes), false, false},
    {"ioBytesPerSecond", "limits.ioBytesPerSecond", offsetof(struct limits, io_bps), true, false},
    {"ioOperationsPerSecond", "limits.ioOperationsPerSecond", offsetof(struct limits, io_iops), false, false},
    {"tasks", "limits.tasks", offsetof(struct limits, tasks), false, true},
};

static int apply_limit(struct limits *l, const struct json_value *v, struct problem *p)
{
    struct error e;
    if (strcmp(json_key(v), "cpu") == 0) {
        int r = read_cpu(v, &l->cpu_milli, p);
        if (r == 0 && limits_check(l, &e) < 0)
            return problem_field(p, "limits.cpu", "%s", e.msg);
        return r;
    }
    for (size_t i = 0; i < ARRAY_SIZE(amounts); i++) {
        if (strcmp(json_key(v), amounts[i].name) != 0)
            continue;
        const char *field = amounts[i].field;
        uint64_t n;
        int r = read_amount(field, v, amounts[i].text, &n, p);
        if (r < 0)
            return r;
        if (amounts[i].narrow && n > UINT32_MAX)
            return problem_field(p, field, "%s is out of range", field);
        char *at = (char *)l + amounts[i].offset;
        if (amounts[i].narrow)
            memcpy(at, &(uint32_t){(uint32_t)n}, sizeof(uint32_t));
        else
            memcpy(at, &n, sizeof n);
        /* every other limit is already inside its range, so the complaint is about this one */
        if (limits_check(l, &e) < 0)
            return problem_field(p, field, "limits: %s", e.msg);
        return 0;
    }
    char field[64];
    (void)snprintf(field, sizeof field, "limits.%.40s", json_key(v));
    return problem_field(p, field, "there is no such limit");
}

/* Limits of the network, which can change while the sandbox runs. 1: this is none of them. */
static int apply_reach_limit(struct sandbox_reach *reach, const struct json_value *v, struct problem *p)
{
    uint64_t n;
    if (strcmp(json_key(v), "networkBytesPerSecond") == 0) {
        const char *field = "limits.networkBytesPerSecond";
        int r = read_amount(field, v, true, &n, p);
        if (r < 0)
            return r;
        if (n && (n < KEEPER_NET_BPS_MIN || n > KEEPER_NET_BPS_MAX))
            return problem_field(
                p, field, "limits.networkBytesPerSecond must be 0 (no limit) or between %llu and %llu",
                (unsigned long long)KEEPER_NET_BPS_MIN, (unsigned long long)KEEPER_NET_BPS_MAX);
        reach->bytes_per_second = n;
        return 0;
    }
    if (strcmp(json_key(v), "connections") == 0) {
        int r = read_amount("limits.connections", v, false, &n, p);
        if (r < 0)
            return r;
        if (n < 1 || n > KEEPER_CONNECTIONS_MAX)
            return problem_field(p, "limits.connections", "limits.connections must be between 1 and %d",
                                 KEEPER_CONNECTIONS_MAX);
        reach->connections = n == KEEPER_CONNECTIONS_DEFAULT ? 0 : (uint32_t)n;
        return 0;
    }
    return 1;
}

static int apply_limits(struct sandbox_config *c, const struct json_value *v, struct problem *p)
{
    if (!is_set(v))
        return 0;
    if (json_type_of(v) != JSON_OBJECT)
        return problem_field(p, "limits", "limits must be an object");
    json_for_each (child, v) {
        if (!is_set(child))
            continue;
        int r = apply_reach_limit(&c->reach, child, p);
        if (r <= 0) {
            if (r < 0)
                return r;
            continue;
        }
        if ((r = apply_limit(&c->limits, child, p)) < 0)
            return r;
        c->instance_type[0] = '\0';
    }
    return 0;
}

static int apply_sleep_after(struct sandbox_config *c, const struct json_value *v, struct problem *p)
{
    double seconds;
    int r;
    if (!is_set(v))
        return 0;
    const char *s = json_string(v, NULL);
    if (s)
        r = duration_parse(s, &c->sleep_after_ms);
    else if (json_number(v, &seconds))
        r = duration_from_seconds(seconds, &c->sleep_after_ms);
    else
        r = -EINVAL;
    if (r == -ERANGE)
        return problem_field(p, "sleepAfter", "sleepAfter must be between 0.1 seconds and 365 days");
    if (r < 0)
        return problem_field(
            p, "sleepAfter",
            "sleepAfter must be a text such as \"30s\", \"10m\" or \"1h\", or a number of seconds");
    return 0;
}

static int apply_flag(bool *flag, const char *field, const struct json_value *v, struct problem *p)
{
    if (!is_set(v))
        return 0;
    if (json_type_of(v) != JSON_BOOL)
        return problem_field(p, field, "%s must be true or false", field);
    *flag = json_bool(v, *flag);
    return 0;
}

static int check_env(const struct json_value *v, struct problem *p)
{
    size_t total = 0;
    if (json_count(v) > CONFIG_ENV_MAX)
        return problem_field(p, "env", "env has more than %d variables", CONFIG_ENV_MAX);
    json_for_each (child, v) {
        const char *name = json_key(child);
        size_t len, name_len = strlen(name);
        if (!json_string(child, &len))
            return problem_field(p, "env", "env values must be strings; '%.60s' is none", name);
        if (name_len == 0 || strchr(name, '='))
            return problem_field(p, "env", "a variable's name must not be empty or contain '='");
        for (const char *s = name; *s; s++)
            if ((unsigned char)*s < 0x20 || *s == 0x7f)
                return problem_field(p, "env", "a variable's name must not contain control characters");
        if (name_len > CONFIG_ENV_VALUE || len > CONFIG_ENV_VALUE)
            return problem_field(p, "env", "a variable is limited to %d bytes", CONFIG_ENV_VALUE);
        total += name_len + len + 2;
    }
    if (total > CONFIG_ENV_BYTES)
        return problem_field(p, "env", "env is limited to %d bytes in all", CONFIG_ENV_BYTES);
    return 0;
}

static bool is_label_key(const char *key)
{
    size_t n = strlen(key);
    return n > 0 && n <= CONFIG_LABEL_KEY &&
           strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-") == n;
}

static int check_labels(const struct json_value *v, struct problem *p)
{
    if (json_count(v) > CONFIG_LABELS_MAX)
        return problem_field(p, "labels", "there can be %d labels at most", CONFIG_LABELS_MAX);
    json_for_each (child, v) {
        size_t len;
        if (!is_label_key(json_key(child)))
            return problem_field(p, "labels",
                                 "a label's name is 1 to %d letters, digits, '.', '_', '/' or '-'",
                                 CONFIG_LABEL_KEY);
        if (!json_string(child, &len))
            return problem_field(p, "labels", "label values must be strings");
        if (len > CONFIG_LABEL_VALUE)
            return problem_field(p, "labels", "a label's value is limited to %d bytes", CONFIG_LABEL_VALUE);
    }
    return 0;
}

/* Stores an object as text; of repeated names only the last stays, so that all readers agree. */
static int apply_object(char **slot, const char *field, const struct json_value *v,
                        int (*check)(const struct json_value *v, struct problem *p), struct problem *p)
{
    if (!is_set(v))
        return 0;
    if (json_type_of(v) != JSON_OBJECT)
        return problem_field(p, field, "%s must be an object", field);
    int r = check(v, p);
    if (r < 0)
        return r;

    struct buf out = BUF_INIT((size_t)8 * CONFIG_ENV_BYTES); /* escapes may sextuple a byte */
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object_begin(&w);
    json_for_each (child, v) {
        if (json_get(v, json_key(child)) != child)
            continue;
        json_member_string(&w, json_key(child), json_string(child, NULL));
    }
    json_object_end(&w);
    char *text = w.err == 0 && buf_cstr(&out) ? strdup(buf_data(&out)) : NULL;
    buf_done(&out);
    if (!text)
        return problem_set(p, 500, "INTERNAL_ERROR", "out of memory");
    free(*slot);
    *slot = text;
    return 0;
}

int sandbox_config_apply(struct sandbox_config *c, const struct json_value *body, struct problem *p)
{
    int r;
    if (json_type_of(body) != JSON_OBJECT)
        return problem_field(p, "body", "the body must be a JSON object");
    if ((r = apply_image(c, json_get(body, "image"), p)) < 0 ||
        (r = apply_instance_type(c, json_get(body, "instanceType"), p)) < 0 ||
        (r = apply_limits(c, json_get(body, "limits"), p)) < 0 ||
        (r = apply_object(&c->env, "env", json_get(body, "env"), check_env, p)) < 0 ||
        (r = apply_object(&c->labels, "labels", json_get(body, "labels"), check_labels, p)) < 0 ||
        (r = sandbox_reach_apply(&c->reach, json_get(body, "network"), p)) < 0 ||
        (r = sandbox_settings_apply(&c->settings, body, p)) < 0 ||
        (r = apply_sleep_after(c, json_get(body, "sleepAfter"), p)) < 0 ||
        (r = apply_flag(&c->keep_alive, "keepAlive", json_get(body, "keepAlive"), p)) < 0 ||
        (r = apply_flag(&c->ephemeral, "ephemeral", json_get(body, "ephemeral"), p)) < 0)
        return r;
    return 0;
}

static bool same_limits(const struct limits *a, const struct limits *b)
{
    return a->memory_bytes == b->memory_bytes && a->disk_bytes == b->disk_bytes &&
           a->disk_inodes == b->disk_inodes && a->io_bps == b->io_bps && a->io_iops == b->io_iops &&
           a->tasks == b->tasks && a->cpu_milli == b->cpu_milli;
}

bool sandbox_config_same_machine(const struct sandbox_config *a, const struct sandbox_config *b)
{
    return strcmp(a->image, b->image) == 0 && same_limits(&a->limits, &b->limits);
}

bool sandbox_config_equal(const struct sandbox_config *a, const struct sandbox_config *b)
{
    return sandbox_config_same_machine(a, b) && sandbox_reach_equal(&a->reach, &b->reach) &&
           strcmp(a->instance_type, b->instance_type) == 0 &&
           sandbox_settings_equal(&a->settings, &b->settings) && same_text(a->env, b->env) &&
           same_text(a->labels, b->labels) && a->sleep_after_ms == b->sleep_after_ms &&
           a->keep_alive == b->keep_alive && a->ephemeral == b->ephemeral;
}
