/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_settings.c: see sandbox_settings.h. */
#include "gateway/sandbox_settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { VOLUMES_TEXT_MAX = 16 * 1024 };

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

bool sandbox_settings_equal(const struct sandbox_settings *a, const struct sandbox_settings *b)
{
    return same_text(a->user, b->user) && same_text(a->workdir, b->workdir) &&
           same_text(a->hostname, b->hostname) && same_text(a->volumes, b->volumes);
}

int sandbox_settings_copy(struct sandbox_settings *dst, const struct sandbox_settings *src)
{
    char *const from[] = {src->user, src->workdir, src->hostname, src->volumes};
    char **const to[] = {&dst->user, &dst->workdir, &dst->hostname, &dst->volumes};
    bool ok = true;
    *dst = (struct sandbox_settings){0};
    for (size_t i = 0; i < ARRAY_SIZE(from); i++)
        ok &= !from[i] || (*to[i] = strdup(from[i]));
    if (!ok)
        sandbox_settings_done(dst);
    return ok ? 0 : -ENOMEM;
}

void sandbox_settings_done(struct sandbox_settings *s)
{
    free(s->user);
    free(s->workdir);
    free(s->hostname);
    free(s->volumes);
    *s = (struct sandbox_settings){0};
}

/* ------------------------------------------------------------------ user, workdir, hostname */

/* A name as useradd makes them, or a number inside the sandbox's range. */
static bool account_ok(const char *s, size_t n)
{
    size_t digits = strspn(s, "0123456789");
    if (n == 0 || n > 32)
        return false;
    if (digits >= n)
        return n <= 5 && strtoul(s, NULL, 10) <= CONFIG_ID_MAX;
    if (s[0] == '-' || s[0] == '.')
        return false;
    return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") >= n;
}

static int check_user(const char *s, struct problem *p)
{
    size_t n = strcspn(s, ":");
    if (!account_ok(s, n) || (s[n] && !account_ok(s + n + 1, strlen(s + n + 1))))
        return problem_field(
            p, "user",
            "user must be the name or number (at most %d) of a user of the image, perhaps with "
            "':' and a group behind it",
            CONFIG_ID_MAX);
    return 0;
}

static int check_workdir(const char *s, struct problem *p)
{
    bool ok = s[0] == '/' && strlen(s) <= CONFIG_WORKDIR_MAX;
    for (const char *c = s; ok && *c; c++)
        ok = (unsigned char)*c >= 0x20 && *c != 0x7f;
    return ok ? 0
              : problem_field(p, "workdir", "workdir must be an absolute path of at most %d bytes",
                              CONFIG_WORKDIR_MAX);
}

static int check_hostname(const char *s, struct problem *p)
{
    return machine_name_ok(s)
               ? 0
               : problem_field(p, "hostname", "hostname must be 1 to %d letters, digits, '-' and '.'",
                               MACHINE_NAME_MAX);
}

static int no_memory(struct problem *p)
{
    return problem_set(p, 500, "INTERNAL_ERROR", "out of memory");
}

static int apply_text(char **slot, const char *field, const struct json_value *v,
                      int (*check)(const char *s, struct problem *p), struct problem *p)
{
    if (json_type_of(v) == JSON_NULL)
        return 0;
    const char *s = json_string(v, NULL);
    if (!s)
        return problem_field(p, field, "%s must be a string", field);
    int r = *s ? check(s, p) : 0;
    if (r < 0)
        return r;
    char *copy = *s ? strdup(s) : NULL;
    if (*s && !copy)
        return no_memory(p);
    free(*slot);
    *slot = copy;
    return 0;
}

/* ------------------------------------------------------------------ volumes */

/* Unknown members are refused: a misspelt "readOnly" would be writable. */
static int read_volume(const struct json_value *v, struct keeper_volume_mount *ret, struct problem *p)
{
    struct error e;
    const char *name = NULL, *path = NULL;
    if (json_type_of(v) != JSON_OBJECT)
        return problem_field(p, "volumes",
                             "a volume is an object such as {\"name\": \"data\", \"path\": \"/data\"}");
    *ret = (struct keeper_volume_mount){0};
    json_for_each (m, v) {
        const char *key = json_key(m);
        if (strcmp(key, "name") == 0)
            name = json_string(m, NULL);
        else if (strcmp(key, "path") == 0)
            path = json_string(m, NULL);
        else if (strcmp(key, "readOnly") != 0)
            return problem_field(p, "volumes", "a volume has name, path and readOnly, and no '%.40s'", key);
        else if (json_type_of(m) != JSON_BOOL)
            return problem_field(p, "volumes", "readOnly must be true or false");
        else
            ret->read_only = json_bool(m, false);
    }
    if (!name || !volume_name_ok(name))
        return problem_field(p, "volumes", "the name of a volume is 1 to %d letters, digits, '.', '_' or '-'",
                             VOLUME_NAME_MAX);
    if (!path || volume_path_check(path, &e) < 0)
        return problem_field(p, "volumes", "%s", path ? e.msg : "the path of a volume is missing");
    memcpy(ret->name, name, strlen(name));
    memcpy(ret->path, path, strlen(path));
    return 0;
}

/* Those above before those below, so that each finds its directory. */
static int compare_paths(const void *a, const void *b)
{
    const struct keeper_volume_mount *x = a, *y = b;
    return strcmp(x->path, y->path);
}

static char *volumes_text(const struct keeper_volume_mount *v, size_t count)
{
    struct buf out = BUF_INIT(VOLUMES_TEXT_MAX);
    struct json_writer w;
    json_writer_init(&w, &out);
    json_array_begin(&w);
    for (size_t i = 0; i < count; i++) {
        json_object_begin(&w);
        json_member_string(&w, "name", v[i].name);
        json_member_string(&w, "path", v[i].path);
        json_member_bool(&w, "readOnly", v[i].read_only);
        json_object_end(&w);
    }
    json_array_end(&w);
    char *text = w.err == 0 && buf_cstr(&out) ? strdup(buf_data(&out)) : NULL;
    buf_done(&out);
    return text;
}

static int apply_volumes(char **slot, const struct json_value *v, struct problem *p)
{
    struct keeper_volume_mount list[KEEPER_VOLUMES_MAX];
    size_t count = 0;
    if (json_type_of(v) == JSON_NULL)
        return 0;
    if (json_type_of(v) != JSON_ARRAY)
        return problem_field(p, "volumes", "volumes must be a list");
    if (json_count(v) > KEEPER_VOLUMES_MAX)
        return problem_field(p, "volumes", "a sandbox can have %d volumes", KEEPER_VOLUMES_MAX);
    json_for_each (child, v) {
        int r = read_volume(child, &list[count++], p);
        if (r < 0)
            return r;
    }
    qsort(list, count, sizeof list[0], compare_paths);
    for (size_t i = 1; i < count; i++)
        if (strcmp(list[i - 1].path, list[i].path) == 0)
            return problem_field(p, "volumes", "two volumes have the path %.200s", list[i].path);
    char *text = count ? volumes_text(list, count) : NULL;
    if (count && !text)
        return no_memory(p);
    free(*slot);
    *slot = text;
    return 0;
}

size_t sandbox_settings_volumes(const struct sandbox_settings *s,
                                struct keeper_volume_mount v[KEEPER_VOLUMES_MAX])
{
    struct error e;
    struct problem p;
    size_t count = 0;
    memset(v, 0, KEEPER_VOLUMES_MAX * sizeof v[0]);
    auto_free char *copy = s->volumes ? strdup(s->volumes) : NULL;
    auto_json struct json_doc *doc = NULL;
    if (!copy || json_parse(copy, strlen(copy), 0, &doc, &e) < 0)
        return 0;
    json_for_each (child, json_root(doc)) {
        if (count == KEEPER_VOLUMES_MAX || read_volume(child, &v[count], &p) < 0)
            break;
        count++;
    }
    return count;
}

/* ------------------------------------------------------------------ all of them */

int sandbox_settings_apply(struct sandbox_settings *s, const struct json_value *body, struct problem *p)
{
    int r;
    if ((r = apply_text(&s->user, "user", json_get(body, "user"), check_user, p)) < 0 ||
        (r = apply_text(&s->workdir, "workdir", json_get(body, "workdir"), check_workdir, p)) < 0 ||
        (r = apply_text(&s->hostname, "hostname", json_get(body, "hostname"), check_hostname, p)) < 0 ||
        (r = apply_volumes(&s->volumes, json_get(body, "volumes"), p)) < 0)
        return r;
    return 0;
}

void sandbox_settings_put_json(struct json_writer *w, const struct sandbox_settings *s)
{
    if (s->user)
        json_member_string(w, "user", s->user);
    if (s->workdir)
        json_member_string(w, "workdir", s->workdir);
    if (s->hostname)
        json_member_string(w, "hostname", s->hostname);
    if (s->volumes) {
        json_put_key(w, "volumes");
        json_put_raw(w, s->volumes, strlen(s->volumes));
    }
}

static int put_boot(struct buf *out, const char *name, const char *value)
{
    if (!value)
        return 0;
    int r = buf_putc(out, '=');
    r = r < 0 ? r : buf_puts(out, name);
    r = r < 0 ? r : buf_putc(out, '=');
    return r < 0 ? r : buf_append(out, value, strlen(value) + 1);
}

int sandbox_settings_put_boot(struct buf *out, const struct sandbox_settings *s)
{
    struct keeper_volume_mount v[KEEPER_VOLUMES_MAX];
    size_t count = sandbox_settings_volumes(s, v);
    int r;
    if ((r = put_boot(out, "user", s->user)) < 0 || (r = put_boot(out, "workdir", s->workdir)) < 0 ||
        (r = put_boot(out, "hostname", s->hostname)) < 0)
        return r;
    for (size_t i = 0; i < count && r == 0; i++)
        if (!v[i].read_only)
            r = put_boot(out, "volume", v[i].path);
    return r;
}
