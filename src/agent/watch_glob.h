/* SPDX-License-Identifier: Apache-2.0 */
/* watch_glob.h: the include and exclude patterns of file watching. */
#pragma once

#include "base/util.h"

enum {
    WATCH_GLOB_PATTERNS_MAX = 256,
    WATCH_GLOB_TOKENS_MAX = 4096, /* of all patterns of a list together */
};

struct watch_glob;

/* patterns are UTF-8 and not empty. 0, -E2BIG (more than the limits above) or -ENOMEM. */
int watch_glob_new(const char *const *patterns, size_t count, struct watch_glob **ret);
void watch_glob_free(struct watch_glob *g); /* NULL is fine */

/* True when a pattern matches some run of whole components of path: the run begins at the start of the path
 * or behind a '/', and ends at the end of the path or before a '/'. `*` and `?` stay within a component, `**`
 * does not. An empty list (or NULL) matches nothing. Time is at most tokens times length, whatever the
 * pattern. */
bool watch_glob_match(const struct watch_glob *g, const char *path);
