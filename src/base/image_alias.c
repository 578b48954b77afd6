/* SPDX-License-Identifier: Apache-2.0 */
/* image_alias.c: see image_alias.h. */
#include "base/image_alias.h"

#include <string.h>

static const struct row {
    const char *name; /* a '*' at the end: anything may follow */
    struct image_alias alias;
} rows[] = {
    {"cloudflare/sandbox*", {"base", "the sandbox server, Python, Node and git", true}},
    {"ghcr.io/cloudflare/sandbox*", {"base", "the sandbox server, Python, Node and git", true}},
    {"debian", {"base", "Debian with Python and Node", false}},
    {"ubuntu", {"base", "Debian with Python and Node", false}},
    {"buildpack-deps", {"base", "Debian with Python and Node", false}},
    {"python", {"base", "Debian with its Python 3", false}},
    {"node", {"base", "Debian with its Node", false}},
    {"scratch", {"base", "a whole Debian: sandboxes need a shell", false}},
};

/* Behind the registry and the directory of official images. */
static const char *without_prefix(const char *s)
{
    static const char *const prefixes[] = {"docker.io/", "index.docker.io/", "registry-1.docker.io/",
                                           "library/"};
    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
        if (strncmp(s, prefixes[i], strlen(prefixes[i])) == 0)
            s += strlen(prefixes[i]);
    return s;
}

const struct image_alias *image_alias_find(const char *reference)
{
    const char *name = without_prefix(reference);
    size_t n = strcspn(name, "@");
    /* a colon before the last slash belongs to a registry's port */
    for (size_t i = n; i > 0 && name[i - 1] != '/'; i--)
        if (name[i - 1] == ':')
            n = i - 1;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        size_t len = strlen(rows[i].name);
        bool prefix = rows[i].name[len - 1] == '*';
        if (prefix ? n >= len - 1 && strncmp(name, rows[i].name, len - 1) == 0
                   : n == len && strncmp(name, rows[i].name, len) == 0)
            return &rows[i].alias;
    }
    return NULL;
}
