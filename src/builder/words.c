/* SPDX-License-Identifier: Apache-2.0 */
/* words.c: see words.h. */
#include "builder/words.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int words_take(struct words *w, char *text)
{
    if (!text)
        return -ENOMEM;
    if (w->count + 1 >= WORDS_MAX) {
        free(text);
        return -E2BIG;
    }
    if (w->count + 1 >= w->cap) {
        size_t cap = w->cap ? w->cap * 2 : 8;
        char **items = realloc(w->items, cap * sizeof *items);
        if (!items) {
            free(text);
            return -ENOMEM;
        }
        w->items = items;
        w->cap = cap;
    }
    w->items[w->count++] = text;
    w->items[w->count] = NULL;
    return 0;
}

int words_add(struct words *w, const char *text, size_t n)
{
    return words_take(w, strndup(text, n));
}

int words_copy(struct words *to, const struct words *from)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < from->count; i++)
        r = words_take(to, strdup(from->items[i]));
    return r;
}

void words_done(struct words *w)
{
    for (size_t i = 0; i < w->count; i++)
        free(w->items[i]);
    free(w->items);
    *w = (struct words){0};
}

static char **find(const struct words *w, const char *name, size_t n)
{
    for (size_t i = 0; i < w->count; i++)
        if (strncmp(w->items[i], name, n) == 0 && w->items[i][n] == '=')
            return &w->items[i];
    return NULL;
}

const char *pairs_get(const struct words *w, const char *name, size_t n)
{
    char **pair = find(w, name, n);
    return pair ? *pair + n + 1 : NULL;
}

int pairs_set(struct words *w, const char *name, size_t n, const char *value)
{
    char *text;
    if (asprintf(&text, "%.*s=%s", (int)n, name, value) < 0)
        return -ENOMEM;
    char **pair = find(w, name, n);
    if (!pair)
        return words_take(w, text);
    free(*pair);
    *pair = text;
    return 0;
}
