/* SPDX-License-Identifier: Apache-2.0 */
/* expand.h: variables and quotes in the words of a Dockerfile.
 *
 * $NAME, ${NAME}, ${NAME:-word}, ${NAME:+word}, ${NAME:?word} and the three without the colon (which then
 * only ask whether the variable is set), ${NAME#pattern}, ${NAME##pattern}, ${NAME%pattern} and
 * ${NAME%%pattern}; word may contain variables again. Quotes and escape characters are taken away. */
#pragma once

#include "base/buf.h"
#include "base/error.h"

enum { EXPAND_DEPTH_MAX = 16, EXPAND_MAX = 1 << 20 };

/* The value of a variable, NULL: not set. */
typedef const char *(*expand_lookup)(const char *name, size_t n, void *user);

/* *ret is malloc'ed. -EINVAL, -E2BIG or -ENOMEM with a sentence. */
int expand_word(const char *text, char escape, expand_lookup lookup, void *user, char **ret,
                struct error *reterr);
/* Only variables: quotes and escape characters other than those in front of '$' stay. For heredocs. */
int expand_text(const char *text, char escape, expand_lookup lookup, void *user, char **ret,
                struct error *reterr);
