/* SPDX-License-Identifier: Apache-2.0 */
/* proto_volume.c: see proto_volume.h. */
#include "keeper/proto_volume.h"

#include <errno.h>
#include <string.h>

static bool letter_or_digit(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool volume_name_ok(const char *name)
{
    size_t n = strnlen(name, VOLUME_NAME_MAX + 1);
    if (n == 0 || n > VOLUME_NAME_MAX || name[0] == '.' || name[0] == '-')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!letter_or_digit(name[i]) && name[i] != '.' && name[i] != '_' && name[i] != '-')
            return false;
    return true;
}

bool machine_name_ok(const char *name)
{
    size_t n = strnlen(name, MACHINE_NAME_MAX + 1);
    if (n == 0 || n > MACHINE_NAME_MAX)
        return false;
    for (size_t i = 0; i < n; i++) {
        char before = i ? name[i - 1] : '.', after = name[i + 1];
        bool edge = before == '.' || after == '.' || after == '\0';
        if (!letter_or_digit(name[i]) && (edge || (name[i] != '-' && name[i] != '.')))
            return false;
    }
    return true;
}

int volume_path_check(const char *path, struct error *reterr)
{
    /* the agent's FIFOs are in /dev, the programs of code contexts in /opt/silica */
    static const char *const taken[] = {"/proc", "/sys", "/dev", "/opt/silica"};
    size_t n = strnlen(path, VOLUME_PATH_MAX + 1);
    if (path[0] != '/' || n < 2 || n > VOLUME_PATH_MAX)
        return error_set(reterr, EINVAL, "the path of a volume is absolute, not /, and has %d bytes at most",
                         VOLUME_PATH_MAX);
    for (const char *p = path; *p; p += strcspn(p, "/")) {
        size_t len = strcspn(++p, "/");
        if (len == 0 || (len == 1 && p[0] == '.') || (len == 2 && p[0] == '.' && p[1] == '.'))
            return error_set(reterr, EINVAL, "the path of a volume has no empty parts, '.' or '..'");
    }
    for (const unsigned char *p = (const unsigned char *)path; *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            return error_set(reterr, EINVAL, "the path of a volume has no control characters");
    for (size_t i = 0; i < ARRAY_SIZE(taken); i++) {
        size_t len = strlen(taken[i]);
        if (strncmp(path, taken[i], len) == 0 && (path[len] == '/' || path[len] == '\0'))
            return error_set(reterr, EINVAL, "a volume cannot be mounted at or below %s", taken[i]);
    }
    return 0;
}

static bool all_zero(const struct keeper_volume_mount *v)
{
    static const struct keeper_volume_mount none;
    return memcmp(v, &none, sizeof none) == 0;
}

int keeper_volumes_count(const struct keeper_volume_mount v[KEEPER_VOLUMES_MAX], bool paths)
{
    int count = 0;
    for (size_t i = 0; i < KEEPER_VOLUMES_MAX; i++) {
        if (all_zero(&v[i]))
            continue;
        if ((size_t)count != i || !volume_name_ok(v[i].name) || v[i].read_only > 1 || v[i].reserved)
            return -EBADMSG;
        if (paths ? volume_path_check(v[i].path, NULL) < 0 : v[i].path[0] || v[i].read_only)
            return -EBADMSG;
        count++;
    }
    return count;
}
