/* SPDX-License-Identifier: Apache-2.0 */
/* shell_quote.c: single quotes, and the one character that they cannot hold. */
#include "agent/shell_quote.h"

#include <string.h>

int shell_quote(struct buf *out, const char *word)
{
    int r = buf_putc(out, '\'');
    while (r == 0 && *word) {
        size_t n = strcspn(word, "'");
        r = buf_append(out, word, n);
        word += n;
        if (r == 0 && *word) {
            r = buf_puts(out, "'\\''");
            word++;
        }
    }
    return r < 0 ? r : buf_putc(out, '\'');
}
