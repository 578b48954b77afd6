/* SPDX-License-Identifier: Apache-2.0 */
/* list.h: a circular doubly linked list, embedded in its members. */
#pragma once

#include "base/util.h"

struct list {
    struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
    l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

static inline void list_append(struct list *head, struct list *item)
{
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}

/* Fine for an item that is in no list, as long as it was initialised. */
static inline void list_remove(struct list *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    list_init(item);
}

#define list_entry(item, type, member) container_of(item, type, member)
#define list_first(head, type, member) list_entry((head)->next, type, member)

/* The current member may be removed in the body, no other. */
#define list_for_each(pos, head)                                                   \
    for (struct list *pos = (head)->next, *pos##_next_ = pos->next; pos != (head); \
         pos = pos##_next_, pos##_next_ = pos->next)
