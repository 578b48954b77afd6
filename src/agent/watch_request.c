/* SPDX-License-Identifier: Apache-2.0 */
/* watch_request.c: see watch_request.h. */
#include "agent/watch_request.h"
#include "agent/agent.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

int watch_path_resolve(const char *base, const char *path, char **ret)
{
    size_t len = strlen(base) + strlen(path) + 2;
    if (len > PATH_MAX)
        return -ENAMETOOLONG;
    char *out = malloc(len + 1);
    if (!out)
        return -ENOMEM;
    size_t n = 0;
    for (int part = path[0] == '/'; part < 2; part++) { /* base (unless path is absolute), then path */
        const char *s = part == 0 ? base : path;
        while (*(s += strspn(s, "/"))) {
            size_t name = strcspn(s, "/");
            if (name == 2 && s[0] == '.' && s[1] == '.') {
                while (n > 0 && out[--n] != '/')
                    ;
            } else if (name != 1 || s[0] != '.') {
                out[n++] = '/';
                memcpy(out + n, s, name);
                n += name;
            }
            s += name;
        }
    }
    if (n == 0)
        out[n++] = '/';
    out[n] = '\0';
    *ret = out;
    return 0;
}

static bool blank(const char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    return *s == '\0';
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorts and removes repetitions. */
static void unique(char **list, size_t *count)
{
    size_t kept = 0;
    if (*count == 0)
        return;
    qsort(list, *count, sizeof *list, compare);
    for (size_t i = 1; i < *count; i++) {
        if (strcmp(list[kept], list[i]) != 0)
            list[++kept] = list[i];
        else
            free(list[i]);
    }
    *count = kept + 1;
}

static int parse_patterns(const struct json_value *v, const char *field, char ***ret, size_t *ret_count,
                          struct error *reterr)
{
    if (json_type_of(v) == JSON_NULL)
        return 0;
    if (json_type_of(v) != JSON_ARRAY)
        return error_set(reterr, EINVAL, "%s must be an array of strings", field);
    if (json_count(v) > WATCH_GLOB_PATTERNS_MAX)
        return error_set(reterr, EINVAL, "%s has more than %d patterns", field, WATCH_GLOB_PATTERNS_MAX);
    char **list = calloc(json_count(v) + 1, sizeof(char *));
    if (!list)
        return error_set(reterr, ENOMEM, "Out of memory");
    *ret = list; /* the caller frees what is in it, also on failure */
    json_for_each (item, v) {
        const char *s = json_string(item, NULL);
        if (!s)
            return error_set(reterr, EINVAL, "%s must be an array of strings", field);
        if (blank(s))
            return error_set(reterr, EINVAL, "%s has an empty pattern", field);
        if (strpbrk(s, "[]{}"))
            return error_set(reterr, EINVAL,
                             "%s: the pattern '%.100s' has one of [ ] { }, which are not supported", field,
                             s);
        if (!(list[*ret_count] = strdup(s)))
            return error_set(reterr, ENOMEM, "Out of memory");
        ++*ret_count;
    }
    unique(list, ret_count);
    return 0;
}

static int parse_events(const struct json_value *v, unsigned *ret, struct error *reterr)
{
    *ret = 0;
    if (json_type_of(v) != JSON_NULL && json_type_of(v) != JSON_ARRAY)
        return error_set(reterr, EINVAL, "events must be an array of strings");
    json_for_each (item, v) {
        enum watch_event e;
        const char *s = json_string(item, NULL);
        if (!s || !watch_event_parse(s, &e))
            return error_set(reterr, EINVAL,
                             "events must be among create, modify, delete, move_from, move_to and attrib");
        *ret |= 1u << e;
    }
    if (*ret == 0)
        *ret = WATCH_EVENTS_DEFAULT;
    return 0;
}

static int default_excludes(struct watch_request *q)
{
    static const char *const names[] = {".DS_Store", ".git", "node_modules"};
    q->exclude = calloc(ARRAY_SIZE(names), sizeof(char *));
    for (size_t i = 0; q->exclude && i < ARRAY_SIZE(names); i++) {
        if (!(q->exclude[i] = strdup(names[i])))
            return -ENOMEM;
        q->exclude_count++;
    }
    return q->exclude ? 0 : -ENOMEM;
}

static int parse_path(const struct json_value *v, char **ret, struct error *reterr)
{
    const char *s = json_string(v, NULL);
    if (!s || blank(s))
        return error_set(reterr, EINVAL, "path must be a non-empty string");
    while (isspace((unsigned char)*s))
        s++;
    size_t n = strlen(s);
    while (n > 0 && isspace((unsigned char)s[n - 1]))
        n--;
    auto_free char *trimmed = strndup(s, n);
    int r = trimmed ? watch_path_resolve(AGENT_WORKSPACE, trimmed, ret) : -ENOMEM;
    if (r == -ENAMETOOLONG)
        return error_set(reterr, EINVAL, "path is too long");
    return r < 0 ? error_set(reterr, -r, "Out of memory") : 0;
}

static int parse(const struct json_value *body, struct watch_request *q, struct error *reterr)
{
    const struct json_value *include = json_get(body, "include"), *exclude = json_get(body, "exclude"),
                            *recursive = json_get(body, "recursive");
    if (json_type_of(body) != JSON_OBJECT)
        return error_set(reterr, EINVAL, "The request body must be a JSON object");
    int r = parse_path(json_get(body, "path"), &q->path, reterr);
    if (r < 0)
        return r;
    if (json_type_of(recursive) != JSON_NULL && json_type_of(recursive) != JSON_BOOL)
        return error_set(reterr, EINVAL, "recursive must be a boolean");
    q->recursive = json_bool(recursive, true);
    if ((r = parse_patterns(include, "include", &q->include, &q->include_count, reterr)) < 0 ||
        (r = parse_patterns(exclude, "exclude", &q->exclude, &q->exclude_count, reterr)) < 0 ||
        (r = parse_events(json_get(body, "events"), &q->events, reterr)) < 0)
        return r;
    if (q->include_count && q->exclude_count)
        return error_set(reterr, EINVAL, "include and exclude cannot be used together");
    if (!q->include_count && !q->exclude && (r = default_excludes(q)) < 0)
        return error_set(reterr, -r, "Out of memory");
    return 0;
}

int watch_request_parse(const struct json_value *body, struct watch_request *ret, struct error *reterr)
{
    static const size_t root = sizeof AGENT_WORKSPACE - 1;
    *ret = (struct watch_request){0};
    int r = parse(body, ret, reterr);
    if (r < 0) {
        watch_request_done(ret);
        return r;
    }
    if (strncmp(ret->path, AGENT_WORKSPACE, root) != 0 || (ret->path[root] != '\0' && ret->path[root] != '/'))
        return error_set(reterr, EACCES, "Path must be within %s", AGENT_WORKSPACE);
    return 0;
}
