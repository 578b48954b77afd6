/* SPDX-License-Identifier: Apache-2.0 */
/* pattern.h: the patterns of .dockerignore and of COPY.
 *
 * '*' and '?' match anything but '/', '**' any number of directories, [a-z] and [^a-z] one character, '\'
 * takes the meaning of the next character away. Patterns and paths are relative and clean: "a/b", no "./", no
 * "..". */
#pragma once

#include "base/error.h"

enum { PATTERN_MAX = 4096, IGNORE_PATTERNS_MAX = 4096, IGNORE_FILE_MAX = 1 << 20 };

struct pattern;

/* With deep, "**" means directories; otherwise it is a '*'. -EINVAL with a sentence for a broken one. */
int pattern_compile(const char *text, bool deep, struct pattern **ret, struct error *reterr);
bool pattern_match(const struct pattern *p, const char *path);
bool pattern_is_plain(const char *text); /* nothing in it that needs matching */
void pattern_free(struct pattern *p);    /* NULL is fine */

/* "./a//b/../c/" as "a/c"; what leads out of the top is dropped ("../x" is "x"); the top itself is "". The
 * result is malloc'ed, NULL: no memory. */
char *path_clean(const char *path);

/* The rules of a .dockerignore: the last pattern that matches a path or a directory above it decides. */
struct ignore;
int ignore_parse(const char *text, size_t n, struct ignore **ret, struct error *reterr);
bool ignore_excludes(const struct ignore *i, const char *path); /* i may be NULL: nothing is */
/* A directory that is excluded need not be looked into. */
bool ignore_has_exceptions(const struct ignore *i);
void ignore_free(struct ignore *i);
