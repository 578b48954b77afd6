/* SPDX-License-Identifier: Apache-2.0 */
/* words.h: a list of strings that owns them, as used all over the builder. */
#pragma once

#include "base/error.h"

enum { WORDS_MAX = 65536 };

struct words {
    char **items; /* NULL behind the last one once there is one */
    size_t count;
    size_t cap;
};

/* All return 0, -ENOMEM or -E2BIG. words_take frees the text when it fails. */
int words_take(struct words *w, char *text); /* NULL counts as no memory */
int words_add(struct words *w, const char *text, size_t n);
int words_copy(struct words *to, const struct words *from); /* to is empty before */
void words_done(struct words *w);

/* "NAME=VALUE" lists: the value of a name (NULL: none), and setting one in place. */
const char *pairs_get(const struct words *w, const char *name, size_t n);
int pairs_set(struct words *w, const char *name, size_t n, const char *value);
