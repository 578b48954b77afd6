/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup_mountinfo.c: which control group hierarchies are mounted, and where. */
#include "keeper/cgroup_internal.h"

#include <errno.h>
#include <string.h>

/* The names v1 mounts use; on v2 blkio is called io, and devices, freezer, cpuacct are no controllers. */
static const char *const v1_names[] = {
    [CGROUP_MEMORY] = "memory",   [CGROUP_PIDS] = "pids",       [CGROUP_CPU] = "cpu",
    [CGROUP_IO] = "blkio",        [CGROUP_DEVICES] = "devices", [CGROUP_FREEZER] = "freezer",
    [CGROUP_CPUACCT] = "cpuacct",
};
_Static_assert(ARRAY_SIZE(v1_names) == CGROUP_KNOWN, "name every controller");

/* mountinfo writes space, tab, newline and backslash as a backslash and three octal digits. */
static bool unescape(const char *s, char *out, size_t size)
{
    size_t n = 0;
    for (; *s; s++) {
        char c = *s;
        if (c == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' &&
            s[3] <= '7') {
            c = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
            s += 3;
        }
        if (c == '\0' || n + 1 >= size)
            return false;
        out[n++] = c;
    }
    out[n] = '\0';
    return n > 0;
}

/* Looks at each comma-separated option; they are cut apart. */
static void options_parse(char *options, uint32_t *controllers, bool *read_only)
{
    for (char *save = NULL, *o = strtok_r(options, ",", &save); o; o = strtok_r(NULL, ",", &save)) {
        if (strcmp(o, "ro") == 0)
            *read_only = true;
        for (size_t i = 0; i < ARRAY_SIZE(v1_names); i++)
            if (strcmp(o, v1_names[i]) == 0)
                *controllers |= BIT(i);
    }
}

bool cgroup_mount_parse(char *line, struct cgroup_mount *ret)
{
    /* id parent major:minor root mountpoint options [optional fields] - type source superoptions */
    enum { ID, PARENT, DEV, ROOT, POINT, OPTIONS, FIXED };
    char *field[FIXED], *save = NULL;

    for (size_t i = 0; i < FIXED; i++) {
        field[i] = strtok_r(i == 0 ? line : NULL, " \n", &save);
        if (!field[i])
            return false;
    }
    char *sep;
    do
        sep = strtok_r(NULL, " \n", &save);
    while (sep && strcmp(sep, "-") != 0);
    char *type = sep ? strtok_r(NULL, " \n", &save) : NULL;
    char *source = type ? strtok_r(NULL, " \n", &save) : NULL;
    char *super = source ? strtok_r(NULL, " \n", &save) : NULL;
    if (!super)
        return false;

    *ret = (struct cgroup_mount){.whole = strcmp(field[ROOT], "/") == 0};
    if (strcmp(type, "cgroup2") == 0)
        ret->version = CGROUP_V2;
    else if (strcmp(type, "cgroup") == 0)
        ret->version = CGROUP_V1;
    else
        return false;

    bool read_only = false;
    uint32_t ignored = 0;
    options_parse(field[OPTIONS], &ignored, &read_only);
    options_parse(super, ret->version == CGROUP_V1 ? &ret->controllers : &ignored, &read_only);
    if (read_only || (ret->version == CGROUP_V1 && ret->controllers == 0))
        return false;
    return unescape(field[POINT], ret->path, sizeof ret->path);
}

static void mounts_add(struct cgroup_mounts *all, const struct cgroup_mount *m)
{
    for (size_t i = 0; i < all->count; i++) {
        struct cgroup_mount *old = &all->list[i];
        if (old->version != m->version || old->controllers != m->controllers)
            continue;
        if (m->whole && !old->whole)
            *old = *m;
        return;
    }
    if (all->count < ARRAY_SIZE(all->list))
        all->list[all->count++] = *m;
}

int cgroup_mounts_read(FILE *mountinfo, struct cgroup_mounts *ret)
{
    auto_free char *line = NULL;
    auto_free struct cgroup_mount *m = malloc(sizeof *m);
    size_t cap = 0;

    if (!m)
        return -ENOMEM;
    ret->count = 0;
    errno = 0;
    while (getline(&line, &cap, mountinfo) >= 0)
        if (cgroup_mount_parse(line, m))
            mounts_add(ret, m);
    return ferror(mountinfo) ? -(errno ? errno : EIO) : 0;
}
