/* SPDX-License-Identifier: Apache-2.0 */
/* program.c: see program.h. */
#include "agent/program.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

int program_find(const struct env_list *env, const char *name, char *out, size_t cap)
{
    const char *path = env_get(env, "PATH");
    if (strchr(name, '/'))
        return (size_t)snprintf(out, cap, "%s", name) < cap ? 0 : -ENAMETOOLONG;
    for (const char *p = path && *path ? path : "/usr/local/bin:/usr/bin:/bin"; *name;) {
        size_t n = strcspn(p, ":");
        size_t len = (size_t)snprintf(out, cap, "%.*s/%s", (int)n, n ? p : ".", name);
        if (len < cap && is_program(out))
            return 0;
        if (!p[n])
            break;
        p += n + 1;
    }
    return -ENOENT;
}
