/* SPDX-License-Identifier: Apache-2.0 */
/* name_book.h: under which names a sandbox found addresses: the last few hundred of them, for its log. No
 * I/O. */
#pragma once

#include "base/ip.h"

enum { NAME_BOOK_MAX = 256 };

struct name_book;

struct name_book *name_book_new(void);    /* NULL: out of memory */
void name_book_free(struct name_book *b); /* NULL is fine */
/* A new entry makes room for itself at the cost of the oldest. */
void name_book_add(struct name_book *b, const char *name, const struct ip *address);
/* The name through which this address became known last; NULL: none. */
const char *name_book_find(const struct name_book *b, const struct ip *address);
