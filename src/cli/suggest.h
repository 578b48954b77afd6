/* SPDX-License-Identifier: Apache-2.0 */
/* suggest.h: "did you mean ...?": the known word nearest to a mistyped one. */
#pragma once

#include "base/util.h"

/* Number of single-character insertions, deletions, replacements and swaps of neighbours between a and b.
 * Only the first SUGGEST_WORD_MAX characters count. */
enum { SUGGEST_WORD_MAX = 40 };
unsigned edit_distance(const char *a, const char *b);

struct suggestion {
    const char *word; /* what was typed */
    const char *best; /* the best offer so far, NULL: nothing near enough */
    unsigned distance;
};

#define SUGGESTION_INIT(typed) \
    (struct suggestion)        \
    {                          \
        .word = (typed)        \
    }

void suggestion_offer(struct suggestion *s, const char *candidate);
