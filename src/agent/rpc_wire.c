/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_wire.c: see rpc_wire.h. */
#include "agent/rpc_wire.h"
#include "base/clock.h"

#include <errno.h>
#include <string.h>

#define ID_MAX ((int64_t)1 << 53)
/* years of four digits */
#define DATE_MIN (-62135596800000.0)
#define DATE_MAX 253402300799999.0

const struct json_value *rpc_element(const struct json_value *array, size_t n)
{
    const struct json_value *v = json_type_of(array) == JSON_ARRAY ? json_first(array) : NULL;
    while (v && n--)
        v = json_next(v);
    return v;
}

/* ------------------------------------------------------------------ messages */

int rpc_message_read(const struct json_value *root, struct rpc_message *ret)
{
    static const struct {
        const char *name;
        enum rpc_kind kind;
        bool id, expr;
    } kinds[] = {
        {"push", RPC_PUSH, false, true},       {"pull", RPC_PULL, true, false},
        {"resolve", RPC_RESOLVE, true, true},  {"reject", RPC_REJECT, true, true},
        {"release", RPC_RELEASE, true, false}, {"stream", RPC_STREAM, false, true},
        {"pipe", RPC_PIPE, false, false},      {"abort", RPC_ABORT, false, false},
    };
    const char *name = json_string(rpc_element(root, 0), NULL);
    *ret = (struct rpc_message){0};
    for (size_t i = 0; name && i < ARRAY_SIZE(kinds); i++) {
        if (strcmp(kinds[i].name, name) != 0)
            continue;
        ret->kind = kinds[i].kind;
        if (kinds[i].id && !json_integer(rpc_element(root, 1), -ID_MAX, ID_MAX, &ret->id))
            return -EBADMSG;
        ret->expr = rpc_element(root, kinds[i].id ? 2 : 1);
        if (kinds[i].expr && !ret->expr)
            return -EBADMSG;
        if (ret->kind == RPC_RELEASE && !json_integer(ret->expr, 1, ID_MAX, &ret->count))
            return -EBADMSG;
        return 0;
    }
    return -EBADMSG;
}

/* ------------------------------------------------------------------ forms */

static bool is_path(const struct json_value *v)
{
    if (json_type_of(v) != JSON_ARRAY)
        return false;
    json_for_each (part, v)
        if (json_type_of(part) != JSON_STRING && json_type_of(part) != JSON_NUMBER)
            return false;
    return true;
}

static bool has_id(const struct json_value *expr)
{
    int64_t id;
    return json_integer(rpc_element(expr, 1), -ID_MAX, ID_MAX, &id);
}

static bool is_reference(const struct json_value *expr)
{
    const struct json_value *path = rpc_element(expr, 2), *args = rpc_element(expr, 3);
    return has_id(expr) && json_count(expr) <= 4 && (!path || is_path(path)) &&
           (!args || json_type_of(args) == JSON_ARRAY);
}

static bool is_error(const struct json_value *expr)
{
    const struct json_value *props = rpc_element(expr, 4);
    return json_type_of(rpc_element(expr, 1)) == JSON_STRING &&
           json_type_of(rpc_element(expr, 2)) == JSON_STRING &&
           (!props || json_type_of(props) == JSON_OBJECT);
}

static bool is_date(const struct json_value *expr)
{
    const struct json_value *v = rpc_element(expr, 1);
    return v && (json_type_of(v) == JSON_NUMBER || json_type_of(v) == JSON_NULL);
}

static bool has_string(const struct json_value *expr)
{
    return json_type_of(rpc_element(expr, 1)) == JSON_STRING;
}

static bool is_alone(const struct json_value *expr)
{
    return json_count(expr) == 1;
}

static bool is_whatever(const struct json_value *expr)
{
    (void)expr;
    return true;
}

enum rpc_form rpc_form_of(const struct json_value *expr)
{
    static const struct {
        const char *name;
        enum rpc_form form;
        bool (*fits)(const struct json_value *expr);
    } forms[] = {
        {"undefined", RPC_FORM_UNDEFINED, is_alone},
        {"bytes", RPC_FORM_BYTES, has_string},
        {"pipeline", RPC_FORM_REFERENCE, is_reference},
        {"import", RPC_FORM_REFERENCE, is_reference},
        {"export", RPC_FORM_EXPORT, has_id},
        {"promise", RPC_FORM_EXPORT, has_id},
        {"writable", RPC_FORM_EXPORT, has_id},
        {"readable", RPC_FORM_READABLE, has_id},
        {"error", RPC_FORM_ERROR, is_error},
        {"date", RPC_FORM_DATE, is_date},
        {"bigint", RPC_FORM_BIGINT, has_string},
        {"inf", RPC_FORM_NOT_FINITE, is_whatever},
        {"-inf", RPC_FORM_NOT_FINITE, is_whatever},
        {"nan", RPC_FORM_NOT_FINITE, is_whatever},
        {"headers", RPC_FORM_FOREIGN, is_whatever},
        {"request", RPC_FORM_FOREIGN, is_whatever},
        {"response", RPC_FORM_FOREIGN, is_whatever},
        {"blob", RPC_FORM_FOREIGN, is_whatever},
        {"remap", RPC_FORM_FOREIGN, is_whatever},
    };
    if (json_type_of(expr) != JSON_ARRAY)
        return RPC_FORM_VALUE;
    const struct json_value *first = json_first(expr);
    if (json_type_of(first) == JSON_ARRAY && is_alone(expr))
        return RPC_FORM_ARRAY;
    const char *name = json_string(first, NULL);
    for (size_t i = 0; name && i < ARRAY_SIZE(forms); i++)
        if (strcmp(forms[i].name, name) == 0)
            return forms[i].fits(expr) ? forms[i].form : RPC_FORM_UNKNOWN;
    return RPC_FORM_UNKNOWN;
}

int64_t rpc_id_of(const struct json_value *expr)
{
    int64_t id = 0;
    (void)json_integer(rpc_element(expr, 1), -ID_MAX, ID_MAX, &id);
    return id;
}

struct rpc_reference rpc_reference_of(const struct json_value *expr)
{
    return (struct rpc_reference){rpc_id_of(expr), rpc_element(expr, 2), rpc_element(expr, 3)};
}

/* The array or object whose children are the expressions inside this one; NULL: there are none. */
static const struct json_value *inside(enum rpc_form form, const struct json_value *expr)
{
    const char *name;
    switch (form) {
    case RPC_FORM_VALUE:
        return json_type_of(expr) == JSON_OBJECT ? expr : NULL;
    case RPC_FORM_ARRAY:
        return json_first(expr);
    case RPC_FORM_ERROR:
        return rpc_element(expr, 4);
    case RPC_FORM_REFERENCE:
        return rpc_element(expr, 3);
    case RPC_FORM_FOREIGN: /* what a .map() brings along is exported, too */
        name = json_string(json_first(expr), NULL);
        return strcmp(name, "remap") == 0 ? rpc_element(expr, 3) : NULL;
    default:
        return NULL;
    }
}

/* ------------------------------------------------------------------ walking */

/* No deeper than the reader allows, so the array of open places cannot overflow. */
int rpc_walk(const struct json_value *expr,
             int (*each)(void *arg, enum rpc_form form, const struct json_value *at), void *arg)
{
    const struct json_value *open[JSON_MAX_DEPTH], *at = expr;
    unsigned depth = 0;
    for (;;) {
        enum rpc_form form = rpc_form_of(at);
        int r = form == RPC_FORM_UNKNOWN ? -EBADMSG : each(arg, form, at);
        if (r != 0)
            return r;
        const struct json_value *children = inside(form, at), *first = children ? json_first(children) : NULL;
        if (first) {
            open[depth++] = at;
            at = first;
            continue;
        }
        while (depth && !json_next(at))
            at = open[--depth];
        if (!depth)
            return 0;
        at = json_next(at);
    }
}

/* ------------------------------------------------------------------ to JSON */

static void put_date(struct json_writer *w, const struct json_value *expr)
{
    char text[CLOCK_ISO_SIZE];
    double ms;
    if (!json_number(rpc_element(expr, 1), &ms) || ms < DATE_MIN || ms > DATE_MAX) {
        json_put_null(w);
        return;
    }
    clock_iso((int64_t)ms, text);
    json_put_string(w, text);
}

static void put_bigint(struct json_writer *w, const struct json_value *expr)
{
    size_t n;
    const char *s = json_string(rpc_element(expr, 1), &n);
    size_t sign = n > 1 && s[0] == '-';
    if (n > sign && n <= 300 && (s[sign] != '0' || n == sign + 1) &&
        strspn(s + sign, "0123456789") == n - sign)
        json_put_raw(w, s, n);
    else
        json_put_null(w);
}

/* What has no value as a member of an object. */
static bool is_left_out(enum rpc_form form)
{
    return form == RPC_FORM_UNDEFINED || form == RPC_FORM_EXPORT;
}

/* Writes what stands for itself; 1: it is a container and has been opened. */
static int put_one(struct json_writer *w, enum rpc_form form, const struct json_value *at,
                   rpc_resolver *resolve, void *arg)
{
    struct rpc_reference ref;
    switch (form) {
    case RPC_FORM_VALUE:
        if (json_type_of(at) == JSON_OBJECT) {
            json_object_begin(w);
            return 1;
        }
        json_put_value(w, at);
        return 0;
    case RPC_FORM_ARRAY:
        json_array_begin(w);
        return 1;
    case RPC_FORM_UNDEFINED:
    case RPC_FORM_EXPORT:
    case RPC_FORM_NOT_FINITE:
        json_put_null(w);
        return 0;
    case RPC_FORM_DATE:
        put_date(w, at);
        return 0;
    case RPC_FORM_BIGINT:
        put_bigint(w, at);
        return 0;
    case RPC_FORM_REFERENCE:
        ref = rpc_reference_of(at);
        return resolve && !ref.args ? resolve(arg, &ref, w) : -ENOTSUP;
    default:
        return -ENOTSUP;
    }
}

static void close_one(struct json_writer *w, const struct json_value *at)
{
    if (json_type_of(at) == JSON_OBJECT)
        json_object_end(w);
    else
        json_array_end(w);
}

/* The next sibling that is to be written. */
static const struct json_value *skip_left_out(const struct json_value *at)
{
    while (at && json_key(at) && is_left_out(rpc_form_of(at)))
        at = json_next(at);
    return at;
}

int rpc_to_json(const struct json_value *expr, struct json_writer *w, rpc_resolver *resolve, void *arg)
{
    const struct json_value *open[JSON_MAX_DEPTH], *at = expr, *next;
    unsigned depth = 0;
    while (w->err == 0) {
        if (depth && json_key(at))
            json_put_key(w, json_key(at));
        enum rpc_form form = rpc_form_of(at);
        int r = put_one(w, form, at, resolve, arg);
        if (r < 0)
            return r;
        if (r == 1) {
            next = skip_left_out(json_first(inside(form, at)));
            if (next) {
                open[depth++] = at;
                at = next;
                continue;
            }
            close_one(w, at);
        }
        while (depth && !(next = skip_left_out(json_next(at)))) {
            at = open[--depth];
            close_one(w, at);
        }
        if (!depth)
            break;
        at = next;
    }
    return w->err;
}

/* ------------------------------------------------------------------ from JSON */

/* Behind the string that begins at p. */
static const char *string_end(const char *p, const char *end)
{
    for (p++; p < end; p++) {
        if (*p == '"')
            return p + 1;
        if (*p == '\\')
            p++;
    }
    return end;
}

int rpc_put_json(struct buf *out, const char *json, size_t n)
{
    const char *end = json + n, *from = json;
    int r = 0;
    for (const char *p = json; p < end && r == 0;) {
        if (*p == '"') {
            p = string_end(p, end);
        } else if (*p == '[' || *p == ']') {
            p++;
            r = buf_append(out, from, (size_t)(p - from));
            from = p - 1; /* and once more */
            if (r == 0)
                r = buf_append(out, from, 1);
            from = p;
        } else {
            p++;
        }
    }
    return r < 0 ? r : buf_append(out, from, (size_t)(end - from));
}

int rpc_put_error(struct buf *out, const char *name, const char *message, const char *code)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_array_begin(&w);
    json_put_string(&w, "error");
    json_put_string(&w, name);
    json_put_bytes(&w, message, strlen(message));
    if (code) {
        json_put_null(&w);
        json_object_begin(&w);
        json_member_string(&w, "code", code);
        json_put_key(&w, "details");
        json_put_raw(&w, "{}", 2);
        json_object_end(&w);
    }
    json_array_end(&w);
    return w.err;
}

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
        p++;
    return p;
}

/* Behind the value that begins at p. */
static const char *value_end(const char *p, const char *end)
{
    size_t depth = 0;
    for (; p < end; p++) {
        if (*p == '"') {
            p = string_end(p, end) - 1;
        } else if (*p == '{' || *p == '[') {
            depth++;
        } else if (*p == '}' || *p == ']') {
            if (!depth)
                return p;
            depth--;
        } else if (*p == ',' && !depth) {
            return p;
        }
    }
    return end;
}

size_t rpc_members(const char *json, size_t n, struct rpc_member *ret, size_t max)
{
    const char *end = json + n, *p = skip_space(json, end);
    size_t count = 0;
    if (p == end || *p != '{')
        return 0;
    p = skip_space(p + 1, end);
    while (count < max && p < end && *p == '"') {
        struct rpc_member *m = &ret[count];
        const char *key_end = string_end(p, end);
        m->key = p + 1;
        m->key_len = (size_t)(key_end - p) - MIN((size_t)(key_end - p), (size_t)2);
        p = skip_space(key_end, end);
        if (p == end || *p != ':')
            break;
        m->value = p = skip_space(p + 1, end);
        p = value_end(p, end);
        m->value_len = (size_t)(p - m->value);
        count++;
        if (p == end || *p != ',')
            break;
        p = skip_space(p + 1, end);
    }
    return count;
}

const struct rpc_member *rpc_member_find(const struct rpc_member *members, size_t count, const char *key)
{
    size_t n = strlen(key);
    for (size_t i = 0; i < count; i++)
        if (members[i].key_len == n && memcmp(members[i].key, key, n) == 0)
            return &members[i];
    return NULL;
}
