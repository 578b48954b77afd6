/* SPDX-License-Identifier: Apache-2.0 */
/* shell_quote.h: one word of a shell command, whatever bytes it has. */
#pragma once

#include "base/buf.h"

/* Appends word in single quotes: 0 or the buffer's error. */
int shell_quote(struct buf *out, const char *word);
