/* SPDX-License-Identifier: Apache-2.0 */
/* environ.h: one environment made of layers: image, sandbox, session, command; the later layer wins. */
#pragma once

#include "base/util.h"

enum { ENV_MAX_VARS = 4096 };

/* "NAME=value" strings, NULL-terminated once it has an entry. */
struct env_list {
    char **vars;
    size_t count, cap;
};

/* Both return 0, -ENOMEM, -E2BIG (too many variables) or -EINVAL (no name, or a name with '='). */
int env_set(struct env_list *e, const char *name, const char *value);
int env_put(struct env_list *e, const char *assignment); /* "NAME=value" */

const char *env_get(const struct env_list *e, const char *name); /* NULL when unset */

/* Lays a layer over *e. The vector form takes environ or env_list.vars; NULL is an empty layer. Entries
 * without
 * '=' are left out. */
int env_merge(struct env_list *e, char *const *layer);
/* The same for a block of NUL-terminated "NAME=value" strings. */
int env_merge_block(struct env_list *e, const char *block, size_t n);

/* ^[A-Za-z_][A-Za-z0-9_]*$ */
bool env_name_valid(const char *name);

void env_done(struct env_list *e);
