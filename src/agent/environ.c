/* SPDX-License-Identifier: Apache-2.0 */
/* environ.c: see environ.h. Look-up is linear: environments have some dozens of entries. */
#include "agent/environ.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static char **find(const struct env_list *e, const char *name, size_t name_len)
{
    for (size_t i = 0; i < e->count; i++)
        if (strncmp(e->vars[i], name, name_len) == 0 && e->vars[i][name_len] == '=')
            return &e->vars[i];
    return NULL;
}

/* Takes over `entry`. */
static int insert(struct env_list *e, char *entry, size_t name_len)
{
    char **old = find(e, entry, name_len);
    if (old) {
        free(*old);
        *old = entry;
        return 0;
    }
    int r = -E2BIG;
    if (e->count == ENV_MAX_VARS)
        goto fail;
    if (e->count + 2 > e->cap) {
        size_t cap = e->cap ? e->cap * 2 : 16;
        char **vars = realloc(e->vars, cap * sizeof *vars);
        r = -ENOMEM;
        if (!vars)
            goto fail;
        e->vars = vars;
        e->cap = cap;
    }
    e->vars[e->count++] = entry;
    e->vars[e->count] = NULL;
    return 0;
fail:
    free(entry);
    return r;
}

int env_set(struct env_list *e, const char *name, const char *value)
{
    size_t name_len = strlen(name), value_len = strlen(value);
    if (!name_len || strchr(name, '='))
        return -EINVAL;
    char *entry = malloc(name_len + value_len + 2);
    if (!entry)
        return -ENOMEM;
    memcpy(entry, name, name_len);
    entry[name_len] = '=';
    memcpy(entry + name_len + 1, value, value_len + 1);
    return insert(e, entry, name_len);
}

int env_put(struct env_list *e, const char *assignment)
{
    const char *eq = strchr(assignment, '=');
    if (!eq || eq == assignment)
        return -EINVAL;
    char *entry = strdup(assignment);
    return entry ? insert(e, entry, (size_t)(eq - assignment)) : -ENOMEM;
}

const char *env_get(const struct env_list *e, const char *name)
{
    size_t n = strlen(name);
    char **var = find(e, name, n);
    return var ? *var + n + 1 : NULL;
}

int env_merge(struct env_list *e, char *const *layer)
{
    for (; layer && *layer; layer++) {
        int r = env_put(e, *layer);
        if (r < 0 && r != -EINVAL)
            return r;
    }
    return 0;
}

int env_merge_block(struct env_list *e, const char *block, size_t n)
{
    while (n) {
        const char *end = memchr(block, '\0', n);
        if (!end)
            break; /* an unterminated rest is not a variable */
        int r = env_put(e, block);
        if (r < 0 && r != -EINVAL)
            return r;
        n -= (size_t)(end - block) + 1;
        block = end + 1;
    }
    return 0;
}

bool env_name_valid(const char *name)
{
    for (const char *p = name; *p; p++) {
        bool alpha = (*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z') || *p == '_';
        if (!alpha && (p == name || *p < '0' || *p > '9'))
            return false;
    }
    return *name != '\0';
}

void env_done(struct env_list *e)
{
    for (size_t i = 0; i < e->count; i++)
        free(e->vars[i]);
    free(e->vars);
    *e = (struct env_list){0};
}
