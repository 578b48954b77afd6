/* SPDX-License-Identifier: Apache-2.0 */
/* suggest.c: see suggest.h. */
#include "cli/suggest.h"

#include <string.h>

unsigned edit_distance(const char *a, const char *b)
{
    /* three rows of the usual table: a swap of neighbours looks two rows back */
    unsigned rows[3][SUGGEST_WORD_MAX + 1];
    size_t na = strnlen(a, SUGGEST_WORD_MAX), nb = strnlen(b, SUGGEST_WORD_MAX);

    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        unsigned *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned d = last[j - 1] + (a[i - 1] != b[j - 1]);
            d = MIN(d, last[j] + 1);
            d = MIN(d, now[j - 1] + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d = MIN(d, before[j - 2] + 1);
            now[j] = d;
        }
    }
    return rows[na % 3][nb];
}

void suggestion_offer(struct suggestion *s, const char *candidate)
{
    size_t typed = strlen(s->word);
    unsigned allowed = typed < 3 ? 1 : (unsigned)typed / 3;
    unsigned d = edit_distance(s->word, candidate);

    /* a word cut short is a good guess whatever its distance */
    if (typed >= 2 && strncmp(candidate, s->word, typed) == 0)
        d = MIN(d, 1U);
    if (d > allowed || (size_t)d >= strlen(candidate) || (s->best && d >= s->distance))
        return;
    s->best = candidate;
    s->distance = d;
}
