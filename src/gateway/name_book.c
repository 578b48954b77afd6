/* SPDX-License-Identifier: Apache-2.0 */
/* name_book.c: see name_book.h. */
#include "gateway/name_book.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAP = 16 };

struct entry {
    struct ip address;
    char *name; /* NULL: free */
};

struct name_book {
    struct entry *entries; /* a ring once it is as long as it gets */
    size_t cap, next;
};

struct name_book *name_book_new(void)
{
    return calloc(1, sizeof(struct name_book));
}

void name_book_free(struct name_book *b)
{
    if (!b)
        return;
    for (size_t i = 0; i < b->cap; i++)
        free(b->entries[i].name);
    free(b->entries);
    free(b);
}

static struct entry *find(const struct name_book *b, const struct ip *address)
{
    for (size_t i = 0; i < b->cap; i++)
        if (b->entries[i].name && ip_equal(&b->entries[i].address, address))
            return &b->entries[i];
    return NULL;
}

/* The next place; most sandboxes ask for little. NULL: out of memory, and none had before. */
static struct entry *take_place(struct name_book *b)
{
    if (b->next == b->cap && b->cap < NAME_BOOK_MAX) {
        size_t cap = b->cap ? b->cap * 2 : FIRST_CAP;
        struct entry *more = realloc(b->entries, cap * sizeof *more);
        if (more) {
            memset(more + b->cap, 0, (cap - b->cap) * sizeof *more);
            b->entries = more;
            b->cap = cap;
        }
    }
    if (b->next == b->cap)
        b->next = 0;
    return b->cap ? &b->entries[b->next++] : NULL;
}

void name_book_add(struct name_book *b, const char *name, const struct ip *address)
{
    struct entry *e = find(b, address); /* one entry an address: who is asked for again moves nobody out */
    if (e && strcmp(e->name, name) == 0)
        return;
    char *copy = strdup(name);
    if (!copy || (!e && !(e = take_place(b)))) {
        free(copy);
        return;
    }
    free(e->name);
    *e = (struct entry){.address = *address, .name = copy};
}

const char *name_book_find(const struct name_book *b, const struct ip *address)
{
    const struct entry *e = find(b, address);
    return e ? e->name : NULL;
}
